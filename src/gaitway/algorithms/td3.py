"""TD3: DDPG with two critics, smoothed target actions and an actor that learns later; and TD3+BC, for datasets.

Fujimoto et al. 2018, "Addressing function approximation error in actor-critic methods". With a drawn transition
(s, a, R, d, s') and critics Q_1, Q_2:

    target   y = R + d min_i Q'_i(s', clip(pi'(s') + clip(noise)))
    critics  1/2 sum_i mean (Q_i(s, a) - y)^2
    every `policy_delay` updates:
    actor    - mean Q_1(s, pi(s))
    targets  follow by tau

Fujimoto and Gu 2021, "A minimalist approach to offline reinforcement learning": TD3+BC keeps the actor close to what a
dataset did, by the loss `- lambda mean Q_1(s, pi(s)) + mean (pi(s) - a)^2` with
`lambda = weight / mean |Q_1(s, pi(s))|`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from torch import Tensor

from gaitway.agents.deterministic_actor_critic import DeterministicActorCritic
from gaitway.algorithms.algorithm import Batch, PositiveCoefficient
from gaitway.algorithms.ddpg import DDPG, DDPGConfig, Loss
from gaitway.algorithms.replay_algorithm import Draw
from gaitway.core.config import configuration
from gaitway.core.ranges import Count, NotNegative
from gaitway.functional.value_losses import smoothed_action


@configuration
class TD3Config(DDPGConfig):
    """Twin delayed deep deterministic policy gradient: off-policy, for continuous actions."""

    name: Literal["td3"] = "td3"  # type: ignore[assignment]
    policy_delay: Count = 2
    """Updates of the critics for one of the actor and the targets."""
    target_noise: NotNegative = 0.2
    """Standard deviation of the noise on target actions, in units of half the action range."""
    target_noise_limit: NotNegative = 0.5
    """That noise is cut off here."""


class TD3(DDPG):
    """DDPG with target actions that are smoothed, and an actor and targets that learn once in `policy_delay` updates.

    How many critics there are is the policy's; the smallest of their values counts.
    """

    config: TD3Config
    config_class: ClassVar[type[TD3Config]] = TD3Config

    def noise_and_cycle(self, policy: DeterministicActorCritic, config: TD3Config) -> dict[str, Any]:
        draws = {"smoothing": Draw((config.batch_size, *policy.spec.action.shape))}
        return {"draws": draws, "cycle": config.policy_delay}

    def next_action(self, action: Tensor, noise: Mapping[str, Tensor]) -> Tensor:
        """Smoothed by noise [n, A]."""
        return smoothed_action(action, noise["smoothing"], self.config.target_noise, self.config.target_noise_limit)


@configuration
class TD3BCConfig(TD3Config):
    """TD3 that stays close to the behaviour it is shown: for learning from a dataset alone."""

    name: Literal["td3_bc"] = "td3_bc"  # type: ignore[assignment]
    actor_learning_rate: PositiveCoefficient = 3e-4
    critic_learning_rate: PositiveCoefficient = 3e-4
    value_weight: NotNegative = 2.5
    """What values weigh against imitation: 0 is behaviour cloning."""


class TD3BC(TD3):
    """TD3 with an actor that also imitates the actions of the replay."""

    config: TD3BCConfig
    config_class = TD3BCConfig

    def _actor_loss(self, batch: Batch) -> Loss:
        action = self.policy.unit_actions(self.policy.actor, self.policy.inputs_again(batch, "actor"))
        values = self.policy.values(self._constant_critic, batch["critic"], action)[0]
        weight = self.config.value_weight / values.detach().abs().mean().clamp(min=1e-6)
        imitation = (action - batch["action"]).square().mean()
        loss = imitation - weight * values.mean()
        return loss, {"loss/actor": loss.detach(), "loss/imitation": imitation.detach()}
