"""Motions of others as clips: `read_motion("dog_trot.txt")`. Nothing here unpickles or runs anything.

- AMP JSON or `.txt` (motion_imitation, AMP-for-hardware and their descendants): `FrameDuration`, `LoopMode`,
  `MotionWeight` and `Frames`. A row is root position 3, quaternion x y z w, joints; then perhaps feet 3 each, root
  velocity 3, angular velocity 3, joint velocities, feet velocities 3 each. Feet and the root's velocities are in the
  root's frame. Where `Fields` names the columns they are taken by name.
- DeepMimic JSON (humanoid3d): `Loop` and `Frames`. A row is a duration, root position 3, quaternion w x y z, eight ball
  joints and four hinges; y is up.
- NPZ of Isaac Lab: `fps`, `dof_names`, `body_names`, `dof_positions`, `body_positions`, `body_rotations` (w x y z) and
  velocities.
- NPZ of mjlab and holosoma: `fps`, `joint_pos`, `body_pos_w`, `body_quat_w` (w x y z) and velocities, with or without
  names and with or without columns of the root before the joints.

Velocities that a file lacks are differences of its positions.
"""

from __future__ import annotations

import dataclasses
import json
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gaitway.core.config import did_you_mean
from gaitway.envs.motions.clip import (
    FIELDS,
    Clip,
    Frames,
    MotionError,
    make_frames,
    reordered_quaternions,
    with_velocities,
)
from gaitway.functional.rotations import normalised, product, rotate

MAX_BYTES = 2**30
"""Files that claim to be larger are refused."""
LEGS = ("FR", "FL", "RR", "RL")
LEG_JOINTS = tuple(f"{leg}_{joint}_joint" for leg in LEGS for joint in ("hip", "thigh", "calf"))
LEG_FEET = tuple(f"{leg}_foot" for leg in LEGS)
"""What the columns of a quadruped's rows mean where nobody says otherwise: the order of these files, not of a robot."""
QUADRUPED_COLUMNS = (19, 37, 61)
ROOT = "root"
HUMANOID3D = (
    ("chest", 4), ("neck", 4), ("right_hip", 4), ("right_knee", 1), ("right_ankle", 4), ("right_shoulder", 4),
    ("right_elbow", 1), ("left_hip", 4), ("left_knee", 1), ("left_ankle", 4), ("left_shoulder", 4), ("left_elbow", 1),
)  # fmt: skip
"""Joints of DeepMimic's humanoid in the order of its rows, and how many numbers each has."""
Y_UP = np.array([math.sqrt(0.5), math.sqrt(0.5), 0.0, 0.0])
"""The turn about x that makes y up into z up."""
EVEN = 1e-3
"""Share by which durations of frames may differ."""
NPZ_KEYS = {
    "isaaclab": {
        "joints": "dof_names",
        "bodies": "body_names",
        "joint_positions": "dof_positions",
        "joint_velocities": "dof_velocities",
        "body_positions": "body_positions",
        "body_rotations": "body_rotations",
        "body_velocities": "body_linear_velocities",
        "body_angular_velocities": "body_angular_velocities",
    },
    "mjlab": {
        "joints": "joint_names",
        "bodies": "body_names",
        "joint_positions": "joint_pos",
        "joint_velocities": "joint_vel",
        "body_positions": "body_pos_w",
        "body_rotations": "body_quat_w",
        "body_velocities": "body_lin_vel_w",
        "body_angular_velocities": "body_ang_vel_w",
    },
}
"""What is called how in which NPZ file."""
ROOT_COLUMNS = (7, 6)
"""Columns of a free joint that holosoma puts before the joints, in positions and velocities."""


@dataclass(frozen=True)
class Reading:
    """What the user knows better than the file."""

    format: str | None = None
    """One of FORMATS; None: as it looks."""
    joints: tuple[str, ...] | None = None
    """Names of the joints, in the order of the file's columns."""
    bodies: tuple[str, ...] | None = None
    """Names of the bodies (AMP: the root, then the feet), in the order of the file's columns."""
    root: str | None = None
    """Which body is the root; None: the first."""
    quaternion: str | None = None
    """Order of quaternions in the file, wxyz or xyzw; None: as usual for the format."""
    fps: float | None = None
    loop: bool | None = None
    weight: float | None = None


