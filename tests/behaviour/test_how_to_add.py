"""The stranger's questions: the files and commands of docs/how_to_add.md, run as they stand there."""

import json
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gaitway.cli.build import build_runner
from gaitway.cli.config_file import write_config
from gaitway.cli.main import main
from gaitway.cli.open_run import open_run
from gaitway.core.config import to_config
from gaitway.runners.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how_to_add.md").read_text()
QUESTIONS = ("A loss", "A reward", "An encoder", "A robot")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHORT = {"total_steps=20000": "total_steps=1536", "more=10000": "more=512", "total_steps=2000": "total_steps=300"}


def section(title):
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def lay_out(title, folder):
    """Write the files of a section into `folder`; returns its commands."""
    commands = []
    for kind, body in FENCE.findall(section(title)):
        if kind == "console":
            commands += [line.removeprefix("$ ") for line in body.splitlines()]
        elif body.startswith("# "):
            name = body.splitlines()[0].removeprefix("# ")
            (folder / name).write_text(body)
    return commands


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("own_robot.py", "own_robot.xml"):
        shutil.copy(ROOT / "examples" / name, tmp_path / name)
    yield tmp_path
    for name in ("my_parts", "own_robot"):
        sys.modules.pop(name, None)


def shortened(command):
    for long, short in SHORT.items():
        command = command.replace(long, short)
    words = shlex.split(command)
    assert words[0] == "gaitway"
    return words[1:]


@pytest.mark.parametrize("title", QUESTIONS)
def test_the_commands_of_the_page_run(title, folder, capsys):
    commands = lay_out(title, folder)
    verbs = [shlex.split(command)[1] for command in commands]
    assert {"train", "resume", "eval", "play"} <= set(verbs)
    for command in commands:
        words = shortened(command)
        quiet = ["--quiet"] if words[0] in ("train", "resume") else []
        assert main([*words, *quiet]) == 0, command
    run = next(folder.glob("runs/*"))
    state = json.loads((run / "summary.json").read_text())
    assert state["steps"] >= 300
    name = {"A loss": "loss/effort", "A reward": "reward/upright", "An encoder": None, "A robot": "env/tracking"}[title]
    logged = folder / "runs" / {"A loss": "effort", "A reward": "upright", "A robot": "robot"}.get(title, "waves")
    assert name is None or name in (logged / "metrics.jsonl").read_text()


@pytest.mark.parametrize("title", QUESTIONS)
def test_what_a_stranger_adds_resumes_bit_for_bit(title, folder):
    train = shortened(lay_out(title, folder)[1 if title == "A robot" else 0])
    assert main([*train, "evaluation.interval=100000", "evaluation.episodes=1", "--quiet"]) == 0
    _, config = open_run(next(word for word in train if word.startswith("run_dir=")).removeprefix("run_dir="))
    config = replace(config, total_steps=1024)
    whole = build_runner(config, None)
    whole.learn()
    parts = RunFolder.create(folder / "parts")
    write_config(parts.config, to_config(config), {})
    first = build_runner(config, parts)
    first.learn(512)
    first.close()
    second = build_runner(config, RunFolder.open(folder / "parts"))
    assert second.resume() == 512
    second.learn()
    assert second.parameters_sha256() == whole.parameters_sha256()
    other = build_runner(replace(config, seed=1), None)
    other.learn()
    assert other.parameters_sha256() != whole.parameters_sha256()
