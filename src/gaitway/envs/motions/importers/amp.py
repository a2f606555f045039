"""AMP JSON or `.txt` (motion_imitation, AMP-for-hardware and their descendants).

Keys are `FrameDuration`, `LoopMode`, `MotionWeight` and `Frames`. A row is root position 3, quaternion x y z w, joints;
then perhaps feet 3 each, root velocity 3, angular velocity 3, joint velocities, feet velocities 3 each. Feet and the
root's velocities are in the root's frame. Where `Fields` names the columns they are taken by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.frames import Frames, MotionError, make_frames, reordered_quaternions
from gaitway.envs.motions.importers.reading import (
    ROOT,
    Columns,
    Reading,
    is_positive,
    rows_of,
    unit_quaternions,
    with_differences,
)
from gaitway.functional.rotations import rotate

LEGS = ("FR", "FL", "RR", "RL")
LEG_JOINTS = tuple(f"{leg}_{joint}_joint" for leg in LEGS for joint in ("hip", "thigh", "calf"))
LEG_FEET = tuple(f"{leg}_foot" for leg in LEGS)
"""What the columns of a quadruped's rows mean where nobody says otherwise: the order of these files, not of a robot."""
QUADRUPED_COLUMNS = (19, 37, 61)


def read_amp(path: Path, document: Mapping[str, Any], reading: Reading) -> Clip:
    rows = rows_of(document["Frames"])
    duration: Any = document.get("FrameDuration")
    if not is_positive(duration):
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
    take = Columns(rows)
    position, quaternion = take(3), take(4)
    turn = reordered_quaternions(quaternion, reading.quaternion or "xyzw")
    rotation = unit_quaternions(turn)
    angles, feet = take(size), take(3 * num_feet).reshape(len(rows), num_feet, 3)
    around = rotation[:, None]  # feet are given in the root's frame
    places = np.concatenate([position[:, None], position[:, None] + rotate(around, feet)], 1)
    # a foot is a point: it is given the rotation of the root
    turns = np.repeat(turn[:, None], 1 + num_feet, 1)
    frames = make_frames(angles, places, turns)
    if columns == 7 + size:
        return with_differences(frames, dt, loop), joints, bodies
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
    frames = with_differences(frames, dt, loop)
    unit = unit_quaternions(rotation)
    given = {"joint_velocities": columns([f"{joint}_dof_vel" for joint in joints])}
    for field, kind in (("body_velocities", "vel"), ("body_angular_velocities", "ang_vel")):
        in_world, in_body = (columns([f"root_{kind}_{axis}_{frame}" for axis in "xyz"]) for frame in "wb")
        found = in_world if in_world is not None else None if in_body is None else rotate(unit, in_body)
        given[field] = None if found is None else found[:, None]
    known = {name: array for name, array in given.items() if array is not None}
    return frames.replaced(**known), reading.joints or joints, (reading.bodies or (ROOT,))
