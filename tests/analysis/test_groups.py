"""Groups from runs and arrays: which values count at a step, and where there are none."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gaitway.analysis.groups import Group, Series, find_metric
from gaitway.analysis.runs import load_runs

NAN = float("nan")


def write_run(folder, values, name="eval/return"):
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("seed: 0\n")
    lines = [{"step": step, name: value} for step, value in values.items()]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_arrays_are_curves_or_scores():
    curves = Group.from_array("a", [[1.0, 2.0], [3.0, NAN]], point_every=50)
    assert [one.steps.tolist() for one in curves.series] == [[0.0, 50.0]] * 2
    assert curves.series[0].values.tolist() == [1.0, 3.0]
    assert [one.last_step for one in curves.series] == [50.0, 0.0]
    scores = Group.from_array("b", [4.0, 5.0, 6.0])
    assert not scores.is_curve
    assert len(scores.series) == 3


def test_arrays_that_are_neither_are_refused():
    with pytest.raises(ValueError, match=r"a has shape \[1, 1, 1\]"):
        Group.from_array("a", [[[1.0]]])
    with pytest.raises(ValueError, match="2 increasing numbers"):
        Group.from_array("a", [[1.0], [2.0]], steps=[5, 5])
    with pytest.raises(ValueError, match="2 increasing numbers"):
        Group.from_array("a", [[1.0], [2.0]], steps=[5])


def test_scores_are_the_last_values_up_to_a_step():
    group = Group.from_array("a", [[1.0, 10.0, NAN], [3.0, 20.0, NAN], [5.0, NAN, NAN]], steps=[100, 200, 300])
    assert [group.scores(at=200)[0].tolist(), group.scores(at=200, last=2)[0].tolist()] == [[3.0, 20.0], [2.0, 15.0]]
    scores, missing = group.scores(at=300)
    assert scores.tolist() == [5.0]
    assert missing == ["run 1 of a", "run 2 of a"]  # one ended, one never was
    assert group.scores(at=250)[0].tolist() == [3.0]  # the second had ended before
    assert group.scores(at=50)[1] == ["run 0 of a", "run 1 of a", "run 2 of a"]  # before the first value
    assert group.scores(at=None)[0].tolist() == [5.0, 20.0]


def test_scores_without_steps_are_what_they_are():
    scores, missing = Group.from_array("a", [4.0, NAN, 6.0]).scores(at=1e9, last=3)
    assert scores.tolist() == [4.0, 6.0]
    assert missing == ["run 1 of a"]


def test_series_are_interpolated_within_their_range_only():
    series = Series("a", np.array([0.0, 100.0, 200.0]), np.array([1.0, NAN, 5.0]))
    # 50 lies between values; 100 is said to be missing; -10 and 300 are outside
    np.testing.assert_allclose(series.on(np.array([-10.0, 0.0, 50.0, 100.0, 200.0, 300.0])), [NAN, 1, 2, NAN, 5, NAN])
    np.testing.assert_allclose(Series("b", np.zeros(1), np.array([NAN])).on(np.zeros(2)), [NAN, NAN])


def test_groups_of_runs_keep_their_own_steps(tmp_path):
    write_run(tmp_path / "x", {10: 1.0, 20: 2.0})
    write_run(tmp_path / "y", {15: 7.0})
    group = Group.from_runs("both", load_runs([tmp_path]), "eval/return")
    assert [(one.name, one.steps.tolist(), one.values.tolist()) for one in group.series] == [
        ("x", [10.0, 20.0], [1.0, 2.0]),
        ("y", [15.0], [7.0]),
    ]


def test_short_names_of_metrics_are_completed_alike_for_all_runs(tmp_path):
    write_run(tmp_path / "x", {10: 1.0})
    assert find_metric(load_runs([tmp_path]), "return") == "eval/return"
    write_run(tmp_path / "y", {10: 1.0}, "train/return")
    with pytest.raises(ValueError, match=r"y has no values of eval/return or .* it has train/return"):
        find_metric(load_runs([tmp_path]), "return")
    with (tmp_path / "x" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 10, "train/return": 3.0}\n')
    assert find_metric(load_runs([tmp_path]), "return") == "train/return"
    assert find_metric(load_runs([tmp_path / "x"]), "eval/return") == "eval/return"
    with pytest.raises(ValueError, match="no runs to compare"):
        find_metric([], "return")
