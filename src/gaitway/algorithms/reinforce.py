"""REINFORCE with a baseline: the return of whole episodes weighs the log-probability of what was done in them.

Williams 1992, "Simple statistical gradient-following algorithms for connectionist reinforcement learning". With the
return `G_t = r_t + gamma r_{t+1} + ...` to the end of the episode, the baseline `b` and n steps that count:

    policy     - 1/n sum_t log pi(a_t|s_t) (G_t - b(s_t))         G and b are constants here
    value      1/n sum_t (G_t - b(s_t))^2                         G is a constant
    entropy    - 1/n sum_t H(pi(.|s_t))

    total = policy + value_coef * value + entropy_coef * entropy, minimised by one step per rollout
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from gaitway.agents.actor_critic import ActorCritic
from gaitway.algorithms.algorithm import Batch, Coefficient, DeviceNow, LossTerm, Now
from gaitway.algorithms.policy_gradient import BaselineLoss, PolicyGradient, PolicyGradientConfig
from gaitway.algorithms.terms import Entropy, policy_weight, standardised
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.ranges import Count, Positive
from gaitway.core.workspace import Workspace
from gaitway.functional.policy_losses import weighted_mean
from gaitway.functional.returns import discounted_returns


@configuration
class ReinforceConfig(PolicyGradientConfig):
    """REINFORCE: on-policy, from the returns of whole episodes, with a learnt baseline."""

    name: Literal["reinforce"] = "reinforce"
    rollout_steps: Count = 500
    """Steps per environment and iteration (T): at least those of the longest episode."""
    max_grad_norm: Positive | None = None
    """Limit of the gradient's norm; null for none."""
    baseline: bool = True
    """Subtract what the critic expected from the returns, and let it learn to expect them."""
    normalise_advantage: bool = True
    """Bring the advantages of a rollout to mean 0 and deviation 1."""


class Reinforce(PolicyGradient):
    """Learns from the whole episodes of a rollout; what follows the last end of an environment does not count."""

    config: ReinforceConfig
    needs_whole_episodes = True

    def __init__(
        self,
        policy: ActorCritic,
        config: ReinforceConfig | None = None,
        *,
        num_envs: int,
        terms: Sequence[LossTerm] = (),
        seed: int = 0,
        execution: Execution | None = None,
    ) -> None:
        config = config or ReinforceConfig()
        longest = policy.spec.max_episode_steps
        if config.rollout_steps < longest:
            raise ValueError(
                f"algorithm.rollout_steps is {config.rollout_steps}, but episodes of {policy.spec.id} take up to "
                f"{longest} steps and only whole ones are learnt from; use algorithm.rollout_steps={longest}"
            )
        baseline = [BaselineLoss(config.value_coef)] if config.baseline else []
        standard: list[LossTerm] = [*baseline, EpisodeLoss(config), Entropy(config.entropy_coef)]
        super().__init__(policy, config, standard, num_envs=num_envs, terms=terms, execution=execution)

    def update(self, data: Workspace, now: Now) -> dict[str, Tensor]:
        if not bool(data["env/done"].any()):
            raise ValueError(
                f"no episode ended within the {data.T} steps of the rollout, so there is no return to learn from; "
                "raise algorithm.rollout_steps or give the environment a time limit"
            )
        return super().update(data, now)

    def prepare(self, ws: Workspace) -> Batch:
        done = ws["env/done"]
        whole = in_whole_episodes(done)
        if "env/valid" in ws:
            whole = whole & ws["env/valid"]
        batch = {"return": discounted_returns(self.reward(ws), done, self.config.gamma), "weight": whole.float()}
        if "weight/policy" in ws:
            batch["weight/policy"] = ws["weight/policy"].float() * batch["weight"]
        return batch


class EpisodeLoss:
    """Minus the log-probability of the actions, weighed by the returns, minus what the critic expects of them now."""

    name = "policy"
    coef: Coefficient = 1.0
    reads: tuple[str, ...] = ()

    def __init__(self, config: ReinforceConfig) -> None:
        self.config = config

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        advantage, weight = batch["return"], policy_weight(batch)
        if self.config.baseline:
            advantage = advantage - batch["new/value"].detach()
        if self.config.normalise_advantage:
            advantage = standardised(advantage, weight)
        return -weighted_mean(batch["new/log_prob"] * advantage, weight), {"counted": batch["weight"].mean()}


def in_whole_episodes(done: Tensor) -> Tensor:
    """Rows that have an end at or after them in their column, bool [T, B]; every column begins with an episode."""
    return done.flip(0).cumsum(0).flip(0) > 0
