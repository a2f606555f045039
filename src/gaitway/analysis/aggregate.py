"""Many runs as a few numbers: centres, spreads, and intervals that say how far to trust them.

Scores are `[runs, tasks]`, curves `[steps, runs]`; NaN is a run that is missing and is left out. The bootstrap is
stratified: runs are drawn anew within each task, because other runs of the same tasks are what one would see if the
experiment were repeated (Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import scipy  # its parts are loaded at their first use
from numpy.typing import ArrayLike

from gaitway.analysis.stats import CHUNK, FloatArray

Central = Literal["mean", "median", "iqm"]
Statistic = Callable[[FloatArray], FloatArray]
"""Scores `[N, runs, tasks]` of N experiments to one value, or one row of values, for each."""


class Interval(NamedTuple):
    """An estimate and the ends of its interval: numbers, or arrays of one shape."""

    value: Any
    low: Any
    high: Any


def iqm(values: ArrayLike, axis: int | None = 0) -> FloatArray:
    """Interquartile mean: without the lowest and the highest quarter of the values, each rounded down.

    `axis` None takes all values together. What is NaN is left out; where nothing remains the result is NaN.
    """
    array = np.asarray(values, dtype=np.float64)
    array = array.reshape(-1) if axis is None else np.moveaxis(array, axis, -1)
    ordered = np.sort(array, axis=-1)  # NaN comes last
    count = np.sum(~np.isnan(array), axis=-1, keepdims=True)
    rank, cut = np.arange(array.shape[-1]), count // 4
    kept = (rank >= cut) & (rank < count - cut)
    with np.errstate(invalid="ignore"):  # 0 / 0 where nothing remains
        return np.where(kept, ordered, 0.0).sum(axis=-1) / kept.sum(axis=-1)


def mean(values: ArrayLike, axis: int | None = 0) -> FloatArray:
    """Mean of what is not NaN; NaN where nothing remains."""
    array = np.asarray(values, dtype=np.float64)
    valid = ~np.isnan(array)
    with np.errstate(invalid="ignore"):
        return np.where(valid, array, 0.0).sum(axis=axis) / valid.sum(axis=axis)


def median(values: ArrayLike, axis: int | None = 0) -> FloatArray:
    """Median of what is not NaN; NaN where nothing remains."""
    return _quantiles(values, [0.5], axis)[0]


CENTRES: dict[str, Callable[..., FloatArray]] = {"mean": mean, "median": median, "iqm": iqm}


def central_tendency_and_error(
    values: ArrayLike, central: Central = "median", error: float | str = 80
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Centre, low and high end `[...]` of `values` `[..., runs]`, along the runs that are not NaN.

    `error` is "std" (centre plus and minus the standard deviation with n - 1), "sem" (that over the square root of the
    number of runs), or a number q in ]0, 100]: the percentiles between which q % of the runs lie.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ValueError(f"values must be [..., runs] with one run at least; their shape is {list(array.shape)}")
    if central not in CENTRES:
        raise ValueError(f"there is no central tendency {central!r}; choose one of {', '.join(get_args(Central))}")
    centre = CENTRES[central](array, axis=-1)
    if error in ("std", "sem"):
        spread, count = _deviation(array)
        if error == "sem":
            with np.errstate(invalid="ignore"):
                spread = spread / np.sqrt(count)
        return centre, centre - spread, centre + spread
    tail = (100.0 - _percentage(error)) / 200.0
    low, high = _quantiles(array, [tail, 1.0 - tail], axis=-1)
    return centre, low, high


def stack_curves(curves: Sequence[ArrayLike]) -> FloatArray:
    """Curves `[steps_i]` of unequal lengths as one array `[max steps, curves]`, NaN where a curve has ended."""
    arrays = [np.asarray(curve, dtype=np.float64) for curve in curves]
    for number, array in enumerate(arrays):
        if array.ndim != 1:
            raise ValueError(f"curve {number} has shape {list(array.shape)}; each must be one run's values [steps]")
    stacked = np.full((max((len(array) for array in arrays), default=0), len(arrays)), np.nan)
    for number, array in enumerate(arrays):
        stacked[: len(array), number] = array
    return stacked


def stratified_bootstrap(
    scores: ArrayLike,
    statistic: Literal["iqm", "mean"] | Statistic = "iqm",
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """A statistic of scores `[runs, tasks]` (or `[runs]`, one task) and its bootstrap interval.

    "iqm" is the interquartile mean of all scores together, "mean" the mean over the tasks of the mean over the runs; a
    function takes `[N, runs, tasks]` to `[N, ...]`. The interval is a percentile interval, widened for few runs.
    """
    array, compute = check_scores(scores), _statistic(statistic)
    drawn = [compute(part) for part in _resamples(array, resamples, np.random.default_rng(seed))]
    return _interval(compute(array[None])[0], np.concatenate(drawn), [array], confidence)


def performance_profile(
    scores: ArrayLike,
    thresholds: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Fraction of runs that score above each threshold `[n]`, averaged over the tasks; value, low and high are `[n]`.

    Where the profile of one algorithm lies above that of another everywhere, it is better for every taste.
    """
    levels = np.asarray(thresholds, dtype=np.float64).reshape(-1)

    def fractions(drawn: FloatArray) -> FloatArray:
        valid = ~np.isnan(drawn)
        count = valid.sum(axis=1)  # [N, tasks]
        rows = [((drawn > level) & valid).sum(axis=1) / count for level in levels]
        return np.stack([row.mean(axis=-1) for row in rows], axis=-1)  # [N, n]

    return stratified_bootstrap(scores, fractions, confidence=confidence, resamples=resamples, seed=seed)


