"""The interface of action heads: from what a network says to what an environment gets.

A head turns the network's output into `params`, one flat tensor `[..., P]` that can be stored with a rollout, and
everything else is a pure function of them. Nothing is remembered between calls, leading shapes are free, and the event
(the action of one instance) is the last axis, summed exactly once.

    network output [..., inputs] --forward--> params [..., P] --sample, mode--> raw [..., *raw_shape] --action--> env

`raw` is what is stored and scored: for most heads the action itself, for squashed ones the value before squashing, for
which the density is exact.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Head(nn.Module):
    """What every head offers; subclasses write the methods that raise here."""

    inputs: int
    """Numbers the network must emit."""
    num_params: int
    """Size P of the last axis of `params`."""
    raw_shape: tuple[int, ...]
    """Shape of one raw action."""
    raw_dtype: torch.dtype = torch.float32
    raw_is_action: bool = True
    """True if `action` returns its argument unchanged, so nothing else needs storing."""
    entropy_is_exact: bool = True
    """False if `entropy` is that of `raw`, not of the action."""

    def forward(self, output: Tensor) -> Tensor:
        """Network output `[..., inputs]` -> params `[..., P]`."""
        raise TypeError(f"{type(self).__name__} does not implement forward")

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """A random raw action per row, drawn from `generator` only."""
        raise TypeError(f"{type(self).__name__} does not implement sample")

    def mode(self, params: Tensor) -> Tensor:
        """The raw action of the deterministic policy."""
        raise TypeError(f"{type(self).__name__} does not implement mode")

    def log_prob(self, params: Tensor, raw: Tensor) -> Tensor:
        """Log-density (or log-probability) of the *action* that `raw` stands for, `[...]`."""
        raise TypeError(f"{type(self).__name__} does not implement log_prob")

    def entropy(self, params: Tensor) -> Tensor:
        """`[...]`; see `entropy_is_exact`."""
        raise TypeError(f"{type(self).__name__} does not implement entropy")

    def action_entropy(self, params: Tensor) -> Tensor | None:
        """Entropy of the action itself, `[...]`; None where it has no closed form: the mean of `-log_prob` over samples
        estimates it."""
        return self.entropy(params) if self.entropy_is_exact else None

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """Exact KL(old || new) of two sets of params, `[...]`."""
        raise TypeError(f"{type(self).__name__} does not implement kl")

    def support(self) -> tuple[object, ...]:
        """What another head of this class must have in common for `kl` between the two to mean something."""
        return self.raw_shape, self.num_params

    def sampler(self, generator: torch.Generator | None) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """A function from network output to params and a raw action: random, or the mode without a generator.

        For rollouts on the CPU: valid while parameters rest and without gradients, so that what depends on parameters
        alone is computed once. Results may be overwritten by the next call.
        """

        def draw(output: Tensor) -> tuple[Tensor, Tensor]:
            params = self(output)
            return params, self.mode(params) if generator is None else self.sample(params, generator)

        return draw

    def score(self, output: Tensor, raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Params, log-probability of `raw` and entropy from the network's output: what a policy loss needs.

        The same as `forward`, `log_prob` and `entropy`; heads that can share work between the three do.
        """
        params = self(output)
        return params, self.log_prob(params, raw), self.entropy(params)

    def action(self, raw: Tensor) -> Tensor:
        """What the environment gets."""
        return raw

    def raw(self, action: Tensor) -> Tensor:
        """The raw action that stands for `action`; inverse of `action`."""
        return action

    def std(self, params: Tensor) -> Tensor | None:
        """Standard deviations for the log `[..., A]`, or None where the word means nothing."""
        return None

    def set_std(self, std: float) -> None:
        """Set the standard deviation that all states share, in units of the network."""
        raise ValueError(f"std is {std}, but {type(self).__name__} has no standard deviation of its own; leave it out")

    def at_bound(self, params: Tensor) -> Tensor:
        """How many standard deviations in `params` sit on a bound of their range, an int64 scalar."""
        return torch.zeros((), dtype=torch.int64, device=params.device)

    def init_last_layer(self, layer: nn.Linear) -> None:
        """Give the network's last layer (the one with `inputs` outputs) the start this head asks for."""
        if layer.out_features != self.inputs:
            raise ValueError(f"the last layer has {layer.out_features} outputs but this head reads {self.inputs}")
