"""A world of tiles: levels along x, kinds along y. It is one for all robots, which never meet: a robot's terrain is
where it begins."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gaitway.envs.episode_numbers import ALL, Index
from gaitway.envs.legged.terrain.config import TerrainConfig
from gaitway.envs.legged.terrain.levels import by_progress
from gaitway.envs.legged.terrain.obstacles import LEVELS
from gaitway.envs.legged.terrain.tile_shapes import (
    CELLS,
    HALF,
    ROUGH,
    SIZE,
    TILES,
    Box,
    cells_of,
    cells_of_nodes,
    heights_at,
    rough_heights,
)


class Tiles:
    """Ground of tiles; `boxes` and `field` say of what it is made."""

    draws = 0

    def __init__(self, config: TerrainConfig, like: Tensor) -> None:
        self.config = config
        self.boxes: list[Box] = []
        self.field = torch.zeros(LEVELS * CELLS + 1, CELLS + 1, dtype=torch.float64)
        """Nodes of the rough tiles, one after another along x."""
        columns = []
        for number, name in enumerate(config.tiles):
            shape, column = TILES[name], []
            for level in range(LEVELS):
                share = level / (LEVELS - 1)
                if shape is None:
                    nodes = rough_heights(share, level).float().double()  # as the simulator holds them
                    self.field[level * CELLS : (level + 1) * CELLS + 1] = nodes
                    column.append(cells_of_nodes(nodes))
                    continue
                boxes = shape(share)
                column.append(cells_of(boxes))
                x, y = SIZE * level + HALF, SIZE * number + HALF
                self.boxes += [(box[0] + x, box[1] + y, *box[2:]) for box in boxes]
            columns.append(torch.cat(column))
        self._cells = torch.cat(columns, 1).to(like)  # [X, Y, 5]

    @property
    def kind_names(self) -> tuple[str, ...]:
        return tuple(self.config.tiles)

    @property
    def field_row(self) -> int | None:
        """Which row of tiles is the height field; None without one."""
        return self.config.tiles.index(ROUGH) if ROUGH in self.config.tiles else None

    def layout_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"level": (), "tile": ()}

    def attach(self, layout: Mapping[str, Tensor]) -> None:
        self._layout = layout

    def draw(self, uniform: Tensor, place: Tensor, level: Tensor) -> dict[str, Tensor]:
        return {"level": level, "tile": torch.remainder(place, len(self.config.tiles))}

    def place(self, rows: Index, layout: Mapping[str, Tensor] | None = None) -> None:
        """Nothing moves."""

    def origin(self, layout: Mapping[str, Tensor]) -> Tensor:
        """The middles of the tiles of episodes [n, 2]."""
        return torch.stack((SIZE * layout["level"] + HALF, SIZE * layout["tile"] + HALF), 1)

    def ground(self, rows: Index, points: Tensor) -> Tensor:
        """Heights [n, P] at points [n, P, 2]; 0 beyond the world."""
        return heights_at(self._cells, points)

    def top(self, rows: Index, points: Tensor) -> Tensor:
        """What a ray from above hits."""
        return self.ground(rows, points)

    def achieved(self, memory: Mapping[str, Tensor], position: Tensor, fell: Tensor) -> tuple[Tensor, Tensor]:
        return by_progress(memory, HALF, self.is_over(position) & ~fell)

    def is_over(self, position: Tensor) -> Tensor:
        """Who has left its tile [B]."""
        away = position[:, :2] - self.origin(self._layout)
        return (away.abs() > HALF).any(1)

    def kinds(self, rows: Index = ALL) -> Tensor:
        return self._layout["tile"][rows]
