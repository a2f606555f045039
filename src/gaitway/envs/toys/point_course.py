"""`point/corridor` and `point/duck`: courses for the robot of `point/skills`, for a high level over its skills.

The robot stands at x = 0 with gates before it, every half metre; each newly passed one is a point. Falling over, by the
sway of `point/skills`, ends the episode with a reward of -1 and leaves the score alone. The corridor asks for x alone:
what else the robot does is its own affair. In `point/duck` a bar hangs over every second gate, and who comes to it
above 0.4 m stops there: it takes x and z. Episodes begin at rest at a height of 0.5 to 1 m, with any heading.

Group `policy` is the distance to the next gate and to the next bar (duck), the position, and then what `point/skills`
shows of the body, by the same names; group `goal_space` holds the four goal features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gaitway.core.ranges import Count
from gaitway.envs.spec import Component
from gaitway.envs.tasks.skills.goal_spaces import POINT_BODY
from gaitway.envs.toys.point import BODY_UNITS, DT, MAX_TILT, POSITION, TILT, ZERO_RATES, PointBot, moved, write_body
from gaitway.envs.toys.toy_env import Toy

GATE, BAR = 0.5, 1.0
"""Metres from gate to gate, and from bar to bar."""
BAR_HEIGHT = 0.4
BEFORE = 1e-3
"""How far before a bar (m) a robot stands that it has stopped."""
FALL_REWARD = -1.0
X, Z, PASSED = 0, 2, 10
"""Columns of the states: those of `point/skills`, but for the last, which counts the gates that were passed."""


class PointCourse(Toy):
    """Gates to pass along x; leaves say whether there are bars."""

    action = PointBot.action
    control_dt = DT
    metrics = ("score", "fell", "progress")
    reductions: Mapping[str, str] = {"score": "sum", "progress": "last"}
    has_bars = False

    def __init__(self, max_episode_steps: Count = 200) -> None:
        self.max_episode_steps = max_episode_steps
        self.options = {} if max_episode_steps == 200 else {"max_episode_steps": max_episode_steps}
        ahead = (Component("next_gate", 1, "m"), *((Component("next_bar", 1, "m"),) if self.has_bars else ()))
        place = (Component("x", 1, "m"), Component("y", 1, "m"))
        seen = tuple(Component(name, 1, unit) for name, unit in BODY_UNITS.items())
        named = zip(POINT_BODY.names, POINT_BODY.units, strict=True)
        self.groups = {
            "policy": (*ahead, *place, *seen),
            "goal_space": tuple(Component(name, 1, unit) for name, unit in named),
        }
        self._measured: dict[str, np.ndarray] = {}

    def draw(self, generator: np.random.Generator) -> Sequence[float]:
        height, heading = generator.random(2).tolist()
        return (0.0, 0.0, 0.5 + 0.5 * height, math.pi * (2 * heading - 1), *ZERO_RATES, 0.0)

    def advance(self, state: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        reached = moved(state, action)
        if self.has_bars:
            self._stop_at_bars(state, reached)
        passed = np.maximum(state[:, PASSED], np.floor(reached[:, X] / GATE))
        score = passed - state[:, PASSED]
        reached[:, PASSED] = passed
        fell = np.abs(reached[:, TILT]) > MAX_TILT
        self._measured = {"score": score, "fell": fell.astype(np.float64), "progress": reached[:, X].copy()}
        return reached, np.where(fell, FALL_REWARD, score), fell

    def measure(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return self._measured

    def observe(self, state: np.ndarray) -> dict[str, np.ndarray]:
        policy = np.empty((len(state), sum(component.size for component in self.groups["policy"])))
        body = policy.shape[1] - len(BODY_UNITS)
        policy[:, 0] = GATE * (state[:, PASSED] + 1) - state[:, X]
        if self.has_bars:
            policy[:, 1] = BAR * (np.floor(state[:, X] / BAR) + 1) - state[:, X]
        policy[:, body - 2 : body] = state[:, :2]
        write_body(state, policy[:, body:])
        return {"policy": policy, "goal_space": state[:, POSITION]}

    def _stop_at_bars(self, before: np.ndarray, reached: np.ndarray) -> None:
        bar = BAR * (np.floor(before[:, X] / BAR) + 1)
        stopped = (reached[:, X] >= bar) & (reached[:, Z] > BAR_HEIGHT) & (bar > 0)
        reached[stopped, X] = bar[stopped] - BEFORE
        reached[stopped, POSITION.stop] = 0.0  # the speed along x


class PointCorridor(PointCourse):
    """A point with a heading passes gates along x: what x alone is needed for."""


class PointDuck(PointCourse):
    """A point with a heading passes gates along x, and bars that it must duck under."""

    has_bars = True


COURSES: dict[str, Any] = {"point/corridor": PointCorridor, "point/duck": PointDuck}
