"""Soft actor-critic: targets and losses.

Haarnoja et al. 2018, "Soft actor-critic algorithms and applications" (continuous actions, learnt temperature);
Christodoulou 2019, "Soft actor-critic for discrete action settings" (expectations instead of samples).

N critics see a batch of B transitions. Values are `[N, B]`, with discrete actions `[N, B, A]` for all actions at once;
`discount` [B] is 0 where the episode terminated, gamma elsewhere (gamma^k after k steps).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

LOG_NORMALISER = 0.5 * math.log(2.0 * math.pi) + 2.0 * math.log(2.0)


def squashed_action(output: Tensor, noise: Tensor, log_std_range: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """`tanh(u)` with `u = mean + std * noise`, `[..., A]`, and its log-density `[...]`, differentiable in `output`.

    `output` [..., 2A] is mean | logarithm of the standard deviation, the latter clamped to the range. The noise is the
    standardised u, so `log N(u) = -noise^2 / 2 - log_std - log(2 pi) / 2`; and `log(1 - tanh(u)^2) = 2 log 2 + 2 u -
    2 log(1 + exp(2 u))`, which is exact however far the action saturates.
    """
    action, negative_log_prob = _squashed(output, noise, log_std_range)
    return action, -negative_log_prob.sum(-1) - noise.shape[-1] * LOG_NORMALISER


def squashed_entries(output: Tensor, noise: Tensor, log_std_range: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """The same with the log-density of every entry for itself, `[..., A]`."""
    action, negative_log_prob = _squashed(output, noise, log_std_range)
    return action, -negative_log_prob - LOG_NORMALISER


def _squashed(output: Tensor, noise: Tensor, log_std_range: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """`tanh(u)`, and minus the log-density of each entry without the constant of the Gaussian."""
    mean, log_std = output.chunk(2, -1)
    log_std = log_std.clamp(*log_std_range)
    u = torch.addcmul(mean, log_std.exp(), noise)
    # softplus with beta 2 is log(1 + exp(2 u)) / 2
    negative_log_prob = torch.add(torch.sub(log_std, F.softplus(u, 2.0), alpha=4.0), u, alpha=2.0)
    return u.tanh(), torch.addcmul(negative_log_prob, noise, noise, value=0.5)


def squashed_log_prob(output: Tensor, action: Tensor, log_std_range: tuple[float, float]) -> Tensor:
    """The log-density `[...]` of given actions `tanh(u)` [..., A], which are kept within +- (1 - 1e-7)."""
    mean, log_std = output.chunk(2, -1)
    log_std = log_std.clamp(*log_std_range)
    u = action.clamp(-1.0 + 1e-7, 1.0 - 1e-7).atanh()
    standardised = (u - mean) * (-log_std).exp()
    # log(1 - tanh(u)^2) as in `squashed_action`
    each = -0.5 * standardised.square() - log_std - 2.0 * u + 4.0 * F.softplus(u, 2.0)
    return each.sum(-1) - action.shape[-1] * LOG_NORMALISER


def soft_target(reward: Tensor, discount: Tensor, next_values: Tensor, next_log_prob: Tensor, alpha: Tensor) -> Tensor:
    """The learning target of the critics, `[B]`: `reward + discount * (min over critics - alpha * log_prob)`.

    `next_values` [N, B] are the target network's values of the next observation and an action that the policy draws for
    it, `next_log_prob` [B] is the log-probability of that action, `alpha` the temperature.
    """
    return torch.addcmul(reward, discount, next_values.amin(0) - alpha * next_log_prob)


def soft_target_discrete(
    reward: Tensor, discount: Tensor, next_values: Tensor, next_log_probs: Tensor, alpha: Tensor
) -> Tensor:
    """`soft_target` for discrete actions: the expectation over the policy, given by its log-probabilities
    `next_log_probs` [B, A]; `next_values` are [N, B, A]."""
    soft = next_values.amin(0) - alpha * next_log_probs
    return torch.addcmul(reward, discount, (next_log_probs.exp() * soft).sum(-1))


def critic_loss(values: Tensor, target: Tensor) -> Tensor:
    """Half the mean squared error against `target` [B], summed over the critics; `values` are [N, B]."""
    if values.shape[1:] != target.shape:
        raise ValueError(f"values are {list(values.shape)} and the target {list(target.shape)}; use [N, B] and [B]")
    return F.mse_loss(values, target.expand_as(values), reduction="sum") * (0.5 / len(target))


def actor_loss(values: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
    """`mean(alpha * log_prob - min over critics)`: `values` [N, B] and `log_prob` [B] of newly drawn actions."""
    return (alpha * log_prob - values.min(0).values).mean()


def actor_loss_discrete(values: Tensor, log_probs: Tensor, alpha: Tensor) -> Tensor:
    """`actor_loss` in expectation over discrete actions: `values` [N, B, A] get no gradient; `log_probs` are [B, A]."""
    return (log_probs.exp() * (alpha * log_probs - values.detach().amin(0))).sum(-1).mean()


def temperature_gradient(entropy: Tensor, target_entropy: float) -> Tensor:
    """The gradient of the temperature's loss `-mean(log_alpha * (log_prob + target_entropy))` with respect to
    `log_alpha`, where `entropy` is `-mean(log_prob)`: it raises the temperature while the entropy is below the target.

    The loss is linear in `log_alpha`, so the gradient does not depend on the present temperature.
    """
    return entropy - target_entropy
