"""`gaitway compare` as a user meets it: on run folders and on files of numbers."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gaitway.analysis.stats import TESTS as ALL_TESTS
from gaitway.analysis.stats import WelchTTest
from gaitway.cli import compare as command


def run(*arguments):
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers(dest="command"))
    options = parser.parse_args(["compare", *map(str, arguments)])
    assert options.command == "compare"
    return command.compare(options)


def write_run(folder, values, seed=0, rate=0.1, name="eval/return"):
    """A run whose metric has `values` at steps 100, 200, ..."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"seed: {seed}\nalgorithm: {{rate: {rate}}}\n")
    lines = [{"step": 100 * (index + 1), name: value} for index, value in enumerate(values)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def two(tmp_path, monkeypatch):
    """runs/slow and runs/fast with five runs each, in the current folder; the second learns more."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    values = {}
    for kind, gain, rate in (("slow", 10.0, 0.1), ("fast", 20.0, 0.2)):
        values[kind] = gain * np.arange(1, 7)[:, None] + generator.normal(size=(6, 5))  # [steps, runs]
        for seed, column in enumerate(values[kind].T):
            write_run(tmp_path / "runs" / kind / str(seed), column, seed, rate)
    return values


def test_folders_of_runs(two, capsys):
    assert run("runs/slow", "runs/fast") == 0
    said = capsys.readouterr().out
    assert said.startswith("eval/return at step 600\n")
    assert "slow  5  " in said
    assert "fast minus slow: " in said
    assert "Welch's t-test: p = " in said
    assert "Along the curve: different at 6 of 6 steps, from step 100 to 600, Holm corrected" in said
    assert "\nfast is higher than slow: by " in said
    assert said.endswith("\ncompare.png\ncompare.json\n")
    picture = np.asarray(Image.open("compare.png").convert("RGB"))
    assert min(picture.shape[:2]) > 500
    found = json.loads(Path("compare.json").read_text())
    assert found["p_value"] == WelchTTest().p_value(two["slow"][-1], two["fast"][-1])
    assert found["groups"][1]["mean"] == pytest.approx(two["fast"][-1].mean())
    assert found["curves"]["steps"] == [100, 200, 300, 400, 500, 600]
    assert found["verdict"] in said.replace("\n", " ")


def test_globs_labels_and_options(two, capsys):
    arguments = ("runs/slow/[012]", "runs/fast/*", "--labels", "A", "B", "--at", 300, "--last", 2, "--json")
    assert run(*arguments, "--test", "t", "--alpha", 0.01, "--out", "deep/mine.png") == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(Path("deep/mine.json").read_text())
    assert [group["label"] for group in found["groups"]] == ["A", "B"]
    np.testing.assert_allclose(found["groups"][0]["scores"], two["slow"][1:3, :3].mean(axis=0))
    assert (found["alpha"], found["confidence"], found["test"]) == (0.01, 0.99, "Student's t-test")


@pytest.mark.parametrize("out", ["there", "there/compare.json"])
def test_out_may_be_a_folder_or_the_numbers(two, out):
    run("runs/slow", "runs/fast", "--out", out)
    assert json.loads(Path("there/compare.json").read_text())["metric"] == "eval/return"
    assert Image.open("there/compare.png").size[0] > 500


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".npy", ".npz"])
def test_files_of_curves(two, tmp_path, capsys, suffix):
    for kind, values in two.items():
        path = tmp_path / f"{kind}{suffix}"
        if suffix == ".npy":
            np.save(path, values)
        elif suffix == ".npz":
            np.savez(path, values)
        else:
            np.savetxt(path, values, fmt="%.17g", delimiter="," if suffix == ".csv" else " ")
    assert run(f"slow{suffix}", f"fast{suffix}", "--point-every", 1000, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [group["label"] for group in found["groups"]] == ["slow", "fast"]
    assert found["step"] == 5000
    assert found["p_value"] == WelchTTest().p_value(two["slow"][-1], two["fast"][-1])
    assert found["curves"]["steps"] == [0, 1000, 2000, 3000, 4000, 5000]


def test_scores_of_unequal_number(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("1.0 1.2 0.9 1.1\n")
    (tmp_path / "b.csv").write_text("score\n3\n3.1\n\n2.9\nnan\n3.2\n")
    assert run("a.txt", "b.csv") == 0
    said = capsys.readouterr().out
    assert said.startswith("value\n")
    assert "left out, because they have no value: run 3 of b" in said
    assert "b is higher than a" in said
    assert "Along the curve" not in said
    assert "chance that a run of b is above one of a: 1.00, the groups do not overlap" in said
    assert "with fewer than 5 runs" in said


def test_a_file_against_runs(two, tmp_path, capsys):
    rows = np.column_stack([[200, 400, 600], two["slow"][1::2]])
    np.savetxt(tmp_path / "old.csv", rows, delimiter=",", header="step,a,b,c,d,e", comments="", fmt="%.17g")
    assert run("old.csv", "runs/fast", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["p_value"] == WelchTTest().p_value(two["slow"][-1], two["fast"][-1])
    assert found["curves"]["steps"] == [100, 200, 300, 400, 500, 600]
    assert [p is None for p in found["curves"]["p_values"]] == [True] + [False] * 5


def test_one_run_each_cannot_be_tested(two, capsys):
    assert run("runs/slow/0", "runs/fast/0", "--labels", "A", "B") == 0
    said = capsys.readouterr().out
    assert "Cannot be tested: 1 of A against 1 of B; two runs of each are needed." in said
    assert json.loads(Path("compare.json").read_text())["groups"][0]["interquartile_mean"]["low"] is None


def test_unequal_lengths_are_compared_where_all_are(two, tmp_path, capsys):
    write_run(tmp_path / "runs" / "fast" / "short", [1.0, 2.0, 3.0], seed=9, rate=0.2)
    run("runs/slow", "runs/fast")
    assert "eval/return at step 300" in capsys.readouterr().out
    run("runs/slow", "runs/fast", "--at", 600)
    assert "left out, because they have no value at step 600: short of fast" in capsys.readouterr().out


def test_mixed_groups_are_pointed_out(two, tmp_path, capsys):
    write_run(tmp_path / "runs" / "slow" / "other", two["slow"][:, 0], seed=9, rate=0.7)
    run("runs/slow", "runs/fast")
    assert "note: the runs of slow differ in more than the seed: algorithm/rate" in capsys.readouterr().out


def test_other_metrics(two, tmp_path, capsys):
    for kind in ("slow", "fast"):
        for seed in range(2):
            write_run(tmp_path / "more" / kind / str(seed), [1.0 + seed, 2.0], name="loss/value")
    assert run("more/slow", "more/fast", "--metric", "loss/value") == 0
    assert "loss/value at step 200" in capsys.readouterr().out
    with pytest.raises(ValueError, match="no values of eval/return or train/return"):
        run("more/slow", "more/fast")


def test_mistakes_are_answered_with_a_sentence(two, tmp_path):
    with pytest.raises(ValueError, match="there is nothing at nowhere; name a run folder"):
        run("nowhere", "runs/fast")
    with pytest.raises(ValueError, match=r"fast.0 is in both groups"):
        run("runs", "runs/fast/0")
    (tmp_path / "x.npy").write_bytes(b"")
    (tmp_path / "y.npy").write_bytes(b"")
    with pytest.raises(ValueError, match="matches 2 files; give one file with a column for each run"):
        run("*.npy", "runs/fast")
    (tmp_path / "x.docx").write_bytes(b"")
    with pytest.raises(ValueError, match=r"neither a folder nor a file that ends with \.txt"):
        run("x.docx", "runs/fast")
    np.save(tmp_path / "trap.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="Object arrays cannot be loaded"):
        run("trap.npy", "runs/fast")


def test_labels_are_short_and_distinct():
    assert command.distinct("runs/ppo", "runs/sac") == ("ppo", "sac")
    assert command.distinct("runs/ppo/", "old/sac.csv") == ("ppo", "sac")
    assert command.distinct("old/ppo", "new/ppo") == ("old/ppo", "new/ppo")
    assert command.distinct("ppo", "ppo") == ("ppo (A)", "ppo (B)")


def test_every_test_has_its_option():
    assert tuple(ALL_TESTS) == command.TESTS


def test_the_parser_imports_nothing_heavy():
    code = (
        "import argparse, sys, gaitway.cli.compare as c; c.add_parser(argparse.ArgumentParser().add_subparsers());"
        "print([name for name in ('torch', 'scipy', 'pandas', 'matplotlib', 'rich') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_the_command_imports_nothing_that_trains(two):
    code = (
        "import argparse, sys, gaitway.cli.compare as c; p = argparse.ArgumentParser();"
        "c.add_parser(p.add_subparsers()); c.compare(p.parse_args(['compare', 'runs/slow', 'runs/fast', '--json']));"
        "assert not any(n == 'torch' or n.startswith('gaitway.runners') for n in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
