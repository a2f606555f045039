"""What is written down of runs on courses: curves of evaluations and of training, and rows of older files."""

import json
import sys
from pathlib import Path

import pandas as pd
import pytest

from gaitway.analysis.runs import load_runs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def courses(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    before = set(sys.modules)
    import course_results

    yield course_results
    for name in set(sys.modules) - before:
        if str(ROOT / "benchmarks") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_training_is_told_beside_every_evaluation(courses, tmp_path):
    rows = [
        {"step": 100, "train/return": -1.0, "env/score": 0.0},
        {"step": 200, "train/return": 1.0, "env/score": 0.5, "eval/score": 0.0},
        {"step": 300, "env/score": 0.25},
        {"step": 400, "train/return": 4.0, "env/score": 0.75, "eval/score": 2.0},
        {"step": 500, "train/return": 9.0, "env/score": 1.0},  # no evaluation has come behind it
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "config.yaml").write_text("algorithm: {name: hiro}\nenv: {id: walker/stairs}\nseed: 3\n")
    (run,) = load_runs([str(tmp_path)])
    found = courses.facts(run, "abc", None)
    assert found["curve"] == [[200, 0.0], [400, 2.0]]
    assert found["train_return"] == [[200, 0.0], [400, 4.0]], "(-1 + 1) / 2, and 4 alone"
    assert found["train_score"] == [[200, 0.25], [400, 0.5]], "(0 + 0.5) / 2, (0.25 + 0.75) / 2"
    assert json.loads(json.dumps(found)) == found


def test_runs_that_logged_no_training_or_no_evaluation_have_empty_curves(courses):
    nothing, steps = pd.Series(dtype=float), pd.Series([1.0, 2.0], index=[100, 200])
    assert courses.between(nothing, steps.index) == []
    assert courses.between(steps, nothing.index) == []
    assert courses.between(steps, pd.Index([0, 200])) == [[200, 1.5]], "nothing was logged before an evaluation at 0"


def test_rows_of_files_without_curves_of_training_stay(courses, tmp_path):
    known = json.loads((ROOT / "benchmarks" / "results" / "courses_baselines.json").read_text())
    new = known["runs"][0] | {"train_return": [[50000, 1.0]], "train_score": [[50000, 0.1]]}
    rows = courses.with_earlier([new], known)
    assert len(rows) == len(known["runs"])
    assert rows[-1] is new
    courses.picture(rows, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").exists()
