"""Move as told on an empty floor: `velocitycontrol`, a speed and a direction that change, and `rundir`, straight on.

`velocitycontrol`: the centre of the robot's mass is to move over the floor with a speed from U(0, 4.5) m/s in a
direction from U(0, 2 pi) (planar robots: 0 or pi), counted from +x; both are drawn anew after every 166 steps. Observed
are [speed, sin, cos of the direction, steps since the last change / 166]; after the step that ends a stretch these are
the new ones. With the speed s, the wanted one s* and the cosine c between both directions, a step scores 1 if
|s* - s| < 0.1 and c > cos 15 deg, and the shaped form pays exp(-((s* - s) / 0.75)^2) (c + 1) / 2. Who stands still has
no direction: c is 0 for the score, and the shaped form pays as if it were right.

The 64 velocities of an episode are drawn when it begins; after the last one, 10624 steps on, they begin again.

`rundir`: each step pays how far the torso moved (m) along a direction that is fixed in the torso's frame, as it is
turned after the step; `heading_deg` counts from the torso's x axis, straight on, to its left. This is the only form,
and the score is the same number; falls cost 1 as ever. Nothing but the robot is observed.

From the second edition of the bipedal-skills benchmark. There the direction of `rundir` is the world's y axis written
in the torso's frame, made for a robot whose torso has other axes; a planar robot would never get anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import mujoco
import numpy as np
from mujoco.batch import Batch

from gaitway.core.config import configuration
from gaitway.core.ranges import Count, Number, Positive
from gaitway.envs.batch_task import STAGE_VELOCITY, Arrays, Rows
from gaitway.envs.robots import world
from gaitway.envs.spec import Component
from gaitway.envs.tasks.bisk.base import ALL, SHAPED, BiskConfig, between
from gaitway.envs.tasks.bisk.open_floor import FloorTask, ShapedConfig, add_arrow, put_arrow

NUM_DRAWN = 64
"""Velocities of an episode."""
SPEED_TOLERANCE = 0.1
DIRECTION_TOLERANCE = math.cos(math.radians(15.0))
STILL = 1e-8
"""Slower than this (m/s) nothing has a direction."""
ARROW, ARROW_COLOUR = "direction", (0.9, 0.3, 0.2, 1.0)
ARROW_HEIGHT = 0.6
"""How far above the torso's origin (m) arrows are drawn."""
MIN_ARROW = 0.05
SPEED, SINE, COSINE, PHASE = range(4)
"""Columns of what is observed."""


@configuration(kw_only=True)
class VelocityControlConfig(ShapedConfig):
    max_speed: Positive = 4.5
    """Speeds lie between 0 and this (m/s)."""
    reward_margin: Positive = 0.75
    """Error of the speed (m/s) at which the shaped form pays 1/e."""
    steps_before_changing_velocity: Count = 166


