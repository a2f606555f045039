"""Advantage actor-critic: a few steps of many environments, then one gradient step of actor and critic.

The synchronous form of Mnih et al. 2016, "Asynchronous methods for deep reinforcement learning". With the advantages A
of `functional.returns.gae` (`lam` 1: n-step returns minus values), V the critic and R = A + V what it should say:

    policy     - mean log pi(a_t|s_t) A_t             A is a constant here
    value      mean (R_t - V(s_t))^2                  R is a constant
    entropy    - mean H(pi(.|s_t))

    total = policy + value_coef * value + entropy_coef * entropy, minimised by one step per rollout

Time limits bootstrap from the final observation (Pardo et al. 2018, "Time limits in reinforcement learning").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gaitway.agents.actor_critic import ActorCritic
from gaitway.algorithms.algorithm import Batch, LossTerm
from gaitway.algorithms.policy_gradient import (
    BaselineLoss,
    PolicyGradient,
    PolicyGradientConfig,
    PolicyLoss,
)
from gaitway.algorithms.terms import Entropy, policy_weight, row_weights, standardised
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.ranges import Share
from gaitway.core.transitions import final_observations
from gaitway.core.workspace import Workspace
from gaitway.functional.returns import gae


@configuration
class A2CConfig(PolicyGradientConfig):
    """Advantage actor-critic: on-policy, one gradient step after every few steps."""

    name: Literal["a2c"] = "a2c"
    lam: Share = 1.0
    """Trace decay of the advantage estimate; 1: n-step returns, 0: one step."""
    normalise_advantage: bool = False
    """Bring the advantages of a rollout to mean 0 and deviation 1."""


class A2C(PolicyGradient):
    """Learns from all steps of a rollout; policies with memory learn from the sequences as they were lived."""

    config: A2CConfig

    def __init__(
        self,
        policy: ActorCritic,
        config: A2CConfig | None = None,
        *,
        num_envs: int,
        terms: Sequence[LossTerm] = (),
        seed: int = 0,
        execution: Execution | None = None,
    ) -> None:
        config = config or A2CConfig()
        standard: list[LossTerm] = [PolicyLoss(), BaselineLoss(config.value_coef), Entropy(config.entropy_coef)]
        super().__init__(policy, config, standard, num_envs=num_envs, terms=terms, execution=execution)
        self.reads = (*self.reads, *final_observations(policy.critic_groups))

    def prepare(self, ws: Workspace) -> Batch:
        config = self.config
        value, next_value = self.policy.values(ws)
        advantage = gae(
            reward=self.reward(ws),
            value=value,
            next_value=next_value,
            terminated=ws["env/terminated"],
            done=ws["env/done"],
            gamma=config.gamma,
            lam=config.lam,
        )
        batch = {"advantage": advantage, "return": advantage + value, "value": value}
        if config.normalise_advantage:
            batch["advantage"] = standardised(advantage, policy_weight(row_weights(ws)))
        return batch
