"""Platforms with gaps between them: `gaps`.

The ground ends at x = 4 m. Then gaps of 0.2 to 0.7 m and platforms of 0.5 to 2.5 m (Humanoids: 1.0 to 2.5 m) follow
each other, 200 of each. Gaps are 5 cm deep; whatever part of the robot touches their bottom, the lava, ends the episode
with a reward of -1, whether or not falls are allowed. Observed are the distances to the beginnings of the next gap and
of the next platform, and whether that platform is new; platforms are what scores.

Of the gaps and platforms those near the robot are simulated: as many boxes as there are slots, each with its own place
and length in every instance, moved on when the robot comes near the end of them. A single plane of lava below
everything would not do: the noise of the first state puts feet up to 10 cm into the ground.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import mujoco
import numpy as np
from mujoco.batch import Batch

from gaitway.core.config import configuration
from gaitway.core.ranges import NotNegative, Positive
from gaitway.envs.batch_task import STAGE_POSITION, Arrays, Rows
from gaitway.envs.robots import world
from gaitway.envs.spec import Component
from gaitway.envs.tasks.bisk.base import FALL_REWARD, between, check_range
from gaitway.envs.tasks.bisk.corridor import CorridorConfig, CorridorTask

COUNT = 200
BASE = (-8.0, 4.0)
"""Where the ground begins and ends (m)."""
HALF_THICKNESS = 0.1
LAVA_HEIGHT = -0.05
MIN_PLATFORM = 0.5
MIN_PLATFORMS = {"humanoid": 1.0, "humanoidpc": 1.0}
"""Shortest platforms (m)."""
MISSING = 1.0
"""Distance (m) that is observed when nothing follows."""

REACH = 2.0
"""Platforms further from the torso than this (m) need not be there."""
MIN_PERIOD = 0.4
"""Shortest gap and platform together (m) for which the slots suffice."""
AHEAD = BEHIND = math.ceil(REACH / MIN_PERIOD) + 1
"""Gaps and platforms that must be there from the next platform on, and before it."""
SLOTS = 16
"""Even, so that the colours of platforms alternate. Those that are not needed yet make moves rare."""
LAVA_COLOUR = (0.9, 0.35, 0.05, 1.0)
PLATFORM_COLOURS = ((0.2, 0.3, 0.4, 1.0), (0.3, 0.4, 0.5, 1.0))


@configuration(kw_only=True)
class GapsConfig(CorridorConfig):
    max_size: Positive = 2.5
    """Longest platform (m)."""
    min_gap: NotNegative = 0.2
    max_gap: Positive = 0.7
    fixed_size: bool = False
    """All gaps are the shortest, all platforms the longest."""
    lava_costs_score: bool = False
    """A touch of lava takes 1 from the score as well, as in the second edition of the benchmark."""


class GapsTask(CorridorTask):
    task = "gaps"
    task_key = "next_gap_platform"
    config_class = GapsConfig
    config: GapsConfig
    num_items = COUNT
    is_static = True
    persistent = True  # the state after the last substep is looked at in a call of its own, which must keep forces
    stage = STAGE_POSITION

    def prepare(self) -> None:
        self._min_platform = MIN_PLATFORMS.get(self.robot.name, MIN_PLATFORM)
        check_range(self.id, gap=(self.config.min_gap, self.config.max_gap))
        check_range(self.id, max_size=(self._min_platform, self.config.max_size))

    def add_course(self, spec: mujoco.MjSpec, decorated: bool) -> None:
        world.add_corridor(spec, floor=False)
        width = world.CORRIDOR_HALF_WIDTH
        middle, half = (BASE[0] + BASE[1]) / 2, (BASE[1] - BASE[0]) / 2
        size, place = [half, width, HALF_THICKNESS], [middle, 0.0, -HALF_THICKNESS]
        base = world.add_static(spec, "base", "box", size, place, rgba=PLATFORM_COLOURS[0])
        size = [0.5, width, HALF_THICKNESS]
        lava = spec.worldbody.add_body(name="lava")  # one body, so that one sensor tells who touches any of it
        kind = mujoco.mjtGeom.mjGEOM_BOX
        for slot in range(SLOTS):
            colour = PLATFORM_COLOURS[slot % 2]
            world.add_static(spec, f"platform_{slot}", "box", size, world.PARKED, rgba=colour)
            box = lava.add_geom(name=f"lava_{slot}", type=kind, size=size, pos=world.PARKED, **world.WORLD_CONTACT)
            box.mass, box.rgba = 0.0, LAVA_COLOUR
            if decorated:
                world.cover(box, "lava")
        sensor = world.add_contact_sensor(spec, "lava", "lava", self.robot.torso)
        sensor.objtype = mujoco.mjtObj.mjOBJ_BODY  # all geoms of the body called so
        if decorated:
            world.add_checker(spec, "lava", (1.0, 0.45, 0.05), (0.8, 0.2, 0.0), fields_per_metre=4.0)
            world.add_checker(spec, "base", world.FLOOR_LIGHT, world.FLOOR_DARK)
            world.cover(base, "base")

    def task_components(self) -> tuple[Component, ...]:
        return (
            Component("next_gap_distance", 1, "m"),
            Component("next_platform_distance", 1, "m"),
            Component("next_platform_is_new"),
        )

    def course_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"gap": (COUNT,), "platform": (COUNT,)}

    def course_draws(self) -> int:
        return 0 if self.config.fixed_size else 2 * COUNT

    def sample_course(self, uniform: np.ndarray) -> Arrays:
        """First all gaps, then all platforms."""
        config = self.config
        if config.fixed_size:
            shape = (len(uniform), COUNT)
            return {"gap": np.full(shape, config.min_gap), "platform": np.full(shape, config.max_size)}
        gap = between(config.min_gap, config.max_gap, uniform[:, :COUNT])
        return {"gap": gap, "platform": between(self._min_platform, config.max_size, uniform[:, COUNT:])}

    def check_scenario(self, given: Mapping[str, np.ndarray]) -> None:
        super().check_scenario(given)
        gap, platform = (given.get(name, self.layout[name]) for name in ("gap", "platform"))
        if (gap <= 0.0).any() or (platform <= 0.0).any():
            raise ValueError(f"scenario fields 'gap' and 'platform' of {self.id} must hold positive lengths (m)")
        if (gap + platform).min() < MIN_PERIOD:
            raise ValueError(
                f"a gap and its platform in the scenario of {self.id} are {(gap + platform).min()} m together; use "
                f"{MIN_PERIOD} m at least, because only the {SLOTS} platforms near the robot are simulated"
            )

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        self._geom_pos, self._geom_size = batch.expand("geom_pos"), batch.expand("geom_size")
        self._platforms, self._lavas = (
            np.array([self.model.geom(f"{name}_{slot}").id for slot in range(SLOTS)]) for name in ("platform", "lava")
        )
        self._gaps = np.full((batch.nsim, COUNT + 2), np.inf)  # where gaps begin, padded as the platforms are
        self._lava = world.sensor_columns(self.model, "lava").start
        self._sensors = batch.bind("sensordata")
        self._records = {"sensordata": np.zeros((batch.nsim, self.frame_skip, self.model.nsensordata))}
        self._burnt = np.zeros(batch.nsim, dtype=bool)
        self.memory["first"] = np.zeros(batch.nsim, dtype=np.int64)  # the first gap and platform that are there

    def derive(self, rows: Rows) -> None:
        edges = self._edges(rows)
        self._gaps[rows, 1:-1], self.progress.positions[rows] = edges[:, 0:-1:2], edges[:, 1::2]

    def place(self, rows: Rows) -> None:
        super().place(rows)
        self.memory["first"][rows] = np.maximum(self.progress.next[rows] - BEHIND, 0)
        self._put_boxes(np.arange(self.batch.nsim, dtype=np.int32)[rows])

    def restore(self) -> None:
        super().restore()
        self._put_boxes(np.arange(self.batch.nsim, dtype=np.int32))

    def before_step(self) -> None:
        super().before_step()
        following, first = self.progress.next, self.memory["first"]
        # not earlier: forces of the last step have been observed by now
        moved = (first > np.maximum(following - BEHIND, 0)) | (first + SLOTS < following + AHEAD)
        if np.count_nonzero(moved):
            rows = np.flatnonzero(moved).astype(np.int32)
            first[rows] = np.maximum(following[rows] - BEHIND, 0)
            self._put_boxes(rows)

    def advance(self) -> None:
        self._burnt.fill(False)  # should a simulation fail below, the flags of the last step are not those of this one
        # record k shows the state before substep k, so the state after the last one is computed on top; record 0 was
        # looked at in the step before
        self.batch.rollout(self.frame_skip, record=("sensordata",), out=self._records)
        self.batch.forward(stage=self.stage)
        touched = self._records["sensordata"][:, 1:, self._lava].any(axis=1)
        np.logical_or(touched, self._sensors[:, self._lava], out=self._burnt)

    def judge(self, fell: np.ndarray, score: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> None:
        super().judge(fell, score, reward, terminated)
        if self.config.lava_costs_score:
            score -= self._burnt
        np.putmask(reward, self._burnt, FALL_REWARD)
        np.logical_or(terminated, self._burnt, out=terminated)

    def observe_task(self, rows: Rows, out: np.ndarray) -> None:
        progress, x = self.progress, self.x(rows)
        # gap i begins before platform i: either it is still ahead, or the one after it is the next
        gap = progress.entries(rows, self._gaps)
        gap = np.where(gap < x, progress.entries(rows, self._gaps, offset=1), gap) - x
        platform = progress.entries(rows, progress.padded) - x
        out[:, 0] = np.where(np.isinf(gap), MISSING, gap)
        out[:, 1] = np.where(np.isinf(platform), MISSING, platform)
        out[:, 2] = progress.fresh(rows)

    def _edges(self, rows: Rows) -> np.ndarray:
        """Beginnings of gap 0, platform 0, gap 1, ... and the end of the last platform [n, 2 COUNT + 1]."""
        gap, platform = self.layout["gap"][rows], self.layout["platform"][rows]
        lengths = np.stack([gap, platform], axis=2).reshape(len(gap), -1)
        return np.cumsum(np.concatenate([np.full((len(gap), 1), BASE[1]), lengths], axis=1), axis=1)

    def _put_boxes(self, rows: np.ndarray) -> None:
        """Stand gaps and platforms from number `first` on in the slots of `rows`; those numbered i in i mod SLOTS."""
        first = self.memory["first"][rows][:, None]
        items = first + (np.arange(SLOTS) - first) % SLOTS
        exists = items < COUNT
        items = np.where(exists, items, 0)
        begin = self.progress.positions[rows[:, None], items]
        for name, geoms, top in (("platform", self._platforms, 0.0), ("gap", self._lavas, LAVA_HEIGHT)):
            half = self.layout[name][rows[:, None], items] / 2
            target = rows[:, None], geoms
            self._geom_pos[(*target, 0)] = begin + half if name == "platform" else begin - half
            self._geom_pos[(*target, 2)] = np.where(exists, top - HALF_THICKNESS, world.PARKED[2])
            self._geom_size[(*target, 0)] = half
        self.batch.set_const(rows)
