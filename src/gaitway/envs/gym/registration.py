"""The bipedal-skills benchmark under gymnasium ids, for users of other libraries.

| id | native environment |
|---|---|
| `gaitway/BiskHurdlesWalker-v1` | `walker/hurdles`, comparable with published results |
| `gaitway/BiskHurdlesWalker-v2` | `walker/hurdles-fixed` |
| `gaitway/BiskHurdlesShapedWalker-v1` | `walker/hurdles` with `shaped=True` |
| `gaitway/BiskHurdlesCWalker-v1` | `walker/hurdles` with `allow_falls=True`; `ShapedC` is both |

`import gaitway` registers them. Nothing that simulates is loaded before an environment is made.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from gaitway.envs.tasks.bisk import BENCHMARK_ENDINGS, BENCHMARK_TASKS, BenchmarkTask

NAMESPACE = "gaitway"
CLASSES = "gaitway.envs.gym.export"
ROBOT_NAMES = {"humanoidpc": "HumanoidPC", "halfcheetah": "HalfCheetah"}
"""Robots whose names have more than one capital letter."""
VERSIONS = {"": "v1", "-fixed": "v2"}


def register_gymnasium_ids() -> None:
    """Make the ids known to gymnasium; those that are known already stay as they are."""
    for spec in gymnasium_specs():
        # gymnasium.register compares each id with all others, which takes ten times as long for some hundreds
        gymnasium.registry.setdefault(spec.id, spec)
    # where there is a v2, gymnasium calls v1 out of date; here both are there to stay
    warnings.filterwarnings("ignore", rf".*{NAMESPACE}/Bisk\w+-v1 is out of date", DeprecationWarning)


def gymnasium_specs() -> Iterator[EnvSpec]:
    """Every robot in every task, as published (v1) and corrected (v2), in all variants."""
    for name, task in BENCHMARK_TASKS.items():
        for robot in task.robots:
            for ending in BENCHMARK_ENDINGS:
                for variant, options in _variants(task):
                    robot_name = ROBOT_NAMES.get(robot, robot.capitalize())
                    id = f"Bisk{task.builder.removesuffix('Task')}{variant}{robot_name}-{VERSIONS[ending]}"
                    yield EnvSpec(
                        id=f"{NAMESPACE}/{id}",
                        entry_point=f"{CLASSES}:BiskEnv",
                        vector_entry_point=f"{CLASSES}:BiskVectorEnv",
                        max_episode_steps=task.max_episode_steps,
                        kwargs={"task": f"{robot}/{name}{ending}", **options},
                    )


def _variants(task: BenchmarkTask) -> Iterator[tuple[str, dict[str, Any]]]:
    """What stands between task and robot in an id, and the options it means."""
    forms: dict[str, dict[str, Any]] = {"": {}, "Shaped": {"shaped": True}} if task.shaped == "option" else {"": {}}
    if task.shaped == "always":
        forms = {"Shaped": {}}
    for form, options in forms.items():
        yield form, options
        yield f"{form}C", {**options, "allow_falls": True}