def read_motion(path: str | Path, reading: Reading | None = None) -> Clip:
    """The clip in `path`: a folder of our own, or a file of one of the formats above."""
    path, reading = Path(path), reading or Reading()
    if reading.format is not None and reading.format not in FORMATS:
        hint = did_you_mean(reading.format, FORMATS)
        raise MotionError(f"no motion format {reading.format!r}{hint}; there are {', '.join(FORMATS)}")
    if path.is_dir():
        return _as_told(Clip.load(path), reading)
    if not path.is_file():
        raise MotionError(f"{path} does not exist; name a motion file or the folder of a clip")
    if path.stat().st_size > MAX_BYTES:
        raise MotionError(
            f"{path} has {path.stat().st_size / 2**30:.1f} GiB; motions have at most 1, cut it into clips"
        )
    try:
        return _as_told(_read(path, reading), reading)
    except MotionError as error:
        text = str(error)
        raise MotionError(text if str(path) in text else f"{path}: {text}") from error
    except OSError as error:
        raise MotionError(f"cannot read {path}: {error.strerror or error}; check its permissions") from error


def _read(path: Path, reading: Reading) -> Clip:
    with open(path, "rb") as file:
        start = file.read(2)
    if start == b"PK":
        return _npz(path, reading)
    if start[:1] in (b"\x80", b"(", b"c") or path.suffix in (".pkl", ".pickle", ".joblib", ".pt", ".pth"):
        raise MotionError(
            f"{path} is a pickle, which could run anything when it is opened; save it as NPZ or JSON where it was made"
        )
    if start == b"\x93N":
        raise MotionError(f"{path} is a single array; a motion needs names, put them into an NPZ file with it")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise MotionError(f"{path} is neither JSON nor NPZ; there are readers for {', '.join(FORMATS)}") from error
    if not isinstance(document, dict) or not isinstance(document.get("Frames"), list):
        raise MotionError(f"{path} has no list 'Frames'; AMP and DeepMimic files have one")
    kind = reading.format or ("amp" if "FrameDuration" in document or "Fields" in document else "deepmimic")
    if kind in NPZ_KEYS:
        raise MotionError(f"{path} is no NPZ file; {kind} motions are, use --format amp or deepmimic")
    return FORMATS[kind](path, document, reading)


def _as_told(clip: Clip, reading: Reading) -> Clip:
    changes: dict[str, Any] = {
        name: value for name in ("fps", "loop", "weight") if (value := getattr(reading, name)) is not None
    }
    if "fps" in changes:  # another clock, so other velocities
        faster = changes["fps"] / clip.fps
        speeds = {name: array * faster for name, array in clip.frames.arrays().items() if name.endswith("velocities")}
        changes["frames"] = clip.frames.replaced(**speeds)
    if reading.root is not None and reading.root != (clip.bodies or ("",))[0]:
        order = [reading.root, *(name for name in clip.bodies if name != reading.root)]
        clip = clip.reordered(clip.joints, order, clip.balls)
    return dataclasses.replace(clip, **changes) if changes else clip


# AMP


def _amp(path: Path, document: Mapping[str, Any], reading: Reading) -> Clip:
    rows = _rows(document["Frames"])
    duration: Any = document.get("FrameDuration")
    if not _is_positive(duration):
        raise MotionError(f"FrameDuration is {duration!r}; it is the seconds of a frame, such as 0.021")
    loop, weight = document.get("LoopMode", "Wrap"), document.get("MotionWeight", 1.0)
    if loop not in ("Wrap", "Clamp"):
        raise MotionError(f"LoopMode is {loop!r}; it is Wrap or Clamp")
    dt, loops = float(duration), loop == "Wrap" if reading.loop is None else reading.loop
    if "Fields" in document:
        frames, joints, bodies = _named_columns(rows, document["Fields"], reading, dt, loops)
    else:
        frames, joints, bodies = _amp_columns(rows, reading, dt, loops)
    kept = {
        name: document[key]
        for name, key in (
            ("cycle_offset_position", "EnableCycleOffsetPosition"),
            ("cycle_offset_rotation", "EnableCycleOffsetRotation"),
        )
        if isinstance(document.get(key), bool)
    }
    source = f"AMP file {path.name}"
    return Clip(frames, 1.0 / dt, joints, bodies, loop=loops, weight=weight, source=source, name=path.stem, meta=kept)


