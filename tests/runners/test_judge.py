"""Films of the policy while it learns: made beside the training, handed over once, never a reason to stop. Trials that
end a run."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial

import imageio.v3 as iio
import numpy as np
import pytest

import gaitway
from gaitway import PPO, ActorCritic, OnPolicyRunner, PPOConfig, make_env
from gaitway.cli.train_config import parse
from gaitway.core.config import ConfigError
from gaitway.envs.pictures.render import rendering_problem
from gaitway.envs.spec import EnvSpec
from gaitway.runners import judge as judge_module
from gaitway.runners.cast import Cast
from gaitway.runners.encoders import video_problem
from gaitway.runners.evaluate import EvaluationConfig
from gaitway.runners.judge import Judge
from gaitway.runners.runner_config import RunnerConfig, StopConfig
from gaitway.runners.video import VideoConfig, VideoWriter

needs_film = pytest.mark.skipif(
    rendering_problem() is not None or video_problem() is not None, reason=f"{rendering_problem()} {video_problem()}"
)
SHORT = VideoConfig(interval=1, length=4, size=(96, 64))


def judge(video: VideoConfig = SHORT, env_id: str = "HalfCheetah-v5") -> Judge:
    with make_env(env_id) as env:
        policy = ActorCritic(env.spec)

    def make(purpose: str, number: int):
        return make_env(env_id, number, purpose=purpose)

    return Judge(RunnerConfig(total_steps=1, video=video), Cast(policy), env, make)


@needs_film
def test_films_are_handed_over_once_with_their_steps(tmp_path):
    one = judge()
    one.cast.policy.train()
    for steps in (100, 200):
        one.film(tmp_path / f"{steps}.mp4", steps)
    assert one.cast.policy.training
    found = one.finished_films(wait=True)
    assert found == [(100, tmp_path / "100.mp4"), (200, tmp_path / "200.mp4")]
    assert one.finished_films(wait=True) == []
    assert iio.imread(found[0][1], plugin="FFMPEG").shape == (5, 64, 96, 3)


@needs_film
def test_training_goes_on_while_a_film_is_encoded(tmp_path, monkeypatch):
    gate, write = threading.Event(), VideoWriter._write_file
    monkeypatch.setattr(VideoWriter, "_write_file", lambda self: (gate.wait(), write(self)))
    one = judge()
    one.film(tmp_path / "1.mp4", 1)
    assert one.finished_films() == []
    gate.set()
    one.close()  # whoever does not ask still gets whole files
    assert [file.name for file in tmp_path.iterdir()] == ["1.mp4"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("video")]


@needs_film
def test_the_caption_tells_the_environment_and_the_steps(tmp_path):
    pictures = {}
    large = {"interval": 1, "length": 2, "size": (480, 320)}
    cases = {"text": ({}, 100), "other": ({}, 999), "none": ({"annotations": False}, 100)}
    cast = judge().cast
    for name, (options, steps) in cases.items():
        one = judge(VideoConfig(**large, **options))
        one.cast = cast
        one.film(tmp_path / f"{name}.mp4", steps)
        one.close()
        pictures[name] = iio.imread(tmp_path / f"{name}.mp4", plugin="FFMPEG")[0].astype(int)
    corner = np.s_[:60, 240:]
    assert abs(pictures["text"] - pictures["none"])[corner].max() > 100
    assert abs(pictures["text"] - pictures["other"])[corner].max() > 100
    assert abs(pictures["text"] - pictures["other"])[100:].max() < 40


@needs_film
def test_a_film_shows_a_legged_robot_in_motion_and_evaluations_stay_as_they_are(tmp_path, monkeypatch):
    options = {"num_threads": 1, "commands": {"sampler": "grid"}, "episode_seconds": 0.2}

    def make(purpose: str, number: int):
        return make_env("pup12/gait_params", number, purpose=purpose, **options)

    shown = []

    def start_film(env, act, path, *, caption, **rest):
        columns = env.spec.group("policy").columns("commands_unscaled")
        shown.append((env.reset(0)["policy"][0, columns].tolist(), caption() if callable(caption) else caption))

    monkeypatch.setattr("gaitway.runners.judge.start_film", start_film)
    with make("train", 1) as env:
        cast = Cast(ActorCritic(env.spec))
        evaluation = EvaluationConfig(episodes=2, stochastic=False, metric="return")
        one = Judge(RunnerConfig(total_steps=1, video=SHORT, evaluation=evaluation), cast, env, make)
    before = one.measure(1)
    one.film(tmp_path / "1.mp4", 1)
    assert {name: value for name, value in one.measure(2).items() if value == value} == {
        name: value for name, value in before.items() if value == value
    }
    one.close()
    assert shown[0][0] == pytest.approx([0.6, 0.0, 0.0])  # of the grid it would be told to stand
    assert list(shown[0][1]) == ["pup12/gait_params", "1 steps", "command 0.6, 0, 0"]


@pytest.mark.parametrize(
    ("video", "env_id", "reason"),
    [
        (VideoConfig(interval=1, camera="bcak"), "HalfCheetah-v5", "no camera 'bcak'; it has follow, track"),
        (VideoConfig(interval=1, quality="full"), "toy/cartpole", "native tasks alone"),
        (SHORT, "toy/cartpole", "toy/cartpole cannot be drawn"),
    ],
)
def test_what_cannot_be_filmed_is_said_once_and_training_goes_on(tmp_path, caplog, video, env_id, reason):
    one = judge(video, env_id)
    for steps in (1, 2, 3):
        one.film(tmp_path / f"{steps}.mp4", steps)
        assert one.finished_films() == []
    one.close()
    assert caplog.text.count("no video") == 1
    assert reason in caplog.text
    assert list(tmp_path.iterdir()) == []


@needs_film
def test_an_encoder_that_fails_is_not_tried_again(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", "/bin/false")
    one = judge()
    one.film(tmp_path / "1.mp4", 1)
    assert one.finished_films(wait=True) == []
    one.film(tmp_path / "2.mp4", 2)
    one.close()
    assert caplog.text.count("no video") == 1
    assert list(tmp_path.iterdir()) == []


# --- Trials ----------------------------------------------------------------------------------------------------------


class Impatient:
    """A trial that wants no evaluation after the `last`th."""

    def __init__(self, last: int) -> None:
        self.last, self.reports = last, []

    def report(self, value, step):
        self.reports.append((step, value))

    def should_prune(self):
        return len(self.reports) >= self.last


EVERY_64 = EvaluationConfig(interval=64, episodes=1, max_steps=20)


def pole_runner(folder, evaluation=EVERY_64):
    env = make_env("toy/cartpole", 4, seed=0)
    config = RunnerConfig(total_steps=256, evaluation=evaluation)
    algorithm = PPO(ActorCritic(env.spec), PPOConfig(rollout_steps=16, minibatches=2, epochs=1), num_envs=4)
    return OnPolicyRunner(env, algorithm, config, folder=folder, make_env=partial(pole, env))


def pole(env, purpose, number):
    return make_env("toy/cartpole", number, purpose=purpose)


def test_a_trial_is_told_of_evaluations_and_ends_a_run_that_stays_playable(tmp_path):
    trial = Impatient(2)
    runner = pole_runner(tmp_path / "run")
    summary = runner.learn(trial=trial)
    assert [step for step, _ in trial.reports] == [64, 128]
    assert trial.reports[-1][1] == summary["last"]["return"]
    assert (summary["stopped_by"], summary["steps"]) == ("pruned", 128)
    assert runner.checkpoints.facts("last")["stopped_by"] == "pruned"
    assert runner.is_saved
    assert runner.inference_policy() is not None


def test_a_trial_without_a_metric_is_refused(tmp_path):
    runner = pole_runner(tmp_path / "run", replace(EVERY_64, metric=None))
    with pytest.raises(ValueError, match=r"told of evaluation.metric, which is null; name a result"):
        runner.learn(trial=Impatient(2))
    assert not runner.folder.has_trained


def test_a_run_at_its_end_is_not_pruned(tmp_path):
    trial = Impatient(4)
    assert pole_runner(tmp_path / "run").learn(trial=trial)["stopped_by"] is None
    assert len(trial.reports) == 4


# --- The best --------------------------------------------------------------------------------------------------------


def measured(monkeypatch, values, **config):
    """The `best` after each evaluation that has these values, whether it stops the run, and the judge."""
    said = iter(values)
    monkeypatch.setattr(judge_module, "evaluate", lambda env, actor, config: {"return": 7.0, "fell": next(said)})
    one = judge(env_id="toy/cartpole")
    one = Judge(RunnerConfig(total_steps=9, **config), one.cast, pole_env(), one.make_env)
    one.trial, found = Impatient(9), []
    for steps in range(len(values)):
        one.measure(steps)
        found.append((one.best.get("steps"), one.verdict()))
    one.close()
    return found, one


def pole_env():
    with make_env("toy/cartpole", 1) as env:
        return env


def test_of_a_cost_the_lowest_is_the_best(monkeypatch):
    nan = float("nan")
    evaluation = EvaluationConfig(metric="fell")
    found, one = measured(monkeypatch, [nan, 0.5, 0.8, nan, 0.5, 0.2], evaluation=evaluation)
    assert [best for best, _ in found] == [
        0,
        1,
        1,
        1,
        1,
        5,
    ]  # a tie is none, and NaN only stays until there is a number
    assert [value for _, value in one.trial.reports[1:3]] == [0.5, 0.8]  # as it is


def test_the_highest_return_stays_the_best_after_nan(monkeypatch):
    monkeypatch.setattr(EnvSpec, "costs", frozenset())
    found, _ = measured(monkeypatch, [0.5, float("nan"), 0.2, 0.6], evaluation=EvaluationConfig(metric="fell"))
    assert [best for best, _ in found] == [0, 0, 0, 3]


@pytest.mark.parametrize(
    ("stop", "verdicts"),
    [
        (StopConfig(threshold=0.3), [None, None, None, "threshold"]),  # 0.9 is not below
        (StopConfig(patience=2), [None, None, "patience", None]),  # 0.9, then 0.6: no better than 0.5
    ],
)
def test_a_cost_stops_a_run_from_above(monkeypatch, stop, verdicts):
    found, _ = measured(monkeypatch, [0.5, 0.9, 0.6, 0.3], evaluation=EvaluationConfig(metric="fell"), stop=stop)
    assert [verdict for _, verdict in found] == verdicts


def test_without_a_metric_there_is_no_best_and_last_takes_its_place(tmp_path):
    runner = pole_runner(tmp_path / "run", replace(EVERY_64, metric=None))
    summary = runner.learn()
    assert (summary["best"], summary["last"]["steps"]) == ({}, 256)
    assert runner.checkpoints.facts("last")["best"] == {}
    assert not (runner.folder.checkpoints / "best").exists()
    loaded = gaitway.load(tmp_path / "run")
    assert (loaded.checkpoint, loaded.steps) == ("last", 256)


@pytest.mark.parametrize("stop", [{"threshold": 3.0}, {"patience": 2}])
def test_rules_that_need_a_metric_are_refused_without_one(stop):
    (rule,) = stop
    with pytest.raises(ValueError, match=rf"stop.{rule} looks at evaluation.metric, which is null; name a result of"):
        RunnerConfig(evaluation=EvaluationConfig(metric=None), stop=StopConfig(**stop))
    with pytest.raises(ConfigError, match=rf"^stop.{rule} looks at evaluation.metric"):
        parse({"evaluation": {"metric": None}, "stop": stop})
    assert parse({"evaluation": {"metric": None}}).evaluation.metric is None
