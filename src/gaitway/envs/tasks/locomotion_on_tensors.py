"""Stand, walk and run on simulators whose arrays are tensors: what `LocomotionTask` is on arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gaitway.envs.episode_numbers import EpisodeNumbers
from gaitway.envs.robots.robot import Robot
from gaitway.envs.tensor_task import TensorTask
from gaitway.envs.vec_env import Observation
from gaitway.envs.warp_worlds import WarpError, Worlds
from gaitway.functional.counter_random import normal_of

if TYPE_CHECKING:
    from gaitway.envs.tasks.locomotion import LocomotionTask


class LocomotionOnTensors(TensorTask):
    """A `LocomotionTask` in the type and on the device of `like`. Starts are drawn from the counter's numbers, so they
    are others than those on arrays, from the same distribution."""

    looks = False  # all that is seen is the state itself

    def __init__(self, task: LocomotionTask, like: Tensor) -> None:
        self.task, self.robot = task, task.robot
        self.frame_skip, self.max_episode_steps = task.frame_skip, task.max_episode_steps
        robot, model = task.robot, task.model
        if (model.nq, model.nv) != (robot.nq, robot.nv) or robot.fall_test is None:
            raise WarpError(f"{task.id} has no form on tensors; use env.simulator=mujoco")
        self._initial = torch.from_numpy(robot.initial_qpos()).to(like)
        self._shown = torch.arange(robot.nq + robot.nv, device=like.device)[task.shown]
        self._low, self._high = task.height_range

    def attach(self, worlds: Worlds, numbers: EpisodeNumbers) -> None:
        super().attach(worlds, numbers)
        self._x_before = torch.zeros_like(worlds.qpos[:, 0])

    def draw(self) -> dict[str, Tensor]:
        robot, noise = self.robot, self.task.config.reset_noise_scale
        uniform = self.numbers.of_episode("begin", robot.nq + robot.nv)
        qpos = self._initial + noise * (2.0 * uniform[:, : robot.nq] - 1.0)
        first = robot.quaternion_index
        if first is not None:
            turn = qpos[:, first : first + 4]
            qpos[:, first : first + 4] = turn / turn.square().sum(1, keepdim=True).sqrt()
        return {"qpos": qpos, "qvel": noise * normal_of(uniform[:, robot.nq :])}

    def actuate(self, action: Tensor) -> None:
        super().actuate(action)
        self._x_before.copy_(self.worlds.qpos[:, self.robot.forward_index])

    def outcome(self) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        qpos, robot, target = self.worlds.qpos, self.robot, self.task.config.target_speed
        height, level = qpos[:, robot.height_index], upright(robot, qpos)
        speed = (qpos[:, robot.forward_index] - self._x_before) / self.task.control_dt
        stands = 3.0 * ((height - self._low) / (self._high - self._low)).clamp(0.0, 1.0)
        reward = (stands + 0.5 * (1.0 + level)) / 4.0
        if target:
            reward = reward * (1.0 + 5.0 * (speed / target).clamp(0.0, 1.0)) / 6.0
        assert robot.fall_test is not None
        fell = robot.fall_test(qpos, height, level)  # type: ignore[arg-type]  # comparisons alone
        return reward, fell, {"speed": speed, "fell": fell}  # type: ignore[return-value, dict-item]

    def observe(self, is_new: bool) -> Observation:
        return {"policy": torch.cat((self.worlds.qpos, self.worlds.qvel), 1)[:, self._shown]}


def upright(robot: Robot, qpos: Tensor) -> Tensor:
    """`Robot.upright` on tensors: vertical component of the torso's z axis [B]."""
    pitch, first = robot.pitch_index, robot.quaternion_index
    if pitch is not None:
        return qpos[:, pitch].cos()
    assert first is not None
    w, x, y, z = qpos[:, first : first + 4].square().unbind(1)
    return 1.0 - 2.0 * (x + y) / (w + x + y + z)
