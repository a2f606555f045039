"""Decisions that last several steps, as transitions: a high level decides every `interval` steps, each row learns.

A row of phase p lies p steps behind the decision it belongs to. Its window runs from the row itself to the last step
before the next decision, or to where the episode ends if that is earlier (Gehring et al. 2021, arXiv 2110.10809):
every step is a transition of 1 to `interval` steps, at whose end the high level decides anew.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gaitway.functional.checks import as_flag, check_rows


def decision_windows(
    phase: Tensor, reward: Tensor, terminated: Tensor, truncated: Tensor, interval: int, gamma: float
) -> dict[str, Tensor]:
    """The window of every row that has `interval` rows from itself on, `[T - interval + 1, B]`; all arguments `[T, B]`.

    `length` (int64) counts its m steps, `reward` is the sum over j < m of `gamma^j reward[t + j]`, `discount` is
    `gamma^m`, or 0 where the window ends in a termination. A window ends with the step in which the episode terminates
    or is truncated, before the next row of phase 0, and after `interval - phase[t]` steps. What lies behind its end is
    never used, not even a NaN. `phase` is int64, 0 where a decision is taken.
    """
    check_rows(reward=reward)
    if interval < 1:
        raise ValueError(f"the interval between decisions is {interval} steps; use at least 1")
    if phase.shape != reward.shape or phase.dtype != torch.int64:
        raise ValueError(f"phase is {phase.dtype} {list(phase.shape)}; it must be int64 {list(reward.shape)}")
    windows = len(reward) - interval + 1
    if windows < 1:
        raise ValueError(f"{len(reward)} rows hold no window of {interval} steps; pass at least {interval} rows")
    terminated = as_flag("terminated", terminated, reward)
    over = terminated | as_flag("truncated", truncated, reward)
    length = torch.zeros_like(phase[:windows])
    total = torch.zeros_like(reward[:windows])
    discount = torch.ones_like(total)
    alive = torch.ones_like(over[:windows])
    for step in range(interval):
        rows = slice(step, windows + step)
        if step:
            alive = alive & (phase[rows] != 0) & (phase[:windows] < interval - step)
        total = total + torch.where(alive, reward[rows] * gamma**step, 0.0)
        length = length + alive
        discount = discount.masked_fill(alive, gamma ** (step + 1)).masked_fill(alive & terminated[rows], 0.0)
        alive = alive & ~over[rows]
    return {"length": length, "reward": total, "discount": discount}
