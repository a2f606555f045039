"""Learning rates of on-policy algorithms: down with the training, or up and down with the KL divergence."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from gaitway.core.schedules import Now, Schedule


def decayed(rate: float, schedule: str, fraction: float) -> float:
    """The rate after `fraction` of the training: a line or a cosine to zero."""
    kind: Literal["linear", "cosine"] = "cosine" if schedule == "cosine" else "linear"
    return Schedule(rate, 0.0, over=1.0, kind=kind, unit="fraction")(Now(fraction=fraction))


def adapted_rate(rate: Tensor, kl: Tensor, desired: float, bounds: tuple[float, float]) -> Tensor:
    """rsl_rl's rule, without looking at the numbers: /1.5 above twice the desired KL, *1.5 below half of it (but above
    zero), unchanged otherwise."""
    slower = (rate / 1.5).clamp(min=bounds[0])
    faster = (rate * 1.5).clamp(max=bounds[1])
    rate = torch.where(kl > 2.0 * desired, slower, rate)
    return torch.where((kl < 0.5 * desired) & (kl > 0.0), faster, rate)
