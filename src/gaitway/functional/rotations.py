"""Rotations as unit quaternions `w x y z`, arrays `[..., 4]` of float64; vectors are `[..., 3]`.

`rotate(q, v)` turns what is written in the body's frame into the world's. q and -q are the same rotation: whatever goes
from one rotation to another takes the shorter way.
"""

from __future__ import annotations

import numpy as np

TINY = 1e-12
"""Below this angle (rad) an arc is a chord."""


def normalised(rotation: np.ndarray) -> np.ndarray:
    """The unit quaternions of the same directions; zeros have none and become NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return rotation / np.linalg.norm(rotation, axis=-1, keepdims=True)


def product(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """`first` after `second`: rotate(product(a, b), v) = rotate(a, rotate(b, v))."""
    w, v = first[..., :1], first[..., 1:]
    w2, v2 = second[..., :1], second[..., 1:]
    real = w * w2 - np.sum(v * v2, -1, keepdims=True)
    return np.concatenate([real, w * v2 + w2 * v + np.cross(v, v2)], -1)


def inverse(rotation: np.ndarray) -> np.ndarray:
    return rotation * np.array([1.0, -1.0, -1.0, -1.0])


def rotate(rotation: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Vectors of the body's frame in the world's."""
    w, v = rotation[..., :1], rotation[..., 1:]
    twice = 2.0 * np.cross(v, vector)
    return vector + w * twice + np.cross(v, twice)


def rotate_back(rotation: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Vectors of the world's frame in the body's."""
    return rotate(inverse(rotation), vector)


def about(axis: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """The turn by `angle` [...] (rad) about the unit vector `axis` [3]."""
    half = np.asarray(angle, dtype=np.float64)[..., None] / 2.0
    return np.concatenate([np.cos(half), np.sin(half) * np.asarray(axis)], -1)


def angle_about(axis: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    """The angle in (-pi, pi] of the turn about `axis` that is nearest to `rotation`, its twist."""
    angle = 2.0 * np.arctan2(rotation[..., 1:] @ np.asarray(axis), rotation[..., 0])
    return np.pi - np.mod(np.pi - angle, 2.0 * np.pi)


def rotation_vector(rotation: np.ndarray) -> np.ndarray:
    """Axis times angle (rad), the angle at most pi."""
    rotation = np.where(rotation[..., :1] < 0.0, -rotation, rotation)
    length = np.linalg.norm(rotation[..., 1:], axis=-1, keepdims=True)
    angle = 2.0 * np.arctan2(length, rotation[..., :1])
    scale = np.where(length > TINY, angle / np.maximum(length, TINY), 2.0)
    return scale * rotation[..., 1:]


def slerp(start: np.ndarray, end: np.ndarray, share: np.ndarray) -> np.ndarray:
    """The rotation at `share` [...] of the shorter arc from `start` to `end`, at constant angular velocity."""
    share = np.asarray(share, dtype=np.float64)[..., None]
    cosine = np.sum(start * end, -1, keepdims=True)
    end = np.where(cosine < 0.0, -end, end)
    chord = end - start  # the angle by its sine: acos loses half of the digits where it is small
    angle = 2.0 * np.arctan2(
        np.linalg.norm(chord, axis=-1, keepdims=True), np.linalg.norm(end + start, axis=-1)[..., None]
    )
    sine = np.maximum(np.sin(angle), TINY)
    is_arc = angle > 1e-8
    before = np.where(is_arc, np.sin((1.0 - share) * angle) / sine, 1.0 - share)
    after = np.where(is_arc, np.sin(share * angle) / sine, share)
    return normalised(before * start + after * end)


def continuous(rotations: np.ndarray) -> np.ndarray:
    """The same rotations over time [F, ...] with signs such that none is more than half a turn from the one before."""
    flips = np.sum(rotations[1:] * rotations[:-1], -1, keepdims=True) < 0.0
    signs = np.where(np.logical_xor.accumulate(flips, axis=0), -1.0, 1.0)
    return np.concatenate([rotations[:1], signs * rotations[1:]])
