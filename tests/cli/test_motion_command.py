"""`gaitway motion`: tables, verdicts, conversions, films and recordings; runs whose episodes begin in a clip."""

from __future__ import annotations

import dataclasses
import json
import pickle
import shutil

import numpy as np
import pytest
import torch
from motion_cases import make_clip, walk

from gaitway.cli.main import main
from gaitway.core.files import load_state
from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.generate import velocity_of
from gaitway.envs.motions.library import MotionLibrary
from gaitway.envs.pictures.render import rendering_problem
from gaitway.envs.registry import make_env
from gaitway.rewards.style import StyleReward
from gaitway.runners.encoders import video_problem


@pytest.fixture
def clip(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    walk()[1].save("walk")
    return "walk"


def told(capsys, *arguments, code=0):
    """What a command printed, on stdout or, where it failed, as its sentence."""
    assert main(["motion", *arguments]) == code
    printed = capsys.readouterr()
    if code and printed.err:
        assert printed.err.startswith("gaitway: ")
        assert printed.err.count("\n") == 1, printed.err
        return printed.err
    return printed.out


def test_info_is_a_table(clip, capsys):
    text = told(capsys, "info", clip)
    for word in ("walk", "41", "40", "yes", "1.50", "right_hip", "torso", "robot: walker"):
        assert word in text, word
    make_clip().save("swing")
    (first, second) = json.loads(told(capsys, "info", clip, "swing", "--json"))
    assert first["seconds"] == pytest.approx(1.0)
    assert (first["joints"][0], second["joints"], second["loop"]) == ("right_hip", ["left_knee", "right_knee"], False)


def test_check_says_what_is_wrong(clip, capsys):
    text = told(capsys, "check", clip)
    assert text.count(" ok ") == 6
    assert "joint limits" in text
    make_clip().save("swing")
    assert "name a --robot" in told(capsys, "check", "swing")
    sunk = walk()[1]
    frames = sunk.frames.replaced(body_positions=sunk.frames.body_positions - [0, 0, 0.5])
    Clip(frames, 40.0, sunk.joints, sunk.bodies, name="sunk").save("sunk")
    assert "floor" in told(capsys, "check", "sunk", "--robot", "walker", code=1)
    found = json.loads(told(capsys, "check", "sunk", "--robot", "walker", "--json", code=1))
    assert [each["question"] for each in found if each["verdict"] == "wrong"] == ["floor"]


def test_convert_reads_resamples_and_mirrors(clip, capsys, tmp_path):
    rows = np.zeros((6, 19))
    rows[:, 6] = 1.0
    rows[:, 7] = np.arange(6) * 0.1
    document = {"FrameDuration": 0.05, "LoopMode": "Clamp", "MotionWeight": 2.0, "Frames": rows.tolist()}
    (tmp_path / "dog.txt").write_text(json.dumps(document))
    assert "26 frames at 100 per second" in told(capsys, "convert", "dog.txt", "clips/dog", "--dt", "0.01")
    found = Clip.load("clips/dog")
    assert (len(found), found.weight, found.name) == (26, 2.0, "dog")
    np.testing.assert_allclose(found.frames.joint_velocities[:, 0], 2.0)
    told(capsys, "convert", clip, "clips/mirrored", "--mirror", "--weight", "3", "--name", "other")
    mirrored, plain = Clip.load("clips/mirrored"), Clip.load(clip)
    assert (mirrored.name, mirrored.weight) == ("other", 3.0)
    np.testing.assert_array_equal(mirrored.frames.joint_positions[:, :3], plain.frames.joint_positions[:, 3:])
    assert "times as long" in told(capsys, "convert", clip, "clips/odd", "--dt", "0.03")


def test_convert_says_that_a_clip_is_of_a_legged_robot(clip, capsys):
    of_go1 = MotionLibrary.load("pup12_trot").clips[0]
    dataclasses.replace(of_go1, meta={"robot": "go1"}).save("go1")
    told(capsys, "convert", "go1", "pup12", "--robot", "pup12")
    assert Clip.load("pup12").meta["robot"] == "pup12"


def test_clips_of_legged_robots_know_whose_they_are(clip, capsys, tmp_path):
    walks = MotionLibrary.load("pup12_trot").clips[0]
    assert walks.meta["robot"] == "pup12"
    walks.save("trot")
    found = json.loads(told(capsys, "check", "trot", "--json", code=1))  # feet of simulated clips sink in
    verdicts = {each["question"]: each["verdict"] for each in found}
    assert (verdicts["joint limits"], verdicts["floor"]) == ("ok", "wrong")
    bent = walks.frames.joint_positions.copy()
    bent[3, 0] += 3.0
    dataclasses.replace(walks, frames=walks.frames.replaced(joint_positions=bent)).save("bent")
    assert "FL_hip_joint" in told(capsys, "check", "bent", code=1).partition("joint limits")[2]
    if video_problem() is None and rendering_problem() is None:
        assert "pup12 in pup12_trot" in told(capsys, "view", "trot", "--out", "trot.gif", "--size", "64x48")
    dataclasses.replace(walks, meta={"robot": "rex"}).save("rex")
    assert "name one with --robot (walker" in told(capsys, "view", "rex", code=1)


def test_convert_warns_of_velocities_that_are_not_those_of_positions(clip, capsys):
    found = walk()[1]
    frames = found.frames.replaced(joint_velocities=1.5 * found.frames.joint_velocities)
    Clip(frames, 40.0, found.joints, found.bodies, loop=True).save("fast")
    assert "joint_velocities differ from differences of positions by 50%" in told(capsys, "convert", "fast", "same")
    assert "differ" not in told(capsys, "convert", "fast", "right", "--differentiate")
    np.testing.assert_allclose(Clip.load("right").frames.joint_velocities, found.frames.joint_velocities, atol=1e-12)


def test_files_without_names_are_read_with_those_of_a_robot(clip, capsys, tmp_path):
    frames = walk()[1].frames
    np.savez(
        tmp_path / "plain.npz",
        fps=40,
        joint_pos=frames.joint_positions,
        body_pos_w=frames.body_positions,
        body_quat_w=frames.body_rotations,
    )
    assert "names no joints" in told(capsys, "convert", "plain.npz", "out", code=1)
    told(capsys, "convert", "plain.npz", "out", "--robot", "walker", "--loop")
    assert Clip.load("out").joints == walk()[1].joints
    np.testing.assert_allclose(Clip.load("out").frames.joint_velocities, frames.joint_velocities, atol=1e-9)


@pytest.mark.skipif(video_problem() is not None, reason="no encoder")
def test_view_is_a_film(clip, capsys, tmp_path):
    try:
        text = told(capsys, "view", clip, "--out", "walk.gif", "--size", "64x48")
    except AssertionError:
        pytest.skip("nothing can be drawn here")
    assert "walker in walk, 41 frames at 40 per second" in text
    assert (tmp_path / "walk.gif").stat().st_size > 1000


class Bomb:
    def __reduce__(self):
        return (open, ("bomb_went_off", "w"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["info", "gone"], "gone does not exist"),
        (["info", "bomb.pkl"], "is a pickle, which could run anything"),
        (["check", "walk", "--robot", "wlker"], "did you mean 'walker'"),
        (["check", "walk", "--robot", "humanoid"], "joint 'right_hip', which humanoid does not have"),
        (["check", "walk", "--robot", "gone.xml"], "no model file"),
        (["convert", "walk", "walk"], "walk exists already"),
        (["convert", "walk", "out", "--dt", "0"], "dt is 0.0"),
        (["convert", "walk", "out", "--robot", "halfcheetah"], "which halfcheetah does not have"),
        (["convert", "swing", "out", "--mirror"], "name a --robot"),
        (["convert", "bad.txt", "out"], "joint_positions of 'FR_hip_joint' is nan in frame 1"),
        (["convert", "good.txt", "out", "--quaternion", "wxzy"], "quaternion order is 'wxzy'"),
        (["convert", "good.txt", "out", "--joints", "a,b"], "fit no 2 joints"),
        (["view", "swing"], "does not say which robot it moves"),
        (["view", "walk", "--out", "walk.doc"], "walk.doc"),
        (["record", "toy/pendulum", "out"], "no native task"),
        (["record", "walker/rnu", "out"], "did you mean walker/run"),
        (["record", "walker/run", "out", "--seconds", "100"], "episodes end after 25 s"),
        (["record", "walker/run", "out", "--seconds", "8", "--policy", "zero"], "none of 20 episodes lasted 9 s"),
        (["record", "walker/run", "walk"], "walk exists already"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(clip, capsys, tmp_path, arguments, words):
    make_clip().save("swing")
    (tmp_path / "bomb.pkl").write_bytes(pickle.dumps(Bomb()))
    rows = [[0.0] * 6 + [1.0] + [0.0] * 12] * 3
    document = {"FrameDuration": 0.02, "Frames": rows}
    (tmp_path / "good.txt").write_text(json.dumps(document))
    spoilt = [rows[0], [*rows[0][:7], float("nan"), *rows[0][8:]], rows[0]]
    (tmp_path / "bad.txt").write_text(json.dumps({**document, "Frames": spoilt}))
    before = sorted(path.name for path in tmp_path.iterdir())
    assert words in told(capsys, *arguments, code=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_recorded_clips_are_experts_of_style_and_starts(clip, capsys, tmp_path):
    """A legged robot is recorded as motion priors compare it, under every command that is given."""
    common = ["--policy", "zero", "--seconds", "0.4", "--warmup", "0.2"]
    told(capsys, "record", "pup12/gait_residual", "one", "--command", "0.5,0,0", *common)
    one = Clip.load("one")
    assert one.bodies == ("trunk", "FL_foot", "FR_foot", "RL_foot", "RR_foot")
    assert (one.weight, one.meta["command"], one.meta["kind"]) == (1.0, [0.5, 0.0, 0.0], "recorded")
    assert one.meta["velocity"] == pytest.approx(velocity_of(one), abs=1e-4)
    assert "an AMP file of 61 numbers a frame" in told(capsys, "convert", "one", "one.txt")
    commands = [text for each in ("0.5,0,0", "0.8,0,0.2", "0.5,0,0") for text in ("--command", each)]
    told(capsys, "record", "pup12/gait_residual", "many", *commands, *common)
    many = {each.name: each for each in MotionLibrary.load("many").clips}
    # two clips of one command share its weight, and differ in their starts
    weights = {"many_0.5_0_0": 0.5, "many_0.5_0_0_2": 0.5, "many_0.8_0_0.2": 1.0}
    assert {name: each.weight for name, each in many.items()} == weights
    assert [many[name].meta["seed"] for name in weights] == [0, 1, 0]
    for motion in ("one", "many"):
        starts = {"name": "starts", "motion": motion, "probability": 1.0, "reference": True}
        env = make_env("pup12/amp_trot", 2, num_threads=1, wrappers=[starts])
        assert env.reset(0)["reference"].shape == (2, 46)
        assert StyleReward(env.spec, motion, expert_pairs=16, replay=0).expert.shape == (16, 2, 46)


def tensors(state, path=""):
    """All tensors of a nested state as bytes, by their place."""
    if isinstance(state, dict):
        return {place: found for key in state for place, found in tensors(state[key], f"{path}/{key}").items()}
    return {path: state.numpy().tobytes()} if isinstance(state, torch.Tensor) else {}


def test_record_and_begin_a_run_in_what_was_recorded(clip, capsys, tmp_path, monkeypatch):
    """A clip of random actions becomes the start of training, which goes on from a checkpoint bit for bit."""
    text = told(capsys, "record", "walker/run", "clips/random", "--seconds", "0.25", "--warmup", "0.1", "--seed", "3")
    assert "11 frames at 40 per second (0.25 s, open), 6 joints" in text
    found = Clip.load("clips/random")
    assert found.meta["robot"] == "walker"
    assert "random actions" in found.source
    wrappers = "[{name: starts, motion: clips, probability: 0.7}, {name: features, features: amp}]"
    common = ["env.num_envs=8", "algorithm.rollout_steps=16", "algorithm.minibatches=2", "algorithm.epochs=1"]
    common += [
        f"env.wrappers={wrappers}",
        "evaluation.interval=0",
        "evaluation.episodes=1",
        "logging.code=none",
        "--quiet",
    ]
    assert main(["train", "run_dir=run", "total_steps=384", "checkpoints.interval=128", *common]) == 0
    shutil.copytree("run", "again", symlinks=True)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # paths of clips are whole
    assert main(["resume", "../again", "--checkpoint", "256", "--quiet"]) == 0
    last = [load_state(tmp_path / run / "checkpoints/last", kind="checkpoint")[0] for run in ("run", "again")]
    for part in ("algorithm", "env"):
        assert tensors(last[0][part]), part
        assert tensors(last[0][part]) == tensors(last[1][part]), part
    contract = json.loads((tmp_path / "run/contract.json").read_text())
    assert contract["facts"]["amp"]["root"] == "planar"
    capsys.readouterr()
    walk()[1].save(tmp_path / "clips/further")  # the library is no longer what it was
    assert main(["resume", "../again", "more=128", "--quiet"]) == 1
    assert "not those of the stored state" in capsys.readouterr().err


def test_clips_that_come_with_the_library_are_known_by_name(clip, capsys):
    found = json.loads(told(capsys, "info", "pup12_trot", clip, "--json"))
    assert len(found) == 8
    assert found[3]["name"] == "pup12_trot_0.5_0_0"
    assert json.loads(told(capsys, "check", "pup12_trot/pup12_trot_0.5_0_0", "--json", code=1))
    assert "holds 7 clips; name one of them, such as pup12_trot/pup12_trot_-0.4" in told(
        capsys, "check", "pup12_trot", code=1
    )
    assert "oscillator, pup12_gaits, pup12_trot" in told(capsys, "info", "pup12_tort", code=1)
    assert "does not exist" in told(capsys, "info", "pup12_trot/../pup12_gaits", code=1)
