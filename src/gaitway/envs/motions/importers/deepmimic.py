"""DeepMimic JSON (humanoid3d): `Loop` and `Frames`. A row is a duration, root position 3, quaternion w x y z, eight
ball joints and four hinges; y is up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.frames import MotionError, make_frames, reordered_quaternions
from gaitway.envs.motions.importers.reading import ROOT, Columns, Reading, is_positive, rows_of, with_differences
from gaitway.functional.rotations import product, rotate

HUMANOID3D = (
    ("chest", 4), ("neck", 4), ("right_hip", 4), ("right_knee", 1), ("right_ankle", 4), ("right_shoulder", 4),
    ("right_elbow", 1), ("left_hip", 4), ("left_knee", 1), ("left_ankle", 4), ("left_shoulder", 4), ("left_elbow", 1),
)  # fmt: skip
"""Joints of DeepMimic's humanoid in the order of its rows, and how many numbers each has."""
Y_UP = np.array([math.sqrt(0.5), math.sqrt(0.5), 0.0, 0.0])
"""The turn about x that makes y up into z up."""
EVEN = 1e-3
"""Share by which durations of frames may differ."""


def read_deepmimic(path: Path, document: Mapping[str, Any], reading: Reading) -> Clip:
    rows = rows_of(document["Frames"])
    wanted = 8 + sum(size for _, size in HUMANOID3D)
    if rows.shape[1] != wanted:
        raise MotionError(
            f"its rows have {rows.shape[1]} numbers; those of DeepMimic's humanoid have {wanted}, and AMP files have a "
            "FrameDuration"
        )
    durations = rows[:-1, 0]  # the last frame ends the motion, whatever it says
    dt = float(np.mean(durations)) if len(durations) else 0.0
    if not is_positive(dt) or np.abs(durations - dt).max() > EVEN * dt:
        span = f"{durations.min():g} to {durations.max():g}" if len(durations) else "no"
        raise MotionError(f"its frames last {span} s; a clip has frames of one duration above 0")
    loop = document.get("Loop", "none")
    if loop not in ("wrap", "none"):
        raise MotionError(f"Loop is {loop!r}; it is wrap or none")
    loops = loop == "wrap" if reading.loop is None else reading.loop
    order, take = reading.quaternion or "wxyz", Columns(rows)
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
        with_differences(frames, dt, loops),
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
