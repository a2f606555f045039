"""Tiles of 8 x 8 m: how high their ground is, and of which boxes it is made.

A tile has a platform of 2 m in its middle, where episodes begin. Its ground is given on cells of 0.1 m, each with a
height at its corner and slopes on both sides of its diagonal; all edges of boxes lie on the borders of cells, so that
this is exact. Most tiles are ridges or valleys across x.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

SIZE, CELL = 8.0, 0.1
CELLS = 80
HALF, PLATFORM = 4.0, 1.0
TREAD, TREADS = 0.3, 10
THICKNESS = 0.1
"""Of tilted boxes (m)."""
PIT = 0.4
"""Depth of gaps (m)."""
BLOCKS = 20
"""Boxes of a discrete tile."""
ROUGH = "rough"

Box = tuple[float, float, float, float, float, float, float]
"""x, y, z of the middle, half sizes along the box's axes, and the angle (rad) by which it climbs along x."""


def _solid(x: tuple[float, float], top: float, y: tuple[float, float] = (-HALF, HALF)) -> Box:
    """A box on the plane z = 0."""
    half = (x[1] - x[0]) / 2, (y[1] - y[0]) / 2
    return (x[0] + half[0], y[0] + half[1], top / 2, *half, top / 2, 0.0)


def ramp(x: tuple[float, float], start: float, angle: float, half_width: float, thickness: float) -> Box:
    """A tilted box whose upper face goes from the height `start` at x[0] to x[1]."""
    half = (x[1] - x[0]) / 2
    middle = start + half * math.tan(angle)
    return (
        x[0] + half + thickness / 2 * math.sin(angle),
        0.0,
        middle - thickness / 2 * math.cos(angle),
        half / math.cos(angle),
        half_width,
        thickness / 2,
        angle,
    )


def _slope_up(share: float) -> list[Box]:
    angle = 0.4 * share
    if not angle:
        return []
    high = (HALF - PLATFORM) * math.tan(angle)
    return [
        ramp((PLATFORM, HALF), 0.0, angle, HALF, THICKNESS),
        ramp((-HALF, -PLATFORM), high, -angle, HALF, THICKNESS),
    ]


def _slope_down(share: float) -> list[Box]:
    angle = 0.4 * share
    if not angle:
        return []
    high = (HALF - PLATFORM) * math.tan(angle)
    return [
        _solid((-PLATFORM, PLATFORM), high),
        ramp((PLATFORM, HALF), high, -angle, HALF, THICKNESS),
        ramp((-HALF, -PLATFORM), 0.0, angle, HALF, THICKNESS),
    ]


def _stairs_up(share: float) -> list[Box]:
    rise = 0.03 + 0.12 * share
    edges = [PLATFORM + TREAD * number for number in range(TREADS + 1)]
    sides = [(edges[i], edges[i + 1]) for i in range(TREADS)]
    return [
        _solid(span, rise * (number + 1))
        for number, (near, far) in enumerate(sides)
        for span in ((near, far), (-far, -near))
    ]


def _stairs_down(share: float) -> list[Box]:
    rise = 0.03 + 0.12 * share
    return [
        _solid((-PLATFORM - TREAD * number, PLATFORM + TREAD * number), rise * (TREADS - number))
        for number in range(TREADS)
    ]


def _gap(share: float) -> list[Box]:
    """Of 0.05 to 0.4 m, up to the next tenth of a metre."""
    far = PLATFORM + CELL * math.ceil((0.05 + 0.35 * share) / CELL - 1e-9)
    return [_solid((-PLATFORM, PLATFORM), PIT), _solid((far, HALF), PIT), _solid((-HALF, -far), PIT)]


