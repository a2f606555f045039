"""Motion clips: how a robot, an animal or an actor moved, frame by frame, in one format for all sources.

A clip holds frames at a fixed rate: positions of joints by name, and places, rotations and velocities of bodies by
name, of which the first is the root. Joints that turn freely (`balls`) have rotations of their own. Lengths are in m,
angles in rad, times in s; rotations are quaternions w x y z; velocities of bodies are those of the world's frame, and
those of balls of their own. All numbers are float64.

The clip lasts (F - 1) / fps seconds: frame i is at i / fps. The last frame of a loop is its first one again, except
for where the root has got to: it goes on from there. Beyond the end of an open clip its last frame is held, at rest.

On disk a clip is a state folder of `core/files.py` of the kind `motion`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gaitway.core.config import did_you_mean
from gaitway.core.files import load_state, save_state, tensors_sha256
from gaitway.functional.rotations import (
    continuous,
    inverse,
    normalised,
    product,
    rotation_vector,
    slerp,
)

KIND = "motion"
QUATERNION_ORDERS = {"wxyz": (0, 1, 2, 3), "xyzw": (3, 0, 1, 2)}
"""Order of a quaternion's numbers in a file -> where w, x, y and z are."""
UNITS = {"length": "m", "angle": "rad", "time": "s"}
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


