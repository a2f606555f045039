"""Skills as one small file: a policy that brings a robot's features to goals, and all that its users must know of it.

A skill file is a state folder of `core/files.py` of the kind `skills`. `Skills.load("walker")` finds one that comes
with the library, `Skills.load(path)` any other; the run folder of a pre-training holds its own as `skills`. Everything
is stored by name: inputs and actions component by component, features with ranges and units, tasks in group spelling,
so that a file of another robot, of other features or of another heading is refused instead of misread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from gaitway.core.files import load_state
from gaitway.envs.spec import EnvSpec
from gaitway.envs.tasks.skills.facts import SkillFacts
from gaitway.envs.tasks.skills.goal_spaces import GoalSpace, combinations, rank
from gaitway.envs.tasks.skills.goals import MAX_GROUPS
from gaitway.skills.frozen_policy import (
    FrozenPolicy,
    SkillFileError,
    component_names,
    export,
    read_inputs,
    read_policy,
    usable,
)
from gaitway.skills.places import GOAL_SKILLS, find_skill_file

KIND = GOAL_SKILLS
GROUPS = frozenset({"desired_goal", "observation", "task"})
"""What the network reads, in any order."""


@dataclass(kw_only=True)
class Skills(FrozenPolicy):
    """A frozen skill policy with its goal space. `act` is all that a controller above it calls."""

    kind: ClassVar[str] = KIND
    facts: SkillFacts
    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    """Success of every task: measured in rollouts (`success`), estimated by reachability (`r`) and by the critics
    (`q`), met while training (`running`); of published skills also how often it was practised (`weight`)."""
    floors: dict[str, dict[str, float]] = field(default_factory=dict)
    """Success of every task in play without skill, by kind of play: `random`, `zero`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_inputs(self.facts, self.inputs)

    @property
    def space(self) -> GoalSpace:
        return self.facts.space

    @property
    def task_map(self) -> dict[str, int]:
        return dict(self.facts.task_map)

    @property
    def groups(self) -> tuple[str, ...]:
        return self.facts.groups

    @property
    def subsets(self) -> list[str]:
        """The tasks it was trained for, in group spelling, by rank."""
        known = self.figures.get("weight") or self.success or self.figures.get("r", {})
        return [task for task in combinations(self.groups, len(self.groups)) if not known or task in known]

    @property
    def success(self) -> dict[str, float]:
        """Success of every task in rollouts."""
        return self.figures.get("success", {})

    def by_rank(self, figures: Mapping[str, float] | None = None) -> dict[int, float]:
        """Mean success of the tasks of each rank."""
        found = self.success if figures is None else figures
        ranks = sorted({rank(task) for task in found})
        return {n: float(np.nanmean([p for task, p in found.items() if rank(task) == n])) for n in ranks}

    def act(self, observation: Tensor, desired_goal: Tensor, task: Tensor) -> Tensor:
        """The mean action [B, A] for the robot's observation [B, .], what is left to go [B, K] and task bits [B, K]."""
        given = {"observation": observation, "desired_goal": desired_goal, "task": task}
        return self.mean_action(self.facts.robot, given)

    def identity(self) -> dict[str, Any]:
        return self.facts.to_dict()

    # Files

    def save(self, path: str | Path) -> None:
        """Write the file, by one rename."""
        meta = {
            "facts": self.facts.to_dict(),
            "figures": {name: _finite(values) for name, values in self.figures.items()},
            "floors": {name: _finite(values) for name, values in self.floors.items()},
        }
        self.write(path, KIND, meta, {})

    @classmethod
    def load(cls, path: str | Path) -> Skills:
        """The skills at `path`, those of a run folder, or by a plain name one that comes with the library."""
        state, meta = load_state(find_skills(path), kind=KIND)
        with usable(path):
            facts, inputs = SkillFacts.from_dict(meta["facts"]), read_inputs(meta)
            _check_inputs(facts, inputs)
            return cls(
                **read_policy(state, meta, inputs),
                facts=facts,
                figures=_by_task(facts, meta["figures"]),
                floors=_by_task(facts, meta["floors"]),
            )

    @classmethod
    def of_policy(cls, policy: Any, **known: Any) -> Skills:
        """The skills that a `SkillPolicy` has learnt, as they are now."""
        config, spec = policy.config, policy.spec
        if len(policy.blocks) or config.actor_network is not None or config.normalise_observations:
            raise SkillFileError(
                "a skill file holds a plain network; train without blocks, actor_network and normalise_observations"
            )
        order = policy.groups["actor"]
        if set(order) != GROUPS:
            raise SkillFileError(
                f"the actor reads {list(order)} and a skill {sorted(GROUPS)}; set agent.observations.actor to all three"
            )
        inputs = {name: component_names(spec, name) for name in order}
        return cls(**export(config, spec, inputs, policy.actor.state_dict()), facts=SkillFacts.of(spec), **known)

    @classmethod
    def from_published(cls, policy: Mapping[str, Tensor], side_car: Mapping[str, Any], robot: str) -> Skills:
        """Skills published with HSD-3: `policy` holds the tensors `pi.1.layers.0.weight`, ..., `pi.2.mu.weight`, ...
        (a leading `pi.` may be missing), `side_car` what lay beside them as JSON: task_map, goal_dims, cperf, ..."""
        from gaitway.skills.published import read_published  # knows the simulator, which a file of ours does not need

        return cls(**read_published(policy, side_car, robot))

    # Fitting an environment

    def check_fits(
        self, robot: str, features: str, heading: str, observation: Sequence[str], actions: Sequence[str]
    ) -> None:
        """Refuse a robot that these skills do not belong to, feature and component by component."""
        facts = self.facts
        misfit = facts.misfit(replace(facts, robot=robot, features=features, heading=heading))
        if misfit is not None:
            raise SkillFileError(misfit)
        self.check_components(observation, actions)

    def check_env(self, spec: EnvSpec) -> None:
        """Refuse an environment with goals of its own (`SkillFacts`) in which these skills would be misread."""
        there = SkillFacts.of(spec)
        misfit = self.facts.misfit(there)
        if misfit is not None:
            raise SkillFileError(misfit)
        self.check_components(component_names(spec, "observation"), spec.action.names)
        for name, mine in self.inputs.items():
            if mine != component_names(spec, name):
                raise SkillFileError(
                    f"{name} has {len(component_names(spec, name))} numbers here, in another order or of another "
                    f"meaning than the {len(mine)} that these skills read; use the options they were learnt with"
                )


def find_skills(path: str | Path) -> Path:
    """Where the skill file is that a path, a run folder or a plain name stands for."""
    return find_skill_file(path, (KIND,))


def _check_inputs(facts: SkillFacts, inputs: Mapping[str, Sequence[str]]) -> None:
    if set(inputs) != GROUPS:
        raise ValueError(f"its inputs are {sorted(inputs)} instead of {sorted(GROUPS)}")
    if not 0 < len(facts.groups) <= MAX_GROUPS:
        raise ValueError(f"it names {len(facts.groups)} groups of features; tasks combine 1 to {MAX_GROUPS}")
    known = len(facts.tasks.members)  # made here, the set of tasks checks groups and task map against the goal space
    for name in ("desired_goal", "task"):
        if len(inputs[name]) != known:
            raise ValueError(f"it reads {len(inputs[name])} numbers of {name} for {known} features")


def _by_task(facts: SkillFacts, figures: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    for task in {task for values in figures.values() for task in values}:
        facts.tasks.key_of(task)  # refuses what is no task
    return {name: _finite(values) for name, values in figures.items()}


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}
