"""Keeps the agent of a worker equal to the one in this process: parameters, buffers, training flags.

Parameters lie in one piece of shared memory that the parent fills when a call starts and the worker copies from, if
anything changed. So the agent in the parent stays where it is (optimisers and NumPy views keep their memory), any way
to change it counts, and a run that takes long sees the weights it started with, not a mixture of later ones. Buffers
go both ways: what an agent counts in its worker, a normaliser for example, is seen in the parent when the call ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

ALIGNMENT = 64
"""Bytes; tensors start at multiples of it, as the allocator of PyTorch has them."""


@dataclass(frozen=True)
class Update:
    """What changed in the parent since the last call."""

    version: int
    """Of the parameters; the worker reads them if it has another one."""
    memory: Tensor | None
    """The parameters themselves, where there is no shared memory."""
    buffers: dict[str, Tensor]
    training: tuple[bool, ...]
    seed: int | None = None
    """For the process-wide generators of the worker, once after each `seed`."""


class ParameterMirror:
    """The parameters of an agent in one flat piece of memory, uint8 `[bytes]`, as of the last `update`."""

    def __init__(self, agent: nn.Module, memory: Tensor | None = None, shared: bool = True) -> None:
        """New memory, or that of another mirror of an equal agent."""
        self.version = 0
        self._places: dict[str, slice] = {}
        end = 0
        for name, parameter in agent.named_parameters():
            start = -(-end // ALIGNMENT) * ALIGNMENT
            end = start + parameter.numel() * parameter.itemsize
            self._places[name] = slice(start, end)
        if memory is None:
            memory = torch.zeros(max(end, 1), dtype=torch.uint8)
            if shared:
                memory.share_memory_()
        self.memory = memory

    def update(self, agent: nn.Module) -> None:
        """Take over what differs in `agent`."""
        changed = False
        for name, parameter in agent.named_parameters():
            mine, theirs = self._piece(name, parameter), parameter.detach().cpu()
            if not torch.equal(mine, theirs):
                mine.copy_(theirs)
                changed = True
        self.version += changed

    @torch.no_grad()
    def read_into(self, agent: nn.Module) -> None:
        """Set the parameters of `agent`, in place."""
        for name, parameter in agent.named_parameters():
            parameter.copy_(self._piece(name, parameter))

    def _piece(self, name: str, parameter: Tensor) -> Tensor:
        place = self._places.get(name)
        if place is None or place.stop - place.start != parameter.numel() * parameter.itemsize:
            raise RuntimeError(
                f"parameter {name!r} {list(parameter.shape)} is not what it was when the worker started; close() the "
                "agent and start() it again after a change of its networks"
            )
        return self.memory[place].view(parameter.dtype).view(parameter.shape)


class BufferRecord:
    """The buffers of a module as they were when both sides last agreed."""

    def __init__(self, module: nn.Module | None = None) -> None:
        """As they are now; without a module they never agreed."""
        named = () if module is None else module.named_buffers()
        self._known = {name: buffer.detach().clone() for name, buffer in named}

    def changes(self, module: nn.Module) -> dict[str, Tensor]:
        """Buffers that differ from the record, on the CPU, by name; the record is brought up to date."""
        changed = {}
        for name, buffer in module.named_buffers():
            known = self._known.get(name)
            if known is None or known.dtype is not buffer.dtype or not torch.equal(known, buffer):
                self._known[name] = buffer.detach().clone()
                changed[name] = self._known[name].cpu()
        return changed

    def accept(self, module: nn.Module, changed: Mapping[str, Tensor]) -> None:
        """Write the changes of the other side into `module` and the record."""
        set_buffers(module, changed)
        present = dict(module.named_buffers())
        self._known.update({name: present[name].detach().clone() for name in changed})


@torch.no_grad()
def set_buffers(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Set buffers by name; memory that fits is kept."""
    present = dict(module.named_buffers())
    for name, value in values.items():
        buffer = present.get(name)
        if buffer is not None and buffer.shape == value.shape and buffer.dtype is value.dtype:
            buffer.copy_(value)
            continue
        owner, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(owner), leaf, value if buffer is None else value.to(buffer.device))


def training_flags(module: nn.Module) -> tuple[bool, ...]:
    """Which of the modules inside are in training mode, in the order of `modules()`."""
    return tuple(each.training for each in module.modules())


def set_training_flags(module: nn.Module, flags: tuple[bool, ...]) -> None:
    """Undo `training_flags`."""
    for each, training in zip(module.modules(), flags, strict=True):
        each.training = training


@torch.no_grad()
def copy_state(target: nn.Module, source: nn.Module) -> None:
    """Parameters and buffers of `target` become those of `source`, by name, in place; devices may differ."""
    pairs: list[tuple[Tensor, Tensor]] = []
    for kind in ("named_parameters", "named_buffers"):
        mine: dict[str, Tensor] = dict(getattr(target, kind)())
        theirs: dict[str, Tensor] = dict(getattr(source, kind)())
        differ = [n for n in {**mine, **theirs} if n not in mine or n not in theirs or mine[n].shape != theirs[n].shape]
        if differ:
            raise ValueError(
                f"the agent of the worker and the source differ in {differ[:8]}; push an agent of the same structure, "
                "or name the part that is meant"
            )
        pairs += [(tensor, theirs[name]) for name, tensor in mine.items()]
    for tensor, value in pairs:
        tensor.copy_(value)
