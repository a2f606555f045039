"""Run folders as tables, whole and torn."""

from __future__ import annotations

import json
import math

import pytest

from gaitway.analysis.runs import find_runs, group_runs, load_run, load_runs


def write_run(folder, lines=(), seed=0, tail="", **config):
    folder.mkdir(parents=True)
    settings = {"seed": seed, "run_dir": str(folder), **config}
    (folder / "config.yaml").write_text("\n".join(f"{key}: {value}" for key, value in settings.items()))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)
    return folder


def test_metrics_are_a_table_indexed_by_step(tmp_path):
    folder = write_run(
        tmp_path / "run",
        [
            {"step": 100, "train/return": 1.5, "loss/value": 2},
            {"step": 200, "train/return": None, "loss/value": 1.0},
            {"step": 200, "eval/return": 7.0},
        ],
    )
    run = load_run(folder)
    assert run.metrics.index.tolist() == [100, 200]
    assert run.metrics.index.name == "step"
    assert run.metrics["loss/value"].tolist() == [2.0, 1.0]
    assert math.isnan(run.metrics.at[200, "train/return"])
    assert run.metrics.at[200, "eval/return"] == 7.0
    assert math.isnan(run.metrics.at[100, "eval/return"])
    assert run.series("eval/return").to_dict() == {200: 7.0}
    assert run.series("no/such").empty
    assert (run.seed, run.name, run.summary) == (0, "run", {})


def test_of_two_lines_about_one_metric_and_step_the_first_counts(tmp_path):
    # as for the logger; a resumed run cuts off what it will write again
    lines = [{"step": step, "train/return": value} for step, value in ((1, 1.0), (2, 2.0), (3, 3.0), (2, 20.0))]
    assert load_run(write_run(tmp_path / "run", lines)).series("train/return").to_dict() == {1: 1.0, 2: 2.0, 3: 3.0}


def test_a_torn_last_line_is_left_out_in_silence(tmp_path, caplog):
    run = load_run(write_run(tmp_path / "run", [{"step": 1, "a/b": 1.0}], tail='{"step": 2, "a/b": 3'))
    assert run.series("a/b").to_dict() == {1: 1.0}
    assert not caplog.records


@pytest.mark.parametrize("broken", ["{\x00", "[1, 2]", '{"a/b": 2.0}', "7"])
def test_a_broken_line_in_between_is_left_out_and_named(tmp_path, caplog, broken):
    run = load_run(write_run(tmp_path / "run", [{"step": 1, "a/b": 1.0}], tail=f'{broken}\n{{"step": 2, "a/b": 5}}\n'))
    assert run.series("a/b").to_dict() == {1: 1.0, 2: 5.0}
    assert "line 2" in caplog.text


def test_config_is_a_plain_nested_dict(tmp_path):
    run = load_run(write_run(tmp_path / "run", algorithm="{learning_rate: 0.0001, memory: null}", seed=3))
    assert run.config == {"seed": 3, "run_dir": str(run.folder), "algorithm": {"learning_rate": 1e-4, "memory": None}}


def test_summary_and_missing_files(tmp_path):
    folder = write_run(tmp_path / "run")
    (folder / "summary.json").write_text('{"steps": 10}')
    (folder / "metrics.jsonl").unlink()
    run = load_run(folder)
    assert run.summary == {"steps": 10}
    assert run.metrics.empty
    with pytest.raises(ValueError, match=r"neither config.yaml nor metrics.jsonl"):
        load_run(tmp_path)


def test_a_folder_of_runs_stands_for_its_runs(tmp_path):
    first, second = write_run(tmp_path / "sweep" / "b", seed=1), write_run(tmp_path / "sweep" / "a" / "deep", seed=2)
    (first / "checkpoints" / "100").mkdir(parents=True)
    (first / "checkpoints" / "100" / "config.yaml").write_text("seed: 9")  # inside a run: not a run
    (tmp_path / "sweep" / ".hidden").mkdir()
    (tmp_path / "sweep" / ".hidden" / "config.yaml").write_text("seed: 9")
    assert find_runs([tmp_path]) == [second, first]
    assert [run.seed for run in load_runs([first, tmp_path / "sweep"])] == [1, 2]  # each once
    with pytest.raises(ValueError, match="no run folder in"):
        load_runs([tmp_path / "nowhere"])


def test_groups_are_runs_that_differ_in_the_seed_only(tmp_path):
    for rate in (1e-3, 3e-4):
        for seed in (1, 2):
            write_run(
                tmp_path / f"{rate}-{seed}", seed=seed, algorithm=f"{{learning_rate: {rate}}}", env="{id: Walker}"
            )
    groups = group_runs(load_runs([tmp_path]))
    assert {label: [run.seed for run in runs] for label, runs in groups.items()} == {
        "algorithm.learning_rate=0.0003": [1, 2],
        "algorithm.learning_rate=0.001": [1, 2],
    }


def test_labels_of_groups_stay_short_and_distinct(tmp_path):
    one = write_run(tmp_path / "one", note="x" * 80)
    two = write_run(tmp_path / "two", note="y" * 80)
    assert list(group_runs(load_runs([one, two]))) == [str(one), str(two)]
    assert list(group_runs(load_runs([one]))) == [str(one)]
