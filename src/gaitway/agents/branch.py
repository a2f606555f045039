"""One of the networks of an actor-critic with what it remembers.

input -> memory (perhaps) -> network
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from gaitway.core.config import configuration
from gaitway.core.ranges import Count
from gaitway.nn.fused_dense import FusedDense, has_triton
from gaitway.nn.memory import Memory


@configuration
class MemoryConfig:
    """A recurrent layer in front of a network."""

    kind: Literal["none", "gru", "lstm"] = "none"
    size: Count = 64
    layers: Count = 1
    sequence: Literal["auto", "padded", "stepwise"] = "auto"
    """How sequences run: `padded` cuts at resets, `stepwise` keeps shapes fixed; equal to 1e-5. `auto`: padded on the
    CPU, stepwise on a GPU."""


class Branch(nn.Module):
    """Input -> memory (perhaps) -> network."""

    def __init__(self, memory: Memory | None, network: nn.Module, mode: str) -> None:
        super().__init__()
        self.mode, self.memory, self.network = mode, memory, network
        self._fused: FusedDense | None = None

    def fuse(self, fuses: bool) -> None:
        """Let the network's layers be one kernel each from now on, or not, where compiled programs allow it."""
        self._fused = FusedDense.of(self.network) if fuses and has_triton() else None

    def through(self, x: Tensor) -> Tensor:
        """What the network makes of its input."""
        return (self.network(x) if self._fused is None else self._fused(x)).float()

    def forward(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """One step: [B, D] and the state before it -> outputs [B, ...] and the state after it."""
        if self.memory is not None:
            assert state is not None
            x, state = self.memory.step(x, state)
            state = state.float()
        return self.through(x), state

    def remember(self, x: Tensor, state: Tensor) -> Tensor:
        """The state after one step, without what the network makes of it."""
        assert self.memory is not None
        return self.memory.step(x, state)[1].float()

    def recalled(self, x: Tensor, state: Tensor | None, starts: Tensor | None) -> Tensor:
        """What the network reads of [T, B, D] from the state before row 0; `starts` [T, B] marks rows whose state is
        zeroed first."""
        if self.memory is None:
            return x
        assert state is not None
        assert starts is not None
        mode = self.mode if self.mode != "auto" else "stepwise" if x.is_cuda else "padded"
        return self.memory.sequence(x, state, starts, mode)

    def sequence(self, x: Tensor, state: Tensor | None, starts: Tensor | None) -> Tensor:
        """The outputs of [T, B, D], see `recalled`."""
        return self.through(self.recalled(x, state, starts))


class SideBySide(nn.Module):
    """Networks of the same input, their outputs concatenated."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([network(x) for network in self.networks], -1)
