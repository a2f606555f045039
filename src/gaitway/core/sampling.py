"""Random parts of a workspace: columns and windows of time. Every draw comes from the generator passed in."""

from __future__ import annotations

import torch
from torch import Tensor

from gaitway.core.workspace import Workspace


def select_random(ws: Workspace, n: int, generator: torch.Generator, *, replace: bool = True) -> Workspace:
    """n uniform columns, with replacement or as the start of a permutation."""
    if replace and ws.B > 0:
        return ws.select(torch.randint(ws.B, (n,), generator=generator, device=generator.device))
    if n > ws.B:
        raise ValueError(f"cannot draw {n} of {ws.B} columns; draw fewer, or use replace=True on a filled workspace")
    return ws.select(torch.randperm(ws.B, generator=generator, device=generator.device)[:n])


def select_windows(ws: Workspace, start: Tensor, length: int) -> Workspace:
    """`out[k, b] = var[start[b] + k, b]` for `k < length`; `start` is int64 `[B]`. Observations keep an extra row."""
    steps, batch = ws.T, ws.B
    if start.shape != (batch,) or start.dtype.is_floating_point:
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
