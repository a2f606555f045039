"""Skills on a continuous scale as one small file: the part of a DIAYN-C policy that reads points instead of numbers.

A state folder of `core/files.py` of the kind `continuous_skills`. The policy that was trained is an embedding of its
discrete skills and a network behind it; the file holds the network, by its architecture, with its inputs by name in
their order (`observation`, `skill`), and the points at which the trained skills lie. A controller above it chooses any
point of (-1, 1)^n.

    skills = ContinuousSkills.load("runs/walker_diaync")
    action = skills.act(observation, skill)                      # [B, .], [B, 7] -> [B, A], the mean
    action = skills.act(observation, skills.points[[3] * B])     # the fourth of the trained skills
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gaitway.agents.diayn_policy import DIAYNPolicy
from gaitway.core.config import did_you_mean
from gaitway.core.files import load_state, save_state
from gaitway.envs.vec_env import EnvSpec
from gaitway.skills.skill_file import Architecture, SkillFileError, component_names

KIND = "continuous_skills"
INPUTS = ("observation", "skill")
"""What the network reads, in this order."""


@dataclass
class ContinuousSkills:
    """A frozen policy over a continuous scale of skills. `act` is all that a controller above it calls."""

    robot: str
    """Whose skills they are: the robot of the goal space, or the environment they were learnt in."""
    architecture: Architecture
    network: nn.Module
    inputs: dict[str, tuple[str, ...]]
    """What the network reads: `observation` and `skill`, in this order, with the names of their components."""
    actions: tuple[str, ...]
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    points: Tensor
    """Where the trained skills lie, [n_skills, n_embed]."""
    control_dt: float
    """Seconds per step."""
    accuracy: list[float] = field(default_factory=list)
    """Of each trained skill, the share of steps in which the discriminator knew it, where that was measured."""
    origin: dict[str, Any] = field(default_factory=dict)
    """Where it comes from: env_steps, seed, command, commit."""

    def __post_init__(self) -> None:
        self.network.requires_grad_(False).eval()
        low, high = torch.tensor(self.action_low), torch.tensor(self.action_high)
        self._centre, self._half = (high + low) / 2, (high - low) / 2

    @torch.no_grad()
    def act(self, observation: Tensor, skill: Tensor) -> Tensor:
        """The mean action [B, A] for the robot's observation [B, .] and points of the scale of skills [B, n_embed]."""
        given = {"observation": observation, "skill": skill}
        for name, value in given.items():
            width = len(self.inputs[name])
            if value.ndim != 2 or value.shape[1] != width:
                raise SkillFileError(f"{name} is {list(value.shape)}; these skills of {self.robot} read [B, {width}]")
        if len(observation) != len(skill):
            raise SkillFileError(
                f"observation has {len(observation)} rows and skill {len(skill)}; give every row a skill"
            )
        joined = torch.cat([given[name] for name in self.inputs], -1).float()
        mean = self.network(joined).float().chunk(2, -1)[0].tanh()
        return mean * self._half.to(mean.device) + self._centre.to(mean.device)

    def to(self, device: torch.device | str) -> ContinuousSkills:
        self.network.to(device)
        self.points = self.points.to(device)
        return self

    # Files

    def save(self, path: str | Path) -> None:
        """Write the file, by one rename."""
        state = {name: value.detach().cpu().clone() for name, value in self.network.state_dict().items()}
        meta = {
            "robot": self.robot,
            "architecture": asdict(self.architecture) | {"hidden": list(self.architecture.hidden)},
            "inputs": [[name, list(components)] for name, components in self.inputs.items()],
            "actions": {
                "names": list(self.actions),
                "low": list(self.action_low),
                "high": list(self.action_high),
            },
            "control_dt": self.control_dt,
            "accuracy": list(self.accuracy),
            "origin": self.origin,
        }
        save_state(path, {"network": state, "points": self.points.detach().cpu().clone()}, kind=KIND, meta=meta)

    @classmethod
    def load(cls, path: str | Path) -> ContinuousSkills:
        """The skills at `path`, or those of a run folder."""
        folder = Path(path)
        folder = folder / KIND if (folder / KIND).is_dir() else folder
        state, meta = load_state(folder, kind=KIND)
        try:
            shape, actions = meta["architecture"], meta["actions"]
            architecture = Architecture(
                tuple(shape["hidden"]), shape["trunk"], shape["activation"], bool(shape["layer_norm"])
            )
            inputs = {name: tuple(components) for name, components in meta["inputs"]}
            names, low, high = tuple(actions["names"]), tuple(actions["low"]), tuple(actions["high"])
            _check_contents(meta["robot"], inputs, names, (low, high), state["points"])
            return cls(
                meta["robot"],
                architecture,
                architecture.build(sum(map(len, inputs.values())), len(names), state["network"]),
                inputs,
                names,
                low,
                high,
                state["points"].float(),
                float(meta["control_dt"]),
                [float(share) for share in meta["accuracy"]],
                dict(meta["origin"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError) as error:
            reason = (str(error.args[0] if error.args else error).splitlines() or [type(error).__name__])[0]
            lacks = "it lacks " if isinstance(error, KeyError) else ""
            raise SkillFileError(
                f"{path} is not a skill file that can be used: {lacks}{reason}; export it again"
            ) from error

    @classmethod
    def of_policy(cls, policy: DIAYNPolicy, **known: Any) -> ContinuousSkills:
        """The skills that a policy with an embedding (`agent.n_embed`) has learnt, as they are now."""
        check_exportable(policy)
        config, spec = policy.config, policy.spec
        architecture = Architecture(tuple(config.actor_hidden), config.trunk, config.activation, config.layer_norm)
        embedded = config.n_embed or 0
        inputs = {
            "observation": _observed_names(spec, policy.groups["actor"]),
            "skill": tuple(f"skill[{number}]" for number in range(embedded)),
        }
        embedding, base = policy.actor.get_submodule("embedding"), policy.actor.get_submodule("base")
        weights = {name: value.clone() for name, value in base.state_dict().items()}
        network = architecture.build(sum(map(len, inputs.values())), len(spec.action.names), weights)
        with torch.no_grad():
            points = embedding(torch.eye(config.n_skills, device=policy.places.device)).cpu()
        action = spec.action
        return cls(
            spec.facts.get("skills", {}).get("robot", spec.id),
            architecture,
            network,
            inputs,
            action.names,
            action.low,
            action.high,
            points,
            spec.control_dt,
            **known,
        )

    # Fitting an environment

    def check_fits(self, robot: str, observation: Sequence[str], actions: Sequence[str]) -> None:
        """Refuse a robot that these skills do not belong to, component by component."""
        if robot != self.robot:
            raise SkillFileError(
                f"these are skills of {self.robot} and the robot is {robot}; use the skill file of that robot"
            )
        lacking = [name for name in self.inputs["observation"] if name not in observation]
        if lacking:
            raise SkillFileError(
                f"these skills read {lacking[0]!r}{did_you_mean(lacking[0], observation)}, which the environment does "
                "not show; use one that shows the robot's joints"
            )
        if tuple(actions) != self.actions:
            raise SkillFileError(
                f"these skills move {', '.join(self.actions)}, the environment takes {', '.join(actions)}; use one "
                "with the same actions"
            )


def check_exportable(policy: DIAYNPolicy) -> None:
    """Refuse a policy that no file of continuous skills can hold."""
    config = policy.config
    if config.n_embed is None:
        raise SkillFileError("skills without an embedding are no continuous scale; train with agent.n_embed=7")
    if config.actor_network is not None or config.normalise_observations:
        raise SkillFileError(
            "a file of continuous skills holds a plain network; train without actor_network and normalise_observations"
        )


def _check_contents(
    robot: Any,
    inputs: dict[str, tuple[str, ...]],
    names: tuple[str, ...],
    limits: Sequence[tuple[float, ...]],
    points: Any,
) -> None:
    """Refuse what no file of ours says, in a sentence about it."""
    if not isinstance(robot, str):
        raise ValueError(f"its robot is {robot!r} instead of a name")
    if tuple(inputs) != INPUTS:
        raise ValueError(f"its inputs are {list(inputs)} instead of {list(INPUTS)}")
    for bounds in limits:
        if len(bounds) != len(names) or not all(math.isfinite(bound) for bound in bounds):
            raise ValueError(f"the limits of its {len(names)} actions are {list(bounds)[:8]}")
    is_table = isinstance(points, Tensor) and points.ndim == 2 and len(points) > 0
    if not is_table or points.shape[1] != len(inputs["skill"]) or not bool(torch.isfinite(points).all()):
        raise ValueError(f"its points are no finite numbers, {len(inputs['skill'])} for every skill")


def _observed_names(spec: EnvSpec, groups: Sequence[str]) -> tuple[str, ...]:
    """One name per number of the observation; of several groups, with the group's name before it."""
    if len(groups) == 1:
        return component_names(spec, groups[0])
    return tuple(f"{group}/{name}" for group in groups for name in component_names(spec, group))
