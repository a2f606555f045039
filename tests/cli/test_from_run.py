"""`gaitway distill` and `gaitway finetune`: from a run to a student to a fine-tuned policy, through every command."""

import json
import shutil

import pytest
import torch
import yaml

import gaitway
from gaitway.cli.main import main
from gaitway.core.files import load_state

TINY = ["env.num_envs=8", "torch_threads=1", "log_level=warning", "evaluation.episodes=2", "evaluation.max_steps=20"]
PPO = ["algorithm.rollout_steps=8", "algorithm.minibatches=2", "algorithm.epochs=2", "agent.critic_hidden=[8]"]
EXPERT = ["env.id=toy/pendulum", "env.options.max_episode_steps=20", "agent.actor_hidden=[8]", "total_steps=256"]
STUDENT = ["agent.memory.kind=gru", "agent.memory.size=4", "agent.observations.actor=[pos]", "agent.actor_hidden=[8]"]


@pytest.fixture(scope="module")
def expert(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "expert"
    assert main(["train", *TINY, *PPO, *EXPERT, f"run_dir={path}", "--quiet"]) == 0
    return path


@pytest.fixture(scope="module")
def student(expert):
    path = expert.parent / "student"
    own = [*STUDENT, "agent.critic_hidden=[8]", "algorithm.rollout_steps=8", "total_steps=256", *TINY[1:3]]
    assert main(["distill", str(expert), *own, f"run_dir={path}", "--quiet"]) == 0
    return path


def metrics(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def config(path):
    return yaml.safe_load((path / "config.yaml").read_text())


def test_a_student_has_its_teachers_world_and_its_own_networks(expert, student):
    found, there = config(student), config(expert)
    assert found["env"] == there["env"]
    assert found["evaluation"]["max_steps"] == 20
    assert found["algorithm"]["name"] == "distillation"
    assert found["cast"] == [{"name": "teacher", "teachers": [str(expert.resolve())]}]
    assert found["agent"]["observations"]["actor"] == ["pos"]
    assert "# run " in (student / "config.yaml").read_text()
    lines = [line for line in metrics(student) if "loss/imitation" in line]
    assert {"imitation/error/torque", "teacher/student_share", "teacher/student_return"} <= set().union(*lines)


def test_a_student_goes_through_every_command(student, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(student, copy, symlinks=True)
    assert main(["resume", str(student), "more=64", "--quiet"]) == 0
    assert main(["eval", str(student), "--episodes", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["episodes"] == 2
    assert main(["play", str(student), "--no-video"]) == 0
    assert main(["info", str(student)]) == 0
    assert "distillation" in capsys.readouterr().out
    loaded = gaitway.load(student)
    assert loaded.predict({"pos": [1.0, 0.0]}).shape == (1,)  # of what the teacher sees nothing is asked


def test_fine_tuning_begins_with_the_critic(student, tmp_path):
    path = tmp_path / "tuned"
    own = ["algorithm.rollout_steps=8", "algorithm.minibatches=2", "algorithm.critic_warmup=2", "total_steps=256"]
    assert main(["finetune", str(student), *own, *TINY[1:3], f"run_dir={path}", "--quiet"]) == 0
    found = config(path)
    assert found["algorithm"]["name"] == "ppo"
    assert found["agent"] == config(student)["agent"]
    assert found["cast"] == []
    assert found["init_from"]["run"] == str(student.resolve())
    states = {}
    for step in sorted((path / "checkpoints").glob("[0-9]*")):
        states[int(step.name)] = load_state(step, kind="checkpoint")[0]["algorithm"]["policy"]
    first = states[0]
    assert min(states) == 0
    assert len(states) > 1
    last = states[max(states)]
    moved = {
        name for name, value in first.items() if isinstance(value, torch.Tensor) and not torch.equal(value, last[name])
    }
    assert any(name.startswith("actor.") for name in moved)
    assert any(name.startswith("critic.") for name in moved)


def test_defaults_of_fine_tuning(expert, capsys):
    assert main(["finetune", str(expert), "--show-config"]) == 0
    found = yaml.safe_load(capsys.readouterr().out)
    there = config(expert)
    assert found["algorithm"] == there["algorithm"] | {"critic_warmup": 10}
    assert (found["total_steps"], found["env"]["options"]) == (there["total_steps"], there["env"]["options"])


def test_a_teacher_that_learns_on_is_not_the_same(expert, student, tmp_path, capsys):
    copies = [tmp_path / name for name in ("expert", "student")]
    for source, copy in zip((expert, student), copies, strict=True):
        shutil.copytree(source, copy, symlinks=True)
    text = (copies[1] / "config.yaml").read_text().replace(str(expert.resolve()), str(copies[0].resolve()))
    (copies[1] / "config.yaml").write_text(text)
    assert main(["resume", str(copies[0]), "more=256", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["resume", str(copies[1]), "more=64", "--quiet", "--trust", str(tmp_path)]) == 1
    assert "teachers[0] is not the one that this run has learnt from" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "arguments", "said"),
    [
        ("distill", ["env.id=toy/cartpole"], "cast[0]: teachers[0] does not fit toy/cartpole"),
        ("distill", ["rewards=[rnd]"], "distillation learns from labels and not from rewards; leave rewards empty"),
        ("distill", ["cast=[]"], "loss imitation reads 'teacher/action', which nobody writes"),
        ("distill", ["agent.observations.actor=[poss]"], "agent.observations.actor names 'poss' (did you mean 'pos'?)"),
        ("finetune", ["agent.actor_hidden=[9]"], "init_from"),
    ],
)
def test_what_does_not_fit_is_told_in_a_sentence(command, arguments, said, expert, tmp_path, capsys):
    path = tmp_path / "never"
    assert main([command, str(expert), *arguments, f"run_dir={path}", "--quiet"]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not path.exists()


def test_runs_that_cannot_be_gone_on_from(expert, tmp_path, capsys):
    untrained, soft = tmp_path / "untrained", tmp_path / "soft"
    shutil.copytree(expert, untrained, symlinks=True)
    for checkpoint in (untrained / "checkpoints").iterdir():  # as a run that was stopped before its first iteration
        if checkpoint.is_symlink():
            checkpoint.unlink()
        elif checkpoint.is_dir() and checkpoint.name != "0":
            shutil.rmtree(checkpoint)
    (untrained / "checkpoints" / "last").symlink_to("0")
    small = ["agent.actor_hidden=[8]", "agent.critic_hidden=[8]"]
    sac = ["algorithm=sac", "env.id=toy/pendulum", "total_steps=16", *small]
    assert main(["train", *TINY, *sac, f"run_dir={soft}", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["distill", str(untrained), f"run_dir={tmp_path / 'a'}", "--quiet"]) == 1
    assert "has not learnt yet, its only checkpoint is of step 0; train it first" in capsys.readouterr().err
    assert main(["finetune", str(soft), f"run_dir={tmp_path / 'b'}", "--quiet"]) == 1
    assert "learnt by sac, whose policy PPO cannot take over" in capsys.readouterr().err
    student = [*small, "total_steps=64", "algorithm.rollout_steps=8"]
    assert main(["distill", str(soft), *student, f"run_dir={tmp_path / 'c'}", "--quiet"]) == 0  # any policy teaches
