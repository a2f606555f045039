"""Arguments that name variables, rows and columns: what they may be, and what to say when they are not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def check_name(name: Any) -> str:
    """`name` if it is a string."""
    if not isinstance(name, str):
        raise TypeError(f"a variable name is a string, found {name!r}")
    return name


def unknown_variable(name: Any, known: Iterable[str]) -> Exception:
    """The exception for a variable that is not there."""
    if not isinstance(name, str):
        return TypeError(f"a variable name is a string, found {name!r}")
    return KeyError(
        f"no variable {name!r} in the workspace; it has {list(known)}.{nearest(name, known)} "
        f"Place the agent that writes {name!r} earlier in Agents(...)."
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """A guess at what was meant, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def check_span(start: int, stop: int) -> None:
    """Refuse rows `start <= t < stop` that count from the end or are none at all."""
    if start < 0:
        raise IndexError(f"rows {start}..{stop - 1} start before row 0; time does not count from the end")
    if stop <= start:
        raise ValueError(f"rows {start}..{stop - 1} are empty; stop must be greater than start")


def common_size(sizes: Mapping[str, int], what: str) -> int:
    """The size all variables share, 0 if there are none."""
    first = next(iter(sizes), None)
    for name, size in sizes.items():
        if first is not None and size != sizes[first]:
            raise ValueError(f"variable {first!r} has {sizes[first]} {what} but {name!r} has {size}; they must agree")
    return 0 if first is None else sizes[first]


def column_index(index: Tensor | Sequence[int] | Sequence[bool], batch: int) -> Tensor:
    """Columns as int64 `[n]`; a bool mask becomes the positions of its true elements."""
    columns = torch.as_tensor(index)
    if columns.dtype is torch.bool:
        if columns.shape != (batch,):
            raise ValueError(f"a mask of columns must have shape [{batch}], found {list(columns.shape)}")
        return columns.nonzero().squeeze(1)
    if columns.numel() == 0:
        return columns.new_zeros(0, dtype=torch.int64)
    if columns.dim() != 1 or columns.dtype.is_floating_point:
        raise TypeError(f"columns are integers [n] or a bool mask, found {list(columns.shape)} {columns.dtype}")
    # A look at device memory would stall it; there the kernel itself refuses a column that does not exist.
    if columns.device.type == "cpu" and not 0 <= int(columns.min()) <= int(columns.max()) < batch:
        raise IndexError(f"columns must lie in 0..{batch - 1}, found {int(columns.min())}..{int(columns.max())}")
    return columns.to(torch.int64)
