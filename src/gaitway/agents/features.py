"""Features by name: `policy` is a group of observations, `policy.velocity` one of its components, a block's `writes`
what it makes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from gaitway.core.config import did_you_mean
from gaitway.envs.spec import EnvSpec

Shapes = Mapping[str, tuple[int, ...]]
"""Feature -> its shape, without batch axes."""


class Columns(NamedTuple):
    """A stretch of a feature's last axis."""

    feature: str
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    def of(self, features: Mapping[str, Tensor]) -> Tensor:
        """`[..., size]` of the feature `[..., D]`."""
        return features[self.feature][..., self.start : self.stop]


class FeatureShapes(dict[str, tuple[int, ...]]):
    """Shapes of an environment's groups and of `further` features; components of vectors are known too, but not
    listed."""

    def __init__(self, spec: EnvSpec, further: Shapes | None = None) -> None:
        super().__init__({group.name: group.shape for group in spec.groups} | dict(further or {}))
        self.components: dict[str, Columns] = {}
        for group in spec.groups:
            start = 0
            for component in group.components if group.is_vector else ():
                columns = Columns(group.name, start, start + component.size)
                self.components.setdefault(f"{group.name}.{component.name}", columns)
                start += component.size

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self.components

    def __missing__(self, name: str) -> tuple[int, ...]:
        return (self.components[name].size,)


class Features(dict[str, Tensor]):
    """Features of observations; a component is cut out of its group as that stands."""

    def __init__(self, values: Mapping[str, Tensor], components: Mapping[str, Columns]) -> None:
        super().__init__(values)
        self._components = components

    def __missing__(self, name: str) -> Tensor:
        return self._components[name].of(self)


def columns_of(shapes: Shapes, name: str) -> Columns:
    """Where a feature, or a component of one, stands; a ValueError where there is none of that name."""
    components = getattr(shapes, "components", {})
    if name in components:
        return components[name]
    if name not in shapes:
        known = (*shapes, *components)
        raise ValueError(f"no feature {name!r}{did_you_mean(name, known)}; there are {sorted(known)}")
    return Columns(name, 0, math.prod(shapes[name]))


def vector_size(shapes: Shapes, names: Sequence[str]) -> int:
    """How many numbers the named features are; refuses those that are not vectors, and those that are not there."""
    for name in names:
        if name not in shapes:
            raise ValueError(f"no feature {name!r}{did_you_mean(name, shapes)}; there are {sorted(shapes)}")
        if len(shapes[name]) != 1:
            raise ValueError(f"the feature {name!r} has the shape {shapes[name]}; this block reads vectors")
    return sum(shapes[name][0] for name in names)
