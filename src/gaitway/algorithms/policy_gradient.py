"""What A2C, REINFORCE and SVPG share: one gradient step on a whole rollout, which is then thrown away.

A leaf class writes `prepare`, which computes the constants of the update (returns, advantages), and hands over its list
of loss terms, its equations. This class runs the policy over the rollout, follows the schedules, makes the step and
keeps the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from gaitway.agents.actor_critic import ActorCritic
from gaitway.algorithms.algorithm import Batch, Coefficient, DeviceNow, LossTerm, NotNegativeCoefficient, Now
from gaitway.algorithms.engine import Engine, copied_state
from gaitway.algorithms.estimation import estimation_terms
from gaitway.algorithms.exploration_noise import noise_in_degrees
from gaitway.algorithms.learning_rates import decayed
from gaitway.algorithms.terms import Mean, Terms, policy_weight, with_further
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.plain import objects_given
from gaitway.core.ranges import Count, NotNegative, Positive, Share
from gaitway.core.workspace import Workspace
from gaitway.functional.policy_losses import explained_variance, weighted_mean
from gaitway.nn.normalise import ReturnScaler


@configuration
class PolicyGradientConfig:
    """How an algorithm that makes one gradient step per rollout plays and learns."""

    rollout_steps: Count = 8
    """Steps per environment and iteration (T)."""
    learning_rate: Positive = 1e-3
    """Initial rate."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """How the rate moves: not at all, or to zero along a line or a cosine."""
    gamma: Share = 0.99
    """Discount."""
    value_coef: NotNegative = 0.5
    entropy_coef: NotNegativeCoefficient = 0.0
    scale_reward: bool = False
    """Divide rewards by the running standard deviation of the discounted return."""
    max_grad_norm: Positive | None = 0.5
    """Limit of the gradient's norm; null for none."""
    optimiser: Literal["adam", "adamw"] = "adam"
    weight_decay: NotNegative = 0.0
    adam_eps: Positive = 1e-5
    terms: tuple[dict[str, Any] | str, ...] = ()
    """Further losses, {name: ..., coef: ..., option: value}; one with the name of a standard loss takes its place."""


class PolicyGradient:
    """Learns from one rollout at a time; a leaf class writes `prepare`."""

    config: PolicyGradientConfig
    needs_whole_episodes = False

    def __init__(
        self,
        policy: ActorCritic,
        config: PolicyGradientConfig,
        standard: Sequence[LossTerm],
        *,
        num_envs: int,
        terms: Sequence[LossTerm],
        execution: Execution | None,
    ) -> None:
        """`standard` are the losses of the algorithm, `terms` further ones or replacements by name."""
        self.policy, self.config, self.num_envs = policy, config, num_envs
        if policy.config.critics > 1:
            raise ValueError(f"agent.critics is {policy.config.critics}; several critics are for PPO's reward groups")
        self.device = next(policy.parameters()).device
        self.execution = execution or Execution(device=self.device)
        self.terms = Terms(with_further([*standard, *estimation_terms(policy)], terms), policy, self.device)
        self.reads, self.objects = self.terms.reads, objects_given(term=terms)
        self.engine = Engine(
            policy,
            self.terms.loss,
            learning_rate=config.learning_rate,
            max_grad_norm=config.max_grad_norm,
            optimiser=config.optimiser,
            eps=config.adam_eps,
            weight_decay=config.weight_decay,
            execution=self.execution,
        )
        self.reward_scale = ReturnScaler(num_envs, config.gamma).to(self.device) if config.scale_reward else None
        self._learn = self.execution.program(self._step, f"an update of {type(self).__name__}")
        self._data = Workspace()

    def prepare(self, ws: Workspace) -> Batch:
        """Constants of the update [T, B]; `weight` among them where some rows do not count. Called without gradient."""
        raise TypeError(f"{type(self).__name__} does not implement prepare")

    # Called by the runner

    def update(self, data: Workspace, now: Now) -> dict[str, Tensor]:
        """One gradient step on a rollout; returns losses and statistics as tensors."""
        config = self.config
        self.terms.begin(now)
        if config.schedule != "constant":
            self.engine.set_learning_rate(decayed(config.learning_rate, config.schedule, now.fraction))
        self._data = data
        self._learn.on(data, self.terms.constants)()
        metrics = self.engine.read()
        metrics["learning_rate"] = self.engine.learning_rate.clone()
        params = data[self.policy.out("policy/params")]
        std = self.policy.head.std(params)
        if std is not None:
            metrics["std"] = std.mean()
            metrics |= noise_in_degrees(self.policy.spec.action, std)
            metrics["std_at_bound"] = self.policy.head.at_bound(params) / std.numel()
        self.policy.update_normalisers(data)  # last, so that the policy that learns is the one that acted
        return metrics

    def flat_parameters(self) -> list[Tensor]:
        return [self.engine.parameters.value.detach()]

    def reset_running_returns(self) -> None:
        """Every environment begins a new episode: drop the returns that were under way."""
        if self.reward_scale is not None:
            self.reward_scale.running.zero_()

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"policy": copied_state(self.policy), "engine": self.engine.state_dict()}
        if self.reward_scale is not None:
            state["reward_scale"] = copied_state(self.reward_scale)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        self.engine.load_state_dict(state["engine"])
        if self.reward_scale is not None:
            self.reward_scale.load_state_dict(state["reward_scale"])
        self._learn.forget()  # it may know of an optimiser that had no state yet

    # For the leaf classes

    def reward(self, ws: Workspace) -> Tensor:
        """The reward to learn from [T, B]: the sum of the reward sources where there are some, perhaps scaled. Asked
        for once per update, because the scale takes every rollout into its statistics."""
        reward = ws["reward/total"] if "reward/total" in ws else ws["env/reward"]
        if self.reward_scale is None:
            return reward
        if self.needs_whole_episodes:
            self.reset_running_returns()
        return self.reward_scale.scale(reward, ws["env/done"], ws["env/valid"] if "env/valid" in ws else None)

    # Private

    def _step(self) -> None:
        ws, policy = self._data, self.policy
        with torch.no_grad():
            batch = policy.learner_inputs(ws) | {"raw": policy.raw_actions(ws)}
            batch |= self.terms.fields(ws) | self.prepare(ws)
        self.engine.step(batch)


class PolicyLoss:
    """Minus the log-probability of the actions, weighed by their advantages [...], which are constants here."""

    name = "policy"
    needs_noise = True
    coef: Coefficient = 1.0
    reads: tuple[str, ...] = ()

    def __init__(self, mean: Mean = weighted_mean) -> None:
        self.mean = mean

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        return -self.mean(batch["new/log_prob"] * batch["advantage"], policy_weight(batch)), {}


class BaselineLoss:
    """Squared error of the critic against the returns, with the share of their variance that it explains."""

    name = "value"
    reads: tuple[str, ...] = ()

    def __init__(self, coef: Coefficient, mean: Mean = weighted_mean) -> None:
        self.coef, self.mean = coef, mean

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        value, returns, weight = batch["new/value"], batch["return"], batch.get("weight")
        explained = explained_variance(value.detach(), returns, weight)
        return self.mean((returns - value).square(), weight), {"explained_variance": explained}
