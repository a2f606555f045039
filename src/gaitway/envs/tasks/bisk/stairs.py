"""Stairs up, a level top, stairs down: `stairs`; five times in a row: `stairscont`.

Ten steps of drawn lengths go up from x = 3 m, by 0.2 m each; after a top of 6 m ten others go down. Each step is a box
that stands on the floor. The items to pass are the middles of the steps, so an episode scores 20 at most. Observed are
the distances to the next two middles and whether the next one is new.

The robot's height is measured from the ground straight below its torso, in the observation and in the test for falls.
The ground is known in closed form, with a floor that never ends; nothing is said about a torso inside a step.
"""

from __future__ import annotations

from collections.abc import Mapping

import mujoco
import numpy as np
from mujoco.batch import Batch

from gaitway.core.config import configuration
from gaitway.core.ranges import Count, Positive
from gaitway.envs.batch_task import Arrays, Rows
from gaitway.envs.robots import world
from gaitway.envs.spec import Component
from gaitway.envs.tasks.bisk.base import between, check_range
from gaitway.envs.tasks.bisk.corridor import CorridorConfig, CorridorTask

START = 3.0
"""Where the first step begins (m)."""
FLIGHT = 10
"""Steps in a row that go the same way."""
TOP_LENGTH, FLOOR_LENGTH = 6.0, 12.0
"""Length (m) of the level part after a way up and, where several pairs follow each other, after a way down."""
MISSING_NEXT, MISSING_SECOND, MISSING_BOTH = 10.0, 10.0, 20.0
"""Distances (m) observed where there is no next step, where only the second is missing, where both are."""


@configuration(kw_only=True)
class StairsConfig(CorridorConfig):
    features: str = "joints-relz"
    step_height: Positive = 0.2
    """Rise of a step (m)."""
    step_length_min: Positive = 0.5
    step_length_max: Positive = 1.0
    num_flights: Count = 2
    """Ways up and down in turn, ten steps each; an even number."""


@configuration(kw_only=True)
class StairsContConfig(StairsConfig):
    num_flights: Count = 10