@dataclass(frozen=True, eq=False)
class Clip:
    """One motion. Frames are checked and their quaternions normalised when it is made."""

    frames: Frames
    fps: float
    joints: tuple[str, ...]
    bodies: tuple[str, ...] = ()
    """The first one is the root; empty for what stands on a fixed base."""
    balls: tuple[str, ...] = ()
    loop: bool = False
    weight: float = 1.0
    """How often it is drawn from a library, relative to others."""
    source: str = ""
    """Where it comes from, in words."""
    name: str = "clip"
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Further plain facts about it."""
    norm_error: float = field(default=0.0, init=False)
    """How far the length of a given quaternion was from 1, at most."""

    def __post_init__(self) -> None:
        self._check_header()
        self._check_frames()
        lengths = [np.linalg.norm(getattr(self.frames, name), axis=-1) for name in ROTATIONS]
        error = max((float(np.abs(length - 1.0).max()) for length in lengths if length.size), default=0.0)
        rotations = {name: continuous(normalised(getattr(self.frames, name))) for name in ROTATIONS}
        object.__setattr__(self, "norm_error", error)
        object.__setattr__(self, "frames", self.frames.replaced(**rotations))

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def dt(self) -> float:
        """Seconds from frame to frame."""
        return 1.0 / self.fps

    @property
    def duration(self) -> float:
        """Seconds from the first to the last frame; the period of a loop."""
        return (len(self) - 1) * self.dt

    @property
    def displacement(self) -> np.ndarray:
        """How far the root gets from the first to the last frame [3]."""
        positions = self.frames.body_positions
        return positions[-1, 0] - positions[0, 0] if len(self.bodies) else np.zeros(3)

    def at(self, times: np.ndarray | Sequence[float] | float) -> Frames:
        """The frames at `times` [n] (s): linear between stored ones, spherical where they are rotations."""
        times = np.atleast_1d(np.asarray(times, dtype=np.float64))
        return sample(self.frames, times, 0, len(self), self.dt, self.loop, self.displacement)

    def resampled(self, dt: float) -> Clip:
        """The same motion at another rate.

        A loop must close on a frame: where its period is no multiple of `dt`, it is played faster or slower by less
        than half a frame per period, and `meta["time_stretch"]` says by which factor it lasts longer. An open clip ends
        with its last whole frame.
        """
        if not (math.isfinite(dt) and dt > 0.0):
            raise MotionError(f"dt is {dt}; use a number of seconds such as 0.02")
        steps = self.duration / dt
        count = round(steps) if self.loop else math.floor(steps + ROUNDING)
        if count < 1:
            raise MotionError(
                f"{self.name} lasts {self.duration:g} s, less than one frame of {dt:g} s; use a smaller dt"
            )
        if count > MAX_FRAMES:
            raise MotionError(f"{self.name} would have {count:,} frames of {dt:g} s; use a dt of at least 1e-4")
        stretch = count / steps if self.loop else 1.0
        frames, meta = self.at(np.arange(count + 1) * (dt / stretch)), dict(self.meta)
        if self.loop:
            # the last frame is the end of the period, not the first frame of the next one
            frames = Frames.joined([frames.map(lambda a: a[:-1]), self.frames.map(lambda a: a[-1:])])
        if abs(stretch - 1.0) > 1e-9:
            frames = frames.replaced(**{name: getattr(frames, name) / stretch for name in VELOCITIES})
            meta["time_stretch"] = stretch * float(meta.get("time_stretch", 1.0))
        return dataclasses.replace(self, frames=frames, fps=1.0 / dt, meta=meta)

    def differentiated(self) -> Clip:
        """The same clip with velocities from its positions."""
        return dataclasses.replace(self, frames=with_velocities(self.frames, self.dt, self.loop))

    def mirrored(self, mirror: Mirror) -> Clip:
        """The motion seen in a mirror that stands in the x-z plane: left is right."""
        frames = mirror(self.frames, self.joints, self.bodies, self.balls)
        return dataclasses.replace(self, frames=frames, name=f"{self.name}_mirrored")

    def reordered(self, joints: Sequence[str], bodies: Sequence[str], balls: Sequence[str] = ()) -> Clip:
        """The same clip with these joints, bodies and balls alone, in this order; one that it lacks is an error."""
        columns = {
            "joint": columns_of(self.joints, joints, self.name, "joint"),
            "body": columns_of(self.bodies, bodies, self.name, "body"),
            "ball": columns_of(self.balls, balls, self.name, "ball joint"),
        }
        arrays = {name: array[:, columns[name.partition("_")[0]]] for name, array in self.frames.arrays().items()}
        return dataclasses.replace(
            self, frames=Frames(**arrays), joints=tuple(joints), bodies=tuple(bodies), balls=tuple(balls)
        )

    @property
    def fingerprint(self) -> str:
        """A hash of everything that a user of the clip can notice."""
        tensors = {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in self.frames.arrays().items()}
        facts = "/".join(map(str, (self.fps, self.loop, self.weight, self.joints, self.bodies, self.balls)))
        return tensors_sha256({**tensors, facts: torch.zeros(0)})

    # Files

    def save(self, folder: str | Path) -> None:
        """Write the clip, by one rename."""
        tensors = {name: torch.from_numpy(np.array(array)) for name, array in self.frames.arrays().items()}
        meta = {
            "name": self.name,
            "fps": self.fps,
            "joints": list(self.joints),
            "bodies": list(self.bodies),
            "balls": list(self.balls),
            "loop": self.loop,
            "weight": self.weight,
            "source": self.source,
            "quaternion_order": "wxyz",
            "units": dict(UNITS),
            "meta": dict(self.meta),
        }
        save_state(folder, tensors, kind=KIND, meta=meta)

    @classmethod
    def load(cls, folder: str | Path) -> Clip:
        """The clip in `folder`; a MotionError or StateFileError says what is wrong with it."""
        tensors, meta = load_state(folder, kind=KIND)
        try:
            order = meta["quaternion_order"]
            if meta["units"] != UNITS:
                raise MotionError(f"its units are {meta['units']}; use {UNITS}")
            arrays = {name: _array(tensors[name], name) for name in FIELDS}
            for name in ROTATIONS:
                arrays[name] = reordered_quaternions(arrays[name], order)
            names: dict[str, Any] = {key: tuple(meta[key]) for key in NAMES_OF.values()}
            facts = {key: meta[key] for key in ("fps", "loop", "weight", "source", "name")}
            return cls(Frames(**arrays), **names, **facts, meta=dict(meta["meta"]))
        except KeyError as error:
            raise MotionError(f"{folder} is no motion that can be used: it lacks {error}; convert it again") from error
        except (MotionError, TypeError, AttributeError, ValueError) as error:
            raise MotionError(f"{folder} is no motion that can be used: {error}") from error

    def _check_header(self) -> None:
        def refuse(what: str) -> None:
            raise MotionError(f"{self.name}: {what}")

        for key in ("name", "source"):
            if not isinstance(getattr(self, key), str):
                raise MotionError(f"the {key} of the clip is {getattr(self, key)!r}; use a text")
        if not _is_number(self.fps) or not (math.isfinite(self.fps) and 0.0 < self.fps <= MAX_FPS):
            refuse(f"its rate is {self.fps!r} frames per second; use a number above 0, at most {MAX_FPS:g}")
        if not _is_number(self.weight) or not (math.isfinite(self.weight) and self.weight >= 0.0):
            refuse(f"its weight is {self.weight!r}; use a number of at least 0")
        if not isinstance(self.loop, bool):
            refuse(f"loop is {self.loop!r}; use true or false")
        for key in NAMES_OF.values():
            names = getattr(self, key)
            if wrong := [name for name in names if not isinstance(name, str) or not name]:
                refuse(f"{key} names {wrong[0]!r}, which is no text")
            if len(set(names)) != len(names):
                twice = next(name for name in names if names.count(name) > 1)
                refuse(f"{key} names {twice!r} twice; give each its own name")

    def _check_frames(self) -> None:
        def refuse(what: str) -> None:
            raise MotionError(f"{self.name}: {what}")

        count = len(self.frames)
        if count < 2:
            refuse(f"it has {count} frames; a motion has at least 2")
        if count > MAX_FRAMES:
            refuse(f"it has {count:,} frames; cut it into clips of at most {MAX_FRAMES:,}")
        for name, array in self.frames.arrays().items():
            names = getattr(self, NAMES_OF[name.partition("_")[0]])
            size = {"rotations": (4,)}.get(name.partition("_")[2], () if name.startswith("joint") else (3,))
            if array.dtype != np.float64 or array.shape != (count, len(names), *size):
                refuse(
                    f"{name} is {array.dtype} {list(array.shape)}; {count} frames of {len(names)} names are float64 "
                    f"{[count, len(names), *size]}"
                )
            bad = np.argwhere(~np.isfinite(array))
            if len(bad):
                frame, column = (int(number) for number in bad[0][:2])
                refuse(
                    f"{name} of {names[column]!r} is {array[tuple(bad[0])]} in frame {frame}; repair or cut the clip"
                )
        for name in ROTATIONS:
            zero = np.argwhere(np.linalg.norm(getattr(self.frames, name), axis=-1) < 1e-6)
            if len(zero):
                frame, column = zero[0].tolist()
                whose = getattr(self, NAMES_OF[name.partition("_")[0]])[column]
                refuse(f"the quaternion of {whose!r} is zero in frame {frame}; check the layout of the file")


MAX_FRAMES = 10_000_000
MAX_FPS = 1e5


class Mirror:
    """What becomes of a motion in a mirror: which joint takes whose place, with which sign.

    `joints` maps each joint to its partner, itself where it has none, and `signs` to 1 or -1; names that are missing
    are swapped by left and right in their names, with the sign 1. A robot knows better: `Skeleton.mirror`.
    """

    def __init__(self, joints: Mapping[str, str] | None = None, signs: Mapping[str, float] | None = None) -> None:
        self.joints, self.signs = dict(joints or {}), dict(signs or {})
        if wrong := [name for name, sign in self.signs.items() if sign not in (1, -1)]:
            raise MotionError(f"the sign of {wrong[0]!r} in a mirror is {self.signs[wrong[0]]!r}; use 1 or -1")

    def __call__(
        self, frames: Frames, joints: Sequence[str], bodies: Sequence[str], balls: Sequence[str] = ()
    ) -> Frames:
        """Mirrored frames with the same names."""
        columns = {"joint": self._partners(joints), "body": self._partners(bodies), "ball": self._partners(balls)}
        moved = {name: array[:, columns[name.partition("_")[0]]] for name, array in frames.arrays().items()}
        signs = np.array([self.signs.get(name, 1.0) for name in joints])
        for name in ("joint_positions", "joint_velocities"):
            moved[name] = moved[name] * signs
        for name, flips in MIRRORED.items():
            moved[name] = moved[name] * np.array(flips)
        return Frames(**moved)

    def _partners(self, names: Sequence[str]) -> list[int]:
        places = {name: place for place, name in enumerate(names)}
        partners = [self.joints.get(name) or other_side(name) for name in names]
        if lacking := [partner for partner in partners if partner not in places]:
            raise MotionError(f"the mirror has no place for {lacking[0]!r}; the clip has {list(names)}")
        if len(set(partners)) != len(partners):
            raise MotionError("the mirror gives two joints the same place; map each to another partner")
        return [places[partner] for partner in partners]


_POLAR, _AXIAL, _TURN = (1.0, -1.0, 1.0), (-1.0, 1.0, -1.0), (1.0, -1.0, 1.0, -1.0)
MIRRORED = {
    "body_positions": _POLAR,
    "body_velocities": _POLAR,
    "body_angular_velocities": _AXIAL,
    "body_rotations": _TURN,
    "ball_rotations": _TURN,
    "ball_velocities": _AXIAL,
}
"""Signs of x, y, z (of w, x, y, z) in a mirror whose normal is y: lengths flip y, turns flip x and z."""

_SIDES = {"left": "right", "Left": "Right", "LEFT": "RIGHT"}
_TOKENS = {"l": "r", "L": "R", "FL": "FR", "RL": "RR", "HL": "HR", "LF": "RF", "LH": "RH"}


def other_side(name: str) -> str:
    """`left_knee` -> `right_knee`, `FR_hip_joint` -> `FL_hip_joint`; a name without a side stays."""
    for left, right in _SIDES.items():
        for here, there in ((left, right), (right, left)):
            if here in name:
                return name.replace(here, there, 1)
    swaps = {**_TOKENS, **{right: left for left, right in _TOKENS.items()}}
    parts = name.split("_")
    for place, part in enumerate(parts):
        if part in swaps:
            return "_".join([*parts[:place], swaps[part], *parts[place + 1 :]])
    return name


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


def _array(tensor: Any, name: str) -> np.ndarray:
    if not isinstance(tensor, torch.Tensor):
        raise MotionError(f"{name} is no tensor")
    return tensor.to(torch.float64).numpy()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
