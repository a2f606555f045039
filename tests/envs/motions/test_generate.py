"""Gaits as clips: what they say of themselves, their feet, and episodes that begin in them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gaitway import make_env
from gaitway.cli.main import main
from gaitway.envs.motions import generate
from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.features import MotionFeatures
from gaitway.envs.motions.frames import MotionError
from gaitway.envs.motions.generate import GAITS, commands_of, kinematic, replayed, velocity_of
from gaitway.envs.motions.library import MotionLibrary


@pytest.fixture(scope="module")
def trot() -> Clip:
    return replayed("trot", (0.5, 0.0, 0.0), seconds=1.0)


def test_a_replayed_gait_is_what_the_robot_did(trot: Clip) -> None:
    assert len(trot) == 51
    assert trot.bodies == ("trunk", "FL_foot", "FR_foot", "RL_foot", "RR_foot")
    # open loop the trot falls short of its command (0.26 of 0.5 m/s were measured)
    assert 0.2 < trot.meta["velocity"][0] < 0.4
    np.testing.assert_allclose(trot.meta["velocity"], velocity_of(trot), atol=1e-3)
    feet = trot.frames.body_positions[:, 1:, 2] - 0.022
    assert -0.012 < feet.min() < 0.002  # contacts are soft: a foot that lands goes in by up to a centimetre
    # stored velocities are those of the places: 2.5 Hz strides, differences at 50 Hz
    moved = trot.differentiated().frames.body_velocities[5:-5, 0]
    np.testing.assert_allclose(trot.frames.body_velocities[5:-5, 0], moved, atol=0.08)


def test_a_gait_may_be_told_more_than_policies_are(caplog: pytest.LogCaptureFixture) -> None:
    """`commands.x` of pup12/gait_residual ends at 1 m/s, and no policy is here to be warned of."""
    assert velocity_of(kinematic("trot", (1.2, 0.0, 0.0)))[0] == pytest.approx(1.2)
    assert not caplog.records


def test_a_kinematic_gait_follows_its_command_and_closes() -> None:
    clip = kinematic("trot", (0.5, 0.0, 0.0))
    assert len(clip) == 10 * 20 + 1
    assert clip.loop
    np.testing.assert_allclose(velocity_of(clip), (0.5, 0.0, 0.0), atol=1e-9)
    np.testing.assert_allclose(clip.frames.joint_positions[0], clip.frames.joint_positions[-1], atol=1e-9)
    feet = clip.frames.body_positions[:, 1:]
    ground = np.abs(feet[..., 2] - 0.022) < 1e-9
    still = ground[:-1] & ground[1:]
    slip = np.linalg.norm(np.diff(feet[..., :2], axis=0), axis=-1)[still]
    assert still.mean() > 0.4
    assert slip.max() < 1e-9  # feet on the ground do not move
    with pytest.raises(MotionError, match="no gait 'gallop'; there are trot"):
        kinematic("gallop", (0.5, 0.0, 0.0))


def test_the_image_of_a_trot_is_a_trot_half_a_cycle_later() -> None:
    from gaitway.envs.motions.skeleton import Skeleton

    clip = kinematic("trot", (0.5, 0.0, 0.0), cycles=2)
    env = make_env("pup12/gait_residual", 1, num_threads=1)
    image = clip.mirrored(Skeleton.of_task(env.task).mirror())  # type: ignore[attr-defined]
    np.testing.assert_allclose(image.frames.joint_positions[:20], clip.frames.joint_positions[10:30], atol=1e-9)


def test_episodes_begin_in_the_clip_and_show_its_features() -> None:
    env = make_env(
        "pup12/amp_trot",
        32,
        num_threads=1,
        wrappers=[{"name": "starts", "motion": "pup12_trot", "probability": 1.0}],
    )
    features = MotionFeatures.of_spec(env.spec)
    assert features.size == 46
    seen = env.reset(0)["amp"]
    library = MotionLibrary.load("pup12_trot")
    drawn = features.at(library, *_draws(env))
    np.testing.assert_allclose(seen[:, 1:34].numpy(), drawn[:, 1:34], atol=2e-5, rtol=1e-5)
    lift = seen[:, 0].numpy() - drawn[:, 0]  # out of the ground, into which feet of the simulated clip sink
    assert (lift > 0.0).all()
    assert lift.max() < 0.01
    # between two frames a clip's feet are on the line between them, the robot's where its joints put them
    np.testing.assert_allclose(seen[:, 34:].numpy(), drawn[:, 34:], atol=1e-3, rtol=0)
    step = env.step(torch.zeros(32, 12))
    assert step.obs["amp"].shape == (32, 46)
    assert not bool(step.terminated.any())


def _draws(env) -> tuple[np.ndarray, np.ndarray]:
    """Which clip, and when in it, the first episodes of seed 0 begin in."""
    from gaitway.envs.motions.starts import STREAM

    numbers = np.stack([env.env.episode_generator(row, STREAM).random(3) for row in range(32)])
    return env.library.place(numbers[:, 1], numbers[:, 2])


def test_the_command_writes_clips(tmp_path, capsys) -> None:
    out = tmp_path / "trot"
    command = ["motion", "generate", "trot", str(out), "--command", "0.5,0,0", "--kind", "kinematic"]
    assert main(command) == 0
    assert Clip.load(out).meta["gait"] == "trot"
    assert "loop" in capsys.readouterr().out
    assert main(command) != 0  # it is there already
    with pytest.raises(SystemExit):
        main(["motion", "generate", "trot", str(tmp_path / "x"), "--command", "0.5,0"])


@pytest.mark.parametrize("gait", GAITS)
def test_every_gait_has_commands_that_it_is_for(gait, tmp_path, capsys) -> None:
    out = tmp_path / gait
    assert main(["motion", "generate", gait, str(out), "--seconds", "1"]) == 0
    clips = MotionLibrary.load(out).clips
    told = {tuple(clip.meta["command"]) for clip in clips}
    assert told == set(commands_of(gait))
    # the table of gaits: a walk goes straight, up to 0.4 m/s; a slow trot and a bound up to 0.8
    fastest = {"trot": 1.0, "trot_slow": 0.8, "pace": 1.0, "bound": 0.8, "walk": 0.4}
    assert max(abs(x) for x, _, _ in told) == fastest[gait]
    assert gait != "walk" or all(turn == 0.0 for _, _, turn in told)


def test_a_set_of_clips_is_written_whole_or_not_at_all(tmp_path, capsys, monkeypatch) -> None:
    out = tmp_path / "walk"
    monkeypatch.setattr(generate, "COMMANDS", {"walk": ((0.2, 0.0, 0.0), (1.0, 0.0, 0.0))})  # it falls at 1 m/s
    command = ["motion", "generate", "walk", str(out), "--seconds", "1"]
    assert main(command) == 1
    assert "command less" in capsys.readouterr().err
    assert not out.exists()
    monkeypatch.undo()
    assert main([*command, "--kind", "kinematic"]) == 0
    assert sorted(clip.name for clip in MotionLibrary.load(out).clips)[1] == "pup12_walk_0.2_0_0_kinematic"
    assert len(MotionLibrary.load(out)) == len(commands_of("walk"))  # each in a folder of its own
