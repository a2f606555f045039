"""SAC-HRL: a high level learns which point of a continuous scale of frozen skills to play, every few steps.

A baseline of HSD-3 (Gehring et al. 2021, arXiv 2110.10809), over skills of DIAYN-C. Each step is a transition of the
decision z that it belongs to, up to the next decision, a termination or a time limit: R the discounted sum of its m
rewards. As `level_learner` says, with gamma^m as the discount:

    critics       y = R + gamma^m (1 - terminal) (min Q'(s', z') - alpha log pi(z'|s'))          at (s, phase, z)
    actor         mean(alpha log pi(z|s) - min Q(s, z))
    temperature   -exp(log alpha) (mean log pi(z|s) + target entropy)

Critics see how many steps ago the decision was made; whoever decides always sees 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from gaitway.algorithms.replay_algorithm import Draw, ReplayAlgorithm
from gaitway.algorithms.soft_algorithm import SoftConfig
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.ranges import Positive
from gaitway.skills.deciding_policy import DECISION, learn_from_decisions
from gaitway.skills.level_learner import LevelLearner
from gaitway.skills.sac_hrl_policy import SACHRLPolicy


@configuration
class SACHRLConfig(SoftConfig):
    """A soft actor-critic whose actions are skills."""

    one_step_because = "a transition lasts up to the next decision, which agent.interval sets"
    name: Literal["sac_hrl"] = "sac_hrl"
    temperature_learning_rate: Positive = 1e-4
    initial_temperature: Positive = 0.1
    dense: bool = True
    """Learn from every step, up to the next decision (DynE); false: from decisions alone."""


class SACHRL(ReplayAlgorithm):
    """Learns the high level."""

    config: SACHRLConfig
    policy: SACHRLPolicy

    def __init__(
        self,
        policy: SACHRLPolicy,
        config: SACHRLConfig | None = None,
        *,
        num_envs: int,
        execution: Execution | None = None,
        seed: int = 0,
    ) -> None:
        config, size = config or SACHRLConfig(), policy.decision_size
        draws = {"skills": Draw((2, config.batch_size, size))}  # now, and next
        super().__init__(policy, config, num_envs=num_envs, seed=seed, execution=execution, draws=draws)
        learn_from_decisions(self, config.dense)
        target_entropy = -float(size) if config.target_entropy is None else config.target_entropy
        self.level = LevelLearner(self, "", policy.level, target_entropy)

    def learn(self, index: Tensor, noise: Mapping[str, Tensor], phase: int) -> None:
        batch = self.transitions(index)
        batch["action"] = batch.pop(self.policy.out(DECISION))
        self.level.learn(batch, noise["skills"])
