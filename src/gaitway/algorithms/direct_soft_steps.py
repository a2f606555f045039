"""The gradients of soft actor-critic without autograd: continuous actions and plain networks on the CPU.

Two thirds of an update are matrix products, which nothing can save; this is for the rest. The numbers are those of
`ContinuousSteps`, to rounding. `DirectSteps.of` says whether it applies; with other trunks, other activations, discrete
actions or a GPU the general way is taken.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from gaitway.agents.soft_actor_critic import SoftActorCritic
from gaitway.algorithms.algorithm import Batch
from gaitway.algorithms.soft_steps import actor_statistics
from gaitway.functional.direct_soft_losses import (
    Squashed,
    actor_loss,
    critic_loss,
    soft_target,
    squashed_action,
    squashed_gradient,
)
from gaitway.nn.dense import DenseStack
from gaitway.nn.ensemble import Ensemble
from gaitway.nn.ensemble_stack import EnsembleStack
from gaitway.nn.trunks import Network


class DirectSteps:
    """Like `ContinuousSteps`, but gradients instead of losses: they overwrite `.grad` of the parameters.

    The actor's memory holds one batch: `actor_gradient` is that of the proposal of the last `prepare`.
    """

    def __init__(
        self, policy: SoftActorCritic, actor: DenseStack, critic: EnsembleStack, target: EnsembleStack
    ) -> None:
        self.policy, self.actor, self.critic, self.target_critic = policy, actor, critic, target
        self._drawn: Squashed | None = None

    @classmethod
    def of(cls, policy: SoftActorCritic) -> DirectSteps | None:
        """For a policy whose parameters already have a `.grad`; None where autograd is needed."""
        if not policy.is_plain or policy.is_discrete:
            return None
        network, critics, targets = policy.actor, policy.critic, policy.target
        assert isinstance(network, Network)
        assert isinstance(critics, Ensemble)
        assert isinstance(targets, Ensemble)
        layers = network.sequence()
        if layers is None:
            return None
        actor, critic = DenseStack.of(nn.Sequential(*layers)), EnsembleStack.of(critics)
        target = EnsembleStack.of(targets, like=critic)
        return None if actor is None or critic is None or target is None else cls(policy, actor, critic, target)

    def action(self, action: Tensor) -> Tensor:
        return self.policy.unit_action(action)

    def prepare(self, batch: Batch, noise: Tensor, alpha: Tensor) -> tuple[Tensor, Batch]:
        """`noise` [2, B, A] makes the actions now and next."""
        samples = noise.shape[1]
        output = np.empty((2 * noise.shape[2], 2 * samples), dtype=np.float32)  # now | next, drawn together
        output[:, samples:] = self.actor.forward(batch["next/actor"]).numpy().T
        output[:, :samples] = self.actor.forward(batch["actor"]).numpy().T
        normal = np.ascontiguousarray(noise.view(2 * samples, -1).numpy().T)
        drawn = squashed_action(output, normal, self.policy.config.log_std_range)
        self._drawn = Squashed(*(part[..., :samples] for part in drawn))
        following = torch.from_numpy(drawn.action[:, samples:]).t()
        values = self.target_critic.forward(batch["next/critic"], following).numpy()
        reward, discount = batch["reward"].numpy(), batch["discount"].numpy()
        target = soft_target(reward, discount, values, drawn.log_prob[samples:], float(alpha))
        return torch.from_numpy(target), {"log_prob": torch.from_numpy(self._drawn.log_prob)}

    def critic_gradient(self, batch: Batch) -> dict[str, Tensor]:
        values = self.critic.forward(batch["critic"], batch["action"]).numpy()
        loss, gradient = critic_loss(values, batch["target"].numpy())
        self.critic.backward(torch.from_numpy(gradient))
        mean = float(np.add.reduce(values, None)) / values.size
        return {"loss/critic": torch.tensor(loss), "q_mean": torch.tensor(mean)}

    def actor_gradient(self, batch: Batch) -> dict[str, Tensor]:
        drawn, alpha = self._drawn, float(batch["alpha"])
        assert drawn is not None
        values = self.critic.forward(batch["critic"], torch.from_numpy(drawn.action).t()).numpy()
        loss, gradient = actor_loss(values, drawn.log_prob, alpha)
        by_action = self.critic.backward_actions(torch.from_numpy(gradient), len(drawn.action)).numpy()
        by_output = squashed_gradient(drawn, by_action, alpha / len(drawn.log_prob))
        self.actor.backward(torch.from_numpy(by_output).t())
        return actor_statistics(torch.tensor(loss), batch)
