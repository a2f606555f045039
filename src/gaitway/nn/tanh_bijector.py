"""tanh as a change of variables: forward, back, and what it does to a log-density."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LOG_2 = math.log(2.0)


class TanhBijector:
    """`a = tanh(u)`, elementwise: `log p(a) = log p(u) - sum log_prob_correction(u)`."""

    @staticmethod
    def forward(u: Tensor) -> Tensor:
        return u.tanh()

    @staticmethod
    def inverse(a: Tensor, epsilon: float | None = None) -> Tensor:
        """u; values on or beyond +-1 count as `1 - epsilon`, by default the rounding of their dtype."""
        edge = 1.0 - (torch.finfo(a.dtype).eps if epsilon is None else epsilon)
        return a.clamp(-edge, edge).atanh()

    @staticmethod
    def log_prob_correction(u: Tensor) -> Tensor:
        """`log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u))`, exact however large u is: no epsilon.

        Computed from |u|, where the exponential cannot overflow and no tail is cut off.
        """
        distance = u.abs()
        return 2.0 * (LOG_2 - distance - (-2.0 * distance).exp().log1p())
