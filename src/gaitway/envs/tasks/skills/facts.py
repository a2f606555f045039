"""What later users of a skill must know of the environment it was learnt in, as plain data in the contract of a run."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from gaitway.core.config import did_you_mean
from gaitway.envs.spec import EnvSpec
from gaitway.envs.tasks.skills.goal_logic import GoalLogic
from gaitway.envs.tasks.skills.goal_spaces import GoalSpace, combinations
from gaitway.envs.tasks.skills.goals import TaskSet

_NUMBER = (int, float)
_PLAIN: dict[str, type | tuple[type, ...]] = {
    "robot": str,
    "features": str,
    "heading": str,
    "space": Mapping,
    "groups": list,
    "task_map": Mapping,
    "horizon": int,
    "precision": _NUMBER,
    "ctrl_cost": _NUMBER,
    "reward": str,
    "control_dt": _NUMBER,
}
"""The type of each fact in its plain form."""

TRIALS: dict[str, Any] = {"ends": "last_step_of_task", "kind": "task_key", "outcome": "reached_goal"}
"""Metrics that say where a trial of `plan_trials` ends, of which kind it was and how it went."""


@dataclass(frozen=True)
class SkillFacts:
    """A goal space and how goals in it were learnt: `EnvSpec.facts["skills"]` in its plain form."""

    robot: str
    features: str
    """The extractor of the goal features, e.g. `bodyfeet`."""
    heading: str
    """How the features turn the Humanoids' feet: "corrected" or "original"; empty where there are none. Files of
    earlier versions name one for every robot."""
    space: GoalSpace
    groups: tuple[str, ...]
    """The groups of features that tasks combine, in group spelling: ("0", "1", "2", "3+4", "5+6")."""
    task_map: Mapping[str, int]
    """Feature -> position in `task` and `desired_goal`."""
    horizon: int
    """Steps that a goal may take."""
    precision: float
    ctrl_cost: float
    reward: str
    control_dt: float
    """Seconds per step."""

    @classmethod
    def of(cls, spec: EnvSpec) -> SkillFacts:
        """What the contract of an environment states; a ValueError for one that has no goal space."""
        if "skills" not in spec.facts:
            raise ValueError(
                f"{spec.id} states no goal space, so it has no skills to learn; use walker/skills, humanoid/skills, "
                "point/skills or an environment of your own with a goal space"
            )
        return cls.from_dict(spec.facts["skills"])

    @functools.cached_property
    def tasks(self) -> TaskSet:
        """Translates between subset strings, keys and bits."""
        return TaskSet(self.space, self.task_map, self.groups)

    @functools.cached_property
    def names(self) -> dict[int, str]:
        """Key -> name in group spelling of every task that combines groups, by rank."""
        subsets = combinations(self.groups, len(self.groups))
        return {self.tasks.key_of(subset): self.tasks.name_of(self.tasks.key_of(subset)) for subset in subsets}

    def misfit(self, other: SkillFacts) -> str | None:
        """Why a policy that was learnt by these facts cannot be used under `other` ones, in words; None if it can."""
        if self.robot != other.robot:
            return f"these are skills of {self.robot} and the robot is {other.robot}; use the skills of that robot"
        if self.features.removesuffix("-relz") != other.features.removesuffix("-relz"):
            return (
                f"these skills know goals of the features {self.features!r}, the environment has {other.features!r}; "
                f"use goal features {self.features!r}"
            )
        if self.heading and other.heading and self.heading != other.heading:
            return (
                f"these skills turn feet by the {self.heading} heading, the environment by the {other.heading} one; "
                f"make it with compat={compat_of(self.heading)}"
            )
        return self._space_misfit(other) or self._map_misfit(other)

    def _space_misfit(self, other: SkillFacts) -> str | None:
        mine, theirs = self.space, other.space
        lacking = [name for name in mine.names if name not in theirs.names]
        if lacking:
            return (
                f"these skills know goals of {lacking[0]!r}{did_you_mean(lacking[0], theirs.names)}, which is not "
                f"among the features {', '.join(theirs.names)}; use the goal space they were learnt in"
            )
        if mine == theirs:
            return None
        for number, name in enumerate(mine.names):
            place = theirs.names.index(name)
            ranges = [(space.low[k], space.high[k]) for space, k in ((mine, number), (theirs, place))]
            if place != number or ranges[0] != ranges[1]:
                return (
                    f"feature {number}, {name!r} from {ranges[0][0]:g} to {ranges[0][1]:g}, is feature {place} from "
                    f"{ranges[1][0]:g} to {ranges[1][1]:g} in the environment; use the goal space they were learnt in"
                )
        return "units, delta or twist features of the goal spaces differ; use the one they were learnt in"

    def _map_misfit(self, other: SkillFacts) -> str | None:
        if self.tasks.task_map == other.tasks.task_map:
            return None
        return (
            f"these skills know the features {self.tasks.members.tolist()} as their goals, the environment gives "
            f"{other.tasks.members.tolist()}; set its feature_dist to {'#'.join(self.groups)!r} and its task_map to "
            f"{dict(self.task_map)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dicts, from which `from_dict` makes equal facts."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return plain | {"space": self.space.to_dict(), "groups": list(self.groups), "task_map": dict(self.task_map)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> SkillFacts:
        missing = [name for name in _PLAIN if name not in plain]
        unknown = [name for name in plain if name not in _PLAIN]
        if missing or unknown:
            raise ValueError(f"facts of skills are {list(_PLAIN)}; these lack {missing} and have besides {unknown}")
        for name, kind in _PLAIN.items():
            if not isinstance(plain[name], kind) or isinstance(plain[name], bool):
                raise ValueError(f"the fact {name!r} of skills is {plain[name]!r}, which has another type than it must")
        space = GoalSpace.from_dict(plain["space"])
        return cls(**{**plain, "space": space, "groups": tuple(plain["groups"]), "task_map": dict(plain["task_map"])})


def compat_of(heading: str) -> str:
    """The option `compat` of a skill environment whose features turn feet by this heading."""
    return "original" if heading == "original" else "fixed"


def skill_facts(logic: GoalLogic, robot: str, heading: str, control_dt: float) -> dict[str, Any]:
    """`EnvSpec.facts` of an environment whose goals `logic` gives."""
    config = logic.config
    facts = SkillFacts(
        robot=robot,
        features=config.features,
        heading=heading,
        space=logic.space,
        groups=logic.tasks.groups,
        task_map=logic.tasks.task_map,
        horizon=config.max_steps,
        precision=config.precision,
        ctrl_cost=config.ctrl_cost,
        reward=config.reward,
        control_dt=control_dt,
    )
    kinds = {str(key): name for key, name in facts.names.items()}
    return {"skills": facts.to_dict(), "trials": TRIALS | {"kinds": kinds}}
