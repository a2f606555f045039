"""Six tests of whether two samples differ, all two-sided: each has `p_value(x, y)` and `reject(x, y, alpha)`.

A sample is one number per run `[n]`; missing values (NaN) are left out. Samples that cannot differ, because one has
fewer than two values or because all values of both are the same number, have p = 1. `docs/statistics.md` says which
test suits what, and how often each is wrong.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
import scipy  # its parts are loaded at their first use
from numpy.typing import ArrayLike

FloatArray: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Correction = Literal["none", "bonferroni", "holm"]
CHUNK = 1 << 22
"""Elements that resampling holds at a time."""


class TwoSampleTest(ABC):
    """What the six tests share: guards around the p-value of two proper samples."""

    label: ClassVar[str]
    needs_finite: ClassVar[bool] = True

    def p_value(self, x: ArrayLike, y: ArrayLike) -> float:
        """Chance of samples at least this far apart if both came from one distribution."""
        first, second = clean(x), clean(y)
        if self.needs_finite and not (np.isfinite(first).all() and np.isfinite(second).all()):
            raise ValueError(
                f"a sample holds an infinite value, which {self.label} cannot take; write NaN for a run to leave out, "
                "or use the Mann-Whitney or the ranked t-test, which need only the order"
            )
        if min(len(first), len(second)) < 2 or _one_value(np.concatenate([first, second])):
            return 1.0
        return float(self._p_value(first, second))

    def reject(self, x: ArrayLike, y: ArrayLike, alpha: float = 0.05) -> bool:
        """Whether the samples differ at level `alpha`: p < alpha."""
        check_alpha(alpha)
        return bool(self.p_value(x, y) < alpha)

    @abstractmethod
    def _p_value(self, x: FloatArray, y: FloatArray) -> float:
        """The p-value of finite samples of two values or more that are not all equal."""


@dataclass(frozen=True)
class TTest(TwoSampleTest):
    """Student's t-test: the means of two samples with one common variance."""

    label: ClassVar[str] = "Student's t-test"

    def _p_value(self, x: FloatArray, y: FloatArray) -> float:
        return _t_test(x, y, equal_variances=True)


@dataclass(frozen=True)
class WelchTTest(TwoSampleTest):
    """Welch's t-test: the means of two samples, each with a variance of its own. The one to use unless told why not."""

    label: ClassVar[str] = "Welch's t-test"

    def _p_value(self, x: FloatArray, y: FloatArray) -> float:
        return _t_test(x, y, equal_variances=False)


@dataclass(frozen=True)
class MannWhitneyTest(TwoSampleTest):
    """Mann and Whitney's U test; exact for small samples without ties, else by its normal approximation."""

    label: ClassVar[str] = "the Mann-Whitney U test"
    needs_finite: ClassVar[bool] = False

    def _p_value(self, x: FloatArray, y: FloatArray) -> float:
        return float(scipy.stats.mannwhitneyu(x, y, alternative="two-sided", method="auto").pvalue)


@dataclass(frozen=True)
class RankedTTest(TwoSampleTest):
    """Student's t-test on the ranks of the pooled values, ties averaged (Conover and Iman 1981)."""

    label: ClassVar[str] = "the ranked t-test"
    needs_finite: ClassVar[bool] = False

    def _p_value(self, x: FloatArray, y: FloatArray) -> float:
        ranks = scipy.stats.rankdata(np.concatenate([x, y]))
        return _t_test(ranks[: len(x)], ranks[len(x) :], equal_variances=True)


