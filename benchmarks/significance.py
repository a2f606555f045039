"""How often the tests find a difference where there is none, and how often the intervals hold the truth.

    gaitway bench significance --out benchmarks/results/significance.json

False positives: pairs of samples of one normal distribution, compared at alpha = 0.05. The rates of all tests but the
bootstrap (liberal by nature) at 50 values must lie in the interval that holds 99.9 % of such counts if the rate is
0.05; one more row shows samples of equal mean and unequal size and spread. Coverage: scores of runs x tasks drawn from
known distributions, 95 % intervals; those of 10 runs x 10 tasks must hold the truth in 92 to 98 % of the experiments.
One core, a few minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from _rounds import machine, versions
from scipy import stats

from gaitway.analysis.aggregate import (
    Interval,
    iqm,
    performance_profile,
    probability_of_improvement,
    stratified_bootstrap,
)
from gaitway.analysis.stats import TESTS, BootstrapTest, PermutationTest, TwoSampleTest

ALPHA, CONFIDENCE = 0.05, 0.95
SIZES = {5: tuple(TESTS), 10: tuple(TESTS), 30: ("bootstrap",), 50: tuple(TESTS), 100: ("bootstrap",)}
THRESHOLD = 1.0
"""Of the performance profile."""
Population = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Uniform numbers and task numbers to scores: a sample for random numbers, the whole distribution for a grid."""


def normal(u: np.ndarray, task: np.ndarray) -> np.ndarray:
    """Tasks that overlap."""
    return 0.3 * task + stats.norm.ppf(u)


def skewed(u: np.ndarray, task: np.ndarray) -> np.ndarray:
    """Exponential, each task on a scale of its own."""
    return -(1 + 0.2 * task) * np.log1p(-u)


def failing(u: np.ndarray, task: np.ndarray) -> np.ndarray:
    """One run in five learns nothing."""
    learnt = 1 + 0.1 * task + 0.2 * stats.norm.ppf(np.maximum((u - 0.2) / 0.8, 1e-12))
    return np.where(u < 0.2, 0.1 * stats.norm.ppf(np.minimum(u / 0.2, 1 - 1e-12)), learnt)


POPULATIONS: dict[str, Population] = {"normal": normal, "skewed": skewed, "failing": failing}


def seeded(name: str, seed: int) -> TwoSampleTest:
    """A test with random numbers of its own for every comparison, where it uses any."""
    if name == "bootstrap":
        return BootstrapTest(seed=seed)
    return PermutationTest(seed=seed) if name == "permutation" else TESTS[name]()


def false_positives(
    names: tuple[str, ...], comparisons: int, sizes: tuple[int, int], spreads: tuple[float, float] = (1.0, 1.0)
) -> dict[str, float]:
    """The rate of rejections of each test on the same pairs of samples with mean 0."""
    generator = np.random.default_rng([*sizes, 7])
    found = dict.fromkeys(names, 0)
    for number in range(comparisons):
        x, y = (spread * generator.standard_normal(size) for size, spread in zip(sizes, spreads, strict=True))
        for name in names:
            found[name] += seeded(name, number).reject(x, y, ALPHA)
    return {name: count / comparisons for name, count in found.items()}


def truths(population: Population, tasks: int, points: int = 20_000) -> dict[str, float]:
    """The statistics of the distribution itself, from a fine grid of its quantiles."""
    u = ((np.arange(points) + 0.5) / points)[:, None]
    scores = population(u, np.arange(tasks))  # [points, tasks]
    rival = np.sort(_rival(scores), axis=0)
    # Scores are continuous: there are no ties.
    beaten = [np.searchsorted(rival[:, task], scores[:, task]).mean() / points for task in range(tasks)]
    return {
        "interquartile mean": float(iqm(scores, axis=None)),
        "mean": float(scores.mean()),
        "profile": float((scores > THRESHOLD).mean()),
        "improvement": float(np.mean(beaten)),
    }


def _rival(scores: np.ndarray) -> np.ndarray:
    """A second algorithm, a little worse."""
    return scores - 0.3


def coverage(population: Population, runs: int, tasks: int, experiments: int) -> dict[str, float]:
    """How often each interval holds its truth."""
    truth, task = truths(population, tasks), np.arange(tasks)
    generator = np.random.default_rng([runs, tasks, 11])
    found = dict.fromkeys(truth, 0)
    for number in range(experiments):
        scores = population(generator.random((runs, tasks)), task)
        rival = _rival(population(generator.random((runs, tasks)), task))
        options = {"confidence": CONFIDENCE, "seed": number}
        profile = performance_profile(scores, [THRESHOLD], **options)
        intervals = {
            "interquartile mean": stratified_bootstrap(scores, "iqm", **options),
            "mean": stratified_bootstrap(scores, "mean", **options),
            "profile": Interval(*(part[0] for part in profile)),
            "improvement": probability_of_improvement(scores, rival, **options),
        }
        for name, interval in intervals.items():
            found[name] += bool(interval.low <= truth[name] <= interval.high)
    return {name: count / experiments for name, count in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", type=int, default=2000)
    parser.add_argument("--experiments", type=int, default=2000)
    parser.add_argument("--out", default=None)
    options = parser.parse_args()
    rates = {}
    for size, names in SIZES.items():
        rates[str(size)] = false_positives(names, options.comparisons, (size, size))
        print(f"false positives, {size} values:", rates[str(size)], flush=True)
    unequal = false_positives(tuple(TESTS), options.comparisons, (5, 20), (3.0, 1.0))
    print("false positives, 5 values of spread 3 and 20 of spread 1:", unequal, flush=True)
    binomial = stats.binom(options.comparisons, ALPHA)
    allowed = [binomial.ppf(0.0005) / options.comparisons, binomial.ppf(0.9995) / options.comparisons]
    held: dict[str, dict[str, dict[str, float]]] = {}
    for runs, tasks in ((10, 10), (5, 10), (10, 1), (5, 1), (3, 1)):
        for name, population in POPULATIONS.items():
            experiments = options.experiments if (runs, tasks) == (10, 10) else options.experiments // 4
            held.setdefault(f"{runs} x {tasks}", {})[name] = coverage(population, runs, tasks, experiments)
            print(f"coverage, {runs} runs x {tasks} tasks, {name}:", held[f"{runs} x {tasks}"][name], flush=True)
    exact = {name: rate for name, rate in rates["50"].items() if name != "bootstrap"}
    rates_ok = all(allowed[0] <= rate <= allowed[1] for rate in exact.values())
    full = [rate for found in held["10 x 10"].values() for rate in found.values()]
    coverage_ok = all(abs(rate - CONFIDENCE) <= 0.03 for rate in full)
    result = {
        "benchmark": "significance",
        "machine": machine(),
        "versions": versions("numpy", "scipy"),
        "comparisons": options.comparisons,
        "alpha": ALPHA,
        "allowed_at_50": allowed,
        "false_positives": rates,
        "false_positives_5_spread_3_and_20_spread_1": unequal,
        "false_positives_ok": rates_ok,
        "experiments": options.experiments,
        "confidence": CONFIDENCE,
        "coverage": held,
        "coverage_ok": coverage_ok,
    }
    print(json.dumps({key: result[key] for key in ("allowed_at_50", "false_positives_ok", "coverage_ok")}))
    if options.out:
        Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if rates_ok and coverage_ok else 1)


if __name__ == "__main__":
    main()
