"""Plain values: numbers, texts, lists and mappings, which files can hold; and names for objects, which they cannot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def plain(value: Any, path: str = "") -> Any:
    """`value` with numbers of NumPy and torch made Python's, tuples lists and paths texts; a TypeError names by its
    `path` what is none of these."""
    if isinstance(value, Mapping):
        wrong = next((key for key in value if not isinstance(key, str)), None)
        if wrong is not None:
            raise TypeError(f"{path or 'the configuration'} has the key {wrong!r}; keys are texts")
        return {key: plain(entry, f"{path}/{key}".lstrip("/")) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry, path) for entry in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Path):
        return str(value)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a number of NumPy or torch
        return value.item()
    raise TypeError(f"{path} is {value!r}; give numbers, texts, lists and mappings of them")


def reference(part: Any) -> str:
    """`module:Class` of an object, for people to read."""
    kind = part if isinstance(part, type) else type(part)
    return f"{kind.__module__}:{kind.__qualname__}"


def objects_given(**parts: Any) -> tuple[str, ...]:
    """`place module:Class` for every object among `parts`, which are objects, lists of them or None, by place."""
    listed = ((place, each) for place, given in parts.items() for each in _listed(given))
    return tuple(f"{place} {reference(each)}" for place, each in listed)


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]
