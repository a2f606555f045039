"""The undiscounted return of the first episode of every column, and the rows that belong to it.

REINFORCE learns from whole episodes, one per column, and evaluations report them. Rows after the first end belong to
another episode, or repeat the final row; they are masked out.
"""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from gaitway.functional.checks import as_flag, check_rows


@overload
def cumulated_reward(reward: Tensor, done: Tensor, reduce: Literal[True] = True) -> float: ...
@overload
def cumulated_reward(reward: Tensor, done: Tensor, reduce: Literal[False]) -> Tensor: ...
def cumulated_reward(reward: Tensor, done: Tensor, reduce: bool = True) -> float | Tensor:
    """Undiscounted return of the first episode of every column of step rows `[T, B]`, its done row included.

    The mean over columns, or with `reduce=False` one return per column, `[B]`. Every column must hold a done row.
    """
    check_rows(reward=reward)
    return episode_sums(reward, until_first_end(as_flag("done", done, reward)), reduce)


def until_first_end(done: Tensor) -> Tensor:
    """Mask of the rows up to and including the first done row, bool `[T, B]`; a column without one is a ValueError."""
    never = (~done.any(0)).nonzero().flatten().tolist()
    if never:
        raise ValueError(
            f"columns {never[:8]} of {done.shape[1]} have no end in {len(done)} rows; run until every episode is over "
            f"(stop_variable='env/done'), or select the columns that ended"
        )
    ended = done.cumsum(0)
    return ended - done.to(ended.dtype) == 0  # no end in an earlier row


def episode_sums(reward: Tensor, mask: Tensor, reduce: bool) -> float | Tensor:
    """Sums of the rewards `[T, B]` where `mask` is true: their mean over columns, or one per column `[B]`."""
    sums = torch.where(mask, reward.detach(), 0).sum(0)
    return float(sums.mean()) if reduce else sums
