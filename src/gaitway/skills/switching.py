"""The switching ensemble: several soft actor-critics learn one task from one replay and take turns in exploring.

A baseline of HSD-3 (Gehring et al. 2021, section on experiments): does it help to explore with behaviour that stays for
a few steps, without any skill? Every `agent.interval` steps another of M members takes over, drawn at random; in
evaluations member 0 plays. An update draws `batch_size` transitions, and each member learns from its own M-th of them,
whoever acted when they were made. For each member m, with critics, target critics and a temperature of its own,

    critics       y = r + gamma (1 - terminal) (min Q'_m(s', a') - alpha_m log pi_m(a'|s'))       a' ~ pi_m(s')
    actor         mean(alpha_m log pi_m(a|s) - min Q_m(s, a))
    temperature   -exp(log alpha_m) (mean log pi_m(a|s) + target entropy)

Losses are squared errors without 1/2, and the temperature's loss is in alpha itself, as in `algorithm=multitask_sac`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from gaitway.agents.switching_policy import MEMORY, SwitchingPolicy
from gaitway.algorithms.algorithm import Batch
from gaitway.algorithms.engine import JointEngine
from gaitway.algorithms.replay_algorithm import Draw
from gaitway.algorithms.soft_algorithm import SoftAlgorithm, SoftConfig, Temperature
from gaitway.algorithms.soft_steps import ContinuousSteps
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.ranges import Count, Positive

Loss = tuple[Tensor, dict[str, Tensor]]


@configuration
class SwitchingConfig(SoftConfig):
    """A switching ensemble of soft actor-critics."""

    one_step_because = "every member learns from steps that any of them made"
    name: Literal["switching"] = "switching"
    batch_size: Count = 1280
    """Transitions of an update; every member learns from an equal share of them."""
    temperature_learning_rate: Positive = 1e-4
    initial_temperature: Positive = 0.1


class SwitchingEnsemble(SoftAlgorithm):
    """Every member learns by itself, all of them in one pass."""

    config: SwitchingConfig
    policy: SwitchingPolicy

    def __init__(
        self,
        policy: SwitchingPolicy,
        config: SwitchingConfig | None = None,
        *,
        num_envs: int,
        execution: Execution | None = None,
        seed: int = 0,
    ) -> None:
        config, members = config or SwitchingConfig(), policy.config.members
        if config.batch_size % members:
            raise ValueError(
                f"algorithm.batch_size is {config.batch_size}, which {members} members cannot share; use a multiple of "
                f"agent.members, such as {config.batch_size // members * members or members}"
            )
        self.temperature = Temperature(config.initial_temperature, members)
        self.rows = (members, config.batch_size // members)
        draws = {"actions": Draw((2, *self.rows, *policy.spec.action.shape))}  # now, and next
        super().__init__(
            policy, config, self.temperature, num_envs=num_envs, seed=seed, execution=execution, draws=draws
        )
        del self.extras[policy.out(MEMORY)]  # who acted has no say
        self.steps = ContinuousSteps(policy)
        self._prepare = self.execution.compiled(self.steps.prepare)
        self.critic_engine.loss = self.execution.compiled(self._critic_loss)
        self.acting = JointEngine((self.actor_engine, self.temperature_engine), self._actor_loss, self.execution)

    def learn(self, index: Tensor, noise: Mapping[str, Tensor], phase: int) -> None:
        drawn = self.transitions(index)
        drawn["action"] = self.policy.unit_action(drawn["action"])
        batch = {name: value.unflatten(0, self.rows) for name, value in drawn.items()}
        batch["alpha"] = self.temperature.log_value.detach().exp().unsqueeze(-1)
        target, proposal = self._prepare(batch, noise["actions"], batch["alpha"])
        self.critic_engine.step(batch | {"target": target})
        self.acting.step(batch | proposal)
        self.soft_update("critic", self.critic_engine, self.config.tau)

    def _critic_loss(self, batch: Batch) -> Loss:
        values, target = self.policy.values(self.policy.critic, batch["critic"], batch["action"]), batch["target"]
        error = values - target  # [critics, M, n]
        loss = error.square().mean(-1).sum()
        # of each member by itself: targets of two members may lie apart although each is well explained
        residual = error.detach().var(-1, correction=0) / target.var(-1, correction=0).clamp(min=1e-12)
        return loss, {
            "loss/critic": loss.detach() / len(target),
            "q_mean": values.detach().mean(),
            "residual_variance": residual.mean(),
        }

    def _actor_loss(self, batch: Batch) -> Loss:
        """The losses of actors and temperatures; each sees the other's part as a constant."""
        alpha, log_prob = batch["alpha"], batch["log_prob"]
        value = self.policy.values(self.steps.constant_critic, batch["critic"], batch["action"]).min(0).values
        losses = (alpha * log_prob - value).mean(-1)
        surplus = log_prob.detach().mean(-1) + self.target_entropy
        statistics = {
            "loss/actor": losses.detach().mean(),
            "entropy": -log_prob.detach().mean(),
            "temperature": alpha.mean(),
        }
        return losses.sum() - (self.temperature.log_value.exp() * surplus).sum(), statistics
