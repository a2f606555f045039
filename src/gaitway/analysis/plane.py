"""Where a map looks: two dimensions of an observation vary, all others stay at a reference. Nothing is random."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from gaitway.core.workspace import Workspace

UNLIMITED = 1e6
"""A limit of a space that is not below this says nothing about where its values lie."""
DEFAULT_LIMIT = 3.0
Limits = tuple[float, float]


@dataclass(frozen=True)
class Plane:
    """A grid over the dimensions `x` and `y` of an observation; `Plane.of` works the limits out."""

    size: int
    """Numbers in an observation, D."""
    x: int
    y: int
    x_limits: Limits
    y_limits: Limits
    reference: tuple[float, ...]
    """The observation `[D]` of which only x and y are replaced."""
    definition: int = 101
    """Points per axis, n, both ends included."""
    x_label: str = "x"
    y_label: str = "y"
    names: tuple[str, ...] = ()
    """How dimensions are called, if they have names."""

    def __post_init__(self) -> None:
        if self.size < 2:
            raise ValueError(
                f"an observation of {self.size} number has no two dimensions to choose; at least 2 must be"
            )
        if not (0 <= self.x < self.size and 0 <= self.y < self.size and self.x != self.y):
            raise ValueError(
                f"the dimensions are {self.x} and {self.y}; use two different ones from 0 to {self.size - 1}"
            )
        if len(self.reference) != self.size or not all(math.isfinite(value) for value in self.reference):
            raise ValueError(f"the reference must be {self.size} finite numbers, one per dimension of the observation")
        for low, high in (self.x_limits, self.y_limits):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ValueError(f"the limits are {low} and {high}; use two finite numbers, the lower one first")
        if self.definition < 2:
            raise ValueError(f"definition is {self.definition}; use at least 2 points per axis")

    @classmethod
    def of(
        cls,
        source: Any,
        x: int | str = 0,
        y: int | str = 1,
        *,
        bounds: Mapping[int | str, Limits] | None = None,
        data: Any = None,
        reference: ArrayLike | Mapping[int | str, float] | None = None,
        group: str | Sequence[str] | None = None,
        definition: int = 101,
    ) -> Plane:
        """The plane through an observation of `source`, by numbers of its dimensions or by names of its components.

        `source` is the size D, a Box (anything with `low` and `high`), an environment that has one as its
        `observation_space`, an `EnvSpec` or a `VecEnv`; then `group` says which observations, side by side (if it does
        not: `policy`, or where that does not exist all groups that are vectors, which is what actors read too).
        The limits of each axis are those of `bounds`, else the space's, else the least and the greatest in `data` (a
        Workspace or `[..., D]`), else +-3. `reference` is an observation `[D]` or single values by dimension; the rest
        is 0, or the nearest value that the space allows. `source` is only read.
        """
        names, low, high = _describe(source, group)
        size = len(names)
        chosen = [_index(which, names) for which in (x, y)]
        given = {_index(which, names): limits for which, limits in (bounds or {}).items()}
        values = None if data is None else _values(data, group, size)
        x_limits, y_limits = (
            _limits(given.get(i), float(low[i]), float(high[i]), None if values is None else values[:, i])
            for i in chosen
        )
        names = [name or f"observation[{i}]" for i, name in enumerate(names)]
        point = tuple(_reference(reference, names, low, high).tolist())
        first, second = chosen
        labels = [names[i].replace("_", " ") for i in chosen]
        return cls(size, first, second, x_limits, y_limits, point, definition, labels[0], labels[1], tuple(names))

    def x_values(self) -> np.ndarray:
        """x_0 to x_{n-1}, float64 `[n]`."""
        return np.linspace(*self.x_limits, self.definition)

    def y_values(self) -> np.ndarray:
        return np.linspace(*self.y_limits, self.definition)

    def observations(self) -> Tensor:
        """All points, float32 `[n * n, D]`: point `(x_i, y_j)` is row `i * n + j`."""
        grid = np.tile(np.asarray(self.reference), (self.definition, self.definition, 1))
        grid[:, :, self.x] = self.x_values()[:, None]
        grid[:, :, self.y] = self.y_values()[None, :]
        return torch.from_numpy(grid.reshape(-1, self.size).astype(np.float32))

    def elsewhere(self) -> str:
        """Where the other dimensions stay, in words."""
        others = [i for i in range(self.size) if i not in (self.x, self.y)]
        names = self.names or [f"observation[{i}]" for i in range(self.size)]
        said = [f"{names[i].split(' [')[0]} = {self.reference[i]:.3g}" for i in others if self.reference[i] != 0]
        if len(said) > 3:
            return "other dimensions at the given reference"
        rest = ["others = 0"] if 0 < len(said) < len(others) else []
        return "at " + ", ".join(said + rest) if said else "other dimensions at 0"


def _describe(source: Any, group: str | Sequence[str] | None) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names (empty where there are none) and limits of every dimension; the arrays are copies."""
    if isinstance(source, int | np.integer):
        return _unlimited([""] * int(source))
    source = getattr(source, "spec", source) if hasattr(getattr(source, "spec", None), "groups") else source
    if hasattr(source, "groups"):
        return _unlimited(_component_names(source, group))
    space = source
    for attribute in ("single_observation_space", "observation_space"):
        if hasattr(source, attribute):
            space = getattr(source, attribute)
            break
    low, high = getattr(space, "low", None), getattr(space, "high", None)
    if low is None or high is None or np.ndim(low) != 1:
        raise ValueError(
            f"a plane needs an observation that is one vector, found {space!r}; pass its size, a Box with one axis, or "
            "an EnvSpec"
        )
    names = list(getattr(space, "names", [""] * len(low)))
    return names, np.array(low, np.float64), np.array(high, np.float64)


