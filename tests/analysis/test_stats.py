"""Two-sample tests against scipy, against arithmetic on paper, and where samples cannot differ."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scipy import stats as scipy_stats

from gaitway.analysis import stats
from gaitway.analysis.stats import (
    TESTS,
    BootstrapTest,
    MannWhitneyTest,
    PermutationTest,
    RankedTTest,
    TTest,
    WelchTTest,
    adjust_p_values,
    make_test,
)

ALL = [test() for test in TESTS.values()]
EVERY = pytest.mark.parametrize("test", ALL, ids=list(TESTS))


def samples():
    """Pairs of samples: small, large, of unequal size and spread, with ties."""
    generator = np.random.default_rng(0)
    yield generator.normal(size=5), generator.normal(1.0, size=5)
    yield generator.normal(size=50), 0.4 + 2.0 * generator.normal(size=30)
    yield generator.normal(size=3), 1e6 + generator.normal(size=12)
    yield generator.integers(0, 4, 20).astype(float), generator.integers(1, 5, 15).astype(float)


@pytest.mark.parametrize("pair", list(samples()), ids=["5", "50-30", "offset", "ties"])
def test_p_values_are_those_of_scipy(pair):
    x, y = pair
    ranks = scipy_stats.rankdata(np.concatenate(pair))
    expected = {
        TTest(): scipy_stats.ttest_ind(x, y).pvalue,
        WelchTTest(): scipy_stats.ttest_ind(x, y, equal_var=False).pvalue,
        MannWhitneyTest(): scipy_stats.mannwhitneyu(x, y, alternative="two-sided").pvalue,
        RankedTTest(): scipy_stats.ttest_ind(ranks[: len(x)], ranks[len(x) :]).pvalue,
    }
    for test, value in expected.items():
        assert test.p_value(x, y) == pytest.approx(value, rel=1e-12, abs=1e-300), test.label


@pytest.mark.parametrize(("sizes", "ties"), [((5, 5), False), ((3, 7), False), ((6, 6), True), ((4, 9), True)])
def test_the_exact_permutation_test_is_that_of_scipy(sizes, ties):
    generator = np.random.default_rng(sum(sizes))
    x, y = (generator.normal(loc, 1.0, size).round(0 if ties else 15) for loc, size in zip((0, 1), sizes, strict=True))

    def distance(first, second, axis):
        return np.abs(first.mean(axis=axis) - second.mean(axis=axis))

    theirs = scipy_stats.permutation_test((x, y), distance, vectorized=True, n_resamples=np.inf, alternative="greater")
    assert PermutationTest().p_value(x, y) == pytest.approx(theirs.pvalue, abs=1e-12)


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.3])
def test_the_bootstrap_interval_is_the_basic_one_of_scipy(alpha):
    x, y = np.random.default_rng(3).normal(size=(2, 12))

    def difference(first, second, axis):
        return first.mean(axis=axis) - second.mean(axis=axis)

    theirs = scipy_stats.bootstrap(
        (x, y), difference, n_resamples=1000, confidence_level=1 - alpha, method="basic", rng=np.random.default_rng(0)
    ).confidence_interval
    assert BootstrapTest().interval(x, y, alpha) == pytest.approx(tuple(theirs), abs=1e-12)


def test_student_on_paper():
    # means 2 and 3, variances 1 and 1: t = -1 / sqrt(2/3), t^2 = 3/2. With 4 degrees of freedom
    # P(|T| < t) = 3/2 s - 1/2 s^3, where s = t / sqrt(t^2 + 4)
    s = math.sqrt(1.5 / 5.5)
    expected = 1 - (1.5 * s - 0.5 * s**3)
    assert TTest().p_value([1, 2, 3], [2, 3, 4]) == pytest.approx(expected, abs=1e-12)
    assert WelchTTest().p_value([1, 2, 3], [2, 3, 4]) == pytest.approx(expected, abs=1e-12)  # equal sizes and variances


def test_order_tests_on_paper():
    # of C(6, 3) = 20 splits of six ranks, one has U = 0 and one the other extreme
    assert MannWhitneyTest().p_value([1, 2, 3], [14, 5, 6]) == pytest.approx(2 / 20, abs=1e-12)
    # ranks 1 2 3 against 4 5 6: means 2 and 5, variances 1: t^2 = 9 / (2/3) = 13.5, s^2 = 13.5 / 17.5
    s = math.sqrt(13.5 / 17.5)
    assert RankedTTest().p_value([1, 2, 3], [14, 5, 6]) == pytest.approx(1 - (1.5 * s - 0.5 * s**3), abs=1e-12)


def test_permutation_on_paper():
    # {1, 2, 3} and {4, 5, 6} are the two most distant of 20 splits; those of equal means are the least distant
    assert PermutationTest().p_value([1, 2, 3], [4, 5, 6]) == 2 / 20
    assert PermutationTest().p_value([1, 5], [2, 4]) == 1.0
    # |d| of the six splits of {0, 1, 2, 4} into pairs: 5/2, 3/2, 1/2, each twice; [0, 2] against [1, 4] has 3/2
    assert PermutationTest().p_value([0, 2], [1, 4]) == 4 / 6


def test_sampled_permutations_count_the_observed_split():
    x, y = np.arange(30.0), np.arange(100.0, 130.0)  # no random split of 60 comes near
    assert PermutationTest(n=999).p_value(x, y) == 1 / 1000
    assert PermutationTest(n=999).p_value(y, x) == 1 / 1000
    exact, sampled = (PermutationTest(n=n).p_value([1, 2, 3, 7, 9], [2, 5, 8, 9, 11]) for n in (252, 251))
    assert sampled == pytest.approx(exact, abs=0.1)
    assert sampled != exact


def test_permutations_are_drawn_uniformly():
    # of 4 + 2 values each of the 15 pairs must be the second part equally often: 3000 draws, 200 expected, sigma 13.7
    splits = np.concatenate(list(PermutationTest(n=3000, seed=1)._random_splits(6, 2)))
    _, counts = np.unique(np.sort(splits, axis=1), axis=0, return_counts=True)
    assert len(counts) == 15
    assert np.abs(counts - 200).max() < 5 * 13.7


def test_permutations_in_chunks_are_the_same(monkeypatch):
    x, y = np.random.default_rng(0).normal(size=(2, 20))
    whole = PermutationTest().p_value(x, y)
    monkeypatch.setattr(stats, "CHUNK", 777)
    assert PermutationTest().p_value(x, y) == whole


def test_a_common_offset_changes_nothing():
    x, y = np.array([0.1, 0.2, 0.4, 0.1]), np.array([0.3, 0.5, 0.4, 0.7])
    for test in ALL:
        assert test.p_value(x + 2.0**20, y + 2.0**20) == pytest.approx(test.p_value(x, y), abs=1e-6), test.label


@EVERY
@pytest.mark.parametrize("pair", [([0, 0], [0, 0]), ([0.1] * 3, [0.1] * 7), ([5.0] * 30, [5.0] * 30)])
def test_bug_73_identical_constant_samples_are_not_rejected(test, pair):
    assert test.p_value(*pair) == 1.0
    assert test.reject(*pair, alpha=0.999) is False


def test_bug_73_the_rules_of_the_original_would_reject():
    # Its permutation test left out splits as distant as the observed one, and its bootstrap compared signs.
    x = y = np.zeros(3)
    differences = np.zeros(100)
    assert np.mean(differences > abs(x.mean() - y.mean())) < 0.05  # the broken twin: p = 0
    low, high = BootstrapTest().interval(x, y)
    assert np.sign(low) == np.sign(high)  # the broken twin: equal signs, rejected
    assert low <= 0 <= high


@EVERY
def test_fewer_than_two_values_are_not_rejected(test):
    assert test.p_value([1.0], [5.0, 6.0, 7.0]) == 1.0
    assert test.p_value([], [5.0, 6.0]) == 1.0
    assert test.p_value([1.0, np.nan], [5.0, 6.0]) == 1.0


@EVERY
def test_missing_values_are_left_out(test):
    x, y = np.array([1.0, 2.5, 3.0, 0.5]), np.array([2.0, 4.0, 5.5])
    holes = np.insert(x, [0, 2], np.nan)
    assert test.p_value(holes, y) == test.p_value(x, y)
    assert test.p_value(y, holes) == test.p_value(y, x)


@EVERY
def test_far_samples_are_rejected_and_the_answer_is_a_bool(test):
    x, y = np.random.default_rng(1).normal(size=(2, 12)) + np.array([[0.0], [5.0]])
    assert test.reject(x, y) is True
    assert test.reject(x, x) is False
    assert isinstance(test.p_value(x, y), float)


@EVERY
def test_different_constants_are_rejected_without_a_warning(test):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert test.reject([1.0] * 6, [2.0] * 6)
        assert test.reject([0.1] * 6, [0.2] * 7)
        test.p_value([1.0] * 6, [1.0, 2.0, 3.0])


@EVERY
@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, float("nan")])
def test_alpha_lies_between_0_and_1(test, alpha):
    with pytest.raises(ValueError, match="between 0 and 1"):
        test.reject([1, 2], [3, 4], alpha=alpha)


def test_samples_are_one_dimensional():
    with pytest.raises(ValueError, match=r"shape \[2, 1\]"):
        WelchTTest().p_value([[1], [2]], [1, 2])


def test_infinite_values_are_for_the_tests_of_the_order():
    x, y = [-np.inf, 1.0, 2.0], [3.0, 4.0, 5.0]
    for test in ALL:
        if isinstance(test, MannWhitneyTest | RankedTTest):
            assert test.p_value(x, y) == test.p_value([0.0, 1.0, 2.0], y)
        else:
            with pytest.raises(ValueError, match=r"infinite.*Mann-Whitney"):
                test.p_value(x, y)


def test_bootstrap_rejects_exactly_where_zero_is_outside_the_interval():
    generator = np.random.default_rng(5)
    seen = set()
    for shift in np.linspace(-1.5, 1.5, 25):
        x, y = generator.normal(size=8), generator.normal(shift, size=8).round(1)
        p = BootstrapTest().p_value(x, y)
        for alpha in (0.01, 0.05, 0.2, 0.9 * p, min(1.1 * p, 0.999)):
            if 0 < alpha < 1:
                low, high = BootstrapTest().interval(x, y, alpha)
                assert BootstrapTest().reject(x, y, alpha) == (low > 0 or high < 0)
                seen.add(low > 0 or high < 0)
    assert seen == {True, False}


def test_bootstrap_with_zero_on_the_end_of_the_interval():
    # resamples of one value are that value: the difference is -1 for every draw of x and y
    assert BootstrapTest().p_value([1.0, 1.0], [2.0, 2.0]) == 0.0
    assert BootstrapTest().interval([1.0, 1.0], [2.0, 2.0]) == (-1.0, -1.0)
    # equal means: 0 lies in the middle of everything
    assert BootstrapTest().p_value([0.0, 2.0], [1.0, 1.0]) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("kind", [BootstrapTest, PermutationTest])
def test_bug_75_random_numbers_come_from_a_seed_and_no_global_state(kind):
    x, y = np.random.default_rng(2).normal(size=(2, 10))
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    first = kind(seed=4).p_value(x, y)
    assert kind(seed=4).p_value(x, y) == first
    assert kind(seed=5).p_value(x, y) != first
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


@EVERY
def test_samples_of_one_distribution_are_rejected_at_the_rate_alpha(test):
    if isinstance(test, PermutationTest):
        test = PermutationTest(n=500)
    generator = np.random.default_rng(9)
    rejected = sum(test.reject(*generator.normal(size=(2, 20))) for _ in range(400))
    # binomial(400, 0.05) has mean 20, sigma 4.4; the bootstrap is liberal by nature (0.075 expected at 20 values)
    assert 6 <= rejected <= (52 if isinstance(test, BootstrapTest) else 37)


def test_adjusted_p_values_on_paper():
    p = [0.01, 0.04, np.nan, 0.03]
    np.testing.assert_allclose(adjust_p_values(p, None), p)
    np.testing.assert_allclose(adjust_p_values(p, "none"), p)
    np.testing.assert_allclose(adjust_p_values(p, "bonferroni"), [0.03, 0.12, np.nan, 0.09])
    # 0.01 * 3, then 0.03 * 2, then max(0.06, 0.04 * 1)
    np.testing.assert_allclose(adjust_p_values(p, "holm"), [0.03, 0.06, np.nan, 0.06])
    np.testing.assert_allclose(adjust_p_values([0.9, 0.8], "holm"), [1.0, 1.0])
    assert adjust_p_values([], "holm").shape == (0,)
    with pytest.raises(ValueError, match="none, bonferroni, holm"):
        adjust_p_values(p, "sidak")  # type: ignore[arg-type]


def test_tests_have_names():
    assert [type(make_test(name)) for name in TESTS] == list(TESTS.values())
    with pytest.raises(ValueError, match="there is no test 'z'; choose one of welch, t, "):
        make_test("z")
