"""Plans of commands that share a machine: their order, what is stopped in time, and the plans of this repository."""

import argparse
import importlib
import json
import os
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gaitway.cli.compose import compose
from gaitway.cli.train_config import TrainConfig, choices, parse
from gaitway.core.config import to_config

ROOT = Path(__file__).resolve().parents[2]
PLANS = sorted((ROOT / "benchmarks" / "plans").glob("*.yaml"))


@pytest.fixture
def plan(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    before = set(sys.modules)
    yield importlib.import_module("plan")
    for name in set(sys.modules) - before:
        if str(ROOT / "benchmarks") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def call(tmp_path):
    """Writes the jobs given and runs the plan: exit code and output."""

    def calling(jobs, *arguments):
        (tmp_path / "plan.yaml").write_text(json.dumps({"jobs": jobs, "words": {"order": "{work}/order"}}))
        command = [
            sys.executable,
            ROOT / "benchmarks" / "plan.py",
            tmp_path / "plan.yaml",
            "--work",
            tmp_path,
            *arguments,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    return calling


def states(folder):
    return {name: row["state"] for name, row in json.loads((folder / "plan.json").read_text()).items()}


def test_jobs_go_by_cores_and_by_what_they_wait_for(plan, tmp_path):
    jobs = [
        plan.Job("first", "", cores=3),
        plan.Job("wide", "", cores=2),
        plan.Job("narrow", ""),
        plan.Job("later", "", after=("first",)),
        plan.Job("alone", "", alone=True),
        plan.Job("last", ""),
        plan.Job("huge", "", cores=99),
    ]
    first, wide, narrow, later, alone, last, huge = jobs
    board = plan.Board(tmp_path, again=False)

    def following(left, running, seconds=100.0):
        return plan.next_job(left, running, board, 4, seconds)

    assert following(jobs, []) is first
    assert following(jobs[1:], [first]) is narrow, "wide waits for cores; who fits does not wait for it"
    assert following([later, alone, last], [wide, narrow]) is None, "later waits for first, last stands behind alone"
    board.put(first, "done")
    assert following([later, alone, last], [wide, narrow]) is later
    assert following([alone, last], []) is alone
    assert following([last], [alone]) is None
    assert following([huge], []) is huge, "on a machine with too few cores it runs by itself"
    assert following([huge], [last]) is None
    board.put(last, "stopped", 5.0)
    assert following([narrow, last], []) is last, "what was stopped goes first"
    long = plan.Job("long", "", seconds=50.0)
    assert following([long], [], 49.0) is None
    assert following([long], [], 51.0) is long


def test_a_call_stops_in_time_and_the_next_one_goes_on(call, tmp_path):
    first = "test -e {work}/half && exit 0; touch {work}/half; sleep 60 & wait"
    jobs = {
        "quick": {"command": "echo quick >> {order}"},
        "learner": {"command": f"trap 'exit 75' TERM; echo learner >> {{order}}; {first}"},
        "behind": {"command": "echo behind >> {order}", "after": "learner"},
    }
    code, text = call(jobs, "--seconds", "3")
    assert code == 3, text
    assert states(tmp_path) == {"quick": "done", "learner": "stopped"}
    code, text = call(jobs)
    assert code == 0, text
    assert set(states(tmp_path).values()) == {"done"}
    order = (tmp_path / "order").read_text().split()
    assert (sorted(order[:2]), order[2:]) == (["learner", "quick"], ["learner", "behind"])
    code, text = call(jobs, "--list")
    assert [line.split()[:2] for line in text.splitlines()] == [[name, "done"] for name in jobs]


def test_what_fails_shows_its_last_lines_and_holds_back_what_comes_after(call, tmp_path):
    jobs = {
        "bad": {"command": "echo why; exit 4"},
        "behind": {"command": "true", "after": ["bad"]},
        "other": {"command": "true"},
    }
    code, text = call(jobs)
    assert (code, states(tmp_path)) == (1, {"bad": "failed", "other": "done"})
    assert "why" in text
    jobs["long"] = {"command": "true", "seconds": 1000}
    assert call(jobs, "--seconds", "100")[0] == 3, "something is left that did not fail"
    del jobs["long"]
    jobs["bad"]["command"] = "true"
    assert call(jobs)[0] == 1, "what failed does not begin again by itself"
    assert call(jobs, "--again")[0] == 0


def test_who_runs_alone_does_not_share_the_device(call, tmp_path, monkeypatch):
    program = tmp_path / "nvidia-cuda-mps-control"
    program.write_text(f'#!/bin/bash\n{{ [ "$1" = -d ] && echo begins || cat; }} >> {tmp_path}/mps.log\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    jobs = {
        "alone": {"command": "echo alone ${CUDA_MPS_PIPE_DIRECTORY-none} >> {order}", "alone": True},
        "beside": {"command": "echo beside ${CUDA_MPS_PIPE_DIRECTORY-none} >> {order}"},
    }
    assert call(jobs)[0] == 0
    assert (tmp_path / "order").read_text().splitlines() == ["alone none", f"beside {tmp_path}/mps"]
    assert (tmp_path / "mps.log").read_text().split() == ["begins", "quit"]
    assert call(jobs, "--again", "--no-mps")[0] == 0


@pytest.mark.parametrize(
    ("jobs", "sentence"),
    [
        ({"a": {"cores": 2}}, "needs a command"),
        ({"a": {"command": "true", "core": 2}}, "needs a command and may have"),
        ({"a": {"command": "true", "after": "b"}, "b": {"command": "true"}}, "must stand before it"),
    ],
)
def test_a_plan_that_cannot_be_followed_is_refused(call, jobs, sentence):
    code, text = call(jobs)
    assert code == 1
    assert sentence in text
    assert "Traceback" not in text


@pytest.mark.parametrize("path", PLANS, ids=[path.stem for path in PLANS])
def test_every_command_of_a_plan_is_one_that_its_program_takes(plan, path, monkeypatch):
    """Scripts by their own parsers, trainings by composing their configuration."""
    for job in plan.read_plans([path]).jobs:
        python, *words = shlex.split(job.command.replace("{work}", "WORK"))
        assert python == "python", job
        if words[:2] == ["-m", "pytest"]:
            assert all((ROOT / word).exists() for word in words if word.endswith(".py")), job
        elif words[:3] == ["-m", "gaitway", "train"]:
            arguments = [word.replace("cuda", "cpu") for word in words[3:] if not word.startswith("--")]
            compose(arguments, to_config(TrainConfig()), parse, **choices())
        else:
            assert _taken(words, monkeypatch), job


def _taken(words, monkeypatch):
    """Whether the script's own parser takes these arguments: the script ends there."""

    class TakenError(Exception):
        pass

    def parse_args(self, *arguments, **named):
        known(self, *arguments, **named)
        raise TakenError

    known = argparse.ArgumentParser.parse_args
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", words)
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
        with pytest.raises(TakenError):
            runpy.run_path(str(ROOT / words[0]), run_name="__main__")
    return True
