"""Clips to AMP files and back: E-CLIP's round trip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gaitway.cli.main import main
from gaitway.envs.motions.amp_files import write_amp
from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.importers.read import read_motion
from gaitway.envs.motions.importers.reading import Reading
from gaitway.envs.motions.library import MotionLibrary


def clip_of_a_turn() -> Clip:
    """A replayed trot that turns: its root and its feet move in every way."""
    return next(clip for clip in MotionLibrary.load("pup12_trot").clips if clip.meta["command"][2] > 0)


def test_a_clip_comes_back_and_its_legs_stood_in_the_files_order(tmp_path: Path) -> None:
    clip = clip_of_a_turn()
    assert write_amp(clip, tmp_path / "turn.txt") == 61
    back = read_motion(str(tmp_path / "turn.txt"), Reading())
    assert back.joints[0] == "FR_hip_joint"  # ours begin with FL
    again = back.reordered(clip.joints, ("root", *clip.bodies[1:]))
    for name in ("joint_positions", "joint_velocities", "body_positions", "body_velocities"):
        np.testing.assert_allclose(getattr(again.frames, name), getattr(clip.frames, name), atol=1e-6, err_msg=name)
    np.testing.assert_allclose(again.frames.body_rotations[:, 0], clip.frames.body_rotations[:, 0], atol=1e-9)
    np.testing.assert_allclose(
        again.frames.body_angular_velocities[:, 0], clip.frames.body_angular_velocities[:, 0], atol=1e-9
    )
    assert back.dt == pytest.approx(0.02)
    assert not back.loop


def test_convert_writes_such_files(tmp_path: Path, capsys) -> None:
    folder, file = tmp_path / "clip", tmp_path / "clip.txt"
    clip_of_a_turn().save(folder)
    assert main(["motion", "convert", str(folder), str(file)]) == 0
    assert "61 numbers a frame" in capsys.readouterr().out
    assert len(read_motion(str(file), Reading())) == 101
    assert main(["motion", "convert", str(folder), str(file)]) == 1  # it is there already
