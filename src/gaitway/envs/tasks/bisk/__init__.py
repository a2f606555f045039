"""The bipedal-skills benchmark: its tasks by name. Nothing here imports MuJoCo before a task is made."""

from __future__ import annotations

from typing import Literal, NamedTuple

from gaitway.envs.robots.registry import ROBOTS


class BenchmarkTask(NamedTuple):
    """Where a task is made, what the robot does there, and what its names in other libraries are made of."""

    module: str
    builder: str
    description: str
    shaped: Literal["no", "option", "always"] = "option"
    """Whether the task has the option `shaped`, or is always so; asking the class would load MuJoCo."""
    max_episode_steps: int = 1000
    robots: tuple[str, ...] = tuple(ROBOTS)


BENCHMARK_TASKS = {
    "hurdles": BenchmarkTask("hurdles", "HurdlesTask", "jumps over hurdles"),
    "limbo": BenchmarkTask("limbo", "LimboTask", "ducks under bars"),
    "hurdleslimbo": BenchmarkTask("limbo", "HurdlesLimboTask", "jumps over hurdles and ducks under bars in turn"),
    "gaps": BenchmarkTask("gaps", "GapsTask", "jumps over gaps from platform to platform"),
    "stairs": BenchmarkTask("stairs", "StairsTask", "climbs ten stairs and walks down ten others"),
    "goalwall": BenchmarkTask("goal_wall", "GoalWallTask", "kicks a ball at goals on a wall", max_episode_steps=250),
    "polebalance": BenchmarkTask("pole_balance", "PoleBalanceTask", "balances a pole", shaped="no"),
    "stairscont": BenchmarkTask("stairs", "StairsContTask", "climbs ten stairs and walks down ten others, five times"),
    "gototargets": BenchmarkTask("targets", "GoToTargetsTask", "goes to one target after the other"),
    "gotosphere": BenchmarkTask("targets", "GoToSphereTask", "goes to a target 4 m away"),
    "velocitycontrol": BenchmarkTask("velocity", "VelocityControlTask", "moves at a velocity that changes"),
    "rundir": BenchmarkTask("velocity", "RunDirTask", "runs the way it is turned", shaped="always"),
    "butterflies": BenchmarkTask(
        "butterflies", "ButterfliesTask", "catches butterflies with a net", shaped="no", robots=("cube",)
    ),
}
"""The one list of the benchmark's tasks; from `stairscont` on, those of its second edition."""
BENCHMARK_ENDINGS = {"": "", "-fixed": "; errors of the benchmark are put right"}
"""How ids of the published and of the corrected variant end, and what their descriptions say of it."""
