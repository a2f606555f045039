"""Names, sizes and units of what the skill environment shows."""

from __future__ import annotations

import numpy as np

from gaitway.envs.tasks.bisk.features import Features
from gaitway.envs.tasks.skills.goals import TaskSet
from gaitway.envs.tasks.skills.options import SkillConfig
from gaitway.envs.vec_env import Component, ObservationGroup


def goal_width(config: SkillConfig, tasks: TaskSet, weights: np.ndarray) -> int:
    """Size of `desired_goal`: one place per feature of the task map, or as many as the largest task controls."""
    if config.backproject_goal:
        return len(tasks.members)
    return int(tasks.bits(np.flatnonzero(weights)).sum(axis=1).max())


def observation_groups(
    config: SkillConfig, tasks: TaskSet, joints: Features, features: Features, width: int
) -> tuple[ObservationGroup, ...]:
    """`observation`, `desired_goal`, `task` and `gs_observation`; normalised numbers have no unit."""
    controlled = tuple(features.components[index] for index in tasks.members)
    normalised = tuple(Component(f"goal_{place}") for place in range(width))
    components = {
        "observation": _shown(joints),
        "desired_goal": controlled if config.backproject_goal else normalised,
        "task": _without_units(controlled),
        "gs_observation": features.components,
    }
    if config.normalize_gs_observation:
        components["gs_observation"] = _without_units(features.components)
    return tuple(
        ObservationGroup(name, parts, (sum(part.size for part in parts),)) for name, parts in components.items()
    )


def _shown(joints: Features) -> tuple[Component, ...]:
    """The components of the joint features that do not tell where in the world the robot is."""
    shown, start = [], 0
    for component in joints.components:
        if start not in joints.view.robot.horizontal_indices:  # such components have size 1
            shown.append(component)
        start += component.size
    return tuple(shown)


def _without_units(components: tuple[Component, ...]) -> tuple[Component, ...]:
    return tuple(Component(component.name, component.size) for component in components)
