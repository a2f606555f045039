"""Returns, temporal differences and advantages of frame streams.

In a frame stream row t begins with an observation, so a transition is a pair of rows, t and t+1, and its flags stand in
row t+1. `r(t)`, the reward for the action of row t, stands in row t+1 (`reward_at="arrival"`) or in row t
(`"departure"`). A done row holds the final observation: its action is not used, and the row after it begins another
episode or repeats it. Results equal those of the reference implementation, the step-row functions on the same steps.

All tensors are `[T, B]` and passed by keyword, because they are easily mistaken for each other.
"""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from gaitway.functional.checks import as_flag, check_rows
from gaitway.functional.episode_returns import episode_sums, until_first_end
from gaitway.functional.returns import accumulate, gae
from gaitway.functional.temporal_differences import action_value, double_q_value, td

RewardAt = Literal["arrival", "departure"]


def frame_rewards(reward: Tensor, reward_at: RewardAt = "arrival") -> Tensor:
    """`r(t)`, the reward for the action of row t, for all rows but the last: `[T, B]` -> `[T-1, B]`."""
    if reward_at not in ("arrival", "departure"):
        raise ValueError(
            f'reward_at is {reward_at!r}; use "arrival" (in the row that is reached) or "departure" (in the row before)'
        )
    return reward[1:] if reward_at == "arrival" else reward[:-1]


def frame_discounted_returns(
    *,
    reward: Tensor,
    done: Tensor,
    gamma: float,
    bootstrap: Tensor | None = None,
    terminated: Tensor | None = None,
    reward_at: RewardAt = "arrival",
) -> Tensor:
    """`G[t] = 0` if `done[t]`, else `r(t) + gamma G[t+1]`, `[T, B]`, without gradient.

    The last row is `bootstrap` `[B]`, the value of its observation, where it is not done, and 0 elsewhere or without
    `bootstrap`. With `terminated`, a last row that was truncated takes `bootstrap` too.
    """
    check_rows(reward=reward)
    done = as_flag("done", done, reward)
    stays = done if terminated is None else as_flag("terminated", terminated, reward)
    if bootstrap is not None and bootstrap.shape != reward.shape[1:]:
        raise ValueError(f"bootstrap is {list(bootstrap.shape)} but reward is {list(reward.shape)}; pass [B]")
    with torch.no_grad():
        rows = torch.zeros_like(reward)
        rows[:-1] = torch.where(done[:-1], 0, frame_rewards(reward, reward_at))
        if bootstrap is not None and len(rows):
            rows[-1] = torch.where(stays[-1], 0, bootstrap)
        return accumulate(rows, (~done).to(rows.dtype) * gamma)


@overload
def frame_cumulated_reward(
    *, reward: Tensor, done: Tensor, reward_at: RewardAt = "arrival", reduce: Literal[True] = True
) -> float: ...
@overload
def frame_cumulated_reward(
    *, reward: Tensor, done: Tensor, reward_at: RewardAt = "arrival", reduce: Literal[False]
) -> Tensor: ...
def frame_cumulated_reward(
    *, reward: Tensor, done: Tensor, reward_at: RewardAt = "arrival", reduce: bool = True
) -> float | Tensor:
    """Undiscounted return of the first episode of every column: the mean, or with `reduce=False` `[B]`.

    Sums rows 0..d of arrival rewards, or rows 0..d-1 of departure rewards, where d is the first done row.
    """
    check_rows(reward=reward)
    frame_rewards(reward, reward_at)  # refuses another word
    done = as_flag("done", done, reward)
    mask = until_first_end(done)
    return episode_sums(reward, mask if reward_at == "arrival" else mask & ~done, reduce)


def frame_td(
    *,
    value: Tensor,
    reward: Tensor,
    terminated: Tensor,
    gamma: float,
    done: Tensor | None = None,
    reward_at: RewardAt = "arrival",
) -> Tensor:
    """`r(t) + gamma (1 - terminated[t+1]) value[t+1] - value[t]`, `[T, B]` with a last row of zeros.

    `terminated` is given per row, `[T, B]`, or per transition, `[T-1, B]`. With `done`, the result of done rows is 0,
    because another episode follows them. Gradient flows to `value[t]` alone.
    """
    check_rows(value=value, reward=reward)
    delta = td(frame_rewards(reward, reward_at), value[:-1], value[1:], _of_transitions(terminated, reward), gamma)
    return _with_last_row(delta, done, reward)


def frame_double_q_td(
    *,
    q: Tensor,
    q_target: Tensor,
    action: Tensor,
    reward: Tensor,
    terminated: Tensor,
    gamma: float,
    done: Tensor | None = None,
    reward_at: RewardAt = "arrival",
) -> Tensor:
    """`frame_td` of double Q-learning, for action values `[T, B, A]`: `q` chooses the next action, the target network's
    `q_target` evaluates it."""
    check_rows(reward=reward)
    if q.shape[:-1] != reward.shape:
        raise ValueError(f"q is {list(q.shape)} but reward is {list(reward.shape)}; q must be [T, B, A]")
    next_value = double_q_value(q.detach(), q_target)[1:]
    value = action_value(q, action)[:-1]
    delta = td(frame_rewards(reward, reward_at), value, next_value, _of_transitions(terminated, reward), gamma)
    return _with_last_row(delta, done, reward)


def frame_gae(
    *,
    value: Tensor,
    reward: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float,
    lam: float,
    reward_at: RewardAt = "arrival",
) -> tuple[Tensor, Tensor]:
    """Generalised advantages `[T-1, B]` and the mask `valid` `[T-1, B]`: false in done rows, whose advantage is 0.

    `advantage[valid]` is in the order of `transitions(pairs=True)`. Gradients are those of `gae`.
    """
    check_rows(value=value, reward=reward)
    terminated, done = as_flag("terminated", terminated, reward), as_flag("done", done, reward)
    valid = ~done[:-1]
    advantage = gae(
        frame_rewards(reward, reward_at), value[:-1], value[1:], terminated[1:], done[1:], gamma=gamma, lam=lam
    )
    return torch.where(valid, advantage, 0), valid


def _of_transitions(terminated: Tensor, reward: Tensor) -> Tensor:
    """`terminated` of the pair that begins in row t, `[T-1, B]`."""
    return terminated if terminated.shape == reward[1:].shape else as_flag("terminated", terminated, reward)[1:]


def _with_last_row(delta: Tensor, done: Tensor | None, reward: Tensor) -> Tensor:
    """`[T-1, B]` -> `[T, B]`: zeros in the last row and, with `done`, in done rows."""
    if done is not None:
        delta = torch.where(as_flag("done", done, reward)[:-1], 0, delta)
    return torch.cat((delta, torch.zeros_like(reward[:1])))
