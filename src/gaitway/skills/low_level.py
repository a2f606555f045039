"""The low level of a hierarchy: a frozen skill policy that finds its inputs by name in what an environment shows.

It is no module: a policy that stands above it learns and stores nothing of it. The run folder holds a copy of the skill
file, and checkpoints its fingerprint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import torch
from torch import Tensor

from gaitway.core.config import did_you_mean
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation
from gaitway.skills.frozen_policy import FrozenPolicy, SkillFileError, component_names, robot_of

Frozen = TypeVar("Frozen", bound=FrozenPolicy)


class LowLevel(Generic[Frozen]):
    """`skills` in an environment whose group `group` shows their input `observation`, among other things."""

    def __init__(self, skills: Frozen, robot: str, spec: EnvSpec, group: str = "policy") -> None:
        self.skills, self.robot, self.group = skills, robot, group
        there = robot_of(spec)
        if there is not None and there != robot:
            raise SkillFileError(f"these are skills of {robot} and the robot of {spec.id} is {there}; use its skills")
        shown = shown_names(spec, group)
        skills.check_components(shown, spec.action.names)
        self.columns = torch.tensor([shown.index(name) for name in skills.inputs["observation"]])
        """Where the components of the skills' `observation` lie in the group, in their order."""

    def act(self, obs: Observation, given: Mapping[str, Tensor]) -> Tensor:
        """The action [B, A] without noise, for what the environment shows and what else is `given` of the inputs."""
        observation = obs[self.group].index_select(-1, self.columns)
        return self.skills.mean_action(self.robot, {"observation": observation, **given})

    def to(self, device: torch.device | str) -> None:
        self.columns = self.columns.to(device)
        self.skills.to(device)


def shown_names(spec: EnvSpec, group: str) -> tuple[str, ...]:
    """One name per number of an observation group; a sentence where there is no such group of numbers."""
    if group not in spec.group_names or not spec.group(group).is_vector:
        raise SkillFileError(
            f"{spec.id} has no vector group {group!r}{did_you_mean(group, spec.group_names)} for the skills to read; "
            f"it has {', '.join(spec.group_names)}"
        )
    return component_names(spec, group)
