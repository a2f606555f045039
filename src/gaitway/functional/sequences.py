"""Episodes inside a rollout: where they start, one padded column per episode, and back.

A rollout `[T, B, ...]` holds pieces of episodes one after another in every column. Recurrent networks that read whole
sequences want one column per piece: `split_at_resets` makes them, `join_episodes` puts every row back where it was.
Columns are ordered by environment, then by time, so the pieces of one environment lie side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


def episode_starts(done: Tensor, first: Tensor | None = None) -> Tensor:
    """Which rows open an episode, bool `[T, B]`: the row after a `done` one.

    Row 0 is true only where `first` `[B]` is: by default it continues the episode of the rollout before, from the
    recurrent state stored in row 0.
    """
    done = _flags(done)
    starts = torch.zeros_like(done)
    starts[1:] = done[:-1]
    if first is not None:
        if first.shape != done.shape[1:]:
            raise ValueError(f"first is {list(first.shape)} but done is {list(done.shape)}; pass one flag per column")
        starts[:1] = first != 0
    return starts


@dataclass(frozen=True)
class EpisodeLayout:
    """The place of row t of column b when every piece of an episode gets a column of its own."""

    column: Tensor
    """int64 `[T, B]`, in 0..N-1: by environment, then by time."""
    row: Tensor
    """int64 `[T, B]`: steps since the piece began in this rollout."""
    num_episodes: int
    longest: int
    """Rows of the longest piece, at most T."""

    def split(self, x: Tensor, rows: int) -> Tensor:
        """`[T, B, ...]` -> `[rows, N, ...]`, zero where a piece has ended; `rows` must be at least `longest`."""
        padded = x.new_zeros((rows * self.num_episodes, *x.shape[2:]))
        padded.index_copy_(0, self._destination(), x.flatten(0, 1))
        return padded.unflatten(0, (rows, self.num_episodes))

    def join(self, padded: Tensor) -> Tensor:
        """`[rows, N, ...]` -> `[T, B, ...]`, the inverse of `split`."""
        return padded.flatten(0, 1).index_select(0, self._destination()).unflatten(0, tuple(self.column.shape))

    def _destination(self) -> Tensor:
        return (self.row * self.num_episodes + self.column).flatten()


def episode_layout(starts: Tensor) -> EpisodeLayout:
    """The layout for `starts` `[T, B]`; row 0 always opens a piece. Reads two numbers back from the device."""
    starts = _flags(starts).clone()
    rows, columns = starts.shape
    if rows == 0 or columns == 0:
        raise ValueError(f"the flags are {list(starts.shape)}; a rollout needs at least one row and one column")
    starts[0] = True
    column = starts.t().flatten().cumsum(0).view(columns, rows).t() - 1
    time = torch.arange(rows, device=starts.device).unsqueeze(1)
    row = time - torch.where(starts, time, 0).cummax(0).values
    num_episodes, longest = torch.stack((column[-1, -1] + 1, row.max() + 1)).tolist()
    return EpisodeLayout(column, row, num_episodes, longest)


def chained_layout(starts: Tensor) -> tuple[EpisodeLayout, Tensor] | None:
    """The layout that leaves one empty row in front of every piece but a column's first, for `starts` `[T, B]` on the
    CPU (in NumPy, whose operations start sooner).

    Columns stay the environments. Also returns where the empty rows are, as indices into the rows of `split` flattened.
    None if a column per piece pads less.
    """
    later = _flags(starts).numpy().copy()
    later[0] = False
    rows, columns = later.shape
    before, time = later.cumsum(0), np.arange(rows)[:, None]
    most, ends = int(before[-1].max()), int(before[-1].sum())
    longest = int((time - np.maximum.accumulate(np.where(later, time, 0))).max()) + 1
    if (rows + most) * columns > longest * (columns + ends):
        return None
    row, column = time + before, np.broadcast_to(np.arange(columns), later.shape)
    empty = ((row - 1) * columns + column)[later]
    layout = EpisodeLayout(torch.from_numpy(column.copy()), torch.from_numpy(row), columns, rows + most)
    return layout, torch.from_numpy(empty)


def split_at_resets(x: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
    """Cut `[T, B, ...]` into one padded column per episode.

    Returns `episodes` `[T, N, ...]` and `mask` `[T, N]`, where N counts the pieces of episodes in this rollout. Rows
    after the end of a piece are zero and masked (uninitialised memory could hold NaN, which survives a multiplication
    by 0 in the gradient of a recurrent network). Any trailing axes and any dtype; `x` may carry a gradient.
    """
    if x.shape[:2] != done.shape:
        raise ValueError(f"x is {list(x.shape)} but done is {list(done.shape)}; x must be [T, B, ...], done [T, B]")
    layout = episode_layout(episode_starts(done))
    mask = torch.ones_like(done, dtype=torch.bool)
    return layout.split(x, len(x)), layout.split(mask, len(x))


def join_episodes(padded: Tensor, mask: Tensor) -> Tensor:
    """Put the columns of `split_at_resets` back: `[T, N, ...]` and `[T, N]` -> `[T, B, ...]`, bit for bit.

    The columns must be those of whole environments, in their order: every environment has exactly T valid rows.
    """
    if mask.dtype != torch.bool or padded.shape[:2] != mask.shape:
        raise ValueError(
            f"padded is {list(padded.shape)} and mask is {mask.dtype} {list(mask.shape)}; "
            f"expected [T, N, ...] and a bool [T, N]"
        )
    rows = len(mask)
    flat = padded.transpose(0, 1)[mask.t()]  # [B * T, ...]: by environment, then by time
    if len(flat) % rows:
        raise ValueError(
            f"the mask has {len(flat)} valid rows, no multiple of T = {rows}; pass all episodes of each environment, "
            f"padded to T rows"
        )
    return flat.unflatten(0, (len(flat) // rows, rows)).transpose(0, 1).contiguous()


def _flags(flags: Tensor) -> Tensor:
    if flags.ndim != 2:
        raise ValueError(f"the flags are {list(flags.shape)}; they must be [T, B], without a trailing axis")
    return flags if flags.dtype == torch.bool else flags != 0
