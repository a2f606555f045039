"""The policy of SAC-HRL: a high level that decides on points of a continuous scale of frozen skills (DIAYN-C).

A decision is a point z [n] within (-1, 1), made every `interval` steps and kept in between; the frozen policy of the
skill file reads its own view of the robot, by name, and z, and acts by its mean.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from gaitway.agents.level import Level
from gaitway.agents.soft_actor_critic import LogStd
from gaitway.core.config import configuration
from gaitway.core.files import StateFileError
from gaitway.core.ranges import INCREASING
from gaitway.core.seeding import fill
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation
from gaitway.skills.continuous_skills import ContinuousSkills
from gaitway.skills.deciding_policy import DecidingConfig, DecidingPolicy, frozen_skills
from gaitway.skills.frozen_policy import SkillFileError
from gaitway.skills.low_level import LowLevel
from gaitway.skills.places import GOAL_SKILLS, skill_kind


@configuration
class SACHRLPolicyConfig(DecidingConfig):
    """Networks that decide on a skill, and the file of continuous skills."""

    log_std_range: Annotated[tuple[LogStd, LogStd], INCREASING] = (-5.0, 2.0)
    """Bounds of the logarithm of the decisions' standard deviation, before squashing."""


class SACHRLPolicy(DecidingPolicy):
    """`level` decides on a skill, `low` acts."""

    config: SACHRLPolicyConfig
    low: LowLevel[ContinuousSkills]

    def __init__(
        self,
        spec: EnvSpec,
        config: SACHRLPolicyConfig | None = None,
        generator: torch.Generator | None = None,
        *,
        skills: ContinuousSkills | None = None,
    ) -> None:
        config = config or SACHRLPolicyConfig()
        skills = skills or continuous_skills(config)
        size = len(skills.inputs["skill"])
        low = LowLevel(skills, skills.robot, spec)
        super().__init__(spec, config, low, (("skill", size),), size, (), generator)
        reads = (self.input_size("actor"), self.input_size("critic"))
        self.level = Level(config, config.log_std_range, *reads, size, generator)

    @property
    def is_plain(self) -> bool:
        return False

    def decide(self, inputs: Tensor, kept: Tensor, stochastic: bool, generator: torch.Generator | None) -> Tensor:
        return self.level.decide(inputs, stochastic, generator or self.generator(inputs.device))

    def decide_uniformly(self, kept: Tensor, generator: torch.Generator) -> Tensor:
        """Standard normal points: skills have no limits of their own, as in the original."""
        return fill(torch.empty(kept.shape[0], self.decision_size, device=kept.device), generator)

    def pursue(self, obs: Observation, decision: Tensor, is_new: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        return self.low.act(obs, {"skill": decision}), kept

    def state_lines(self, state: Tensor) -> list[str]:
        """The skill in force; `state` [S] is that after a step."""
        return ["skill " + " ".join(f"{value:+.2f}" for value in state[1:].tolist())]


def continuous_skills(config: SACHRLPolicyConfig) -> ContinuousSkills:
    """The skills that a configuration names; a file of skills that pursue goals is refused."""
    try:
        found: ContinuousSkills = frozen_skills(ContinuousSkills, config)
    except (SkillFileError, StateFileError) as error:
        if skill_kind(str(config.skills)) != GOAL_SKILLS:
            raise
        raise SkillFileError(
            f"{config.skills} holds skills that pursue goals, and sac_hrl chooses points of a continuous scale of "
            "skills; use algorithm=hsd3, or name a run of experiment=walker_diaync_pretrain in agent.skills"
        ) from error
    return found