class VelocityControlTask(FloorTask):
    task = "velocitycontrol"
    task_key = "target"
    metrics = ("score", "fell", SHAPED)
    config_class = VelocityControlConfig
    config: VelocityControlConfig
    stage = STAGE_VELOCITY  # the sensor of the velocity lags one substep behind otherwise

    def add_course(self, spec: mujoco.MjSpec, decorated: bool) -> None:
        world.add_floor(spec)
        spec.add_sensor(
            name="velocity",
            type=mujoco.mjtSensor.mjSENS_SUBTREELINVEL,
            objtype=mujoco.mjtObj.mjOBJ_BODY,
            objname=self.robot.torso,
        )
        if decorated:
            add_arrow(spec, ARROW, ARROW_COLOUR)

    def task_components(self) -> tuple[Component, ...]:
        return (
            Component("target_speed", 1, "m/s"),
            Component("target_direction_sine"),
            Component("target_direction_cosine"),
            Component("target_phase"),
        )

    def course_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"speed": (NUM_DRAWN,), "angle": (NUM_DRAWN,)}

    def course_draws(self) -> int:
        return 2 * NUM_DRAWN

    def sample_course(self, uniform: np.ndarray) -> Arrays:
        """First all speeds, then all angles."""
        speed, turn = between(0.0, self.config.max_speed, uniform[:, :NUM_DRAWN]), uniform[:, NUM_DRAWN:]
        angle = np.where(turn < 0.5, 0.0, np.pi) if self.robot.is_planar else between(0.0, 2 * np.pi, turn)
        return {"speed": speed, "angle": angle}

    def check_scenario(self, given: Mapping[str, np.ndarray]) -> None:
        super().check_scenario(given)
        speed, angle = given.get("speed"), given.get("angle")
        if speed is not None and (speed < 0.0).any():
            raise ValueError(f"scenario field 'speed' of {self.id} holds {speed.min()} m/s; use 0 or more")
        if angle is not None and self.robot.is_planar and (np.abs(np.sin(angle)) > 1e-6).any():
            raise ValueError(f"scenario field 'angle' of {self.id} takes 0 and pi; {self.robot.name} is planar")

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        self._sensors = batch.bind("sensordata")
        self._velocity = world.sensor_columns(self.model, "velocity").start
        self._target = np.zeros((batch.nsim, 4))  # as observed
        for name in ("number", "steps_since_change"):
            self.memory[name] = np.zeros(batch.nsim, dtype=np.int64)

    def begin(self, rows: Rows) -> None:
        self.memory["number"][rows] = self.memory["steps_since_change"][rows] = 0
        self._take_target(rows)

    def restore(self) -> None:
        self._take_target(ALL)

    def judge(self, fell: np.ndarray, score: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> None:
        x, y = self._sensors[:, self._velocity], self._sensors[:, self._velocity + 1]
        speed, target = np.hypot(x, y), self._target
        along = x * target[:, COSINE] + y * target[:, SINE]
        moves = speed > STILL
        cosine = np.divide(along, speed, out=np.zeros_like(speed), where=moves)
        error = target[:, SPEED] - speed
        score[:] = (np.abs(error) < SPEED_TOLERANCE) & (cosine > DIRECTION_TOLERANCE)
        direction = np.where(moves, (cosine + 1.0) / 2.0, 1.0)
        np.multiply(np.exp(-np.square(error / self.config.reward_margin)), direction, out=self.shaped_reward)
        reward[:] = self.shaped_reward if self.config.shaped else score
        self._count_step()

    def observe_task(self, rows: Rows, out: np.ndarray) -> None:
        out[:] = self._target[rows]

    def dress(self, index: int, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """A second's way at the wanted velocity, above the torso."""
        speed, sine, cosine, _ = self._target[index]
        start = self.torso_position(np.array([index]))[0] + [0.0, 0.0, ARROW_HEIGHT]
        put_arrow(model, ARROW, start, max(speed, MIN_ARROW) * np.array([cosine, sine, 0.0]))

    def _count_step(self) -> None:
        steps, period = self.memory["steps_since_change"], self.config.steps_before_changing_velocity
        steps += 1
        np.divide(steps, period, out=self._target[:, PHASE])
        over = steps >= period
        if np.count_nonzero(over):
            rows = np.flatnonzero(over)
            self.memory["number"][rows] += 1
            steps[rows] = 0
            self._take_target(rows)

    def _take_target(self, rows: Rows) -> None:
        """Look up what is observed in `rows`."""
        number = self.memory["number"][rows, None] % NUM_DRAWN
        angle = np.take_along_axis(self.layout["angle"][rows], number, 1)[:, 0]
        self._target[rows, SPEED] = np.take_along_axis(self.layout["speed"][rows], number, 1)[:, 0]
        self._target[rows, SINE], self._target[rows, COSINE] = np.sin(angle), np.cos(angle)
        self._target[rows, PHASE] = self.memory["steps_since_change"][rows] / self.config.steps_before_changing_velocity


@configuration(kw_only=True)
class RunDirConfig(BiskConfig):
    heading_deg: Number = 0.0
    """Angle of the direction to the torso's x axis, to the left; 0 or 180 for planar robots."""


class RunDirTask(FloorTask):
    task = "rundir"
    metrics = ("score", "fell", SHAPED)
    config_class = RunDirConfig
    config: RunDirConfig

    def prepare(self) -> None:
        heading = self.config.heading_deg
        if self.robot.is_planar and heading not in (0.0, 180.0, -180.0):
            raise ValueError(f"{self.id}: heading_deg is {heading}; {self.robot.name} is planar and takes 0 or 180")
        angle = math.radians(heading)
        self._direction = np.array([math.cos(angle), math.sin(angle), 0.0])

    def add_course(self, spec: mujoco.MjSpec, decorated: bool) -> None:
        world.add_floor(spec)
        if decorated:
            add_arrow(spec, ARROW, ARROW_COLOUR)

    def task_components(self) -> tuple[Component, ...]:
        return ()

    def task_keys(self) -> dict[str, int]:
        return {}

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        self._before = np.zeros((batch.nsim, 3))

    def before_step(self) -> None:
        np.copyto(self._before, self.torso_position())

    def judge(self, fell: np.ndarray, score: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> None:
        way = self.torso_position() - self._before
        np.sum(way * self.directions(), axis=1, out=self.shaped_reward)
        score[:] = reward[:] = self.shaped_reward

    def directions(self, rows: Rows = ALL) -> np.ndarray:
        """Which way pays in the world [n, 3]."""
        return self.torso_rotation(rows) @ self._direction

    def observe_task(self, rows: Rows, out: np.ndarray) -> None:
        """Nothing is added to what is observed of the robot."""

    def dress(self, index: int, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        row = np.array([index])
        put_arrow(model, ARROW, self.torso_position(row)[0] + [0.0, 0.0, ARROW_HEIGHT], self.directions(row)[0])
