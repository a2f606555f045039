"""`gaitway play`: runs and environments, policies, films, windows, and one sentence for every mistake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import imageio.v3 as iio
import numpy as np
import pytest
import torch

from gaitway.cli import play as play_module
from gaitway.cli.main import main
from gaitway.cli.play import watch
from gaitway.cli.players import chosen_run
from gaitway.core.seeding import stream
from gaitway.envs.pictures.render import rendering_problem
from gaitway.envs.registry import make_env
from gaitway.envs.spec import ActionSpec
from gaitway.runners.baselines import ZeroPolicy
from gaitway.runners.collect import RandomPolicy
from gaitway.runners.encoders import video_problem

needs_film = pytest.mark.skipif(
    rendering_problem() is not None or video_problem() is not None, reason=f"{rendering_problem()} {video_problem()}"
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs, of which the second has learnt for longer; and a folder that is none."""
    folder = tmp_path_factory.mktemp("runs")
    for seed, steps, env in ((0, 256, "gymnasium:CartPole-v1"), (1, 8_192, "toy/cartpole")):
        small = [f"env.id={env}", "env.num_envs=16", "algorithm.rollout_steps=16", "algorithm.learning_rate=3e-3"]
        small += [f"seed={seed}", f"total_steps={steps}", f"run_dir={folder / str(seed)}", "--quiet"]
        assert main(["train", *small]) == 0
    (folder / "notes").mkdir()
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in, without a screen."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys) -> str:
    return capsys.readouterr().out.replace("\n", " ")


def played(text: str) -> tuple[int, float]:
    """Steps and return of the line that `play` prints."""
    return int(text.split(" steps")[0].split()[-1]), float(text.split("return ")[1])


def test_of_a_folder_of_runs_the_best_is_played(runs, capsys):
    capsys.readouterr()
    assert chosen_run(str(runs)) == runs / "1"
    assert main(["play", str(runs), "--no-video", "--seed", "3"]) == 0
    text = said(capsys)
    assert str(runs / "1") in text
    steps, total = played(text)
    assert total == steps > 1  # a reward of 1 per step, to the end of one episode


