"""Terrain in MuJoCo: planes, boxes and height fields of a model, and a pool of boxes that every instance has its own
places of."""

from __future__ import annotations

import math
from collections.abc import Mapping

import mujoco
import numpy as np
import torch
from mujoco.batch import Batch
from torch import Tensor

from gaitway.envs.legged.config import LeggedConfig
from gaitway.envs.legged.endings import FINISH
from gaitway.envs.legged.observations import listed
from gaitway.envs.legged.rewards import TRACK_TERMS
from gaitway.envs.legged.terrain.bank import FieldBank
from gaitway.envs.legged.terrain.blocks import BodyPoints
from gaitway.envs.legged.terrain.config import DepthConfig
from gaitway.envs.legged.terrain.depth import DepthCamera
from gaitway.envs.legged.terrain.obstacles import CRAWL, HURDLE, JUMP, LEVELS, OBSTACLES, TILT
from gaitway.envs.legged.terrain.surroundings import Surroundings
from gaitway.envs.legged.terrain.tile_shapes import CELLS, HALF, SIZE
from gaitway.envs.legged.terrain.tiles import Tiles
from gaitway.envs.legged.terrain.track import PER_BLOCK, PIT, Track
from gaitway.envs.robots import world
from gaitway.envs.robots.legged import FEET, LINKS, TERRAIN, LeggedView, RobotError
from gaitway.envs.spec import Component, ObservationGroup
from gaitway.envs.tasks.legged.model import LIKE, robot_of

BODY_FIELDS = ("xpos", "xquat", "cvel", "subtree_com")
"""What tells where points of a robot are, and how fast."""
BOX_FIELDS = ("geom_pos", "geom_size", "geom_quat")
"""What places a box."""
CONTACT_FIELDS = ("geom_contype", "geom_conaffinity")
"""What makes a box solid."""
TERRAIN_GROUP = np.array([1, 0, 0, 0, 0, 0], dtype=np.uint8)
"""Geoms that rays see: terrain is in group 0, robots are not."""
ROBOT_GROUP, UNSEEN_GROUP = 2, 3
STONE, OTHER_STONE, BAR = (0.62, 0.64, 0.60, 1.0), (0.50, 0.54, 0.56, 1.0), (0.80, 0.52, 0.30, 1.0)
GLASS = (0.6, 0.7, 0.8, 0.15)
TERRAIN_CAMERA = "terrain"
VIEWS = {"track": ((0.9, -2.7, 0.9), (72.0, 0.0, 0.0)), "tiles": ((0.0, -5.0, 3.0), (60.0, 0.0, 0.0))}
VIEWS["fields"] = VIEWS["tiles"]
"""Where the camera of pictures is, from the robot, and how it is turned (degrees)."""
FIELD = "rough"
FIELD_OF_GEOM = "geom_dataid"
BELOW = 0.05
"""Thickness of a height field below its lowest point (m)."""


def surroundings(config: LeggedConfig, like: Tensor = LIKE) -> Surroundings | None:
    """The terrain of a task; None for a plane."""
    if config.terrain.kind != "track":
        for term in config.terms:
            if term.name in TRACK_TERMS and term.weight:
                raise ValueError(f"rewards lists {term.name}, which only tracks have; write terrain.kind=track")
        if FINISH in config.endings:
            raise ValueError("endings lists finish, and only tracks have an end; write terrain.kind=track")
        if config.commands.sampler == "goal":
            raise ValueError("commands.sampler is goal, and only tracks have goals; write terrain.kind=track")
    if config.terrain.kind == "flat":
        return None
    robot = robot_of(config)
    return Surroundings(config.terrain, None, listed(config.observations), like, robot.timestep * robot.substeps)


def check_robot(config: LeggedConfig, view: LeggedView) -> None:
    if view.is_planar:
        raise RobotError(f"{view.robot.name} moves in a plane, and terrain needs a robot with a free joint; use pup12")