class StairsTask(CorridorTask):
    task = "stairs"
    task_key = "next_steps"
    config_class = StairsConfig
    config: StairsConfig
    relative_height = True
    is_static = True

    def prepare(self) -> None:
        config = self.config
        check_range(self.id, step_length=(config.step_length_min, config.step_length_max))
        check_range(self.id, step_height=(config.step_height, config.step_height))
        if config.num_flights < 2 or config.num_flights % 2:
            raise ValueError(f"{self.id}: num_flights is {config.num_flights}; use an even number, up and down in turn")
        self.num_items = FLIGHT * config.num_flights
        flights = np.repeat(np.arange(config.num_flights), FLIGHT)
        self._goes_up = flights % 2 == 0
        level = np.tile(np.concatenate([np.arange(1, FLIGHT + 1), np.arange(FLIGHT, 0, -1)]), config.num_flights // 2)
        self._tops = config.step_height * level
        # level ground before each step, besides what it follows directly: after a way up, and after a way down
        self._lead = np.zeros(self.num_items)
        self._lead[FLIGHT::FLIGHT] = np.where(self._goes_up[FLIGHT::FLIGHT], FLOOR_LENGTH, TOP_LENGTH)

    def add_course(self, spec: mujoco.MjSpec, decorated: bool) -> None:
        world.add_corridor(spec)
        world.add_camera(spec, "stairs_side", [0.0, -6.0, 1.0], [80.0, 0.0, 0.0], follows=True)
        width, colours = world.CORRIDOR_HALF_WIDTH, (world.OBSTACLE, world.OBSTACLE_OTHER)
        length = (self.config.step_length_min + self.config.step_length_max) / 4
        for step, top in enumerate(self._tops):
            size, pos = [length, width, top / 2], [0.0, 0.0, top / 2]
            world.add_static(spec, f"step_{step}", "box", size, pos, rgba=colours[step % 2])
        height = self.config.step_height * FLIGHT
        for pair in range(self.config.num_flights // 2):
            world.add_static(spec, f"top_{pair}", "box", [TOP_LENGTH / 2, width, height / 2], [0.0, 0.0, height / 2])

    def task_components(self) -> tuple[Component, ...]:
        return (
            Component("next_step_distance", 1, "m"),
            Component("second_step_distance", 1, "m"),
            Component("next_step_is_new"),
        )

    def course_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"step_length": (self.num_items,)}

    def course_draws(self) -> int:
        return self.num_items

    def sample_course(self, uniform: np.ndarray) -> Arrays:
        return {"step_length": between(self.config.step_length_min, self.config.step_length_max, uniform)}

    def check_scenario(self, given: Mapping[str, np.ndarray]) -> None:
        super().check_scenario(given)
        length = given.get("step_length")
        if length is not None and (length <= 0.0).any():
            raise ValueError(f"scenario field 'step_length' of {self.id} holds {length.min()} m; use positive lengths")

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        self._geom_pos, self._geom_size = batch.expand("geom_pos"), batch.expand("geom_size")
        self._steps = np.array([self.model.geom(f"step_{step}").id for step in range(self.num_items)])
        self._levels = np.array([self.model.geom(f"top_{pair}").id for pair in range(self.config.num_flights // 2)])
        self._rises = np.zeros((batch.nsim, self._goes_up.sum()))  # x of the edges behind which the ground is higher
        self._drops = np.zeros((batch.nsim, self.num_items - self._goes_up.sum()))  # and lower

    def derive(self, rows: Rows) -> None:
        """Stand the boxes where they belong; `set_const` brings what MuJoCo derives from that up to date."""
        length = self.layout["step_length"][rows]
        left = self._left_edges(length)
        self.progress.positions[rows] = left + length / 2
        self._rises[rows] = left[:, self._goes_up]
        self._drops[rows] = (left + length)[:, ~self._goes_up]
        numbers = np.arange(self.batch.nsim, dtype=np.int32)[rows]
        self._geom_pos[numbers[:, None], self._steps, 0] = self.progress.positions[rows]
        self._geom_size[numbers[:, None], self._steps, 0] = length / 2
        ends = np.arange(FLIGHT - 1, self.num_items, 2 * FLIGHT)  # last steps of the ways up
        self._geom_pos[numbers[:, None], self._levels, 0] = (left + length)[:, ends] + TOP_LENGTH / 2
        self.batch.set_const(numbers)

    def ground(self, rows: Rows, x: np.ndarray) -> np.ndarray:
        """Height of the surface (m) at x [n]; an edge belongs to the higher side."""
        risen = np.count_nonzero(self._rises[rows] <= x[:, None], axis=1)
        dropped = np.count_nonzero(self._drops[rows] < x[:, None], axis=1)
        return self.config.step_height * (risen - dropped)

    def height(self, rows: Rows) -> np.ndarray:
        return self.qpos[rows, self.view.height] - self.ground(rows, self.x(rows))

    def observe_task(self, rows: Rows, out: np.ndarray) -> None:
        progress, x = self.progress, self.x(rows)
        first = progress.entries(rows, progress.padded) - x
        second = progress.entries(rows, progress.padded, offset=1) - x
        is_over = progress.is_over(rows)
        out[:, 0] = np.where(is_over, MISSING_NEXT, first)
        out[:, 1] = np.where(is_over, MISSING_BOTH, np.where(np.isinf(second), MISSING_SECOND, second))
        out[:, 2] = progress.fresh(rows)

    def _left_edges(self, length: np.ndarray) -> np.ndarray:
        """Where the steps begin [n, num_items], from their lengths."""
        before = length[:, :-1] + self._lead[1:]
        return np.cumsum(np.concatenate([np.full((len(length), 1), START), before], axis=1), axis=1)


class StairsContTask(StairsTask):
    """The same way up and down five times, with 12 m of floor between one pair of flights and the next."""

    task = "stairscont"
    config_class = StairsContConfig
