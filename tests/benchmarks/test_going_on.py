"""Benchmarks that are stopped and begun again: what they keep, what they refuse, what must begin anew."""

import argparse
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    """Imports a benchmark by its name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(BENCHMARKS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_what_a_file_holds_is_kept_if_it_was_made_alike(benchmark, tmp_path, capsys):
    rounds, path = benchmark("_rounds"), tmp_path / "result.json"
    about = {"commit": "abc", "options": {"sizes": (1, 2)}}
    assert rounds.kept(path, about) == {}
    assert rounds.kept(None, about) == {}
    rounds.keep(path, about | {"rows": {"1": 2.0}})
    assert rounds.kept(path, about)["rows"] == {"1": 2.0}
    assert capsys.readouterr().err == ""
    assert rounds.kept(path, about | {"commit": "def"}) == {}
    assert "another commit; everything begins anew" in capsys.readouterr().err


def test_parts_may_be_others_and_options_may_not(benchmark, tmp_path):
    results = benchmark("_warp").Results
    out = str(tmp_path / "result.json")

    def given(**options):
        return argparse.Namespace(out=out, commit="abc", device="cpu", **options)

    first = results("walks", given(seconds=5.0, seeds=[0]), ("seeds",))
    first.note(seeds={"0": 1.0})
    assert results("walks", given(seconds=5.0, seeds=[0, 1]), ("seeds",)).held("seeds") == {"0": 1.0}
    assert results("walks", given(seconds=6.0, seeds=[0, 1]), ("seeds",)).held("seeds") == {}


def test_a_checkout_is_not_compared_with_itself_because_the_other_is_missing(benchmark, tmp_path):
    command = [sys.executable, str(BENCHMARKS / "against.py"), "--other", str(tmp_path / "before")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "holds no src/gaitway/__init__.py; --other is the folder of a whole checkout" in done.stderr
    against = benchmark("against")
    with pytest.raises(SystemExit, match="nothing is timed"):
        against.check_library(tmp_path)


def test_a_run_in_peace_that_was_stopped_begins_anew_and_a_whole_one_is_kept(benchmark, tmp_path, monkeypatch):
    kills = benchmark("warp_kills")
    run, calls = tmp_path / "in_peace_0", []
    (run / "checkpoints").mkdir(parents=True)

    def train(command, **named):
        calls.append((run / "checkpoints").exists())
        run.mkdir(exist_ok=True)
        (run / "summary.json").write_text(json.dumps({"last": {"return": 2.0, "velocity_rmsd": None}}))

    monkeypatch.setattr(kills.subprocess, "run", train)
    monkeypatch.setattr(kills, "revision", lambda: "abc")
    given = argparse.Namespace(work=str(tmp_path), preset="x", device="cpu", steps=100, changes=[], commit=None)
    first = kills.trained(given, 0, None)
    assert calls == [False], "nothing of what was disturbed is left"
    assert first["return"] == 2.0
    assert kills.trained(given, 0, None) == first
    assert len(calls) == 1
    given.commit = "def"
    kills.trained(given, 0, None)
    assert len(calls) == 2, "another commit"


def test_seeds_that_never_walk_count_as_last(benchmark):
    median = benchmark("warp_walks").median_of
    seeds = {str(seed): {"reached": {"0.20": float(seed)}} for seed in range(3)} | {
        "3": {"reached": {}},
        "4": {"reached": {}},
    }
    assert median(seeds, "0.20") == 2.0
    assert median(seeds, "0.10") is None


def test_overlapped_runs_are_compared_when_all_are_there(benchmark):
    parity = benchmark("overlap_parity")
    runs = {
        parity.name_of(seed, way): {"return": float(seed + 10 * way), "seconds": 1.0}
        for seed in (0, 1)
        for way in parity.WAYS
    }
    found = parity.table(runs, [0, 1])
    assert found["overlapped"]["returns"] == [10.0, 11.0]
    assert found["one waits for the other"]["mean"] == 0.5
    assert found["p_value"] == pytest.approx(1 / 3)  # of the six ways to share them out, this one and its opposite
