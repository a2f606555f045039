"""Names, sizes and units of what the skill environment shows."""

from __future__ import annotations

import numpy as np

from gaitway.envs.spec import Component, ObservationGroup
from gaitway.envs.tasks.skills.goals import TaskSet
from gaitway.envs.tasks.skills.options import SkillConfig

FEATURE_GROUPS = ("desired_goal", "gs_observation")
"""Groups in which goal features are, feet among them."""


def goal_width(config: SkillConfig, tasks: TaskSet, weights: np.ndarray) -> int:
    """Size of `desired_goal`: one place per feature of the task map, or as many as the largest task controls."""
    if config.backproject_goal:
        return len(tasks.members)
    return int(tasks.bits(np.flatnonzero(weights)).sum(axis=1).max())


def observation_groups(
    config: SkillConfig,
    tasks: TaskSet,
    observation: tuple[Component, ...],
    features: tuple[Component, ...],
    width: int,
    heading: str = "",
) -> tuple[ObservationGroup, ...]:
    """`observation`, `desired_goal`, `task` and `gs_observation`; normalised numbers have no unit."""
    controlled = tuple(features[index] for index in tasks.members)
    normalised = tuple(Component(f"goal_{place}") for place in range(width))
    components = {
        "observation": observation,
        "desired_goal": controlled if config.backproject_goal else normalised,
        "task": _without_units(controlled),
        "gs_observation": features,
    }
    if config.normalize_gs_observation:
        components["gs_observation"] = _without_units(features)
    return tuple(
        ObservationGroup(
            name, parts, (sum(part.size for part in parts),), heading=heading if name in FEATURE_GROUPS else ""
        )
        for name, parts in components.items()
    )


def _without_units(components: tuple[Component, ...]) -> tuple[Component, ...]:
    return tuple(Component(component.name, component.size) for component in components)