def probability_of_improvement(
    x: ArrayLike,
    y: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """How likely a run of x beats a run of y on a task drawn at random: mean of P(x > y) + P(x = y) / 2 over tasks.

    Scores are `[runs, tasks]` with the same tasks in the same order; the numbers of runs may differ. 0.5 is no
    difference; the size of the improvement plays no part.
    """
    first, second = check_scores(x), check_scores(y)
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"x has {first.shape[1]} tasks and y has {second.shape[1]}; give both the same tasks")
    # Both halves of a resample are drawn together: memory is for all pairs of their runs.
    cost = first.shape[0] * second.shape[0]
    streams = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2)]
    pairs = zip(
        _resamples(first, resamples, streams[0], cost * first.shape[1]),
        _resamples(second, resamples, streams[1], cost * first.shape[1]),
        strict=True,
    )
    drawn = np.concatenate([_improvement(*pair) for pair in pairs])
    return _interval(_improvement(first[None], second[None])[0], drawn, [first, second], confidence)


def bootstrap_interval(
    values: np.ndarray,
    centre: Callable[..., np.ndarray] = iqm,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Percentile bootstrap over the runs (axis 0) of `values` `[runs, N]`; returns the two ends `[N]`.

    Whole runs are drawn, so that the points of a curve stay together; `centre(values, axis=...)` is taken over them.
    """
    generator = np.random.default_rng(seed)
    drawn = generator.integers(0, len(values), (resamples, len(values)))
    size = max(1, CHUNK // values.size)
    parts = [centre(values[drawn[start : start + size]], axis=1) for start in range(0, resamples, size)]
    centres = np.concatenate(parts)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(centres, [tail, 1.0 - tail], axis=0)
    return low, high


def check_scores(scores: ArrayLike) -> FloatArray:
    """Scores as float64 `[runs, tasks]`, each task with one run at least."""
    array = np.asarray(scores, dtype=np.float64)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.size == 0:
        raise ValueError(f"scores must be [runs, tasks] or [runs]; their shape is {list(array.shape)}")
    empty = np.flatnonzero(np.isnan(array).all(axis=0))
    if len(empty):
        raise ValueError(f"task number {empty[0]} has no run that is not NaN; leave out this column of the scores")
    return array


def _statistic(statistic: Literal["iqm", "mean"] | Statistic) -> Statistic:
    if callable(statistic):
        return statistic
    if statistic == "iqm":
        return lambda scores: iqm(scores.reshape(len(scores), -1), axis=-1)
    if statistic == "mean":
        return lambda scores: mean(mean(scores, axis=1), axis=-1)
    raise ValueError(f"there is no statistic {statistic!r}; use 'iqm', 'mean' or a function of [N, runs, tasks]")


def _resamples(
    scores: FloatArray, resamples: int, generator: np.random.Generator, elements: int = 0
) -> Iterator[FloatArray]:
    """Experiments `[n, runs, tasks]` drawn from `scores`, n at a time so that n times `elements` stays bounded.

    Each task draws as many runs as it has; NaN fills up the rest.
    """
    runs, tasks = scores.shape
    valid = np.sum(~np.isnan(scores), axis=0)  # [tasks]
    ordered = np.take_along_axis(scores, np.argsort(np.isnan(scores), axis=0, kind="stable"), axis=0)
    missing = np.arange(runs)[:, None] >= valid  # [runs, tasks]
    size = max(1, CHUNK // max(elements, scores.size))
    for start in range(0, resamples, size):
        count = min(size, resamples - start)
        rows = generator.integers(0, valid, (count, runs, tasks))
        drawn = ordered[rows, np.arange(tasks)]
        yield np.where(missing, np.nan, drawn)


def _improvement(x: FloatArray, y: FloatArray) -> FloatArray:
    """Probability of improvement `[N]` of experiments `[N, runs, tasks]`."""
    first, second = x[:, :, None], y[:, None]
    wins = (first > second) + 0.5 * (first == second)  # [N, runs, runs, tasks]; a comparison with NaN is false
    pairs = np.sum(~np.isnan(x), axis=1) * np.sum(~np.isnan(y), axis=1)
    return (wins.sum(axis=(1, 2)) / pairs).mean(axis=-1)


def _interval(value: Any, drawn: FloatArray, groups: Sequence[FloatArray], confidence: float) -> Interval:
    tail = _tail(groups, confidence)
    low, high = np.quantile(drawn, [tail, 1.0 - tail], axis=0)
    return Interval(value, low, high)


def _tail(groups: Sequence[FloatArray], confidence: float) -> float:
    """The quantile at which the interval ends: a little outside (1 - confidence) / 2, because runs are few.

    Resamples of n values spread too little by the factor sqrt((n - 1) / n), and what they tell of the spread is itself
    uncertain, which Student's distribution knows (Hesterberg 2015, "What teachers should know about the bootstrap").
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence is {confidence}; it must lie between 0 and 1, 0.95 is usual")
    tail = (1.0 - confidence) / 2.0
    counts = np.concatenate([np.sum(~np.isnan(group), axis=0) for group in groups])  # runs of each task
    freedom = int((counts - 1).sum())
    if freedom == 0:
        return tail  # one run per task: resamples cannot differ
    widening = np.sqrt(counts.mean() / (counts.mean() - 1.0))
    return float(scipy.special.ndtr(widening * scipy.special.stdtrit(freedom, tail)))


def _deviation(array: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Standard deviation `[...]` with n - 1 along the last axis (0 for one value, NaN for none), and the counts n."""
    count = np.sum(~np.isnan(array), axis=-1)
    squares = np.nansum((array - mean(array, axis=-1)[..., None]) ** 2, axis=-1)
    deviation = np.sqrt(squares / np.maximum(count - 1, 1))
    return np.where(count > 0, deviation, np.nan), count


def _quantiles(values: ArrayLike, levels: Sequence[float], axis: int | None) -> FloatArray:
    """`np.nanquantile` without its warning where everything is NaN."""
    array = np.asarray(values, dtype=np.float64)
    array = array.reshape(-1) if axis is None else np.moveaxis(array, axis, -1)
    if not np.isnan(array).any():
        return np.quantile(array, levels, axis=-1)
    empty = np.sum(~np.isnan(array), axis=-1) == 0
    found = np.nanquantile(np.where(empty[..., None], 0.0, array), levels, axis=-1)
    return np.where(empty, np.nan, found)


def _percentage(error: float | str) -> float:
    try:
        number = float(error) if not isinstance(error, bool) else float("nan")
    except (TypeError, ValueError):
        number = float("nan")
    if not 0.0 < number <= 100.0:
        raise ValueError(f"error is {error!r}; use 'std', 'sem' or a percentage above 0 and up to 100, e.g. 80")
    return number
