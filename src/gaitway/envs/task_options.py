"""Options of tasks: keyword arguments of `make_env` to a frozen dataclass, strictly."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from gaitway.core.config import OutOfRangeError, did_you_mean

Config = TypeVar("Config")


def resolve_options(config: type[Config], task: str, options: Mapping[str, Any]) -> tuple[Config, dict[str, Any]]:
    """The config dataclass filled from `options`, and those options that differ from its defaults.

    Unknown names and values of the wrong type are errors; lists (as YAML gives them) become tuples.
    """
    items = {item.name: item for item in dataclasses.fields(config)}  # type: ignore[arg-type]
    defaults = {name: item.default for name, item in items.items()}
    values = {}
    for name, value in options.items():
        if name not in defaults:
            raise TypeError(f"{task} has no option {name!r}{did_you_mean(name, defaults)}; it has {sorted(defaults)}")
        also = items[name].metadata.get("also")  # a second accepted type
        values[name] = value if also and isinstance(value, also) else _coerce(task, name, value, defaults[name])
    changed = {name: value for name, value in values.items() if value != defaults[name]}
    try:
        return config(**values), changed
    except OutOfRangeError as error:
        raise ValueError(f"{task}: option {error}") from error


def _coerce(task: str, name: str, value: Any, default: Any) -> Any:
    """`value` as the type of `default`, or an error that says which type that is."""
    kind = type(default)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float and is_number:
        return float(value)
    if kind is tuple and isinstance(value, Sequence) and not isinstance(value, str) and len(value) == len(default):
        return tuple(_coerce(task, name, item, like) for item, like in zip(value, default, strict=True))
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and is_number and float(value).is_integer():
        return int(value)
    if kind is str and isinstance(value, str):
        return value
    expected = f"{len(default)} numbers" if kind is tuple else kind.__name__
    raise TypeError(f"option {name!r} of {task} is {value!r}; it takes {expected}, for example {default!r}")
