"""Native tasks by id. Nothing here imports MuJoCo before a task is made."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gaitway.envs.legged.presets import DESCRIPTIONS
from gaitway.envs.robots.registry import ROBOTS
from gaitway.envs.tasks.bisk import BENCHMARK_ENDINGS, BENCHMARK_TASKS

if TYPE_CHECKING:
    from gaitway.envs.batch_task import BatchTask


@dataclass(frozen=True)
class NativeTask:
    """Where a task is made, and in one line what the robot does there. Called with options it makes the task."""

    module: str
    builder: str
    description: str
    arguments: tuple[str, ...] = ()
    """What the builder takes before the options."""

    def __call__(self, **options: Any) -> BatchTask:
        builder = getattr(import_module(f"gaitway.envs.tasks.{self.module}"), self.builder)
        return builder(*self.arguments, options)


def _benchmark_tasks() -> dict[str, NativeTask]:
    """The bipedal-skills benchmark: the robots in their tasks, as published and corrected."""
    return {
        f"{robot}/{name}{ending}": NativeTask(
            f"bisk.{task.module}",
            task.builder,
            f"{title[0].upper()}{title[1:]} {task.description}{remark}",
            (robot, ending),
        )
        for robot, title in ((name, entry.title) for name, entry in ROBOTS.items())
        for name, task in BENCHMARK_TASKS.items()
        for ending, remark in BENCHMARK_ENDINGS.items()
        if robot in task.robots
    }


NATIVE_TASKS: dict[str, NativeTask] = {
    "Ant-v5": NativeTask("gym_v5.contact", "AntTask", "A four-legged ant with eight joints runs forward"),
    "HalfCheetah-v5": NativeTask("gym_v5.runners", "half_cheetah", "A planar cheetah with six joints runs forward"),
    "Hopper-v5": NativeTask("gym_v5.runners", "hopper", "A planar leg with three joints hops forward without falling"),
    "Humanoid-v5": NativeTask(
        "gym_v5.contact", "HumanoidTask", "A humanoid with 17 joints runs forward without falling"
    ),
    "HumanoidStandup-v5": NativeTask("gym_v5.contact", "StandupTask", "A humanoid that lies on the floor stands up"),
    "InvertedDoublePendulum-v5": NativeTask(
        "gym_v5.arms", "InvertedDoublePendulumTask", "A cart balances two poles, one on top of the other"
    ),
    "InvertedPendulum-v5": NativeTask("gym_v5.arms", "InvertedPendulumTask", "A cart balances a pole"),
    "Pusher-v5": NativeTask("gym_v5.arms", "PusherTask", "An arm with seven joints pushes a cylinder to a goal"),
    "Reacher-v5": NativeTask("gym_v5.arms", "ReacherTask", "A planar arm with two joints reaches for a target"),
    "Swimmer-v5": NativeTask(
        "gym_v5.runners", "swimmer", "A chain of three links swims forward through a viscous fluid"
    ),
    "Walker2d-v5": NativeTask(
        "gym_v5.runners", "walker2d", "A planar biped with six joints walks forward without falling"
    ),
    "humanoid/run": NativeTask("locomotion", "humanoid_run", "The Humanoid runs at 4 m/s; a fall ends the episode"),
    "humanoid/stand": NativeTask(
        "locomotion", "humanoid_stand", "The Humanoid stands upright; a fall ends the episode"
    ),
    **{
        f"{robot}/skills": NativeTask("skills.task", f"{robot}_skills", f"The {name} reaches one goal after the other")
        for robot, name in (
            ("walker", "planar Walker"),
            ("humanoid", "Humanoid"),
            ("humanoidpc", "Humanoid with position control"),
        )
    },
    "walker/run": NativeTask("locomotion", "walker_run", "The planar Walker runs at 4 m/s; a fall ends the episode"),
    "walker/stand": NativeTask(
        "locomotion", "walker_stand", "The planar Walker stands upright; a fall ends the episode"
    ),
    "walker/walk": NativeTask("locomotion", "walker_walk", "The planar Walker walks at 1 m/s; a fall ends the episode"),
    **_benchmark_tasks(),
    **{id: NativeTask("legged.making", "make_legged", text, (id,)) for id, text in DESCRIPTIONS.items()},
}
"""id -> task, called with its keyword options; an unknown option is a TypeError that lists the known ones."""
