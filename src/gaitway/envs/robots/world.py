"""What is around a robot: ground, walls, obstacles, sensors, and the decoration of pictures.

A task builds its scene twice from the same calls: once to train in, and once more for `render_model`, where `decorate`
adds sky, textures and lights. Decoration adds no joints, bodies or geoms, so both share one layout of the state.

Whatever the world consists of carries MuJoCo's own default contact properties. They are written out here, because a
geom added to a robot's spec would inherit the robot's, and the Walker's conaffinity 0 makes its parts touch nothing
that does not ask for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np

from gaitway.envs.robots.robot import Robot

ARENA_BYTES = 2 * 2**20
"""Scratch memory of one MjData. MuJoCo's default is several times larger and is allocated per thread or instance."""

WORLD_CONTACT: Mapping[str, Any] = {
    "contype": 1,
    "conaffinity": 1,
    "condim": 3,
    "priority": 0,
    "friction": [1.0, 0.005, 0.0001],
    "solmix": 1.0,
    "solref": [0.02, 1.0],
    "solimp": [0.9, 0.95, 0.001, 0.5, 2.0],
    "margin": 0.0,
    "gap": 0.0,
}
"""MuJoCo's global defaults for contacts."""

CORRIDOR_HALF_WIDTH = 8.0
"""Corridors and the obstacles in them reach from -8 to 8 m in y."""
CORRIDOR_BACK = -4.0
"""Where a corridor's back wall stands (m)."""
PARKED = (0.0, 0.0, -10.0)
"""Where obstacles wait that are not in use: deep below the floor."""

SKY, SKY_TOP = (0.3, 0.5, 0.7), (0.0, 0.0, 0.0)
FLOOR_LIGHT, FLOOR_DARK = (0.2, 0.3, 0.4), (0.1, 0.15, 0.2)
OBSTACLE, OBSTACLE_OTHER = (0.8, 0.9, 0.8, 1.0), (0.6, 0.6, 0.6, 1.0)
INVISIBLE = (0.0, 0.0, 0.0, 0.0)

FLOOR = "floor"
ACCELEROMETER = "accelerometer"
WIDE = "wide"
"""Camera of decorated models that overlooks the robot's surroundings."""


def flat_model(robot: Robot, decorated: bool = False, forces: bool = False) -> mujoco.MjModel:
    """The robot on an infinite floor at z = 0; `forces` fills `cfrc_ext` (see `add_accelerometer`)."""
    spec = robot.spec()
    add_ground(spec)
    if forces:
        add_accelerometer(spec, robot.torso)
    if decorated:
        decorate(spec, robot.torso)
    return compile_model(spec)


def compile_model(spec: mujoco.MjSpec) -> mujoco.MjModel:
    """Compile a model for stepping in a batch: small arena, and no work for what the model does not have.

    Constraint islands and the bounding-volume midphase split a scene into parts; with one kinematic tree there is only
    one. The other flags skip kinds of constraints and sensors that do not occur. Numbers stay the same bit for bit, and
    steps of gymnasium's runners take some 7 % less time.
    """
    spec.memory = ARENA_BYTES
    model = spec.compile()
    flags = mujoco.mjtDisableBit
    absent = {
        flags.mjDSBL_ISLAND: model.ntree <= 1,
        flags.mjDSBL_MIDPHASE: model.ntree <= 1,
        flags.mjDSBL_EQUALITY: model.neq == 0,
        flags.mjDSBL_FRICTIONLOSS: not (model.dof_frictionloss.any() or model.tendon_frictionloss.any()),
        flags.mjDSBL_SENSOR: model.nsensor == 0,
    }
    for flag, holds in absent.items():
        if holds:
            model.opt.disableflags |= int(flag)
    return model


def compile_course(spec: mujoco.MjSpec) -> mujoco.MjModel:
    """`compile_model` for worlds with many static geoms.

    It keeps the search tree over the geoms of a body: with 200 boxes a step takes half the time it takes without.
    Whoever moves such geoms in a compiled model must refresh the tree (`Batch.set_const`), or contacts are missed.
    """
    model = compile_model(spec)
    model.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)
    return model


def add_static(
    spec: mujoco.MjSpec,
    name: str,
    type: str,
    size: Sequence[float],
    pos: Sequence[float] = (0.0, 0.0, 0.0),
    zaxis: Sequence[float] | None = None,
    rgba: Sequence[float] = OBSTACLE,
    **changes: Any,
) -> mujoco.MjsGeom:
    """A geom of the world itself. `type` is "box", "capsule", "plane", "sphere" ..., `size` its half-sizes (m).

    `zaxis` turns the geom's z axis (a plane's normal, a capsule's axis) into this direction; `changes` override
    `WORLD_CONTACT` or set any other attribute of the geom.
    """
    return _add_geom(spec.worldbody, name, type, size, pos, zaxis, rgba, changes)


