"""One metric of all runs as lines that a page can draw: every seed thinned out, every group as centre and band."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from gaitway.analysis.aggregate import bootstrap_interval, iqm
from gaitway.analysis.groups import Group
from gaitway.analysis.report.facts import RunFacts, number, numbers
from gaitway.analysis.report.groups import ScoredGroup
from gaitway.analysis.stats import FloatArray

POINTS = 200_000
"""Points of all seeds together; with more, each one is thinned out."""
FEWEST, MOST = 24, 400
"""Points of one seed, however many there are."""
GROUP_POINTS = 120
MOST_BOOTSTRAPPED = 12
"""Groups up to which bands are bootstrap intervals, if each has enough runs."""
ENOUGH = 5
RESAMPLES = 1000
"""Enough for the edge of a band; a page has those of every metric."""


def curves_of(
    runs: Sequence[RunFacts], groups: Sequence[ScoredGroup], metric: str, points: int = POINTS
) -> dict[str, Any]:
    """`{metric, band, runs: {number: {x, y, t}}, groups: {number: {x, centre, low, high}}}`; t are seconds, where the
    run knows them."""
    most = int(np.clip(points // max(1, len(runs)), FEWEST, MOST))
    made = [Group.from_runs(one.label, [runs[number].run for number in one.members], metric) for one in groups]
    counts = [sum(len(series.steps) > 0 for series in group.series) for group in made]
    is_bootstrap = len(groups) <= MOST_BOOTSTRAPPED and min((n for n in counts if n > 1), default=0) >= ENOUGH
    of_groups = {n: band for n, group in enumerate(made) if (band := group_curve(group, is_bootstrap)) is not None}
    return {
        "metric": metric,
        "band": "bootstrap" if is_bootstrap else "range",
        "runs": {n: line for n, facts in enumerate(runs) if (line := _line(facts, metric, most)) is not None},
        "groups": of_groups,
    }


def group_curve(group: Group, is_bootstrap: bool) -> dict[str, Any] | None:
    """Centre and band of a group over the steps that all its runs with values have; None where there are none."""
    series = [one for one in group.series if len(one.steps)]
    if len(series) < 2:
        return None
    grid = np.unique(np.concatenate([one.steps for one in series]))
    first, last = max(one.steps[0] for one in series), min(one.steps[-1] for one in series)
    grid = grid[(grid >= first) & (grid <= last)]
    if not len(grid):
        return None
    grid = grid[np.unique(np.linspace(0, len(grid) - 1, GROUP_POINTS).round().astype(int))]
    values = np.stack([one.on(grid) for one in series])
    finite = np.isfinite(values).all(axis=0)
    grid, values = grid[finite], values[:, finite]
    if not len(grid):
        return None
    low, high = (
        bootstrap_interval(values, resamples=RESAMPLES) if is_bootstrap else (values.min(axis=0), values.max(axis=0))
    )
    return {
        "x": grid.astype(np.int64).tolist(),
        "centre": numbers(iqm(values)),
        "low": numbers(low),
        "high": numbers(high),
    }


def thinned(values: FloatArray, most: int) -> np.ndarray:
    """Indices of at most about `most` values: of every stretch the lowest and the highest, so that no peak is lost, and
    both ends."""
    if len(values) <= most:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), max(2, most // 2) + 1).round().astype(int)
    kept = {0, len(values) - 1}
    for start, stop in pairwise(edges):
        if stop > start:
            part = values[start:stop]
            kept |= {start + int(np.argmin(part)), start + int(np.argmax(part))}
    return np.array(sorted(kept))


def _line(facts: RunFacts, metric: str, most: int) -> dict[str, Any] | None:
    series = facts.run.series(metric)
    if series.empty:
        return None
    values = series.to_numpy(dtype=float)
    kept = thinned(values, most)
    steps = series.index.to_numpy()[kept]
    line: dict[str, Any] = {"x": steps.tolist(), "y": numbers(values[kept])}
    seconds = facts.run.series("time/seconds")
    if len(seconds):
        line["t"] = [number(round(float(t), 1)) for t in np.interp(steps, seconds.index, seconds.to_numpy())]
    return line
