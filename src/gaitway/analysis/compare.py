"""Do two groups of runs differ? `compare_groups` asks at the end and by how much, `compare_curves` at every step.

Groups are made in `groups`, from run folders or arrays; runs may have unequal lengths and missing values. The pictures
are in `comparison_figures`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import scipy  # its parts are loaded at their first use
from numpy.typing import ArrayLike

from gaitway.analysis.aggregate import (
    Central,
    Interval,
    central_tendency_and_error,
    mean,
    probability_of_improvement,
    stratified_bootstrap,
)
from gaitway.analysis.groups import Group
from gaitway.analysis.stats import (
    Correction,
    FloatArray,
    MannWhitneyTest,
    PermutationTest,
    TwoSampleTest,
    WelchTTest,
    adjust_p_values,
    check_alpha,
    clean,
)

MAX_TESTS = 100
"""Steps at which curves are compared unless told otherwise."""


@dataclass(frozen=True)
class Curve:
    """Centre of the runs of a group and the ends of its error band, each `[n]`."""

    centre: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True)
class CurveComparison:
    """Two groups compared at each of n steps; every array is `[n]`."""

    steps: FloatArray
    first: Curve
    second: Curve
    p_values: FloatArray
    """As the test gives them, NaN where a group has fewer than two values."""
    adjusted: FloatArray
    """Corrected for the number of steps that were tested."""
    significant: np.ndarray
    """Whether the corrected p-value is below alpha."""
    alpha: float
    correction: Correction
    central: Central
    error: float | str


def compare_curves(
    first: ArrayLike,
    second: ArrayLike,
    test: TwoSampleTest | None = None,
    *,
    alpha: float = 0.01,
    central: Central = "median",
    error: float | str = 80,
    downsample: int = 5,
    point_every: float = 1,
    steps: ArrayLike | None = None,
    correction: Correction | None = None,
) -> CurveComparison:
    """Test two groups of curves `[steps, runs]` against each other at rows 0, f, 2f, ... with f = `downsample`.

    Row i stands for step `steps[i]`, else i * `point_every`. The shorter array counts as missing after its end. The
    test is Welch's unless given; `central` and `error` are those of `central_tendency_and_error`.
    """
    check_alpha(alpha)
    if downsample < 1:
        raise ValueError(f"downsample is {downsample}; use 1 to compare at every row")
    arrays = [_curves(array) for array in (first, second)]
    length = max(len(array) for array in arrays)
    if steps is not None and len(np.asarray(steps)) != length:
        raise ValueError(f"there are {len(np.asarray(steps))} steps for {length} rows; give one for each row")
    where = np.asarray(np.arange(length) * point_every if steps is None else steps, dtype=np.float64)
    rows = np.arange(0, length, downsample)
    one, two = (_padded(array, length)[rows] for array in arrays)
    test = test or WelchTTest()
    tested = ~np.isnan(one).all(axis=1) & ~np.isnan(two).all(axis=1)
    p_values = np.full(len(rows), np.nan)
    for row in np.flatnonzero(tested):
        p_values[row] = _p_value(test, one[row], two[row])
    adjusted = adjust_p_values(p_values, correction)
    return CurveComparison(
        steps=where[rows],
        first=Curve(*central_tendency_and_error(one, central, error)),
        second=Curve(*central_tendency_and_error(two, central, error)),
        p_values=p_values,
        adjusted=adjusted,
        significant=adjusted < alpha,  # NaN compares false
        alpha=alpha,
        correction=correction or "none",
        central=central,
        error=error,
    )


@dataclass(frozen=True)
class Comparison:
    """What two groups are and by how much they differ; `sentence` is the verdict in words."""

    labels: tuple[str, str]
    metric: str
    at: float | None
    """The step of the comparison; None where the groups are scores without steps."""
    scores: tuple[FloatArray, FloatArray]
    """One number per run."""
    centres: tuple[Interval, Interval]
    """Interquartile means with their bootstrap intervals; those of one run are NaN."""
    difference: Interval
    """Mean of the second group minus that of the first, with Welch's interval."""
    improvement: Interval
    """Probability that a run of the second group is above one of the first, with its bootstrap interval."""
    p_value: float
    """NaN where a group has fewer than two runs: nothing can be tested."""
    alpha: float
    """Level of the test; all intervals are for 1 - alpha."""
    test: TwoSampleTest
    curves: CurveComparison | None = field(repr=False)
    left_out: tuple[str, ...] = ()
    """Runs that have no value at the step of the comparison."""

    @property
    def significant(self) -> bool:
        return self.p_value < self.alpha

    @property
    def sentence(self) -> str:
        return _verdict(self)

    def to_dict(self) -> dict[str, Any]:
        """The same in numbers, strings and lists, for JSON; missing numbers are None."""
        groups = [
            {"label": label, "scores": scores, "mean": mean(scores), "interquartile_mean": centre._asdict()}
            for label, scores, centre in zip(self.labels, self.scores, self.centres, strict=True)
        ]
        found: dict[str, Any] = {
            "metric": self.metric,
            "step": self.at,
            "groups": groups,
            "difference_of_means": self.difference._asdict(),
            "probability_of_improvement": self.improvement._asdict(),
            "confidence": 1.0 - self.alpha,
            "test": self.test.label,
            "alpha": self.alpha,
            "p_value": self.p_value,
            "significant": self.significant,
            "verdict": self.sentence,
            "left_out": list(self.left_out),
        }
        if self.curves is not None:
            found["curves"] = asdict(self.curves)
        return _plain(found)


