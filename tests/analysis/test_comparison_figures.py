"""Pictures of comparisons: what is drawn where, and that nothing is written or shown unasked."""

from __future__ import annotations

import os

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

from gaitway.analysis.aggregate import performance_profile
from gaitway.analysis.compare import compare_curves, compare_groups
from gaitway.analysis.comparison_figures import comparison_figure, curves_figure, dot_height, profile_figure
from gaitway.analysis.groups import Group


def two_groups(level=0.0, runs=8):
    """Curves that part after a few rows; the second is 4 higher at the end."""
    generator = np.random.default_rng(0)
    first = level + generator.normal(size=(11, runs))
    second = level + generator.normal(size=(11, runs)) + np.linspace(0.0, 4.0, 11)[:, None]
    return first, second


def dots(axes):
    (found,) = [line for line in axes.get_lines() if line.get_marker() == "o" and line.get_color() == "black"]
    return found


@pytest.mark.parametrize("level", [-1000.0, -5.0, 0.0, 300.0])
def test_bug_75_dots_lie_above_the_curves_for_any_sign(level):
    found = compare_curves(*two_groups(level), downsample=1, point_every=100)
    (axes,) = curves_figure(found, ("a", "b")).axes
    x, y = dots(axes).get_data()
    assert x.tolist() == found.steps[found.significant].tolist()
    assert len(x) >= 3
    top = max(found.first.high.max(), found.second.high.max())
    bottom = min(found.first.low.min(), found.second.low.min())
    np.testing.assert_allclose(y, top + 0.05 * (top - bottom))
    assert (y > top).all()
    broken = 1.05 * top  # the twin that scales the top: below the curves where values are negative
    assert (broken < top) == (top < 0)


def test_dots_of_constant_and_of_missing_curves():
    constant = compare_curves(np.full((3, 2), -2.0), np.full((3, 2), -2.0), downsample=1)
    assert dot_height(constant) > -2.0
    missing = compare_curves(np.full((3, 2), np.nan), np.full((3, 2), np.nan), downsample=1)
    assert dot_height(missing) == 0.0
    assert curves_figure(missing, ("a", "b")) is not None


def test_bug_75_nothing_is_written_or_shown_unasked(tmp_path, monkeypatch):
    from matplotlib import pyplot

    shown = []
    monkeypatch.setattr(pyplot, "show", lambda *args, **kwargs: shown.append(True))
    monkeypatch.chdir(tmp_path)
    before = dict(mpl.rcParams)
    found = compare_curves(*two_groups())
    curves_figure(found, ("a", "b"))
    assert os.listdir(tmp_path) == []
    assert shown == []
    curves_figure(found, ("a", "b"), path=tmp_path / "deep" / "mine.png")
    assert os.listdir(tmp_path) == ["deep"]
    picture = np.asarray(Image.open(tmp_path / "deep" / "mine.png").convert("RGB"))
    assert min(picture.shape[:2]) > 500
    assert dict(mpl.rcParams) == before
    with mpl.rc_context({"backend": "agg"}):
        pyplot.close(curves_figure(found, ("a", "b"), show=True))
    assert shown == [True]


def test_curves_have_labels_bands_and_a_legend():
    found = compare_curves(*two_groups(), downsample=1, alpha=0.05, correction="holm", central="iqm", error=80)
    figure = curves_figure(found, ("ppo", "sac"), y_label="speed [m/s]")
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("environment steps", "speed [m/s]")
    assert axes.get_title() == "interquartile mean and 80 % of the runs"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ppo", "sac", "p < 0.05, Holm corrected"]
    lines = axes.get_lines()
    np.testing.assert_allclose(lines[0].get_ydata(), found.first.centre)
    np.testing.assert_allclose(lines[1].get_ydata(), found.second.centre)
    assert lines[0].get_linestyle() != lines[1].get_linestyle()
    assert len(axes.collections) == 2
    assert np.isin(found.second.high, axes.collections[1].get_paths()[0].vertices[:, 1]).all()


def test_no_dots_and_no_entry_for_them_where_nothing_differs():
    first, _ = two_groups()
    figure = curves_figure(compare_curves(first, first), ("a", "b"))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]


def test_comparison_shows_every_run_and_the_interval():
    first, second = two_groups()
    found = compare_groups(Group.from_array("a", first), Group.from_array("b", second), metric="eval/return")
    curve, scores = comparison_figure(found).axes
    assert curve.get_ylabel() == "return per episode"
    points = [line for line in scores.get_lines() if len(line.get_ydata()) == 8]
    assert [sorted(line.get_ydata()) for line in points] == [sorted(first[-1]), sorted(second[-1])]
    bars = [segment for group in scores.collections for segment in group.get_segments()]
    assert [(bar[0][1], bar[1][1]) for bar in bars] == [
        pytest.approx((centre.low, centre.high)) for centre in found.centres
    ]
    assert "p = " in scores.get_title()
    (alone,) = comparison_figure(compare_groups(Group.from_array("a", [1.0, 2.0]), Group.from_array("b", [3.0]))).axes
    assert [tick.get_text() for tick in alone.get_xticklabels()] == ["2 runs", "1 run"]
    assert alone.get_ylabel() == "value"


def test_profiles_are_drawn_with_their_bands():
    thresholds = np.linspace(-2.0, 3.0, 20)
    scores = np.random.default_rng(0).normal(size=(2, 10, 4)) + np.array([0.0, 0.7])[:, None, None]
    profiles = {name: performance_profile(one, thresholds) for name, one in zip(("a", "b"), scores, strict=True)}
    figure = profile_figure(profiles, thresholds, x_label="normalised score")
    (axes,) = figure.axes
    np.testing.assert_allclose(axes.get_lines()[1].get_ydata(), profiles["b"].value)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("normalised score", "fraction of runs above it")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]
    assert len(axes.collections) == 2