def add_mocap(
    spec: mujoco.MjSpec,
    name: str,
    type: str,
    size: Sequence[float],
    pos: Sequence[float] = PARKED,
    zaxis: Sequence[float] | None = None,
    rgba: Sequence[float] = OBSTACLE,
    **changes: Any,
) -> mujoco.MjsBody:
    """A massless body that is moved by writing `mocap_pos`, with one geom of the same name; arguments as `add_static`.

    Mocap bodies are numbered in the order of their making. They collide with the robot, but neither with the world nor
    with each other.
    """
    body = spec.worldbody.add_body(name=name, pos=list(pos), mocap=True)
    _add_geom(body, name, type, size, (0.0, 0.0, 0.0), zaxis, rgba, changes)
    return body


def add_ground(spec: mujoco.MjSpec) -> None:
    """A floor, unless the robot's file brings a plane of its own."""
    if not any(geom.type == mujoco.mjtGeom.mjGEOM_PLANE for geom in spec.worldbody.geoms):
        add_floor(spec)


def add_floor(spec: mujoco.MjSpec) -> mujoco.MjsGeom:
    """An infinite plane at z = 0, called "floor"."""
    return add_static(spec, FLOOR, "plane", [0.0, 0.0, 0.05], rgba=(*FLOOR_LIGHT, 1.0))


def add_corridor(spec: mujoco.MjSpec, floor: bool = True) -> None:
    """Invisible planes at y = 8, y = -8 and x = -4 that face inwards, and a floor drawn from x = -8 to 192.

    All planes are infinite for collisions. Only robots that move in three dimensions reach the side walls.
    """
    width = CORRIDOR_HALF_WIDTH
    if floor:
        ground = add_floor(spec)
        ground.size, ground.pos = [100.0, width, 0.05], [92.0, 0.0, 0.0]
    walls = {
        "left_wall": ((0.0, width, 0.0), (0.0, -1.0, 0.0)),
        "right_wall": ((0.0, -width, 0.0), (0.0, 1.0, 0.0)),
        "back_wall": ((CORRIDOR_BACK, 0.0, 0.0), (1.0, 0.0, 0.0)),
    }
    for name, (pos, zaxis) in walls.items():
        # group 3 is not drawn; a transparent colour alone would still cast a shadow
        add_static(spec, name, "plane", [width, 1.0, 0.05], pos, zaxis, INVISIBLE, group=3)


def add_accelerometer(spec: mujoco.MjSpec, body: str = "torso") -> mujoco.MjsSensor:
    """An accelerometer at the origin of `body`, called "accelerometer".

    It makes MuJoCo compute `cfrc_ext` in every substep; without one the array holds whatever was in memory.
    """
    spec.body(body).add_site(name=ACCELEROMETER, pos=[0.0, 0.0, 0.0])
    return spec.add_sensor(
        name=ACCELEROMETER,
        type=mujoco.mjtSensor.mjSENS_ACCELEROMETER,
        objtype=mujoco.mjtObj.mjOBJ_SITE,
        objname=ACCELEROMETER,
    )


def add_contact_sensor(
    spec: mujoco.MjSpec, name: str, geom: str, subtree: str | None = None, distance: bool = False
) -> mujoco.MjsSensor:
    """How many contacts `geom` has with the body `subtree` and all that hangs on it, or with anything.

    One number, 0 without contact; with `distance` two, the second being the smallest distance among the contacts (m,
    negative inside, 0 without contact). Contacts within a geom's margin count too, at positive distances. Positions
    are enough for it, so after a step it is current with STAGE_POSITION. `sensor_columns` says where to read it.
    """
    fields = mujoco.mjtConDataField
    data = 1 << int(fields.mjCONDATA_FOUND)
    if distance:
        data |= 1 << int(fields.mjCONDATA_DIST)
    nearest_first = 1  # reduce by mindist; 0 takes any contact
    sensor = spec.add_sensor(
        name=name,
        type=mujoco.mjtSensor.mjSENS_CONTACT,
        objtype=mujoco.mjtObj.mjOBJ_GEOM,
        objname=geom,
        intprm=[data, nearest_first if distance else 0, 1],
    )
    if subtree is not None:
        sensor.reftype = mujoco.mjtObj.mjOBJ_XBODY  # in a contact sensor this means a subtree
        sensor.refname = subtree
    return sensor


def sensor_columns(model: mujoco.MjModel, name: str) -> slice:
    """Where a sensor lies on the last axis of `sensordata` [B, nsensordata]."""
    sensor = model.sensor(name)
    return slice(int(sensor.adr[0]), int(sensor.adr[0] + sensor.dim[0]))


def add_camera(
    spec: mujoco.MjSpec,
    name: str,
    pos: Sequence[float],
    euler: Sequence[float],
    follows: bool = False,
    torso: str = "torso",
) -> mujoco.MjsCamera:
    """A camera of the world, which MuJoCo numbers before those of the robots, so that the first one is camera 0.

    `euler` are intrinsic x-y-z angles in degrees. With `follows` it keeps its distance to the centre of all masses, and
    `pos` (m) counts from the torso, as for cameras of the robots; otherwise it stands still.
    """
    origin = spec.body(torso).pos if follows else np.zeros(3)
    modes = mujoco.mjtCamLight
    mode = modes.mjCAMLIGHT_TRACKCOM if follows else modes.mjCAMLIGHT_FIXED
    return spec.worldbody.add_camera(name=name, pos=origin + np.asarray(pos), quat=_turn(euler), mode=mode)


