"""The networks of HIRO: a high level sets goals as displacements of features, a low level moves the robot there.

Every `interval` steps the high level reads the observation and sets a goal g for F features; between decisions what is
left of it is g + s - s'. The low level reads its own view of the observation and what is left, and acts. What is
remembered is the features' target s + g and how many steps ago it was set: zeros, as everywhere, decide anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import torch
from torch import Tensor

from gaitway.agents.level import Level
from gaitway.agents.observations import StateVariable
from gaitway.agents.replay_policy import StatefulPolicy
from gaitway.agents.soft_actor_critic import SoftActorCriticConfig
from gaitway.core.config import configuration, did_you_mean
from gaitway.core.ranges import Count
from gaitway.core.seeding import fill
from gaitway.core.workspace import Variable
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation

MEMORY, GOAL, PHASE = "goal/memory", "goal", "goal/phase"


@configuration
class HiroPolicyConfig(SoftActorCriticConfig):
    """Networks of both levels, and what passes between them."""

    interval: Count = 10
    """Steps from goal to goal."""
    features: str = "goal_space"
    """The observation group with the features that goals are about."""
    goal_ranges: dict[str, Any] = field(default_factory=dict)
    """Component -> [low, high]: by how much the high level may want it to change."""
    low_groups: tuple[str, ...] = ()
    """Observation groups that the low level reads; empty: those of the high level."""
    hide_from_low: tuple[str, ...] = ()
    """Components of them that the low level does not see."""
    dense: bool = False
    """Learn the high level from every step of a decision, with the phase as an input of its critics."""

    def __post_init__(self) -> None:
        for name, ends in self.goal_ranges.items():
            is_pair = isinstance(ends, list | tuple) and len(ends) == 2
            if not is_pair or not all(isinstance(end, int | float) for end in ends) or not ends[0] < ends[1]:
                raise ValueError(f"goal_ranges of {name!r} is {ends!r}; write [low, high], the smaller number first")


class HiroPolicy(StatefulPolicy):
    """Two levels, `high` and `low`, each with actor, critics and target."""

    columns: Tensor
    low_columns: Tensor
    goal_low: Tensor
    goal_high: Tensor

    def __init__(
        self,
        spec: EnvSpec,
        config: HiroPolicyConfig | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        self.config = config = config or HiroPolicyConfig()
        if spec.action.kind != "continuous":
            raise ValueError(f"{spec.id} has {spec.action.kind} actions; hiro moves robots by continuous ones")
        if config.blocks:
            raise ValueError("the levels of hiro read observations and goals alone; leave agent.blocks empty")
        columns = _goal_columns(spec, config)
        super().__init__(
            spec, config.observations, config.normalise_observations, config.observation_clip, (), generator
        )
        self.objects: tuple[str, ...] = ()
        self.low_groups = config.low_groups or self.groups["actor"]
        self.all_groups = tuple(dict.fromkeys((*self.all_groups, *self.low_groups, config.features)))
        self.actor_groups, self.reads = self.all_groups, tuple(f"env/obs/{name}" for name in self.all_groups)
        low_columns = _low_columns(spec, self.low_groups, config.hide_from_low)
        size = len(columns)
        self.memories = {
            MEMORY: StateVariable(1 + size, acts=True, through_time=False, parts=(("steps", 1), ("target", size)))
        }
        self.writes = tuple(self.variables(1, 1))
        low, high = zip(*config.goal_ranges.values(), strict=True)
        for name, values in (("goal_low", low), ("goal_high", high)):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32), persistent=False)
        for name, places in (("columns", columns), ("low_columns", low_columns)):
            self.register_buffer(name, torch.tensor(places), persistent=False)
        actor, critic = self.input_size("actor"), self.input_size("critic")
        spread = config.log_std_range
        self.high = Level(config, spread, actor, critic + int(config.dense), size, generator)
        seen, actions = len(low_columns) + size, len(spec.action.names)
        self.low = Level(config, spread, seen, seen, actions, generator)

    # What the levels read

    def features(self, obs: Mapping[str, Tensor]) -> Tensor:
        """The features that goals are about, in their own units, [..., F]."""
        return obs[self.config.features].float().index_select(-1, self.columns)

    def low_input(self, observed: Mapping[str, Tensor], goal: Tensor) -> Tensor:
        """What the low level reads of normalised groups and what is left of its goal [..., F]."""
        seen = torch.cat([observed[name] for name in self.low_groups], -1).index_select(-1, self.low_columns)
        return torch.cat((seen, goal), -1)

    def goal_of(self, decision: Tensor) -> Tensor:
        """Decisions within (-1, 1) [..., F] as displacements within their ranges."""
        return self.goal_low + (decision + 1.0) * 0.5 * (self.goal_high - self.goal_low)

    def decision_of(self, goal: Tensor) -> Tensor:
        """The other way round; a goal beyond its range is beyond (-1, 1)."""
        return 2.0 * (goal - self.goal_low) / (self.goal_high - self.goal_low) - 1.0

    # Playing

    def state_lines(self, state: Tensor) -> list[str]:
        """Where the features are to be brought, and in how many steps the next goal is set; `state` is [S]."""
        left = self.config.interval - int(state[0])
        targets = zip(self.config.goal_ranges, state[1:].tolist(), strict=True)
        return [f"next goal in {left} steps", *(f"{name} to {value:+.2f}" for name, value in targets)]

    def variables(self, num_envs: int, rows: int) -> dict[str, Variable]:
        size = len(self.config.goal_ranges)
        return super().variables(num_envs, rows) | {
            self.out(GOAL): Variable(rows, num_envs, (size,), torch.float32),
            self.out(PHASE): Variable(rows, num_envs, (), torch.int64),
        }

    def told(self, obs: Observation, before: Tensor, after: Tensor) -> dict[str, Tensor]:
        """What is left of the goal, and how many steps ago it was set."""
        return {GOAL: after[:, 1:] - self.features(obs), PHASE: after[:, 0].long() - 1}

    def act(
        self,
        obs: Observation,
        state: Tensor | None,
        stochastic: bool,
        generator: torch.Generator | None = None,
        uniform: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Actions [B, A], and what is remembered, [B, 1 + F]; if `uniform` both levels do anything."""
        observed, here = self.normalised(obs), self.features(obs)
        generator = generator or self.generator(here.device)
        count = here.shape[0]
        held = here.new_zeros(count, 1 + here.shape[1]) if state is None else state
        steps, target = held[:, :1], held[:, 1:]
        decides = (steps == 0) | (steps >= self.config.interval)
        if uniform:
            wanted = (
                fill(torch.empty(count, self.high.decisions, device=here.device), generator, "uniform_") * 2.0 - 1.0
            )
        else:
            wanted = self.high.decide(self.inputs(observed, ("actor",)).networks["actor"], stochastic, generator)
        target = torch.where(decides, here + self.goal_of(wanted), target)
        goal = target - here
        if uniform:
            action = self.range.uniform(count, here.device, generator)
        else:
            unit = self.low.decide(self.low_input(observed, goal), stochastic, generator)
            action = self.range.action(unit)
        return action, torch.cat((torch.where(decides, 1.0, steps + 1.0), target), -1)


