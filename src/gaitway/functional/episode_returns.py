"""The first episode of every column: which rows belong to it, and what it earned.

Whole episodes, one per column, are what REINFORCE learns from and what evaluations report. Rows behind the first end
are another episode, or a finished environment that repeats itself; they do not count.
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
    """Undiscounted return of the first episode of every column of step rows `[T, B]`, the row that is done included.

    The mean over columns, or with `reduce=False` one number per column, `[B]`. Every column must hold an end.
    """
    check_rows(reward=reward)
    return episode_sums(reward, until_first_end(as_flag("done", done, reward)), reduce)


def until_first_end(done: Tensor) -> Tensor:
    """Rows up to the first that is done, itself included, bool `[T, B]`; a column without an end is a ValueError."""
    never = (~done.any(0)).nonzero().flatten().tolist()
    if never:
        raise ValueError(
            f"columns {never[:8]} of {done.shape[1]} have no end in {len(done)} rows; run until every episode is over "
            f"(stop_variable='env/done'), or select the columns that ended"
        )
    ended = done.cumsum(0)
    return ended - done.to(ended.dtype) == 0  # no end in an earlier row


def episode_sums(reward: Tensor, mask: Tensor, reduce: bool) -> float | Tensor:
    """Sums of the rewards `[T, B]` under `mask`: their mean, or one per column `[B]`."""
    sums = torch.where(mask, reward.detach(), 0).sum(0)
    return float(sums.mean()) if reduce else sums
