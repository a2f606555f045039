"""Behaviour cloning: a policy learns to do what a dataset did, as supervised learning does.

Pomerleau 1991, "Efficient training of artificial neural networks for autonomous navigation". With observations s and
actions a of a dataset, and the policy pi (Gaussian, squashed, categorical, ...):

    loss     - mean log pi(a|s)

Rewards are not looked at, so that the result is at best as good as the data; where the policy errs it leaves the states
that it was shown, and nothing has taught it to come back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from torch import Tensor, nn

from gaitway.agents.actor_critic import ActorCritic
from gaitway.algorithms.algorithm import Batch
from gaitway.algorithms.replay_algorithm import ReplayAlgorithm, ReplayConfig
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.ranges import Positive


@configuration
class CloningConfig(ReplayConfig):
    """Behaviour cloning: learns from a dataset to do what was done there."""

    name: Literal["bc"] = "bc"
    learning_rate: Positive = 1e-3


class BehaviourCloning(ReplayAlgorithm):
    """Learns the actor of an `ActorCritic` from batches of a replay; the critic stays as it is."""

    config: CloningConfig

    def __init__(
        self,
        policy: ActorCritic,
        config: CloningConfig | None = None,
        *,
        num_envs: int = 1,
        execution: Execution | None = None,
        seed: int = 0,
    ) -> None:
        config = config or CloningConfig()
        if policy.memories:
            raise ValueError(
                "bc learns from single steps, which teach no memory; use agent.memory.kind=none and no history block"
            )
        super().__init__(policy, config, num_envs=num_envs, seed=seed, execution=execution)
        learner = nn.ModuleDict({"actor": policy.actor, "head": policy.head})  # the head may own the deviations
        self.engines["actor"] = self.engine(policy.learner(learner, "all"), config.learning_rate)
        self.engines["actor"].loss = self.execution.compiled(self._loss)

    def learn(self, index: Tensor, noise: Mapping[str, Tensor], phase: int) -> None:
        """One update on the transitions `index` [n]."""
        self.engines["actor"].step(self.transitions(index))

    def _loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        head, action = self.policy.head, batch["action"]
        output, _ = self.policy.actor(self.policy.inputs_again(batch, "actor", "all"), None)
        params, log_prob, entropy = head.score(output, head.raw(action))
        loss = -log_prob.mean()
        statistics = {"loss/actor": loss.detach(), "entropy": entropy.detach().mean()}
        done = head.action(head.mode(params)).detach()  # what the deterministic policy does
        if action.is_floating_point():
            statistics["squared_error"] = (done - action).square().mean()
        else:
            statistics["accuracy"] = (done == action).float().mean()
        return loss, statistics
