"""HSD-3: a high level that learns which features to control, and where to bring them, over frozen skills.

Gehring et al. 2021, "Hierarchical skills for efficient exploration" (arXiv 2110.10809). Every `interval` steps the
policy chooses a goal space d with probability p(d|s), and in it a goal g_d; frozen skills act at every step. Each step
is a transition of the decision that it belongs to (DynE), up to the next decision, a termination or a time limit: R the
discounted sum of its m rewards, phase the steps since the decision. With l_d the mean log-density of the entries of g_d
that count, H the entropy of p, and D goal spaces,

    V(s)           sum_d p(d|s) (min Q(s, d, g_d) - alpha_c[d] l_d) + alpha_d (H - log D)
    critics        y = R + gamma^m (1 - terminal) V'(s')                  at (s, phase, d, g) as it was decided
    both policies  -mean V(s)                                             one backward pass, a rate for each
    temperatures   -mean sum_d p(d) exp(log alpha_c[d]) (l_d + target_c),   exp(log alpha_d) (mean H - target_d)

in which V' asks the target critics. The expectation over goal spaces is exact, over all of them in one batch; or, with
`expectation_d` = k, the mean of k that are drawn, whose probabilities then learn by a score-function term with a
baseline. Policies always see phase 0. Losses are squared errors without 1/2, as published.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from gaitway.algorithms.algorithm import Batch, PositiveCoefficient
from gaitway.algorithms.engine import JointEngine
from gaitway.algorithms.replay_algorithm import Draw
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.ranges import Count, Number, Positive, Share
from gaitway.functional.direct_goal_spaces import deciding_loss
from gaitway.functional.goal_space_losses import (
    choice_entropy,
    hsd3_actor_loss,
    hsd3_target,
    hsd3_temperature_gradients,
)
from gaitway.functional.sampled_goal_spaces import sampled_actor_loss, sampled_target
from gaitway.nn.task_goal_critics import TaskGoalCritics
from gaitway.skills.goal_space_learner import GoalSpaceLearner, GoalSpaceLearnerConfig, Loss
from gaitway.skills.hsd3_policy import HSD3Policy, drawn_spaces


@configuration
class HSD3Config(GoalSpaceLearnerConfig):
    """HSD-3: goal spaces and goals for frozen skills, learnt from the environment's reward."""

    name: Literal["hsd3"] = "hsd3"
    space_learning_rate: PositiveCoefficient = 3e-4
    """Of the choice among goal spaces."""
    critic_learning_rate: PositiveCoefficient = 1e-4
    initial_temperature_c: Positive = 1.0
    """Weight of the goals' entropy, of every goal space, at first."""
    initial_temperature_d: Positive = 1.0
    """Weight of the entropy of the choice, at first."""
    target_entropy_factor_c: Number = 1.0
    """The temperatures of goals drive the entropy of an entry to minus this."""
    target_entropy_factor_d: Share = 0.5
    """The temperature of the choice drives its entropy to this share of the greatest, log D."""
    expectation_d: Literal["full"] | Count = "full"
    """Goal spaces that an update asks the critics about: all of them, or how many are drawn per transition."""


