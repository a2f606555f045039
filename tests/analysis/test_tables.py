"""Run folders as one table: what is logged, what is set, and what is missing."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import yaml

from gaitway.analysis.runs import load_run, load_runs
from gaitway.analysis.tables import (
    Extremum,
    Runs,
    fill_gaps,
    hyper_parameters,
    maximum,
    minimum,
    run_frame,
    value_at,
)


def write_run(folder, metrics, **config):
    """A run folder with `metrics` {name: {step: value}}."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    lines = [{"step": step, name: value} for name, values in metrics.items() for step, value in values.items()]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def sweep(tmp_path):
    """Three runs: two learning rates, one run with a hyper-parameter and a metric that the others lack."""
    write_run(tmp_path / "a", {"eval/return": {10: 1.0, 20: 4.0}}, seed=0, algorithm={"rate": 0.1, "hidden": [64, 64]})
    write_run(tmp_path / "b", {"eval/return": {10: 3.0}}, seed=1, algorithm={"rate": 0.2, "hidden": [64, 64]})
    write_run(
        tmp_path / "c",
        {"eval/return": {20: 2.0}, "loss/value": {10: 0.5}},
        seed=2,
        algorithm={"rate": 0.2, "hidden": [32], "clip": None},
        env={"id": "toy/Walk"},
    )
    return Runs.read(tmp_path)


def test_bug_71_extrema_are_by_step_and_tables_are_sparse(tmp_path):
    # iterations 1, 3 and 4 of 0..4 were logged: the least value is at iteration 3, not at index 1 of what is left
    run = load_run(write_run(tmp_path / "run", {"loss/value": {1: 5.0, 3: 1.0, 4: 3.0}}, seed=0))
    assert minimum(run, "loss/value") == Extremum(step=3, value=1.0)
    assert maximum(run, "loss/value") == Extremum(step=1, value=5.0)
    assert [value_at(run, "loss/value", step) for step in range(5)] == [None, 5.0, None, 1.0, 3.0]
    frame = run_frame(run)
    assert frame["step"].tolist() == [1, 3, 4]  # rows that occur, not a row for every number up to the last
    far = load_run(write_run(tmp_path / "far", {"loss/value": {10**12: 2.0}}))
    assert len(run_frame(far)) == 1


def test_bug_71_configs_are_data_and_never_evaluated(tmp_path):
    text = "__import__('os').system('true')"
    run = load_run(write_run(tmp_path / "run", {}, note=text, algorithm={"rate": 1e-4}))
    assert hyper_parameters(run) == {"note": text, "algorithm/rate": 1e-4}


def test_the_first_of_equal_extrema_counts(tmp_path):
    run = load_run(write_run(tmp_path / "run", {"a/b": {5: 2.0, 7: 9.0, 8: 9.0, 9: 2.0}}))
    assert (maximum(run, "a/b").step, minimum(run, "a/b").step) == (7, 5)
    with pytest.raises(KeyError, match="has no values of 'a/c'; it has a/b"):
        maximum(run, "a/c")


def test_gaps_are_filled_forwards_and_then_backwards(tmp_path):
    run = load_run(write_run(tmp_path / "run", {"a/b": {2: 1.0, 4: 5.0}, "a/c": {1: 0.0, 5: 0.0}}))
    filled = fill_gaps(run.metrics)
    assert filled["a/b"].to_dict() == {1: 1.0, 2: 1.0, 4: 5.0, 5: 5.0}
    assert math.isnan(run.metrics["a/b"][1])  # a copy


def test_bug_72_each_run_is_added_once_and_names_are_the_union(sweep):
    assert [run.seed for run in sweep] == [0, 1, 2]
    assert len(sweep) == 3
    assert sweep.hyper_parameters() == ["algorithm/hidden", "algorithm/rate", "seed", "algorithm/clip", "env/id"]
    collection = Runs().add(sweep[1]).add([sweep[0], sweep[2]]).add(Runs([sweep[1]]))
    assert [run.seed for run in collection] == [1, 0, 2, 1]
    collection.add(collection)  # itself: doubles, and ends
    assert len(collection) == 8
    assert len(sweep) == 3


def test_absent_hyper_parameters_are_none_in_words(sweep):
    assert sweep.values("algorithm/clip") == ["none", None]  # absent, and set to null
    assert sweep.values("env/id") == ["none", "toy/Walk"]
    assert sweep.values("algorithm/hidden") == [[64, 64], [32]]
    assert sweep.differing() == {
        "algorithm/hidden": [[64, 64], [32]],
        "algorithm/rate": [0.1, 0.2],
        "algorithm/clip": ["none", None],
        "env/id": ["none", "toy/Walk"],
    }


