"""A track along x for each robot: a flat block, then blocks of 2 m with an obstacle each, made of a pool of boxes.

What an episode has is drawn into its layout (`kind`, `extent`, `critical` of each block). `place` turns it into tables
that ground, scans and observations look into, and `boxes` into the boxes themselves, for whoever simulates. The floor
of a block is what lies before its obstacle; steps, slopes and stairs change the floor of all that follow.

Virtual obstacles leave the ground level: a step is a box of its extent, and a gap is filled by a box that no ray sees.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gaitway.envs.episode_numbers import Index
from gaitway.envs.legged.rows import RowsOf
from gaitway.envs.legged.terrain.config import TerrainConfig
from gaitway.envs.legged.terrain.levels import MOVED, share_of
from gaitway.envs.legged.terrain.obstacles import (
    CRAWL,
    DOWN,
    FULL_WIDTH,
    HURDLE,
    JUMP,
    LEAP,
    OBSTACLES,
    SLOPE,
    STAIRS_DOWN,
    STAIRS_UP,
    TILT,
    TREAD,
    TREADS,
)

BLOCK, WIDTH = 2.0, 1.6
"""Length of a block and width of the track (m)."""
PIT = -0.6
"""Height of the plane below (m); the lowest floor is at 0."""
RUN_IN, RUN_OUT = 1.0, 1.0
"""The floor goes on for so much before and after the blocks (m)."""
PER_BLOCK = 6
BAR, WALL, SIDE = 0.3, 0.6, 0.5
"""Height of a bar, of the walls of a tilt, and of the side walls above the highest floor (m)."""
SIDE_WIDTH, SLAB = 0.1, 0.3
"""Thickness of side walls and of ramps (m)."""
SOLID = "solid"
"""Whether obstacles of an episode touch robots, 1 or 0."""
PARKED = -10.0
"""Where boxes wait that are not used (m)."""
DRAWS = 3
"""Numbers that a block takes."""
FLOOR, EXTENT, _, _, _, OVER, HALF_GAP = range(7)
"""Columns of the profile: height behind the edge of a block; extent of its obstacle; what that adds to the ground, its
slope, the rise of its steps; how far above the floor an overhang ends, and beyond which y it stands."""
UP, DOWN_BELOW = 1.5, 1.0
"""Blocks past the first from which on a level goes up (the end of a shorter track), and below which it goes down."""


class Track:
    """Tracks of `blocks` obstacles, one per robot; tables are [B, blocks + 1], the flat block first."""

    def __init__(self, config: TerrainConfig, like: Tensor) -> None:
        self.config, self.blocks = config, config.blocks
        self.draws = DRAWS * config.blocks
        kinds = [OBSTACLES[name] for name in config.obstacles]
        ranges = [each.lite if config.lite and each.lite else (each.easy, each.hard) for each in kinds]
        self._ids = like.new_tensor([each.id for each in kinds])
        self._easy, self._hard = (like.new_tensor([pair[end] for pair in ranges]) for end in (0, 1))
        self._low, self._high = (like.new_tensor([each.extent[end] for each in kinds]) for end in (0, 1))
        self._both = like.new_tensor([each.both_signs for each in kinds])
        self.length = BLOCK * (config.blocks + 1)
        side = WIDTH / 2 + SIDE_WIDTH / 2
        self._parked, self._sides = like.new_tensor((0.0, 0.0, PARKED)), like.new_tensor((side, -side))
        self._straight = like.new_tensor((1.0, 0.0, 0.0, 0.0))

    def layout_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"level": (), **dict.fromkeys(("kind", "extent", "critical"), (self.blocks,))}

    def attach(self, layout: Mapping[str, Tensor]) -> None:
        self._layout = layout
        count, like = len(layout["level"]), layout["level"]
        shape = (count, self.blocks + 1)
        self.kind, self.extent, self.critical, self.floor = (like.new_zeros(shape) for _ in range(4))
        """Of blocks [B, blocks + 1]; `critical` of a leap is the depth of its pit, `floor` lies before the obstacle."""
        self.profile = like.new_zeros(*shape, 7)
        self.side_top = like.new_zeros(count)
        self.is_virtual = like.new_full((count,), float(self.config.virtual))

    def draw(self, uniform: Tensor, place: Tensor, level: Tensor) -> dict[str, Tensor]:
        """Obstacles of new episodes; `uniform` [n, draws], `level` [n]."""
        which, long, sign = uniform.unflatten(1, (self.blocks, DRAWS)).unbind(2)
        chosen = torch.floor(which * len(self._ids)).long()
        hardness = self._easy[chosen] + (self._hard - self._easy)[chosen] * share_of(level)[:, None]
        turned = torch.where((self._both[chosen] > 0) & (sign < 0.5), -hardness, hardness)
        kind = self._ids[chosen]
        extent = self._low[chosen] + (self._high - self._low)[chosen] * long
        leaps = kind == LEAP
        none = torch.zeros_like(turned)
        return {
            "level": level,
            "kind": kind,
            "extent": torch.where(leaps, hardness, extent),
            "critical": torch.where(leaps, none, turned),
        }

    def origin(self, layout: Mapping[str, Tensor]) -> Tensor:
        return torch.zeros_like(layout["level"][:, None].expand(-1, 2))

    def place(self, rows: Index, layout: Mapping[str, Tensor] | None = None) -> None:
        """Tables of `rows` follow from their layout."""
        drawn = RowsOf(self._layout, rows) if layout is None else layout
        kind, extent, critical = (
            torch.cat((torch.zeros_like(value[:, :1]), value), 1)
            for value in (drawn["kind"], drawn["extent"], drawn["critical"])
        )
        if self.config.virtual_first:
            self.is_virtual[rows] = 1.0 - drawn[SOLID]
        none = torch.zeros_like(extent)
        ghosts = (kind == JUMP) & (self.is_virtual[rows] > 0.0)[:, None]
        tangent = torch.where(kind == SLOPE, torch.tan(critical), none)
        rise = torch.where((kind == STAIRS_UP) | (kind == STAIRS_DOWN), critical, none)
        step = torch.where(((kind == JUMP) & ~ghosts) | (kind == DOWN), critical, none)
        climbed = (step + extent * tangent + TREADS * rise).cumsum(1)
        floor = torch.cat((none[:, :1], climbed[:, :-1]), 1)
        lowest = torch.minimum(climbed.amin(1), floor.amin(1))
        floor = floor - lowest[:, None]
        behind = floor + step
        crawls, tilts = kind == CRAWL, kind == TILT
        bump = torch.where((kind == HURDLE) | ghosts, critical, torch.where(kind == LEAP, PIT - behind, none))
        over = torch.where(crawls, critical + BAR, torch.where(tilts, torch.full_like(none, WALL), none))
        gap = torch.where(tilts, critical / 2, torch.where(crawls, none - 1.0, torch.full_like(none, torch.inf)))
        self.kind[rows], self.extent[rows], self.floor[rows] = kind, extent, floor
        self.critical[rows] = torch.where(kind == LEAP, behind - PIT, critical)
        self.profile[rows] = torch.stack((behind, extent, bump, tangent, rise, over, gap), -1)
        self.side_top[rows] = (climbed - lowest[:, None]).amax(1) + SIDE

    def block_of(self, x: Tensor) -> Tensor:
        """Numbers of the blocks [...] in which x [...] lies, the first and the last for what is outside."""
        return torch.floor(x / BLOCK).long().clamp(0, self.blocks)  # in this order: faulty rows may hold anything

    def ground(self, rows: Index, points: Tensor) -> Tensor:
        """Height of what robots stand on [n, P] at points [n, P, 2]: without bars, walls and what is virtual."""
        return self._heights(rows, points, 1.0 - self.is_virtual[rows][:, None])[0]

    def top(self, rows: Index, points: Tensor) -> Tensor:
        """What a ray from above hits [n, P]: bars and walls too."""
        ground, along, profile = self._heights(rows, points)
        x, y = points[..., 0], points[..., 1].abs()
        hangs = (along >= 0.0) & (along < profile[..., EXTENT]) & (y > profile[..., HALF_GAP])
        found = torch.where(hangs, profile[..., FLOOR] + profile[..., OVER], ground)
        side = self.side_top[rows][:, None].expand_as(found)
        found = torch.where(y > WIDTH / 2, side, found)
        outside = (x < -RUN_IN) | (x > self.length + RUN_OUT) | (y > WIDTH / 2 + SIDE_WIDTH)
        return torch.where(outside, torch.full_like(found, PIT), found)

    def _heights(self, rows: Index, points: Tensor, solid: Tensor | float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
        """Ground [n, P], how far into its block each point is [n, P], and the profiles of the blocks [n, P, 7]; boxes
        and gaps count where `solid` [n, 1] is 1."""
        x = points[..., 0]
        number = self.block_of(x)
        profile = self.profile[rows].gather(1, number[..., None].expand(-1, -1, 7))
        along = x - BLOCK * number
        floor, extent, bump, slope, rise = profile[..., :5].unbind(-1)
        steps = (torch.floor(along / TREAD) + 1.0).clamp(0.0, float(TREADS))
        ground = floor + slope * torch.minimum(along.clamp(min=0.0), extent) + rise * steps
        ground = ground + torch.where((along >= 0.0) & (along < extent), bump * solid, torch.zeros_like(bump))
        return ground, along, profile

    def achieved(self, memory: Mapping[str, Tensor], position: Tensor, fell: Tensor) -> tuple[Tensor, Tensor]:
        """Who moves up [B] and down [B], by how far it came along the track."""
        passed = position[:, 0] / BLOCK - 1.0
        return (passed > min(UP, float(self.blocks))) & ~fell, (passed < DOWN_BELOW) & (memory["asked"] > MOVED)

    @property
    def num_boxes(self) -> int:
        return self.num_visible + (self.blocks + 1) * self.config.fills_gaps

    @property
    def num_visible(self) -> int:
        """Boxes that rays see: the others fill gaps."""
        return PER_BLOCK * (self.blocks + 1) + 2

    def hanging(self, rows: Index) -> Tensor:
        """Which boxes of `rows` are bars, walls, hurdles and steps, bool [n, K]: those that may be virtual."""
        kind = self.kind[rows][..., None]
        part = torch.arange(PER_BLOCK, dtype=kind.dtype, device=kind.device)
        hangs = ((kind == TILT) | (kind == CRAWL) | (kind == HURDLE) | (kind == JUMP)) & (part > 0)
        others = self.num_boxes - hangs[0].numel()
        return torch.cat((hangs.flatten(1), torch.zeros_like(hangs[:, 0, :1]).expand(-1, others)), 1)

    def boxes(self, rows: Index) -> tuple[Tensor, Tensor, Tensor]:
        """Middles [n, K, 3], half sizes [n, K, 3] and quaternions [n, K, 4] of the boxes of `rows`."""
        kind, floor, critical = (
            table[rows][..., None] for table in (self.kind, self.floor, self.critical)
        )  # [n, b, 1]
        behind, extent, bump, slope, rise, over, _ = self.profile[rows][..., None].unbind(2)
        none, whole = torch.zeros_like(kind), WIDTH / 2
        part = torch.arange(PER_BLOCK, dtype=kind.dtype, device=kind.device)  # [6]
        number = torch.arange(self.blocks + 1, dtype=kind.dtype, device=kind.device)[:, None]
        begins, ends = -RUN_IN * (number == 0), BLOCK + RUN_OUT * (number == self.blocks)
        slopes, tilts, crawls = kind == SLOPE, kind == TILT, kind == CRAWL
        stairs = (kind == STAIRS_UP) | (kind == STAIRS_DOWN)
        first, second, third = part == 0, part == 1, part == 2
        boxed = (kind == HURDLE) | ((kind == JUMP) & (self.is_virtual[rows] > 0.0)[:, None, None])
        hangs = ((crawls | boxed) & second) | (tilts & (second | third))
        level = slopes & second  # what follows a ramp
        used = first | hangs | level | (stairs & (part < TREADS))
        near = torch.where(first, torch.where(kind == LEAP, extent, begins), torch.where(level, extent, none))
        near = torch.where(stairs, TREAD * part, near)
        far = torch.where(first, torch.where(slopes, extent, ends), torch.where(level, ends, extent))
        far = torch.where(stairs, torch.where(part == TREADS - 1, ends, TREAD * (part + 1)), far)
        top = torch.where(hangs, floor + torch.where(boxed, bump, over), behind + rise * (part + 1))
        top = torch.where(level, behind + extent * slope, top)
        low = torch.where(hangs, floor + torch.where(crawls, critical, none - SLAB / 2), none + PIT)
        left = torch.where(tilts & second, critical / 2, none - whole)
        right = torch.where(tilts & third, -critical / 2, none + whole)
        start = BLOCK * number
        lower = torch.stack(torch.broadcast_tensors(start + near, left, low), -1).flatten(1, 2)  # [n, 6 b, 3]
        upper = torch.stack(torch.broadcast_tensors(start + far, right, top), -1).flatten(1, 2)
        middle, half = (lower + upper) / 2, (upper - lower) / 2
        angle = torch.where(first, slope.atan(), none).flatten(1)
        middle, half = _tilted(middle, half, upper[..., 2], angle)
        away = ~used.flatten(1)[..., None]
        middle = torch.where(away, self._parked, middle)
        half = torch.where(away, half.new_full((3,), 0.01), half)
        turn = torch.zeros_like(angle)
        turn = torch.stack((torch.cos(angle / 2), turn, -torch.sin(angle / 2), turn), -1)
        parts = [(middle, half, turn), self._side_walls(rows), *([self._fills(rows)] if self.config.fills_gaps else [])]
        return tuple(torch.cat(each, 1) for each in zip(*parts, strict=True))  # type: ignore[return-value]

    def _fills(self, rows: Index) -> tuple[Tensor, Tensor, Tensor]:
        """Boxes [n, b] in the gaps of virtual tracks, level with the ground beside them."""
        extent, floor = self.extent[rows], self.floor[rows]
        start = BLOCK * torch.arange(self.blocks + 1, dtype=extent.dtype, device=extent.device)
        none = torch.zeros_like(extent)
        middle = torch.stack((start + extent / 2, none, (floor + PIT) / 2), -1)
        half = torch.stack((extent / 2, none + WIDTH / 2, (floor - PIT) / 2), -1)
        away = ((self.kind[rows] != LEAP) | (self.is_virtual[rows] == 0.0)[:, None])[..., None]
        middle = torch.where(away, self._parked, middle)
        half = torch.where(away, half.new_full((3,), 0.01), half)
        return middle, half, self._straight.expand(*extent.shape, 4)

    def _side_walls(self, rows: Index) -> tuple[Tensor, Tensor, Tensor]:
        top = self.side_top[rows][:, None]
        length, height = (self.length + RUN_IN + RUN_OUT) / 2, (top - PIT) / 2
        y = self._sides.expand(len(top), 2)
        middle = torch.stack((0.0 * y + length - RUN_IN, y, (0.0 * y + top + PIT) / 2), -1)
        half = torch.stack((0.0 * y + length, 0.0 * y + SIDE_WIDTH / 2, 0.0 * y + height), -1)
        return middle, half, self._straight.expand(len(top), 2, 4)

    def one_hot(self, kind: Tensor) -> Tensor:
        """Kinds [n] as [n, onehot_width]; with a width of 5 a step down is a jump."""
        width = self.config.onehot_width
        number = kind if width == FULL_WIDTH else torch.where(kind == DOWN, torch.full_like(kind, JUMP), kind)
        places = torch.arange(width, dtype=kind.dtype, device=kind.device)
        return (number[:, None] == places).to(kind.dtype)


def _tilted(middle: Tensor, half: Tensor, start: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    """Boxes [n, K] of which some are ramps: from the height `start` [n, K] of the upper face at its lower x."""
    ramps = angle != 0.0
    sin, cos = torch.sin(angle), torch.cos(angle)
    x, y, z = middle.unbind(-1)
    length, width, height = half.unbind(-1)
    upper = start + length * torch.tan(angle)
    x, z = torch.where(ramps, x + SLAB / 2 * sin, x), torch.where(ramps, upper - SLAB / 2 * cos, z)
    length = torch.where(ramps, length / cos, length)
    height = torch.where(ramps, torch.full_like(height, SLAB / 2), height)
    return torch.stack((x, y, z), -1), torch.stack((length, width, height), -1)
