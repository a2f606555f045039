"""Obstacles across a corridor, and hurdles to jump over: `hurdles`; those with bars are in `limbo.py`.

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
from typing import ClassVar

import mujoco
import numpy as np
from mujoco.batch import Batch

from gaitway.core.config import configuration
from gaitway.core.ranges import Positive
from gaitway.envs.batch_task import Arrays, Rows
from gaitway.envs.robots import world
from gaitway.envs.spec import Component
from gaitway.envs.tasks.bisk.base import ALL, between, check_range
from gaitway.envs.tasks.bisk.corridor import CorridorConfig, CorridorTask

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


@configuration(kw_only=True)
class ObstacleConfig(CorridorConfig):
    fixed_height: bool = False
    """All hurdles have the largest h, all bars hang at the lowest height."""


@configuration(kw_only=True)
class HurdlesConfig(ObstacleConfig):
    max_height: Positive = 0.3
    """Largest h (m); the smallest is 0.1."""


class ObstacleTask(CorridorTask):
    """Obstacles in a corridor, four of which are simulated."""

    config: ObstacleConfig
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
        return COUNT if self.config.fixed_height else 2 * COUNT

    def sample_course(self, uniform: np.ndarray) -> Arrays:
        """First all distances, then the heights."""
        position = START + np.cumsum(between(*SPACING, uniform[:, :COUNT]), axis=1)
        share = np.zeros_like(position) if self.config.fixed_height else uniform[:, COUNT:]
        return {"position": position, "height": self.heights(share)}

    def heights(self, share: np.ndarray) -> np.ndarray:
        """Heights [n, COUNT] from numbers in [0, 1), 0 being the height that fixed ones have."""
        raise TypeError(f"{type(self).__name__} does not implement heights")

    def shown_heights(self, height: np.ndarray, item: np.ndarray) -> np.ndarray:
        """What is observed of the heights [n] of the obstacles numbered `item` [n], 0 to COUNT."""
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
        self._heights = np.ones((batch.nsim, COUNT + 2))  # padded as the positions are
        self.layout["position"], self.layout["height"] = self.progress.positions, self._heights[:, 1:-1]
        self._placed = np.zeros(batch.nsim, dtype=np.int64)  # next obstacle when the slots were filled, and of it:
        self._next_x = np.zeros(batch.nsim)  # inf where there is none
        self._next_shown = np.zeros(batch.nsim)
        self._slots = np.arange(SLOTS)

    @functools.cached_property
    def _is_hurdle(self) -> np.ndarray:
        return np.tile(np.array(self.kinds) == "hurdle", COUNT // SLOTS)

    def derive(self, rows: Rows) -> None:
        """Nothing: the layout is where the items are."""

    def place(self, rows: Rows) -> None:
        super().place(rows)
        self._fill_slots(rows)

    def begin(self, rows: Rows) -> None:
        super().begin(rows)
        self._follow()

    def restore(self) -> None:
        super().restore()
        self._look_ahead(ALL)

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

    def _look_ahead(self, rows: Rows) -> None:
        """Note what is observed of the next obstacle."""
        progress, following = self.progress, self.progress.next[rows]
        self._placed[rows] = following
        self._next_x[rows] = progress.entries(rows, progress.padded)
        shown = self.shown_heights(progress.entries(rows, self._heights), following)
        self._next_shown[rows] = np.where(following < COUNT, shown, self.missing[1])

    def _fill_slots(self, rows: Rows) -> None:
        self._look_ahead(rows)
        items = self.slot_items(self._placed[rows])
        x = self.progress.entries_of(rows, self.progress.padded, items)
        height = self.progress.entries_of(rows, self._heights, items)
        exists = np.isfinite(x)
        hurdle_centre = 1.5 * height + 0.01 - HURDLE_HALF_HEIGHT
        centre = np.where(self._is_hurdle[:SLOTS], hurdle_centre, height + BAR_RADIUS)
        self._mocap_pos[rows, :, 0] = np.where(exists, x, 0.0)
        self._mocap_pos[rows, :, 2] = np.where(exists, centre, world.PARKED[2])

    def observe_task(self, rows: Rows, out: np.ndarray) -> None:
        column, distance = self.task_size - 3, self._next_x[rows] - self.x(rows)
        out[:, column] = np.where(np.isinf(distance), self.missing[0], distance)
        out[:, column + 1] = self._next_shown[rows]
        out[:, column + 2] = self.progress.fresh(rows)


class HurdlesTask(ObstacleTask):
    """`hurdles`: distance to the next hurdle (m), 2 h (m), and whether it is still to be passed for the first time."""

    task = "hurdles"
    task_key = "next_hurdle"
    config_class = HurdlesConfig
    config: HurdlesConfig
    kinds = ("hurdle",) * SLOTS
    missing = (10.0, 0.1)

    def prepare(self) -> None:
        check_range(self.id, max_height=(MIN_HURDLE_HEIGHT, self.config.max_height))

    def task_components(self) -> tuple[Component, ...]:
        return obstacle_components("next_hurdle")

    def heights(self, share: np.ndarray) -> np.ndarray:
        return hurdle_heights(share, self.config.max_height)

    def shown_heights(self, height: np.ndarray, item: np.ndarray) -> np.ndarray:
        return 2.0 * height


def obstacle_components(name: str) -> tuple[Component, ...]:
    return (
        Component(f"{name}_distance", 1, "m"),
        Component(f"{name}_height", 1, "m"),
        Component(f"{name}_is_new"),
    )


def hurdle_heights(share: np.ndarray, largest: float) -> np.ndarray:
    return between(largest, MIN_HURDLE_HEIGHT, share)
