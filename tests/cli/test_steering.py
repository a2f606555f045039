"""Commands to a legged robot that is watched."""

from __future__ import annotations

import json

import pytest
import torch

from gaitway import make_env
from gaitway.cli.build import build_env
from gaitway.cli.compose_run import compose_run
from gaitway.cli.main import main, parse
from gaitway.cli.open_run import in_environment
from gaitway.cli.steering import Steering
from gaitway.core.config import ConfigError
from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.generate import velocity_of


def test_a_command_is_seen_and_keys_change_it_within_what_was_trained(capsys) -> None:
    env = make_env("pup12/gait_params", 1, num_threads=1)
    steering = Steering.of(env, (0.5, 0.0, 0.2))
    assert steering is not None
    columns = env.spec.group("policy").columns("commands_unscaled")
    torch.testing.assert_close(env.reset(0)["policy"][0, columns], torch.tensor([0.5, 0.0, 0.2]))
    for key in ("up", "left", "left", "x"):
        steering.press(key)
    seen = env.step(torch.zeros(1, 6)).obs["policy"][0, columns]
    torch.testing.assert_close(seen, torch.tensor([0.6, 0.0, 0.4]))
    for _ in range(20):
        steering.press("up")
    assert steering.command == [1.0, 0.0, 0.4]  # the range ends there
    steering.press("space")
    assert steering.command == [0.0, 0.0, 0.0]
    assert steering.caption() == ("command 0, 0, 0",)
    assert capsys.readouterr().out == ""
    Steering.of(env, (2.0, 0.0, 0.0))
    assert "trains -0.5 to 1" in capsys.readouterr().out


def test_a_command_may_begin_with_a_minus() -> None:
    for command in (["play", "run"], ["motion", "record", "run", "out"], ["motion", "generate", "trot", "out"]):
        told = parse([*command, "--command", "-0.4,0,0"]).told
        assert told == parse([*command, "--command=-0.4,0,0"]).told
        assert "-0.4" in str(told)
    assert parse(["motion", "record", "run", "out", "--command", "-.4,0,0", "--command", "-1,0,0"]).told[1][0] == -1.0
    with pytest.raises(SystemExit):
        parse(["play", "run", "--command", "--window"])


def test_planar_robots_are_told_nothing_but_forwards(capsys) -> None:
    """What follows from commands.y and commands.turn of other robots was never told to this one."""
    with make_env("pup4/velocity", 1, num_threads=1) as env:
        assert env.spec.facts["legged"]["commands"] == {"x": [-1.0, 1.0], "y": [0.0, 0.0], "turn": [0.0, 0.0]}
        steering = Steering(env, (0.5, 0.2, 0.0))
        assert "the command has y 0.2, and pup4/velocity trains 0 to 0" in " ".join(capsys.readouterr().out.split())
        steering.press("left")
        assert steering.command == [0.5, 0.2, 0.0]


