"""Centres, spreads and intervals: on paper, against scipy, and with values missing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from gaitway.analysis import aggregate
from gaitway.analysis.aggregate import (
    central_tendency_and_error,
    iqm,
    mean,
    median,
    performance_profile,
    probability_of_improvement,
    stack_curves,
    stratified_bootstrap,
)

NAN = float("nan")


def test_iqm_on_paper():
    assert iqm([100.0, 1.0, 3.0, -50.0, 2.0, 4.0, 5.0, 6.0]) == (2.0 + 3.0 + 4.0 + 5.0) / 4  # two at each end go
    assert iqm([1.0, 2.0, 6.0]) == 3.0  # a quarter of three is none
    assert iqm([7.0]) == 7.0


@pytest.mark.parametrize("shape", [(5, 3), (10, 10), (23, 2)])
def test_iqm_is_the_trimmed_mean_of_scipy(shape):
    values = np.random.default_rng(0).normal(size=shape)
    np.testing.assert_allclose(iqm(values), scipy_stats.trim_mean(values, 0.25, axis=0), atol=1e-12, rtol=0)
    np.testing.assert_allclose(iqm(values, axis=1), scipy_stats.trim_mean(values, 0.25, axis=1), atol=1e-12, rtol=0)
    assert iqm(values, axis=None) == pytest.approx(scipy_stats.trim_mean(values.ravel(), 0.25), abs=1e-12)


def test_centres_leave_out_what_is_missing():
    values = np.array([[1.0, NAN, 3.0, 8.0, 2.0], [NAN, NAN, NAN, NAN, NAN], [NAN, 4.0, NAN, NAN, NAN]])
    np.testing.assert_allclose(iqm(values, axis=1), [2.5, NAN, 4.0])  # of 1 2 3 8 one at each end goes
    np.testing.assert_allclose(mean(values, axis=1), [3.5, NAN, 4.0])
    np.testing.assert_allclose(median(values, axis=1), [2.5, NAN, 4.0])
    assert median([[1.0, NAN], [2.0, 9.0]], axis=None) == 2.0


def test_bug_74_sem_counts_seeds_percentiles_are_not_truncated_std_has_n_minus_1():
    values = np.array([[1.0, 3.0, 5.0, 7.0], [2.0, 2.0, 4.0, NAN], [1.0, 1.0, 1.0, 1.0]])  # [3 steps, 4 seeds]
    # squares about 4: 9 1 1 9, over 3; about 8/3: 4/9 4/9 16/9, over 2
    deviation = np.sqrt([20 / 3, 4 / 3, 0.0])
    centre, low, high = central_tendency_and_error(values, "mean", "std")
    np.testing.assert_allclose(centre, [4.0, 8 / 3, 1.0])
    np.testing.assert_allclose([high - centre, centre - low], [deviation, deviation], atol=1e-15)
    centre, low, high = central_tendency_and_error(values, "mean", "sem")
    np.testing.assert_allclose(high - centre, deviation / np.sqrt([4, 3, 4]), atol=1e-15)  # seeds that are there
    # 95 %: from the percentile 2.5, not 2: 2.5 % of the way through 0..100 in 101 seeds
    seeds = np.arange(101.0)[None]
    assert [float(part[0]) for part in central_tendency_and_error(seeds, "median", 95)] == pytest.approx(
        [50.0, 2.5, 97.5]
    )


@pytest.mark.parametrize("error", [80, 80.0, "80", "80.0", np.float32(80)])
def test_error_as_a_percentage(error):
    values = np.arange(11.0)[None]
    assert [float(part[0]) for part in central_tendency_and_error(values, "median", error)] == pytest.approx(
        [5.0, 1.0, 9.0]
    )


def test_error_of_one_seed_and_of_none():
    values = np.array([[4.0, NAN], [NAN, NAN]])
    for error in ("std", "sem", 80, 100):
        centre, low, high = central_tendency_and_error(values, "mean", error)
        np.testing.assert_allclose([centre, low, high], [[4.0, NAN]] * 3)


def test_central_tendencies():
    values = np.array([[0.0, 1.0, 2.0, 3.0, 100.0]])
    found = {name: float(central_tendency_and_error(values, name, 100)[0][0]) for name in ("mean", "median", "iqm")}
    assert found == {"mean": 21.2, "median": 2.0, "iqm": 2.0}
    _, low, high = central_tendency_and_error(values, "mean", 100)
    assert (low[0], high[0]) == (0.0, 100.0)


@pytest.mark.parametrize("error", [0, -5, 101, "iqr", None, True, float("nan")])
def test_unknown_errors_are_refused(error):
    with pytest.raises(ValueError, match="'std', 'sem' or a percentage"):
        central_tendency_and_error([[1.0, 2.0]], "mean", error)


def test_unknown_centres_and_shapes_are_refused():
    with pytest.raises(ValueError, match="mean, median, iqm"):
        central_tendency_and_error([[1.0]], "mode", 80)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\[\.\.\., runs\]"):
        central_tendency_and_error(np.zeros((3, 0)), "mean", 80)


def test_curves_of_unequal_lengths_are_stacked():
    stacked = stack_curves([[1.0, 2.0, 3.0], [4.0]])
    np.testing.assert_array_equal(stacked, [[1.0, 4.0], [2.0, NAN], [3.0, NAN]])
    assert stack_curves([]).shape == (0, 0)
    with pytest.raises(ValueError, match="curve 1 has shape"):
        stack_curves([[1.0], [[2.0]]])


def test_values_of_the_statistics():
    scores = np.array([[0.0, 10.0], [2.0, 12.0], [4.0, 20.0], [6.0, 30.0]])
    assert stratified_bootstrap(scores, "iqm").value == (4.0 + 6.0 + 10.0 + 12.0) / 4  # of eight, two at each end go
    assert stratified_bootstrap(scores, "mean").value == (3.0 + 18.0) / 2
    scores[3, 1] = NAN  # the mean is over tasks of the means over runs: a lost run does not shift weight to other tasks
    assert stratified_bootstrap(scores, "mean").value == (3.0 + 14.0) / 2
    assert stratified_bootstrap(scores, lambda drawn: np.nanmax(drawn, axis=(1, 2))).value == 20.0
    assert stratified_bootstrap([1.0, 2.0, 6.0]).value == 3.0  # [runs]: one task


def test_runs_are_drawn_within_their_task():
    # Each task is constant: nothing can vary. A bootstrap over all scores together would mix the tasks.
    scores = np.tile([0.0, 100.0, 200.0], (6, 1))
    for statistic in ("iqm", "mean"):
        value, low, high = stratified_bootstrap(scores, statistic)
        assert (low, high) == (value, value)
    pooled = np.random.default_rng(0).choice(scores.ravel(), (100, scores.size)).mean(axis=1)
    assert np.ptp(pooled) > 10  # the broken twin


def test_each_task_draws_as_many_runs_as_it_has():
    scores = np.array([[1.0, NAN], [NAN, 5.0], [2.0, 6.0], [3.0, NAN]])
    drawn = np.concatenate(list(aggregate._resamples(scores, 400, np.random.default_rng(0))))
    assert drawn.shape == (400, 4, 2)
    np.testing.assert_array_equal(np.sum(~np.isnan(drawn), axis=1), np.tile([3, 2], (400, 1)))
    assert set(np.unique(drawn[:, :3, 0])) == {1.0, 2.0, 3.0}
    assert set(np.unique(drawn[:, :2, 1])) == {5.0, 6.0}
    counts = np.bincount(drawn[:, :3, 0].astype(int).ravel())[1:]
    assert np.abs(counts - 400).max() < 5 * np.sqrt(1200 * 2 / 9)  # uniform: 1200 draws of three values


def test_the_interval_of_two_runs_is_their_range():
    # resamples of {0, 1}: means 0, 1/2, 1 with chances 1/4, 1/2, 1/4: both tails hold more than 2.5 %
    value, low, high = stratified_bootstrap([0.0, 1.0])
    assert (value, low, high) == (0.5, 0.0, 1.0)
    assert stratified_bootstrap([3.0]) == (3.0, 3.0, 3.0)


def test_intervals_end_where_student_says():
    scores = np.random.default_rng(0).normal(size=(10, 10))
    plain = np.concatenate(list(aggregate._resamples(scores, 2000, np.random.default_rng(0)))).mean(axis=(1, 2))
    tail = scipy_stats.norm.cdf(np.sqrt(10 / 9) * scipy_stats.t.ppf(0.025, 90))
    assert 0.017 < tail < 0.019  # a little outside 2.5 %
    value, low, high = stratified_bootstrap(scores, "mean")
    assert value == pytest.approx(scores.mean(), abs=1e-15)
    np.testing.assert_allclose([low, high], np.quantile(plain, [tail, 1 - tail]), atol=1e-12)


def test_intervals_agree_with_theory_for_the_mean():
    scores = np.random.default_rng(1).normal(size=(40, 5)) + np.arange(5.0)
    value, low, high = stratified_bootstrap(scores, "mean", resamples=4000)
    half = scipy_stats.t.ppf(0.975, 195) * np.sqrt((scores.var(axis=0, ddof=1) / 40).sum()) / 5
    assert [high - value, value - low] == pytest.approx([half, half], rel=0.08)
    _, low_90, high_90 = stratified_bootstrap(scores, "mean", confidence=0.9)
    assert low < low_90 < high_90 < high


def test_intervals_hold_the_truth_at_their_rate():
    generator = np.random.default_rng(4)
    held = 0
    for number in range(150):
        scores = generator.normal(np.arange(10.0), 1.0, (10, 10))
        _, low, high = stratified_bootstrap(scores, "mean", resamples=400, seed=number)
        held += low <= 4.5 <= high
    assert 132 <= held <= 150  # binomial(150, 0.95): mean 142.5, sigma 2.7


def test_intervals_follow_their_seed_and_not_the_chunks(monkeypatch):
    scores = np.random.default_rng(0).normal(size=(6, 3))
    first = stratified_bootstrap(scores, seed=1)
    assert stratified_bootstrap(scores, seed=1) == first
    assert stratified_bootstrap(scores, seed=2) != first
    monkeypatch.setattr(aggregate, "CHUNK", 500)
    assert stratified_bootstrap(scores, seed=1) == first


def test_performance_profile_on_paper():
    scores = np.array([[0.0, 1.0], [1.0, 3.0], [2.0, NAN], [3.0, NAN]])
    value, low, high = performance_profile(scores, [-1.0, 0.5, 1.0, 9.0])
    # above 0.5: 3 of 4 and 2 of 2; above 1: 2 of 4 and 1 of 2 (1 is not above 1)
    np.testing.assert_allclose(value, [1.0, (0.75 + 1.0) / 2, 0.5, 0.0])
    assert (low <= value).all()
    assert (value <= high).all()
    assert (low[[0, 3]] == high[[0, 3]]).all()
    assert low[2] < high[2]


def test_probability_of_improvement_on_paper():
    # 1 beats 0 only; 2 ties twice and beats 0; 3 beats all: 1 + 2 + 3 of 9
    assert probability_of_improvement([1.0, 2.0, 3.0], [2.0, 2.0, 0.0]).value == pytest.approx(6 / 9)
    x, y = np.random.default_rng(0).normal(size=(2, 7))
    expected = scipy_stats.mannwhitneyu(x, y[:4]).statistic / 28
    assert probability_of_improvement(x, y[:4]).value == pytest.approx(expected, abs=1e-12)
    # two tasks: 1 and 1/4, the second with a run missing
    found = probability_of_improvement([[5.0, 1.0], [6.0, NAN]], [[1.0, 0.0], [2.0, 3.0], [NAN, 4.0], [NAN, 5.0]])
    assert found.value == (1.0 + 0.25) / 2


def test_probability_of_improvement_is_symmetric_and_has_an_interval():
    x, y = np.random.default_rng(0).normal(size=(2, 10, 4)) + np.array([1.0, 0.0])[:, None, None]
    value, low, high = probability_of_improvement(x, y)
    assert 0.5 < low < value < high < 1.0
    back = probability_of_improvement(y, x)
    assert back.value == pytest.approx(1 - value)
    assert (back.low, back.high) == pytest.approx((1 - high, 1 - low), abs=0.02)
    alone = probability_of_improvement(x, x)
    assert alone.value == 0.5
    assert alone.low < 0.5 < alone.high  # both sides are drawn anew, each for itself


def test_scores_that_cannot_be_used_are_refused():
    with pytest.raises(ValueError, match=r"\[runs, tasks\] or \[runs\]"):
        stratified_bootstrap(np.zeros((2, 2, 2)))
    with pytest.raises(ValueError, match="task number 1 has no run"):
        stratified_bootstrap([[1.0, NAN], [2.0, NAN]])
    with pytest.raises(ValueError, match="x has 2 tasks and y has 3"):
        probability_of_improvement(np.zeros((4, 2)), np.zeros((4, 3)))
    with pytest.raises(ValueError, match="no statistic 'mode'"):
        stratified_bootstrap([1.0, 2.0], "mode")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="confidence is 95"):
        stratified_bootstrap([1.0, 2.0], confidence=95)
