"""Which files a page may read: run folders below a root, and in them what does not lead out of it.

Pages are shared and served, so nothing that a link names elsewhere gets into one: neither as a film nor as a
configuration.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gaitway.analysis.metrics_file import METRICS, PACKED_METRICS
from gaitway.analysis.runs import is_run_folder

READ = ("config.yaml", METRICS, PACKED_METRICS, "summary.json", "preflight.json")
"""What the reader of runs opens by itself."""
LARGEST_JSON = 8 << 20
"""Bytes of a small file that are read."""
DEEPEST = 12
"""Levels of folders below the root in which runs are looked for."""


def runs_inside(root: Path, depth: int = DEEPEST) -> Iterator[Path]:
    """Run folders below a root, sorted by name; links are not followed, so that there is an end."""
    if is_run_folder(root):
        yield root
        return
    try:
        with os.scandir(root) as entries:
            folders = [e.name for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=False)]
    except OSError:
        return  # gone or closed since it was listed
    for name in sorted(folders) if depth else ():
        yield from runs_inside(root / name, depth - 1)


def is_inside(root: str | Path, path: str | Path) -> bool:
    """Whether a path, with its links followed, lies in a folder."""
    real, place = os.path.realpath(root), os.path.realpath(path)
    return place == real or place.startswith(real.rstrip(os.sep) + os.sep)


def check_inside(root: Path, folder: Path) -> None:
    """Refuse a run whose own files lead out of the root, or are no files at all, such as a pipe that never ends."""
    for name in READ:
        path = folder / name
        if os.path.lexists(path) and not is_plain_file(root, path):
            raise ValueError(f"{path} is a link out of {root}, or no file; put the file itself there")


def is_plain_file(root: str | Path, path: str | Path) -> bool:
    """Whether a path is an ordinary file inside a folder."""
    try:
        return is_inside(root, path) and stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def read_small_json(root: Path, path: Path) -> dict[str, Any]:
    """What a JSON file says; nothing where it is missing, damaged, too large or elsewhere."""
    try:
        if not is_plain_file(root, path) or path.stat().st_size > LARGEST_JSON:
            return {}
        found = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def open_inside(root: str | Path, parts: list[str]) -> int:
    """A file below a folder, opened for reading without following a single link; an OSError where that is impossible.

    Each part is opened in the folder before it, so that nobody can put a link in its place in between.
    """
    if not parts or any(part in ("", ".", "..") or "/" in part or "\0" in part for part in parts):
        raise FileNotFoundError("no such file")
    place = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
            os.close(place)
            place = inner
        file = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
    finally:
        os.close(place)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileNotFoundError("not a file")
    return file
