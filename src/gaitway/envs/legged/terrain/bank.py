"""A bank of rough height fields of one size: all are compiled once, and an instance chooses one for each episode.

Every level has several fields, all of them around the origin. A model of MuJoCo says by one number (`geom_dataid`)
which field its geom shows; the fields themselves are shared.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gaitway.envs.episode_numbers import ALL, Index
from gaitway.envs.legged.terrain.config import TerrainConfig
from gaitway.envs.legged.terrain.levels import by_progress, share_of
from gaitway.envs.legged.terrain.obstacles import LEVELS
from gaitway.envs.legged.terrain.tile_shapes import HALF, cells_of_nodes, heights_at, rough_heights

KIND = "field"


class FieldBank:
    """Height fields of 8 x 8 m; field k is variant k % `fields` of level k // `fields`."""

    draws = 1
    kind_names = (KIND,)

    def __init__(self, config: TerrainConfig, like: Tensor) -> None:
        self.config = config
        count = LEVELS * config.fields
        shares = share_of(torch.arange(count, dtype=torch.float64).div(config.fields, rounding_mode="floor")).tolist()
        self.nodes = torch.stack([rough_heights(share, seed).float().double() for seed, share in enumerate(shares)])
        """[K, CELLS + 1, CELLS + 1], as the simulator holds them."""
        self._cells = torch.stack([cells_of_nodes(nodes) for nodes in self.nodes]).to(like)  # [K, CELLS, CELLS, 5]

    def layout_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"level": (), "variant": ()}

    def attach(self, layout: Mapping[str, Tensor]) -> None:
        self._layout = layout
        self._field = torch.zeros_like(layout["level"], dtype=torch.int64)

    def draw(self, uniform: Tensor, place: Tensor, level: Tensor) -> dict[str, Tensor]:
        return {"level": level, "variant": torch.floor(uniform[:, 0] * self.config.fields)}

    def place(self, rows: Index, layout: Mapping[str, Tensor] | None = None) -> None:
        """Fields of `rows` follow from their layout."""
        level, variant = (self._layout[name][rows] if layout is None else layout[name] for name in ("level", "variant"))
        self._field[rows] = (level * self.config.fields + variant).long()

    def numbers(self, rows: Index) -> Tensor:
        """Which field each of `rows` has, int64 [n]."""
        return self._field[rows]

    def kinds(self, rows: Index = ALL) -> Tensor:
        """All fields are of one kind."""
        return torch.zeros_like(self._layout["level"][rows])

    def origin(self, layout: Mapping[str, Tensor]) -> Tensor:
        return torch.zeros_like(layout["level"][:, None].expand(-1, 2))

    def ground(self, rows: Index, points: Tensor) -> Tensor:
        """Heights [n, P] at points [n, P, 2]; 0 beyond the field."""
        field = self._field[rows][:, None].expand(points.shape[:2])
        return heights_at(self._cells, points + HALF, field)

    def top(self, rows: Index, points: Tensor) -> Tensor:
        """What a ray from above hits."""
        return self.ground(rows, points)

    def achieved(self, memory: Mapping[str, Tensor], position: Tensor, fell: Tensor) -> tuple[Tensor, Tensor]:
        return by_progress(memory, HALF, self.is_over(position) & ~fell)

    def is_over(self, position: Tensor) -> Tensor:
        """Who has left its field [B]."""
        return (position[:, :2].abs() > HALF).any(1)
