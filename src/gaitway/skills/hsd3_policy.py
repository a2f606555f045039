"""The networks of HSD-3: a choice among goal spaces, a goal in each, and critics of both, over frozen skills."""

from __future__ import annotations

import torch
from torch import Tensor

from gaitway.core.config import configuration
from gaitway.core.seeding import fill
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation
from gaitway.skills.goal_space_policy import GoalSpaceConfig, GoalSpacePolicy
from gaitway.skills.skill_file import Skills


@configuration
class HSD3PolicyConfig(GoalSpaceConfig):
    """Networks of the three levels of HSD-3 (Gehring et al. 2021): goal space, goal, frozen skills."""


class HSD3Policy(GoalSpacePolicy):
    """`spaces` chooses one of D goal spaces, `goals` a goal in it, `low` acts."""

    config: HSD3PolicyConfig

    def __init__(
        self,
        spec: EnvSpec,
        config: HSD3PolicyConfig | None = None,
        generator: torch.Generator | None = None,
        *,
        skills: Skills | None = None,
    ) -> None:
        super().__init__(spec, config or HSD3PolicyConfig(), generator, skills=skills)
        self.spaces = self.make_actor(self.num_spaces, generator)

    def space_log_probs(self, inputs: Tensor) -> Tensor:
        """Logarithms of the probabilities of all goal spaces, float32 [B, D]."""
        return self.spaces(inputs).float().log_softmax(-1)

    def choose_space(self, inputs: Tensor, kept: Tensor, stochastic: bool, generator: torch.Generator | None) -> Tensor:
        log_probs = self.space_log_probs(inputs)
        if not stochastic:
            return log_probs.argmax(-1)
        drawn = fill(
            torch.empty(len(inputs), 1, device=inputs.device), generator or self.generator(inputs.device), "uniform_"
        )
        return drawn_spaces(log_probs, drawn).squeeze(-1)

    def choice_margin(self, obs: Observation, state: Tensor | None) -> Tensor:
        """By how much the log-probability of the best goal space is ahead of the second, [B]; infinite where no
        decision is due."""
        best = self.space_log_probs(self.inputs_at(self.normalised(obs), "actor")).topk(min(2, self.num_spaces)).values
        margin = best[:, 0] - best[:, -1] if self.num_spaces > 1 else torch.full_like(best[:, 0], torch.inf)
        return margin if state is None else torch.where(state[:, 0] < 0.5, margin, torch.inf)


def drawn_spaces(log_probs: Tensor, uniform: Tensor) -> Tensor:
    """Goal spaces, int64 [B, k], drawn with log-probabilities [B, D] by numbers [B, k] uniform in [0, 1)."""
    below = log_probs.detach().exp().cumsum(-1).unsqueeze(-2) <= uniform.unsqueeze(-1)
    return below.sum(-1).clamp(max=log_probs.shape[-1] - 1)  # sums of floats may stay below 1
