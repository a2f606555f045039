"""The story of the quadruped: its commands are those of its page, and run one after the other."""

import importlib.util
import json
from pathlib import Path

import pytest

from gaitway.cli.main import main

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "quadruped"
ALONE = ["torch_threads=1", "env.num_threads=1", "logging.code=none"]


@pytest.fixture(scope="module")
def story():
    spec = importlib.util.spec_from_file_location("story", FOLDER / "story.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_commands(story, monkeypatch):
    monkeypatch.chdir(ROOT)
    lines = (FOLDER / "README.md").read_text().splitlines()
    said = [line.replace('"', "") for line in lines if line.startswith("gaitway ")]
    assert sorted(said) == sorted(" ".join(("gaitway", *step)) for step in story.steps("runs/quadruped").values())


@pytest.mark.long
def test_every_command_runs(story, tmp_path, capsys):
    """In one process and at a tiny size; `--json` where figures are told."""
    (tmp_path / "skills.yaml").write_text((FOLDER / "skills.yaml").read_text())
    for name, step in story.steps(str(tmp_path)).items():
        command = story.quick(step)
        more = {"train": ["--quiet", *ALONE], "eval": ["--json"], "export": ["--format", "onnx"]}[command[0]]
        capsys.readouterr()
        assert main([*command, *more]) == 0, name
        if command[0] == "eval":
            assert json.loads(capsys.readouterr().out)["episodes"] == 2
    contract = json.loads((tmp_path / "student" / "export" / "policy_contract.json").read_text())
    assert [each["name"] for each in contract["inputs"]] == ["obs/student"]  # what a robot has to show
