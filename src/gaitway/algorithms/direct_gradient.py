"""The gradient of PPO's standard losses without autograd: for small Gaussian policies on the CPU.

A minibatch of a few hundred samples costs autograd a few hundred small operations, most of them longer to start than
to run. Written out, the same derivative takes a handful of matrix products and as many passes over the losses. Further
terms read what the policy said, so autograd differentiates them by its outputs alone, a few small operations each, and
one backward pass through the networks, by hand, serves all. Where a memory stands in front of a network, autograd goes
on from there: its sequence kernel is one operation. Results equal those of the reference implementation (`Terms.loss`
under autograd) to rounding. `DirectGradient.of` says whether it applies: with other standard terms, another
distribution, blocks, methods of one's own, further terms beside a memory, or a GPU autograd does everything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.blocks import joined
from gaitway.algorithms.algorithm import Batch
from gaitway.algorithms.terms import Entropy, Surrogate, Terms, ValueLoss, policy_weight
from gaitway.core.execution import Execution
from gaitway.functional.direct_losses import gaussian_kl, gaussian_surrogate, value_loss
from gaitway.nn.altered import is_altered
from gaitway.nn.continuous import HALF_LOG_2_PI, Gaussian
from gaitway.nn.dense import DenseStack
from gaitway.nn.memory import Memory

EAGER = ("eager", "fp32", "cpu")
STANDARD = [Surrogate, ValueLoss, Entropy]
STATISTICS = ("loss/surrogate", "clip_fraction", "loss/value", "loss/entropy", "loss/total", "kl")


class DirectGradient:
    """Overwrites `.grad` of the policy's parameters with the gradient of one minibatch; the first three terms are
    surrogate, value and entropy."""

    def __init__(
        self, policy: ActorCritic, terms: Terms, head: Gaussian, actor: DenseStack, critic: DenseStack
    ) -> None:
        self.policy, self.terms, self.head = policy, terms, head
        self.gaussian, self.actor, self.critic = _Gaussian(head), actor, critic
        surrogate, value = terms.terms[:2]
        assert isinstance(surrogate, Surrogate)
        assert isinstance(value, ValueLoss)
        self.surrogate, self.value = surrogate, value
        self.further = range(len(STANDARD), len(terms.terms))
        self._learnt = [p for p in head.parameters() if p.requires_grad]

    @classmethod
    def of(cls, policy: ActorCritic, terms: Terms, execution: Execution | None = None) -> DirectGradient | None:
        """For a policy whose parameters already have a `.grad`; None where autograd is needed."""
        if execution is not None and (execution.mode, execution.precision, execution.device.type) != EAGER:
            return None
        head = policy.head
        if not cls.suits(policy) or type(head) is not Gaussian or head.state_dependent:
            return None
        if policy.memories and len(terms.terms) > len(STANDARD):
            return None
        if head.has_floor or head.mean_activation != "none":
            return None
        if [type(term) for term in terms.terms[: len(STANDARD)]] != STANDARD or terms.mirror is not None:
            return None
        if any(p.requires_grad and p.grad is None for p in policy.parameters()):
            return None
        actor, critic = (DenseStack.of(branch.network.layers) for branch in (policy.actor, policy.critic))  # type: ignore[arg-type]
        return None if actor is None or critic is None else cls(policy, terms, head, actor, critic)

    @staticmethod
    def suits(policy: ActorCritic) -> bool:
        """Whether the policy is plain, or would be without the memories in front of its networks."""
        return policy.is_plain or (policy.is_recurrent and policy.has_standard_parts and not is_altered(policy))

    @torch.no_grad()
    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """Statistics of the minibatch."""
        batch = self.terms.transformed(batch)
        weights = self.terms.weights
        actor_inputs, critic_inputs = self._read(batch)
        if self.policy.is_recurrent:
            columns = self.policy.column_fields
            batch = {name: value.flatten(0, 1) for name, value in batch.items() if name not in columns}
        with np.errstate(all="ignore"):  # as PyTorch: what is not finite shows in the statistics
            output = self.actor.forward(actor_inputs.detach())
            value = self.critic.forward(critic_inputs.detach())
            more = self._further(batch, output, value) if len(self.further) else _Further()
            policy_loss, clip_fraction, entropy, kl = self._actor(batch, output.numpy(), weights, more, actor_inputs)
            error = self._critic(batch, value.numpy()[:, 0], weights[1], more, critic_inputs)
        total = weights[0] * policy_loss + weights[1] * error + weights[2] * entropy + more.total
        numbers = np.array((policy_loss, clip_fraction, error, entropy, total, kl), dtype=np.float32)
        return dict(zip(STATISTICS, torch.from_numpy(numbers).unbind(), strict=True)) | more.statistics

    def _read(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """What actor and critic read [N, D]; behind a memory with the graph that leads there."""
        policy, groups = self.policy, self.policy.groups
        for_actor = for_critic = _joined(batch, groups["actor"])
        if groups["critic"] != groups["actor"]:
            for_critic = _joined(batch, groups["critic"])
        if not policy.is_recurrent:
            return for_actor, for_critic
        starts = batch["starts"]
        with torch.enable_grad():
            for_actor = policy.actor.recalled(for_actor, batch.get("memory/actor/memory"), starts)
            for_critic = policy.critic.recalled(for_critic, batch.get("memory/critic/memory"), starts)
            return for_actor.flatten(0, 1), for_critic.flatten(0, 1)

    def _further(self, batch: Batch, output: Tensor, value: Tensor) -> _Further:
        """The further terms, and their gradients by what the policy says."""
        with torch.enable_grad():
            said = {"output": output.detach().requires_grad_(), "value": value[:, 0].detach().requires_grad_()}
            total, statistics = self.terms.weighed(_Asked(batch, self.head, said), self.further)
            if not total.requires_grad:  # no term with a weight
                return _Further(float(total), statistics)
            wanted = [*said.values(), *self._learnt]
            gradients = torch.autograd.grad(total, wanted, materialize_grads=True)
        by_output, by_value, *by_head = (gradient.numpy() for gradient in gradients)
        return _Further(float(total.detach()), statistics, by_output, by_value, by_head)

    def _actor(
        self, batch: Batch, output: np.ndarray, weights: Sequence[float], more: _Further, inputs: Tensor
    ) -> tuple[float, float, float, float]:
        """Gradient of actor and standard deviation; returns loss, clip fraction, minus the entropy, KL."""
        mean, log_std = self.gaussian.mean(output), self.gaussian.log_std()
        coefficient, _, entropy_coefficient, *_ = weights
        share = _shares(policy_weight(batch))
        action, old_log_prob, advantage = (batch[name].numpy() for name in ("raw", "log_prob", "advantage"))
        result = gaussian_surrogate(mean, log_std, action, old_log_prob, advantage, self.surrogate.clip, share)
        kl = gaussian_kl(batch["params"].numpy(), mean, log_std, share)
        counted = 1.0 if share is None else float(share.sum())  # 0 where no sample counts
        entropy = counted * (float(log_std.sum()) + len(log_std) * (0.5 + HALF_LOG_2_PI))
        self.gaussian.backward_log_std(coefficient * result.by_log_std - entropy_coefficient * counted)
        by_output = _weighted(self.gaussian.backward_mean(result.by_mean), coefficient)
        if more.by_output is not None:
            by_output += more.by_output
            for parameter, gradient in zip(self._learnt, more.by_head, strict=True):
                parameter.grad.numpy().__iadd__(gradient)  # type: ignore[union-attr]
        _backward(self.actor, torch.from_numpy(by_output), inputs, self.policy.actor.memory)
        return result.loss, result.clip_fraction, -entropy, kl

    def _critic(self, batch: Batch, value: np.ndarray, coefficient: float, more: _Further, inputs: Tensor) -> float:
        share = _shares(batch.get("weight"))
        error, by_value = value_loss(value, batch["value"].numpy(), batch["return"].numpy(), self.value.clip, share)
        by_value = _weighted(by_value, coefficient)
        if more.by_value is not None:
            by_value += more.by_value
        _backward(self.critic, torch.from_numpy(by_value).unsqueeze(-1), inputs, self.policy.critic.memory)
        return error


class _Asked(dict[str, Tensor]):
    """A minibatch to which `terms.scored` adds what a term asks for: most read one of its four numbers."""

    def __init__(self, batch: Batch, head: Gaussian, said: Batch) -> None:
        super().__init__(batch | {f"new/{name}": value for name, value in said.items()})
        self.head = head

    def __missing__(self, name: str) -> Tensor:
        head = self.head
        if name == "new/params":
            value = head(self["new/output"])
        elif name == "new/mean":
            value = head.action(head.mode(self["new/params"]))
        elif name == "new/log_prob":
            value = head.log_prob(self["new/params"], self["raw"])
        elif name == "new/entropy":
            value = head.entropy(self["new/params"])
        else:
            raise KeyError(name)
        self[name] = value
        return value


class _Further(NamedTuple):
    """What the terms behind the standard ones amount to."""

    total: float = 0.0
    statistics: dict[str, Tensor] = {}  # noqa: RUF012  never written to
    by_output: np.ndarray | None = None
    by_value: np.ndarray | None = None
    by_head: Sequence[np.ndarray] = ()


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


def _backward(network: DenseStack, gradient: Tensor, inputs: Tensor, memory: Memory | None) -> None:
    """The gradient of a network's parameters, and by the `inputs` it read that of the memory in front of it."""
    learnt = [] if memory is None else [p for p in memory.parameters() if p.requires_grad]
    by_inputs = network.backward(gradient, inputs=bool(learnt))
    if learnt:
        for parameter, found in zip(learnt, torch.autograd.grad(inputs, learnt, by_inputs), strict=True):
            parameter.grad.copy_(found)  # type: ignore[union-attr]


def _joined(batch: Batch, groups: Sequence[str]) -> Tensor:
    """What a network of a plain policy reads."""
    return joined([batch[f"obs/{name}"] for name in groups])


def _weighted(gradient: np.ndarray, coefficient: float) -> np.ndarray:
    if coefficient != 1.0:
        gradient *= coefficient
    return gradient


def _shares(weight: Tensor | None) -> np.ndarray | None:
    """What each sample weighs in a mean, as in `policy_losses.weighted_mean`."""
    if weight is None:
        return None
    found = weight.numpy()
    return found / max(float(found.sum()), 1.0)
