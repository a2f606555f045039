"""Temporal differences over step rows: one step, double Q, n steps, all steps weighted by lambda.

Row t is one step: `reward[t]` is the reward for its action, `next_value[t]` the value of the next observation, which is
the final observation where an episode ended. `terminated` stops the bootstrap; `done`, terminated or truncated, stops
sums and traces. Learning targets carry no gradient. Values after a termination are never used, not even a NaN.

Functions of one step take tensors of any shape `[...]`: rows `[T, B]`, or transitions `[N]` drawn from a replay, which
brings `discount` (gamma^k after k steps, 0 where the episode terminated) in place of the flag.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gaitway.functional.checks import as_flag, check_alike, check_rows
from gaitway.functional.returns import accumulate


def td(reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, gamma: float) -> Tensor:
    """`reward + gamma (1 - terminated) next_value - value`, all `[...]`; gradient flows to `value` alone."""
    check_alike(reward=reward, value=value, next_value=next_value)
    return td_target(reward, discounts(terminated, gamma, reward), next_value) - value


def double_q_td(
    reward: Tensor,
    q: Tensor,
    action: Tensor,
    next_q: Tensor,
    next_q_target: Tensor,
    terminated: Tensor,
    gamma: float,
) -> Tensor:
    """`td` of double Q-learning (van Hasselt et al. 2016, arXiv 1509.06461), action values `[..., A]`: the online
    network's `next_q` chooses the next action, the target network's `next_q_target` evaluates it; gradient flows to `q`
    alone."""
    next_value = double_q_value(next_q, next_q_target)
    return td(reward, action_value(q, action), next_value, terminated, gamma)


def td_target(reward: Tensor, discount: Tensor, next_value: Tensor) -> Tensor:
    """`reward + discount * next_value`, all `[...]`, without gradient; where the discount is 0, the reward alone."""
    check_alike(reward=reward, discount=discount, next_value=next_value)
    with torch.no_grad():
        return torch.where(discount == 0, reward, torch.addcmul(reward, discount, next_value))


def discounts(terminated: Tensor, gamma: float, like: Tensor) -> Tensor:
    """`gamma`, or 0 where terminated, in the shape and dtype of `like`."""
    return (~as_flag("terminated", terminated, like)).to(like.dtype) * gamma


def action_value(q: Tensor, action: Tensor) -> Tensor:
    """The values `[...]` of the actions `[...]`, int64, selected from `q` `[..., A]`."""
    if q.shape[:-1] != action.shape or action.dtype != torch.int64:
        raise ValueError(
            f"q is {list(q.shape)} and action {list(action.shape)} {action.dtype}; use [..., A] and int64 [...]"
        )
    return q.gather(-1, action.unsqueeze(-1)).squeeze(-1)


def double_q_value(next_q: Tensor, next_q_target: Tensor) -> Tensor:
    """The target network's value `[...]` of the action that is best by `next_q`; both `[..., A]`, no gradient."""
    check_alike(next_q=next_q, next_q_target=next_q_target)
    with torch.no_grad():
        return action_value(next_q_target, next_q.argmax(-1))


class NStepReturns(NamedTuple):
    """The result of `n_step_returns`, all `[T, B]`: for every row t a window of k steps that begins there."""

    total: Tensor
    """Discounted sum of the k rewards of the window."""
    steps: Tensor
    """k, int64: n, or fewer where an episode or the rows end first."""
    discount: Tensor
    """`gamma^k`, 0 where the episode terminated: the weight of the bootstrap value."""
    last: Tensor
    """The last row of the window, `t + k - 1`, int64; `next_value.gather(0, last)` is the bootstrap value."""
    whole: Tensor
    """False where the rows end before the window has n steps and before its episode ends."""


def n_step_returns(reward: Tensor, terminated: Tensor, done: Tensor, gamma: float, n: int) -> NStepReturns:
    """Discounted sums of up to n rewards, `[T, B]`; a window ends at a done row. Carries no gradient."""
    check_rows(reward=reward)
    terminated = as_flag("terminated", terminated, reward)
    done = as_flag("done", done, reward) | terminated
    if n < 1:
        raise ValueError(f"n is {n}; look at least one step ahead")
    rows = len(reward)
    total = torch.zeros_like(reward, requires_grad=False)
    steps = torch.zeros_like(done, dtype=torch.int64)
    going, ended = torch.ones_like(done), torch.zeros_like(done)
    with torch.no_grad():
        for ahead in range(min(n, rows)):
            count = rows - ahead  # rows 0..count-1 have a row that is `ahead` rows later
            here = going[:count].clone()
            total[:count] += torch.where(here, reward[ahead:], 0) * gamma**ahead
            steps[:count] += here
            ended[:count] |= here & terminated[ahead:]
            going[:count] = here & ~done[ahead:]
        powers = torch.tensor([gamma**k for k in range(n + 1)], dtype=reward.dtype, device=reward.device)
        discount = powers[steps].masked_fill_(ended, 0)
        last = steps + torch.arange(rows, device=reward.device).unsqueeze(1) - 1
    return NStepReturns(total, steps, discount, last, ~going | (steps == n))


def n_step_targets(
    reward: Tensor, next_value: Tensor, terminated: Tensor, done: Tensor, gamma: float, n: int
) -> Tensor:
    """`sum_{i<k} gamma^i reward_{t+i} + gamma^k next_value_{t+k-1}`, `[T, B]`, without gradient.

    k is n, or fewer where the episode ends first (a time limit bootstraps from the final observation, a termination
    does not) or the rows do.
    """
    check_rows(reward=reward, next_value=next_value)
    found = n_step_returns(reward, terminated, done, gamma, n)
    return td_target(found.total, found.discount, next_value.detach().gather(0, found.last))


def lambda_returns(
    reward: Tensor, next_value: Tensor, terminated: Tensor, done: Tensor, gamma: float, lam: float
) -> Tensor:
    """The mean of all n-step targets, weighted by `(1 - lam) lam^(n-1)`, `[T, B]`, without gradient:

        G_t = reward_t + gamma (1 - terminated_t) ((1 - lam) next_value_t + lam G_{t+1})

    The longest target takes the remaining weight: after a `done` row, and after the last row, G is `next_value`. The
    result equals `gae(...) + value` where `value` of the next row is `next_value` of this one.
    """
    check_rows(reward=reward, next_value=next_value)
    discount = discounts(terminated, gamma, reward)
    done = as_flag("done", done, reward)
    with torch.no_grad():
        trace = (~done).to(reward.dtype) * lam
        trace[-1:] = 0
        rows = td_target(reward, discount * (1 - trace), next_value)
        return accumulate(rows, discount * trace)
