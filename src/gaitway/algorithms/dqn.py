"""Deep Q-learning, with its usual improvements as switches: double, dueling, prioritised, n-step.

Mnih et al. 2015, "Human-level control through deep reinforcement learning"; van Hasselt et al. 2016 (double), Wang et
al. 2016 (dueling, in the network), Schaul et al. 2016 (prioritised). With a drawn transition (s, a, R, d, s'):

    target   y = R + d max_a' Q'(s', a')                       double: R + d Q'(s', argmax_a' Q(s', a'))
    loss     mean w huber(Q(s, a) - y)                         w: importance weights, 1 unless prioritised
    target   Q' <- Q every `target_interval` updates
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

import torch
from torch import Tensor

from gaitway.agents.value_policy import ValuePolicy
from gaitway.algorithms.algorithm import Batch, NotNegativeCoefficient, Now, Schedule, ShareCoefficient, value_at
from gaitway.algorithms.engine import FlatParameters
from gaitway.algorithms.replay_algorithm import ReplayAlgorithm, ReplayConfig
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.ranges import Count, NotNegative, Positive
from gaitway.data.prioritised_replay import PrioritisedReplay
from gaitway.data.step_replay import StepReplay
from gaitway.functional.value_losses import double_target, greedy_target, huber, taken

Loss = tuple[Tensor, dict[str, Tensor]]


@configuration
class DQNConfig(ReplayConfig):
    """Deep Q-learning: off-policy, for one discrete action; double, dueling, prioritised, n-step."""

    name: Literal["dqn"] = "dqn"
    learning_rate: NotNegativeCoefficient = 5e-4
    double: bool = True
    """Let the online network choose the action that the target network values."""
    target_interval: Count = 500
    """Updates between copies of the network to its target."""
    huber_width: Positive = 1.0
    """Errors beyond this count linearly."""
    epsilon: ShareCoefficient = field(default_factory=lambda: Schedule(1.0, 0.05, 0.2, unit="fraction"))
    """How often actions are drawn uniformly while playing."""
    prioritised: bool = False
    """Draw transitions in proportion to their last error."""
    priority_exponent: NotNegative = 0.6
    """How much errors count in the draw: 0 is uniform."""
    priority_correction: ShareCoefficient = field(default_factory=lambda: Schedule(0.4, 1.0, 1.0, unit="fraction"))
    """How much of the bias of such draws is corrected by weights, 0 to 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if value_at(self.learning_rate, Now()) <= 0:
            raise ValueError(f"learning_rate is {self.learning_rate}; use a positive number such as 5e-4")


class DQN(ReplayAlgorithm):
    """Learns from batches of a replay."""

    config: DQNConfig
    policy: ValuePolicy

    def __init__(
        self,
        policy: ValuePolicy,
        config: DQNConfig | None = None,
        *,
        num_envs: int,
        execution: Execution | None = None,
        seed: int = 0,
    ) -> None:
        config = config or DQNConfig()
        super().__init__(policy, config, num_envs=num_envs, seed=seed, execution=execution)
        self.targets["values"] = FlatParameters(policy.target, target_of=policy.values)
        self.values = self.engine(policy.learner(policy.values, "critic"), config.learning_rate)
        self.engines["values"] = self.values
        self.values.loss = self.execution.compiled(self._loss)
        self._error = torch.zeros(config.batch_size, device=self.device)

    def make_replay(self, device: torch.device | str | None = None) -> StepReplay:
        if not self.config.prioritised:
            return super().make_replay(device)
        return PrioritisedReplay(**self.replay_options(device), alpha=self.config.priority_exponent)

    def replay_bytes(self, size: int) -> int:
        if not self.config.prioritised:
            return super().replay_bytes(size)
        return PrioritisedReplay.bytes_needed(size, **self.replay_arguments())

    def update(self, replay: StepReplay, updates: int, now: Now) -> None:
        """Make `updates` updates, with a copy to the target whenever one is due."""
        self.policy.epsilon.fill_(value_at(self.config.epsilon, now))
        if isinstance(replay, PrioritisedReplay):
            replay.set_beta(value_at(self.config.priority_correction, now))
        left, interval = updates, self.config.target_interval
        while left:
            run = min(left, interval - self.updates % interval)
            super().update(replay, run, now)
            left -= run
            if self.updates % interval == 0:
                self.soft_update("values", self.values, 1.0)

    def learn(self, index: Tensor, noise: Mapping[str, Tensor], phase: int) -> None:
        """One update on the transitions `index` [n] (prioritised: on those that these tickets draw)."""
        replay = self.replay
        if isinstance(replay, PrioritisedReplay):
            index = replay.locate(index)
        batch = self.transitions(index)
        batch["action"] = batch["action"] - self.policy.first_action
        batch["target"] = self._target(batch)
        self.values.step(batch)
        if isinstance(replay, PrioritisedReplay):
            replay.update_priorities(index, self._error)

    def metrics(self) -> dict[str, Tensor]:
        return super().metrics() | {"epsilon": self.policy.epsilon.clone()}

    @torch.no_grad()
    def _target(self, batch: Batch) -> Tensor:
        """What the network should say of the actions taken, [n]."""
        following = self.policy.target(batch["next/actor"])
        if not self.config.double:
            return greedy_target(batch["reward"], batch["discount"], following)
        return double_target(batch["reward"], batch["discount"], following, self.policy.values(batch["next/actor"]))

    def _loss(self, batch: Batch) -> Loss:
        values = taken(self.policy.values(self.policy.inputs_again(batch, "critic")), batch["action"])
        error = values - batch["target"]
        self._error.copy_(error.detach())
        pulls = huber(error, self.config.huber_width)
        loss = (pulls * batch["weight"]).mean() if "weight" in batch else pulls.mean()
        return loss, {"loss/values": loss.detach(), "q_mean": values.detach().mean()}
