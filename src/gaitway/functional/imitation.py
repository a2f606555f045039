"""How far a student is from its teacher, one number per sample; the caller averages.

`student` and `teacher` are `[..., D]`: mean actions in units of half their range, or latents. Only `tanh` and
`scaled_tanh` ask for numbers between -1 and 1, and read others as the nearest limit. Both are binary cross-entropies of
(x + 1) / 2, so their least value is the entropy of the teacher's numbers and not 0.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

UNIT_MARGIN = 1e-6
"""How far cross-entropies keep their probabilities from 0 and 1."""
Distance = Callable[[Tensor, Tensor], Tensor]


def l2(student: Tensor, teacher: Tensor) -> Tensor:
    """Euclidean distance: its gradient has length 1 however near the two are, and is 0 where they are equal."""
    return torch.linalg.vector_norm(student - teacher, dim=-1)


def squared(student: Tensor, teacher: Tensor) -> Tensor:
    """Sum of squared differences."""
    return (student - teacher).square().sum(-1)


def l1(student: Tensor, teacher: Tensor) -> Tensor:
    """Sum of absolute differences."""
    return (student - teacher).abs().sum(-1)


def huber(student: Tensor, teacher: Tensor) -> Tensor:
    """Half the square up to a difference of 1, linear beyond; summed."""
    return F.huber_loss(student, teacher, reduction="none").sum(-1)


def tanh(student: Tensor, teacher: Tensor) -> Tensor:
    """Twice the mean cross-entropy of numbers between -1 and 1: steep where a saturated student is wrong."""
    return 2.0 * _cross_entropy(student, teacher).mean(-1)


def scaled_tanh(student: Tensor, teacher: Tensor) -> Tensor:
    """`tanh` times the mean absolute difference, which has its gradient too: 0 where the two are equal."""
    return tanh(student, teacher) * (student - teacher).abs().mean(-1)


DISTANCES: dict[str, Distance] = {
    "l2": l2,
    "squared": squared,
    "l1": l1,
    "huber": huber,
    "tanh": tanh,
    "scaled_tanh": scaled_tanh,
}
"""Distances by the names that configurations use."""
WITHIN_LIMITS = ("tanh", "scaled_tanh")
"""Those that ask for numbers between -1 and 1."""


def _cross_entropy(student: Tensor, teacher: Tensor) -> Tensor:
    chance, target = (((x + 1.0) / 2.0).clamp(UNIT_MARGIN, 1.0 - UNIT_MARGIN) for x in (student, teacher))
    return -(target * chance.log() + (1.0 - target) * torch.log1p(-chance))
