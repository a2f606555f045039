"""Skills on show: the goal of one feature after the other goes from one end of its range to the other.

A sweep rests at the lower end for a quarter of its steps, goes to the upper end at constant speed and rests there. The
other features of the group are asked to stay at the centre of their ranges, features of other groups are free. Goals of
delta features count from where the robot stands when its sweep, or after a fall its episode, begins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gaitway.core.config import did_you_mean
from gaitway.envs.registry import list_envs, make_env
from gaitway.envs.tasks.skills.facts import compat_of
from gaitway.envs.tasks.skills.goal_spaces import subset_features
from gaitway.envs.tasks.skills.goals import length
from gaitway.envs.vec_env import Observation, VecEnv
from gaitway.skills.frozen_policy import SkillFileError
from gaitway.skills.skill_file import Skills

REST = 0.25
"""Share of the steps for which the goal rests at each end."""


class Dimension(NamedTuple):
    """One feature of one group."""

    group: str
    feature: int


@dataclass
class Swept:
    """What came of a sweep."""

    name: str
    steps: int = 0
    reached: int = 0
    """Steps in which the goal was nearer than the precision."""
    low: float = float("nan")
    """How far the feature itself was from its goal at the end of the first rest, in normalised units."""
    high: float = float("nan")
    """The same at the end of the last one."""
    falls: int = 0


def dimensions(skills: Skills, groups: list[str] | None = None) -> list[Dimension]:
    """Every feature of every group, or of some `groups`, in their order."""
    for group in groups or ():
        if group not in skills.groups:
            raise SkillFileError(
                f"these skills have no group {group!r}{did_you_mean(group, skills.groups)}; there are "
                f"{', '.join(skills.groups)}"
            )
    chosen = [group for group in skills.groups if not groups or group in groups]
    return [Dimension(group, feature) for group in chosen for feature in dict.fromkeys(subset_features(group))]


def make_skill_env(skills: Skills, **options: Any) -> VecEnv:
    """The skill environment of the robot that these skills move, as they know it."""
    facts = skills.facts
    known = [env.id.removesuffix("/skills") for env in list_envs() if env.id.endswith("/skills")]
    if facts.robot not in known:  # never a name that something would be imported for
        raise SkillFileError(
            f"these are skills of {facts.robot!r}, which has no skill environment; there are {', '.join(known)}"
        )
    settings: dict[str, Any] = {
        "features": facts.features,
        "feature_dist": dict.fromkeys(facts.groups, 1.0),
        "task_map": dict(facts.task_map),
        "precision": facts.precision,
        "max_steps": facts.horizon,
        "compat": compat_of(facts.heading),
    }
    env = make_env(f"{facts.robot}/skills", **(settings | options))
    try:
        skills.check_env(env.spec)
    except BaseException:
        env.close()
        raise
    return env


class Sweep:
    """Acts by the skills for goals that move, in a one-instance environment of `make_skill_env`, which is told of them:
    its pictures show the goal. `length` is the number of steps for each dimension."""

    def __init__(self, env: VecEnv, skills: Skills, swept: list[Dimension], length: int) -> None:
        self.env, self.skills, self.dimensions, self.length = env, skills, swept, length
        self.steps = 0
        names = skills.space.names
        self.results = [Swept(f"{group}: {names[feature]}") for group, feature in swept]
        self._anchor: np.ndarray | None = None
        self._lines: list[str] = []

    @property
    def total(self) -> int:
        """Steps of the whole show."""
        return self.length * len(self.dimensions)

    def caption(self) -> list[str]:
        """What the goal is and where the robot is, for a corner of the picture."""
        return self._lines

    def __call__(self, obs: Observation) -> Tensor:
        skills, space, tasks = self.skills, self.skills.space, self.skills.facts.tasks
        number, step = divmod(min(self.steps, self.total - 1), self.length)
        group, feature = self.dimensions[number]
        features = obs["gs_observation"].cpu().numpy().astype(np.float64)
        if self._anchor is None or step == 0:
            self._anchor = features.copy()
        key = np.array([tasks.key_of(group)])
        mask = tasks.mask(key)
        place = np.zeros_like(features)
        place[:, feature] = _way(step / max(self.length - 1, 1))
        goal = space.absolute(place, space.project(self._anchor))
        self.env.call("place_goals", np.array([0]), key, goal)
        target = space.back_project(goal * mask)
        left = space.feature_difference(target, features) * mask
        self._note(number, step, space.goal_difference(goal, space.project(features)) * mask)
        self._say(number, target[0, feature], features[0, feature], space.units[feature])
        self.steps += 1
        as_seen = {"desired_goal": left[:, tasks.members], "task": mask[:, tasks.members]}
        given = {name: torch.from_numpy(value).float().to(self.env.device) for name, value in as_seen.items()}
        return skills.act(obs["observation"], given["desired_goal"], given["task"])

    def reset(self, mask: Tensor | None = None) -> None:
        """An episode begins; within a sweep the last one ended in a fall."""
        self._anchor = None
        if self.steps % self.length:
            self.results[min(self.steps, self.total - 1) // self.length].falls += 1

    def _note(self, number: int, step: int, difference: np.ndarray) -> None:
        result, feature = self.results[number], self.dimensions[number].feature
        result.steps += 1
        result.reached += bool(length(difference)[0] < self.skills.facts.precision)
        away = abs(float(difference[0, feature]))
        if step / max(self.length - 1, 1) <= REST:
            result.low = away
        result.high = away

    def _say(self, number: int, goal: float, now: float, unit: str) -> None:
        group, feature = self.dimensions[number]
        name = self.skills.space.names[feature]
        self._lines = [f"task {group}", f"{name}: goal {goal:.2f} {unit}", f"is {now:.2f} {unit}"]


def _way(share: float) -> float:
    """Where the goal is in [-1, 1] when this share of the steps is over."""
    return 2.0 * min(max((share - REST) / (1.0 - 2.0 * REST), 0.0), 1.0) - 1.0


def file_stem(skills: Skills) -> str:
    """A name for files about these skills."""
    return re.sub(r"\W+", "_", f"{skills.facts.robot}_skills")
