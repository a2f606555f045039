"""Broken twins of skill learning, for `skills_toy` and `skills_rank1`: each has one mistake and is the same otherwise.

Goal spaces are named by `env.options.features`, wrappers in `env.wrappers`, recipes by `algorithm.name`; whoever names
a goal space has to import this module first. Nothing in the library can be switched to behave like one of these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaitway.algorithms.algorithm import Batch
from gaitway.cli.train_config import RECIPES
from gaitway.envs.tasks.skills.goal_spaces import POINT_BODY, GoalSpace, register_goal_space
from gaitway.envs.vec_env import Observation, Step, VecEnv
from gaitway.envs.wrappers import Wrapper
from gaitway.skills.multitask_sac import MultitaskSAC


class Unwrapped(GoalSpace):
    """Broken: angles do not wrap, neither in what is shown nor in the distance."""

    def feature_difference(self, target: np.ndarray, features: np.ndarray) -> np.ndarray:
        return target - features

    def goal_difference(self, goal: np.ndarray, projected: np.ndarray) -> np.ndarray:
        return goal - projected


class FromTheOrigin(GoalSpace):
    """Broken: goals of delta features count from the origin of the world, not from where the robot is."""

    def absolute(self, goal: np.ndarray, projected: np.ndarray) -> np.ndarray:
        return np.array(goal, dtype=np.float64)


HIGH = "body_high"
"""No mistake: heights from half a metre below the floor to half a metre above the ceiling, of which the point reaches
six in ten."""
_plain = POINT_BODY.to_dict()
_low, _high = ([*_plain[name][:2], height, _plain[name][3]] for name, height in (("low", -0.5), ("high", 1.5)))
register_goal_space(HIGH, "point", GoalSpace(**_plain | {"low": _low, "high": _high}))

UNWRAPPED, FROM_THE_ORIGIN = "body_unwrapped", "body_from_the_origin"
"""Goal features of `point/skills` with these spaces."""
register_goal_space(UNWRAPPED, "point", Unwrapped(**POINT_BODY.to_dict()))
register_goal_space(FROM_THE_ORIGIN, "point", FromTheOrigin(**POINT_BODY.to_dict()))


class WithoutTask(Wrapper):
    """Broken: no task bit is ever set, and `desired_goal`, which is what is left to go times the bits, is 0 with them.

    To hide the group `task` alone would change little: which entries of `desired_goal` are 0 shows the task as well.
    """

    def step(self, action: Tensor) -> Step:
        step = self.env.step(action)
        return dataclasses.replace(step, obs=self.shown(step.obs), final_obs=self.shown(step.final_obs))

    def shown(self, obs: Observation) -> Observation:
        return {**obs, **{name: torch.zeros_like(obs[name]) for name in ("desired_goal", "task")}}


class FrozenGoal(Wrapper):
    """Broken: `desired_goal` stays what it was first, in the episode or, with `each_goal`, when the goal began.

    It is not told how much of the way is left; and, frozen for the episode, not where the later goals are.
    """

    def __init__(self, env: VecEnv, each_goal: bool = False) -> None:
        super().__init__(env)
        self.each_goal = each_goal
        self._first = env.load_state_dict(env.state_dict())["desired_goal"].clone()

    def step(self, action: Tensor) -> Step:
        step = self.env.step(action)
        ended, before = step.terminated | step.truncated, self._first
        renewed = ended | (step.metrics["soft_reset"] > 0) if self.each_goal else ended
        self._first = torch.where(renewed[:, None], step.obs["desired_goal"], before)
        final = {**step.final_obs, "desired_goal": torch.where(ended[:, None], before, self._first)}
        return dataclasses.replace(step, obs=self._with(step.obs), final_obs=final)

    def shown(self, obs: Observation) -> Observation:
        self._first = obs["desired_goal"].clone()
        return self._with(obs)

    def state_dict(self) -> dict[str, Any]:
        return {"env": self.env.state_dict(), "first": self._first.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> Observation:
        obs = self.env.load_state_dict(state["env"])
        self._first = state["first"].clone().to(self.device)
        return self._with(obs)

    def _with(self, obs: Observation) -> Observation:
        return {**obs, "desired_goal": self._first}


class CutAtGoals(MultitaskSAC):
    """Broken: critics count the end of every goal as the end of everything."""

    def _batch_of(self, index: Tensor) -> Batch:
        batch = super()._batch_of(index)
        batch["discount"] = batch["discount"] * (1.0 - batch["last"])
        return batch


class NeverStopped(MultitaskSAC):
    """Broken: reachability goes on from the last step of a goal into the next one."""

    def _batch_of(self, index: Tensor) -> Batch:
        batch = super()._batch_of(index)
        return batch | {"last": torch.zeros_like(batch["last"])}


class NeverReached(MultitaskSAC):
    """Broken: reachability is never told that a goal was reached, and stays about the 0 it starts with."""

    def _batch_of(self, index: Tensor) -> Batch:
        batch = super()._batch_of(index)
        return batch | {"reached": torch.zeros_like(batch["reached"])}


CUT_AT_GOALS, NEVER_STOPPED, NEVER_REACHED = (
    RECIPES["multitask_sac"]._replace(algorithm=twin) for twin in (CutAtGoals, NeverStopped, NeverReached)
)