def test_filters_take_a_value_or_a_predicate(sweep):
    assert [run.seed for run in sweep.filter("algorithm/rate", 0.2)] == [1, 2]
    assert [run.seed for run in sweep.filter("algorithm/rate", lambda rate: rate < 0.15)] == [0]
    assert [run.seed for run in sweep.filter("algorithm/hidden", [32])] == [2]
    assert [run.seed for run in sweep.filter("env/id", "none")] == [0, 1]
    assert [run.seed for run in sweep.filter("algorithm/rate", 0.2).filter("seed", 1)] == [1]
    assert len(sweep.filter("seed", 99)) == 0
    with pytest.raises(KeyError, match="no run has the hyper-parameter 'algorithm/ratte'; there are algorithm/rate"):
        sweep.filter("algorithm/ratte", 1)


def test_true_is_not_one(tmp_path):
    for number, value in enumerate((True, 1, 1.0, False)):
        write_run(tmp_path / str(number), {}, flag=value)
    runs = Runs.read(tmp_path)
    assert len(runs.filter("flag", 1)) == 2
    assert len(runs.filter("flag", True)) == 1
    assert len(runs.values("flag")) == 3


def test_one_table_of_many_runs(sweep):
    frame = sweep.frame()
    assert frame.columns.tolist() == [
        "_run", "step", "eval/return", "loss/value",
        "_hp/algorithm/hidden", "_hp/algorithm/rate", "_hp/seed", "_hp/algorithm/clip", "_hp/env/id",
    ]  # fmt: skip
    assert frame.index.tolist() == [0, 1, 2, 3, 4]
    assert frame["_run"].tolist() == ["a", "a", "b", "c", "c"]
    assert frame["step"].tolist() == [10, 20, 10, 10, 20]
    np.testing.assert_array_equal(frame["eval/return"], [1.0, 4.0, 3.0, np.nan, 2.0])
    np.testing.assert_array_equal(frame["loss/value"], [np.nan, np.nan, np.nan, 0.5, np.nan])
    assert frame["_hp/env/id"].tolist() == ["none"] * 3 + ["toy/Walk"] * 2
    means = frame.groupby("_hp/algorithm/hidden")["eval/return"].mean()  # lists are text: one can group by them
    assert means.to_dict() == {"[64, 64]": 8 / 3, "[32]": 2.0}
    assert sweep.frame(with_hyper_parameters=False).columns.tolist() == ["_run", "step", "eval/return", "loss/value"]


def test_one_run_is_a_table_without_the_name_of_the_run(sweep):
    frame = run_frame(sweep[0])
    assert frame.columns.tolist() == ["step", "eval/return", "_hp/algorithm/hidden", "_hp/algorithm/rate", "_hp/seed"]
    assert run_frame(sweep[0], with_hyper_parameters=False)["eval/return"].tolist() == [1.0, 4.0]


def test_tables_of_nothing(tmp_path):
    assert Runs().frame().empty
    assert Runs().columns() == []
    empty = Runs([load_run(write_run(tmp_path / "empty", {}, seed=3))])
    assert empty.frame().columns.tolist() == ["_run", "step", "_hp/seed"]
    assert len(empty.frame()) == 0


def test_runs_of_one_name_are_told_apart_by_their_folder(tmp_path):
    for parent in ("x", "y"):
        write_run(tmp_path / parent / "run", {"a/b": {1: 1.0}})
    assert Runs.read(tmp_path).frame()["_run"].tolist() == [str(tmp_path / p / "run") for p in ("x", "y")]


def test_the_best_run(sweep):
    assert sweep.best(lambda run: maximum(run, "eval/return").value).seed == 0
    assert sweep.best(lambda run: run.series("loss/value").max()).seed == 2  # NaN for the others
    with pytest.raises(ValueError, match="NaN"):
        sweep.best(lambda run: float("nan"))
    with pytest.raises(ValueError, match="no run to choose"):
        Runs().best(lambda run: 1.0)


def test_scores_are_a_matrix_of_runs_and_tasks(tmp_path):
    for task, values in {"walk": [[1.0, 3.0], [5.0, 7.0]], "run": [[2.0, 4.0]]}.items():
        for seed, (first, last) in enumerate(values):
            write_run(tmp_path / f"{task}{seed}", {"eval/return": {10: first, 20: last}}, seed=seed, env={"id": task})
    write_run(tmp_path / "silent", {}, env={"id": "run"})
    runs = Runs(load_runs([tmp_path]))
    tasks, scores = runs.scores("eval/return")
    assert tasks == ["run", "walk"]
    np.testing.assert_array_equal(scores, [[4.0, 3.0], [np.nan, 7.0]])
    np.testing.assert_array_equal(runs.scores("eval/return", last=2)[1], [[3.0, 2.0], [np.nan, 6.0]])
    with pytest.raises(ValueError, match="last is 0"):
        runs.scores("eval/return", last=0)
