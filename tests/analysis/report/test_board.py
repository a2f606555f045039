"""What a page says about runs: numbers by hand, words, and what is left out."""

import json
import os
import time

import numpy as np
import pytest

from gaitway.analysis.report.board import Board
from gaitway.analysis.report.curves import thinned
from gaitway.analysis.report.folders import runs_inside
from gaitway.analysis.runs import group_runs, load_runs
from gaitway.analysis.stats import WelchTTest, adjust_p_values


def board_of(root, metric=None):
    board = Board(root.name, root, metric)
    board.look(list(runs_inside(root)), inside=True)
    return board


def test_groups_are_ranked_tested_and_told_in_words(three_groups):
    board = board_of(three_groups)
    state = board.state()
    assert [group["label"] for group in state["groups"]] == ["lr=0.1", "lr=0.2", "lr=0.3"]
    assert state["order"] == [1, 2, 0]
    assert state["groups"][0]["centre"] == 2.0  # of three runs none is cut off
    assert state["groups"][0]["low"] < 1.5 < 2.5 < state["groups"][0]["high"]
    (tests,) = state["tests"]
    test = WelchTTest()
    a, b, c = (np.array(group["scores"]) for group in state["groups"])
    pairs = {(1, 2): (b, c), (1, 0): (b, a), (2, 0): (c, a)}
    p_values = [test.p_value(*pair) for pair in pairs.values()]
    by_pair = dict(zip(pairs, adjust_p_values(p_values, "holm"), strict=True))
    assert {(row["better"], row["worse"]) for row in tests["rows"]} == set(pairs)
    for row in tests["rows"]:
        assert row["adjusted"] == pytest.approx(by_pair[row["better"], row["worse"]], rel=1e-5)
    assert state["verdict"]["heading"] == "lr=0.2 leads"
    (sentence,) = state["verdict"]["sentences"]
    assert "lr=0.2 is highest: eval/return 12" in sentence
    assert "above lr=0.1 by 10 on average" in sentence
    assert "cannot be told from lr=0.3" in sentence
    assert any("fewer than 5 runs" in note for note in state["verdict"]["notes"])
    assert state["times"][0]["parts"] == {"learn": 0.75}
    assert state["settings"] == {"keys": ["algorithm.lr"], "rows": [["0.1"], ["0.2"], ["0.3"]]}
    json.dumps(state, allow_nan=False)


def test_the_lowest_cost_is_the_best(three_groups):
    for folder in three_groups.glob("*/*"):
        lines = (folder / "metrics.jsonl").read_text()
        (folder / "metrics.jsonl").write_text(lines.replace("eval/return", "eval/slips"))
        (folder / "config.yaml").write_text((folder / "config.yaml").read_text() + "evaluation: {metric: slips}\n")
        (folder / "contract.json").write_text(json.dumps({"facts": {"costs": ["slips", 7]}}))
    state = board_of(three_groups).state()
    assert state["metric"] == "eval/slips"
    assert state["order"] == [0, 2, 1]
    (tests,) = state["tests"]
    assert tests["is_cost"]
    row = tests["rows"][1]
    assert (row["better"], row["worse"], row["improvement"]) == (0, 1, 1.0)
    assert row["difference"] == 10.0
    assert state["verdict"]["heading"] == "lr=0.1 is best"
    (sentence,) = state["verdict"]["sentences"]
    assert sentence.startswith("lr=0.1 is lowest: eval/slips 2 (95 % interval")
    assert "It is below lr=0.3 and lr=0.2" in sentence
    assert state["runs"][0]["best"] == 0.0  # of 0, 0.5 and 1


def test_of_losses_the_lowest_is_the_best(make_run, tmp_path):
    make_run("0", [1.0], lr=0.1, metrics={"loss/total": 3.0})
    make_run("1", [1.0], lr=0.2, metrics={"loss/total": 2.0})
    assert board_of(tmp_path / "runs", "loss/total").state()["order"] == [1, 0]