def _amp_columns(
    rows: np.ndarray, reading: Reading, dt: float, loop: bool
) -> tuple[Frames, tuple[str, ...], tuple[str, ...]]:
    columns, joints = rows.shape[1], reading.joints
    if joints is None:
        if columns not in QUADRUPED_COLUMNS:
            raise MotionError(
                f"its rows have {columns} numbers and it names no joints; give their names with --joints A,B,... "
                f"(without them rows of {', '.join(map(str, QUADRUPED_COLUMNS))} are those of a quadruped)"
            )
        joints = LEG_JOINTS
    size = len(joints)
    further = columns - 13 - 2 * size
    if columns != 7 + size and (further < 0 or further % 6):
        raise MotionError(
            f"its rows have {columns} numbers, which fit no {size} joints; rows have 7 + {size}, "
            f"13 + 2 x {size} or, with feet, 13 + 2 x {size} + 6 per foot numbers"
        )
    num_feet = max(0, further) // 6 if columns != 7 + size else 0
    bodies = reading.bodies or (ROOT, *(LEG_FEET if num_feet == 4 else (f"foot_{n}" for n in range(num_feet))))
    if len(bodies) != 1 + num_feet:
        raise MotionError(f"its rows hold a root and {num_feet} feet; {len(bodies)} names of bodies were given")
    take = _Columns(rows)
    position, quaternion = take(3), take(4)
    turn = reordered_quaternions(quaternion, reading.quaternion or "xyzw")
    rotation = _unit(turn)
    angles, feet = take(size), take(3 * num_feet).reshape(len(rows), num_feet, 3)
    around = rotation[:, None]  # feet are given in the root's frame
    places = np.concatenate([position[:, None], position[:, None] + rotate(around, feet)], 1)
    # a foot is a point: it is given the rotation of the root
    turns = np.repeat(turn[:, None], 1 + num_feet, 1)
    frames = make_frames(angles, places, turns)
    if columns == 7 + size:
        return _with_differences(frames, dt, loop), joints, bodies
    velocity, spin = rotate(rotation, take(3)), rotate(rotation, take(3))
    speeds, feet_speeds = take(size), take(3 * num_feet).reshape(len(rows), num_feet, 3)
    carried = np.cross(spin[:, None], rotate(around, feet)) + rotate(around, feet_speeds)
    frames = frames.replaced(
        joint_velocities=speeds,
        body_velocities=np.concatenate([velocity[:, None], velocity[:, None] + carried], 1),
        body_angular_velocities=np.repeat(spin[:, None], 1 + num_feet, 1),
    )
    return frames, joints, bodies


def _named_columns(
    rows: np.ndarray, fields: Any, reading: Reading, dt: float, loop: bool
) -> tuple[Frames, tuple[str, ...], tuple[str, ...]]:
    """Rows whose columns have names: root_pos_x, root_rot_w, <joint>_dof_pos, <joint>_dof_vel, root_vel_x_w, ..."""
    if not isinstance(fields, list) or len(fields) != rows.shape[1] or not all(isinstance(f, str) for f in fields):
        raise MotionError(f"'Fields' does not name the {rows.shape[1]} columns of its rows")
    places = {name: place for place, name in enumerate(fields)}

    def columns(names: Sequence[str]) -> np.ndarray | None:
        return rows[:, [places[name] for name in names]] if all(name in places for name in names) else None

    position, rotation = (
        columns([f"root_{kind}_{axis}" for axis in axes]) for kind, axes in (("pos", "xyz"), ("rot", "wxyz"))
    )
    joints = tuple(name.removesuffix("_dof_pos") for name in fields if name.endswith("_dof_pos"))
    if position is None or rotation is None or not joints:
        raise MotionError("'Fields' lacks root_pos_x..z, root_rot_x..w or columns that end in _dof_pos")
    frames = make_frames(rows[:, [places[f"{j}_dof_pos"] for j in joints]], position[:, None], rotation[:, None])
    frames = _with_differences(frames, dt, loop)
    unit = _unit(rotation)
    given = {"joint_velocities": columns([f"{joint}_dof_vel" for joint in joints])}
    for field, kind in (("body_velocities", "vel"), ("body_angular_velocities", "ang_vel")):
        in_world, in_body = (columns([f"root_{kind}_{axis}_{frame}" for axis in "xyz"]) for frame in "wb")
        found = in_world if in_world is not None else None if in_body is None else rotate(unit, in_body)
        given[field] = None if found is None else found[:, None]
    known = {name: array for name, array in given.items() if array is not None}
    return frames.replaced(**known), reading.joints or joints, (reading.bodies or (ROOT,))


# DeepMimic