def in_file_units(spec: mujoco.MjSpec, *degrees: float) -> list[float]:
    """Angles as this spec's joints and orientations take them: degrees, or radians for the HalfCheetah."""
    return list(degrees) if spec.compiler.degree else [math.radians(angle) for angle in degrees]


def decorate(spec: mujoco.MjSpec, torso: str = "torso") -> None:
    """Add a sky, a light and a camera that go along with the robot, and a checkerboard on the geom "floor".

    The light casts shadows. The camera `wide` shows the floor for 4 m around, which those of the robots do not. A sky,
    lights and a floor's material that the robot's file brings stay as they are.
    """
    spec.visual.headlight.ambient = [0.35, 0.35, 0.35]
    spec.visual.headlight.diffuse = [0.3, 0.3, 0.3]
    spec.visual.headlight.specular = [0.1, 0.1, 0.1]
    spec.visual.quality.shadowsize = 4096
    spec.visual.map.znear = 0.01
    spec.visual.map.shadowclip = 8.0  # the default shadow map ends within sight, in black specks
    spec.visual.rgba.haze = [0.15, 0.25, 0.35, 1.0]  # the sky at the horizon
    # distances of the near and the far plane are multiples of the extent, which a corridor of 200 m would stretch
    spec.stat.extent, spec.stat.center = 2.0, [0.0, 0.0, 1.0]
    if not any(texture.type == mujoco.mjtTexture.mjTEXTURE_SKYBOX for texture in spec.textures):
        spec.add_texture(
            name="sky",
            type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
            builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
            rgb1=list(SKY),
            rgb2=list(SKY_TOP),
            width=256,
            height=256,
        )
    if not spec.lights:
        spec.body(torso).add_light(
            name="above",
            type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
            pos=[-1.2, -1.6, 4.0],
            dir=[0.3, 0.4, -1.0],
            diffuse=[0.6, 0.6, 0.6],
            castshadow=True,
            mode=mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM,
        )
    spec.body(torso).add_camera(  # of the body, so that the first camera stays what it is
        name=WIDE, pos=[0.0, -9.5, 4.5], quat=_turn([63.0, 0.0, 0.0]), mode=mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM
    )
    floor = spec.geom(FLOOR)
    if floor is not None and not floor.material:
        add_checker(spec, FLOOR, FLOOR_LIGHT, FLOOR_DARK)
        cover(floor, FLOOR)


def add_checker(
    spec: mujoco.MjSpec, name: str, first: Sequence[float], second: Sequence[float], fields_per_metre: float = 1.0
) -> None:
    """A material of square fields in two colours (red, green, blue in 0..1); for render models only."""
    spec.add_texture(
        name=name,
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        rgb1=list(first),
        rgb2=list(second),
        width=256,
        height=256,
    )
    textures = [""] * int(mujoco.mjtTextureRole.mjNTEXROLE)
    textures[int(mujoco.mjtTextureRole.mjTEXROLE_RGB)] = name
    repeat = fields_per_metre / 2  # a texture holds two fields in each direction
    spec.add_material(name=name, textures=textures, texrepeat=[repeat, repeat], texuniform=True, reflectance=0.1)


def cover(geom: mujoco.MjsGeom, material: str) -> None:
    """Give a geom a material in its full colours: MuJoCo multiplies them with the geom's own."""
    geom.material = material
    geom.rgba = [1.0, 1.0, 1.0, 1.0]


def _turn(euler: Sequence[float]) -> np.ndarray:
    """Quaternion of intrinsic x-y-z angles in degrees."""
    quat = np.zeros(4)
    mujoco.mju_euler2Quat(quat, np.deg2rad(np.asarray(euler, dtype=np.float64)), "xyz")
    return quat


def _add_geom(
    body: mujoco.MjsBody,
    name: str,
    type: str,
    size: Sequence[float],
    pos: Sequence[float],
    zaxis: Sequence[float] | None,
    rgba: Sequence[float],
    changes: Mapping[str, Any],
) -> mujoco.MjsGeom:
    kind = getattr(mujoco.mjtGeom, f"mjGEOM_{type.upper()}", None)
    if kind is None:
        raise ValueError(f"no kind of geom {type!r}; use plane, sphere, capsule, ellipsoid, cylinder or box")
    full_size = [*size, *[0.0] * (3 - len(size))]
    # mass 0 and not the robot's density: cameras follow the centre of all masses, and that is to be the robot's
    attributes = {**WORLD_CONTACT, "mass": 0.0, "rgba": list(rgba), **changes}
    geom = body.add_geom(name=name, type=kind, size=full_size, pos=list(pos), **attributes)
    if zaxis is not None:
        geom.alt.type = mujoco.mjtOrientation.mjORIENTATION_ZAXIS
        geom.alt.zaxis = list(zaxis)
    return geom
