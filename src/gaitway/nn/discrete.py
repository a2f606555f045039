"""Heads for discrete actions: one choice, several choices, several switches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gaitway.core.seeding import fill
from gaitway.nn.head import Head


class Categorical(Head):
    """One of `n` choices; params are normalised log-probabilities `[..., n]`, raw is the index `[...]` from 0.

    Environments whose smallest action is `start` get `raw + start`.
    """

    raw_dtype = torch.int64

    def __init__(self, n: int, start: int = 0) -> None:
        super().__init__()
        if n < 1:
            raise ValueError(f"n is {n}; there must be at least one choice")
        self.n, self.start = n, start
        self.inputs, self.num_params, self.raw_shape = n, n, ()
        self.raw_is_action = start == 0

    def forward(self, output: Tensor) -> Tensor:
        return output.log_softmax(-1)

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        return _race(params, generator)

    def sampler(self, generator: torch.Generator | None) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """The same race in memory that is used again, and the last steps of it in NumPy, whose calls are shorter."""
        if generator is None:
            return super().sampler(None)
        params = clocks = speeds = winners = torch.empty(0)
        arrays: tuple[np.ndarray, ...] = ()

        def draw(output: Tensor) -> tuple[Tensor, Tensor]:
            nonlocal params, clocks, speeds, winners, arrays
            if clocks.shape != output.shape:
                params, clocks, speeds = (torch.empty(output.shape, dtype=output.dtype) for _ in range(3))
                winners = torch.empty(output.shape[:-1], dtype=torch.int64)
                arrays = clocks.numpy(), speeds.numpy(), winners.numpy()
            torch._log_softmax(output, -1, False, out=params)
            fill(clocks, generator, "exponential_")
            torch.exp(params, out=speeds)
            times, speed, winner = arrays
            np.divide(speed, times, out=speed)
            speed.argmax(-1, out=winner)
            return params, winners

        return draw

    def mode(self, params: Tensor) -> Tensor:
        return params.argmax(-1)

    def log_prob(self, params: Tensor, raw: Tensor) -> Tensor:
        return params.gather(-1, raw.unsqueeze(-1)).squeeze(-1)

    def entropy(self, params: Tensor) -> Tensor:
        return -(params.exp() * params).sum(-1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        return (old.exp() * (old - new)).sum(-1)

    def action(self, raw: Tensor) -> Tensor:
        return raw + self.start if self.start else raw

    def raw(self, action: Tensor) -> Tensor:
        return action - self.start if self.start else action

    def support(self) -> tuple[object, ...]:
        return self.n, self.start


class MultiCategorical(Head):
    """K independent choices with `dims` values each; raw is `[..., K]` int64, every entry from 0.

    The network emits `sum(dims)` logits, part after part. params hold log-probabilities `[..., K * max(dims)]`: parts
    are padded to one width with impossible choices, so that all of them are computed at once.
    """

    raw_dtype = torch.int64
    _columns: Tensor
    _start: Tensor

    def __init__(self, dims: Sequence[int], start: Sequence[int] = ()) -> None:
        super().__init__()
        self.dims = tuple(int(n) for n in dims)
        if not self.dims or min(self.dims) < 1:
            raise ValueError(f"dims is {self.dims}; give the number of choices of each part, at least 1")
        offsets = _offsets(start, len(self.dims))
        self.width = max(self.dims)
        self.inputs, self.num_params, self.raw_shape = sum(self.dims), len(self.dims) * self.width, (len(self.dims),)
        self.raw_is_action = not any(offsets)
        columns = [part * self.width + choice for part, n in enumerate(self.dims) for choice in range(n)]
        self.register_buffer("_columns", torch.tensor(columns), persistent=False)
        self.register_buffer("_start", torch.tensor(offsets), persistent=False)

    def forward(self, output: Tensor) -> Tensor:
        if self.inputs == self.num_params:
            padded = output
        else:
            # Finite, because 0 * -inf is NaN; so low that its probability is exactly 0.
            impossible = torch.finfo(output.dtype).min / 2
            padded = output.new_full((*output.shape[:-1], self.num_params), impossible)
            padded.index_copy_(-1, self._columns, output)
        return self._parts(padded).log_softmax(-1).flatten(-2)

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        return _race(self._parts(params), generator)

    def mode(self, params: Tensor) -> Tensor:
        return self._parts(params).argmax(-1)

    def log_prob(self, params: Tensor, raw: Tensor) -> Tensor:
        return self._parts(params).gather(-1, raw.unsqueeze(-1)).sum((-2, -1))

    def entropy(self, params: Tensor) -> Tensor:
        return -(params.exp() * params).sum(-1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        return (old.exp() * (old - new)).sum(-1)

    def action(self, raw: Tensor) -> Tensor:
        return raw if self.raw_is_action else raw + self._start

    def raw(self, action: Tensor) -> Tensor:
        return action if self.raw_is_action else action - self._start

    def support(self) -> tuple[object, ...]:
        return self.dims, self._start.tolist()

    def _parts(self, params: Tensor) -> Tensor:
        """`[..., K * width] -> [..., K, width]`."""
        return params.unflatten(-1, (len(self.dims), self.width))


class Bernoulli(Head):
    """`n` independent switches; params are logits `[..., n]`, raw is 0 or 1 `[..., n]`.

    Floats by default. With `as_int` raw is int64, and the environment gets `raw + start`.
    """

    _start: Tensor

    def __init__(self, n: int, start: Sequence[int] = (), as_int: bool = False) -> None:
        super().__init__()
        if n < 1:
            raise ValueError(f"n is {n}; there must be at least one switch")
        offsets = _offsets(start, n)
        if any(offsets) and not as_int:
            raise ValueError(f"start {tuple(start)} needs as_int=True: float switches are 0 or 1")
        self.n = n
        self.inputs, self.num_params, self.raw_shape = n, n, (n,)
        self.raw_dtype = torch.int64 if as_int else torch.float32
        self.raw_is_action = not any(offsets)
        self.register_buffer("_start", torch.tensor(offsets), persistent=False)

    def forward(self, output: Tensor) -> Tensor:
        return output

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        with torch.no_grad():
            uniform = fill(torch.empty_like(params, memory_format=torch.contiguous_format), generator, "uniform_")
            return (uniform < params.sigmoid()).to(self.raw_dtype)

    def mode(self, params: Tensor) -> Tensor:
        return (params > 0).to(self.raw_dtype)

    def log_prob(self, params: Tensor, raw: Tensor) -> Tensor:
        return (raw.to(params.dtype) * params - F.softplus(params)).sum(-1)

    def entropy(self, params: Tensor) -> Tensor:
        return (F.softplus(params) - params * params.sigmoid()).sum(-1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        return (old.sigmoid() * (old - new) - F.softplus(old) + F.softplus(new)).sum(-1)

    def action(self, raw: Tensor) -> Tensor:
        return raw if self.raw_is_action else raw + self._start

    def raw(self, action: Tensor) -> Tensor:
        return action if self.raw_is_action else action - self._start

    def support(self) -> tuple[object, ...]:
        return self.n, self._start.tolist()


def _race(log_probs: Tensor, generator: torch.Generator) -> Tensor:
    """Index over the last axis, drawn by an exponential race: each choice arrives after Exp(1) / p, the first wins."""
    with torch.no_grad():
        clocks = fill(torch.empty_like(log_probs, memory_format=torch.contiguous_format), generator, "exponential_")
        return (log_probs.exp() / clocks).argmax(-1)


def _offsets(start: Sequence[int], parts: int) -> list[int]:
    offsets = [int(value) for value in start] or [0] * parts
    if len(offsets) != parts:
        raise ValueError(f"start has {len(offsets)} entries for {parts} parts; give one per part, or none for zeros")
    return offsets
