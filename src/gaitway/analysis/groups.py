"""Groups of runs to compare: one algorithm (or setting) with several seeds, from run folders or from arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gaitway.analysis.runs import Run
from gaitway.analysis.stats import FloatArray


@dataclass(frozen=True)
class Series:
    """One run: its name, the steps at which it was measured and the values, both `[n]`; NaN is missing."""

    name: str
    steps: FloatArray
    values: FloatArray

    @property
    def last_step(self) -> float | None:
        """The last step with a value, None if there is no value at all."""
        valid = self.steps[~np.isnan(self.values)]
        return float(valid[-1]) if len(valid) else None

    def on(self, grid: FloatArray) -> FloatArray:
        """Values at other steps: interpolated between the run's own, missing before its first and after its last."""
        valid = ~np.isnan(self.values)
        if not valid.any():
            return np.full(len(grid), np.nan)
        values = np.interp(grid, self.steps[valid], self.values[valid], left=np.nan, right=np.nan)
        values[np.isin(grid, self.steps[~valid])] = np.nan  # said to be missing: not to be invented
        return values


@dataclass(frozen=True)
class Group:
    """The runs of one algorithm under one label."""

    label: str
    series: tuple[Series, ...]
    is_curve: bool = True
    """False: one number per run and no steps."""

    @classmethod
    def from_runs(cls, label: str, runs: Iterable[Run], metric: str) -> Group:
        """One metric of several runs under its full name; `find_metric` completes short ones."""
        found = [(run.name, run.series(metric)) for run in runs]
        series = [Series(name, one.index.to_numpy(dtype=float), one.to_numpy(dtype=float)) for name, one in found]
        return cls(label, tuple(series))

    @classmethod
    def from_array(
        cls, label: str, values: ArrayLike, *, steps: ArrayLike | None = None, point_every: float = 1
    ) -> Group:
        """Curves `[steps, runs]`, row i at step `steps[i]` or i * `point_every`; or one score per run `[runs]`."""
        array = np.asarray(values, dtype=np.float64)
        if array.ndim not in (1, 2) or array.size == 0:
            raise ValueError(f"{label} has shape {list(array.shape)}; it must be [steps, runs] or [runs]")
        columns = array if array.ndim == 2 else array[None]
        where = np.asarray(np.arange(len(columns)) * point_every if steps is None else steps, dtype=np.float64)
        if where.shape != columns.shape[:1] or not np.all(np.diff(where) > 0):
            raise ValueError(f"{label}: steps must be {len(columns)} increasing numbers, one for each row")
        series = [Series(f"run {number}", where, column) for number, column in enumerate(columns.T)]
        return cls(label, tuple(series), is_curve=array.ndim == 2)

    def scores(self, at: float | None, last: int = 1) -> tuple[FloatArray, list[str]]:
        """The mean of each run's `last` values up to step `at`, and the names of the runs that did not get there.

        Scores without steps are what they are, whatever `at` says.
        """
        limit = at if at is not None and self.is_curve else None
        found, missing = [], []
        for one in self.series:
            values = one.values[~np.isnan(one.values) & (True if limit is None else one.steps <= limit)]
            arrived = limit is None or (one.last_step is not None and one.last_step >= limit)
            if arrived and len(values):
                found.append(values[-last:].mean())
            else:
                missing.append(f"{one.name} of {self.label}")
        return np.array(found, dtype=np.float64), missing


def find_metric(runs: Sequence[Run], name: str) -> str:
    """The full name of a metric: "return" is eval/return where every run has it, else train/return or env/return."""
    if not runs:
        raise ValueError("there are no runs to compare; name run folders or folders of them")
    choices = [name] if "/" in name else [f"eval/{name}", f"train/{name}", f"env/{name}", name]
    for choice in choices:
        if all(len(run.series(choice)) for run in runs):
            return choice
    lacking = next(run for run in runs if run.series(choices[0]).empty)
    known = sorted(str(column) for column in lacking.metrics)
    raise ValueError(
        f"{lacking.folder} has no values of {' or '.join(choices)}; it has {', '.join(known) or 'no metrics at all'}. "
        "Choose a metric that all runs have, or leave this run out"
    )
