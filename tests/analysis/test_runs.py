"""Run folders as tables, whole and torn."""

from __future__ import annotations

import gzip
import json
import math

import pandas as pd
import pytest

from gaitway.analysis import metrics_file
from gaitway.analysis.runs import RunReader, find_runs, group_runs, load_run, load_runs

json_loads = json.loads


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


def test_films_and_logs_do_not_divide_a_group(tmp_path):
    for seed, more in enumerate(({}, {"video": "{interval: 100}"}, {"logging": "{tensorboard: true}"})):
        write_run(tmp_path / str(seed), seed=seed, env="{id: Walker}", **more)
    assert [[run.seed for run in runs] for runs in group_runs(load_runs([tmp_path])).values()] == [[0, 1, 2]]


def test_labels_of_groups_stay_short_and_distinct(tmp_path):
    one = write_run(tmp_path / "one", note="x" * 80)
    two = write_run(tmp_path / "two", note="y" * 80)
    assert list(group_runs(load_runs([one, two]))) == [str(one), str(two)]
    assert list(group_runs(load_runs([one]))) == [str(one)]


# --- Reading on ------------------------------------------------------------------------------------------------------


def append(folder, *lines, tail=""):
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines) + tail)


def test_a_reader_reads_only_what_was_added(tmp_path, monkeypatch):
    folder, reader = write_run(tmp_path / "run", [{"step": 1, "a/b": 1.0}, {"step": 2, "a/b": 2.0}]), RunReader()
    first = reader.read(folder)
    assert reader.read(folder) is first
    parsed = []
    monkeypatch.setattr(metrics_file.json, "loads", lambda line: parsed.append(line) or json_loads(line))
    append(folder, {"step": 2, "c/d": 5.0}, {"step": 3, "a/b": 3.0}, tail='{"step": 4, "a')
    second = reader.read(folder)
    assert [json_loads(line)["step"] for line in parsed[:2]] == [2, 3]  # and the line that is cut off
    assert len(parsed) == 3
    assert second.config is first.config
    append(folder, tail='/b": 4.0}\n')
    pd.testing.assert_frame_equal(reader.read(folder).metrics, load_run(folder).metrics)
    assert reader.read(folder).series("a/b").to_dict() == {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}
    assert first.series("a/b").to_dict() == {1: 1.0, 2: 2.0}  # as it was


@pytest.mark.parametrize("grown", [False, True], ids=["shorter", "longer than before"])
def test_a_reader_notices_metrics_that_were_cut_back(tmp_path, grown):
    lines = [{"step": step, "a/b": float(step)} for step in range(1, 5)]
    folder, reader = write_run(tmp_path / "run", lines), RunReader()
    reader.read(folder)
    again = [{"step": step, "a/b": step + 0.5} for step in range(3, 9 if grown else 4)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[:2] + again))
    expected = {1: 1.0, 2: 2.0} | {line["step"]: line["a/b"] for line in again}
    assert reader.read(folder).series("a/b").to_dict() == expected


def test_a_reader_notices_metrics_that_were_packed_and_unpacked(tmp_path):
    folder, reader = write_run(tmp_path / "run", [{"step": 1, "a/b": 1.0}]), RunReader()
    plain, packed = folder / "metrics.jsonl", folder / "metrics.jsonl.gz"
    reader.read(folder)
    append(folder, {"step": 2, "a/b": 2.0})
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    assert reader.read(folder).series("a/b").to_dict() == {1: 1.0, 2: 2.0}
    plain.write_text('{"step": 7, "a/b": 7}\n')
    packed.unlink()
    assert reader.read(folder).series("a/b").to_dict() == {7: 7.0}
    plain.unlink()
    assert reader.read(folder).metrics.empty


def test_a_reader_notices_a_new_summary(tmp_path):
    folder, reader = write_run(tmp_path / "run"), RunReader()
    assert reader.read(folder).summary == {}
    (folder / "summary.json").write_text('{"steps": 10}')
    assert reader.read(folder).summary == {"steps": 10}


def test_a_mistyped_folder_gets_the_nearest_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("walker_1", "walker_2", "walker_3", "walker_30", "other"):
        (write_run(tmp_path / "runs" / name) / "code.json").write_text("{}")
    with pytest.raises(ValueError, match=r"did you mean runs/walker_\d+, runs/walker_\d+ or runs/walker_\d+\?"):
        find_runs(["runs/walkre_1"])
    with pytest.raises(ValueError, match=r"did you mean runs/other\?"):
        find_runs(["othr"])
    with pytest.raises(ValueError, match="no run folder in zzz:"):
        find_runs(["zzz"])
