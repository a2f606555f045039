"""Every command on an off-policy run, as a user meets it."""

import json
import os
import shutil

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gaitway.cli.main import main
from gaitway.cli.train_config import EnvConfig, TrainConfig, effective, parse
from gaitway.core.config import ConfigError, to_config
from gaitway.runners import capacity

TINY = ["algorithm=sac", "env.id=toy/pendulum", "env.num_envs=2", "algorithm.iteration_steps=64",
        "algorithm.learning_starts=64", "algorithm.replay_size=150", "algorithm.batch_size=16",
        "agent.actor_hidden=[16]", "agent.critic_hidden=[16]", "evaluation.episodes=2", "evaluation.interval=128",
        "checkpoints.interval=64", "total_steps=256"]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory, drawn):
    path = tmp_path_factory.mktemp("runs") / "soft"
    with drawn():
        assert main(["train", *TINY, f"run_dir={path}", "seed=3", "--quiet"]) == 0
    return path


@pytest.fixture
def copy(run, tmp_path):
    shutil.copytree(run, tmp_path / "copy", symlinks=True)
    return tmp_path / "copy"


def info(path, capsys):
    capsys.readouterr()
    assert main(["info", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_run_folder_holds_everything(run):
    assert {"config.yaml", "contract.json", "summary.json", "metrics.jsonl", "checkpoints", "replay", "plots"} <= {
        path.name for path in run.iterdir()
    }
    assert os.readlink(run / "checkpoints" / "last") == "256"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {"loss/actor", "loss/critic", "train/updates", "time/share_simulate"} <= set().union(*lines)
    assert [line["train/updates"] for line in lines if "train/updates" in line] == [0, 64, 128, 192]
    assert (run / "plots" / "losses.png").exists()
    assert "replay: 150 transitions" in (run / "run.log").read_text()


def test_the_memory_of_the_replay_is_said_before_the_run(tmp_path, capsys):
    assert main(["train", *TINY, "total_steps=64", f"run_dir={tmp_path / 'run'}"]) == 0
    assert capsys.readouterr().out.startswith("replay: 150 transitions, ")


def test_info_eval_plot_and_list(run, capsys):
    found = info(run, capsys)
    assert (found["algorithm"], found["steps"]) == ("sac", 256)
    assert main(["eval", str(run), "--checkpoint", "last", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["return"] == json.loads((run / "summary.json").read_text())["last"]["return"]
    assert main(["plot", str(run)]) == 0
    capsys.readouterr()
    assert main(["list", "algorithms", "--json"]) == 0
    assert {"ppo", "sac"} <= {row["id"] for row in json.loads(capsys.readouterr().out)}


def test_play(tmp_path):
    path = tmp_path / "run"
    short = ["total_steps=64", "algorithm.learning_starts=32", "algorithm.iteration_steps=32", "evaluation.episodes=1"]
    assert main(["train", "experiment=sac_pendulum", *short, f"run_dir={path}", "--quiet"]) == 0
    assert main(["play", str(path), "--length", "4"]) == 0
    assert (path / "videos" / "play.mp4").stat().st_size > 500


def test_interval_videos(tmp_path):
    path = tmp_path / "run"
    short = ["total_steps=64", "algorithm.learning_starts=32", "algorithm.iteration_steps=32", "evaluation.episodes=1"]
    film = ["video.interval=32", "video.length=3", "logging.tensorboard=true"]
    assert main(["train", "experiment=sac_pendulum", *short, *film, f"run_dir={path}", "--quiet"]) == 0
    assert {video.name for video in (path / "videos").iterdir()} == {"32.mp4", "64.mp4"}
    events = EventAccumulator(str(path / "tensorboard"), size_guidance={"images": 0})
    events.Reload()
    assert len(events.Images("video/policy")) == 2


def test_resume_is_exact(run, copy, tmp_path, capsys):
    whole = tmp_path / "whole"
    assert main(["train", *TINY, f"run_dir={whole}", "seed=3", "total_steps=384", "--quiet"]) == 0
    assert main(["resume", str(copy), "until=384", "--quiet"]) == 0
    assert info(copy, capsys)["parameters_sha256"] == info(whole, capsys)["parameters_sha256"]


def test_a_lost_chunk_gets_one_sentence_and_the_way_out_works(copy, capsys):
    chunk = sorted((copy / "replay").iterdir())[-1]
    shutil.rmtree(chunk)
    before = (copy / "metrics.jsonl").read_bytes()
    assert main(["resume", str(copy), "more=128", "--quiet"]) == 1
    sentence = [line for line in capsys.readouterr().err.splitlines() if line.startswith("gaitway:")]
    assert len(sentence) == 1
    assert chunk.name in sentence[0]
    assert f"gaitway resume {copy} --fresh-replay" in sentence[0]
    assert (copy / "metrics.jsonl").read_bytes() == before
    assert main(["resume", str(copy), "more=128", "--fresh-replay", "--quiet"]) == 0
    assert info(copy, capsys)["steps"] == 384
    lines = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    assert [line["train/updates"] for line in lines if line.get("train/updates")] == [64, 128, 192, 192, 256]
    assert main(["resume", str(copy), "more=64", "--quiet"]) == 0


def test_a_fresh_replay_is_for_runs_that_have_one(tmp_path, capsys):
    path = tmp_path / "run"
    small = ["env.id=toy/cartpole", "env.num_envs=4", "algorithm.rollout_steps=8", "total_steps=32"]
    assert main(["train", *small, "evaluation.episodes=1", f"run_dir={path}", "--quiet"]) == 0
    assert main(["resume", str(path), "more=32", "--fresh-replay"]) == 1
    assert "--fresh-replay is for off-policy runs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["algorithm.update_ration=2"], "did you mean 'algorithm.update_ratio'?"),
        (["algorithm.rollout_steps=2"], "there is no key 'algorithm.rollout_steps'"),
        (["agent.memory.kind=gru"], "there is no key 'agent.memory'"),
        (["agent.critic=3"], "did you mean 'agent.critics'?"),
        (["algorithm.tau=0"], "tau is 0"),
        (["agent=sac"], "agent is 'sac', but it goes with the algorithm"),
        (["algorithm.replay_size=1"], "replay_size is 1, less than batch_size"),
    ],
)
def test_mistakes_are_found_before_anything_is_written(arguments, sentence, tmp_path, capsys):
    path = tmp_path / "run"
    assert main(["train", *TINY, *arguments, f"run_dir={path}"]) == 1
    assert sentence in capsys.readouterr().err
    assert not path.exists()


def test_a_replay_larger_than_memory_is_refused_with_a_number_that_fits(tmp_path, capsys, monkeypatch):
    path = tmp_path / "run"
    assert main(["train", *TINY, "algorithm.replay_size=1e14", f"run_dir={path}"]) == 1
    error = capsys.readouterr().err
    assert "algorithm.replay_size is 100,000,000,000,000 transitions" in error
    assert not path.exists()
    monkeypatch.setattr(capacity, "free_memory", lambda device: 10_000)
    assert main(["train", *TINY, f"run_dir={path}", "--quiet"]) == 0  # 150 transitions need less than that


def test_the_algorithm_brings_the_defaults_of_its_networks(capsys):
    assert main(["train", "algorithm=sac", "env.id=toy/pendulum", "--show-config"]) == 0
    shown = capsys.readouterr().out
    assert "update_ratio: 1.0" in shown
    assert "critics: 2" in shown
    assert "rollout_steps" not in shown
    assert main(["train", "env.id=toy/pendulum", "--show-config"]) == 0
    shown = capsys.readouterr().out
    assert "rollout_steps" in shown
    assert "critics: 1" in shown


def plain(**sections):
    return to_config(TrainConfig()) | {"env": to_config(EnvConfig("toy/pendulum", 1)), "agent": {}} | sections


def test_a_second_torch_thread_only_where_it_helps_and_is_there(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3}, raising=False)
    ppo = effective(parse(plain()))
    large = effective(parse(plain(algorithm={"name": "sac"})))
    small = effective(parse(plain(algorithm={"name": "sac", "batch_size": 64})))
    narrow = plain(algorithm={"name": "sac"}, agent={"actor_hidden": [64], "critic_hidden": [64]})
    chosen = effective(parse(plain(algorithm={"name": "sac"}) | {"torch_threads": 3}))
    found = [config.torch_threads for config in (ppo, large, small, effective(parse(narrow)), chosen)]
    assert found == [1, 2, 1, 1, 3]
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    assert effective(parse(plain(algorithm={"name": "sac"}))).torch_threads == 1


def test_networks_of_another_algorithm_are_refused():
    from gaitway.algorithms.sac import SACConfig

    with pytest.raises(ValueError, match="agent is a ActorCriticConfig; sac takes a SoftActorCriticConfig"):
        TrainConfig(algorithm=SACConfig())


@pytest.mark.skipif(torch.cuda.is_available(), reason="the sentence is for machines without a GPU")
def test_a_gpu_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match="torch finds no GPU; use device=cpu"):
        parse(plain(device="cuda"))


@pytest.mark.parametrize("name", ["sac_pendulum", "sac_halfcheetah", "sac_walker2d", "sac_humanoid", "sac_walker_run"])
def test_presets_compose(name, capsys):
    assert main(["train", f"experiment={name}", "--show-config"]) == 0
    assert "name: sac" in capsys.readouterr().out
