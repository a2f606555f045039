"""Checks of the arguments of the functions in this folder: shapes, dtypes, flags."""

from __future__ import annotations

import torch
from torch import Tensor


def check_rows(**tensors: Tensor) -> None:
    """Refuse tensors that are not all `[T, B]`, of one shape and one floating dtype."""
    name, first = next(iter(tensors.items()))
    if first.ndim != 2:
        raise ValueError(f"{name} is {list(first.shape)}; it must be [T, B]: time first, then environments")
    check_alike(**tensors)


def check_alike(**tensors: Tensor) -> None:
    """Refuse tensors of different shapes or floating dtypes: broadcasting would mix samples in silence."""
    (first_name, first), *others = tensors.items()
    if not first.is_floating_point():
        raise ValueError(f"{first_name} is {first.dtype}; it must be floating point, call .float() on it")
    for name, tensor in others:
        if tensor.shape != first.shape:
            raise ValueError(
                f"{name} is {list(tensor.shape)} but {first_name} is {list(first.shape)}; all must be alike "
                f"(drop a trailing axis of one with squeeze(-1))"
            )
        if tensor.dtype != first.dtype:
            raise ValueError(f"{name} is {tensor.dtype} but {first_name} is {first.dtype}; convert one of them")


def as_flag(name: str, flag: Tensor, like: Tensor) -> Tensor:
    """`flag` as a boolean tensor of the shape of `like`; numbers other than zero are true."""
    if flag.shape != like.shape:
        raise ValueError(f"{name} is {list(flag.shape)} but reward is {list(like.shape)}; both must be alike")
    return flag if flag.dtype == torch.bool else flag != 0
