"""Films, pictures and texts of runs: what there is to show, and what of it goes into a page."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from gaitway.analysis.report.facts import RunFacts, text
from gaitway.analysis.report.folders import open_inside

FOLDERS = ("videos", "media")
TYPES = {
    ".mp4": "video/mp4",
    ".webm": "video/webm",
    ".gif": "image/gif",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".txt": "text/plain",
    ".md": "text/plain",
    ".html": "text/html",
}
"""What is shown, by the end of its name. Pages are never shown in place: they are somebody's programs."""
MOST_OF_RUN = 200
"""Files of a run that are listed, newest first."""
DEEPEST = 3


@dataclass(frozen=True)
class Medium:
    """A file of a run."""

    run: int
    parts: tuple[str, ...]
    """Its place below the run folder."""
    size: int
    time: float

    @property
    def type(self) -> str:
        return TYPES[os.path.splitext(self.parts[-1])[1].lower()]

    def to_dict(self) -> dict[str, Any]:
        kind = self.type.partition("/")[0] if self.type != "text/html" else "page"
        name = text("/".join(self.parts))  # what was logged has its name in its folder, as in an address
        shown = text(unquote(name.removeprefix("media/").removeprefix("videos/")))
        return {"run": self.run, "name": name, "shown": shown, "kind": kind, "size": self.size}


def media_of(number: int, facts: RunFacts) -> list[Medium]:
    """The media of a run, newest first. Links are left out: what they name may be anybody's."""
    folders = [name for name in FOLDERS if not (facts.run.folder / name).is_symlink()]
    found = [one for name in folders for one in _below(number, facts.run.folder / name, (name,))]
    return sorted(found, key=lambda one: (-one.time, one.parts))[:MOST_OF_RUN]


def read_medium(folder: Path, medium: Medium) -> bytes:
    """The bytes of a file, which may have gone: an OSError."""
    with os.fdopen(open_inside(folder, list(medium.parts)), "rb") as file:
        return file.read()


def embedded(media: Sequence[Medium], runs: Sequence[RunFacts], budget: int, page: Path) -> list[dict[str, Any]]:
    """Media for a page in a file: as `data` in base64 while they fit the budget, the newest film of every run first,
    then as `link` from the page to the file. Pages are linked."""
    place: dict[int, int] = {}
    order: list[tuple[int, int]] = []
    for one in media:
        place[one.run] = place.get(one.run, -1) + 1
        order.append((place[one.run], len(order)))
    found: list[dict[str, Any]] = [one.to_dict() for one in media]
    for _, index in sorted(order):
        one, entry = media[index], found[index]
        if entry["kind"] != "page" and one.size <= budget:
            try:
                content = read_medium(runs[one.run].run.folder, one)
            except OSError:
                entry["gone"] = True
                continue
            if len(content) <= budget:
                budget -= len(content)
                entry |= {"data": base64.b64encode(content).decode("ascii"), "type": one.type}
                continue
        target = os.path.relpath(runs[one.run].run.folder.joinpath(*one.parts), page.parent)
        entry["link"] = quote(os.fsencode(target))
    return found


def _below(number: int, folder: Path, parts: tuple[str, ...]) -> Iterable[Medium]:
    try:
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in listed:
        try:
            if entry.is_dir(follow_symlinks=False) and len(parts) < DEEPEST:
                yield from _below(number, folder / entry.name, (*parts, entry.name))
            elif entry.is_file(follow_symlinks=False) and os.path.splitext(entry.name)[1].lower() in TYPES:
                status = entry.stat(follow_symlinks=False)
                yield Medium(number, (*parts, entry.name), status.st_size, status.st_mtime)
        except OSError:
            continue  # gone since it was listed