def test_without_a_metric_commands_take_the_last_checkpoint(tmp_path, capsys, caplog):
    tiny = ["env.id=toy/cartpole", "env.num_envs=4", "algorithm.rollout_steps=16", "total_steps=128", "--quiet"]
    tiny += ["evaluation.episodes=1", "evaluation.interval=64", "logging.code=none"]
    run = str(tmp_path / "run")
    assert main(["train", *tiny, f"run_dir={run}", "evaluation.metric=null"]) == 0
    assert "best" not in capsys.readouterr().out
    assert main(["eval", run, "--json", "--episodes", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["checkpoint"] == "last"
    assert chosen_run(str(tmp_path)) == tmp_path / "run"  # it has been evaluated, even if none is the best
    assert main(["train", *tiny, f"run_dir={tmp_path / 'next'}", f"init_from.run={run}"]) == 0
    assert "last checkpoint (step 128)" in caplog.text


def test_the_episode_is_that_of_the_seed(runs, capsys):
    lines = []
    for seed in ("0", "0", "5"):
        assert main(["play", str(runs / "0"), "--no-video", "--seed", seed, "--checkpoint", "last"]) == 0
        lines.append(capsys.readouterr().out)
    assert lines[0] == lines[1]


def test_without_a_screen_a_window_becomes_a_video(runs, here, capsys):
    assert main(["play", str(runs / "0"), "--window", "--length", "3"]) == 0
    assert "a video is written instead" in said(capsys)
    assert (runs / "0" / "videos" / "play.mp4").stat().st_size > 500


def test_a_window_is_opened_where_there_is_a_screen(runs, here, capsys, monkeypatch):
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert main(["play", str(runs / "0"), "--window", "--length", "3"]) == 0
    assert played(said(capsys))[0] == 3
    assert main(["play", "gymnasium:CartPole-v1", "--steps", "4"]) == 0  # an environment asks for no --window
    assert played(said(capsys))[0] == 4
    assert list(here.iterdir()) == []


def test_a_folder_without_evaluated_runs_is_refused(runs, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main(["play", str(tmp_path / "empty"), "--no-video"]) == 1
    assert "gaitway:" in capsys.readouterr().err


def test_the_policy_of_a_run_in_another_environment(runs, here, capsys):
    # the toy's observations have other names than gymnasium's, so that the run fits its own environment alone
    assert main(["play", "toy/cartpole", "--policy", str(runs / "1"), "--no-video", "--seed", "3"]) == 0
    own = said(capsys)
    assert f"toy/cartpole, {runs / '1'}: best checkpoint" in own
    assert main(["play", str(runs / "1"), "--no-video", "--seed", "3"]) == 0
    assert played(said(capsys)) == played(own)
    assert main(["play", "gymnasium:CartPole-v1", "--policy", str(runs / "1"), "--no-video"]) == 1
    error = capsys.readouterr().err
    assert f"the policy of {runs / '1'} does not fit gymnasium:CartPole-v1: the numbers in 'policy' mean" in error
    assert main(["play", "toy/pendulum", "--policy", str(runs / "1"), "--no-video"]) == 1
    assert "the observation 'policy', which is not among ['pos', 'vel']" in capsys.readouterr().err
    assert main(["play", "Hopper-v5", "--policy", str(runs / "1"), "--no-video"]) == 1
    assert "'policy' of shape [4], here it is [11]" in capsys.readouterr().err


def test_a_run_may_be_played_by_chance(runs, capsys):
    assert main(["play", str(runs / "1"), "--policy", "random", "--no-video", "--seed", "3"]) == 0
    text = said(capsys)
    assert "toy/cartpole, random actions, seed 3" in text
    assert played(text)[0] < 100


def test_random_actions_are_those_of_the_seed(here, capsys):
    results = []
    for seed in ("1", "1", "2"):
        assert main(["play", "toy/pendulum", "--no-video", "--length", "20", "--seed", seed]) == 0
        results.append(played(said(capsys)))
    assert results[0] == results[1] != results[2]


def test_options_of_an_environment_are_those_of_a_run(here, capsys):
    options = ["env.options.commands.fixed=[0.3,0,0]", "env.options.episode_seconds=0.1"]
    assert main(["play", "pup4/velocity", *options, "--policy", "zero", "--no-video"]) == 0
    assert "pup4/velocity, zero actions, seed 0, 5 steps" in said(capsys)  # of 0.02 s
    assert main(["play", "pup4/velocity", "robot=pup4", "--no-video"]) == 1
    assert "write device=cpu, device=cuda or env.options.NAME=VALUE" in capsys.readouterr().err


def test_zero_actions():
    zero = ZeroPolicy(ActionSpec("continuous", ("a", "b", "c"), (-1.0, 0.5, -3.0), (1.0, 2.0, -0.25)))
    obs = {"policy": torch.zeros(2, 7)}
    assert zero(obs).tolist() == [[0.0, 0.5, -0.25]] * 2
    assert ZeroPolicy(ActionSpec("discrete", ("a",), choices=(3,), start=(5,)))(obs).tolist() == [5, 5]
    assert ZeroPolicy(ActionSpec("multi_discrete", ("a", "b"), choices=(3, 2)))(obs).tolist() == [[0, 0], [0, 0]]
    with make_env("HalfCheetah-v5") as env:
        action = ZeroPolicy(env.spec.action)(env.reset())
        assert action.tolist() == [[0.0] * 6]
        env.step(action)


def test_steps_go_through_the_ends_of_episodes_and_length_does_not():
    with make_env("toy/cartpole") as env:
        act = RandomPolicy(env.spec.action, stream(0, "play"))
        assert watch(env, act, 0, 200, True)[0] == 200
        assert watch(env, act, 0, 200, False)[0] < 100


class Screen:
    """Counts what it is shown; closed after `patience` pictures."""

    def __init__(self, patience: int) -> None:
        self.patience, self.shown, self.closed = patience, 0, False

    @property
    def is_open(self) -> bool:
        return self.shown < self.patience

    def show(self) -> None:
        self.shown += 1

    def close(self) -> None:
        self.closed = True


def test_an_environment_plays_until_its_window_is_closed(here, capsys, monkeypatch):
    screen = Screen(300)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(play_module, "open_screen", lambda env, size, camera, press: screen)
    assert main(["play", "toy/cartpole"]) == 0
    assert played(said(capsys))[0] == 299  # many episodes
    assert screen.closed
    assert list(here.iterdir()) == []


@needs_film
def test_an_environment_is_filmed_to_a_file_whose_name_is_said(here, capsys):
    assert main(["play", "HalfCheetah-v5", "--steps", "5", "--size", "160x120"]) == 0
    text = said(capsys)
    assert "there is no screen here (DISPLAY is not set): filming to HalfCheetah-v5.mp4" in text
    assert "HalfCheetah-v5.mp4: HalfCheetah-v5, random actions, seed 0, 6 frames, 5 steps, return" in text
    frames = iio.imread("HalfCheetah-v5.mp4", plugin="FFMPEG")
    assert frames.shape == (6, 120, 160, 3)
    assert frames.std() > 10
    assert [file.name for file in here.iterdir()] == ["HalfCheetah-v5.mp4"]


@needs_film
def test_choices_for_a_film(here, capsys):
    base = ["play", "Hopper-v5", "--length", "3", "--size", "200x151", "--policy", "zero"]
    films = {"text": [], "plain": ["--plain"], "shadows": ["--plain", "--quality", "shadows"],
             "follow": ["--plain", "--camera", "follow"]}  # fmt: skip
    for name, options in films.items():
        assert main([*base, "--video", f"deep/{name}.gif", *options]) == 0
        films[name] = iio.imread(f"deep/{name}.gif", index=0).astype(int)
    assert films["text"].shape == (151, 200, 3)
    assert (films["text"] - films["plain"])[:40, :80].max() > 100
    assert (films["text"] - films["plain"])[:40, 120:].max() > 100
    assert (films["plain"] - films["shadows"]).max() > 30
    assert abs(films["plain"] - films["follow"]).max() > 60
    assert "zero actions" in said(capsys)


@needs_film
def test_gymnasium_keeps_its_own_size(here, capsys):
    assert main(["play", "gymnasium:CartPole-v1", "--length", "4"]) == 0
    assert iio.improps("gymnasium_CartPole-v1.mp4", plugin="FFMPEG").shape[1:] == (400, 600, 3)


def test_without_ffmpeg_the_film_is_a_gif(here, capsys, monkeypatch):
    monkeypatch.setattr(play_module, "video_problem", lambda: "there is no ffmpeg")
    assert main(["play", "gymnasium:CartPole-v1", "--length", "3"]) == 0
    assert len(iio.imread("gymnasium_CartPole-v1.gif", index=None)) == 4
    assert main(["play", "gymnasium:CartPole-v1", "--video", "film.mp4"]) == 1
    assert "there is no ffmpeg, or choose a name that ends in .gif" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["HalfCheeta-v5"],
            "there is no folder HalfCheeta-v5, and no environment 'HalfCheeta-v5'; did you mean HalfCh",
        ),
        (["runs/frist"], "there is no folder runs/frist, and no environment 'runs/frist'"),
        (["gymnasium:CratPole-v1"], "did you mean CartPole-v1"),
        (["toy/cue"], "toy/cue cannot be drawn; --no-video plays it without pictures"),
        (["toy/cue", "--policy", "rnadom"], "--policy is 'rnadom' (did you mean 'random'?); use random, zero, a run"),
        (["Hopper-v5", "--video", "film.avi"], "let its name end in .mp4 or .gif"),
        (["Hopper-v5", "--video", "file/film.gif"], "cannot write file/film.gif"),
        (["Hopper-v5", "--video", "folder.gif"], "cannot write folder.gif: it is a folder"),
        (["Hopper-v5", "--size", "321x240"], "H.264 takes even numbers of pixels, e.g. 320 x 240"),
        (["Hopper-v5", "--size", "0x0"], "use 2 to 8192 pixels"),
        (["Hopper-v5", "--camera", "sied"], "Hopper-v5 has no camera 'sied'; it has follow, track"),
        (["gymnasium:CartPole-v1", "--quality", "full"], "cameras and shadows are there for native tasks alone"),
        (["Hopper-v5", "--seed", "-1"], "the seed is -1"),
    ],
)
def test_every_mistake_is_one_sentence(here, capsys, arguments, sentence):
    (here / "file").write_text("")
    (here / "folder.gif").mkdir()
    assert main(["play", *arguments]) == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("gaitway: ")
    assert sentence in error
    assert "\n" not in error
    assert sorted(file.name for file in here.iterdir()) == ["file", "folder.gif"]


