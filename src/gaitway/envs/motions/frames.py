"""Frames of a motion as arrays, at any time: positions and velocities of joints, bodies and ball joints."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gaitway.core.config import did_you_mean
from gaitway.functional.rotations import inverse, product, rotation_vector, slerp

QUATERNION_ORDERS = {"wxyz": (0, 1, 2, 3), "xyzw": (3, 0, 1, 2)}
"""Order of a quaternion's numbers in a file -> where w, x, y and z are."""
ROUNDING = 1e-6
"""Share of a frame by which a time may miss a frame and still be it."""


class MotionError(ValueError):
    """A motion cannot be used; the message is one sentence that names the culprit and the remedy."""


@dataclass(frozen=True, eq=False)
class Frames:
    """n frames; the names of D joints, B bodies and K balls are those of the clip."""

    joint_positions: np.ndarray
    """[n, D]"""
    joint_velocities: np.ndarray
    """[n, D]"""
    body_positions: np.ndarray
    """[n, B, 3]"""
    body_rotations: np.ndarray
    """[n, B, 4]"""
    body_velocities: np.ndarray
    """[n, B, 3]"""
    body_angular_velocities: np.ndarray
    """[n, B, 3]"""
    ball_rotations: np.ndarray
    """[n, K, 4]"""
    ball_velocities: np.ndarray
    """[n, K, 3]"""

    def __len__(self) -> int:
        return len(self.joint_positions)

    def map(self, change: Callable[[np.ndarray], np.ndarray]) -> Frames:
        """Every array changed alike."""
        return Frames(**{name: change(array) for name, array in self.arrays().items()})

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in FIELDS}

    def replaced(self, **arrays: np.ndarray) -> Frames:
        return dataclasses.replace(self, **arrays)

    @classmethod
    def joined(cls, parts: Sequence[Frames]) -> Frames:
        """Frames of the same layout, one after the other."""
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in FIELDS})


FIELDS = tuple(item.name for item in dataclasses.fields(Frames))
ROTATIONS = ("body_rotations", "ball_rotations")
VELOCITIES = ("joint_velocities", "body_velocities", "body_angular_velocities", "ball_velocities")
NAMES_OF = {"joint": "joints", "body": "bodies", "ball": "balls"}
"""What the columns of `joint_positions`, `body_rotations`, ... are called, by how the field's name begins."""


def sample(
    frames: Frames,
    times: np.ndarray,
    first: np.ndarray | int,
    count: np.ndarray | int,
    dt: np.ndarray | float,
    loop: np.ndarray | bool,
    displacement: np.ndarray,
) -> Frames:
    """Frames at `times` [n] of clips that lie one after the other in `frames`.

    Of each clip [n] (or of all): its first frame, its number of frames, the seconds between them, whether it is a loop
    and how far its root gets in a period [n, 3].
    """
    steps = np.subtract(count, 1)
    index = times / dt
    nearest = np.round(index)
    index = np.where(np.abs(index - nearest) < ROUNDING, nearest, index)
    cycles = np.where(loop, np.floor(index / steps), 0.0)
    ends = np.logical_and(np.logical_not(loop), (index < 0) | (index > steps))
    index = np.clip(index - cycles * steps, 0.0, steps)
    below = np.minimum(np.floor(index), np.subtract(steps, 1)).astype(np.int64)
    share = index - below
    low, high = first + below, first + below + 1
    taken = {}
    for name, array in frames.arrays().items():
        weight = share.reshape(-1, *[1] * (array.ndim - 1))
        if name in ROTATIONS:
            taken[name] = slerp(array[low], array[high], np.broadcast_to(share[:, None], array[low].shape[:2]))
        else:
            taken[name] = (1.0 - weight) * array[low] + weight * array[high]
        if name in VELOCITIES and ends.any():
            taken[name][ends] = 0.0
    taken["body_positions"] = taken["body_positions"] + (cycles[:, None] * displacement)[:, None]
    return Frames(**taken)


def with_velocities(frames: Frames, dt: float, loop: bool) -> Frames:
    """Velocities by central differences; one-sided at the ends of an open clip, around the seam of a loop."""
    bodies, balls = frames.body_rotations, frames.ball_rotations
    turns = product(bodies[1:], inverse(bodies[:-1]))  # in the world's frame
    own_turns = product(inverse(balls[:-1]), balls[1:])  # in the frame of what turns
    return frames.replaced(
        joint_velocities=_central(np.diff(frames.joint_positions, axis=0), dt, loop),
        body_velocities=_central(np.diff(frames.body_positions, axis=0), dt, loop),
        body_angular_velocities=_central_turns(turns, dt, loop, lambda before, after: product(after, before)),
        ball_velocities=_central_turns(own_turns, dt, loop, product),
    )


def _central(steps: np.ndarray, dt: float, loop: bool) -> np.ndarray:
    """Steps from frame to frame [F - 1, ...] to velocities [F, ...]."""
    seam = (steps[:1] + steps[-1:]) / 2.0
    first, last = (seam, seam) if loop else (steps[:1], steps[-1:])
    return np.concatenate([first, (steps[1:] + steps[:-1]) / 2.0, last]) / dt


def _central_turns(
    turns: np.ndarray, dt: float, loop: bool, both: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """The same for rotations from frame to frame [F - 1, ..., 4]; `both(before, after)` is one after the other."""
    seam = rotation_vector(both(turns[-1:], turns[:1])) / 2.0
    ends = (seam, seam) if loop else (rotation_vector(turns[:1]), rotation_vector(turns[-1:]))
    middle = rotation_vector(both(turns[:-1], turns[1:])) / 2.0
    return np.concatenate([ends[0], middle, ends[1]]) / dt


def make_frames(
    joint_positions: np.ndarray,
    body_positions: np.ndarray,
    body_rotations: np.ndarray,
    ball_rotations: np.ndarray | None = None,
) -> Frames:
    """Frames of poses alone, at rest."""
    count = len(joint_positions)
    balls = np.zeros((count, 0, 4)) if ball_rotations is None else ball_rotations
    arrays = {
        "joint_positions": joint_positions,
        "joint_velocities": np.zeros_like(joint_positions, dtype=np.float64),
        "body_positions": body_positions,
        "body_rotations": body_rotations,
        "body_velocities": np.zeros_like(body_positions, dtype=np.float64),
        "body_angular_velocities": np.zeros_like(body_positions, dtype=np.float64),
        "ball_rotations": balls,
        "ball_velocities": np.zeros((count, balls.shape[1], 3)),
    }
    return Frames(**{name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()})


def reordered_quaternions(rotations: np.ndarray, order: Any) -> np.ndarray:
    """Quaternions of a file that writes them in `order`, as w x y z."""
    if not isinstance(order, str) or order not in QUATERNION_ORDERS:
        raise MotionError(f"the quaternion order is {order!r}; use one of {list(QUATERNION_ORDERS)}")
    return rotations[..., list(QUATERNION_ORDERS[order])]


def columns_of(have: Sequence[str], wanted: Iterable[str], clip: str, kind: str) -> list[int]:
    """Where the `wanted` names are among those that a clip has."""
    places = {name: place for place, name in enumerate(have)}
    columns = []
    for name in wanted:
        if name not in places:
            there = ", ".join(have) or "none"
            raise MotionError(
                f"{clip} has no {kind} {name!r}{did_you_mean(name, have)}; it has {there}; use a clip of this robot, "
                "or give other names when you convert it (`gaitway motion convert`)"
            )
        columns.append(places[name])
    return columns
