"""Stand, walk and run on a flat floor with dense rewards: the planar Walker and the Humanoid.

Group `policy` (Walker [17], Humanoid [53]): qpos without the absolute x and y, then all of qvel. For the Walker this is
torso height and pitch, six joint angles and nine velocities (rootz, rootx, which is the forward speed, rooty, joints);
for the Humanoid torso height, torso orientation (quaternion w x y z), 21 joint angles, then the torso's velocity (3, in
the world's frame), angular velocity (3, in its own) and 21 joint velocities. One step is 0.025 s. The first observation
is the drawn state itself. An episode terminates when the robot falls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from mujoco.batch import Batch
from torch import Tensor

from gaitway.core.config import configuration
from gaitway.core.ranges import NotNegative, WholeNumber
from gaitway.envs.batch_task import Arrays, BatchTask, Rows
from gaitway.envs.robots.registry import get_robot
from gaitway.envs.robots.robot import as_index, position_components, velocity_components
from gaitway.envs.spec import ObservationGroup
from gaitway.envs.task_options import resolve_options
from gaitway.envs.tensor_task import TensorTask

HEIGHT_RANGES = {"walker": (0.6, 1.2), "humanoid": (0.59, 1.19)}
"""Torso heights (m) that earn nothing and everything: the same shares of the height at which each robot stands straight
(1.3 m and 1.285 m)."""


@configuration(kw_only=True)
class RunConfig:
    """Options of the run tasks; walking and standing differ in `target_speed`."""

    target_speed: NotNegative = 4.0
    """Forward speed (m/s) that earns the full reward; 0 rewards standing alone."""
    reset_noise_scale: NotNegative = 0.1
    """Half-width of the uniform noise on positions and deviation of the normal noise on velocities."""
    max_episode_steps: WholeNumber = 1000


@configuration(kw_only=True)
class WalkConfig(RunConfig):
    target_speed: NotNegative = 1.0


@configuration(kw_only=True)
class StandConfig(RunConfig):
    target_speed: NotNegative = 0.0


def locomotion_reward(
    height: np.ndarray,
    tilt: np.ndarray,
    speed: np.ndarray,
    target_speed: float,
    height_range: tuple[float, float] = HEIGHT_RANGES["walker"],
) -> np.ndarray:
    """[B] torso heights (m), tilts (rad), speeds (m/s) -> rewards [B] in 0..1.

    s = (3 clip((z - low) / (high - low), 0, 1) + (1 + cos tilt) / 2) / 4 for standing, and
    s (1 + 5 clip(v / v*, 0, 1)) / 6 for moving at v*. The tilt is the angle of the torso's z axis to the vertical: its
    cosine is that axis' vertical component. For the Walker it is the pitch.
    """
    low, high = height_range
    upright = (3.0 * np.clip((height - low) / (high - low), 0.0, 1.0) + 0.5 * (1.0 + np.cos(tilt))) / 4.0
    if target_speed == 0.0:
        return upright
    return upright * (1.0 + 5.0 * np.clip(speed / target_speed, 0.0, 1.0)) / 6.0


class LocomotionTask(BatchTask):
    """Move forward at `target_speed`. Metrics: `speed` (m/s, displacement of x over the step) and `fell`."""

    metrics = ("speed", "fell")
    camera = "follow"

    def __init__(self, id: str, config: RunConfig, options: Mapping[str, Any]) -> None:
        self.id = id
        self.config = config
        self.options = options
        self.robot = get_robot(id.partition("/")[0])
        self.max_episode_steps = config.max_episode_steps
        self.height_range = HEIGHT_RANGES[self.robot.name]
        # hidden entries are the first of qpos, where every component has size 1
        hidden, parts = self.robot.horizontal_indices, position_components(self.model) + velocity_components(self.model)
        components = tuple(part for index, part in enumerate(parts) if index not in hidden)
        shown = [index for index in range(self.robot.nq + self.robot.nv) if index not in hidden]
        self.shown = as_index(shown)
        self.groups = (ObservationGroup("policy", components, (len(shown),)),)

    def on_tensors(self, like: Tensor) -> TensorTask:
        from gaitway.envs.tasks.locomotion_on_tensors import LocomotionOnTensors

        return LocomotionOnTensors(self, like)

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        self._x_before = np.zeros(batch.nsim)

    def draw(self, generator: np.random.Generator) -> Arrays:
        qpos, qvel = self.robot.draw_state(generator, self.config.reset_noise_scale)
        return {"qpos": qpos, "qvel": qvel}

    def before_step(self) -> None:
        np.copyto(self._x_before, self.qpos[:, self.robot.forward_index])

    def outcome(self, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, metrics: Arrays) -> None:
        robot, target = self.robot, self.config.target_speed
        height, tilt = self.qpos[:, robot.height_index], robot.tilt(self.qpos)
        speed = (self.qpos[:, robot.forward_index] - self._x_before) / self.control_dt
        reward[:] = locomotion_reward(height, tilt, speed, target, self.height_range)
        terminated[:] = robot.fallen(self.qpos, height)
        metrics["speed"][:] = speed
        metrics["fell"][:] = terminated

    def observe(self, rows: Rows, out: Arrays) -> None:
        out["policy"][:] = self.motion[rows][:, self.shown]


def walker_run(options: Mapping[str, Any]) -> LocomotionTask:
    return LocomotionTask("walker/run", *resolve_options(RunConfig, "walker/run", options))


def walker_walk(options: Mapping[str, Any]) -> LocomotionTask:
    return LocomotionTask("walker/walk", *resolve_options(WalkConfig, "walker/walk", options))


def walker_stand(options: Mapping[str, Any]) -> LocomotionTask:
    return LocomotionTask("walker/stand", *resolve_options(StandConfig, "walker/stand", options))


def humanoid_run(options: Mapping[str, Any]) -> LocomotionTask:
    return LocomotionTask("humanoid/run", *resolve_options(RunConfig, "humanoid/run", options))


def humanoid_stand(options: Mapping[str, Any]) -> LocomotionTask:
    return LocomotionTask("humanoid/stand", *resolve_options(StandConfig, "humanoid/stand", options))
