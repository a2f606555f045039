"""Soft actor-critic: off-policy, for continuous and discrete actions, with a learnt temperature.

Haarnoja et al. 2018, "Soft actor-critic algorithms and applications". One update draws a batch of transitions and makes
a step of the temperature, of the critics and of the actor, in this order; then the target critics follow a little. All
three see the actor and the temperature as they were before the update, the actor sees the new critics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from gaitway.agents.soft_actor_critic import SoftActorCritic
from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.direct_soft_steps import DirectSteps
from gaitway.algorithms.replay_algorithm import Draw
from gaitway.algorithms.soft_algorithm import SoftAlgorithm, SoftConfig, Temperature, continuous_target_entropy
from gaitway.algorithms.soft_steps import ContinuousSteps, DiscreteSteps
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.ranges import Share
from gaitway.data.step_replay import StepReplay
from gaitway.functional.soft_losses import temperature_gradient

Steps = ContinuousSteps | DiscreteSteps | DirectSteps
NO_NOISE = torch.zeros(0)
"""What updates with discrete actions get, which sample nothing."""


@configuration
class SACConfig(SoftConfig):
    """Soft actor-critic: off-policy, from a replay of everything seen lately."""

    name: Literal["sac"] = "sac"
    learn_temperature: bool = True
    """False keeps the temperature as it is."""
    discrete_entropy: Share = 0.5
    """With discrete actions and no `target_entropy`, the share of the greatest entropy, log A, that takes its place.
    The 0.98 of the literature keeps the policy all but uniform where few actions are good."""


class SAC(SoftAlgorithm):
    """Learns from batches of a replay."""

    config: SACConfig

    def __init__(
        self,
        policy: SoftActorCritic,
        config: SACConfig | None = None,
        *,
        num_envs: int,
        execution: Execution | None = None,
        seed: int = 0,
    ) -> None:
        config = config or SACConfig()
        # actions now and next
        draws = {} if policy.is_discrete else {"actions": Draw((2, config.batch_size, *policy.spec.action.shape))}
        self.temperature = Temperature(config.initial_temperature)
        super().__init__(
            policy, config, self.temperature, num_envs=num_envs, seed=seed, execution=execution, draws=draws
        )
        self.target_entropy = target_entropy(policy, config)
        self._set_steps()

    def update(self, replay: StepReplay, updates: int, now: Now) -> None:
        if isinstance(self.steps, DirectSteps) and not self.policy.is_plain:  # something was put over its methods since
            self._set_steps()
        super().update(replay, updates, now)

    def learn(self, index: Tensor, noise: Mapping[str, Tensor], phase: int) -> None:
        """One update on the transitions `index` [n], with the noise [2, n, A] of actions now and next."""
        batch = self.transitions(index)
        batch["action"] = self.steps.action(batch["action"])
        alpha = self.temperature.log_value.detach().exp()
        target, proposal = self._prepare(batch, noise.get("actions", NO_NOISE), alpha)
        with torch.no_grad():
            entropy = -proposal["log_prob"].mean()
            if self.config.learn_temperature:
                self._move_temperature(entropy)
        self.critic_engine.step(batch | {"target": target})
        self.actor_engine.step({"critic": batch["critic"], "alpha": alpha, "entropy": entropy} | proposal)
        self.soft_update("critic", self.critic_engine, self.config.tau)

    def _move_temperature(self, entropy: Tensor) -> None:
        """A gradient step whose gradient is known without differentiating."""
        gradient = self.temperature.log_value.grad
        assert gradient is not None
        gradient.copy_(temperature_gradient(entropy, self.target_entropy))
        self.temperature_engine.share({})
        self.temperature_engine.optimiser.step()

    def _set_steps(self) -> None:
        """How losses and gradients are computed: written out where that is possible, else by autograd."""
        policy, execution = self.policy, self.execution
        eager = execution.mode == "eager" and execution.precision == "fp32"
        direct = DirectSteps.of(policy) if eager else None
        self.steps: Steps
        if direct is not None:
            self.steps = direct
            self.critic_engine.direct, self.actor_engine.direct = direct.critic_gradient, direct.actor_gradient
        else:
            self.steps = steps = DiscreteSteps(policy) if policy.is_discrete else ContinuousSteps(policy)
            self.critic_engine.direct = self.actor_engine.direct = None
            self.critic_engine.loss = execution.compiled(steps.critic_loss)
            self.actor_engine.loss = execution.compiled(steps.actor_loss)
        self._prepare = execution.compiled(self.steps.prepare)


def target_entropy(policy: SoftActorCritic, config: SACConfig) -> float:
    """The entropy that a learnt temperature drives the policy to."""
    if policy.is_discrete and config.target_entropy is None:
        return config.discrete_entropy * math.log(policy.spec.action.choices[0])
    return continuous_target_entropy(policy, config)