def _goal_columns(spec: EnvSpec, config: HiroPolicyConfig) -> list[int]:
    """Columns of the group of features that goals are about."""
    if config.features not in spec.group_names:
        raise ValueError(
            f"{spec.id} shows no goal features: agent.features names {config.features!r}"
            f"{did_you_mean(config.features, spec.group_names)}, and its groups are {spec.group_names}; make it with "
            "env.options.goal_space=true, or name a group"
        )
    group = spec.group(config.features)
    known = [component.name for component in group.components]
    if not config.goal_ranges:
        raise ValueError(
            f"agent.goal_ranges is empty; say by how much components of {config.features!r} may change, e.g. "
            f"{{{known[0]}: [-1, 1]}}; there are {known}"
        )
    for name in config.goal_ranges:
        if name not in known:
            raise ValueError(
                f"agent.goal_ranges names {name!r}{did_you_mean(name, known)}, but {config.features!r} of {spec.id} "
                f"has {known}"
            )
        if group.columns(name).stop - group.columns(name).start != 1:
            raise ValueError(f"agent.goal_ranges names {name!r}, which is several numbers; goals are about single ones")
    return [group.columns(name).start for name in config.goal_ranges]


def _low_columns(spec: EnvSpec, groups: tuple[str, ...], hidden: tuple[str, ...]) -> list[int]:
    """Columns, of these groups side by side, that the low level sees."""
    for name in groups:
        if name not in spec.group_names:
            raise ValueError(
                f"agent.low_groups names {name!r}{did_you_mean(name, spec.group_names)}, but {spec.id} has the groups "
                f"{spec.group_names}"
            )
    known = [component.name for name in groups for component in spec.group(name).components]
    wrong = [name for name in hidden if name not in known]
    if wrong:
        raise ValueError(
            f"agent.hide_from_low names {wrong[0]!r}{did_you_mean(wrong[0], known)}; the low level reads {known}"
        )
    columns: list[int] = []
    start = 0
    for name in groups:
        for component in spec.group(name).components:
            columns += [] if component.name in hidden else range(start, start + component.size)
            start += component.size
    return columns
