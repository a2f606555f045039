"""Returns and advantages over step rows: pure functions of time-major tensors `[T, B]`.

Row t is one step: what was seen, done and received stand in the same row. `terminated` stops the bootstrap, `done`
(terminated or truncated) stops the trace. Both functions walk backwards over rows of one preallocated result, one
kernel per row, so they are cheap for small batches and can be captured in a CUDA graph.
"""

from __future__ import annotations

import torch
from torch import Tensor


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

    `next_value` is the value of the state really reached (the final observation where an episode ended): a time limit
    bootstraps from it, and nothing leaks across a reset. What stands in `next_value` where terminated is never used,
    not even a NaN. The return is `A + value`.

    Gradient flows to `value` only, and only within its own row (`dA_t/dvalue_t = -1`), so `A.square().mean()` is the
    semi-gradient critic loss.
    """
    _check_floats(reward=reward, value=value, next_value=next_value)
    terminated = _flag("terminated", terminated, reward)
    done = _flag("done", done, reward)
    with torch.no_grad():
        reached = torch.where(terminated, 0.0, next_value)  # not a product: 0 * NaN is NaN
        advantage = torch.add(reward, reached, alpha=gamma, out=reached).sub_(value)
        if lam != 0.0:
            _accumulate_backwards(advantage, done, gamma * lam)
    if value.requires_grad and torch.is_grad_enabled():
        advantage = advantage - (value - value.detach())  # adds exactly 0 and the gradient -1
    return advantage


def discounted_returns(reward: Tensor, done: Tensor, gamma: float, bootstrap: Tensor | None = None) -> Tensor:
    """Sum of discounted rewards to the end of the episode: `G_t = reward_t + gamma (1 - done_t) G_{t+1}`, `[T, B]`.

    `bootstrap` `[B]` is the value after the last row, used where that row did not end an episode; without it the sum
    stops there. Episodes that a time limit cut inside the rollout end with their last reward; where they should
    bootstrap, use `gae(..., lam=1.0) + value`. The result carries no gradient.
    """
    _check_floats(reward=reward)
    done = _flag("done", done, reward)
    if bootstrap is not None and bootstrap.shape != reward.shape[1:]:
        raise ValueError(
            f"bootstrap is {list(bootstrap.shape)} but reward is {list(reward.shape)}; pass one value per column, "
            f"{list(reward.shape[1:])}"
        )
    with torch.no_grad():
        returns = reward.clone(memory_format=torch.contiguous_format)
        if bootstrap is not None and len(returns):
            returns[-1] += gamma * torch.where(done[-1], 0.0, bootstrap)
        _accumulate_backwards(returns, done, gamma)
    return returns


def _accumulate_backwards(rows: Tensor, done: Tensor, decay: float) -> None:
    """In place: `rows[t] += decay (1 - done[t]) rows[t+1]`, from the last row but one to the first."""
    if len(rows) < 2:
        return
    going_on = (~done).view(torch.uint8).to(rows.dtype)  # several times faster than casting a bool tensor
    weights = going_on.mul_(decay).unbind(0)
    views = rows.unbind(0)
    later = views[-1]
    for row, weight in zip(views[-2::-1], weights[-2::-1], strict=True):
        later = row.addcmul_(weight, later)


def _check_floats(**tensors: Tensor) -> None:
    """All `[T, B]`, of one shape and one floating dtype."""
    (first_name, first), *others = tensors.items()
    if first.ndim != 2:
        raise ValueError(f"{first_name} is {list(first.shape)}; it must be [T, B]: time first, then environments")
    if not first.is_floating_point():
        raise ValueError(f"{first_name} is {first.dtype}; it must be floating point, call .float() on it")
    for name, tensor in others:
        if tensor.shape != first.shape:
            raise ValueError(
                f"{name} is {list(tensor.shape)} but {first_name} is {list(first.shape)}; all must be [T, B] "
                f"(drop a trailing axis of one with squeeze(-1))"
            )
        if tensor.dtype != first.dtype:
            raise ValueError(f"{name} is {tensor.dtype} but {first_name} is {first.dtype}; convert one of them")


def _flag(name: str, flag: Tensor, like: Tensor) -> Tensor:
    """A boolean `[T, B]`; numbers count as true where they are not zero."""
    if flag.shape != like.shape:
        raise ValueError(f"{name} is {list(flag.shape)} but reward is {list(like.shape)}; both must be [T, B]")
    return flag if flag.dtype == torch.bool else flag != 0
