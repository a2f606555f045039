"""What later users of a skill must know of the environment it was learnt in, as plain data in the contract of a run."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from gaitway.envs.tasks.skills.goal_logic import GoalLogic
from gaitway.envs.tasks.skills.goal_spaces import GoalSpace, combinations
from gaitway.envs.tasks.skills.goals import TaskSet
from gaitway.envs.vec_env import EnvSpec

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
    """How the features turn the Humanoids' feet: "corrected" or "original"."""
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