def _deepmimic(path: Path, document: Mapping[str, Any], reading: Reading) -> Clip:
    rows = _rows(document["Frames"])
    wanted = 8 + sum(size for _, size in HUMANOID3D)
    if rows.shape[1] != wanted:
        raise MotionError(
            f"its rows have {rows.shape[1]} numbers; those of DeepMimic's humanoid have {wanted}, and AMP files have a "
            "FrameDuration"
        )
    durations = rows[:-1, 0]  # the last frame ends the motion, whatever it says
    dt = float(np.mean(durations)) if len(durations) else 0.0
    if not _is_positive(dt) or np.abs(durations - dt).max() > EVEN * dt:
        span = f"{durations.min():g} to {durations.max():g}" if len(durations) else "no"
        raise MotionError(f"its frames last {span} s; a clip has frames of one duration above 0")
    loop = document.get("Loop", "none")
    if loop not in ("wrap", "none"):
        raise MotionError(f"Loop is {loop!r}; it is wrap or none")
    loops = loop == "wrap" if reading.loop is None else reading.loop
    order, take = reading.quaternion or "wxyz", _Columns(rows)
    take(1)
    position, rotation = rotate(Y_UP, take(3)), _z_up(reordered_quaternions(take(4), order))
    angles, balls = {}, {}
    for joint, size in HUMANOID3D:
        if size == 1:
            angles[joint] = take(1)
        else:
            balls[joint] = _z_up(reordered_quaternions(take(4), order))
    if reading.joints is not None and len(reading.joints) != len(angles):
        raise MotionError(f"it has {len(angles)} hinges ({', '.join(angles)}); {len(reading.joints)} names were given")
    frames = make_frames(
        np.concatenate(list(angles.values()), 1),
        position[:, None],
        rotation[:, None],
        np.stack(list(balls.values()), 1),
    )
    return Clip(
        _with_differences(frames, dt, loops),
        1.0 / dt,
        reading.joints or tuple(angles),
        (reading.bodies or (ROOT,))[:1],
        tuple(balls),
        loops,
        source=f"DeepMimic file {path.name}",
        name=path.stem,
        meta={"hinge_axis": "-y, DeepMimic's z"},
    )


def _z_up(rotation: np.ndarray) -> np.ndarray:
    """The same turn where z is up: bodies stand as they did, so the frames of both sides turn."""
    return product(product(Y_UP, rotation), Y_UP * np.array([1.0, -1.0, -1.0, -1.0]))


# NPZ


def _npz(path: Path, reading: Reading) -> Clip:
    arrays = _npz_arrays(path)
    kinds = [kind for kind, keys in NPZ_KEYS.items() if keys["joint_positions"] in arrays]
    kind = reading.format or (kinds[0] if kinds else "")
    if kind not in NPZ_KEYS or NPZ_KEYS[kind]["joint_positions"] not in arrays:
        raise MotionError(
            f"{path} holds {', '.join(arrays) or 'nothing'}; motions of mjlab and holosoma hold joint_pos, those of "
            "Isaac Lab dof_positions"
        )
    keys = NPZ_KEYS[kind]
    found = {name: _numbers(arrays[key], key) for name, key in keys.items() if key in arrays and name in FIELDS}
    joints = reading.joints or _names(arrays.get(keys["joints"]), keys["joints"])
    if joints is None:
        raise MotionError("it names no joints; give their names with --joints A,B,... or --robot NAME")
    angles = _joint_columns(found, "joint_positions", len(joints), ROOT_COLUMNS[0], keys)
    count = len(angles)
    places, turns = found.get("body_positions"), found.get("body_rotations")
    if places is None or turns is None or places.ndim != 3 or turns.ndim != 3:
        raise MotionError(f"it lacks {keys['body_positions']} or {keys['body_rotations']} [F, B, ...]")
    bodies = reading.bodies or _names(arrays.get(keys["bodies"]), keys["bodies"])
    if bodies is None:
        bodies = (ROOT, *(f"body_{number}" for number in range(1, places.shape[1])))
    for name, size in (("body_positions", 3), ("body_rotations", 4)):
        if found[name].shape != (count, len(bodies), size):
            shape = [count, len(bodies), size]
            raise MotionError(f"{keys[name]} is {list(found[name].shape)}; frames and bodies are {shape}")
    turns = reordered_quaternions(turns, reading.quaternion or "wxyz")
    frames = make_frames(angles, places, turns)
    fps = reading.fps or _rate(arrays.get("fps"))
    frames = _with_differences(frames, 1.0 / fps, bool(reading.loop))
    given = {}
    if "joint_velocities" in found:
        given["joint_velocities"] = _joint_columns(found, "joint_velocities", len(joints), ROOT_COLUMNS[1], keys)
    for name in ("body_velocities", "body_angular_velocities"):
        if name in found:
            given[name] = found[name]
            if found[name].shape != places.shape:
                raise MotionError(f"{keys[name]} is {list(found[name].shape)}; it is {list(places.shape)}")
    clip = Clip(frames.replaced(**given), fps, joints, bodies, source=f"{kind} file {path.name}", name=path.stem)
    moving = [name for name in bodies if name != "world"]
    return clip if len(moving) == len(bodies) else clip.reordered(joints, moving)


