"""What a legged task asks of its terrain: starts, heights above the ground, what is seen of it, levels, and when a
robot has passed it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from gaitway.envs.episode_numbers import Index
from gaitway.envs.legged.frame import Frame, Physics, norm
from gaitway.envs.legged.terrain import depth, scan
from gaitway.envs.legged.terrain.bank import FieldBank
from gaitway.envs.legged.terrain.blocks import BodyPoints, Place
from gaitway.envs.legged.terrain.config import TerrainConfig
from gaitway.envs.legged.terrain.depth import CAMERA_DRAWS, DepthCamera
from gaitway.envs.legged.terrain.levels import CLEAN, UNKNOWN, first_level, graduated, next_level, share_of
from gaitway.envs.legged.terrain.obstacles import ID
from gaitway.envs.legged.terrain.tiles import Tiles
from gaitway.envs.legged.terrain.track import BLOCK, SOLID, Track
from gaitway.envs.spec import Pooled

INFO = 3
"""Numbers of `engaging_block` besides its one-hot."""
LEVEL_METRIC, SUCCESS = "terrain_level", "success"
FURTHEST = "furthest"
"""The largest x of an episode so far (m)."""
DEPTH, TAKEN, DELAY = "depth_image", "depth_taken", "depth_delay"


TERRAINS: dict[str, type[Tiles] | type[FieldBank] | type[Track]] = {"tiles": Tiles, "fields": FieldBank, "track": Track}


class Surroundings:
    """The terrain of B robots and how they perceive it; `used` are the leaves of observations that somebody sees."""

    def __init__(
        self, config: TerrainConfig, points: BodyPoints | None, used: Collection[str], like: Tensor, dt: float = 0.02
    ) -> None:
        """`dt` is the time of a step."""
        self.config, self.points = config, points
        self.terrain: Tiles | FieldBank | Track = TERRAINS[config.kind](config, like)
        self.track = self.terrain if isinstance(self.terrain, Track) else None
        self.camera = DepthCamera(config.depth, like, dt) if "forward_depth" in used else None
        self._is_late = self.camera is not None and self.camera.delays is not None
        self._used = set(used)
        self._grid = scan.grid(config.scan, like)
        self.draws = 1 + CAMERA_DRAWS + self.terrain.draws + self._is_late

    @staticmethod
    def leaf_sizes(config: TerrainConfig) -> dict[str, int]:
        """Leaves of observations that there are, and their sizes; images have 0."""
        if config.kind == "flat":
            return {}
        found = {"terrain_level": 1, "height_scan": scan.size(config.scan), "forward_depth": 0}
        return found if config.kind != "track" else {
            **found, "engaging_block": config.onehot_width + INFO, "sidewall_distance": 2
        }  # fmt: skip

    @staticmethod
    def leaf_mirrors(config: TerrainConfig) -> dict[str, list[int]]:
        """Which entry of a leaf is where each one is seen in a mirror, none with another sign; of images: which column.
        Obstacles are their own images, and walls change places."""
        sizes = Surroundings.leaf_sizes(config)
        found = {name: list(range(size)) for name, size in sizes.items()}
        columns = depth.mirrored(config.depth)
        others = {"height_scan": scan.mirrored(config.scan), "sidewall_distance": [1, 0], "forward_depth": columns}
        found |= {name: order for name, order in others.items() if name in sizes and order is not None}
        return {name: order for name, order in found.items() if order}

    # state

    def layout_shapes(self) -> dict[str, tuple[int, ...]]:
        late: dict[str, tuple[int, ...]] = {DELAY: ()} if self._is_late else {}
        first: dict[str, tuple[int, ...]] = {SOLID: ()} if self.config.virtual_first else {}
        return {**self.terrain.layout_shapes(), "camera": (CAMERA_DRAWS,), **late, **first}

    def memory_shapes(self) -> dict[str, tuple[int, ...]]:
        """What an episode carries."""
        first: dict[str, tuple[int, ...]] = {"penetrated": ()} if self.config.virtual_first else {}
        return {"progress": (), "asked": (), **({FURTHEST: ()} if self.track else {}), **first}

    def lasting_shapes(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """What outlives an episode, and types: the level that comes next, and whether obstacles are solid then; the
        image that is held; where images are seen late, those that wait, newest first, and when they were taken."""
        found: dict[str, tuple[tuple[int, ...], torch.dtype]] = {"next_level": ((), torch.float64)}
        if self.config.virtual_first:
            found["next_solid"] = ((), torch.float64)
        camera = self.camera
        if camera is None:
            return found
        if not self._is_late:
            return {**found, DEPTH: (camera.shape, camera.dtype)}
        return {**found, DEPTH: ((camera.kept, *camera.shape), camera.dtype), TAKEN: ((camera.kept,), torch.float64)}

    def attach(self, memory: Mapping[str, Tensor], layout: Mapping[str, Tensor], trains: bool) -> None:
        self._memory, self._layout, self.trains = memory, layout, trains
        self.terrain.attach(layout)

    def forget_levels(self) -> None:
        """Every robot is about to begin for the first time."""
        self._memory["next_level"].fill_(UNKNOWN)
        if self.config.virtual_first:
            self._memory["next_solid"].zero_()

    # beginnings

    def draw(self, rows: Index, uniform: Tensor, place: Tensor) -> dict[str, Tensor]:
        """The terrain of new episodes of `rows` [n, ...]; `uniform` [n, draws]."""
        level = first_level(self.config, self.trains, self._memory["next_level"][rows], uniform[:, 0])
        camera, rest = uniform[:, 1 : 1 + CAMERA_DRAWS], uniform[:, 1 + CAMERA_DRAWS :]
        mount = torch.zeros_like(camera) if self.camera is None else self.camera.mount(camera)
        drawn = {**self.terrain.draw(rest[:, : self.terrain.draws], place, level), "camera": mount}
        if self.camera is not None and self.camera.delays is not None:
            least, most = self.camera.delays
            drawn[DELAY] = least + (most - least) * rest[:, -1]
        if self.config.virtual_first:
            drawn[SOLID] = self._memory["next_solid"][rows] if self.trains else torch.ones_like(level)
        self.terrain.place(rows, drawn)
        return drawn

    def place(self, rows: Index) -> None:
        """Layouts of `rows` were written."""
        self.terrain.place(rows)

    # steps

    def above_ground(self, rows: Index, measured: dict[str, Tensor]) -> dict[str, Tensor]:
        """Heights of bases and feet count from the ground below them."""
        points = torch.cat((measured["position"][:, None], measured["foot_position"]), 1)
        ground = self.terrain.ground(rows, points[..., :2])
        heights = {
            "height": measured["height"] - ground[:, 0],
            "foot_height": measured["foot_height"] - ground[:, 1:],
        }
        return {**measured, **heights}

    def where(self, rows: Index, physics: Physics, position: Tensor) -> Place | None:
        """Where robots are on their tracks."""
        if self.track is None or self.points is None or physics.bodies is None:
            return None
        points = self.points.positions(physics.bodies)
        return Place(self.track, rows, position, points, self.points.speeds(physics.bodies, points))

    def seen(self, rows: Index, frame: Frame) -> dict[str, Tensor]:
        """Leaves of observations [n, size] by name, of those that are used."""
        found: dict[str, Tensor] = {}
        if LEVEL_METRIC in self._used:
            found[LEVEL_METRIC] = share_of(self._layout["level"][rows])[:, None]
        if "height_scan" in self._used:
            points = scan.scanned(self._grid, frame.position, frame.yaw)
            found["height_scan"] = scan.shown(frame.position[:, 2], self.terrain.top(rows, points))
        if frame.place is not None:
            if "engaging_block" in self._used:
                found["engaging_block"] = frame.place.engaging()
            if "sidewall_distance" in self._used:
                found["sidewall_distance"] = frame.place.to_the_walls()
        return found

    def count(self, frame: Frame) -> dict[str, Tensor]:
        """Add a step to what an episode achieved; metrics [B] by name."""
        memory, speed = self._memory, norm(frame.command[:, :2])
        along = (frame.command * frame.yaw_vel)[:, :2].sum(1) / speed.clamp(min=1e-9)
        memory["progress"].add_(along * frame.dt)
        memory["asked"].add_(speed * frame.dt)
        metrics = {LEVEL_METRIC: self._layout["level"]}
        place = frame.place
        if self.config.virtual_first and place is not None:
            forwards = frame.velocity[:, 0].clamp(min=0.0) * frame.dt
            memory["penetrated"].add_(place.penetration().amax(1) * forwards)
            metrics[SOLID] = self._layout[SOLID]
        if place is None:
            assert not isinstance(self.terrain, Track)
            kinds = self.terrain.kinds()
            for number, name in enumerate(self.terrain.kind_names):
                here = (kinds == number).to(speed.dtype)
                metrics |= {f"level_{name}_episode": here * self._layout["level"], f"on_{name}_episode": here}
            return metrics
        assert self.track is not None
        rear = place.position[:, 0] + place.rear
        ends = BLOCK * torch.arange(2, self.track.blocks + 2, dtype=rear.dtype, device=rear.device)
        passed, kinds = rear[:, None] > ends, self.track.kind[:, 1:]
        metrics[SUCCESS] = (place.is_past() & ~frame.terminated).to(rear.dtype)
        # over all blocks, the flat one too: without it whoever stands before the last obstacle would have traversed all
        memory[FURTHEST].copy_(torch.maximum(memory[FURTHEST], place.position[:, 0]))
        metrics["traverse"] = (memory[FURTHEST] / self.track.length).clamp(0.0, 1.0)
        for name in dict.fromkeys(self.config.obstacles):
            met = kinds == ID[name]
            metrics[f"met_{name}_episode"] = met.sum(1).to(rear.dtype)
            metrics[f"passed_{name}_episode"] = (met & passed).sum(1).to(rear.dtype)
        return metrics

    @property
    def metrics(self) -> tuple[str, ...]:
        if not isinstance(self.terrain, Track):
            kinds = (f"{what}_{name}_episode" for name in self.terrain.kind_names for what in ("level", "on"))
            return LEVEL_METRIC, *kinds
        kinds = (
            f"{what}_{name}_episode" for name in dict.fromkeys(self.config.obstacles) for what in ("met", "passed")
        )
        return LEVEL_METRIC, *((SOLID,) if self.config.virtual_first else ()), SUCCESS, "traverse", *kinds

    @property
    def reductions(self) -> dict[str, str]:
        return {"traverse": "last", LEVEL_METRIC: "last"} if self.track else {LEVEL_METRIC: "last"}

    @property
    def pooled(self) -> dict[str, Pooled]:
        """Levels by kind of tile; shares of obstacles that were passed, by kind."""
        if not isinstance(self.terrain, Track):
            return {
                f"level_{name}": Pooled(f"level_{name}_episode", f"on_{name}_episode")
                for name in self.terrain.kind_names
            }
        return {
            f"passed_{name}": Pooled(f"passed_{name}_episode", f"met_{name}_episode")
            for name in dict.fromkeys(self.config.obstacles)
        }

    def is_over(self, frame: Frame) -> Tensor:
        """Who has passed its terrain [B]: the end of a track, the border of a tile or a field."""
        if frame.place is not None:
            return frame.place.is_past()
        assert not isinstance(self.terrain, Track)
        return self.terrain.is_over(frame.position)

    def move_levels(self, ended: Tensor, frame: Frame) -> None:
        """Plan the levels of the next episodes where `ended` [B]."""
        up, down = self.terrain.achieved(self._memory, frame.position, frame.terminated)
        planned = self._memory["next_level"]
        if not self.config.virtual_first:
            planned.copy_(torch.where(ended, next_level(self._layout["level"], up, down), planned))
            return
        assert frame.place is not None
        solid, next_solid = self._layout[SOLID], self._memory["next_solid"]
        clean = self._memory["penetrated"] <= CLEAN * frame.place.way_through()
        level, firm = graduated(next_level(self._layout["level"], up & ((solid > 0.0) | clean), down), solid)
        planned.copy_(torch.where(ended, level, planned))
        next_solid.copy_(torch.where(ended, firm, next_solid))

    def levels(self) -> dict[str, Tensor]:
        """Levels of the robots on each kind of tile, or on tracks; kinds that nobody is on are left out.

        This looks at values: it is for the time between iterations.
        """
        level = self._layout["level"]
        if isinstance(self.terrain, Track):
            return {"track": level}
        kind = self.terrain.kinds()
        kinds = {name: level[kind == number] for number, name in enumerate(self.terrain.kind_names)}
        return {name: found for name, found in kinds.items() if len(found)}

    def contacts(self, rows: Index) -> Tensor | None:
        """Which boxes of the tracks of `rows` are solid, bool [n, K]; None where that is never drawn."""
        if self.track is None or not self.config.virtual_first:
            return None
        return ~self.track.hanging(rows) | (self._layout[SOLID][rows] > 0.0)[:, None]

    # images

    def image_due(self, elapsed: Tensor) -> Tensor:
        """Whose image is taken anew in this step [B]."""
        assert self.camera is not None
        return self.camera.is_due(elapsed, self._layout["place"])

    def rays(self, rows: Tensor, position: Tensor, rotation: Tensor) -> tuple[Tensor, Tensor]:
        """Rays of the cameras of `rows`, whose bases are [n, 3] and [n, 4]."""
        assert self.camera is not None
        return self.camera.rays(position, rotation, self._layout["camera"][rows])

    def hold(
        self, rows: Tensor, distance: Tensor, uniform: Tensor | None, elapsed: Tensor, is_new: bool = False
    ) -> None:
        """Take the images that distances [n, P] along these rays make, in step `elapsed` [n] of their episodes; those
        of a new episode have no others before them."""
        assert self.camera is not None
        image, memory = self.camera.image(distance, uniform), self._memory
        if not self._is_late:
            memory[DEPTH][rows] = image
        elif is_new:
            memory[DEPTH][rows] = image[:, None].expand(-1, self.camera.kept, -1, -1, -1)
            memory[TAKEN][rows] = 0.0
        else:
            memory[DEPTH][rows] = torch.cat((image[:, None], memory[DEPTH][rows][:, :-1]), 1)
            memory[TAKEN][rows] = torch.cat((elapsed[:, None].to(memory[TAKEN]), memory[TAKEN][rows][:, :-1]), 1)

    def image(self, rows: Index, elapsed: Tensor) -> Tensor:
        """What is seen [n, ...] in step `elapsed` [n] of their episodes."""
        held = self._memory[DEPTH][rows]
        if self.camera is None or not self._is_late:
            return held
        which = self.camera.seen(self._memory[TAKEN][rows], elapsed, self._layout[DELAY][rows])
        return held[torch.arange(len(held), device=held.device), which]
