"""Whether killed runs end elsewhere: the test over all ways to deal the returns out."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = str(Path(__file__).resolve().parents[2] / "benchmarks")


@pytest.fixture
def difference(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    before = set(sys.modules)
    import warp_kills

    yield warp_kills.difference
    for name in set(sys.modules) - before:
        if BENCHMARKS in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_the_share_of_deals_that_are_as_far_apart(difference):
    # 1 and 2 against 3 and 5: means 1.5 and 4, and of the six ways to choose two of four only this one and its opposite
    # are 2.5 apart; the others are 2 + 5 or 1 + 3 (1.5), and 1 + 5 or 2 + 3 (0.5)
    assert difference([1.0, 2.0], [3.0, 5.0]) == {"in peace": 1.5, "killed": 4.0, "p": pytest.approx(1 / 3, abs=1e-4)}
    assert difference([1.0, 5.0], [2.0, 3.0])["p"] == 1.0
    assert difference([7.0, 7.0], [7.0, 7.0])["p"] == 1.0


def test_five_runs_that_all_end_lower_are_told(difference):
    # one of 252 deals, and its opposite
    found = difference([10.0, 11.0, 12.0, 13.0, 14.0], [1.0, 2.0, 3.0, 4.0, 5.0])
    assert found["p"] == pytest.approx(2 / 252, abs=1e-4)
