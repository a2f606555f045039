"""What the readers of motion files share: what the user says, rows of numbers, velocities that a file lacks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gaitway.envs.motions.frames import Frames, MotionError, with_velocities
from gaitway.functional.rotations import normalised

MAX_BYTES = 2**30
"""Files that claim to be larger are refused."""
ROOT = "root"


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


class Columns:
    """Takes columns of rows from the left."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows, self._next = rows, 0

    def __call__(self, count: int) -> np.ndarray:
        self._next += count
        return self._rows[:, self._next - count : self._next]


def rows_of(frames: Any) -> np.ndarray:
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


def with_differences(frames: Frames, dt: float, loop: bool) -> Frames:
    """Velocities from positions, of frames whose quaternions may still have any length."""
    unit = frames.replaced(
        body_rotations=normalised(frames.body_rotations), ball_rotations=normalised(frames.ball_rotations)
    )
    fresh = with_velocities(unit, dt, loop)
    speeds = {name: np.nan_to_num(array) for name, array in fresh.arrays().items() if name.endswith("velocities")}
    return frames.replaced(**speeds)


def unit_quaternions(rotation: np.ndarray) -> np.ndarray:
    """Unit quaternions of the root [F, 4], with which velocities are turned."""
    zero = np.flatnonzero(np.linalg.norm(rotation, axis=1) < 1e-6)
    if len(zero):
        raise MotionError(f"the quaternion of the root is zero in frame {zero[0]}; check the layout of the file")
    return normalised(rotation)


def is_positive(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value > 0
