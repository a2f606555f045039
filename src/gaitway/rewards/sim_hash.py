"""Counts of places by locality-sensitive hashing: a place that was seldom visited is worth a bonus.

Tang et al. 2017, "#Exploration: a study of count-based exploration for deep reinforcement learning", arXiv 1611.04717.
With a random Gaussian matrix A [D, k] the code of an observation x is sign(x A), k numbers of -1, 0 and 1; observations
at a small angle have the same one. Each of six tables of a prime number b of cells counts it in the cell

    (sum_j code_j 2^j) mod b

and the count of x is the least of the six, so that two codes are confused only where they meet in every table:

    bonus   1 / sqrt(max(1, count))

Codes tell directions apart and not lengths: x and 2 x are one place. All of it is exact integer arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gaitway.agents.observations import input_size
from gaitway.algorithms.algorithm import Coefficient, Now
from gaitway.core.ranges import Count
from gaitway.core.seeding import stream
from gaitway.core.transitions import final_observations
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import EnvSpec
from gaitway.rewards.reached import judged_groups, reached
from gaitway.rewards.source import When

PRIMES = (999931, 999953, 999959, 999961, 999979, 999983)


class SimHash:
    """Counts of observations with D numbers, on a device."""

    def __init__(self, size: int, key_size: int = 32, seed: int = 0, device: torch.device | str = "cpu") -> None:
        if size < 1 or key_size < 1:
            raise ValueError(f"{size} numbers and keys of {key_size} bits leave nothing to count; use at least 1 each")
        draw = torch.randn(size, key_size, generator=stream(seed, "sim_hash"), dtype=torch.float64)
        self.projection = draw.to(device)
        """A [D, k]; float64, because a product in TF32 may turn signs."""
        powers = [[2**bit % prime for bit in range(key_size)] for prime in PRIMES]
        self._powers = torch.tensor(powers, device=device)
        starts = [sum(PRIMES[:number]) for number in range(len(PRIMES))]
        self._starts = torch.tensor(starts, device=device)[:, None]
        self._primes = torch.tensor(PRIMES, device=device)[:, None]
        self.cells = torch.zeros(sum(PRIMES), dtype=torch.int32, device=device)
        """The six tables, one behind the other."""

    def keys(self, x: Tensor) -> Tensor:
        """Observations [N, D] -> the cell of each in every table, int64 [6, N], from 0 to b - 1."""
        code = (x.double() @ self.projection).sign().long()
        sums = torch.stack([(code * powers).sum(-1) for powers in self._powers])
        return sums.remainder(self._primes)

    def add(self, keys: Tensor, times: Tensor | None = None) -> None:
        """Count observations by their keys, each as often as it is there; `times` [N] says how often instead of 1."""
        cells = (keys + self._starts).flatten()
        once = torch.ones_like(cells, dtype=torch.int32) if times is None else times.int().repeat(len(keys))
        self.cells.index_add_(0, cells, once)

    def counts(self, keys: Tensor) -> Tensor:
        """How often the observations with these keys were counted, int32 [N]."""
        return self.cells[keys + self._starts].amin(0)

    def bonus(self, keys: Tensor) -> Tensor:
        return self.counts(keys).clamp(min=1).float().rsqrt()

    def unique(self) -> Tensor:
        """How many places were visited: cells that are not empty, a mean over the tables."""
        return (self.cells > 0).sum() / len(PRIMES)

    def state_dict(self) -> dict[str, Any]:
        """The cells that are not empty."""
        cells = self.cells.nonzero().squeeze(-1)
        return {"cells": cells.int().cpu(), "counts": self.cells[cells].cpu(), "projection": self.projection.cpu()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["projection"].shape != self.projection.shape:
            raise ValueError(
                f"the stored counts are of observations and keys {list(state['projection'].shape)}, these of "
                f"{list(self.projection.shape)}; go on with the groups and the key_size of before"
            )
        self.projection.copy_(state["projection"])
        self.cells.zero_()
        self.cells[state["cells"].long().to(self.cells.device)] = state["counts"].to(self.cells.device)


class SimHashReward:
    """A bonus for places that were seldom visited; their number as a metric. `weight: 0` only counts."""

    name = "sim_hash"
    when: When = "drawn"

    def __init__(
        self,
        spec: EnvSpec,
        weight: Coefficient = 1.0,
        groups: tuple[str, ...] = (),
        key_size: Count = 32,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        """Places are told apart by `groups` (none: what an actor reads by default)."""
        chosen = judged_groups(spec, groups)
        self.weight = weight
        self.groups = chosen
        self.reads = (*(f"env/obs/{name}" for name in chosen), *final_observations(chosen))
        self.table = SimHash(input_size(spec, chosen), key_size, seed, device)

    def annotate(self, ws: Workspace) -> None:
        places = reached(ws, self.groups)
        ws["reward/sim_hash"] = self.table.bonus(self.table.keys(places.flatten(0, -2))).view(places.shape[:-1])

    @torch.no_grad()
    def update(self, ws: Workspace, now: Now) -> dict[str, Tensor]:
        places = reached(ws, self.groups).flatten(0, -2)
        self.table.add(self.table.keys(places), ws["env/valid"].flatten() if "env/valid" in ws else None)
        return {"sim_hash/unique_states": self.table.unique()}

    def state_dict(self) -> dict[str, Any]:
        return self.table.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.table.load_state_dict(state)
