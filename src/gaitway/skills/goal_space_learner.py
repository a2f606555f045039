"""What HSD-3 and HSD-Bandit share: goals in goal spaces, their critics and temperatures, learnt from decisions.

A leaf says how goal spaces enter the learning target and what else is learnt; transitions, the critics' loss, engines
and targets are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from gaitway.algorithms.algorithm import Batch, PositiveCoefficient
from gaitway.algorithms.engine import Engine, FlatParameters
from gaitway.algorithms.replay_algorithm import Draw, ReplayAlgorithm, ReplayConfig, unset_loss
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.ranges import Positive, PositiveShare
from gaitway.nn.ensemble import constant_twin
from gaitway.nn.task_goal_critics import TaskGoalCritics
from gaitway.skills.deciding_policy import DECISION, learn_from_decisions

Loss = tuple[Tensor, dict[str, Tensor]]


@configuration
class GoalSpaceLearnerConfig(ReplayConfig):
    """Goals for frozen skills, learnt from the environment's reward."""

    one_step_because = "a transition lasts up to the next decision, which agent.interval sets"
    tau: PositiveShare = 0.005
    """How far the target follows at each update."""
    goal_learning_rate: PositiveCoefficient = 3e-4
    critic_learning_rate: PositiveCoefficient = 3e-4
    temperature_learning_rate: Positive = 1e-4
    dense: bool = True
    """Learn from every step, up to the next decision (DynE); false: from decisions alone."""


class GoalSpaceLearner(ReplayAlgorithm):
    """Engines of goals, critics and temperature, and the critics' target; a leaf class writes `learn`."""

    config: GoalSpaceLearnerConfig
    tells_always = False  # statistics are an eighth of an update's operations

    def __init__(
        self,
        policy: Any,
        config: GoalSpaceLearnerConfig,
        temperature: nn.Module,
        *,
        num_envs: int,
        seed: int,
        execution: Execution | None,
        draws: Mapping[str, Draw],
        entrywise: bool = False,
    ) -> None:
        super().__init__(policy, config, num_envs=num_envs, seed=seed, execution=execution, draws=draws)
        learn_from_decisions(self, config.dense)
        self.modules["temperature"] = temperature.to(self.device)
        self.targets["critic"] = FlatParameters(policy.target, target_of=policy.critic)
        self.critic_engine = self.engine(policy.critic, config.critic_learning_rate)
        self.goal_engine = self.engine(policy.goals, config.goal_learning_rate)
        self.temperature_engine = Engine(
            temperature,
            unset_loss,
            learning_rate=config.temperature_learning_rate,
            max_grad_norm=None,
            eps=config.adam_eps,
            entrywise=entrywise,
        )
        self.engines |= {
            "goals": self.goal_engine,
            "critic": self.critic_engine,
            "temperature": self.temperature_engine,
        }
        self.constant_critic: TaskGoalCritics = constant_twin(policy.critic)
        """The critics as the policies see them: gradients flow through them, not into them."""
        self.critic_engine.loss = self.execution.compiled(self._critic_loss)

    def decided(self, index: Tensor) -> Batch:
        """The drawn transitions with what was decided: `space` [n, D], one-hot, and `goal` [n, G]."""
        batch, policy = self.transitions(index), self.policy
        space, batch["goal"] = policy.split(batch.pop(policy.out(DECISION)))
        batch["space"] = policy.one_hot(space)
        return batch

    def _critic_loss(self, batch: Batch) -> Loss:
        values = self.policy.critic(batch["critic"], batch["space"], batch["goal"]).float()
        target = batch["target"]
        error = values - target
        loss = error.square().mean(-1).sum()
        if not self.critic_engine.tells:
            return loss, {}
        unexplained = error.detach().var(-1) / target.var().clamp(min=1e-12)
        return loss, {
            "loss/critic": loss.detach(),
            "q_mean": values.detach().mean(),
            "td_error": error.detach().abs().mean(),
            "residual_variance": unexplained.mean(),
        }
