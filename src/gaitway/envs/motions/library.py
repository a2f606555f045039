"""Several clips of the same robot, drawn by their weights: `MotionLibrary.load(["clips/trot", "clips/pace"])`."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gaitway.core.files import STRUCTURE_FILE
from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.frames import Frames, MotionError, sample
from gaitway.envs.robots.registry import same_machine

SHIPPED = Path(__file__).parent / "files"
"""Clips that come with the library, a folder each, known by their names."""
SAME_DT = 1e-4
"""Share by which the seconds per frame of a clip may differ from those of a step."""


class MotionLibrary:
    """Clips with the same joints and bodies, in the order of the first one, for many draws at once.

    Times are drawn uniformly over a clip; draws of a pair leave room for its second frame.
    """

    def __init__(self, clips: Sequence[Clip]) -> None:
        if not clips:
            raise MotionError("a library of motions needs at least one clip")
        first = clips[0]
        self.joints, self.bodies, self.balls = first.joints, first.bodies, first.balls
        for clip in clips[1:]:
            if extra := sorted({*clip.joints} - {*self.joints}):
                raise MotionError(
                    f"{clip.name} has the joint {extra[0]!r}, which {first.name} lacks; use clips of one robot"
                )
        self.clips = tuple(clip.reordered(self.joints, self.bodies, self.balls) for clip in clips)
        weights = np.array([clip.weight for clip in clips], dtype=np.float64)
        if weights.sum() <= 0.0:
            raise MotionError("all clips of the library have the weight 0; give one of them a weight above 0")
        self.weights = weights / weights.sum()
        """[C], their sum is 1."""
        self._frames = Frames.joined([clip.frames for clip in self.clips])
        counts = [len(clip) for clip in self.clips]
        self._count = np.array(counts)
        self._first = np.cumsum([0, *counts[:-1]])
        self._dt = np.array([clip.dt for clip in self.clips])
        self._loop = np.array([clip.loop for clip in self.clips])
        self._displacement = np.stack([clip.displacement for clip in self.clips])
        self.durations = np.array([clip.duration for clip in self.clips])
        """Seconds [C]."""

    @classmethod
    def load(cls, folders: str | Path | Sequence[str | Path]) -> MotionLibrary:
        """The clips of folders, or of the library's own names; a folder that is no clip itself stands for the clips in
        it, by name."""
        listed = [folders] if isinstance(folders, str | Path) else list(folders)
        if not listed or "" in listed:
            raise MotionError("no motion is named; name the folder of a clip, or a folder of clips")
        return cls([Clip.load(folder) for each in listed for folder in clip_folders(each)])

    def __len__(self) -> int:
        return len(self.clips)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256("".join(clip.fingerprint for clip in self.clips).encode()).hexdigest()

    def need_fit(self, robot: str, dt: float, who: str) -> None:
        """Refuse clips of another robot or rate than those of `who`, whose steps take `dt` seconds.

        Clips that do not say whose they are, and tasks that name no robot (""), go by their joints alone."""
        for clip in self.clips:
            told = str(clip.meta.get("robot") or "")
            if told and robot and not same_machine(told, robot):
                raise MotionError(
                    f"{clip.name} is a clip of {told} and {who} moves {robot}; use a clip of {robot} (`gaitway motion "
                    f"generate` or `record`), or say that it fits by `gaitway motion convert CLIP OUT --robot {robot}`"
                )
        self.need_dt(dt, who)

    def need_dt(self, dt: float, who: str) -> None:
        """Refuse clips whose frames are not `dt` seconds apart, the step of `who`."""
        for clip in self.clips:
            if not math.isclose(clip.dt, dt, rel_tol=SAME_DT):
                raise MotionError(
                    f"{clip.name} has a frame every {clip.dt:g} s and a step of {who} takes {dt:g} s; "
                    f"use `gaitway motion convert CLIP OUT --dt {dt:g}`"
                )

    def at(self, clip: np.ndarray, times: np.ndarray) -> Frames:
        """Frames of the clips numbered `clip` [n] at `times` [n] (s)."""
        return sample(
            self._frames,
            np.asarray(times, dtype=np.float64),
            self._first[clip],
            self._count[clip],
            self._dt[clip],
            self._loop[clip],
            self._displacement[clip],
        )

    def draw(
        self, generator: np.random.Generator, count: int, ahead: float = 0.0, between_frames: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """`count` clips [n] by weight and a time in each [n] (s), which leaves `ahead` seconds until its end.

        Without `between_frames` it is the time of the nearest frame."""
        clip, times = self.place(generator.random(count), generator.random(count), ahead)
        if between_frames:
            return clip, times
        dt = self._dt[clip]
        last = np.where(self._loop[clip], np.inf, np.floor((self.durations[clip] - ahead) / dt + 1e-6))
        return clip, np.minimum(np.round(times / dt), last) * dt

    def place(self, which: np.ndarray, when: np.ndarray, ahead: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """The clips and times that numbers in [0, 1) stand for, [n] each."""
        if too_short := [c.name for c in self.clips if c.weight > 0 and not c.loop and c.duration < ahead]:
            raise MotionError(
                f"{too_short[0]} is shorter than the {ahead:g} s that are needed of it; use a longer clip"
            )
        edges = np.cumsum(self.weights)
        clip = np.searchsorted(edges / edges[-1], which, side="right")
        room = np.where(self._loop, self.durations, np.maximum(self.durations - ahead, 0.0))
        return clip, when * room[clip]

    def draw_pairs(self, generator: np.random.Generator, count: int, dt: float) -> tuple[Frames, Frames]:
        """`count` pairs of frames, `dt` seconds apart."""
        clip, times = self.draw(generator, count, dt)
        return self.at(clip, times), self.at(clip, times + dt)


def shipped_motions() -> list[str]:
    """Names of the clips, and of folders of clips, that come with the library."""
    return sorted({found.relative_to(SHIPPED).parts[0] for found in SHIPPED.rglob(STRUCTURE_FILE)})


def clip_folders(folder: str | Path) -> list[Path]:
    """Where the clips are that `folder` stands for: itself, the clips in it by name, or, where there is no such folder,
    what comes with the library: `pup12_trot`, or one of its clips, `pup12_trot/pup12_trot_0.5_0_0`."""
    path = Path(folder)
    if not path.is_dir() and path.parts[:1] and path.parts[0] in shipped_motions() and ".." not in path.parts:
        path = SHIPPED / path
    if not path.is_dir():
        raise MotionError(
            f"{folder} does not exist, or is no folder of a motion; make one with `gaitway motion convert`, "
            f"`generate` or `record`, or name one that comes with the library: {', '.join(shipped_motions())}"
        )
    inner = sorted(child for child in path.iterdir() if (child / STRUCTURE_FILE).is_file())
    return [path] if (path / STRUCTURE_FILE).is_file() or not inner else inner