def test_a_robot_without_legs_is_not_told(capsys) -> None:
    env = make_env("toy/cue", 1)
    assert Steering.of(env, None) is None
    with pytest.raises(ConfigError, match="--command tells a legged robot where to go, and toy/cue has none"):
        Steering.of(env, (0.0, 0.0, 0.0))
    done = main(["play", "pup12/gait_params", "--policy", "zero", "--no-video", "--command", "0.5,0,0", "--steps", "3"])
    assert done == 0
    assert "3 steps" in capsys.readouterr().out


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose evaluations keep commands of the grid."""
    folder = tmp_path_factory.mktemp("steering") / "run"
    small = ["env.num_envs=8", "env.num_threads=1", "algorithm.rollout_steps=4", "algorithm.minibatches=1"]
    small += ["algorithm.epochs=1", "total_steps=32", "evaluation.episodes=2", "evaluation.stochastic=false"]
    small += ["evaluation.env.options.episode_seconds=0.4", "preflight=false", "logging.code=none", "--quiet"]
    assert main(["train", "experiment=ppo_pup12_gait_params", f"run_dir={folder}", *small]) == 0
    return folder


def commands_seen(env, seed: int = 0) -> list[float]:
    return env.reset(seed)["policy"][0, env.spec.group("policy").columns("commands_unscaled")].tolist()


def test_who_is_watched_and_not_commanded_goes_ahead_instead_of_standing() -> None:
    options = {"num_threads": 1, "purpose": "evaluation"}
    env = make_env("pup12/gait_params", 1, commands={"sampler": "grid"}, **options)
    assert commands_seen(env) == [0.0, 0.0, 0.0]
    steering = Steering.of(env, None)
    assert steering.command == [0.6, 0.0, 0.0]  # 0.6 of the 1 m/s at the top of x
    assert commands_seen(env) == commands_seen(env, 15) == pytest.approx([0.6, 0.0, 0.0])
    assert steering.caption() == ("command 0.6, 0, 0",)
    steering.press("up")
    assert steering.command == [0.7, 0.0, 0.0]
    backwards = make_env("pup12/gait_params", 1, commands={"sampler": "grid", "x": [-0.5, 0.0]}, **options)
    assert Steering.of(backwards, None).command == [-0.3, 0.0, 0.0]


@pytest.mark.parametrize("commands", [{}, {"sampler": "joystick"}, {"sampler": "grid", "fixed": [0.0, 0.0, 0.4]}])
def test_commands_that_are_drawn_or_given_stay(commands) -> None:
    env = make_env("pup12/gait_params", 1, num_threads=1, purpose="evaluation", commands=commands)
    before = commands_seen(env)
    steering = Steering.of(env, None)
    assert (steering.command, steering.caption()) == (None, ())
    assert commands_seen(env) == before


def test_play_shows_a_run_in_motion_and_eval_measures_the_grid(run, capsys, monkeypatch) -> None:
    seen = []

    def watch(env, act, seed, *rest):
        seen.append(commands_seen(env, seed))
        return 1, 0.0

    monkeypatch.setattr("gaitway.cli.play.watch", watch)
    before = (run / "summary.json").read_text()
    assert main(["play", str(run), "--no-video"]) == 0
    assert main(["play", str(run), "--no-video", "--command", "0,0,0.5"]) == 0
    assert seen == [pytest.approx([0.6, 0.0, 0.0]), pytest.approx([0.0, 0.0, 0.5])]
    capsys.readouterr()
    assert main(["eval", str(run), "--json"]) == 0
    measured, best = json.loads(capsys.readouterr().out), json.loads(before)["best"]
    known = {name: value for name, value in best.items() if value is not None}  # short episodes are all warm-up
    assert {name: measured[name] for name in known} == known  # of the commands 0 and 0.3 m/s, as before


def test_a_recording_that_nobody_commands_moves_and_says_so(run, tmp_path) -> None:
    out = str(tmp_path / "clip")
    assert main(["motion", "record", str(run), out, "--seconds", "0.2", "--warmup", "0.1"]) == 0
    clip = Clip.load(out)
    assert clip.meta["command"] == [0.6, 0.0, 0.0]
    assert clip.meta["velocity"] == pytest.approx(velocity_of(clip), abs=1e-4)


def test_what_an_evaluation_changes_leaves_the_rest_of_a_part_as_it_is_trained():
    """The preset's evaluations name commands.sampler; the ranges stay those of the run."""
    given = ["experiment=ppo_pup12_gait_params", "env.options.commands.x=[0,0.4]", "env.options.commands.turn=[0,0]"]
    config, _ = compose_run(given, None, 1)
    with build_env(config, "evaluation", 15) as env:
        ranges = env.spec.facts["legged"]["commands"]
        assert ranges == {"x": [0.0, 0.4], "y": [-0.3, 0.3], "turn": [0.0, 0.0]}
        told = env.reset()["policy"][:, 9:12]  # [15, 20]: velocity, rates and gravity come first
    # the first of the grid: stand, 0.3, -0.3, 0.6, -0.6, 0.9 m/s forwards, within the range
    assert told[:6, 0].tolist() == pytest.approx([0.0, 0.3, 0.0, 0.4, 0.0, 0.4])
    assert config.evaluation.env == {"options": {"commands": {"sampler": "grid"}}}


def test_what_is_typed_for_an_environment_holds_over_what_evaluations_change():
    config, _ = compose_run(["experiment=ppo_pup12_gait_params", "env.options.commands.stand=0.5"], None, 1)
    typed = ["env.options.commands.sampler=uniform", "env.options.commands.x=[0,0.4]"]
    env = in_environment(config, "pup12/gait_params", typed)
    with build_env(env, "evaluation", 1) as made:
        assert made.spec.options["commands"] == {"stand": 0.5, "sampler": "uniform", "x": [0.0, 0.4]}
    with build_env(in_environment(config, "pup12/gait_residual", typed), "evaluation", 1) as made:
        assert "stand" not in made.spec.options["commands"]  # another environment has its own
