"""Random parts of a workspace or of samples: columns, windows of time, minibatches. Every draw comes from the generator
passed in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from gaitway.core.indexing import common_size
from gaitway.core.workspace import Workspace


def select_random(ws: Workspace, n: int, generator: torch.Generator, *, replace: bool = True) -> Workspace:
    """n uniform columns, with replacement or as the start of a permutation."""
    if n < 0:
        raise ValueError(f"cannot draw {n} columns; use 0 or more")
    if replace and ws.B > 0:
        return ws.select(torch.randint(ws.B, (n,), generator=generator, device=generator.device))
    if n > ws.B:
        raise ValueError(f"cannot draw {n} of {ws.B} columns; draw fewer, or use replace=True on a filled workspace")
    return ws.select(torch.randperm(ws.B, generator=generator, device=generator.device)[:n])


def select_windows(ws: Workspace, start: Tensor | Sequence[int], length: int) -> Workspace:
    """`out[k, b] = var[start[b] + k, b]` for `k < length`; `start` is int64 `[B]`. Observations keep an extra row."""
    steps, batch = ws.T, ws.B
    start = torch.as_tensor(start)
    if start.shape != (batch,) or start.dtype.is_floating_point or start.dtype is torch.bool:
        raise ValueError(f"start is {list(start.shape)} {start.dtype}; it must be one integer per column, [{batch}]")
    if length < 1 or bool(((start < 0) | (start > steps - length)).any()):
        raise IndexError(f"windows of {length} rows must start in 0..{steps - length}, found {start.tolist()}")
    out = {}
    for name in ws:
        values = ws[name]
        ahead = torch.arange(length + len(values) - steps, device=values.device)
        rows = start.to(values.device) + ahead[:, None]
        out[name] = values[rows, torch.arange(batch, device=values.device)]
    return Workspace.packed(out, strict=ws.strict, extra_row=ws.extra_row)


def sample_windows(ws: Workspace, n_times: int, n_columns: int, length: int, generator: torch.Generator) -> Workspace:
    """`n_times` windows of `length` steps with a uniform start, `n_columns` distinct columns each, side by side."""
    steps, batch = ws.T, ws.B
    if not (1 <= length <= steps and 1 <= n_columns <= batch and n_times >= 1):
        raise ValueError(f"cannot draw {n_times} times {n_columns} columns x {length} rows from {batch} x {steps}")
    device = generator.device
    starts = torch.randint(steps - length + 1, (n_times,), generator=generator, device=device).tolist()
    pieces = []
    for start in starts:
        columns = torch.randperm(batch, generator=generator, device=device)[:n_columns]
        pieces.append(ws.slice(start, start + length).select(columns))
    return Workspace.cat(pieces)


def minibatches_of(
    fields: Mapping[str, Tensor], size: int, generator: torch.Generator, drop_last: bool = False
) -> Iterator[dict[str, Tensor]]:
    """Cut samples `[N, *e]`, as `Workspace.transitions()` gives them, into pieces of `size` in a random order: every
    sample exactly once, the same ones in all fields. `Workspace.minibatches` does it with columns."""
    if size < 1:
        raise ValueError(f"the minibatch size is {size}; use a positive number of samples")
    counts = {name: len(values) for name, values in fields.items()}
    order = torch.randperm(common_size(counts, "samples"), generator=generator, device=generator.device)
    for start in range(0, len(order), size):
        if not drop_last or start + size <= len(order):
            index = order[start : start + size]
            yield {name: values.index_select(0, index.to(values.device)) for name, values in fields.items()}
