"""Returns and advantages over step rows: pure functions of time-major tensors `[T, B]`.

Row t is one step: observation, action and reward stand in the same row. `terminated` stops the bootstrap, `done`
(terminated or truncated) stops the trace. Returns and advantages are one recurrence, `accumulate`, which walks over the
rows or doubles the span it has summed, whichever is cheaper for the shape. Control flow does not depend on values, so a
CUDA graph can record either.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gaitway.functional.checks import as_flag, check_rows


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float,
    lam: float,
) -> Tensor:
    """Generalised advantage estimate (Schulman et al. 2016, arXiv 1506.02438); every tensor and the result `[T, B]`.

        delta_t = reward_t + gamma (1 - terminated_t) next_value_t - value_t
        A_t     = delta_t + gamma lam (1 - done_t) A_{t+1},   A_T = 0

    `next_value` is the value of the next observation; where an episode ended, of its final observation: a time limit
    bootstraps from it, and nothing leaks across a reset. Where terminated, `next_value` is never used, not even a NaN.
    The learning target of the critic is `A + value`.

    Gradient flows to `value` only, and only within its own row (`dA_t/dvalue_t = -1`), so `A.square().mean()` is the
    semi-gradient critic loss.
    """
    check_rows(reward=reward, value=value, next_value=next_value)
    terminated = as_flag("terminated", terminated, reward)
    done = as_flag("done", done, reward)
    with torch.no_grad():
        reached = _zero_where(terminated, next_value)
        advantage = torch.add(reward, reached, alpha=gamma, out=reached).sub_(value)
        if lam != 0.0:
            advantage = accumulate(advantage, _going_on(done, gamma * lam, advantage.dtype))
    if value.requires_grad and torch.is_grad_enabled():
        advantage = advantage - (value - value.detach())  # adds exactly 0 and the gradient -1
    return advantage


def discounted_returns(reward: Tensor, done: Tensor, gamma: float, bootstrap: Tensor | None = None) -> Tensor:
    """Sum of discounted rewards to the end of the episode: `G_t = reward_t + gamma (1 - done_t) G_{t+1}`, `[T, B]`.

    `bootstrap` `[B]` is the value of the observation after the last row, used where that row is not done; without it
    the sum stops there. Truncated episodes inside the rollout do not bootstrap; if they should, use
    `gae(..., lam=1.0) + value`. The result carries no gradient.
    """
    check_rows(reward=reward)
    done = as_flag("done", done, reward)
    if bootstrap is not None and bootstrap.shape != reward.shape[1:]:
        raise ValueError(
            f"bootstrap is {list(bootstrap.shape)} but reward is {list(reward.shape)}; pass one value per column, "
            f"{list(reward.shape[1:])}"
        )
    with torch.no_grad():
        returns = reward.clone(memory_format=torch.contiguous_format)
        if bootstrap is not None and len(returns):
            returns[-1] += gamma * _zero_where(done[-1], bootstrap)
        return accumulate(returns, _going_on(done, gamma, returns.dtype))


def accumulate(rows: Tensor, weight: Tensor) -> Tensor:
    """`y_t = rows_t + weight_t y_{t+1}` from the last row to the first, `[T, B]`; `rows` may be overwritten.

    `weight` is `[T, B]` (its last row is not used). Small batches over many rows are summed in spans that double:
    `log2 T` passes over everything instead of T small ones.
    """
    steps = len(rows)
    if steps >= 48 and (rows.is_cuda or rows[0].numel() <= 256):
        span = 1
        while span < steps:
            rows = torch.cat((torch.addcmul(rows[:-span], weight[: steps - span], rows[span:]), rows[-span:]))
            weight = weight[:-span] * weight[span:]  # complete rows need no weight any more
            span *= 2
        return rows
    views, weights = rows.unbind(0), weight.unbind(0)
    for t in range(steps - 2, -1, -1):
        views[t].addcmul_(weights[t], views[t + 1])
    return rows


def _going_on(done: Tensor, weight: float, dtype: torch.dtype) -> Tensor:
    """`weight` where not done, else 0."""
    return (~done).view(torch.uint8).to(dtype).mul_(weight)  # several times faster than casting a bool tensor


def _zero_where(flag: Tensor, x: Tensor) -> Tensor:
    """`x`, or 0 where `flag`: a bitwise and, because 0 * NaN is NaN and torch.where takes three times as long."""
    integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    all_or_none = flag.view(torch.uint8).to(integer).sub_(1)  # -1 has all bits set
    return all_or_none.bitwise_and_(x.detach().contiguous().view(integer)).view(x.dtype)
