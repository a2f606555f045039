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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gaitway.core.files import load_state, save_state, tensors_sha256
from gaitway.envs.motions.frames import (
    FIELDS,
    NAMES_OF,
    ROTATIONS,
    ROUNDING,
    VELOCITIES,
    Frames,
    MotionError,
    columns_of,
    reordered_quaternions,
    sample,
    with_velocities,
)
from gaitway.envs.motions.mirror import Mirror
from gaitway.functional.rotations import (
    continuous,
    normalised,
)

KIND = "motion"
UNITS = {"length": "m", "angle": "rad", "time": "s"}


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


def _array(tensor: Any, name: str) -> np.ndarray:
    if not isinstance(tensor, torch.Tensor):
        raise MotionError(f"{name} is no tensor")
    return tensor.to(torch.float64).numpy()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