def compare_groups(
    first: Group,
    second: Group,
    test: TwoSampleTest | None = None,
    *,
    metric: str = "value",
    alpha: float = 0.05,
    correction: Correction | None = "holm",
    central: Central = "iqm",
    error: float | str = 80,
    at: float | None = None,
    last: int = 1,
    downsample: int | None = None,
    seed: int = 0,
) -> Comparison:
    """Compare two groups at one step, and along their curves if both have some.

    Without `at` that is the last step that every run reached. What counts is the mean of the `last` values up to there.
    Along the curves they are tested at about a hundred steps, or at every `downsample`-th.
    """
    check_alpha(alpha)
    if last < 1:
        raise ValueError(f"last is {last}; it counts the values to average and must be 1 or more")
    if at is None:
        ends = [one.last_step for group in (first, second) if group.is_curve for one in group.series]
        at = min((end for end in ends if end is not None), default=None)
    (x, missing_x), (y, missing_y) = first.scores(at, last), second.scores(at, last)
    for group, scores in ((first, x), (second, y)):
        if len(scores) == 0:
            where = "" if at is None else f" at step {at:,.0f}; choose an earlier one"
            raise ValueError(f"no run of {group.label} has a value of {metric}{where}")
    test = test or WelchTTest()
    both = first.is_curve and second.is_curve
    return Comparison(
        labels=(first.label, second.label),
        metric=metric,
        at=at,
        scores=(x, y),
        centres=(centre_with_interval(x, alpha, seed), centre_with_interval(y, alpha, seed)),
        difference=welch_interval(x, y, alpha),
        improvement=probability_of_improvement(y, x, confidence=1 - alpha, seed=seed),
        p_value=_p_value(test, x, y),
        alpha=alpha,
        test=test,
        curves=_along(first, second, test, alpha, correction, central, error, downsample) if both else None,
        left_out=(*missing_x, *missing_y),
    )


def _p_value(test: TwoSampleTest, x: FloatArray, y: FloatArray) -> float:
    """NaN where one of the samples is too small to be tested."""
    return test.p_value(x, y) if min(len(clean(x)), len(clean(y))) > 1 else math.nan


