"""A rollout that keeps rows of the rollouts before it, for losses that may learn from what earlier policies saw.

With rollouts of T rows and a dilation d the newest floor(d T) rows are kept, oldest first:

    T = 4, d = 2.5:    rows 0..3    0..7    2..11    6..15    10..19    ...

It grows to that length, then every new rollout pushes out the oldest rows, of all variables alike. Time runs on from
row to row, so that sequences may be learnt from and nothing has a seam; the state that a memory had before row 0 is the
one that was stored there, by the weights of that time. Labels of a teacher stay right whoever visited a state; returns,
advantages and probability ratios do not, so that PPO's losses cannot learn from such rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gaitway.core.workspace import Workspace


class RollingRollout:
    """The newest `floor(dilation * T)` rows of all rollouts of T rows that were added."""

    def __init__(self, dilation: float = 1.0) -> None:
        if not 1.0 <= dilation < math.inf:
            raise ValueError(f"dilation is {dilation}; use 1 for the present rollout alone, or more")
        self.dilation = dilation
        self._memory: dict[str, Tensor] = {}
        self._rows = 0

    @property
    def rows(self) -> int:
        """Rows that are kept now."""
        return self._rows

    @torch.no_grad()
    def add(self, ws: Workspace) -> Workspace:
        """Append the rows of a rollout, which goes on where the one before ended; returns what is kept, in memory that
        is used again by the next call."""
        if self.dilation == 1.0:
            return ws
        steps, capacity = ws.T, math.floor(self.dilation * ws.T)
        if not self._memory:
            self._memory = {name: ws[name].new_zeros(_rows(ws, name, capacity), *ws[name].shape[1:]) for name in ws}
        self._check(ws, capacity)
        kept = min(self._rows, capacity - steps)
        first = self._rows - kept
        for name, memory in self._memory.items():
            if first:
                memory[:kept] = memory[first : first + kept].clone()
            memory[kept : kept + len(ws[name])] = ws[name]  # row 0 takes the place of the extra row before it
        self._rows = kept + steps
        return self._shown(ws.extra_row)

    def clear(self) -> None:
        """Forget everything: what comes next does not go on from it."""
        self._memory, self._rows = {}, 0

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self._rows, "memory": {name: value.clone() for name, value in self._memory.items()}}

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device | str = "cpu") -> None:
        self._rows = state["rows"]
        self._memory = {name: value.to(device) for name, value in state["memory"].items()}

    def _shown(self, extra_row: frozenset[str]) -> Workspace:
        lengths = {name: self._rows + len(memory) - self._capacity for name, memory in self._memory.items()}
        shown = {name: memory[: lengths[name]] for name, memory in self._memory.items()}
        return Workspace.packed(shown, extra_row=extra_row)

    @property
    def _capacity(self) -> int:
        return min(len(memory) for memory in self._memory.values())

    def _check(self, ws: Workspace, capacity: int) -> None:
        expected = {name: (_rows(ws, name, capacity), *ws[name].shape[1:]) for name in ws}
        found = {name: tuple(memory.shape) for name, memory in self._memory.items()}
        if expected != found:
            different = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
            raise ValueError(f"rollouts differ in {different[0]!r}; call clear() before one of another kind is added")


def _rows(ws: Workspace, name: str, capacity: int) -> int:
    """Rows of a variable in a rollout of `capacity` steps."""
    return capacity + ws.rows(name) - ws.T
