"""Bars to duck under, alone and in turn with hurdles: `limbo`, `hurdleslimbo`.

Where obstacles stand, and what is observed of them, is written in `hurdles.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import Batch

from gaitway.core.config import configuration
from gaitway.core.ranges import Positive
from gaitway.envs.batch_task import STAGE_POSITION, Rows
from gaitway.envs.robots import world
from gaitway.envs.spec import Component
from gaitway.envs.tasks.bisk.base import between, check_range
from gaitway.envs.tasks.bisk.hurdles import (
    BAR_RADIUS,
    COUNT,
    MIN_HURDLE_HEIGHT,
    SLOTS,
    ObstacleConfig,
    ObstacleTask,
    hurdle_heights,
    obstacle_components,
)

BAR_RANGE = 0.3
"""Bars hang up to this much (m) above the lowest height."""
BAR_HEIGHTS = {"walker": 1.2}
BAR_HEIGHT = 1.0
"""Lowest underside of a bar (m) for the robots that are not named before."""
TOUCHED = (0.8, 0.0, 0.0, 1.0)
"""Colour of a bar whose touch cost a point."""

Height = Positive | str


@configuration(kw_only=True)
class BarConfig(ObstacleConfig):
    notouch: bool = False
    """The first touch of each bar costs 1 point."""


@configuration(kw_only=True)
class LimboConfig(BarConfig):
    min_height: Height = field(default="auto", metadata={"also": (int, float)})
    """Lowest underside (m); auto is 1.2 for the Walker and 1.0 for the others."""


@configuration(kw_only=True)
class HurdlesLimboConfig(BarConfig):
    min_bar_height: Height = field(default="auto", metadata={"also": (int, float)})
    max_hurdle_height: Positive = 0.3


class BarTask(ObstacleTask):
    """What Limbo and HurdlesLimbo share: bars that may cost a point when they are touched, and are red from then on."""

    config: BarConfig

    def __init__(self, robot: str, ending: str, options: Mapping[str, Any]) -> None:
        super().__init__(robot, ending, options)
        if self.robot.name == "walker":
            self.camera = "follow"  # from its side a bar hides it while it passes below

    def prepare(self) -> None:
        self.notouch = self.config.notouch
        if self.notouch:
            self.persistent = True  # the state after the last substep is looked at in a call of its own, after forces
            self.stage = STAGE_POSITION

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        if not self.notouch:
            return
        bars = [slot for slot, kind in enumerate(self.kinds) if kind == "bar"]
        columns = [world.sensor_columns(self.model, f"touch_{slot}") for slot in bars]
        self._bars = np.array(bars)
        self._found = np.array([column.start for column in columns])
        self._sensors = batch.bind("sensordata")
        self._records = {"sensordata": np.zeros((batch.nsim, self.frame_skip, self.model.nsensordata))}
        self._touching = np.zeros((batch.nsim, len(bars)), dtype=bool)
        self.memory["touched"] = np.zeros((batch.nsim, COUNT), dtype=bool)

    def begin(self, rows: Rows) -> None:
        super().begin(rows)
        if self.notouch:
            self.memory["touched"][rows] = False

    def advance(self) -> None:
        if not self.notouch:
            super().advance()
            return
        self._touching.fill(False)  # should a simulation fail, those of the last step are not those of this one
        # record k shows the state before substep k, so the state after the last one is computed on top; record 0 was
        # looked at in the step before
        self.batch.rollout(self.frame_skip, record=("sensordata",), out=self._records)
        self.batch.forward(stage=self.stage)
        self._touching[:] = self._is_touched(self._records["sensordata"][:, 1:]).any(axis=1)
        self._touching |= self._is_touched(self._sensors)

    def judge(self, fell: np.ndarray, score: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> None:
        items = self.slot_items(self._placed)[:, self._bars] if self.notouch else None
        super().judge(fell, score, reward, terminated)
        if items is None:
            return
        rows, slots = np.nonzero(self._touching)
        bars = items[rows, slots]
        new = ~self.memory["touched"][rows, bars]
        self.memory["touched"][rows, bars] = True
        penalty = np.bincount(rows[new], minlength=len(score))
        score -= penalty
        if not self.config.shaped:
            reward -= penalty

    def dress(self, index: int, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        if not self.notouch:
            return
        items = self.slot_items(self._placed[index, None])[0]
        for slot in self._bars:  # one that does not exist is below the floor: its colour does not matter
            touched = self.memory["touched"][index, items[slot] % COUNT]
            model.geom(f"bar_{slot}").rgba = TOUCHED if touched else world.OBSTACLE

    def _is_touched(self, sensors: np.ndarray) -> np.ndarray:
        """[..., nsensordata] -> which bars are touched [..., bars]; a contact within a margin is none."""
        return (sensors[..., self._found] > 0) & (sensors[..., self._found + 1] <= 0.0)


class LimboTask(BarTask):
    """`limbo`: distance to the next bar (m), its upper side (m), and whether it is still to be passed."""

    task = "limbo"
    task_key = "next_bar"
    config_class = LimboConfig
    config: LimboConfig
    kinds = ("bar",) * SLOTS
    missing = (1.0, 2.0)

    def prepare(self) -> None:
        super().prepare()
        self._lowest = bar_height(self.id, "min_height", self.config.min_height)

    def task_components(self) -> tuple[Component, ...]:
        return obstacle_components("next_bar")

    def heights(self, share: np.ndarray) -> np.ndarray:
        return bar_heights(share, self._lowest)

    def shown_heights(self, height: np.ndarray, item: np.ndarray) -> np.ndarray:
        return height + 2.0 * BAR_RADIUS


class HurdlesLimboTask(BarTask):
    """`hurdleslimbo`: kind of the next obstacle (0 hurdle, 1 bar), its distance and height (m), whether it is new."""

    task = "hurdleslimbo"
    task_key = "next_obstacle"
    config_class = HurdlesLimboConfig
    config: HurdlesLimboConfig
    kinds = ("hurdle", "bar") * (SLOTS // 2)
    missing = (10.0, 0.1)

    def prepare(self) -> None:
        super().prepare()
        self._lowest = bar_height(self.id, "min_bar_height", self.config.min_bar_height)
        check_range(self.id, max_hurdle_height=(MIN_HURDLE_HEIGHT, self.config.max_hurdle_height))

    def task_components(self) -> tuple[Component, ...]:
        return (Component("next_obstacle_is_bar"), *obstacle_components("next_obstacle"))

    def heights(self, share: np.ndarray) -> np.ndarray:
        """The first half of the numbers is for the bars, the second for the hurdles."""
        heights = np.empty_like(share)
        heights[:, 1::2] = bar_heights(share[:, : COUNT // 2], self._lowest)
        heights[:, 0::2] = hurdle_heights(share[:, COUNT // 2 :], self.config.max_hurdle_height)
        return heights

    def shown_heights(self, height: np.ndarray, item: np.ndarray) -> np.ndarray:
        return np.where(self._is_hurdle[item % COUNT], height + 0.02, height + 2.0 * BAR_RADIUS)

    def observe_task(self, rows: Rows, out: np.ndarray) -> None:
        super().observe_task(rows, out)
        out[:, 0] = self.progress.next[rows] % 2  # after the last one, which is a bar, comes 200: again 0


def bar_heights(share: np.ndarray, lowest: float) -> np.ndarray:
    return between(lowest, lowest + BAR_RANGE, share)


def bar_height(task: str, option: str, value: Height) -> float:
    """The lowest underside of a bar (m) that an option asks for."""
    if value == "auto":
        return BAR_HEIGHTS.get(task.partition("/")[0], BAR_HEIGHT)
    if isinstance(value, str | bool) or value <= 0.0:
        raise ValueError(f"{task}: {option} is {value!r}; use 'auto' or a positive height (m)")
    return float(value)
