"""Everything that a legged task can be told. Ids are presets of it (`presets.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from gaitway.core.config import configuration
from gaitway.core.ranges import Count, NotNegative, Number, Positive
from gaitway.envs.legged.actions import MODES
from gaitway.envs.legged.commands import CommandConfig
from gaitway.envs.legged.endings import ENDINGS
from gaitway.envs.legged.gaits import GaitConfig
from gaitway.envs.legged.latency import LatencyConfig
from gaitway.envs.legged.randomise import PushConfig, RandomiseConfig
from gaitway.envs.legged.rewards import RewardTerm
from gaitway.envs.legged.terrain.config import TerrainConfig


@configuration(kw_only=True)
class StartConfig:
    """Where episodes begin."""

    xy: NotNegative = 0.3
    """+- m"""
    yaw: NotNegative = 3.141592653589793
    """+- rad"""
    joints: NotNegative = 0.15
    """+- rad around the default pose, within the limits."""
    velocity: NotNegative = 0.3
    """+- m/s of the base along x, y and z."""
    ahead: NotNegative = 0.0
    """m by which the middle of the starts lies ahead of the terrain's origin."""
    lean: NotNegative = 0.0
    """+- rad of roll and pitch."""
    tumbled: bool = False
    """Any orientation, dropped from half a metre, joints anywhere in their ranges."""


@configuration(kw_only=True)
class LeggedConfig:
    """Options of legged tasks."""

    robot: str = "pup12"
    """pup12, pup4, walker, humanoid, go1, spot, g1, h1, t1, or a YAML file."""
    timestep: Positive | None = None
    """Seconds of a substep; null: the robot's."""
    substeps: Count | None = None
    """Substeps of a control step; null: the robot's."""
    self_collision: bool | None = None
    """Whether legs touch each other and the base; null: as the robot says."""
    action: Literal["joint_offset", "joint_delta", "gait_residual", "gait_params"] = "joint_offset"
    action_limit: Positive = 4.0
    """Actions are clipped to this and its negative."""
    action_scale: Positive | None = None
    """rad of one unit; null: the robot's, 0.15 for gait_residual, 0.5 for joint_delta."""
    gait: GaitConfig = field(default_factory=GaitConfig)
    observations: Mapping[str, list[str]] = field(default_factory=lambda: {"policy": ["policy"], "critic": ["critic"]})
    """Groups and the leaves they consist of, in order."""
    noise: NotNegative = 1.0
    """Factor of the noise of observations, 0 for none."""
    latency: LatencyConfig = field(default_factory=LatencyConfig)
    commands: CommandConfig = field(default_factory=CommandConfig)
    rewards: list[RewardTerm] = field(default_factory=list)
    """The whole list; `reward_weights` changes single weights."""
    reward_weights: Mapping[str, Number] = field(default_factory=dict)
    """Weights by name of a term, in the place of those of the list; 0 removes a term."""
    clip_negative: bool = False
    """A negative sum of terms counts as 0, before a termination is paid for."""
    endings: list[str] = field(default_factory=lambda: ["trunk", "tilt", "height"])
    """What terminates an episode: trunk, links, tilt, height; finish: the end of a track, else truncated there."""
    episode_seconds: Positive = 20.0
    warm_up: NotNegative = 1.0
    """Seconds at the beginning of an episode that measures of tracking leave out."""
    randomise: RandomiseConfig = field(default_factory=RandomiseConfig)
    pushes: PushConfig = field(default_factory=PushConfig)
    start: StartConfig = field(default_factory=StartConfig)
    terrain: TerrainConfig = field(default_factory=TerrainConfig)

    def __post_init__(self) -> None:
        if unknown := [name for name in self.endings if name not in ENDINGS]:
            raise ValueError(f"endings has {unknown[0]!r}; use some of {list(ENDINGS)}")
        if unknown := [name for name in self.reward_weights if name not in {term.name for term in self.rewards}]:
            names = [term.name for term in self.rewards]
            raise ValueError(f"reward_weights names {unknown[0]!r}, which rewards does not list; it has {names}")
        if self.action not in MODES:
            raise ValueError(f"action is {self.action!r}; use one of {list(MODES)}")
        if not self.observations:
            raise ValueError("observations is empty; list a group, such as {policy: [policy]}")
        if empty := [group for group, leaves in self.observations.items() if not leaves]:
            raise ValueError(f"observations.{empty[0]} is empty; list what it shows, such as [policy], or leave it out")

    @property
    def terms(self) -> tuple[RewardTerm, ...]:
        """The rewards with the weights that hold."""
        return tuple(
            RewardTerm(
                name=term.name, weight=self.reward_weights.get(term.name, term.weight), options=dict(term.options)
            )
            for term in self.rewards
        )
