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
    arguments: tuple[str, ...] = ()
    """What the builder takes before the options."""

    def __call__(self, **options: Any) -> BatchTask:
        builder = getattr(import_module(f"gaitway.envs.tasks.{self.module}"), self.builder)
        return builder(*self.arguments, options)


BENCHMARK_ROBOTS = {
    "walker": "the planar Walker",
    "humanoid": "the Humanoid",
    "humanoidpc": "the Humanoid with position control",
    "halfcheetah": "the planar HalfCheetah",
    "cube": "a cube that motors push about",
    "cube2d": "a cube in the x-z plane",
}
BENCHMARK_TASKS = {
    "hurdles": ("hurdles", "HurdlesTask", "jumps over hurdles"),
    "limbo": ("limbo", "LimboTask", "ducks under bars"),
    "hurdleslimbo": ("limbo", "HurdlesLimboTask", "jumps over hurdles and ducks under bars in turn"),
    "gaps": ("gaps", "GapsTask", "jumps over gaps from platform to platform"),
    "stairs": ("stairs", "StairsTask", "climbs ten stairs and walks down ten others"),
    "goalwall": ("goal_wall", "GoalWallTask", "kicks a ball at goals on a wall"),
    "polebalance": ("pole_balance", "PoleBalanceTask", "balances a pole"),
    "stairscont": ("stairs", "StairsContTask", "climbs ten stairs and walks down ten others, five times"),
    "gototargets": ("targets", "GoToTargetsTask", "goes to one target after the other"),
    "gotosphere": ("targets", "GoToSphereTask", "goes to a target 4 m away"),
    "velocitycontrol": ("velocity", "VelocityControlTask", "moves at a velocity that changes"),
    "rundir": ("velocity", "RunDirTask", "runs the way it is turned"),
    "butterflies": ("butterflies", "ButterfliesTask", "catches butterflies with a net"),
}
"""Name -> module, builder and what the robot does; from `stairscont` on, tasks of the benchmark's second edition."""
ONLY_FOR = {"butterflies": ("cube",)}
"""Tasks that are not there for every robot."""
BENCHMARK_ENDINGS = {"": "", "-fixed": "; errors of the benchmark are put right"}


def _benchmark_tasks() -> dict[str, NativeTask]:
    """The bipedal-skills benchmark: the robots in their tasks, as published and corrected."""
    return {
        f"{robot}/{task}{ending}": NativeTask(
            module, builder, f"{who[0].upper()}{who[1:]} {what}{remark}", (robot, ending)
        )
        for robot, who in BENCHMARK_ROBOTS.items()
        for task, (module, builder, what) in BENCHMARK_TASKS.items()
        for ending, remark in BENCHMARK_ENDINGS.items()
        if robot in ONLY_FOR.get(task, BENCHMARK_ROBOTS)
    }


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
    **{
        f"{robot}/skills": NativeTask("skills", f"{robot}_skills", f"The {name} reaches one goal after the other")
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
}
"""id -> task, called with its keyword options; an unknown option is a TypeError that lists the known ones."""
