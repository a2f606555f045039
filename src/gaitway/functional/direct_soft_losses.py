"""Soft actor-critic's losses with hand-written gradients, for NumPy.

For a few hundred samples on the CPU, where starting an operation costs more than its arithmetic; the reference
implementation is `soft_losses` under autograd. Arrays are float32: N critics, B samples, A action dimensions. Arrays of
actions are `[A, B]`, because long inner loops are much faster than short ones.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

LOG_NORMALISER = 0.5 * math.log(2.0 * math.pi) + 2.0 * math.log(2.0)


class Squashed(NamedTuple):
    """Actions drawn from a tanh-squashed Gaussian, and the arrays that `squashed_gradient` needs."""

    action: np.ndarray
    """`tanh(u)` [A, B], with `u = mean + std * noise`."""
    log_prob: np.ndarray
    """Log-density [B]."""
    spread: np.ndarray
    """`std * noise` [A, B]."""
    inside: np.ndarray
    """Where the logarithm of the standard deviation was within its range, bool [A, B]."""


def squashed_action(output: np.ndarray, noise: np.ndarray, log_std_range: tuple[float, float]) -> Squashed:
    """Actions from the actor's `output` [2A, B], mean | logarithm of the standard deviation, and normal `noise` [A, B].

    `log(1 - tanh(u)^2) = 2 log 2 - 2 |u| - 2 log(1 + exp(-2 |u|))`, which is exact however far the action saturates.
    """
    size = len(noise)
    low, high = log_std_range
    log_std = np.minimum(np.maximum(output[size:], low), high)
    spread = np.exp(log_std)
    spread *= noise
    u = output[:size] + spread
    distance = np.abs(u)
    distance *= 2.0
    negative_log_prob = np.exp(-distance)
    negative_log_prob += 1.0
    np.log(negative_log_prob, out=negative_log_prob)
    negative_log_prob *= -2.0
    negative_log_prob -= distance
    negative_log_prob += log_std
    noise = noise * noise
    noise *= 0.5
    negative_log_prob += noise
    log_prob = negative_log_prob.sum(0)
    log_prob += size * LOG_NORMALISER
    return Squashed(np.tanh(u), np.negative(log_prob, out=log_prob), spread, output[size:] == log_std)


def squashed_gradient(drawn: Squashed, by_action: np.ndarray, by_log_prob: float) -> np.ndarray:
    """The gradient by the actor's output, [2A, B], given those by the action [A, B] and by each log-density.

    `d tanh(u) / du = 1 - tanh(u)^2`; the log-density has the derivatives `2 tanh(u)` by u and -1 by log_std.
    """
    size = len(by_action)
    gradient = np.empty((2 * size, by_action.shape[1]), dtype=np.float32)
    by_u = np.multiply(drawn.action, drawn.action, out=gradient[:size])
    np.subtract(1.0, by_u, out=by_u)
    by_u *= by_action
    by_u += (2.0 * by_log_prob) * drawn.action
    by_log_std = np.multiply(by_u, drawn.spread, out=gradient[size:])
    by_log_std -= by_log_prob
    by_log_std *= drawn.inside
    return gradient


def soft_target(
    reward: np.ndarray, discount: np.ndarray, next_values: np.ndarray, next_log_prob: np.ndarray, alpha: float
) -> np.ndarray:
    """The learning target of the critics, [B]; `next_values` [N, B] are those of the target network."""
    target = next_values.min(0)
    target -= alpha * next_log_prob
    target *= discount
    target += reward
    return target


def critic_loss(values: np.ndarray, target: np.ndarray) -> tuple[float, np.ndarray]:
    """Half the mean squared error, summed over the critics, and its gradient with respect to the values [N, B]."""
    error = values - target
    loss = 0.5 * float(np.vdot(error, error)) / len(target)
    error /= len(target)
    return loss, error


def actor_loss(values: np.ndarray, log_prob: np.ndarray, alpha: float) -> tuple[float, np.ndarray]:
    """`mean(alpha * log_prob - min over critics)` and its gradient with respect to the values [N, B]; the gradient with
    respect to each log-density is `alpha / B`."""
    samples = len(log_prob)
    chosen = values.argmin(0) == np.arange(len(values))[:, None]
    lowest = float(np.add.reduce(np.minimum.reduce(values)))
    loss = (alpha * float(np.add.reduce(log_prob)) - lowest) / samples
    return loss, chosen * np.float32(-1.0 / samples)
