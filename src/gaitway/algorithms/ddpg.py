"""Deep deterministic policy gradient: a critic learns what the actor's actions are worth, the actor climbs it.

Lillicrap et al. 2016, "Continuous control with deep reinforcement learning". With a drawn transition (s, a, R, d, s'):

    target   y = R + d Q'(s', pi'(s'))
    critic   1/2 mean (Q(s, a) - y)^2
    actor    - mean Q(s, pi(s))
    targets  Q' <- Q' + tau (Q - Q'),  pi' <- pi' + tau (pi - pi')
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from gaitway.agents.deterministic_actor_critic import DeterministicActorCritic
from gaitway.algorithms.algorithm import Batch, PositiveCoefficient
from gaitway.algorithms.engine import FlatParameters
from gaitway.algorithms.replay_algorithm import ReplayAlgorithm, ReplayConfig
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.ranges import PositiveShare
from gaitway.functional.soft_losses import critic_loss
from gaitway.functional.value_losses import least_target
from gaitway.nn.ensemble import constant_twin

Loss = tuple[Tensor, dict[str, Tensor]]


@configuration
class DDPGConfig(ReplayConfig):
    """Deep deterministic policy gradient: off-policy, for continuous actions."""

    name: Literal["ddpg"] = "ddpg"
    tau: PositiveShare = 0.005
    """How far the targets follow each time the actor learns."""
    actor_learning_rate: PositiveCoefficient = 1e-3
    critic_learning_rate: PositiveCoefficient = 1e-3


class DDPG(ReplayAlgorithm):
    """Learns from batches of a replay."""

    config: DDPGConfig
    config_class: ClassVar[type[DDPGConfig]] = DDPGConfig

    def __init__(
        self,
        policy: DeterministicActorCritic,
        config: DDPGConfig | None = None,
        *,
        num_envs: int,
        execution: Execution | None = None,
        seed: int = 0,
    ) -> None:
        config = config or self.config_class()
        extra = self.noise_and_cycle(policy, config)
        super().__init__(policy, config, num_envs=num_envs, seed=seed, execution=execution, **extra)
        self.targets["critic"] = FlatParameters(policy.target_critic, target_of=policy.critic)
        self.targets["actor"] = FlatParameters(policy.target_actor, target_of=policy.actor)
        self.critic = self.engine(policy.learner(policy.critic, "critic"), config.critic_learning_rate)
        self.actor = self.engine(policy.learner(policy.actor, "actor"), config.actor_learning_rate)
        self.engines |= {"actor": self.actor, "critic": self.critic}
        self.critic.loss = self.execution.compiled(self._critic_loss)
        self.actor.loss = self.execution.compiled(self._actor_loss)
        self._constant_critic = constant_twin(policy.critic)  # the actor's gradient flows through it, not into it

    def noise_and_cycle(self, policy: DeterministicActorCritic, config: Any) -> dict[str, Any]:
        """`draws` and `cycle` of a `ReplayAlgorithm`: no noise here, and each update is like the one before."""
        return {}

    def learn(self, index: Tensor, noise: Mapping[str, Tensor], phase: int) -> None:
        """One update on the transitions `index` [n]: critic; in the last phase of a cycle actor and targets too."""
        batch = self.transitions(index)
        batch["action"] = self.policy.range.unit(batch["action"])
        batch["target"] = self._target(batch, noise)
        self.critic.step(batch)
        if phase == self.cycle - 1:
            self.actor.step(batch)
            self.soft_update("critic", self.critic, self.config.tau)
            self.soft_update("actor", self.actor, self.config.tau)

    @torch.no_grad()
    def _target(self, batch: Batch, noise: Mapping[str, Tensor]) -> Tensor:
        """What the critic should say, [n]."""
        policy = self.policy
        action = self.next_action(policy.unit_actions(policy.target_actor, batch["next/actor"]), noise)
        values = policy.values(policy.target_critic, batch["next/critic"], action)
        return least_target(batch["reward"], batch["discount"], values)

    def next_action(self, action: Tensor, noise: Mapping[str, Tensor]) -> Tensor:
        """Which actions [n, A] the target is for, where the target actor would take `action`."""
        return action

    def _critic_loss(self, batch: Batch) -> Loss:
        inputs = self.policy.inputs_again(batch, "critic")
        values = self.policy.values(self.policy.critic, inputs, batch["action"])
        loss = critic_loss(values, batch["target"])
        return loss, {"loss/critic": loss.detach(), "q_mean": values.detach().mean()}

    def _actor_loss(self, batch: Batch) -> Loss:
        action = self.policy.unit_actions(self.policy.actor, self.policy.inputs_again(batch, "actor"))
        loss = -self.policy.values(self._constant_critic, batch["critic"], action)[0].mean()
        return loss, {"loss/actor": loss.detach()}
