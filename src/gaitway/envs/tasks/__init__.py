"""Native tasks by id. Nothing here imports MuJoCo before a task is made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaitway.envs.batch_task import BatchTask


def _make(module: str, builder: str, **options: Any) -> BatchTask:
    return getattr(import_module(f"gaitway.envs.tasks.{module}"), builder)(options)


NATIVE_TASKS: dict[str, Callable[..., BatchTask]] = {
    "Ant-v5": partial(_make, "gym_mujoco_contact", "AntTask"),
    "HalfCheetah-v5": partial(_make, "gym_mujoco", "half_cheetah"),
    "Hopper-v5": partial(_make, "gym_mujoco", "hopper"),
    "Humanoid-v5": partial(_make, "gym_mujoco_contact", "HumanoidTask"),
    "HumanoidStandup-v5": partial(_make, "gym_mujoco_contact", "StandupTask"),
    "InvertedDoublePendulum-v5": partial(_make, "gym_mujoco_arms", "InvertedDoublePendulumTask"),
    "InvertedPendulum-v5": partial(_make, "gym_mujoco_arms", "InvertedPendulumTask"),
    "Pusher-v5": partial(_make, "gym_mujoco_arms", "PusherTask"),
    "Reacher-v5": partial(_make, "gym_mujoco_arms", "ReacherTask"),
    "Swimmer-v5": partial(_make, "gym_mujoco", "swimmer"),
    "Walker2d-v5": partial(_make, "gym_mujoco", "walker2d"),
    "walker/run": partial(_make, "locomotion", "walker_run"),
    "walker/stand": partial(_make, "locomotion", "walker_stand"),
    "walker/walk": partial(_make, "locomotion", "walker_walk"),
}
"""id -> function of the task's keyword options; an unknown option is a TypeError that lists the known ones."""
