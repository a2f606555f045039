"""Which groups of a task differ: every pair is tested and corrected for all of them, the interesting ones in detail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from gaitway.analysis.aggregate import Interval, probability_of_improvement
from gaitway.analysis.compare import welch_interval
from gaitway.analysis.report.groups import ALPHA, ScoredGroup, ranked
from gaitway.analysis.stats import WelchTTest, adjust_p_values

MOST_PAIRS = 800
"""Pairs that are tested one by one; beyond, only the best group is, corrected for all pairs there are."""
MOST_SHOWN = 12
"""Pairs of a task that are shown."""
ALL_SHOWN = 5
"""Groups of which every pair is shown; of more, those with the best one."""


@dataclass(frozen=True)
class PairTest:
    """The better of two groups against the other one."""

    task: str
    better: int
    worse: int
    difference: Interval
    """By how much it is above the other one on average, or below it where scores are costs."""
    improvement: Interval
    """How likely a run of it beats one of the other."""
    p_value: float
    adjusted: float
    """Corrected for all pairs of the task."""

    @property
    def significant(self) -> bool:
        return self.adjusted < ALPHA


@dataclass(frozen=True)
class TaskTests:
    """What is known of the groups of one task."""

    task: str
    order: tuple[int, ...]
    """Groups with scores, best first."""
    pairs: int
    """How many there are to be tested."""
    correction: str
    against_best: dict[int, float]
    """Group -> corrected p-value against the best one."""
    shown: tuple[PairTest, ...]
    is_cost: bool
    """Whether lower scores are better."""

    @property
    def equals(self) -> list[int]:
        """Groups that were tested and cannot be told from the best one."""
        return [number for number, p in self.against_best.items() if not p < ALPHA]

    @property
    def untested(self) -> list[int]:
        return [number for number in self.order[1:] if number not in self.against_best]


def compare_all(groups: Sequence[ScoredGroup]) -> list[TaskTests]:
    """The tests of every task, in the order of their first group."""
    tasks = dict.fromkeys(group.task for group in groups)
    order = ranked(groups)
    return [_of_task(task, [n for n in order if groups[n].task == task], groups) for task in tasks]


def _of_task(task: str, order: list[int], groups: Sequence[ScoredGroup]) -> TaskTests:
    tested = [number for number in order if len(groups[number].scores) > 1]
    pairs = math.comb(len(tested), 2)
    best = order[0] if order else None
    if pairs <= MOST_PAIRS:
        listed, correction = list(combinations(tested, 2)), "holm"
    else:
        listed, correction = [(best, number) for number in tested if number != best and best in tested], "bonferroni"
    p_values = [_p_value(_key(groups[one]), _key(groups[two])) for one, two in listed]
    if correction == "holm":
        adjusted = adjust_p_values(p_values, "holm")
    else:
        adjusted = np.minimum(1.0, np.array(p_values) * pairs)
    found = {pair: (p, float(a)) for pair, p, a in zip(listed, p_values, adjusted, strict=True)}
    against_best = {two: a for (one, two), (_, a) in found.items() if one == best}
    interesting = [pair for pair in found if len(tested) <= ALL_SHOWN or pair[0] == best]
    shown = [_pair(task, *pair, *found[pair], groups) for pair in interesting[:MOST_SHOWN]]
    is_cost = best is not None and groups[best].is_cost
    return TaskTests(task, tuple(order), pairs, correction, against_best, tuple(shown), is_cost)


def _pair(
    task: str, better: int, worse: int, p_value: float, adjusted: float, groups: Sequence[ScoredGroup]
) -> PairTest:
    high, low = (worse, better) if groups[better].is_cost else (better, worse)
    difference = welch_interval(groups[low].scores, groups[high].scores, ALPHA)
    improvement = _improvement(_key(groups[high]), _key(groups[low]))
    return PairTest(task, better, worse, difference, improvement, p_value, adjusted)


def _key(group: ScoredGroup) -> tuple[float, ...]:
    return tuple(group.scores.tolist())


@lru_cache(maxsize=1 << 16)
def _p_value(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    return WelchTTest().p_value(np.array(first), np.array(second))


@lru_cache(maxsize=4096)
def _improvement(first: tuple[float, ...], second: tuple[float, ...]) -> Interval:
    return probability_of_improvement(np.array(first), np.array(second), confidence=1 - ALPHA)
