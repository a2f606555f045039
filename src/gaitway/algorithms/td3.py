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

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gaitway.agents.deterministic_actor_critic import DeterministicActorCritic
from gaitway.algorithms.algorithm import Batch
from gaitway.algorithms.engine import FlatParameters
from gaitway.algorithms.replay_algorithm import ReplayAlgorithm, ReplayConfig
from gaitway.core.execution import Execution
from gaitway.functional.soft_losses import critic_loss
from gaitway.functional.value_losses import least_target, smoothed_action
from gaitway.nn.ensemble import constant_twin

Loss = tuple[Tensor, dict[str, Tensor]]


@dataclass(frozen=True)
class TD3Config(ReplayConfig):
    """Twin delayed deep deterministic policy gradient: off-policy, for continuous actions."""

    name: Literal["td3"] = "td3"
    tau: float = 0.005
    """How far the targets follow each time the actor learns."""
    actor_learning_rate: float = 1e-3
    critic_learning_rate: float = 1e-3
    policy_delay: int = 2
    """Updates of the critics for one of the actor and the targets."""
    target_noise: float = 0.2
    """Standard deviation of the noise on target actions, in units of half the action range."""
    target_noise_limit: float = 0.5
    """That noise is cut off here."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_positive("actor_learning_rate", "critic_learning_rate", "policy_delay")
        self.check_fraction("tau", "such as 0.005")
        if self.target_noise < 0 or self.target_noise_limit < 0:
            raise ValueError("target_noise and target_noise_limit must be 0 or more")


class TD3(ReplayAlgorithm):
    """Learns from batches of a replay."""

    config: TD3Config

    def __init__(
        self,
        policy: DeterministicActorCritic,
        config: TD3Config | None = None,
        *,
        num_envs: int,
        execution: Execution | None = None,
        seed: int = 0,
    ) -> None:
        config = config or TD3Config()
        super().__init__(
            policy,
            config,
            num_envs=num_envs,
            seed=seed,
            execution=execution,
            noise_shape=(config.batch_size, *policy.spec.action.shape),
            cycle=config.policy_delay,
        )
        self.targets["critic"] = FlatParameters(policy.target_critic, target_of=policy.critic)
        self.targets["actor"] = FlatParameters(policy.target_actor, target_of=policy.actor)
        self.critic = self.engine(policy.learner(policy.critic), config.critic_learning_rate)
        self.actor = self.engine(policy.actor, config.actor_learning_rate)
        self.engines |= {"actor": self.actor, "critic": self.critic}
        self.critic.loss = self.execution.compiled(self._critic_loss)
        self.actor.loss = self.execution.compiled(self._actor_loss)
        self._constant_critic = constant_twin(policy.critic)  # the actor's gradient flows through it, not into it

    def learn(self, index: Tensor, noise: Tensor, phase: int) -> None:
        """One update on the transitions `index` [n]: critics; in the last phase of a cycle actor and targets too."""
        batch = self.transitions(index)
        batch["action"] = self.policy.range.unit(batch["action"])
        batch["target"] = self._target(batch, noise)
        self.critic.step(batch)
        if phase == self.cycle - 1:
            self.actor.step(batch)
            self.soft_update("critic", self.critic, self.config.tau)
            self.soft_update("actor", self.actor, self.config.tau)

    @torch.no_grad()
    def _target(self, batch: Batch, noise: Tensor) -> Tensor:
        """What the critics should say, [n]; `noise` [n, A] smooths the target actor's actions."""
        policy, config = self.policy, self.config
        action = policy.unit_actions(policy.target_actor, batch["next/actor"])
        action = smoothed_action(action, noise, config.target_noise, config.target_noise_limit)
        values = policy.values(policy.target_critic, batch["next/critic"], action)
        return least_target(batch["reward"], batch["discount"], values)

    def _critic_loss(self, batch: Batch) -> Loss:
        inputs = self.policy.inputs_again(batch, "critic")
        values = self.policy.values(self.policy.critic, inputs, batch["action"])
        loss = critic_loss(values, batch["target"])
        return loss, {"loss/critic": loss.detach(), "q_mean": values.detach().mean()}

    def _actor_loss(self, batch: Batch) -> Loss:
        action = self.policy.unit_actions(self.policy.actor, batch["actor"])
        loss = -self.policy.values(self._constant_critic, batch["critic"], action)[0].mean()
        return loss, {"loss/actor": loss.detach()}


@dataclass(frozen=True)
class TD3BCConfig(TD3Config):
    """TD3 that stays close to the behaviour it is shown: for learning from a dataset alone."""

    name: Literal["td3_bc"] = "td3_bc"  # type: ignore[assignment]
    actor_learning_rate: float = 3e-4
    critic_learning_rate: float = 3e-4
    value_weight: float = 2.5
    """What values weigh against imitation: 0 is behaviour cloning."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value_weight < 0:
            raise ValueError(f"value_weight is {self.value_weight}; use 0 or more, such as 2.5")


class TD3BC(TD3):
    """TD3 with an actor that also imitates the actions of the replay."""

    config: TD3BCConfig

    def _actor_loss(self, batch: Batch) -> Loss:
        action = self.policy.unit_actions(self.policy.actor, batch["actor"])
        values = self.policy.values(self._constant_critic, batch["critic"], action)[0]
        weight = self.config.value_weight / values.detach().abs().mean().clamp(min=1e-6)
        imitation = (action - batch["action"]).square().mean()
        loss = imitation - weight * values.mean()
        return loss, {"loss/actor": loss.detach(), "loss/imitation": imitation.detach()}
