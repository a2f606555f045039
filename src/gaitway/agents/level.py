"""One level of control as a soft actor-critic of its own: an actor, critics that start at 0, and their target.

What a level decides is [B, A] within (-1, 1). It has the methods that `soft_steps.ContinuousSteps` asks of a policy, so
that policies of several levels learn by the same steps as those of one.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from gaitway.agents.replay_policy import NetworksConfig, make_actor, make_critics
from gaitway.core.seeding import fill
from gaitway.functional.soft_losses import squashed_action, squashed_log_prob


class Level(nn.Module):
    """Networks that read `actor_inputs` and `critic_inputs` numbers and decide on `decisions` of them."""

    def __init__(
        self,
        config: NetworksConfig,
        log_std_range: tuple[float, float],
        actor_inputs: int,
        critic_inputs: int,
        decisions: int,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        self.decisions, self.log_std_range = decisions, log_std_range
        self.actor = make_actor(config, actor_inputs, 2 * decisions, generator)
        zeros = ["zero"] * config.critics
        self.critic = make_critics(config, critic_inputs + decisions, 1, generator, last_init=zeros)  # type: ignore[arg-type]
        self.target = copy.deepcopy(self.critic).requires_grad_(False)

    def decide(self, inputs: Tensor, stochastic: bool, generator: torch.Generator) -> Tensor:
        """A decision per row of `inputs` [B, D], drawn or the mean, [B, A]."""
        if not stochastic:
            return self.actor(inputs).float().chunk(2, -1)[0].tanh()
        noise = fill(torch.empty(inputs.shape[0], self.decisions, device=inputs.device), generator)
        return self.propose(inputs, noise)[0]

    def propose(self, inputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Decisions [B, A] made of standard normal `noise`, and their log-density [B]."""
        return squashed_action(self.actor(inputs).float(), noise, self.log_std_range)

    def log_prob(self, inputs: Tensor, decision: Tensor) -> Tensor:
        """The log-density [...] of decisions [..., A] at `inputs` [..., D]."""
        return squashed_log_prob(self.actor(inputs).float(), decision, self.log_std_range)

    def values(self, critics: nn.Module, inputs: Tensor, action: Tensor) -> Tensor:
        """What `critics` say of decisions [B, A], [N, B]."""
        return critics(inputs, action).float().squeeze(-1)

    def inputs_again(self, batch: dict[str, Tensor], which: str) -> Tensor:
        """Nothing in front of the networks learns, so what they read is in the batch."""
        return batch[which]
