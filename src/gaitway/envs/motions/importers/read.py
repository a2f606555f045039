"""Motions of others as clips: `read_motion("dog_trot.txt")`. Nothing here unpickles or runs anything.

A format is a file beside this one, and a line of `FORMATS`. Velocities that a file lacks are differences of its
positions.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gaitway.core.config import did_you_mean
from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.frames import MotionError
from gaitway.envs.motions.importers.amp import read_amp
from gaitway.envs.motions.importers.deepmimic import read_deepmimic
from gaitway.envs.motions.importers.npz import NPZ_KEYS, read_npz
from gaitway.envs.motions.importers.reading import MAX_BYTES, Reading

FORMATS: dict[str, Callable[..., Clip]] = {
    "amp": read_amp,
    "deepmimic": read_deepmimic,
    "isaaclab": read_npz,
    "mjlab": read_npz,
}


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
        return read_npz(path, reading)
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