def test_groups_are_called_by_the_fewest_settings_that_tell_them_apart(three_groups, make_run):
    config = make_run("longer", [1.0], lr=0.4) / "config.yaml"
    config.write_text(config.read_text().replace("1000", "2000") + "evaluation: {interval: 7, episodes: 3}\n")
    labels = [group["label"] for group in board_of(three_groups).state()["groups"]]
    assert labels == ["lr=0.1", "lr=0.2", "lr=0.3", "lr=0.4"]
    config = make_run("same", [1.0], lr=0.4) / "config.yaml"
    config.write_text(config.read_text().replace("1000", "3000"))
    labels = [group["label"] for group in board_of(three_groups).state()["groups"]]
    assert labels[3:] == ["lr=0.4, total_steps=2000", "lr=0.4, total_steps=3000"]


def test_algorithms_are_called_by_their_names(make_run):
    for name, rate in (("ppo", 0.1), ("ppo", 0.2), ("sac", 0.3)):  # rates alone would tell them apart, in other words
        config = make_run(f"{name}_{rate}", [1.0], lr=rate) / "config.yaml"
        config.write_text(config.read_text().replace(f"lr: {rate}", f"lr: {rate}\n  name: {name}"))
    labels = [group["label"] for group in board_of(config.parent.parent).state()["groups"]]
    assert labels == ["ppo, lr=0.1", "ppo, lr=0.2", "sac, lr=0.3"]


def test_tasks_are_judged_apart(three_groups, make_run):
    make_run("other", [500.0, 1000.0], task="toy/lock")
    state = board_of(three_groups).state()
    assert state["verdict"]["heading"] == "2 tasks, judged one by one"
    assert any(said.startswith("toy/lock: One run reaches eval/return 1,000") for said in state["verdict"]["sentences"])
    assert [tests["task"] for tests in state["tests"]] == ["toy/pendulum"]


def test_a_run_that_has_just_begun_does_not_hold_up_the_others(three_groups, make_run):
    make_run("0.1/late", [0.5], seed=9, lr=0.1, ended=False)
    state = board_of(three_groups).state()
    assert state["groups"][0]["at"] == 300
    assert len(state["groups"][0]["scores"]) == 3
    assert state["runs"][state["groups"][0]["runs"][-1]]["state"] == "training"
    assert any("1 run still in training" in note for note in state["verdict"]["notes"])
    assert any("late" in note for note in state["verdict"]["notes"])


def test_what_nobody_has_learnt_is_said(make_run, tmp_path):
    for seed, value in enumerate((5.0, 6.0, 7.0)):
        folder = make_run(str(seed), [0.0, value], seed=seed)
        (folder / "preflight.json").write_text(json.dumps({"returns": {"zero": {"mean": 9.0}, "random": -3.0}}))
    state = board_of(tmp_path / "runs").state()
    assert state["baselines"] == {"toy/pendulum": {"zero": 9.0, "random": -3.0}}
    assert state["verdict"]["heading"] == "Return 6"
    assert "Nothing here is clearly above that" in state["verdict"]["sentences"][-1]


def test_curves_are_those_of_every_seed_and_of_the_steps_that_all_have(make_run, tmp_path):
    make_run("0", [0.0, 2.0, 4.0], seed=0)
    make_run("1", [2.0, 6.0], seed=1)
    curves = board_of(tmp_path / "runs").curves("eval/return")
    assert curves["runs"][0] == {"x": [100, 200, 300], "y": [0.0, 2.0, 4.0], "t": [1.0, 2.0, 3.0]}
    assert curves["groups"] == {0: {"x": [100, 200], "centre": [1.0, 4.0], "low": [0.0, 2.0], "high": [2.0, 6.0]}}
    assert curves["band"] == "range"


def test_thinning_keeps_peaks_and_ends():
    values = np.zeros(10_000)
    values[[17, 7001]] = 5.0, -3.0
    kept = thinned(values, 100)
    assert len(kept) <= 104
    assert {0, 17, 7001, 9999} <= set(kept.tolist())


def test_added_lines_and_runs_are_seen_and_nothing_else_is_read(three_groups, make_run):
    board = Board("x", three_groups)
    folders = lambda: list(runs_inside(three_groups))  # noqa: E731
    assert board.look(folders(), inside=True)
    assert not board.look(folders(), inside=True)
    before = board.runs[0]
    with (three_groups / "0.3/2/metrics.jsonl").open("a") as file:
        file.write('{"step": 400, "eval/return": 99.0}\n')
    assert board.look(folders(), inside=True)
    assert board.runs[-1].steps == 400
    assert board.runs[0] is before
    make_run("new", [1.0])
    assert board.look(folders(), inside=True)
    assert len(board.runs) == 10


