"""Observations of foreign simulators as named groups with named components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from torch import Tensor

from gaitway.core.user_code import UserCodeError
from gaitway.envs.spec import Component, ObservationGroup

Terms = Mapping[str, Mapping[str, int | Sequence[int]]]
"""{group: {piece: shape}}, the pieces in the order in which they lie in the group."""


def as_groups(obs: Any, further: Mapping[str, Any] = {}) -> dict[str, Tensor]:
    """Groups by name: a TensorDict or a mapping as it is, a bare tensor as `policy` with what extras add to it."""
    if isinstance(obs, Tensor):
        return {"policy": obs} | tensors_of(further, "extras")
    return tensors_of(obs, "the observation")


def tensors_of(groups: Any, what: str) -> dict[str, Tensor]:
    """A mapping of names to tensors, a TensorDict among them; groups within groups are refused."""
    if not hasattr(groups, "items"):
        raise UserCodeError(
            f"{what} is a {type(groups).__name__}; a tensor, or a mapping of names to tensors, is needed"
        )
    found = dict(groups.items())
    for name, value in found.items():
        if not isinstance(value, Tensor):
            raise UserCodeError(
                f"group {name!r} of {what} is a {type(value).__name__}; groups are tensors: let the simulator "
                "concatenate the terms of a group (concatenate_terms=True)"
            )
    return found


def split(obs: Mapping[str, Tensor], segments: Terms) -> dict[str, Tensor]:
    """The groups, and each piece that `segments` names as a group of its own: views, nothing is copied."""
    found = dict(obs)
    for group, pieces in segments.items():
        if group not in obs:
            raise UserCodeError(f"segments describes {group!r}, and there is {sorted(obs)}")
        whole, start = obs[group], 0
        sizes = {name: _numbers(shape) for name, shape in pieces.items()}
        if sum(sizes.values()) != whole.shape[-1]:
            raise UserCodeError(
                f"segments of {group!r} add up to {sum(sizes.values())} numbers, and it has {whole.shape[-1]}: {sizes}"
            )
        for name, shape in pieces.items():
            if name in obs:
                raise UserCodeError(
                    f"segments of {group!r} name {name!r}, which is a group already; rename one of them"
                )
            piece = whole[..., start : start + sizes[name]]
            found[name] = piece if isinstance(shape, int) or len(shape) < 2 else piece.unflatten(-1, tuple(shape))
            start += sizes[name]
    return found


def described(obs: Mapping[str, Tensor], terms: Terms, segments: Terms) -> tuple[ObservationGroup, ...]:
    """Groups with their components, named by the simulator's terms or by segments where they are known."""
    return tuple(
        ObservationGroup(name, _components(name, value, terms, segments), tuple(value.shape[1:]), _dtype(value))
        for name, value in obs.items()
    )


def _components(name: str, value: Tensor, terms: Terms, segments: Terms) -> tuple[Component, ...]:
    pieces = {piece: _numbers(shape) for piece, shape in (segments.get(name) or terms.get(name) or {}).items()}
    shape = value.shape[1:]
    if len(shape) == 1 and sum(pieces.values()) == shape[0] and pieces:
        return tuple(Component(piece, size) for piece, size in pieces.items())
    return (Component(name, shape[-1] if shape else 1),)


def _numbers(shape: int | Sequence[int]) -> int:
    return int(shape) if isinstance(shape, int) else prod(shape)


def _dtype(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")
