"""Pictures, animations, texts and pages that were logged, as files: `media/<name>/<step>.png`, `.gif`, `.txt`, `.html`.

A name is written as in an address (`eval/map` is the folder `eval%2Fmap`), so that it can be anything and leads nowhere
else. Several pictures of one step are `<step>_0.png`, `<step>_1.png`. A step that is logged again replaces its files.
"""

from __future__ import annotations

import hashlib
import io
import logging
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from gaitway.core.files import StateFileError, atomic_write_bytes
from gaitway.runners.media import Kind, figure_array, gif

log = logging.getLogger("gaitway")

LONGEST = 200
"""Characters of a folder's name; file systems take 255 bytes."""


class MediaFolder:
    """Keeps what is shown. What cannot be written is said once, and training goes on."""

    takes: frozenset[Kind] = frozenset({"images", "figure", "text", "html", "video"})

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._told = False

    def show(self, kind: Kind, name: str, value: Any, step: int, fps: float) -> None:
        place = self.folder / folder_name(name)
        try:
            place.mkdir(parents=True, exist_ok=True)
            for file, content in _files(kind, value, step, fps).items():
                atomic_write_bytes(place / file, content)
        except (OSError, StateFileError) as error:
            if not self._told:
                log.warning("%s is not kept in %s: %s", name, self.folder, error)
            self._told = True


def folder_name(name: str) -> str:
    """A folder's name for the name of a picture or a text."""
    quoted = quote(name, safe=" ")
    if quoted.strip(".") == "":
        quoted = quoted.replace(".", "%2E") or "%"
    if len(quoted) > LONGEST:
        quoted = f"{quoted[:LONGEST]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return quoted


def _files(kind: Kind, value: Any, step: int, fps: float) -> dict[str, bytes]:
    """File name -> content."""
    if kind == "text":
        return {f"{step}.txt": value.encode("utf-8", "backslashreplace")}
    if kind == "html":
        return {f"{step}.html": value.encode("utf-8", "backslashreplace")}
    if kind == "video":
        return {f"{step}.gif": gif(value, fps)}
    pictures = [figure_array(value)] if kind == "figure" else list(value)
    if len(pictures) == 1:
        return {f"{step}.png": _png(pictures[0])}
    return {f"{step}_{number}.png": _png(picture) for number, picture in enumerate(pictures)}


def _png(picture: np.ndarray) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture)).save(buffer, format="PNG")
    return buffer.getvalue()