@dataclass(frozen=True)
class BootstrapTest(TwoSampleTest):
    """Whether the basic bootstrap interval of the difference of means excludes 0. Liberal for few values.

    The p-value is the level at which 0 lies on the end of the interval, so that `reject` and the interval always agree;
    it is 0 where no resample reaches 0.
    """

    label: ClassVar[str] = "the bootstrap test"
    n: int = 1000
    """Resamples."""
    seed: int = 0

    def interval(self, x: ArrayLike, y: ArrayLike, alpha: float = 0.05) -> tuple[float, float]:
        """The basic interval of mean(x) - mean(y) at level 1 - alpha."""
        check_alpha(alpha)
        first, second = clean(x), clean(y)
        low, high = np.quantile(self._differences(first, second), [alpha / 2, 1 - alpha / 2])
        twice = 2 * (first.mean() - second.mean())
        return float(twice - high), float(twice - low)

    def _p_value(self, x: FloatArray, y: FloatArray) -> float:
        # 0 lies outside if 2d exceeds the quantile 1 - alpha/2 of the resampled differences, or is below alpha/2.
        drawn, twice = np.sort(self._differences(x, y)), 2 * (x.mean() - y.mean())
        levels = np.linspace(0.0, 1.0, len(drawn))  # quantiles between resamples are interpolated linearly
        above = 1.0 - _level(drawn, levels, twice, "left")
        below = _level(drawn, levels, twice, "right")
        return min(1.0, 2.0 * min(above, below))

    def _differences(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Differences of means of `n` resamples, in scipy's order of draws `[n]`."""
        generator = np.random.default_rng(self.seed)
        drawn = [sample[generator.integers(0, len(sample), (self.n, len(sample)))] for sample in (x, y)]
        return drawn[0].mean(axis=1) - drawn[1].mean(axis=1)


@dataclass(frozen=True)
class PermutationTest(TwoSampleTest):
    """How often a random split of the pooled values has means at least as far apart as the samples.

    All splits are counted if there are at most `n`; otherwise `n` random ones and the observed one.
    """

    label: ClassVar[str] = "the permutation test"
    n: int = 10_000
    """Splits."""
    seed: int = 0

    def _p_value(self, x: FloatArray, y: FloatArray) -> float:
        pooled = np.concatenate([x, y])
        pooled = pooled - pooled.mean()  # so that a large common offset costs no digits
        # With the pooled sum S and the sum s of the first part, the difference of means is s (1/n1 + 1/n2) - S/n2.
        scale, offset = 1 / len(x) + 1 / len(y), pooled.sum() / len(y)
        observed = abs(pooled[: len(x)].sum() * scale - offset)
        # Equal differences must count as equal although their sums are rounded differently.
        least = observed - 1e-12 * max(observed, np.abs(pooled).max())
        exact = math.comb(len(pooled), len(x)) <= self.n
        splits = _all_splits(len(pooled), len(x)) if exact else self._random_splits(len(pooled), len(x))
        count = total = 0
        for first in splits:
            count += int((np.abs(pooled[first].sum(axis=1) * scale - offset) >= least).sum())
            total += len(first)
        return count / total if exact else (1 + count) / (1 + total)

    def _random_splits(self, total: int, size: int) -> Iterator[np.ndarray]:
        generator = np.random.default_rng(self.seed)
        rows = max(1, CHUNK // total)
        for start in range(0, self.n, rows):
            keys = generator.random((min(rows, self.n - start), total))
            yield np.argpartition(keys, size, axis=1)[:, :size]


TESTS: dict[str, type[TwoSampleTest]] = {
    "welch": WelchTTest,
    "t": TTest,
    "mann-whitney": MannWhitneyTest,
    "ranked-t": RankedTTest,
    "bootstrap": BootstrapTest,
    "permutation": PermutationTest,
}
"""The tests by the names that commands take."""


def make_test(name: str) -> TwoSampleTest:
    """A test by its name in `TESTS`, with default settings."""
    if name not in TESTS:
        raise ValueError(f"there is no test {name!r}; choose one of {', '.join(TESTS)}")
    return TESTS[name]()


def adjust_p_values(p_values: ArrayLike, correction: Correction | None) -> FloatArray:
    """p-values `[n]` corrected for being n; below alpha means significant among all of them. NaN was not tested.

    "bonferroni" multiplies by n; "holm" multiplies the k-th smallest (from k = 0) by n - k and is as safe and sharper.
    """
    adjusted = np.array(p_values, dtype=np.float64)
    if correction is None or correction == "none":
        return adjusted
    tested = np.flatnonzero(~np.isnan(adjusted))
    if correction == "bonferroni":
        adjusted[tested] = np.minimum(1.0, adjusted[tested] * len(tested))
    elif correction == "holm":
        order = tested[np.argsort(adjusted[tested], kind="stable")]
        scaled = adjusted[order] * np.arange(len(order), 0, -1)
        adjusted[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    else:
        raise ValueError(f"there is no correction {correction!r}; choose one of {', '.join(get_args(Correction))}")
    return adjusted


def clean(sample: ArrayLike) -> FloatArray:
    """A sample as float64 `[n]` without its missing values."""
    values = np.asarray(sample, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"a sample is one number per run, [n]; this one has shape {list(values.shape)}")
    return values[~np.isnan(values)]


def check_alpha(alpha: float) -> None:
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha is {alpha}; it must lie between 0 and 1, 0.05 is usual")


def _t_test(x: FloatArray, y: FloatArray, equal_variances: bool) -> float:
    (n, one), (m, two) = ((len(s), 0.0 if _one_value(s) else s.var(ddof=1)) for s in (x, y))
    with np.errstate(divide="ignore", invalid="ignore"):  # two constant samples: t is infinite
        if equal_variances:
            freedom = n + m - 2.0
            spread = np.sqrt(np.float64((n - 1) * one + (m - 1) * two) / freedom * (1 / n + 1 / m))
        else:
            spread = np.sqrt(np.float64(one / n + two / m))
            freedom = spread**4 / ((one / n) ** 2 / (n - 1) + (two / m) ** 2 / (m - 1))
            freedom = 1.0 if np.isnan(freedom) else freedom  # both are constant, and any will do
        return float(2.0 * scipy.special.stdtr(freedom, -abs((x.mean() - y.mean()) / spread)))


def _all_splits(total: int, size: int) -> Iterator[np.ndarray]:
    yield np.array(list(itertools.combinations(range(total), size)))


def _one_value(values: FloatArray) -> bool:
    # Not by the variance: that of [0.1, 0.1, 0.1] is rounded to something above 0.
    return bool((values == values[0]).all())


def _level(ordered: FloatArray, levels: FloatArray, value: float, side: Literal["left", "right"]) -> float:
    """The level of which `value` is the quantile: the lowest such level ("left") or the highest ("right")."""
    index = int(np.searchsorted(ordered, value, side))
    if side == "left" and index < len(ordered) and ordered[index] == value:
        return float(levels[index])
    if side == "right" and index > 0 and ordered[index - 1] == value:
        return float(levels[index - 1])
    return float(np.interp(value, ordered, levels))