def _component_names(spec: Any, group: str | Sequence[str] | None) -> list[str]:
    vectors = {each.name: each for each in spec.groups if each.is_vector}
    names = []
    for chosen in choose_groups(list(vectors), group, spec.id):
        for component in vectors[chosen].components:
            unit = f" [{component.unit}]" if component.unit else ""
            numbers = [""] if component.size == 1 else [f" {index}" for index in range(component.size)]
            names += [component.name + number + unit for number in numbers]
    return names


def choose_groups(known: Sequence[str], group: str | Sequence[str] | None, owner: str) -> list[str]:
    """The observation groups that are meant: those named, else `policy`, else all."""
    if group is None:
        group = "policy" if "policy" in known else known
    chosen = [group] if isinstance(group, str) else list(group)
    for name in chosen:
        if name not in known:
            raise ValueError(f"{owner} has no vector group {name!r}; it has {list(known)}")
    return chosen


def stored(ws: Workspace, group: str | Sequence[str] | None, kind: str = "env/obs/") -> Tensor:
    """Observation groups of a workspace side by side, `[T, B, D]`; which ones, as in `choose_groups`."""
    known = [name.removeprefix(kind) for name in ws if name.startswith(kind) and ws[name].dim() == 3]
    if not known:
        raise ValueError(f"the workspace has no observations {kind}<group> [T, B, D]; it has {ws.keys()}")
    return torch.cat([ws[kind + name] for name in choose_groups(known, group, "the workspace")], -1)


def as_array(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)


def _unlimited(names: list[str]) -> tuple[list[str], np.ndarray, np.ndarray]:
    return names, np.full(len(names), -np.inf), np.full(len(names), np.inf)


def _index(which: int | str, names: Sequence[str]) -> int:
    """The number of a dimension, given by number or by name, with or without its unit."""
    if not isinstance(which, str):
        if not 0 <= which < len(names):
            raise ValueError(f"there is no dimension {which}; the observation has 0 to {len(names) - 1}")
        return int(which)
    found = [i for i, name in enumerate(names) if name and which in (name, name.split(" [")[0])]
    if len(found) != 1:
        raise ValueError(
            f"there is no dimension {which!r}; the observation has {[n for n in names if n] or len(names)}"
        )
    return found[0]


def _values(data: Any, group: str | Sequence[str] | None, size: int) -> np.ndarray:
    """Observations `[N, D]` of a Workspace, a tensor or an array."""
    if isinstance(data, Workspace):
        data = stored(data, group)
    array = as_array(data)
    if array.ndim < 1 or array.shape[-1] != size:
        raise ValueError(f"data is {list(array.shape)}; it must be observations [..., {size}]")
    return array.reshape(-1, size).astype(np.float64)


def _limits(given: Limits | None, low: float, high: float, values: np.ndarray | None) -> Limits:
    if given is not None:
        return float(given[0]), float(given[1])
    low, high = (end if abs(end) < UNLIMITED else math.nan for end in (low, high))
    known = values[np.isfinite(values)] if values is not None else np.empty(0)
    if known.size:
        low = float(known.min()) if math.isnan(low) else low
        high = float(known.max()) if math.isnan(high) else high
    if math.isnan(low):
        low = -DEFAULT_LIMIT if math.isnan(high) or high > -DEFAULT_LIMIT else high - 2 * DEFAULT_LIMIT
    if math.isnan(high):
        high = DEFAULT_LIMIT if low < DEFAULT_LIMIT else low + 2 * DEFAULT_LIMIT
    return (low, high) if low < high else (low - 1.0, low + 1.0)  # data that never vary


def _reference(
    given: ArrayLike | Mapping[int | str, float] | None, names: Sequence[str], low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    point = np.clip(np.zeros(len(names)), low, high)
    if isinstance(given, Mapping):
        for which, value in given.items():
            point[_index(which, names)] = float(value)
    elif given is not None:
        array = as_array(given)
        if array.shape != point.shape:
            raise ValueError(f"the reference is {list(array.shape)}; it must be one observation [{len(names)}]")
        point = array.astype(np.float64)
    return point