def _discrete(share: float) -> list[Box]:
    """Boxes of 0.4 to 1 m in places of their own, the same at every level."""
    high = 0.03 + 0.12 * share
    numbers = torch.rand(10 * BLOCKS, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    boxes: list[Box] = []
    for first, second, third, fourth in numbers.tolist():
        sizes = [4 + int(7 * each) for each in (third, fourth)]  # in cells
        low = [int((CELLS - size + 1) * each) for size, each in zip(sizes, (first, second), strict=True)]
        spans = [(CELL * start - HALF, CELL * (start + size) - HALF) for start, size in zip(low, sizes, strict=True)]
        if all(near < PLATFORM and far > -PLATFORM for near, far in spans):
            continue  # the platform stays free
        boxes.append(_solid(spans[0], high, spans[1]))
    return boxes[:BLOCKS]


TILES: dict[str, Callable[[float], list[Box]] | None] = {
    "slope_up": _slope_up,
    "slope_down": _slope_down,
    ROUGH: None,
    "stairs_up": _stairs_up,
    "stairs_down": _stairs_down,
    "discrete": _discrete,
    "gap": _gap,
}
"""Kinds by name: boxes for a difficulty from 0 to 1. `rough` is a height field."""


def cells_of(boxes: list[Box]) -> Tensor:
    """Ground of boxes on the plane z = 0: [CELLS, CELLS, 5], height at the lower corner, slopes along x and y in the
    triangle towards x, and along x and y in that towards y."""
    found = torch.zeros(CELLS, CELLS, 5, dtype=torch.float64)
    for x, y, z, half_x, half_y, half_z, angle in boxes:
        tangent = math.tan(angle)
        reach = half_x * math.cos(angle)
        middle = x - half_z * math.sin(angle)  # of the upper face
        near, far = round((middle - reach + HALF) / CELL), round((middle + reach + HALF) / CELL)
        left, right = round((y - half_y + HALF) / CELL), round((y + half_y + HALF) / CELL)
        corner = CELL * torch.arange(near, far, dtype=torch.float64) - HALF
        top = (z + half_z * math.cos(angle) + (corner - middle) * tangent)[:, None].expand(-1, right - left)
        here = found[near:far, left:right]
        higher = top + tangent * CELL / 2 > here[..., 0] + here[..., 1] * CELL / 2  # in the middle of a cell
        for column, value in enumerate((top, tangent, 0.0, tangent, 0.0)):
            here[..., column] = torch.where(higher, torch.as_tensor(value, dtype=torch.float64), here[..., column])
    return found


def rough_heights(share: float, seed: int) -> Tensor:
    """Nodes of a rough tile [CELLS + 1, CELLS + 1]: up to twice 0.02 + 0.03 share, level on the platform and 0 at the
    borders."""
    width = 0.02 + 0.03 * share
    numbers = torch.rand(CELLS + 1, CELLS + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    heights = 2.0 * width * numbers
    middle = slice(round((HALF - PLATFORM) / CELL), round((HALF + PLATFORM) / CELL) + 1)
    heights[middle, middle] = width
    heights[0], heights[-1] = 0.0, 0.0
    heights[:, 0], heights[:, -1] = 0.0, 0.0
    return heights


def cells_of_nodes(heights: Tensor) -> Tensor:
    """The cells of a height field [X + 1, Y + 1] that MuJoCo cuts along the diagonal from low x, y to high x, y."""
    low, ahead, left, high = heights[:-1, :-1], heights[1:, :-1], heights[:-1, 1:], heights[1:, 1:]
    return torch.stack((low, ahead - low, high - ahead, high - left, left - low), -1) / low.new_tensor(
        (1.0, CELL, CELL, CELL, CELL)
    )


def heights_at(cells: Tensor, points: Tensor, *which: Tensor) -> Tensor:
    """Heights [n, P] of cells [..., X, Y, 5] at points [n, P, 2] (m) from their common corner; 0 beyond them.

    `which` [n, P] are the indices of `cells` before X and Y, if there are any.
    """
    scaled = points / CELL
    whole = torch.floor(scaled)
    x, y = whole.long().unbind(-1)
    length, width = cells.shape[-3:-1]
    inside = (x >= 0) & (x < length) & (y >= 0) & (y < width)
    cell = cells[(*which, x.clamp(0, length - 1), y.clamp(0, width - 1))]
    height = _in_cell(cell, (scaled - whole) * CELL)
    return torch.where(inside, height, torch.zeros_like(height))


def _in_cell(cell: Tensor, offset: Tensor) -> Tensor:
    """Heights [...] of cells [..., 5] at `offset` [..., 2] (m) from their lower corners."""
    u, v = offset.unbind(-1)
    low, ahead_x, ahead_y, left_x, left_y = cell.unbind(-1)
    towards_x = u >= v
    return low + torch.where(towards_x, ahead_x, left_x) * u + torch.where(towards_x, ahead_y, left_y) * v