@pytest.mark.parametrize(
    "arguments", [["--size", "32"], ["--size", "axb"], ["--steps", "0"], ["--steps", "3", "--length", "3"]]
)
def test_options_that_make_no_sense(capsys, arguments):
    with pytest.raises(SystemExit) as stopped:
        main(["play", "Hopper-v5", *arguments])
    assert stopped.value.code == 2


def test_without_opengl_one_sentence_names_the_command(here, capsys):
    command = [sys.executable, "-m", "gaitway.cli.main", "play", "Hopper-v5", "--video", "film.gif"]
    done = subprocess.run(
        command, env=os.environ | {"MUJOCO_GL": "disable"}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "pictures cannot be drawn here" in done.stderr
    assert "apt-get install" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@needs_film
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_leaves_a_film_that_can_be_played_and_no_process(here, number, code):
    arguments = ["play", "Hopper-v5", "--steps", "1000000", "--video", "film.mp4", "--size", "64x48", "--plain"]
    program = "import sys; from gaitway.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, *arguments]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    partial = here / ".film.partial.mp4"
    while process.poll() is None and not partial.exists():
        time.sleep(0.05)
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True)
    os.killpg(process.pid, number)  # as a terminal does, to the whole group
    assert process.wait(60) == code
    frames = iio.imread("film.mp4", plugin="FFMPEG")
    assert len(frames) >= 1
    assert np.std(frames[0]) > 5
    assert [file.name for file in here.iterdir()] == ["film.mp4"]
    for child in map(int, children.stdout.split()):
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
