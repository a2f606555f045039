"""How one level of a hierarchy learns: soft actor-critic with engines and a temperature of its own.

    critics       y = r + discount (min Q'(s', a') - alpha log pi(a'|s')),       loss: sum of mean squared errors
    actor         mean(alpha log pi(a|s) - min Q(s, a))
    temperature   -exp(log alpha) (mean log pi(a|s) + target entropy)

What r, discount, s and a are is the business of the algorithm that owns the level.
"""

from __future__ import annotations

from torch import Tensor

from gaitway.agents.level import Level
from gaitway.algorithms.algorithm import Batch
from gaitway.algorithms.engine import Engine, FlatParameters, JointEngine
from gaitway.algorithms.replay_algorithm import ReplayAlgorithm, unset_loss
from gaitway.algorithms.soft_algorithm import SoftConfig, Temperature
from gaitway.algorithms.soft_steps import ContinuousSteps

Loss = tuple[Tensor, dict[str, Tensor]]


class LevelLearner:
    """Teaches `level`, a part of the policy of `algorithm`, among whose engines, targets and modules its own stand
    under names that begin with `name`, and whose statistics end with it; "" for a policy with one level that learns."""

    def __init__(self, algorithm: ReplayAlgorithm, name: str, level: Level, target_entropy: float) -> None:
        config = algorithm.config
        assert isinstance(config, SoftConfig)
        self.algorithm, self.name, self.level, self.tau = algorithm, name, level, config.tau
        prefix = f"{name}_" if name else ""
        self.target_name = f"{prefix}critic"
        self.target_entropy = target_entropy
        self.temperature = Temperature(config.initial_temperature).to(algorithm.device)
        algorithm.modules[f"{prefix}temperature"] = self.temperature
        algorithm.targets[self.target_name] = FlatParameters(level.target, target_of=level.critic)
        self.critic_engine = algorithm.engine(level.critic, config.critic_learning_rate)
        self.actor_engine = algorithm.engine(level.actor, config.actor_learning_rate)
        self.temperature_engine = Engine(
            self.temperature,
            unset_loss,
            learning_rate=config.temperature_learning_rate,
            max_grad_norm=None,
            eps=config.adam_eps,
        )
        algorithm.engines |= {
            f"{prefix}actor": self.actor_engine,
            f"{prefix}critic": self.critic_engine,
            f"{prefix}temperature": self.temperature_engine,
        }
        compiled = algorithm.execution.compiled
        self.steps = ContinuousSteps(level)  # type: ignore[arg-type]  # it asks no more of a policy than a level has
        self._prepare = compiled(self.steps.prepare)
        self.critic_engine.loss = compiled(self._critic_loss)
        self.acting = JointEngine((self.actor_engine, self.temperature_engine), self._actor_loss, algorithm.execution)

    def learn(self, batch: Batch, noise: Tensor) -> None:
        """One update on `actor`, `critic`, `next/actor`, `next/critic` [n, D], `action` [n, A], `reward` and `discount`
        [n], with standard normal `noise` [2, n, A] for decisions now and next. Where critics see more than whoever
        decides, `critic/new` [n, D] is what they see of a decision that is made now."""
        batch["alpha"] = self.temperature.log_value.detach().exp()
        target, proposal = self._prepare(batch, noise, batch["alpha"])
        self.critic_engine.step(batch | {"target": target})
        self.acting.step(batch | proposal)
        self.algorithm.soft_update(self.target_name, self.critic_engine, self.tau)

    def _critic_loss(self, batch: Batch) -> Loss:
        values, target = self.level.values(self.level.critic, batch["critic"], batch["action"]), batch["target"]
        error = values - target
        loss = error.square().mean(-1).sum()
        residual = error.detach().var() / target.var().clamp(min=1e-12)
        statistics = {"loss/critic": loss.detach(), "q_mean": values.detach().mean(), "residual_variance": residual}
        return loss, self._named(statistics)

    def _actor_loss(self, batch: Batch) -> Loss:
        """The losses of actor and temperature; each sees the other's part as a constant."""
        alpha, log_prob = batch["alpha"], batch["log_prob"]
        inputs = batch["critic/new"] if "critic/new" in batch else batch["critic"]
        value = self.level.values(self.steps.constant_critic, inputs, batch["action"]).min(0).values
        loss = (alpha * log_prob - value).mean()
        surplus = log_prob.detach().mean() + self.target_entropy
        statistics = {"loss/actor": loss.detach(), "entropy": -log_prob.detach().mean(), "temperature": alpha}
        return loss - self.temperature.log_value.exp() * surplus, self._named(statistics)

    def _named(self, statistics: dict[str, Tensor]) -> dict[str, Tensor]:
        return {f"{key}/{self.name}" if self.name else key: value for key, value in statistics.items()}
