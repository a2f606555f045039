"""Which terrain a legged task has."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Literal

from gaitway.core.config import configuration, did_you_mean
from gaitway.core.ranges import IN_ORDER, Count, NotNegative, Range, Share
from gaitway.envs.legged.terrain.obstacles import LEVELS, OBSTACLES, SHORT_WIDTH, STEEP, VIRTUAL
from gaitway.envs.legged.terrain.tile_shapes import TILES

Level = Annotated[int, Range(0, LEVELS - 1)]


@configuration(kw_only=True)
class DepthConfig:
    """The camera at the front of the base, which groups with `forward_depth` show."""

    rows: Count = 24
    columns: Count = 32
    type: Literal["float32", "uint8"] = "float32"
    """float32: depth / 2 m - 0.5; uint8: 255 for 2 m."""
    refresh: Count = 5
    """Steps for which an image is held; instances take turns."""
    delay: Annotated[tuple[NotNegative, NotNegative], IN_ORDER] | None = None
    """Seconds after which an image is seen, drawn for each episode; null: at once."""
    noise: NotNegative = 1.0
    """Factor of the noise of depths."""
    dropped: Share = 0.01
    """Pixels that show the far end."""
    striped: Share = 0.01
    """Images with a stripe of three columns at the far end."""


@configuration(kw_only=True)
class TerrainConfig:
    """What robots walk on: a plane, a world of tiles, a height field of a bank, or a track of obstacles for each."""

    kind: Literal["flat", "tiles", "fields", "track"] = "flat"
    level: Level | None = None
    """How hard; null: by the curriculum in training, any in evaluations."""
    curriculum: bool = True
    """Levels rise and fall with what robots achieve (training alone); false: any level."""
    tiles: list[str] = field(default_factory=lambda: list(TILES))
    """Kinds of tiles; instance i walks on kind i of them."""
    fields: Count = 3
    """Height fields of each level in the bank; an episode has one of them."""
    obstacles: list[str] = field(default_factory=lambda: ["walk"])
    """Kinds of obstacles, of which each block of a track gets one."""
    blocks: Count = 3
    """Obstacles on a track, 2 m each."""
    lite: bool = False
    """Obstacles that simple gaits can pass."""
    virtual: bool = False
    """Obstacles are seen and counted as penetrated, and touch nothing: a step is a box on level ground then, and a gap
    carries robots."""
    virtual_first: bool = False
    """Robots meet virtual obstacles until they have passed the hardest level without reaching into them, then solid
    ones, from the easiest levels on (training alone; evaluations have solid ones)."""
    onehot_width: Literal[5, 11] = 11
    """Kinds that `engaging_block` tells; with 5 a step down is a jump of negative height."""
    walk_in_gap: bool = False
    """`engaging_block` says walk while the obstacle is more than 1.2 m away."""
    scan: Literal["around", "ahead"] = "around"
    """Height scan of 17 x 11 points from -0.8 to 0.8 m, or 21 x 11 from -0.5 to 1.5 m."""
    depth: DepthConfig = field(default_factory=DepthConfig)

    def __post_init__(self) -> None:
        for name, given, known in (("tiles", self.tiles, TILES), ("obstacles", self.obstacles, OBSTACLES)):
            if not given:
                raise ValueError(f"{name} of the terrain is empty; list some of {list(known)}")
            if wrong := [each for each in given if each not in known]:
                raise ValueError(f"{name} has {wrong[0]!r}{did_you_mean(wrong[0], known)}; use some of {list(known)}")
        if self.onehot_width == SHORT_WIDTH and (long := [name for name in self.obstacles if name in STEEP]):
            raise ValueError(f"onehot_width=5 has no place for {long[0]!r}; use onehot_width=11, or leave it out")
        if self.lite and (hard := [name for name in self.obstacles if OBSTACLES[name].lite is None]):
            raise ValueError(f"a lite track has no {hard[0]!r}, which no simple gait can pass; leave it out")
        solid = [name for name in self.obstacles if name not in VIRTUAL]
        if self.virtual_first and (self.virtual or self.level is not None or not self.curriculum):
            raise ValueError("virtual_first needs levels that rise: leave virtual and level out, and curriculum true")
        if (self.virtual or self.virtual_first) and solid:
            raise ValueError(
                f"{solid[0]!r} has nothing that a robot on its ground could penetrate; virtual tracks have {VIRTUAL}"
            )

    @property
    def fills_gaps(self) -> bool:
        """Whether gaps of tracks may carry robots."""
        return (self.virtual or self.virtual_first) and "leap" in self.obstacles
