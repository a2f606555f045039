"""Go to places on an empty floor: `gototargets`, one after the other, and `gotosphere`, a single one.

`gototargets`: two targets are known at a time, both from U(-8, 8) m in x and y (planar robots: y = 0). When the torso
comes closer than 0.5 m to the first one, that scores 1, the second becomes the first, and a new one follows; what is
observed after that step are the new ones. `gotosphere`: one target 4 m from the origin in any direction (planar robots:
before or behind it); reaching it scores 1 and ends the episode.

Observed are, for each target, dx (m) for planar robots and otherwise (dx, dy, 0) turned into the torso's frame. The
shaped form pays -0.1 (1 - 0.1^(d^2 / m^2)) at a distance of d from the first target, as it was before it changed, with
m = 4 m for targets and 2 m for the sphere: 0 at the target, -0.09 at the distance m.

The targets of an episode are drawn when it begins, 64 of them; after the last one they begin again. From the second
edition of the bipedal-skills benchmark, which puts the sphere of planar robots anywhere between -4 and 4 m.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import mujoco
import numpy as np
from mujoco.batch import Batch

from gaitway.core.config import configuration
from gaitway.core.ranges import Count, Positive, Range
from gaitway.envs.batch_task import Arrays, Rows
from gaitway.envs.robots import world
from gaitway.envs.spec import Component
from gaitway.envs.tasks.bisk.base import SHAPED, between, check_range
from gaitway.envs.tasks.bisk.open_floor import FloorTask, ShapedConfig, add_mark, put_mark

NUM_DRAWN = 64
"""Targets of an episode of `gototargets`."""
SHAPED_SCALE = 0.1
COLOUR = (0.9, 0.6, 0.6)
MARK_RADIUS, MARK_THICKNESS = 0.1, 0.001
FAINT = 0.3
"""Opacity of the targets after the first, as a share of its own."""


@configuration(kw_only=True)
class TargetConfig(ShapedConfig):
    """Options of both tasks."""

    tolerance: Positive = 0.5
    """A target is reached where the torso is closer to it than this (m), seen from above."""


@configuration(kw_only=True)
class GoToTargetsConfig(TargetConfig):
    num_targets: Annotated[int, Range(1, NUM_DRAWN)] = 2
    """How many targets are known at a time."""
    goal_area: Positive = 8.0
    """Targets lie in -goal_area..goal_area (m) in x and y."""
    goal_switch_steps: Count = 1
    """In how many steps a target must be within reach, each of which scores, before the next one takes its place."""


@configuration(kw_only=True)
class GoToSphereConfig(TargetConfig):
    goal_area: Positive = 4.0
    """How far away the target is (m)."""


class TargetTask(FloorTask):
    """Targets in a row. Subclasses say how many there are, where they are drawn and what follows a reached one."""

    task_key = "targets"
    metrics = ("score", "fell", SHAPED)
    config: GoToTargetsConfig | GoToSphereConfig
    num_targets: int
    num_drawn: ClassVar[int]

    def prepare(self) -> None:
        check_range(self.id, goal_area=(self.config.goal_area,) * 2, tolerance=(self.config.tolerance,) * 2)
        self._margin = self.config.goal_area / 2

    def add_course(self, spec: mujoco.MjSpec, decorated: bool) -> None:
        world.add_floor(spec)
        if not decorated:
            return
        disc = [self.config.tolerance, self.config.tolerance, MARK_THICKNESS]
        for number in range(self.num_targets):
            share = FAINT if number else 1.0
            add_mark(spec, f"target_{number}", "sphere", [MARK_RADIUS], (*COLOUR, share))
            add_mark(spec, f"target_disc_{number}", "ellipsoid", disc, (*COLOUR, 0.4 * share))

    def task_components(self) -> tuple[Component, ...]:
        if self.robot.is_planar:
            return tuple(Component(f"target_{number}_distance", 1, "m") for number in range(self.num_targets))
        return tuple(Component(f"target_{number}_in_torso_frame", 3, "m") for number in range(self.num_targets))

    def course_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"target": (self.num_drawn, 2)}

    def check_scenario(self, given: Mapping[str, np.ndarray]) -> None:
        super().check_scenario(given)
        if self.robot.is_planar and "target" in given and given["target"][..., 1].any():
            raise ValueError(f"scenario field 'target' of {self.id} has a y that is not 0; {self.robot.name} is planar")

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        self.memory["first_target"] = np.zeros(batch.nsim, dtype=np.int64)
        self._instances = np.arange(batch.nsim)[:, None]
        self._places = np.arange(self.num_targets)

    def begin(self, rows: Rows) -> None:
        self.memory["first_target"][rows] = 0

    def targets(self, rows: Rows, count: int) -> np.ndarray:
        """The first `count` targets of the present (m) [n, count, 2]."""
        numbers = (self.memory["first_target"][rows, None] + self._places[:count]) % self.num_drawn
        return self.layout["target"][self._instances[rows], numbers]

    def judge(self, fell: np.ndarray, score: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> None:
        away = self.targets(slice(None), 1)[:, 0] - self.torso_position()[:, :2]
        distance = np.hypot(away[:, 0], away[:, 1])
        reached = distance < self.config.tolerance
        score[:] = reached
        self.shaped_reward[:] = shaped_reward(distance, self._margin)
        reward[:] = self.shaped_reward if self.config.shaped else score
        self.follow(reached, terminated)

    def follow(self, reached: np.ndarray, terminated: np.ndarray) -> None:
        """What comes of having `reached` the first target [B]."""
        raise TypeError(f"{type(self).__name__} does not implement follow")

    def observe_task(self, rows: Rows, out: np.ndarray) -> None:
        targets, position = self.targets(rows, self.num_targets), self.torso_position(rows)
        if self.robot.is_planar:
            out[:] = targets[:, :, 0] - position[:, :1]
            return
        away = np.zeros((len(targets), self.num_targets, 3))
        away[:, :, :2] = targets - position[:, None, :2]
        out[:] = (away @ self.torso_rotation(rows)).reshape(out.shape)

    def dress(self, index: int, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        for number, (x, y) in enumerate(self.targets(np.array([index]), self.num_targets)[0]):
            put_mark(model, f"target_{number}", (x, y, MARK_RADIUS))
            put_mark(model, f"target_disc_{number}", (x, y, 2 * MARK_THICKNESS))


class GoToTargetsTask(TargetTask):
    task = "gototargets"
    config_class = GoToTargetsConfig
    config: GoToTargetsConfig
    num_drawn = NUM_DRAWN

    def prepare(self) -> None:
        super().prepare()
        self.num_targets = self.config.num_targets

    def course_draws(self) -> int:
        return self.num_drawn * (1 if self.robot.is_planar else 2)

    def sample_course(self, uniform: np.ndarray) -> Arrays:
        """Target by target, x before y."""
        target = np.zeros((len(uniform), self.num_drawn, 2))
        drawn = between(-self.config.goal_area, self.config.goal_area, uniform)
        if self.robot.is_planar:
            target[:, :, 0] = drawn
        else:
            target[:] = drawn.reshape(target.shape)
        return {"target": target}

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        self.memory["steps_within_reach"] = np.zeros(batch.nsim, dtype=np.int64)

    def begin(self, rows: Rows) -> None:
        super().begin(rows)
        self.memory["steps_within_reach"][rows] = 0

    def follow(self, reached: np.ndarray, terminated: np.ndarray) -> None:
        steps = self.memory["steps_within_reach"]
        steps += reached
        done = steps >= self.config.goal_switch_steps
        self.memory["first_target"] += done
        steps[done] = 0


class GoToSphereTask(TargetTask):
    task = "gotosphere"
    config_class = GoToSphereConfig
    config: GoToSphereConfig
    num_targets = 1
    num_drawn = 1

    def course_draws(self) -> int:
        return 1

    def sample_course(self, uniform: np.ndarray) -> Arrays:
        """One number is the angle, or for planar robots the side: ahead below 0.5, else behind."""
        angle = np.where(uniform < 0.5, 0.0, np.pi) if self.robot.is_planar else between(0.0, 2 * np.pi, uniform)
        side = np.zeros_like(angle) if self.robot.is_planar else np.sin(angle)
        return {"target": self.config.goal_area * np.stack([np.cos(angle), side], axis=2)}

    def follow(self, reached: np.ndarray, terminated: np.ndarray) -> None:
        np.logical_or(terminated, reached, out=terminated)


def shaped_reward(distance: np.ndarray, margin: float) -> np.ndarray:
    """0 at the target, -0.09 at the distance `margin` (m), -0.1 far away."""
    return -SHAPED_SCALE * (1.0 - 0.1 ** np.square(distance / margin))
