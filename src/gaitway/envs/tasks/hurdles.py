"""Hurdles to jump over, bars to duck under, and both in turn: `hurdles`, `limbo`, `hurdleslimbo`.

200 obstacles stand 3 to 6 m apart across a corridor; the first is 4 to 7 m ahead. A hurdle of height h is a box whose
top is at 1.5 h + 0.01 m, and a bar is a capsule of radius 0.1 m whose underside is at its height. What is observed as
height is neither: 2 h for hurdles, the upper side for bars, h + 0.02 for hurdles among bars. All of that is as
published.

Only four obstacles are simulated: those numbered next - 1 to next + 2, which move along with the robot by writing
their `mocap_pos`. They are enough: a robot reaches less than 1.5 m, and no other one is nearer than `MIN_SPACING`.
Hurdles are boxes of one size, more or less of which is below the floor.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import mujoco
import numpy as np
from mujoco.batch import Batch

from gaitway.envs.batch_task import STAGE_POSITION, Rows
from gaitway.envs.robots import world
from gaitway.envs.tasks.bisk import between, check_range
from gaitway.envs.tasks.corridor import CorridorConfig, CorridorTask
from gaitway.envs.vec_env import Component

COUNT = 200
START = 1.0
SPACING = (3.0, 6.0)
"""Obstacle i stands at START plus i + 1 distances drawn from here (m)."""
MIN_SPACING = 2.0
"""Obstacles nearer to each other (m) would need more than four slots."""
SLOTS = 4
"""Even, so that in turns of hurdle and bar each slot keeps its kind."""

HURDLE_HALF_LENGTH = 0.05
HURDLE_HALF_HEIGHT = 1.0
MIN_HURDLE_HEIGHT = 0.1
BAR_RADIUS = 0.1
BAR_RANGE = 0.3
"""Bars hang up to this much (m) above the lowest height."""
BAR_HEIGHTS = {"walker": 1.2}
BAR_HEIGHT = 1.0
"""Lowest underside of a bar (m) for the robots that are not named before."""
TOUCHED = (0.8, 0.0, 0.0, 1.0)
"""Colour of a bar whose touch cost a point."""

Height = float | str


@dataclass(frozen=True, kw_only=True)
class HurdlesConfig(CorridorConfig):
    max_height: float = 0.3
    """Largest h (m); the smallest is 0.1."""
    fixed_height: bool = False
    """All hurdles have the largest h."""


@dataclass(frozen=True, kw_only=True)
class LimboConfig(CorridorConfig):
    notouch: bool = False
    """The first touch of each bar costs 1 point."""
    min_height: Height = field(default="auto", metadata={"also": (int, float)})
    """Lowest underside (m); auto is 1.2 for the Walker and 1.0 for the others."""
    fixed_height: bool = False
    """All bars hang at the lowest height."""


@dataclass(frozen=True, kw_only=True)
class HurdlesLimboConfig(CorridorConfig):
    notouch: bool = False
    min_bar_height: Height = field(default="auto", metadata={"also": (int, float)})
    max_hurdle_height: float = 0.3
    fixed_height: bool = False


class ObstacleTask(CorridorTask):
    """Obstacles in a corridor, four of which are simulated."""

    num_items = COUNT
    kinds: ClassVar[tuple[str, ...]]
    """Kind of the obstacle in each slot: obstacle i is in slot i mod SLOTS."""
    missing: ClassVar[tuple[float, float]]
    """Distance and height (m) that are observed when there is no next obstacle."""
    notouch = False

    def add_course(self, spec: mujoco.MjSpec, decorated: bool) -> None:
        world.add_corridor(spec)
        width = world.CORRIDOR_HALF_WIDTH
        for slot, kind in enumerate(self.kinds):
            if kind == "hurdle":
                world.add_mocap(spec, f"hurdle_{slot}", "box", [HURDLE_HALF_LENGTH, width, HURDLE_HALF_HEIGHT])
            else:
                world.add_mocap(spec, f"bar_{slot}", "capsule", [BAR_RADIUS, width], zaxis=[0.0, 1.0, 0.0])
            if kind == "bar" and self.notouch:
                world.add_contact_sensor(spec, f"touch_{slot}", f"bar_{slot}", distance=True)

    def course_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"position": (COUNT,), "height": (COUNT,)}

    def course_draws(self) -> int:
        return COUNT if self.fixed_height else 2 * COUNT

    def sample_course(self, uniform: np.ndarray) -> dict[str, np.ndarray]:
        """First all distances, then the heights."""
        position = START + np.cumsum(between(*SPACING, uniform[:, :COUNT]), axis=1)
        share = np.zeros_like(position) if self.fixed_height else uniform[:, COUNT:]
        return {"position": position, "height": self.heights(share)}

    @property
    def fixed_height(self) -> bool:
        raise TypeError(f"{type(self).__name__} does not implement fixed_height")

    def heights(self, share: np.ndarray) -> np.ndarray:
        """Heights [n, COUNT] from numbers in [0, 1), 0 being the height that fixed ones have."""
        raise TypeError(f"{type(self).__name__} does not implement heights")

    def shown_heights(self, height: np.ndarray) -> np.ndarray:
        """What is observed of heights [n, COUNT]."""
        raise TypeError(f"{type(self).__name__} does not implement shown_heights")

    def check_scenario(self, given: Mapping[str, np.ndarray]) -> None:
        super().check_scenario(given)
        position, height = given.get("position"), given.get("height")
        if position is not None and (np.diff(position, axis=1) < MIN_SPACING).any():
            raise ValueError(
                f"scenario field 'position' of {self.id} has obstacles that are less than {MIN_SPACING} m apart, or "
                "not in order; only the four nearest ones are simulated"
            )
        if height is None:
            return
        tops = 1.5 * height[:, self._is_hurdle] + 0.01
        if (height <= 0.0).any() or (tops > 2 * HURDLE_HALF_HEIGHT).any():
            raise ValueError(
                f"scenario field 'height' of {self.id} reaches from {height.min()} to {height.max()} m; use positive "
                f"heights, for hurdles less than {(2 * HURDLE_HALF_HEIGHT - 0.01) / 1.5:.2f} m"
            )

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        self._mocap_pos = batch.bind("mocap_pos")
        self._centre = np.zeros((batch.nsim, COUNT))  # heights of the obstacles' centres
        self._shown = np.full((batch.nsim, COUNT + 2), self.missing[1])
        self._placed = np.zeros(batch.nsim, dtype=np.int64)  # next obstacle when the slots were filled
        self._slots = np.arange(SLOTS)

    @functools.cached_property
    def _is_hurdle(self) -> np.ndarray:
        return np.tile(np.array(self.kinds) == "hurdle", COUNT // SLOTS)

    def item_positions(self, rows: Rows) -> np.ndarray:
        return self.layout["position"][rows]

    def derive(self, rows: Rows) -> None:
        super().derive(rows)
        height = self.layout["height"][rows]
        hurdle_centre = 1.5 * height + 0.01 - HURDLE_HALF_HEIGHT
        self._centre[rows] = np.where(self._is_hurdle, hurdle_centre, height + BAR_RADIUS)
        self._shown[rows, 1:-1] = self.shown_heights(height)

    def place(self, rows: Rows) -> None:
        super().place(rows)
        self._fill_slots(rows)

    def begin(self, rows: Rows) -> None:
        super().begin(rows)
        self._follow()

    def restore(self) -> None:
        super().restore()
        np.copyto(self._placed, self.progress.next)

    def judge(self, fell: np.ndarray, score: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> None:
        super().judge(fell, score, reward, terminated)
        self._follow()

    def slot_items(self, following: np.ndarray) -> np.ndarray:
        """Obstacles in the slots [n, SLOTS] for the number of the next one [n]; some may not exist."""
        first = following[:, None] - 1
        return first + (self._slots - first) % SLOTS

    def _follow(self) -> None:
        """Fill the slots anew where the next obstacle is another one than when they were filled."""
        moved = self.progress.next != self._placed
        if np.count_nonzero(moved):
            self._fill_slots(np.flatnonzero(moved))

    def _fill_slots(self, rows: Rows) -> None:
        self._placed[rows] = self.progress.next[rows]
        items = self.slot_items(self._placed[rows])
        exists = (items >= 0) & (items < COUNT)
        chosen = np.where(exists, items, 0)
        places = self._mocap_pos[rows]
        places[..., 0] = np.where(exists, np.take_along_axis(self.layout["position"][rows], chosen, 1), 0.0)
        places[..., 2] = np.where(exists, np.take_along_axis(self._centre[rows], chosen, 1), world.PARKED[2])
        self._mocap_pos[rows] = places

    def observe_task(self, rows: Rows, out: np.ndarray) -> None:
        progress, column = self.progress, self.task_size - 3
        distance = progress.entries(rows, progress.padded) - self.x(rows)
        out[:, column] = np.where(progress.is_over(rows), self.missing[0], distance)
        out[:, column + 1] = progress.entries(rows, self._shown)
        out[:, column + 2] = progress.fresh(rows)


class HurdlesTask(ObstacleTask):
    """`hurdles`: distance to the next hurdle (m), 2 h (m), and whether it is still to be passed for the first time."""

    task = "hurdles"
    config_class = HurdlesConfig
    config: HurdlesConfig
    kinds = ("hurdle",) * SLOTS
    missing = (10.0, 0.1)

    def prepare(self) -> None:
        check_range(self.id, max_height=(MIN_HURDLE_HEIGHT, self.config.max_height))

    def task_components(self) -> tuple[Component, ...]:
        return obstacle_components("next_hurdle")

    def task_keys(self) -> dict[str, int]:
        return {"next_hurdle": 3}

    @property
    def fixed_height(self) -> bool:
        return self.config.fixed_height

    def heights(self, share: np.ndarray) -> np.ndarray:
        return hurdle_heights(share, self.config.max_height)

    def shown_heights(self, height: np.ndarray) -> np.ndarray:
        return 2.0 * height


class BarTask(ObstacleTask):
    """What Limbo and HurdlesLimbo share: bars that may cost a point when they are touched, and are red from then on."""

    def forbid_touch(self) -> None:
        self.notouch = True
        self.persistent = True  # the state after the last substep is looked at in a call of its own, after the forces
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
    config_class = LimboConfig
    config: LimboConfig
    kinds = ("bar",) * SLOTS
    missing = (1.0, 2.0)

    def prepare(self) -> None:
        if self.config.notouch:
            self.forbid_touch()
        self._lowest = bar_height(self.id, "min_height", self.config.min_height)

    def task_components(self) -> tuple[Component, ...]:
        return obstacle_components("next_bar")

    def task_keys(self) -> dict[str, int]:
        return {"next_bar": 3}

    @property
    def fixed_height(self) -> bool:
        return self.config.fixed_height

    def heights(self, share: np.ndarray) -> np.ndarray:
        return bar_heights(share, self._lowest)

    def shown_heights(self, height: np.ndarray) -> np.ndarray:
        return height + 2.0 * BAR_RADIUS


class HurdlesLimboTask(BarTask):
    """`hurdleslimbo`: kind of the next obstacle (0 hurdle, 1 bar), its distance and height (m), whether it is new."""

    task = "hurdleslimbo"
    config_class = HurdlesLimboConfig
    config: HurdlesLimboConfig
    kinds = ("hurdle", "bar") * (SLOTS // 2)
    missing = (10.0, 0.1)

    def prepare(self) -> None:
        if self.config.notouch:
            self.forbid_touch()
        self._lowest = bar_height(self.id, "min_bar_height", self.config.min_bar_height)
        check_range(self.id, max_hurdle_height=(MIN_HURDLE_HEIGHT, self.config.max_hurdle_height))

    def task_components(self) -> tuple[Component, ...]:
        return (Component("next_obstacle_is_bar"), *obstacle_components("next_obstacle"))

    def task_keys(self) -> dict[str, int]:
        return {"next_obstacle": 4}

    @property
    def fixed_height(self) -> bool:
        return self.config.fixed_height

    def heights(self, share: np.ndarray) -> np.ndarray:
        """The first half of the numbers is for the bars, the second for the hurdles."""
        heights = np.empty_like(share)
        heights[:, 1::2] = bar_heights(share[:, : COUNT // 2], self._lowest)
        heights[:, 0::2] = hurdle_heights(share[:, COUNT // 2 :], self.config.max_hurdle_height)
        return heights

    def shown_heights(self, height: np.ndarray) -> np.ndarray:
        return np.where(self._is_hurdle, height + 0.02, height + 2.0 * BAR_RADIUS)

    def observe_task(self, rows: Rows, out: np.ndarray) -> None:
        super().observe_task(rows, out)
        out[:, 0] = self.progress.next[rows] % 2  # after the last one, which is a bar, comes 200: again 0


def obstacle_components(name: str) -> tuple[Component, ...]:
    return (
        Component(f"{name}_distance", 1, "m"),
        Component(f"{name}_height", 1, "m"),
        Component(f"{name}_is_new"),
    )


def hurdle_heights(share: np.ndarray, largest: float) -> np.ndarray:
    return between(largest, MIN_HURDLE_HEIGHT, share)


def bar_heights(share: np.ndarray, lowest: float) -> np.ndarray:
    return between(lowest, lowest + BAR_RANGE, share)


def bar_height(task: str, option: str, value: Height) -> float:
    """The lowest underside of a bar (m) that an option asks for."""
    if value == "auto":
        return BAR_HEIGHTS.get(task.partition("/")[0], BAR_HEIGHT)
    if isinstance(value, str | bool) or value <= 0.0:
        raise ValueError(f"{task}: {option} is {value!r}; use 'auto' or a positive height (m)")
    return float(value)