def _npz_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > MAX_BYTES:
                raise MotionError(f"{path} unpacks to more than 1 GiB; cut it into clips")
        with np.load(path, allow_pickle=False) as archive:
            arrays = {}
            for name in archive.files:
                try:
                    arrays[name] = archive[name]
                except ValueError as error:
                    if "allow_pickle" not in str(error):
                        raise
                    raise MotionError(
                        f"{path}: {name!r} is a pickled object, which could run anything when it is opened; save it as "
                        "an array of numbers or of text"
                    ) from error
            return arrays
    except MotionError:
        raise
    except (
        ValueError,
        zipfile.BadZipFile,
        EOFError,
        KeyError,
        MemoryError,
        NotImplementedError,
        zipfile.error,
    ) as error:
        raise MotionError(f"{path} is a damaged NPZ file ({error}); copy it again") from error


def _joint_columns(
    found: Mapping[str, np.ndarray], name: str, joints: int, root: int, keys: Mapping[str, str]
) -> np.ndarray:
    """The joints' columns; those of a free joint before them are left out."""
    array = found[name]
    if array.ndim != 2 or array.shape[1] not in (joints, joints + root):
        raise MotionError(f"{keys[name]} is {list(array.shape)}; {joints} joints have {joints} columns, or {root} more")
    return array[:, array.shape[1] - joints :]


def _names(array: np.ndarray | None, key: str) -> tuple[str, ...] | None:
    if array is None:
        return None
    if array.ndim != 1 or array.dtype.kind not in "US":
        raise MotionError(f"{key} is {array.dtype} {list(array.shape)}; it is a list of names")
    return tuple(name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in array.tolist())


def _numbers(array: np.ndarray, key: str) -> np.ndarray:
    if array.dtype.kind not in "fiu":
        raise MotionError(f"{key} is {array.dtype}; it is an array of numbers")
    return array.astype(np.float64)


def _rate(array: np.ndarray | None) -> float:
    if array is None or array.size != 1 or array.dtype.kind not in "fiu" or not _is_positive(float(array.reshape(()))):
        raise MotionError("it says no rate ('fps', one number above 0); give it with --fps")
    return float(array.reshape(()))


# Rows of JSON files


class _Columns:
    """Takes columns of rows from the left."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows, self._next = rows, 0

    def __call__(self, count: int) -> np.ndarray:
        self._next += count
        return self._rows[:, self._next - count : self._next]


def _rows(frames: Any) -> np.ndarray:
    """A list of rows of numbers, [F, columns]."""
    if len(frames) < 2:
        raise MotionError(f"it has {len(frames)} frames; a motion has at least 2")
    width = len(frames[0]) if isinstance(frames[0], list) else 0
    for number, row in enumerate(frames):
        if not isinstance(row, list) or len(row) != width or not width:
            size = len(row) if isinstance(row, list) else "no"
            raise MotionError(f"frame {number} has {size} numbers and frame 0 has {width}; all have as many")
        for value in row:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise MotionError(f"frame {number} holds {str(value)[:40]!r}, which is no number")
    try:
        return np.array(frames, dtype=np.float64)
    except OverflowError as error:
        raise MotionError("it holds a number that is too large") from error


def _with_differences(frames: Frames, dt: float, loop: bool) -> Frames:
    """Velocities from positions, of frames whose quaternions may still have any length."""
    unit = frames.replaced(
        body_rotations=normalised(frames.body_rotations), ball_rotations=normalised(frames.ball_rotations)
    )
    fresh = with_velocities(unit, dt, loop)
    speeds = {name: np.nan_to_num(array) for name, array in fresh.arrays().items() if name.endswith("velocities")}
    return frames.replaced(**speeds)


def _unit(rotation: np.ndarray) -> np.ndarray:
    """Unit quaternions of the root [F, 4], with which velocities are turned."""
    zero = np.flatnonzero(np.linalg.norm(rotation, axis=1) < 1e-6)
    if len(zero):
        raise MotionError(f"the quaternion of the root is zero in frame {zero[0]}; check the layout of the file")
    return normalised(rotation)


def _is_positive(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value > 0


FORMATS: dict[str, Callable[..., Clip]] = {"amp": _amp, "deepmimic": _deepmimic, "isaaclab": _npz, "mjlab": _npz}