def test_reading_stops_when_time_is_over_and_goes_on_with_the_rest(three_groups):
    board = Board("x", three_groups)
    folders = list(runs_inside(three_groups))
    assert board.look(folders, inside=True, budget_s=0.0)
    assert (len(board.runs), board.to_read) == (0, 9) or board.to_read < 9
    assert board.look(folders, inside=True)
    assert (len(board.runs), board.to_read) == (9, 0)


BAD_METRICS = [
    '{"step": Infinity, "eval/return": 1}\n',
    '{"step": 1e300, "eval/return": 1}\n',
    '{"step": 300, "eval/return": ' + "9" * 400 + "}\n",
    "[" * 100_000 + "\n",
    '{"step": 200, "eval/return": "x", "a": [1], "b": {}, "c": NaN, "d": -Infinity, "e": true}\n',
    '{"step": 100, "eval/ret',
    "\0\xff\n",
]


@pytest.mark.parametrize("line", BAD_METRICS, ids=lambda line: line[:24])
def test_lines_that_are_none_do_no_harm(make_run, tmp_path, line):
    folder = make_run("0", [1.0, 2.0])
    with (folder / "metrics.jsonl").open("a", encoding="latin-1") as file:
        file.write(line)
    board = board_of(tmp_path / "runs")
    json.dumps(board.state(), allow_nan=False)
    assert board.curves("eval/return")["runs"][0]["y"][:1] == [1.0]
    for name in board.state()["metrics"]:
        json.dumps(board.curves(name), allow_nan=False)


BAD_FILES = {
    "contract.json": '{"groups": [{"components": 5}, 3], "action": [], "facts": 7}',
    "preflight.json": '{"returns": {"zero": {"mean": "x"}, "random": null}}',
    "code.json": '{"repositories": [1, {"name": {}}], "versions": []}',
    "wiring.json": '{"variables": [{"name": "a", "writers": ["x", 3]}, {"name": 1}]}',
}


def test_files_of_another_shape_say_nothing(make_run, tmp_path):
    folder = make_run("0", [1.0, 2.0])
    for name, content in BAD_FILES.items():
        (folder / name).write_text(content)
    state = board_of(tmp_path / "runs").state()
    assert len(state["runs"]) == 1
    assert not state["problems"]
    assert state["baselines"] == {"toy/pendulum": {}}
    assert state["wirings"][0]["rows"] == [["a", "x, 3"], ["1", ""]]


@pytest.mark.parametrize(("name", "content"), [("config.yaml", "a: [1\n"), ("summary.json", '["not an object"]')])
def test_a_run_that_cannot_be_read_is_named_and_the_others_are_shown(three_groups, make_run, name, content):
    (make_run("bad", [1.0]) / name).write_text(content)
    state = board_of(three_groups).state()
    assert len(state["runs"]) == 9
    assert [problem["folder"] for problem in state["problems"]] == ["bad"]


def test_links_that_lead_out_are_not_followed(make_run, tmp_path):
    secret = tmp_path / "secret.yaml"
    secret.write_text("password: hunter2\n")
    os.mkfifo(tmp_path / "pipe")
    inside = make_run("inside", [1.0])
    (inside / "media").mkdir()
    os.symlink(secret, inside / "media" / "note.txt")
    os.symlink(tmp_path, inside / "videos")
    os.symlink(secret, inside / "contract.json")
    for name, target in (("config.yaml", secret), ("metrics.jsonl", tmp_path / "pipe")):
        folder = make_run(f"out_{name}", [1.0])
        (folder / name).unlink()
        os.symlink(target, folder / name)
    elsewhere = make_run("../elsewhere", [1.0])
    os.symlink(elsewhere, tmp_path / "runs" / "linked")
    os.symlink(tmp_path / "runs", tmp_path / "runs" / "loop")
    begun = time.monotonic()
    state = board_of(tmp_path / "runs").state()
    assert time.monotonic() - begun < 5.0  # a pipe was not waited for
    assert [run["name"] for run in state["runs"]] == ["inside"]
    assert {problem["folder"] for problem in state["problems"]} == {"out_config.yaml", "out_metrics.jsonl"}
    assert state["media"] == []
    assert state["contracts"] == []
    assert "hunter2" not in json.dumps(state)


