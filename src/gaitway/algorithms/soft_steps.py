"""What soft actor-critic does differently with continuous and with discrete actions: sample, or take expectations.

Both kinds offer the same methods. Batches hold the networks' inputs, `actor` and `critic` [B, D], with `next/` in front
for the next observation, and what the replay gave, `action`, `reward` and `discount` [B]. `prepare` says what the
critics should learn, `target` [B], and what the actor would do, with `log_prob` [B], the (expected) log-probability of
that. The losses get both back, the actor's together with `alpha`, the temperature, and `entropy`, for the statistics.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gaitway.agents.soft_actor_critic import SoftActorCritic
from gaitway.algorithms.algorithm import Batch
from gaitway.functional.soft_losses import (
    actor_loss,
    actor_loss_discrete,
    critic_loss,
    soft_target,
    soft_target_discrete,
)
from gaitway.nn.ensemble import constant_twin

Loss = tuple[Tensor, dict[str, Tensor]]


class ContinuousSteps:
    """Actions are sampled by reparametrisation, critics read them."""

    def __init__(self, policy: SoftActorCritic) -> None:
        self.policy = policy
        self.constant_critic = constant_twin(policy.critic)
        """The critics as the actor sees them: their own weights need no gradient there."""

    def action(self, action: Tensor) -> Tensor:
        return self.policy.unit_action(action)

    def prepare(self, batch: Batch, noise: Tensor, alpha: Tensor) -> tuple[Tensor, Batch]:
        """`noise` [2, B, A] makes the actions now and next."""
        policy = self.policy
        with torch.no_grad():
            action, log_prob = policy.propose(batch["next/actor"], noise[1])
            values = policy.values(policy.target, batch["next/critic"], action)
            target = soft_target(batch["reward"], batch["discount"], values, log_prob, alpha)
        action, log_prob = policy.propose(policy.inputs_again(batch, "actor"), noise[0])
        return target, {"action": action, "log_prob": log_prob}

    def critic_loss(self, batch: Batch) -> Loss:
        inputs = self.policy.inputs_again(batch, "critic")
        values = self.policy.values(self.policy.critic, inputs, batch["action"])
        return _with_statistics(critic_loss(values, batch["target"]), values)

    def actor_loss(self, batch: Batch) -> Loss:
        values = self.policy.values(self.constant_critic, batch["critic"], batch["action"])
        loss = actor_loss(values, batch["log_prob"], batch["alpha"])
        return loss, actor_statistics(loss.detach(), batch)


class DiscreteSteps:
    """Critics answer for all actions, and the policy's probabilities weigh the answers; nothing is sampled."""

    def __init__(self, policy: SoftActorCritic) -> None:
        self.policy = policy

    def action(self, action: Tensor) -> Tensor:
        return self.policy.head.raw(action)

    def prepare(self, batch: Batch, noise: Tensor, alpha: Tensor) -> tuple[Tensor, Batch]:
        policy = self.policy
        with torch.no_grad():
            log_probs = policy.log_probs(batch["next/actor"])
            values = policy.values(policy.target, batch["next/critic"])
            target = soft_target_discrete(batch["reward"], batch["discount"], values, log_probs, alpha)
        log_probs = policy.log_probs(policy.inputs_again(batch, "actor"))
        return target, {"log_probs": log_probs, "log_prob": (log_probs.exp() * log_probs).sum(-1)}

    def critic_loss(self, batch: Batch) -> Loss:
        values = self.policy.values(self.policy.critic, self.policy.inputs_again(batch, "critic"))
        chosen = batch["action"].expand(len(values), -1).unsqueeze(-1)
        taken = values.gather(-1, chosen).squeeze(-1)
        return _with_statistics(critic_loss(taken, batch["target"]), taken)

    def actor_loss(self, batch: Batch) -> Loss:
        with torch.no_grad():
            values = self.policy.values(self.policy.critic, batch["critic"])
        loss = actor_loss_discrete(values, batch["log_probs"], batch["alpha"])
        return loss, actor_statistics(loss.detach(), batch)


def actor_statistics(loss: Tensor, batch: Batch) -> dict[str, Tensor]:
    return {"loss/actor": loss, "temperature": batch["alpha"], "entropy": batch["entropy"]}


def _with_statistics(loss: Tensor, values: Tensor) -> Loss:
    return loss, {"loss/critic": loss.detach(), "q_mean": values.detach().mean()}
