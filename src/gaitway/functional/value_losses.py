"""Learning targets and losses of Q-learning, DDPG and TD3.

`reward` and `discount` are `[B]`; the discount is 0 where the episode terminated, gamma elsewhere (gamma^k after k
steps). Values of discrete actions are `[B, A]`, those of N critics of one continuous action `[N, B]`.
"""

from __future__ import annotations

import torch
from torch import Tensor


def greedy_target(reward: Tensor, discount: Tensor, next_values: Tensor) -> Tensor:
    """Q-learning, `[B]`: `reward + discount * max_a next_values`; `next_values` [B, A] are the target network's."""
    return torch.addcmul(reward, discount, next_values.amax(-1))


def double_target(reward: Tensor, discount: Tensor, next_values: Tensor, next_online: Tensor) -> Tensor:
    """Double Q-learning (van Hasselt et al. 2016), `[B]`: the online network's `next_online` [B, A] choose the action,
    the target network's `next_values` [B, A] evaluate it."""
    chosen = next_online.argmax(-1, keepdim=True)
    return torch.addcmul(reward, discount, next_values.gather(-1, chosen).squeeze(-1))


def least_target(reward: Tensor, discount: Tensor, next_values: Tensor) -> Tensor:
    """Clipped double Q-learning (Fujimoto et al. 2018), `[B]`: `reward + discount * min_i next_values`, where
    `next_values` [N, B] are those of N target networks."""
    return torch.addcmul(reward, discount, next_values.amin(0))


def smoothed_action(action: Tensor, noise: Tensor, std: float, limit: float) -> Tensor:
    """Target policy smoothing (TD3) of unit actions [B, A]: `clamp(action + clamp(std * noise, -limit, limit), -1, 1)`;
    `noise` is standard normal."""
    return (action + (std * noise).clamp(-limit, limit)).clamp(-1.0, 1.0)


def taken(values: Tensor, action: Tensor) -> Tensor:
    """The values `[B]` of the actions that were taken, int64 [B] counted from 0, selected from `values` [B, A]."""
    if action.shape != values.shape[:-1]:
        raise ValueError(f"values are {list(values.shape)} and actions {list(action.shape)}; use [B, A] and [B]")
    return values.gather(-1, action.unsqueeze(-1)).squeeze(-1)


def huber(error: Tensor, width: float) -> Tensor:
    """Huber loss: half the squared error up to `width`, linear beyond, so that no gradient is larger than `width`."""
    size = error.abs()
    near = size.clamp(max=width)
    return near * (size - 0.5 * near)
