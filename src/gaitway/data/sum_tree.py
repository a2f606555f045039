"""SumTree: non-negative weights, drawn from in proportion, changed many at a time.

Level 0 holds the weights, each entry of the next level the sum of `BRANCHES` entries below it, up to a single total. A
draw walks down: it takes the branch in which its share of the total falls. Every step does the same few operations for
all draws at once, with shapes that do not depend on the weights and without waiting for the device, so a CUDA graph can
record it. Sums are always computed from what is below them, so nothing drifts. A tree of the smallest positive weights
stands beside the sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

BRANCHES = 64
"""Wide, because an operation on a few thousand numbers costs as much as one on a few."""
NEVER = float("inf")


class SumTree:
    """Weights 0..size-1, all 0 at first; float64."""

    def __init__(self, size: int, device: torch.device | str = "cpu") -> None:
        if size < 1:
            raise ValueError(f"the size is {size}; a tree has at least one weight")
        self.size = size
        with torch.inference_mode(False):
            self._zero = torch.zeros((), dtype=torch.float64, device=device)
            self._sums, self._least = [_level(size, 0.0, device)], [_level(size, NEVER, device)]
            while len(self._sums[-1]) > BRANCHES:
                entries = len(self._sums[-1]) // BRANCHES
                self._sums.append(_level(entries, 0.0, device))
                self._least.append(_level(entries, NEVER, device))

    @staticmethod
    def bytes_needed(size: int) -> int:
        """Memory of a tree."""
        words, level = 0, size
        while True:
            level = -(-level // BRANCHES)
            words += 2 * level * BRANCHES
            if level == 1:
                return words * torch.float64.itemsize

    @property
    def device(self) -> torch.device:
        return self._sums[0].device

    @property
    def weights(self) -> Tensor:
        """All weights, float64 `[size]`: a view, to be read only."""
        return self._sums[0][: self.size]

    @property
    def total(self) -> Tensor:
        """Sum of all weights, float64 `[]`."""
        return self._sums[-1].sum()

    @property
    def least(self) -> Tensor:
        """The smallest weight that is not 0, float64 `[]`; infinite if there is none."""
        return self._least[-1].amin()

    def update(self, index: Tensor, weight: Tensor) -> None:
        """Set weights `index`, int64 `[n]`, to `weight` `[n]`; of an entry named twice the larger one stays."""
        weight = weight.detach().to(torch.float64)
        if index.shape != weight.shape or index.ndim != 1:
            raise ValueError(f"index is {list(index.shape)} and weight {list(weight.shape)}; both must be [n]")
        if self.device.type == "cpu" and len(index):  # looking is cheap there; elsewhere it would wait for the device
            self._check(index, weight)
        sums = self._sums[0]
        sums.index_fill_(0, index, 0.0).scatter_reduce_(0, index, weight, "amax")
        values = sums.index_select(0, index)
        self._least[0].index_copy_(0, index, values.masked_fill(values == 0, NEVER))
        for below in range(len(self._sums) - 1):
            index = index // BRANCHES  # entries named twice get the same value twice
            for levels, reduce in ((self._sums, torch.sum), (self._least, torch.amin)):
                parts = levels[below].view(-1, BRANCHES).index_select(0, index)
                levels[below + 1].index_copy_(0, index, reduce(parts, -1))

    def build(self, weights: Tensor) -> None:
        """Set all weights, `[size]`."""
        if weights.shape != (self.size,):
            raise ValueError(f"weights are {list(weights.shape)}; this tree takes [{self.size}]")
        weights = weights.detach().to(self._sums[0])
        if self.device.type == "cpu":
            self._check(torch.arange(self.size), weights)
        self._sums[0][: self.size] = weights
        for below in range(len(self._sums) - 1):
            sums = self._sums[below].view(-1, BRANCHES).sum(-1)
            self._sums[below + 1][: len(sums)] = sums
        self._find_least()

    def find(self, share: Tensor) -> Tensor:
        """The entries, int64 `[n]`, in which these shares of the total, float64 `[n]` from 0 to 1, fall when all
        weights are laid side by side. An entry of weight 0 is never among them, unless all are 0."""
        rest = share * self.total
        entry = torch.zeros_like(share, dtype=torch.int64)
        for level in reversed(self._sums):
            parts = level.view(-1, BRANCHES).index_select(0, entry)  # [n, BRANCHES]
            ends = parts.cumsum(-1)
            # a sum may be rounded to more than its parts, laid side by side, reach; then the last of them is meant
            rest = torch.minimum(rest, torch.nextafter(ends[:, -1], self._zero)).unsqueeze(-1)
            branch = torch.searchsorted(ends, rest, right=True)
            rest = (rest - (ends - parts).gather(-1, branch)).squeeze(-1).clamp_min_(0)  # rounding may pass below 0
            entry = torch.add(branch.squeeze(-1), entry, alpha=BRANCHES)
        return entry

    def clear(self) -> None:
        """All weights become 0."""
        for sums, least in zip(self._sums, self._least, strict=True):
            sums.zero_()
            least.fill_(NEVER)

    def to(self, device: torch.device | str) -> None:
        with torch.inference_mode(False):
            self._sums = [level.to(device) for level in self._sums]
            self._least = [level.to(device) for level in self._least]
            self._zero = self._zero.to(device)

    def state_dict(self) -> dict[str, Any]:
        """Weights and sums; the order in which sums were rounded is part of what a draw depends on."""
        return {"size": self.size, "sums": [level.clone() for level in self._sums]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["size"] != self.size or [len(level) for level in state["sums"]] != [len(each) for each in self._sums]:
            raise ValueError(f"the stored tree has {state['size']} weights, this one {self.size}; make them equal")
        for level, stored in zip(self._sums, state["sums"], strict=True):
            level.copy_(stored)
        self._find_least()

    def _find_least(self) -> None:
        weights = self._sums[0]
        self._least[0].copy_(torch.where(weights > 0, weights, NEVER))
        for below in range(len(self._least) - 1):
            least = self._least[below].view(-1, BRANCHES).amin(-1)
            self._least[below + 1][: len(least)] = least

    def _check(self, index: Tensor, weight: Tensor) -> None:
        low, high = (float(bound) for bound in torch.aminmax(weight))  # NaN, if there is one
        if not 0 <= low <= high < NEVER:
            raise ValueError(f"the weights lie between {low} and {high}; use finite ones, 0 or more")
        first, last = (int(bound) for bound in torch.aminmax(index))
        if not 0 <= first <= last < self.size:
            raise IndexError(f"entries {first}..{last} are not all in 0..{self.size - 1}")


def _level(entries: int, value: float, device: torch.device | str) -> Tensor:
    """`entries` and what is missing to a multiple of `BRANCHES`."""
    padded = -(-entries // BRANCHES) * BRANCHES
    return torch.full((padded,), value, dtype=torch.float64, device=device)
