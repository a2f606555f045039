"""Parameters of one network into another, and as one vector. The target always comes first; its tensors stay the same
objects in the same memory, so optimisers, captured programs and other processes keep seeing them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn


@torch.no_grad()
def soft_update(target: nn.Module, source: nn.Module, rho: float) -> None:
    """Soft update (Polyak) of a target network: `target <- rho * source + (1 - rho) * target` for parameters; buffers
    (running statistics, counts) are copied."""
    if not 0.0 <= rho <= 1.0:
        raise ValueError(f"rho is {rho}; use a number from 0 (the target stays) to 1 (it becomes the source)")
    mine, theirs, mine_buffers, their_buffers = _matching(target, source)
    if mine:
        torch._foreach_lerp_(mine, theirs, rho)
    _copy(mine_buffers, their_buffers)


@torch.no_grad()
def copy_parameters(target: nn.Module, source: nn.Module) -> None:
    """The target's parameters and buffers become equal to the source's; nothing is shared afterwards."""
    mine, theirs, mine_buffers, their_buffers = _matching(target, source)
    _copy(mine, theirs)
    _copy(mine_buffers, their_buffers)


def parameters_to_vector(parameters: nn.Module | Iterable[Tensor]) -> Tensor:
    """All parameters one after the other, `[P]`, a copy; a module's in the order of `parameters()`. Keeps the graph."""
    tensors = _tensors(parameters)
    if not tensors:
        return torch.zeros(0)
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


@torch.no_grad()
def vector_to_parameters(vector: Tensor, parameters: nn.Module | Iterable[Tensor]) -> None:
    """Write `vector` `[P]` into the parameters, in place; it must hold exactly as many numbers as they have."""
    tensors = _tensors(parameters)
    count = sum(tensor.numel() for tensor in tensors)
    if vector.shape != (count,):
        raise ValueError(f"the vector is {list(vector.shape)} and the parameters hold {count} numbers; pass [{count}]")
    pieces = vector.split([tensor.numel() for tensor in tensors])
    for tensor, piece in zip(tensors, pieces, strict=True):
        tensor.copy_(piece.view_as(tensor))


def _tensors(parameters: nn.Module | Iterable[Tensor]) -> list[Tensor]:
    return list(parameters.parameters() if isinstance(parameters, nn.Module) else parameters)


def _matching(target: nn.Module, source: nn.Module) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
    """Parameters of both, then buffers of both, in one order; another structure is a ValueError."""
    pairs = []
    for kind in ("named_parameters", "named_buffers"):
        mine, theirs = dict(getattr(target, kind)()), dict(getattr(source, kind)())
        difference = mine.keys() ^ theirs.keys()
        if difference:
            raise ValueError(
                f"target and source differ in {sorted(difference)[:8]}; both must be built alike, in the order "
                "(target, source)"
            )
        for name, tensor in mine.items():
            other = theirs[name]
            if tensor.shape != other.shape or tensor.dtype != other.dtype or tensor.device != other.device:
                raise ValueError(
                    f"{name!r} is {list(tensor.shape)} {tensor.dtype} on {tensor.device} in the target and "
                    f"{list(other.shape)} {other.dtype} on {other.device} in the source; both must agree"
                )
        pairs += [list(mine.values()), [theirs[name] for name in mine]]
    return pairs[0], pairs[1], pairs[2], pairs[3]


def _copy(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
