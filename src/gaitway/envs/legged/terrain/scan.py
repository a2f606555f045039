"""Height scans: a grid of points around the base, turned with its yaw, x-major (all y of the first x first)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

STEP = 0.1
SPANS = {"around": ((-0.8, 17), (-0.5, 11)), "ahead": ((-0.5, 21), (-0.5, 11))}
"""First point (m) and number of points along x and y."""
USUAL, LIMIT = 0.3, 1.0
"""Shown is the height of the base above a point less the first (m), within the second."""


def grid(name: str, like: Tensor) -> Tensor:
    """Points of a scan [P, 2] in the yaw frame."""
    x, y = (first + STEP * torch.arange(count, dtype=torch.float64) for first, count in SPANS[name])
    return torch.cartesian_prod(x, y).to(like)


def facts(name: str) -> dict[str, Any]:
    """What a robot has to know to make such a scan; lines are (first point, step, number of points)."""
    (x, length), (y, width) = SPANS[name]
    return {"x": [x, STEP, length], "y": [y, STEP, width], "usual": USUAL, "limit": LIMIT}


def size(name: str) -> int:
    (_, length), (_, width) = SPANS[name]
    return length * width


def mirrored(name: str) -> list[int]:
    """Which point of a scan is where each one is seen in a mirror: as far ahead, and as far on the other side."""
    points = grid(name, torch.zeros(0, dtype=torch.float64))
    apart = (points[:, None] - points * torch.tensor([1.0, -1.0], dtype=torch.float64)).abs().amax(-1)
    nearest, order = apart.min(1)
    assert bool((nearest < STEP / 1e3).all()), f"the points of {name} are not symmetric"
    return order.tolist()


def scanned(points: Tensor, position: Tensor, yaw: Tensor) -> Tensor:
    """Where the points [P, 2] of robots at `position` [n, 3] that head for `yaw` [n] are in the world [n, P, 2]."""
    cos, sin = yaw.cos()[:, None], yaw.sin()[:, None]
    x, y = points.unbind(-1)
    return torch.stack((cos * x - sin * y, sin * x + cos * y), -1) + position[:, None, :2]


def shown(height: Tensor, top: Tensor) -> Tensor:
    """Heights of bases [n] and of what is under points [n, P] -> what a scan shows [n, P], before its scale."""
    return (height[:, None] - top - USUAL).clamp(-LIMIT, LIMIT)