def welch_interval(x: ArrayLike, y: ArrayLike, alpha: float = 0.05) -> Interval:
    """mean(y) - mean(x) and the interval that excludes 0 exactly if Welch's test rejects; NaN ends below two values."""
    first, second = clean(x), clean(y)
    difference = float(second.mean() - first.mean())
    if min(len(first), len(second)) < 2:
        return Interval(difference, math.nan, math.nan)
    one, two = first.var(ddof=1) / len(first), second.var(ddof=1) / len(second)
    if one + two == 0.0:
        return Interval(difference, difference, difference)
    freedom = (one + two) ** 2 / (one**2 / (len(first) - 1) + two**2 / (len(second) - 1))
    half = float(scipy.special.stdtrit(freedom, 1 - alpha / 2) * math.sqrt(one + two))
    return Interval(difference, difference - half, difference + half)


def centre_with_interval(scores: FloatArray, alpha: float = 0.05, seed: int = 0) -> Interval:
    """The interquartile mean of scores and its bootstrap interval; that of one run has no ends."""
    found = stratified_bootstrap(scores, confidence=1 - alpha, seed=seed)
    return found if len(scores) > 1 else Interval(found.value, math.nan, math.nan)  # one run says nothing of the others


def _along(
    first: Group,
    second: Group,
    test: TwoSampleTest,
    alpha: float,
    correction: Correction | None,
    central: Central,
    error: float | str,
    downsample: int | None,
) -> CurveComparison:
    """Both groups on the steps that any run of them was measured at."""
    grid = np.unique(np.concatenate([one.steps for group in (first, second) for one in group.series]))
    one, two = (np.stack([series.on(grid) for series in group.series], axis=1) for group in (first, second))
    every = downsample or math.ceil(len(grid) / MAX_TESTS)
    return compare_curves(
        one, two, test, alpha=alpha, central=central, error=error, downsample=every, steps=grid, correction=correction
    )


def _verdict(found: Comparison) -> str:
    first, second = found.labels
    counts = [len(scores) for scores in found.scores]
    if min(counts) < 2:
        return f"Cannot be tested: {counts[0]} of {first} against {counts[1]} of {second}; two runs of each are needed."
    p, level = f"p = {found.p_value:.2g}", f"{found.alpha:g}"
    difference = found.difference
    percent = f"{100 * (1 - found.alpha):g} % interval"
    if found.significant:
        # Tests of the order go by wins: means may even point the other way.
        second_wins = difference.value > 0 if found.test.needs_finite else found.improvement.value > 0.5
        winner, loser = (second, first) if second_wins else (first, second)
        if found.test.needs_finite:
            sign = 1 if second_wins else -1
            low, high = sorted((sign * difference.low, sign * difference.high))
            how = f"by {abs(difference.value):.4g} on average ({percent} {low:.4g} to {high:.4g})"
        else:
            chance = found.improvement.value if second_wins else 1.0 - found.improvement.value
            how = f"a run of it is above one of the other with chance {chance:.2f}"
        return f"{winner} is higher than {loser}: {how}; {p} is below {level}."
    if isinstance(found.test, MannWhitneyTest | PermutationTest):
        smallest = found.test.p_value(np.arange(counts[0]), np.arange(counts[0], sum(counts)))
        if smallest >= found.alpha:
            return (
                f"No difference shown, and none can be: with {counts[0]} and {counts[1]} runs the p-value of "
                f"{found.test.label} is never below {smallest:.2g}. Add runs or use Welch's t-test."
            )
    return (
        f"No difference shown: {p} is not below {level}. That is not to say that they are equal: {second} minus "
        f"{first} may lie anywhere in the {percent} {difference.low:.4g} to {difference.high:.4g}."
    )


def _plain(value: Any) -> Any:
    """Numbers, strings, lists and dicts only; what is not finite becomes None."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _curves(array: ArrayLike) -> FloatArray:
    values = np.asarray(array, dtype=np.float64)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"curves must be [steps, runs]; their shape is {list(values.shape)}")
    return values


def _padded(array: FloatArray, length: int) -> FloatArray:
    return np.pad(array, ((0, length - len(array)), (0, 0)), constant_values=np.nan)
