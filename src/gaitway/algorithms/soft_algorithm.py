"""What soft actor-critics share: keys of their configuration, a temperature, and an engine for each part that learns.

`SAC`, `MultitaskSAC` and `DIAYN` are its leaves; each writes its equations as `learn`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import nn

from gaitway.agents.soft_actor_critic import SoftActorCritic
from gaitway.algorithms.algorithm import PositiveCoefficient
from gaitway.algorithms.engine import Engine, FlatParameters
from gaitway.algorithms.replay_algorithm import Draw, ReplayAlgorithm, ReplayConfig, unset_loss
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.ranges import Number, Positive, PositiveShare


@configuration
class SoftConfig(ReplayConfig):
    """An off-policy algorithm that weighs the entropy of its policy by a temperature."""

    tau: PositiveShare = 0.005
    """How far the targets follow at each update."""
    actor_learning_rate: PositiveCoefficient = 3e-4
    """A number, or a schedule of it, as the next one."""
    critic_learning_rate: PositiveCoefficient = 3e-4
    temperature_learning_rate: Positive = 3e-4
    initial_temperature: Positive = 1.0
    target_entropy: Number | None = None
    """Where a learnt temperature drives the policy's entropy. Null: minus the number of action dimensions, with actions
    in units of half their range."""


class SoftAlgorithm(ReplayAlgorithm):
    """Actor, critics and temperature with an engine each, and the critics' target; a leaf class writes `learn`.

    A temperature that is `entrywise` has several entries, of which those that a batch does not concern stay.
    """

    config: SoftConfig

    def __init__(
        self,
        policy: SoftActorCritic,
        config: SoftConfig,
        temperature: nn.Module,
        *,
        num_envs: int,
        seed: int,
        execution: Execution | None,
        draws: Mapping[str, Draw],
        entrywise: bool = False,
    ) -> None:
        super().__init__(policy, config, num_envs=num_envs, seed=seed, execution=execution, draws=draws)
        temperature.to(self.device)
        self.target_entropy = continuous_target_entropy(policy, config)
        self.modules["temperature"] = temperature
        self.targets["critic"] = FlatParameters(policy.target, target_of=policy.critic)
        self.critic_engine = self.engine(policy.learner(policy.critic, "critic"), config.critic_learning_rate)
        self.actor_engine = self.engine(policy.learner(policy.actor, "actor"), config.actor_learning_rate)
        self.temperature_engine = Engine(
            temperature,
            unset_loss,
            learning_rate=config.temperature_learning_rate,
            max_grad_norm=None,
            eps=config.adam_eps,
            entrywise=entrywise,
        )
        self.engines |= {
            "actor": self.actor_engine,
            "critic": self.critic_engine,
            "temperature": self.temperature_engine,
        }


class Temperature(nn.Module):
    """The weight of the entropy, learnt as its logarithm: one, or several of the `shape`."""

    def __init__(self, initial: float, *shape: int) -> None:
        super().__init__()
        self.log_value = nn.Parameter(torch.full(shape, math.log(initial)))


def continuous_target_entropy(policy: SoftActorCritic, config: SoftConfig) -> float:
    """The entropy that a learnt temperature drives a policy with continuous actions to."""
    return -float(len(policy.spec.action.names)) if config.target_entropy is None else config.target_entropy
