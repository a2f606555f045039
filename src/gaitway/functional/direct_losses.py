"""PPO's losses with hand-written gradients, for NumPy.

On a few hundred samples an operation of PyTorch costs a hundred times its arithmetic, and autograd doubles the number
of operations. Each function returns a loss together with its gradients; the reference implementation is
`policy_losses` with `nn.continuous.Gaussian` under autograd. Arrays are float32: N samples, A action dimensions.
`share` `[N]` is the weight of each sample in the mean and adds up to 1; None means 1 / N.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)


class PolicyLoss(NamedTuple):
    """The clipped surrogate, the share of clipped samples, and the gradients."""

    loss: float
    clip_fraction: float
    by_mean: np.ndarray
    """Gradient with respect to the mean `[N, A]`."""
    by_log_std: np.ndarray
    """Gradient with respect to the logarithm of the standard deviation `[A]`."""


def gaussian_surrogate(
    mean: np.ndarray,
    log_std: np.ndarray,
    action: np.ndarray,
    old_log_prob: np.ndarray,
    advantage: np.ndarray,
    clip: float,
    share: np.ndarray | None = None,
) -> PolicyLoss:
    """-mean(min(ratio A, clip(ratio) A)) of actions `[N, A]` under N(mean, exp(log_std)), `log_std` `[A]`.

    With `z = (action - mean) / std` the log-probability is `-sum(z^2 / 2 + log_std + log(2 pi) / 2)`, its derivatives
    by mean and log_std are `z / std` and `z^2 - 1`. Where the minimum is the clipped term, the gradient is 0.
    """
    inverse_std = np.exp(-log_std)[:, None]
    z = np.ascontiguousarray((action - mean).T)  # [A, N]: long inner loops are much faster than short ones
    z *= inverse_std
    squares = z * z
    ratio = squares.sum(0)
    ratio *= -0.5
    ratio -= old_log_prob
    ratio -= float(log_std.sum()) + len(log_std) * HALF_LOG_2_PI
    np.exp(ratio, out=ratio)
    plain = advantage * ratio
    limited = advantage * np.minimum(np.maximum(ratio, 1.0 - clip), 1.0 + clip)
    by_log_prob = np.where(plain <= limited, plain, np.float32(0.0))  # d ratio / d log_prob = ratio
    by_log_prob *= -1.0 / len(ratio) if share is None else -share
    z *= inverse_std
    z *= by_log_prob
    squares -= 1.0
    squares *= by_log_prob
    loss = -average(np.minimum(plain, limited), share)
    ratio -= 1.0
    clipped = np.abs(ratio, out=ratio) > clip
    return PolicyLoss(loss, average(clipped, share), z.T, squares.sum(1))


def value_loss(
    value: np.ndarray, old_value: np.ndarray, target: np.ndarray, clip: float | None, share: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Mean squared error of the critic and its gradient `[N]`; `clip` is that of `policy_losses.value_error`."""
    slope = value - target
    error = slope * slope
    if clip is not None:
        step = value - old_value
        near = old_value + np.clip(step, -clip, clip) - target
        clipped = near * near
        slope = np.where(error >= clipped, slope, np.where(np.abs(step) <= clip, near, np.float32(0.0)))
        error = np.maximum(error, clipped)
    slope *= 2.0 / len(value) if share is None else 2.0 * share
    return average(error, share), slope


def gaussian_kl(old: np.ndarray, mean: np.ndarray, log_std: np.ndarray, share: np.ndarray | None = None) -> float:
    """Mean of the exact KL(old || new); `old` holds mean | std `[N, 2A]`."""
    size = len(log_std)
    inverse_std = np.exp(-log_std)[:, None]
    ratio = np.ascontiguousarray(old[:, size:].T)
    ratio *= inverse_std
    distance = np.ascontiguousarray((old[:, :size] - mean).T)
    distance *= inverse_std
    distance *= distance
    distance += ratio * ratio
    distance -= 1.0
    distance *= 0.5
    distance -= np.log(ratio, out=ratio)
    return average(distance.sum(0), share)


def average(x: np.ndarray, share: np.ndarray | None) -> float:
    """Mean of `x` `[N]`, weighted by `share`."""
    if share is not None:
        return float(x @ share)
    return float(np.count_nonzero(x) if x.dtype == np.bool_ else np.add.reduce(x)) / len(x)