def check_layout(around: Surroundings, given: Mapping[str, np.ndarray]) -> None:
    """Refuse terrain that does not exist, in the sentence of its first mistake."""
    ids = [each.id for each in OBSTACLES.values()]
    known = {
        "level": range(LEVELS),
        "tile": range(len(around.config.tiles)),
        "kind": ids,
        "variant": range(around.config.fields),
    }
    for name, values in known.items():
        wrong = [] if name not in given else given[name][~np.isin(given[name], list(values))].tolist()
        if wrong:
            raise ValueError(f"scenario field {name!r} has {wrong[0]:g}; use whole numbers of {list(values)}")
    if "extent" in given and ((given["extent"] < 0.0) | (given["extent"] > 1.8)).any():
        raise ValueError("scenario field 'extent' must lie between 0 and 1.8 m, within a block")


def image_group(config: DepthConfig, noise: float) -> ObservationGroup:
    """What the depth camera shows; the group's name is the user's."""
    camera = DepthCamera(config, LIKE)
    count = config.rows * config.columns
    return ObservationGroup("depth", (Component("depth", count, "m", scale=0.5),), camera.shape, config.type)


def add_terrain(spec: mujoco.MjSpec, around: Surroundings | None) -> None:
    """The ground below a robot."""
    floor = world.add_floor(spec)
    floor.contype, floor.conaffinity, floor.group = TERRAIN, FEET | LINKS, 0
    if around is None:
        return
    for geom in spec.geoms:
        if geom.parent.name != spec.worldbody.name and geom.group == 0:
            geom.group = ROBOT_GROUP  # cameras look past the robot
    if isinstance(around.terrain, Track):
        floor.pos = [0.0, 0.0, PIT]
        _add_pool(spec, around.terrain)
    elif isinstance(around.terrain, FieldBank):
        _add_bank(spec, around.terrain)
    else:
        _add_tiles(spec, around.terrain)


def _add_pool(spec: mujoco.MjSpec, track: Track) -> None:
    """Boxes wait below the floor until a layout places them."""
    contacts, none = (TERRAIN, FEET | LINKS), (0, 0)
    for number in range(track.num_boxes):
        part = number % PER_BLOCK
        fills, is_side = number >= track.num_visible, track.num_visible - 2 <= number < track.num_visible
        colour = GLASS if is_side else STONE
        bits = none if track.config.virtual and part and not (is_side or fills) else contacts
        place = (0.0, 0.0, world.PARKED[2])
        group = UNSEEN_GROUP if fills else 0
        box = world.add_static(spec, _box(number), "box", [0.01, 0.01, 0.01], place, rgba=colour, group=group)
        box.contype, box.conaffinity = bits


def _add_tiles(spec: mujoco.MjSpec, tiles: Tiles) -> None:
    for number, (x, y, z, length, width, height, angle) in enumerate(tiles.boxes):
        colour = STONE if number % 2 else OTHER_STONE
        box = world.add_static(
            spec, _box(number), "box", [length, width, height], (x, y, z), rgba=colour, group=0,
            contype=TERRAIN, conaffinity=FEET | LINKS,
        )  # fmt: skip
        box.quat = [math.cos(angle / 2), 0.0, -math.sin(angle / 2), 0.0]
    row = tiles.field_row
    if row is None:
        return
    heights = tiles.field.numpy()
    assert heights.shape[0] == LEVELS * CELLS + 1
    _add_heights(spec, FIELD, heights, SIZE * LEVELS / 2)
    _add_field(spec, FIELD, (SIZE * LEVELS / 2, SIZE * row + HALF, 0.0))


def _add_bank(spec: mujoco.MjSpec, bank: FieldBank) -> None:
    """All fields, and one geom that shows the last of them until a layout chooses."""
    for number, heights in enumerate(bank.nodes.numpy()):
        _add_heights(spec, f"{FIELD}_{number}", heights, HALF)
    _add_field(spec, f"{FIELD}_{len(bank.nodes) - 1}", (0.0, 0.0, 0.0))


def _add_heights(spec: mujoco.MjSpec, name: str, heights: np.ndarray, half_length: float) -> None:
    """A height field of nodes [X, Y], of which the lowest is 0."""
    highest = float(heights.max())
    field = spec.add_hfield(name=name, nrow=heights.shape[1], ncol=heights.shape[0])
    field.size = [half_length, HALF, highest, BELOW]
    field.userdata = (heights.T / highest).reshape(-1).tolist()  # rows run along y


