"""`gaitway export` as a user meets it: what it prints, what it refuses, whom it trusts."""

import json
import shutil
import sys

import pytest
import yaml

from gaitway.cli.main import main


@pytest.fixture
def copy(run, tmp_path):
    """The run without its export."""
    folder = shutil.copytree(run, tmp_path / "run", symlinks=True)
    shutil.rmtree(folder / "export")
    return folder


def refused(capsys, *arguments):
    capsys.readouterr()
    assert main(["export", *map(str, arguments)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    return lines[0]


def listing(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_it_says_the_largest_difference(copy, tmp_path, capsys):
    out = tmp_path / "far" / "away"
    before = listing(copy)
    options = ["--format", "torch", "--checkpoint", "last", "--json", "device=cpu"]
    assert main(["export", str(copy), f"--out={out}", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["largest_difference"] == max(found["differences"].values()) <= 1e-5
    assert (found["observations"], found["episodes"], found["driven_steps"]) == (1000, 10, 200)
    assert listing(out) == ["policy.pt2", "policy_contract.json"]
    assert listing(copy) == before
    assert main(["export", str(copy), "--format", "torch"]) == 0
    shown = capsys.readouterr().out
    assert "1,000 observations of 10 episodes, 200 steps driven" in shown
    assert "largest difference of actions" in shown
    assert listing(copy / "export") == listing(out)


def test_options_of_another_environment_are_those_of_a_run(copy, capsys):
    proof = ["--env", "toy/pendulum", "env.options.max_episode_steps=50", "--format", "torch", "--json"]
    assert main(["export", str(copy), *proof]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["episodes"], found["driven_steps"]) == (20, 50)  # 1,000 observations


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_without_the_extra(copy, package, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, package, None)
    before = listing(copy)
    said = refused(capsys, copy)
    assert f"needs {package}" in said
    assert "pip install gaitway[export]" in said
    assert listing(copy) == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--checkpoint", "7"], "no checkpoint '7'"),
        (["--env", "toy/cartpole"], "does not fit toy/cartpole"),
        (["--env", "toy/pendulumm"], "no environment 'toy/pendulumm'"),
        (["device=fast"], "device"),
        (["steps=3"], "the one key here is device"),
        (["env.options.max_episode_steps=50"], "the one key here is device"),
        (["--env", "toy/pendulum", "steps=3"], "device=cuda or env.options.NAME=VALUE"),
        (["--out", "{run}"], "exists and is not an export"),
        (["--out", "{run}/config.yaml"], "exists and is not an export"),
        (["--out", "{run}/config.yaml/export"], "cannot write"),
    ],
)
def test_mistakes_leave_nothing_behind(copy, options, words, capsys):
    before = listing(copy)
    assert words in refused(capsys, copy, *(option.format(run=copy) for option in options))
    assert listing(copy) == before


def test_what_is_no_run(tmp_path, capsys):
    assert "there is no folder" in refused(capsys, tmp_path / "nothing")
    assert "is not a run folder" in refused(capsys, tmp_path)


class TestTrust:
    @pytest.fixture
    def stranger(self, copy):
        """A run from elsewhere that names a module of its maker's."""
        (copy / "fingerprint.json").unlink()
        return copy

    def test_names_of_ours_are_exported(self, stranger):
        assert main(["export", str(stranger), "--format", "torch"]) == 0

    def test_other_names_are_not_imported(self, stranger, tmp_path, monkeypatch, capsys):
        (tmp_path / "evil.py").write_text("import pathlib\npathlib.Path(__file__).with_name('RAN').touch()\n")
        monkeypatch.chdir(tmp_path)
        config = yaml.safe_load((stranger / "config.yaml").read_text())
        config["agent"]["blocks"] = [{"name": "evil:Block", "reads": ["pos"], "writes": "x"}]
        (stranger / "config.yaml").write_text(yaml.safe_dump(config))
        said = refused(capsys, stranger)
        assert "'evil:Block'" in said
        assert "--trust evil" in said
        assert not (tmp_path / "RAN").exists()
        assert not (stranger / "export").exists()
        assert main(["export", str(stranger), "--trust", "evil"]) == 1  # it has no Block
        assert (tmp_path / "RAN").exists()


def test_the_contract_says_the_gait_that_the_policy_was_proven_with(tmp_path, monkeypatch):
    """Its authority may have moved in training; the contract of the run says how it began."""
    monkeypatch.setattr("gaitway.cli.training.plot_run", lambda path: [])
    short, run = "env.options.episode_seconds=0.1", tmp_path / "run"
    small = ["algorithm=ppo", "algorithm.rollout_steps=4", "algorithm.minibatches=1", "env.num_envs=2", "total_steps=8"]
    small += ["agent.actor_hidden=[8]", "agent.critic_hidden=[8]", "evaluation.episodes=1", "preflight=false"]
    assert main(["train", "env.id=pup12/gait_residual", short, *small, f"run_dir={run}", "--quiet"]) == 0
    elsewhere = ["--env", "pup12/gait_residual", "env.options.gait.authority=0"]
    for more, authority in (([], 1.0), (elsewhere, 0.0)):
        assert main(["export", str(run), "--format", "torch", *more]) == 0
        contract = json.loads((run / "export" / "policy_contract.json").read_text())
        assert contract["gait"].get("authority", 1.0) == authority
    assert contract["gait"]["frequency"] == 2.5
