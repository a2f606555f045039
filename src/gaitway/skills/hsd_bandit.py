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

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from gaitway.algorithms.algorithm import Batch
from gaitway.algorithms.engine import Engine, FlatParameters
from gaitway.algorithms.replay_algorithm import AnnotatedRewards, Draw, ReplayAlgorithm, ReplayConfig, unset_loss
from gaitway.algorithms.soft_algorithm import Temperature
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.ranges import Number, Positive, PositiveShare
from gaitway.core.workspace import Variable
from gaitway.functional.goal_space_losses import mean_log_density
from gaitway.functional.soft_losses import soft_target, squashed_entries
from gaitway.nn.ensemble import constant_twin
from gaitway.nn.task_goal_critics import TaskGoalCritics
from gaitway.skills.bandit_policy import BanditPolicy
from gaitway.skills.deciding_policy import DECISION, learn_from_decisions

Loss = tuple[Tensor, dict[str, Tensor]]


@configuration
class HSDBanditConfig(ReplayConfig):
    """Goals in goal spaces that a bandit chooses, or in one that is fixed (SD)."""

    name: Literal["hsd_bandit"] = "hsd_bandit"
    tau: PositiveShare = 0.005
    """How far the target follows at each update."""
    goal_learning_rate: Positive = 3e-4
    critic_learning_rate: Positive = 3e-4
    temperature_learning_rate: Positive = 1e-4
    initial_temperature: Positive = 1.0
    """Weight of the goals' entropy, of every goal space, at first."""
    target_entropy_factor: Number = 1.0
    """The temperatures drive the entropy of an entry of a goal to minus this."""
    dense: bool = True
    """Learn from every step, up to the next decision (DynE); false: from decisions alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_step != 1:
            raise ValueError(f"n_step is {self.n_step}; a transition lasts up to the next decision, use agent.interval")


class HSDBandit(ReplayAlgorithm):
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
        super().__init__(policy, config, num_envs=num_envs, seed=seed, execution=execution, draws=draws)
        learn_from_decisions(self, config.dense)
        policy.expect(num_envs)
        self.temperature = Temperature(config.initial_temperature, policy.num_spaces).to(self.device)
        self.modules["temperature"] = self.temperature
        self.targets["critic"] = FlatParameters(policy.target, target_of=policy.critic)
        self.critic_engine = self.engine(policy.critic, config.critic_learning_rate)
        self.goal_engine = self.engine(policy.goals, config.goal_learning_rate)
        self.temperature_engine = Engine(
            self.temperature,
            unset_loss,
            learning_rate=config.temperature_learning_rate,
            max_grad_norm=None,
            eps=config.adam_eps,
            entrywise=True,
        )
        self.engines |= {
            "goals": self.goal_engine,
            "critic": self.critic_engine,
            "temperature": self.temperature_engine,
        }
        self.constant_critic: TaskGoalCritics = constant_twin(policy.critic)
        """The critics as the goals' policy sees them: gradients flow through them, not into them."""
        self.critic_engine.loss = self.execution.compiled(self._critic_loss)
        self.goal_engine.loss = self.execution.compiled(self._goal_loss)

    def keep(self, variables: Mapping[str, Variable], groups: Sequence[str], rewards: AnnotatedRewards) -> None:
        """What the replay keeps: of the observations those that decisions depend on, not those of the skills."""
        asked = [name for name in groups if f"env/obs/{name}" in rewards.reads]
        super().keep(variables, asked, rewards)

    def learn(self, index: Tensor, noise: Mapping[str, Tensor], phase: int) -> None:
        batch = self._batch_of(index)
        batch |= self._proposals(batch, noise["goals"])
        self.critic_engine.step(batch | {"target": self._target(batch)})
        self.goal_engine.step(batch)
        self._move_temperatures(batch)
        self.soft_update("critic", self.critic_engine, self.config.tau)

    def _batch_of(self, index: Tensor) -> Batch:
        batch, policy = self.transitions(index), self.policy
        space, batch["goal"] = policy.split(batch.pop(policy.out(DECISION)))
        batch["space"] = policy.one_hot(space)
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

    def _critic_loss(self, batch: Batch) -> Loss:
        values = self.policy.critic(batch["critic"], batch["space"], batch["goal"]).float()
        target = batch["target"]
        error = values - target
        loss = error.square().mean(-1).sum()
        unexplained = error.detach().var(-1) / target.var().clamp(min=1e-12)
        return loss, {
            "loss/critic": loss.detach(),
            "q_mean": values.detach().mean(),
            "td_error": error.detach().abs().mean(),
            "residual_variance": unexplained.mean(),
        }

    def _goal_loss(self, batch: Batch) -> Loss:
        alpha, log_density = batch["alpha"], batch["log_density"]
        value = self.constant_critic(batch["critic/new"], batch["space"], batch["proposed"]).float().min(0).values
        loss = (alpha * log_density - value).mean()
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
