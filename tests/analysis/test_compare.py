"""Curves and groups compared: which rows, which runs, which verdict."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from gaitway.analysis.compare import compare_curves, compare_groups, welch_interval
from gaitway.analysis.groups import Group
from gaitway.analysis.stats import BootstrapTest, MannWhitneyTest, PermutationTest, TTest, TwoSampleTest, WelchTTest

NAN = float("nan")


def curves(seed, steps=11, runs=6, shift=0.0):
    return np.random.default_rng(seed).normal(shift, 1.0, (steps, runs))


def test_bug_75_downsampling_keeps_the_last_available_row():
    first, second = curves(0), curves(1)  # 11 rows by 5: rows 0, 5 and 10
    found = compare_curves(first, second, downsample=5, point_every=1000)
    assert found.steps.tolist() == [0.0, 5000.0, 10000.0]
    np.testing.assert_allclose(found.first.centre, np.median(first[[0, 5, 10]], axis=1))
    assert not np.isnan(found.p_values).any()
    for rows, number in ((10, 2), (11, 3), (15, 3), (16, 4), (1, 1)):
        assert len(compare_curves(curves(0, rows), curves(1, rows)).steps) == number  # ceil(rows / 5)


def test_each_row_is_tested_by_itself():
    first, second = curves(0), curves(1, shift=1.0)
    for test in (TTest(), MannWhitneyTest(), PermutationTest(n=200), BootstrapTest(n=200)):
        found = compare_curves(first, second, test, downsample=1, alpha=0.1)
        assert found.p_values.tolist() == [test.p_value(x, y) for x, y in zip(first, second, strict=True)]
        assert found.significant.tolist() == [test.reject(x, y, 0.1) for x, y in zip(first, second, strict=True)]
    assert compare_curves(first, second, downsample=1).p_values[3] == WelchTTest().p_value(first[3], second[3])


def test_defaults_are_the_median_and_80_percent_at_alpha_001():
    found = compare_curves(curves(0), curves(1))
    np.testing.assert_allclose(found.second.low, np.percentile(curves(1)[::5], 10, axis=1))
    np.testing.assert_allclose(found.second.high, np.percentile(curves(1)[::5], 90, axis=1))
    assert (found.alpha, found.correction) == (0.01, "none")
    mean = compare_curves(curves(0), curves(1), central="mean", error="std").first
    np.testing.assert_allclose(mean.high - mean.centre, curves(0)[::5].std(axis=1, ddof=1))


def test_the_shorter_array_is_missing_after_its_end():
    found = compare_curves(curves(0, steps=4), curves(1, steps=9, shift=5.0), downsample=2)
    assert found.steps.tolist() == [0, 2, 4, 6, 8]
    assert np.isnan(found.first.centre).tolist() == [False, False, True, True, True]
    assert not np.isnan(found.second.centre).any()
    assert np.isnan(found.p_values).tolist() == [False, False, True, True, True]
    assert found.significant.tolist() == [True, True, False, False, False]


def test_missing_values_are_left_out_of_tests_and_centres():
    first, second = curves(0, steps=3), curves(1, steps=3)
    first[0, 2], first[1], first[2, 1:] = NAN, NAN, NAN
    found = compare_curves(first, second, downsample=1)
    assert found.p_values[0] == WelchTTest().p_value(np.delete(first[0], 2), second[0])
    assert math.isnan(found.p_values[1])  # no data
    assert math.isnan(found.p_values[2])  # a single run
    np.testing.assert_allclose(found.first.centre[0], np.nanmedian(first[0]))


class Told(TwoSampleTest):
    """A test whose p-value is the first number of the first sample."""

    label = "told"

    def _p_value(self, x, y):
        return x[0]


def test_corrections_are_over_the_rows_that_were_tested():
    p = np.array([NAN, 0.04, 0.012, 0.06, 0.005, 0.011])  # five rows are tested
    first, second = np.stack([p, p], axis=1), np.ones((6, 2))
    plain, bonferroni, holm = (
        compare_curves(first, second, Told(), downsample=1, alpha=0.05, correction=name)
        for name in (None, "bonferroni", "holm")
    )
    np.testing.assert_array_equal(holm.p_values, p)  # what the test says stays visible
    np.testing.assert_allclose(bonferroni.adjusted, 5 * p)
    # in order 0.005 * 5, 0.011 * 4, max(0.044, 0.012 * 3), 0.04 * 2, max(0.08, 0.06 * 1)
    np.testing.assert_allclose(holm.adjusted, [NAN, 0.08, 0.044, 0.08, 0.025, 0.044])
    assert np.flatnonzero(plain.significant).tolist() == [1, 2, 4, 5]
    assert np.flatnonzero(bonferroni.significant).tolist() == [4]
    assert np.flatnonzero(holm.significant).tolist() == [2, 4, 5]


def test_curves_that_cannot_be_compared_are_refused():
    with pytest.raises(ValueError, match=r"must be \[steps, runs\]; their shape is \[3\]"):
        compare_curves([1.0, 2.0, 3.0], curves(0))
    with pytest.raises(ValueError, match="downsample is 0"):
        compare_curves(curves(0), curves(1), downsample=0)
    with pytest.raises(ValueError, match="2 steps for 11 rows"):
        compare_curves(curves(0), curves(1), steps=[1, 2])
    with pytest.raises(ValueError, match="alpha is 1"):
        compare_curves(curves(0), curves(1), alpha=1)


def test_groups_are_compared_at_the_last_step_that_all_reached():
    first = Group.from_array("a", [[1.0, 2.0], [3.0, 4.0], [9.0, NAN]], point_every=10)
    second = Group.from_array("b", [[5.0, 6.0, 7.0], [7.0, 8.0, 9.0]], point_every=10)
    found = compare_groups(first, second)
    assert found.at == 10.0
    assert [scores.tolist() for scores in found.scores] == [[3.0, 4.0], [7.0, 8.0, 9.0]]
    assert found.difference.value == 8.0 - 3.5
    assert found.improvement.value == 1.0
    assert found.p_value == WelchTTest().p_value([3, 4], [7, 8, 9])
    assert found.left_out == ()
    late = compare_groups(first, Group.from_array("b", [[1.0, 2.0]] * 4, point_every=10), at=20)
    assert late.scores[0].tolist() == [9.0]
    assert late.left_out == ("run 1 of a",)
    with pytest.raises(ValueError, match="no run of b has a value of value at step 20; choose an earlier one"):
        compare_groups(first, second, at=20)


def test_the_last_values_may_be_averaged():
    group = Group.from_array("a", [[0.0, 2.0], [2.0, 4.0], [4.0, 6.0]])
    assert compare_groups(group, group, last=2).scores[0].tolist() == [3.0, 5.0]
    with pytest.raises(ValueError, match="last is 0"):
        compare_groups(group, group, last=0)


def test_curves_at_different_steps_meet_on_all_of_them():
    first = Group.from_array("a", np.array([[0.0, 1.0], [10.0, 11.0]]), steps=[0, 100])
    second = Group.from_array("b", np.array([[7.0, 8.0], [8.0, 9.0]]), steps=[50, 150])
    found = compare_groups(first, second, central="mean").curves
    assert found.steps.tolist() == [0, 50, 100, 150]
    np.testing.assert_allclose(found.first.centre, [0.5, 5.5, 10.5, NAN])
    np.testing.assert_allclose(found.second.centre, [NAN, 7.5, 8.0, 8.5])
    assert np.isnan(found.p_values).tolist() == [True, False, False, True]


def test_about_a_hundred_steps_are_tested():
    long = Group.from_array("a", curves(0, steps=1001, runs=2))
    assert len(compare_groups(long, long).curves.steps) == 91  # every eleventh of 1001
    assert len(compare_groups(long, long, downsample=500).curves.steps) == 3


def test_scores_without_steps_have_no_curves():
    scores, curve = Group.from_array("a", [1.0, 2.0, 3.0]), Group.from_array("b", curves(0, steps=5))
    found = compare_groups(scores, scores)
    assert (found.at, found.curves) == (None, None)
    mixed = compare_groups(scores, curve)
    assert (mixed.at, mixed.curves) == (4.0, None)
    assert mixed.scores[1].tolist() == curves(0, steps=5)[4].tolist()


def test_welch_interval_is_that_of_scipy():
    x, y = curves(0, steps=2, runs=9)
    theirs = scipy_stats.ttest_ind(y[:5], x, equal_var=False).confidence_interval(0.9)
    assert welch_interval(x, y[:5], alpha=0.1)[1:] == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    p = WelchTTest().p_value(x, y)
    for alpha in (0.99 * p, 1.01 * p):  # the interval excludes 0 exactly where the test rejects
        _, low, high = welch_interval(x, y, alpha)
        assert (low > 0 or high < 0) == WelchTTest().reject(x, y, alpha)
    assert welch_interval([1.0, 1.0], [3.0, 3.0]) == (2.0, 2.0, 2.0)
    assert np.isnan(welch_interval([1.0], [3.0, 4.0])[1:]).all()


def verdict(x, y, test=None, alpha=0.05):
    return compare_groups(Group.from_array("A", x), Group.from_array("B", y), test, alpha=alpha).sentence


def test_verdicts_in_words():
    low, high = [1.0, 1.1, 0.9, 1.0], [3.0, 3.2, 2.8, 3.0]
    assert verdict(low, high).startswith("B is higher than A: by 2 on average (95 % interval 1.7")
    assert verdict(high, low).startswith("A is higher than B: by 2 on average (95 % interval 1.7")
    # t^2 = 4 / (0.02/3 + 0.08/3) * 4 = 480 with 6 degrees of freedom
    strict = verdict(low, high, TTest(), alpha=0.01)
    assert strict.endswith(f"p = {2 * scipy_stats.t.sf(math.sqrt(480), 6):.2g} is below 0.01.")
    assert "99 % interval" in strict
    equal = verdict([1.0, 2.0, 3.0], [1.1, 2.2, 2.9])
    assert equal.startswith("No difference shown: p = 0.94 is not below 0.05. That is not to say")
    assert verdict([1.0], high).startswith("Cannot be tested: 1 of A against 4 of B; two runs of each")


def test_the_verdict_of_a_test_of_order_goes_by_wins():
    # B wins nearly always, but its one failure pulls the mean below that of A
    x = np.arange(10.0)
    y = np.append(np.arange(20.0, 29.0), -1000.0)
    sentence = verdict(x, y, MannWhitneyTest())
    assert sentence.startswith("B is higher than A: a run of it is above one of the other with chance 0.90")


def test_the_verdict_says_when_a_test_has_no_chance():
    sentence = verdict([1.0, 2.0, 3.0], [10.0, 11.0, 12.0], MannWhitneyTest())
    assert sentence.startswith("No difference shown, and none can be: with 3 and 3 runs")
    assert "never below 0.1" in sentence
    assert "none can be" in verdict([1.0, 2.0, 3.0], [10.0, 11.0, 12.0], PermutationTest())
    assert "none can be" not in verdict([1.0, 2.0, 3.0, 4.0], [3.0, 2.5, 1.0, 2.0], PermutationTest())


def test_comparisons_become_json():
    first, second = Group.from_array("a", curves(0, steps=3)), Group.from_array("b", curves(1, steps=4, runs=1))
    found = compare_groups(first, second, metric="eval/return")
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert content["metric"] == "eval/return"
    assert content["groups"][0]["scores"] == curves(0, steps=3)[2].tolist()
    assert content["difference_of_means"]["low"] is None  # one run has no interval
    assert content["curves"]["p_values"][3] is None
    assert content["curves"]["first"]["centre"][0] == pytest.approx(float(found.curves.first.centre[0]))
    assert content["verdict"] == found.sentence
    assert content["significant"] is False
