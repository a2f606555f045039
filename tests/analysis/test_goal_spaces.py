"""Shares of goal spaces: read from what is logged, drawn for a run and task by task."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gaitway.analysis.goal_spaces import goal_space_shares, goal_spaces_by_task_figure, goal_spaces_figure
from gaitway.analysis.runs import load_run
from gaitway.cli.main import main


def make_run(path, lines, task="walker/stairs", seed=0):
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(f"env: {{id: {task}}}\nseed: {seed}\nalgorithm: {{name: hsd3}}\n")
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def learnt(late: float) -> list[dict]:
    return [
        {"step": step, "share/0": 1.0 - share, "share/0,1": share, "eval/return": share}
        for step, share in ((100, 0.5), (200, late), (300, late))
    ]


def test_shares_of_probabilities_and_of_pulls(tmp_path):
    steps, shares = goal_space_shares(load_run(make_run(tmp_path / "hsd3", learnt(0.9))))
    assert steps.tolist() == [100, 200, 300]
    np.testing.assert_allclose(shares["0,1"], [0.5, 0.9, 0.9])
    # pulls are counted from the beginning: 2 and 2, then 1 and 3 more, then none
    pulls = [(100, 2, 2), (200, 3, 5), (300, 3, 5)]
    lines = [{"step": step, "bandit/pulls/0": one, "bandit/pulls/1": other} for step, one, other in pulls]
    steps, shares = goal_space_shares(load_run(make_run(tmp_path / "bandit", lines)))
    assert steps.tolist() == [100, 200]
    np.testing.assert_allclose(shares["1"], [0.5, 0.75])
    steps, shares = goal_space_shares(load_run(make_run(tmp_path / "sac", [{"step": 1, "eval/return": 0.0}])))
    assert not len(steps)
    assert not shares


def test_the_last_fifth_counts_per_task(tmp_path):
    runs = [
        load_run(make_run(tmp_path / name, learnt(late), task))
        for name, late, task in (("a", 0.9, "walker/stairs"), ("b", 0.7, "walker/stairs"), ("c", 0.2, "walker/limbo"))
    ]
    axes = goal_spaces_by_task_figure(runs).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["walker/stairs (2 runs)", "walker/limbo (1 run)"]
    widths = {part.get_label(): [bar.get_width() for bar in part] for part in axes.containers}
    assert widths["0,1"] == pytest.approx([0.8, 0.2])
    assert widths["0"] == pytest.approx([0.2, 0.8])
    assert goal_spaces_figure(load_run(make_run(tmp_path / "one", [{"step": 1, "share/0": 1.0}]))) is None
    assert goal_spaces_by_task_figure([]) is None


def test_goal_spaces_beyond_the_colours_are_added_up(tmp_path):
    lines = [{"step": step, **{f"share/{n}": 0.1 for n in range(10)}} for step in (1, 2)]
    axes = goal_spaces_figure(load_run(make_run(tmp_path / "many", lines))).axes[0]
    assert [band.get_label() for band in axes.collections][-1] == "others"
    assert len(axes.collections) == 8


def test_the_command_draws_both(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        make_run(tmp_path / f"run_{seed}", learnt(0.8), seed=seed)
    assert main(["plot", "run_0", "run_1"]) == 0
    assert (tmp_path / "run_0" / "plots" / "goal_spaces.png").stat().st_size > 5000
    assert (tmp_path / "goal_spaces.png").stat().st_size > 5000
