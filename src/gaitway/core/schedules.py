"""Where training stands, and numbers that change with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from gaitway.core.config import configuration
from gaitway.core.ranges import Number, Positive, Range


@dataclass(frozen=True)
class Now:
    """Where training stands when an update begins."""

    iteration: int = 0
    env_steps: int = 0
    fraction: float = 0.0
    """Environment steps over the planned total, 0 to 1."""


@configuration
class Schedule:
    """A number that moves from `start` to `end`: `linear`, `cosine` and `exponential` are there after `over`. The
    others come ever nearer: what is left of the way at x, counted in `unit`, is (1 - 1/over)^x for `decay` and
    (1 - tanh((x - over) / over)) / 2 for `tanh`, of which 12 % are gone at the beginning."""

    start: Number
    end: Number
    over: Positive
    """How long the way takes, in `unit`."""
    kind: Literal["linear", "cosine", "exponential", "decay", "tanh"] = "linear"
    unit: Literal["iterations", "steps", "fraction"] = "iterations"
    """What `over` counts: iterations, environment steps, or the fraction of the planned total."""

    def __post_init__(self) -> None:
        if self.kind == "exponential" and min(self.start, self.end) <= 0:
            raise ValueError(f"an exponential schedule needs positive ends, not {self.start} and {self.end}")
        if self.kind == "decay" and self.over <= 1:
            raise ValueError(f"a decay loses 1/over of itself at a time, so over must be above 1, not {self.over}")

    @property
    def extremes(self) -> tuple[float, float]:
        """All values lie between these two; a field's range holds both."""
        return self.start, self.end

    def __call__(self, now: Now) -> float:
        position = {"iterations": now.iteration, "steps": now.env_steps, "fraction": now.fraction}[self.unit]
        if self.kind == "decay":
            return self.end + (self.start - self.end) * (1.0 - 1.0 / self.over) ** position
        if self.kind == "tanh":
            return self.end + (self.start - self.end) * (1.0 - math.tanh((position - self.over) / self.over)) / 2.0
        x = min(max(position / self.over, 0.0), 1.0)
        if self.kind == "cosine":
            x = 0.5 - 0.5 * math.cos(math.pi * x)
        if self.kind == "exponential":
            return self.start * (self.end / self.start) ** x
        return self.start + (self.end - self.start) * x


Coefficient = Annotated[float | Schedule, Range()]
"""A number, or a schedule of it; the names below have narrower ranges."""
NotNegativeCoefficient = Annotated[float | Schedule, Range(0)]
PositiveCoefficient = Annotated[float | Schedule, Range(0, above=True)]
ShareCoefficient = Annotated[float | Schedule, Range(0, 1)]


def value_at(coefficient: Coefficient, now: Now) -> float:
    """The number a coefficient stands for at `now`."""
    return coefficient(now) if isinstance(coefficient, Schedule) else float(coefficient)