def _add_field(spec: mujoco.MjSpec, name: str, place: tuple[float, float, float]) -> None:
    world.add_static(
        spec, FIELD, "hfield", [0.0, 0.0, 0.0], place, rgba=OTHER_STONE, group=0,
        contype=TERRAIN, conaffinity=FEET, hfieldname=name,
    )  # fmt: skip


def _box(number: int) -> str:
    return f"terrain_{number}"


def box_numbers(model: mujoco.MjModel, track: Track) -> tuple[int, int]:
    """The first geom of the pool of boxes, and the one after the last."""
    numbers = [model.geom(_box(number)).id for number in range(track.num_boxes)]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    return numbers[0], numbers[-1] + 1


class BoxPool:
    """The boxes of a batch, [B, K, ...] each; whoever writes them calls `set_const` afterwards."""

    def __init__(self, batch: Batch, model: mujoco.MjModel, around: Surroundings) -> None:
        assert around.track is not None
        self._track = around.track
        self._around = around
        first, last = box_numbers(model, self._track)
        self._fields = [torch.from_numpy(batch.expand(name))[:, first:last] for name in BOX_FIELDS]
        self._bits = [
            (torch.from_numpy(batch.expand(name))[:, first:last], bits)
            for name, bits in zip(CONTACT_FIELDS, (TERRAIN, FEET | LINKS), strict=True)
            if around.config.virtual_first
        ]

    def paint(self, index: int, model: mujoco.MjModel) -> None:
        """Bars, walls and hurdles of one instance in a colour of their own; other boxes are ground."""
        kinds = self._track.kind[index].tolist()
        for block, kind in enumerate(kinds):
            for part in range(PER_BLOCK):
                hangs = part in (1, 2) and int(kind) in (CRAWL, TILT, HURDLE, JUMP)
                colour = BAR if hangs else (STONE, OTHER_STONE)[(block + part) % 2]
                model.geom(_box(PER_BLOCK * block + part)).rgba = colour

    def write(self, rows: Tensor) -> None:
        for field, value in zip(self._fields, self._track.boxes(rows), strict=True):
            field[rows] = value
        solid = self._around.contacts(rows)
        if solid is not None:
            for field, bits in self._bits:
                field[rows] = bits * solid.to(field.dtype)


class ChosenFields:
    """Which height field of a bank the model of each instance shows; whoever writes it calls `set_const` afterwards."""

    def __init__(self, batch: Batch, model: mujoco.MjModel, bank: FieldBank) -> None:
        self._bank = bank
        self._first = int(model.hfield(f"{FIELD}_0").id)
        self._numbers = torch.from_numpy(batch.expand(FIELD_OF_GEOM))[:, model.geom(FIELD).id]

    def write(self, rows: Tensor) -> None:
        self._numbers[rows] = (self._first + self._bank.numbers(rows)).to(self._numbers.dtype)


def body_points(view: LeggedView) -> BodyPoints:
    """Points on the geoms that collide: corners and middles of faces of boxes, ends and middles of capsules, middles of
    everything else."""
    model = view.model
    bodies, places = [], []
    kinds = mujoco.mjtGeom
    for geom in range(model.ngeom):
        if model.geom_bodyid[geom] == 0 or not model.geom_contype[geom]:
            continue
        kind, size = int(model.geom_type[geom]), model.geom_size[geom]
        if kind == int(kinds.mjGEOM_BOX):
            corners = [(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]
            faces = [tuple(sign * (axis == each) for each in range(3)) for axis in range(3) for sign in (-1, 1)]
            local = np.array([*corners, *faces]) * size
        elif kind == int(kinds.mjGEOM_CAPSULE):
            local = np.array([(0.0, 0.0, share * size[1]) for share in (-1, 0, 1)])
        else:
            local = np.zeros((1, 3))
        matrix = np.zeros(9)
        mujoco.mju_quat2Mat(matrix, model.geom_quat[geom])
        places.append(local @ matrix.reshape(3, 3).T + model.geom_pos[geom])
        bodies += [int(model.geom_bodyid[geom])] * len(local)
    return BodyPoints(torch.tensor(bodies), torch.from_numpy(np.concatenate(places)))
