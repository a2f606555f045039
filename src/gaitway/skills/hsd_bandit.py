"""HSD-Bandit and SD: goals for frozen skills are learnt, goal spaces are a bandit's choice or fixed.

Baselines of HSD-3 (Gehring et al. 2021, arXiv 2110.10809). A goal space d is played for a whole episode
(`bandit_policy`); in it the high level sets a goal g every `interval` steps. Each step is a transition of the decision
that it belongs to, as in `hsd3`. With l_d the mean log-density of the entries of g_d that count, and everything for the
goal space that was played,

    critics        y = R + gamma^m (1 - terminal) (min Q'(s', d, g'_d) - alpha[d] l'_d)
    goals          mean(alpha[d] l_d - min Q(s, d, g_d))
    temperatures   -mean(exp(log alpha[d]) (l_d + target)),    each moves with the transitions of its goal space

SD is the same with one goal space, by default all features at once; SD* with the one that suits the task best.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from gaitway.algorithms.algorithm import Batch
from gaitway.algorithms.replay_algorithm import Draw
from gaitway.algorithms.soft_algorithm import Temperature
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.ranges import Number, Positive
from gaitway.functional.goal_space_losses import mean_log_density
from gaitway.functional.soft_losses import soft_target, squashed_entries
from gaitway.skills.bandit_policy import BanditPolicy
from gaitway.skills.goal_space_learner import GoalSpaceLearner, GoalSpaceLearnerConfig, Loss


@configuration
class HSDBanditConfig(GoalSpaceLearnerConfig):
    """Goals in goal spaces that a bandit chooses, or in one that is fixed (SD)."""

    name: Literal["hsd_bandit"] = "hsd_bandit"
    initial_temperature: Positive = 1.0
    """Weight of the goals' entropy, of every goal space, at first."""
    target_entropy_factor: Number = 1.0
    """The temperatures drive the entropy of an entry of a goal to minus this."""


class HSDBandit(GoalSpaceLearner):
    """Learns goals, critics and temperatures; the policy's bandit learns as episodes end."""

    config: HSDBanditConfig
    policy: BanditPolicy

    def __init__(
        self,
        policy: BanditPolicy,
        config: HSDBanditConfig | None = None,
        *,
        num_envs: int,
        execution: Execution | None = None,
        seed: int = 0,
    ) -> None:
        config = config or HSDBanditConfig()
        draws = {"goals": Draw((2 * config.batch_size, policy.goal_size))}  # now, and next
        self.temperature = Temperature(config.initial_temperature, policy.num_spaces)
        super().__init__(
            policy,
            config,
            self.temperature,
            num_envs=num_envs,
            seed=seed,
            execution=execution,
            draws=draws,
            entrywise=True,
        )
        policy.expect(num_envs)
        self.goal_engine.loss = self.execution.compiled(self._goal_loss)

    def learn(self, index: Tensor, noise: Mapping[str, Tensor], phase: int) -> None:
        batch = self._batch_of(index)
        batch |= self._proposals(batch, noise["goals"])
        self.critic_engine.step(batch | {"target": self._target(batch)})
        self.goal_engine.step(batch)
        self._move_temperatures(batch)
        self.soft_update("critic", self.critic_engine, self.config.tau)

    def _batch_of(self, index: Tensor) -> Batch:
        batch = self.decided(index)
        # a product, not a look-up: the same sum in the same order every time
        batch["alpha"] = batch["space"] @ self.temperature.log_value.detach().exp()
        return batch

    def _proposals(self, batch: Batch, noise: Tensor) -> Batch:
        """The goals [n, G] that would be set now and next in the goal spaces that were played, and the mean log-density
        of their entries [n]; what would be set next has no gradient."""
        policy = self.policy
        spaces = batch["space"].repeat(2, 1)
        heads = policy.goal_heads(torch.cat((batch["actor"], batch["next/actor"])))
        head = (heads * spaces.unsqueeze(-1)).sum(1)
        goals, entries = squashed_entries(head, noise, policy.config.log_std_range)
        mask = spaces @ policy.interface.action_mask
        log_density = mean_log_density(entries.unsqueeze(0), mask).squeeze(0)
        (now, later), (density, next_density) = (goals * mask).chunk(2), log_density.chunk(2)
        found = {"proposed": now, "log_density": density}
        return found | {"next/proposed": later.detach(), "next/log_density": next_density.detach()}

    @torch.no_grad()
    def _target(self, batch: Batch) -> Tensor:
        """What the critics should say of the stored decisions, [n]."""
        values = self.policy.target(batch["next/critic"], batch["space"], batch["next/proposed"]).float()
        return soft_target(batch["reward"], batch["discount"], values, batch["next/log_density"], batch["alpha"])

    def _goal_loss(self, batch: Batch) -> Loss:
        alpha, log_density = batch["alpha"], batch["log_density"]
        value = self.constant_critic(batch["critic/new"], batch["space"], batch["proposed"]).float().min(0).values
        loss = (alpha * log_density - value).mean()
        if not self.goal_engine.tells:
            return loss, {}
        return loss, {
            "loss/actor": loss.detach(),
            "entropy_c": -log_density.detach().mean(),
            "temperature_c": alpha.mean(),
        }

    @torch.no_grad()
    def _move_temperatures(self, batch: Batch) -> None:
        """A gradient step whose gradient is known without differentiating."""
        surplus = batch["log_density"] - self.config.target_entropy_factor
        gradient = -self.temperature.log_value.exp() * (batch["space"] * surplus.unsqueeze(-1)).mean(0)
        self.temperature_engine.parameters.write_gradient([gradient])
        self.temperature_engine.apply({})

    def metrics(self) -> dict[str, Tensor]:
        found, bandit = super().metrics(), self.policy.bandit
        if found and bandit.arms > 1:
            names = self.policy.interface.subsets
            found["bandit/best"] = torch.tensor(float(bandit.best_action()))
            for name, pulls, worth in zip(names, bandit.counts.tolist(), bandit.worth().tolist(), strict=True):
                found[f"bandit/pulls/{name}"] = torch.tensor(float(pulls))
                found[f"bandit/worth/{name}"] = torch.tensor(worth)
        return found

    def reset_running_returns(self) -> None:
        super().reset_running_returns()
        if self.policy.returns is not None:
            self.policy.returns.zero_()
