"""The runs whose names are nearest to one that is not there."""

from __future__ import annotations

import difflib
from contextlib import suppress
from pathlib import Path


def nearest_runs(path: str | Path, count: int = 3, mark: str = "code.json") -> str:
    """A question in brackets with the nearest run folders, or nothing where none is near: those beside the path, those
    in `runs/`, and one level below both. `mark` is the file that tells them."""
    path = Path(path)
    known: dict[str, str] = {}
    for place in dict.fromkeys((path.parent, Path("runs"))):
        with suppress(OSError):
            for pattern in (f"*/{mark}", f"*/*/{mark}"):
                known.update({str(found.parent): found.parent.name for found in place.glob(pattern)})
    likeness = {shown: max(_likeness(path.name, name), _likeness(str(path), shown)) for shown, name in known.items()}
    near = sorted((shown for shown, ratio in likeness.items() if ratio >= 0.6), key=lambda shown: -likeness[shown])
    if not near:
        return ""
    listed = near[:count]
    text = f"{', '.join(listed[:-1])} or {listed[-1]}" if listed[1:] else listed[0]
    return f" (did you mean {text}?)"


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()
