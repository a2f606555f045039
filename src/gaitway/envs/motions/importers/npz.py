"""NPZ files of Isaac Lab, and of mjlab and holosoma.

Isaac Lab has `fps`, `dof_names`, `body_names`, `dof_positions`, `body_positions`, `body_rotations` (w x y z) and
velocities; the others have `fps`, `joint_pos`, `body_pos_w`, `body_quat_w` (w x y z) and velocities, with or without
names and with or without columns of the root before the joints.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.frames import FIELDS, MotionError, make_frames, reordered_quaternions
from gaitway.envs.motions.importers.reading import MAX_BYTES, ROOT, Reading, is_positive, with_differences

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


def read_npz(path: Path, reading: Reading) -> Clip:
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
    frames = with_differences(frames, 1.0 / fps, bool(reading.loop))
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
    if array is None or array.size != 1 or array.dtype.kind not in "fiu" or not is_positive(float(array.reshape(()))):
        raise MotionError("it says no rate ('fps', one number above 0); give it with --fps")
    return float(array.reshape(()))
