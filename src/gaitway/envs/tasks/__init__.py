"""Native tasks by id. Nothing here imports MuJoCo before a task is made."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaitway.envs.batch_task import BatchTask


@dataclass(frozen=True)
class NativeTask:
    """Where a task is made, and in one line what the robot does there. Called with options it makes the task."""

    module: str
    builder: str
    description: str

    def __call__(self, **options: Any) -> BatchTask:
        return getattr(import_module(f"gaitway.envs.tasks.{self.module}"), self.builder)(options)


NATIVE_TASKS: dict[str, NativeTask] = {
    "Ant-v5": NativeTask("gym_mujoco_contact", "AntTask", "A four-legged ant with eight joints runs forward"),
    "HalfCheetah-v5": NativeTask("gym_mujoco", "half_cheetah", "A planar cheetah with six joints runs forward"),
    "Hopper-v5": NativeTask("gym_mujoco", "hopper", "A planar leg with three joints hops forward without falling"),
    "Humanoid-v5": NativeTask(
        "gym_mujoco_contact", "HumanoidTask", "A humanoid with 17 joints runs forward without falling"
    ),
    "HumanoidStandup-v5": NativeTask(
        "gym_mujoco_contact", "StandupTask", "A humanoid that lies on the floor stands up"
    ),
    "InvertedDoublePendulum-v5": NativeTask(
        "gym_mujoco_arms", "InvertedDoublePendulumTask", "A cart balances two poles, one on top of the other"
    ),
    "InvertedPendulum-v5": NativeTask("gym_mujoco_arms", "InvertedPendulumTask", "A cart balances a pole"),
    "Pusher-v5": NativeTask("gym_mujoco_arms", "PusherTask", "An arm with seven joints pushes a cylinder to a goal"),
    "Reacher-v5": NativeTask("gym_mujoco_arms", "ReacherTask", "A planar arm with two joints reaches for a target"),
    "Swimmer-v5": NativeTask("gym_mujoco", "swimmer", "A chain of three links swims forward through a viscous fluid"),
    "Walker2d-v5": NativeTask("gym_mujoco", "walker2d", "A planar biped with six joints walks forward without falling"),
    "humanoid/run": NativeTask("locomotion", "humanoid_run", "The Humanoid runs at 4 m/s; a fall ends the episode"),
    "humanoid/stand": NativeTask(
        "locomotion", "humanoid_stand", "The Humanoid stands upright; a fall ends the episode"
    ),
    "walker/run": NativeTask("locomotion", "walker_run", "The planar Walker runs at 4 m/s; a fall ends the episode"),
    "walker/stand": NativeTask(
        "locomotion", "walker_stand", "The planar Walker stands upright; a fall ends the episode"
    ),
    "walker/walk": NativeTask("locomotion", "walker_walk", "The planar Walker walks at 1 m/s; a fall ends the episode"),
}
"""id -> task, called with its keyword options; an unknown option is a TypeError that lists the known ones."""
