"""The gradient of PPO's standard loss without autograd: for small feed-forward Gaussian policies on the CPU.

A minibatch of a few hundred samples costs autograd a few hundred small operations, most of them longer to start than
to run. Written out, the same derivative takes a handful of matrix products and as many passes over the losses. The
numbers are those of the general way, to rounding. `DirectGradient.of` says whether it applies: with another list of
terms, another distribution, a memory or a GPU the general way is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gaitway.agents.actor_critic import ActorCritic
from gaitway.algorithms.algorithm import Batch, LossTerm
from gaitway.algorithms.terms import Entropy, Surrogate, ValueLoss
from gaitway.functional.direct_losses import gaussian_kl, gaussian_surrogate, value_loss
from gaitway.nn.continuous import HALF_LOG_2_PI, Gaussian
from gaitway.nn.dense import DenseStack

STATISTICS = ("loss/surrogate", "clip_fraction", "loss/value", "loss/entropy", "loss/total", "kl")


class DirectGradient:
    """Overwrites `.grad` of the policy's parameters with the gradient of one minibatch."""

    def __init__(
        self, head: Gaussian, actor: DenseStack, critic: DenseStack, surrogate: Surrogate, value: ValueLoss
    ) -> None:
        self.gaussian, self.actor, self.critic = _Gaussian(head), actor, critic
        self.surrogate, self.value = surrogate, value

    @classmethod
    def of(cls, policy: ActorCritic, terms: Sequence[LossTerm]) -> DirectGradient | None:
        """For a policy whose parameters already have a `.grad`; None where autograd is needed."""
        if [type(term) for term in terms] != [Surrogate, ValueLoss, Entropy]:
            return None
        surrogate, value, _ = terms
        assert isinstance(surrogate, Surrogate)
        assert isinstance(value, ValueLoss)
        head = policy.head
        if type(head) is not Gaussian or head.state_dependent or policy.is_recurrent:
            return None
        if any(p.requires_grad and p.grad is None for p in policy.parameters()):
            return None
        actor, critic = (DenseStack.of(branch.network.layers) for branch in (policy.actor, policy.critic))
        return None if actor is None or critic is None else cls(head, actor, critic, surrogate, value)

    @torch.no_grad()
    def __call__(self, batch: Batch, coefficients: Sequence[float]) -> dict[str, Tensor]:
        """Statistics of the minibatch; `coefficients` weigh surrogate, value and entropy."""
        share = _shares(batch)
        with np.errstate(all="ignore"):  # as PyTorch: what is not finite shows in the statistics
            policy_loss, clip_fraction, entropy, kl = self._actor(batch, coefficients[0], coefficients[2], share)
            error = self._critic(batch, coefficients[1], share)
        total = coefficients[0] * policy_loss + coefficients[1] * error + coefficients[2] * entropy
        numbers = np.array((policy_loss, clip_fraction, error, entropy, total, kl), dtype=np.float32)
        return dict(zip(STATISTICS, torch.from_numpy(numbers).unbind(), strict=True))

    def _actor(
        self, batch: Batch, coefficient: float, entropy_coefficient: float, share: np.ndarray | None
    ) -> tuple[float, float, float, float]:
        """Gradient of actor and deviation; returns loss, clip fraction, minus the entropy, KL."""
        mean = self.gaussian.mean(self.actor.forward(batch["inputs/actor"]).numpy())
        log_std = self.gaussian.log_std()
        action, old_log_prob, advantage = (batch[name].numpy() for name in ("raw", "log_prob", "advantage"))
        result = gaussian_surrogate(mean, log_std, action, old_log_prob, advantage, self.surrogate.clip, share)
        kl = gaussian_kl(batch["params"].numpy(), mean, log_std, share)
        counted = 1.0 if share is None else float(share.sum())  # 0 where no sample counts
        entropy = counted * (float(log_std.sum()) + len(log_std) * (0.5 + HALF_LOG_2_PI))
        self.gaussian.backward_log_std(coefficient * result.by_log_std - entropy_coefficient * counted)
        by_output = self.gaussian.backward_mean(result.by_mean)
        self.actor.backward(_weighted(by_output, coefficient))
        return result.loss, result.clip_fraction, -entropy, kl

    def _critic(self, batch: Batch, coefficient: float, share: np.ndarray | None) -> float:
        inputs = batch.get("inputs/critic", batch["inputs/actor"])
        value = self.critic.forward(inputs).numpy()[:, 0]
        error, by_value = value_loss(value, batch["value"].numpy(), batch["return"].numpy(), self.value.clip, share)
        self.critic.backward(_weighted(by_value, coefficient).unsqueeze(-1))
        return error


class _Gaussian:
    """The head's own part of the chain, as arrays on the memory of its parameter."""

    def __init__(self, head: Gaussian) -> None:
        parameter = head.spread
        self.is_log = head.std_type == "log"
        self.low, self.high = (math.log(bound) if self.is_log else bound for bound in head.std_range)
        self.parameter = parameter.detach().numpy()
        self.gradient = None if parameter.grad is None else parameter.grad.numpy()
        self.centre, self.half_range = head.centre.numpy(), head.half_range.numpy()
        self.rescales = bool((self.centre != 0.0).any() or (self.half_range != 1.0).any())

    def mean(self, output: np.ndarray) -> np.ndarray:
        return self.centre + output * self.half_range if self.rescales else output

    def backward_mean(self, by_mean: np.ndarray) -> np.ndarray:
        return by_mean * self.half_range if self.rescales else by_mean

    def log_std(self) -> np.ndarray:
        clamped = np.minimum(np.maximum(self.parameter, self.low), self.high)
        log_std = clamped if self.is_log else np.log(clamped)
        return log_std + np.log(self.half_range) if self.rescales else log_std

    def backward_log_std(self, by_log_std: np.ndarray) -> None:
        """Overwrite the parameter's gradient; beyond a bound it is 0."""
        if self.gradient is not None:
            inside = (self.parameter >= self.low) & (self.parameter <= self.high)
            np.multiply(by_log_std, inside, out=self.gradient)
            if not self.is_log:
                self.gradient /= self.parameter


def _weighted(gradient: np.ndarray, coefficient: float) -> Tensor:
    if coefficient != 1.0:
        gradient *= coefficient
    return torch.from_numpy(gradient)


def _shares(batch: Batch) -> np.ndarray | None:
    """What each sample weighs in a mean, as in `policy_losses.weighted_mean`."""
    if "weight" not in batch:
        return None
    weight = batch["weight"].numpy()
    return weight / max(float(weight.sum()), 1.0)