class HSD3(GoalSpaceLearner):
    """Learns both policies of the high level, their critics and temperatures."""

    config: HSD3Config
    policy: HSD3Policy

    def __init__(
        self,
        policy: HSD3Policy,
        config: HSD3Config | None = None,
        *,
        num_envs: int,
        execution: Execution | None = None,
        seed: int = 0,
    ) -> None:
        config, spaces = config or HSD3Config(), policy.num_spaces
        draws = {"goals": Draw((2 * config.batch_size, spaces, policy.goal_size))}  # now, and next
        self.sampled = 0 if config.expectation_d == "full" else config.expectation_d
        if self.sampled:
            draws["spaces"] = Draw((2 * config.batch_size, self.sampled), "uniform")
        self.temperatures = Temperatures(config.initial_temperature_c, config.initial_temperature_d, spaces)
        super().__init__(
            policy, config, self.temperatures, num_envs=num_envs, seed=seed, execution=execution, draws=draws
        )
        self.target_c = -config.target_entropy_factor_c
        self.target_d = config.target_entropy_factor_d * math.log(spaces)
        self.space_engine = self.engine(policy.spaces, config.space_learning_rate)
        self.engines = {"spaces": self.space_engine, **self.engines}
        self.deciding = JointEngine((self.space_engine, self.goal_engine), self._actor_loss, self.execution)
        self._targets = self.execution.compiled(self._target)

    # Learning

    def learn(self, index: Tensor, noise: Mapping[str, Tensor], phase: int) -> None:
        batch = self._batch_of(index)
        batch |= self._proposals(batch, noise)
        self.critic_engine.step(batch | {"target": self._targets(batch)})
        self.deciding.step(batch)
        self._move_temperatures(batch)
        self.soft_update("critic", self.critic_engine, self.config.tau)

    def _batch_of(self, index: Tensor) -> Batch:
        alpha_c, alpha_d = self.temperatures()
        return self.decided(index) | {"alpha_c": alpha_c.detach(), "alpha_d": alpha_d.detach()}

    def _proposals(self, batch: Batch, noise: Mapping[str, Tensor]) -> Batch:
        """What the policies would decide now and next, with log-probabilities: one pass of each for both. What they
        would decide next has no gradient."""
        policy = self.policy
        rows = torch.cat((batch["actor"], batch["next/actor"]))
        log_probs = policy.space_log_probs(rows)
        goals, log_density = policy.propose(rows, noise["goals"])
        found = {"log_probs": log_probs, "goals": goals, "log_density": log_density}
        if self.sampled:
            found["drawn"] = policy.one_hot(drawn_spaces(log_probs, noise["spaces"]))
        halves = {name: value.chunk(2) for name, value in found.items()}
        now = {name: value for name, (value, _) in halves.items()}
        return now | {f"next/{name}": value.detach() for name, (_, value) in halves.items()}

    @torch.no_grad()
    def _target(self, batch: Batch) -> Tensor:
        """What the critics should say of the stored decisions, [n]."""
        values = self._values(self.policy.target, batch, "next/")
        given = (batch["reward"], batch["discount"], values, batch["next/log_probs"], batch["next/log_density"])
        if self.sampled:
            return sampled_target(*given, batch["next/drawn"], batch["alpha_c"], batch["alpha_d"])
        return hsd3_target(*given, batch["alpha_c"], batch["alpha_d"])

    def _values(self, critics: TaskGoalCritics, batch: Batch, prefix: str) -> Tensor:
        """What critics say of proposed decisions: [N, n, D] of all goal spaces, or [N, n, k] of those drawn."""
        rows, goals = batch["next/critic" if prefix else "critic/new"], batch[f"{prefix}goals"]
        if not self.sampled:
            return critics.everywhere(rows, goals).float()
        drawn = batch[f"{prefix}drawn"]  # [n, k, D], one-hot
        chosen = torch.bmm(drawn, goals)
        values = critics(rows.repeat_interleave(self.sampled, 0), drawn.flatten(0, 1), chosen.flatten(0, 1))
        return values.float().view(-1, len(rows), self.sampled)

    def _actor_loss(self, batch: Batch) -> Loss:
        values = self._values(self.constant_critic, batch, "")
        log_probs, log_density = batch["log_probs"], batch["log_density"]
        alphas = batch["alpha_c"], batch["alpha_d"]
        if self.sampled:
            loss = sampled_actor_loss(values, log_probs, log_density, batch["drawn"], *alphas)
        elif torch.compiler.is_compiling():  # which fuses what autograd makes of the plain one
            loss = hsd3_actor_loss(values, log_probs, log_density, *alphas)
        else:
            loss = deciding_loss(values, log_probs, log_density, *alphas)
        if not self.space_engine.tells:
            return loss, {}
        with torch.no_grad():
            probability = log_probs.exp()
            share = probability.mean(0)
            statistics = {
                "loss/actor": loss.detach(),
                "entropy_d": choice_entropy(log_probs).mean(),
                "entropy_c": -(probability * log_density).sum(-1).mean(),
                "temperature_c": alphas[0].mean(),
                "temperature_d": alphas[1],
            }
            names = self.policy.interface.subsets
            statistics |= {f"share/{name}": part for name, part in zip(names, share.unbind(), strict=True)}
        return loss, statistics

    def _move_temperatures(self, batch: Batch) -> None:
        """A gradient step whose gradients are known without differentiating."""
        own = self.temperatures
        gradients = hsd3_temperature_gradients(
            batch["log_probs"], batch["log_density"], own.log_c, own.log_d, self.target_c, self.target_d
        )
        self.temperature_engine.parameters.write_gradient(gradients)
        self.temperature_engine.apply({})


class Temperatures(nn.Module):
    """The weights of the entropies as their logarithms: of the goals in each of D goal spaces, and of the choice."""

    def __init__(self, goals: float, choice: float, spaces: int) -> None:
        super().__init__()
        self.log_c = nn.Parameter(torch.full((spaces,), math.log(goals)))
        self.log_d = nn.Parameter(torch.tensor(math.log(choice)))

    def forward(self) -> tuple[Tensor, Tensor]:
        """alpha_c [D] and alpha_d []."""
        return self.log_c.exp(), self.log_d.exp()
