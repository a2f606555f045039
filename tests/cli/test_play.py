"""`gaitway play`: the best of a folder, without a picture, and without a screen."""

import pytest

from gaitway.cli.main import main
from gaitway.cli.play import chosen_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs, of which the second has learnt for longer; and a folder that is none."""
    folder = tmp_path_factory.mktemp("runs")
    for seed, steps, env in ((0, 256, "gymnasium:CartPole-v1"), (1, 20_000, "toy/cartpole")):
        small = [f"env.id={env}", "env.num_envs=16", "algorithm.rollout_steps=16", "algorithm.learning_rate=3e-3"]
        small += [f"seed={seed}", f"total_steps={steps}", f"run_dir={folder / str(seed)}", "--quiet"]
        assert main(["train", *small]) == 0
    (folder / "notes").mkdir()
    return folder


def test_of_a_folder_of_runs_the_best_is_played(runs, capsys):
    capsys.readouterr()
    assert chosen_run(str(runs)) == runs / "1"
    assert main(["play", str(runs), "--no-video", "--seed", "3"]) == 0
    said = capsys.readouterr().out.replace("\n", " ")
    assert str(runs / "1") in said
    steps, total = int(said.split(" steps")[0].split()[-1]), float(said.split("return ")[1])
    assert total == steps > 1  # a reward of 1 per step, to the end of one episode


def test_the_episode_is_that_of_the_seed(runs, capsys):
    lines = []
    for seed in ("0", "0", "5"):
        assert main(["play", str(runs / "0"), "--no-video", "--seed", seed, "--checkpoint", "last"]) == 0
        lines.append(capsys.readouterr().out)
    assert lines[0] == lines[1]


def test_without_a_screen_a_window_becomes_a_video(runs, capsys, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    main(["play", str(runs / "0"), "--window", "--length", "3"])
    assert "a video is written instead" in capsys.readouterr().out.replace("\n", " ")


def test_a_window_is_opened_where_there_is_a_screen(runs, capsys, monkeypatch):
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert main(["play", str(runs / "0"), "--window", "--length", "3"]) == 0
    assert "return" in capsys.readouterr().out


def test_a_folder_without_evaluated_runs_is_refused(runs, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main(["play", str(tmp_path / "empty"), "--no-video"]) == 1
    assert "gaitway:" in capsys.readouterr().err