def test_a_sweep_is_a_table_of_its_trials(make_run, tmp_path):
    make_run("0000", [2.0, 5.0], lr=0.1)
    make_run("0001", [1.0, 7.0], lr=0.2)
    root = tmp_path / "runs"
    (root / "sweep.yaml").write_text("base: []\n")
    (root / "plans").mkdir()
    for number, lr in enumerate((0.1, 0.2, 0.4)):
        plan = {"number": number, "parameters": {"algorithm.lr": lr}, "seed": 0}
        (root / "plans" / f"{number:04}.json").write_text(json.dumps(plan))
    outcomes = [{"number": 0, "state": "done"}, {"number": 2, "state": "failed", "sentence": "no <memory>"}]
    (root / "outcomes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in outcomes) + '{"number": 1, "st')
    for name in ("0000", "0001"):
        (root / name / "contract.json").write_text('{"facts": {"costs": ["return"]}}')
    (costs,) = board_of(root).state()["sweeps"]
    assert [(row["trial"], row["value"]) for row in costs["rows"]] == [(1, 1.0), (0, 2.0), (2, None)]
    for name in ("0000", "0001"):
        (root / name / "contract.json").unlink()
    (sweep,) = board_of(root).state()["sweeps"]
    assert sweep["parameters"] == ["algorithm.lr"]
    found = [(row["trial"], row["state"], row["value"], row["parameters"]) for row in sweep["rows"]]
    assert found == [(1, "done", 7.0, ["0.2"]), (0, "done", 5.0, ["0.1"]), (2, "failed", None, ["0.4"])]
    assert sweep["rows"][2]["sentence"] == "no <memory>"


def test_parts_of_the_reward_are_sources_or_the_terms_that_the_contract_names(make_run, tmp_path):
    make_run("sources", [1.0, 2.0], metrics={"reward/task": 2.0, "reward/rnd": -0.5, "reward/total": 1.5})
    terms = make_run("terms", [1.0, 2.0], task="pup", metrics={"env/slip_episode": -3.0, "env/speed_episode": 9.0})
    (terms / "contract.json").write_text(json.dumps({"facts": {"legged": {"rewards": ["slip", 7]}}}))
    assert board_of(tmp_path / "runs").state()["rewards"] == [
        {"group": 0, "parts": {"task": 2.0, "rnd": -0.5}},
        {"group": 1, "parts": {"slip": -3.0}},
    ]


def test_parts_of_a_tasks_own_reward_are_shown_where_there_are_no_sources(make_run, tmp_path):
    make_run("hopper", [1.0, 2.0], metrics={"env/reward_forward": 2.0, "env/reward_ctrl": -0.5, "env/speed": 1.0})
    (found,) = board_of(tmp_path / "runs").state()["rewards"]
    assert found["parts"] == {"forward": 2.0, "ctrl": -0.5}


def test_a_large_file_is_read_in_parts_while_others_are_shown(make_run, tmp_path, monkeypatch):
    monkeypatch.setattr("gaitway.analysis.metrics_file.PART", 1000)
    make_run("large", list(range(200)))
    make_run("small", [1.0])
    board = Board("x", tmp_path / "runs", at_once=1000)
    folders = list(runs_inside(tmp_path / "runs"))
    board.look(folders, inside=True)
    assert len(board.runs) == 2
    assert 0 < board.runs[0].steps < 20_000
    assert board.to_read == 1
    while board.to_read:
        assert board.look(folders, inside=True)
    assert board.runs[0].run.series("eval/return").tolist() == list(range(200))


def test_groups_are_the_same_whatever_their_number(make_run, tmp_path):
    for number in range(4):
        make_run(str(number), [1.0], seed=number, lr=[number % 2, {"a": 1}])
    groups = group_runs(load_runs([tmp_path / "runs"]))
    assert [[run.name for run in members] for members in groups.values()] == [["0", "2"], ["1", "3"]]
