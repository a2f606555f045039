"""Clips: interpolation, loops, rates, mirrors, differences, files, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from motion_cases import Z, make_clip

from gaitway.core.files import StateFileError, save_state
from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.frames import Frames, MotionError, make_frames
from gaitway.envs.motions.library import MotionLibrary
from gaitway.envs.motions.mirror import Mirror, other_side
from gaitway.functional.rotations import about, angle_about, product


def same(one: Frames, other: Frames, atol=1e-12):
    for name, array in one.arrays().items():
        np.testing.assert_allclose(array, getattr(other, name), atol=atol, err_msg=name)


def test_a_frame_is_at_its_index_over_the_rate():
    clip = make_clip()
    assert clip.duration == pytest.approx(1.0)
    same(clip.at(np.arange(11) / 10), clip.frames)


def test_between_frames_vectors_are_linear_and_rotations_spherical():
    clip = make_clip()
    found = clip.at(0.237)  # between frames 2 and 3, at 0.37
    angles = clip.frames.joint_positions
    np.testing.assert_allclose(found.joint_positions[0], 0.63 * angles[2] + 0.37 * angles[3])
    np.testing.assert_allclose(found.body_positions[0, 0], [0.474, 0, 1])
    np.testing.assert_allclose(angle_about(Z, found.body_rotations[0]), [0.237])
    speeds = clip.frames.joint_velocities
    np.testing.assert_allclose(found.joint_velocities[0], 0.63 * speeds[2] + 0.37 * speeds[3])


def test_an_open_clip_is_held_at_rest_beyond_its_end():
    clip = make_clip()
    found, last = clip.at([1.0, 1.3, -0.2]), clip.frames
    np.testing.assert_array_equal(found.joint_positions[:2], last.joint_positions[[-1, -1]])
    np.testing.assert_array_equal(found.joint_positions[2], last.joint_positions[0])
    np.testing.assert_array_equal(found.joint_velocities[0], last.joint_velocities[-1])
    assert not found.joint_velocities[1:].any()
    assert not found.body_velocities[1:].any()
    assert not found.body_angular_velocities[1:].any()


def test_a_loop_goes_on_from_where_it_ended():
    clip = make_clip(loop=True)
    for time in (0.04, 0.5, 0.97):
        here, later = clip.at(time), clip.at(time + 3 * clip.duration)
        np.testing.assert_allclose(later.joint_positions, here.joint_positions, atol=1e-12)
        np.testing.assert_allclose(later.joint_velocities, here.joint_velocities, atol=1e-12)
        np.testing.assert_allclose(later.body_positions - here.body_positions, [[[6.0, 0, 0]]], atol=1e-12)
    before = clip.at(-0.25)
    np.testing.assert_allclose(before.body_positions[0, 0], [-0.5, 0, 1], atol=1e-12)


def test_a_clip_that_is_one_frame_too_long_is_found(monkeypatch):
    """F frames last F - 1 times the time between them."""
    monkeypatch.setattr(Clip, "duration", property(lambda clip: len(clip) * clip.dt))
    for twin in (test_a_frame_is_at_its_index_over_the_rate, test_a_loop_goes_on_from_where_it_ended):
        with pytest.raises(AssertionError):
            twin()


def test_differences_are_central_and_go_around_the_seam_of_a_loop():
    clip = make_clip(loop=True)
    angle, speed = clip.frames.joint_positions[:, 0], clip.frames.joint_velocities[:, 0]
    np.testing.assert_allclose(speed[1:-1], (angle[2:] - angle[:-2]) / 0.2, atol=1e-12)
    np.testing.assert_allclose(speed[[0, -1]], [(angle[1] - angle[-2]) / 0.2] * 2, atol=1e-12)
    # of a sine sampled at h: pi cos(t) sin(2 pi h) / (2 pi h)
    np.testing.assert_allclose(speed[0], math.pi * math.sin(0.2 * math.pi) / (0.2 * math.pi), atol=1e-12)
    np.testing.assert_allclose(clip.frames.body_velocities[:, 0], np.tile([2.0, 0, 0], (11, 1)), atol=1e-12)
    np.testing.assert_allclose(clip.frames.body_angular_velocities[:, 0], np.tile([0, 0, 1.0], (11, 1)), atol=1e-12)
    open_clip = make_clip()
    np.testing.assert_allclose(open_clip.frames.joint_velocities[0, 0], (angle[1] - angle[0]) / 0.1, atol=1e-12)


def test_angular_velocities_are_those_of_the_world_and_of_balls_their_own():
    # a turn about the body's own x after one of 90 degrees about z: the world sees it about y
    times = np.arange(5) / 10
    turned = np.array([math.sqrt(0.5), 0, 0, math.sqrt(0.5)])
    rotations = product(turned, about(np.array([1.0, 0, 0]), 3.0 * times))
    frames = make_frames(np.zeros((5, 0)), np.zeros((5, 1, 3)), rotations[:, None], rotations[:, None])
    clip = Clip(frames, 10.0, (), ("torso",), ("ball",)).differentiated()
    np.testing.assert_allclose(clip.frames.body_angular_velocities[:, 0], np.tile([0, 3.0, 0], (5, 1)), atol=1e-12)
    np.testing.assert_allclose(clip.frames.ball_velocities[:, 0], np.tile([3.0, 0, 0], (5, 1)), atol=1e-12)


def test_resampling_an_open_clip():
    clip = make_clip()
    half = clip.resampled(0.05)
    assert (len(half), half.fps) == (21, pytest.approx(20.0))
    same(half.frames.map(lambda array: array[::2]), clip.frames)
    assert "time_stretch" not in half.meta
    odd = clip.resampled(0.3)  # 0, 0.3, 0.6, 0.9: the rest is cut
    assert len(odd) == 4
    assert not odd.loop


def test_resampling_a_loop_closes_it_and_says_by_how_much_it_was_stretched():
    clip = make_clip(loop=True)
    exact = clip.resampled(0.05)
    assert exact.duration == pytest.approx(1.0)
    assert "time_stretch" not in exact.meta
    other = clip.resampled(0.15)  # 1 / 0.15 = 6.67: seven frames, 1.05 s
    assert (len(other), other.duration) == (8, pytest.approx(1.05))
    assert other.meta["time_stretch"] == pytest.approx(1.05)
    np.testing.assert_allclose(other.frames.joint_positions[[0, -1]], clip.frames.joint_positions[[0, -1]], atol=1e-12)
    np.testing.assert_allclose(other.frames.body_velocities[:, 0, 0], 2.0 / 1.05, atol=1e-12)
    np.testing.assert_allclose(other.displacement, clip.displacement, atol=1e-12)


def test_a_mirror_swaps_sides_and_is_its_own_inverse():
    clip = make_clip()
    mirror = Mirror(signs={"left_knee": -1, "right_knee": -1})
    found = clip.mirrored(mirror)
    np.testing.assert_allclose(found.frames.joint_positions, -clip.frames.joint_positions[:, ::-1])
    np.testing.assert_allclose(found.frames.body_angular_velocities[:, 0, 2], -1.0)
    np.testing.assert_allclose(angle_about(Z, found.frames.body_rotations[:, 0]), -np.arange(11) / 10, atol=1e-12)
    same(found.mirrored(mirror).frames, clip.frames)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("left_knee", "right_knee"),
        ("RightFoot", "LeftFoot"),
        ("FR_hip_joint", "FL_hip_joint"),
        ("RL_calf_joint", "RR_calf_joint"),
        ("hip_l", "hip_r"),
        ("abdomen_z", "abdomen_z"),
        ("lower_leg", "lower_leg"),
    ],
)
def test_the_other_side_of_a_name(name, other):
    assert other_side(name) == other
    assert other_side(other) == name


def test_a_clip_comes_back_from_its_folder(tmp_path):
    clip = make_clip(loop=True, weight=2.5, source="a test", meta={"gait": "swing"})
    clip.save(tmp_path / "clip")
    found = Clip.load(tmp_path / "clip")
    assert sorted(path.name for path in (tmp_path / "clip").iterdir()) == ["state.json", "state.safetensors"]
    same(found.frames, clip.frames, atol=0)
    for key in ("fps", "joints", "bodies", "balls", "loop", "weight", "source", "name", "meta", "fingerprint"):
        assert getattr(found, key) == getattr(clip, key), key
    written = json.loads((tmp_path / "clip/state.json").read_text())
    assert "wxyz" in json.dumps(written)
    assert "rad" in json.dumps(written)


def saved(tmp_path, **changes):
    """A clip's folder whose header says something else."""
    clip = make_clip()
    tensors = {name: torch.from_numpy(array) for name, array in clip.frames.arrays().items()}
    header = {"name": "swing", "fps": 10.0, "joints": list(clip.joints), "bodies": ["torso"], "balls": []}
    header |= {"loop": False, "weight": 1.0, "source": "", "quaternion_order": "wxyz", "meta": {}}
    header |= {"units": {"length": "m", "angle": "rad", "time": "s"}, **changes}
    tensors = changes.pop("tensors", tensors)
    header.pop("tensors", None)
    save_state(tmp_path / "clip", tensors, kind="motion", meta={k: v for k, v in header.items() if v is not None})
    return tmp_path / "clip"


def test_quaternions_of_a_file_may_be_xyzw(tmp_path):
    clip = make_clip()
    tensors = {name: torch.from_numpy(array) for name, array in clip.frames.arrays().items()}
    tensors["body_rotations"] = tensors["body_rotations"][..., [1, 2, 3, 0]]
    same(Clip.load(saved(tmp_path, quaternion_order="xyzw", tensors=tensors)).frames, clip.frames)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"quaternion_order": "wzyx"}, ["quaternion order", "'wzyx'", "wxyz"]),
        ({"quaternion_order": None}, ["lacks 'quaternion_order'"]),
        ({"units": {"length": "cm"}}, ["units", "cm"]),
        ({"fps": 0.0}, ["0.0 frames per second"]),
        ({"fps": "50"}, ["'50' frames per second"]),
        ({"weight": -1.0}, ["weight is -1.0"]),
        ({"loop": 1}, ["loop is 1", "true or false"]),
        ({"joints": ["left_knee"]}, ["joint_positions is", "[11, 1]"]),
        ({"joints": ["left_knee", "left_knee"]}, ["'left_knee' twice"]),
        ({"joints": 7}, ["no motion that can be used"]),
        ({"joints": ["a", 3]}, ["3, which is no text"]),
        ({"tensors": {"joint_positions": torch.zeros(3, 2)}}, ["lacks 'joint_velocities'"]),
    ],
)
def test_a_folder_that_is_no_clip_is_refused(tmp_path, changes, words):
    folder = saved(tmp_path, **changes)
    with pytest.raises(MotionError) as caught:
        Clip.load(folder)
    sentence = str(caught.value)
    assert all(word in sentence for word in [str(folder), *words]), sentence
    assert "\n" not in sentence


def test_a_damaged_file_and_another_kind_are_refused(tmp_path):
    make_clip().save(tmp_path / "clip")
    with open(tmp_path / "clip/state.safetensors", "r+b") as file:
        file.seek(-8, 2)
        file.write(b"12345678")
    with pytest.raises(StateFileError, match=r"damaged"):
        Clip.load(tmp_path / "clip")
    save_state(tmp_path / "other", {}, kind="skills")
    with pytest.raises(StateFileError, match=r"'skills' where a 'motion' is needed"):
        Clip.load(tmp_path / "other")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_is_named_with_joint_and_frame(value):
    frames = make_clip().frames
    angles = frames.joint_positions.copy()
    angles[7, 1] = value
    with pytest.raises(MotionError, match=f"swing: joint_positions of 'right_knee' is {value} in frame 7"):
        dataclasses.replace(make_clip(), frames=frames.replaced(joint_positions=angles))


def test_a_zero_quaternion_and_a_single_frame_are_refused():
    clip = make_clip()
    rotations = clip.frames.body_rotations.copy()
    rotations[4] = 0.0
    with pytest.raises(MotionError, match=r"quaternion of 'torso' is zero in frame 4"):
        dataclasses.replace(clip, frames=clip.frames.replaced(body_rotations=rotations))
    with pytest.raises(MotionError, match=r"1 frames; a motion has at least 2"):
        dataclasses.replace(clip, frames=clip.frames.map(lambda array: array[:1]))


def test_quaternions_are_normalised_and_it_is_known_by_how_much():
    clip = make_clip()
    long = dataclasses.replace(clip, frames=clip.frames.replaced(body_rotations=2.0 * clip.frames.body_rotations))
    assert long.norm_error == pytest.approx(1.0)
    assert clip.norm_error < 1e-12
    same(long.frames, clip.frames)


@pytest.mark.parametrize("dt", [0.0, -1.0, np.nan, np.inf, 2.0, 1e-9])
def test_rates_that_cannot_be_are_refused(dt):
    with pytest.raises(MotionError, match=r"dt|frame"):
        make_clip().resampled(dt)


# libraries


def test_clips_are_drawn_by_weight_and_times_leave_room():
    library = MotionLibrary([make_clip(weight=1.0), make_clip(weight=3.0, loop=True), make_clip(weight=0.0)])
    clip, times = library.draw(np.random.default_rng(0), 20_000, ahead=0.1)
    shares = np.bincount(clip, minlength=3) / 20_000
    # four deviations of a share p: 4 sqrt(p (1 - p) / n)
    np.testing.assert_allclose(shares, [0.25, 0.75, 0.0], atol=4 * math.sqrt(0.25 * 0.75 / 20_000))
    assert times[clip == 0].max() <= 0.9
    assert times[clip == 1].max() > 0.95
    assert times.min() >= 0.0
    assert 0.44 < times[clip == 0].mean() < 0.46


def test_a_library_at_any_time_equals_its_clips():
    clips = [make_clip(), make_clip(loop=True, fps=20.0), make_clip(frames=5)]
    library = MotionLibrary(clips)
    generator = np.random.default_rng(1)
    which, times = generator.integers(0, 3, 200), generator.uniform(-0.5, 3.0, 200)
    found = library.at(which, times)
    for number in range(3):
        mine = which == number
        same(found.map(lambda array, mine=mine: array[mine]), clips[number].at(times[mine]))


def test_pairs_are_one_step_apart():
    library = MotionLibrary([make_clip(loop=True)])
    before, after = library.draw_pairs(np.random.default_rng(0), 500, 0.05)
    np.testing.assert_allclose(
        after.body_positions - before.body_positions, np.tile([0.1, 0, 0], (500, 1, 1)), atol=1e-9
    )


def test_joints_of_a_second_clip_are_put_in_the_order_of_the_first():
    clip = make_clip()
    other = clip.reordered(("right_knee", "left_knee"), ("torso",))
    library = MotionLibrary([clip, other])
    same(library.at(np.array([1]), np.array([0.3])), clip.at(0.3))


def test_what_does_not_fit_into_a_library_is_refused(tmp_path):
    clip = make_clip()
    with pytest.raises(MotionError, match=r"has no joint 'right_knee'"):
        MotionLibrary([clip, clip.reordered(("left_knee",), ("torso",))])
    with pytest.raises(MotionError, match=r"joint 'right_knee', which swing lacks"):
        MotionLibrary([clip.reordered(("left_knee",), ("torso",)), clip])
    with pytest.raises(MotionError, match=r"weight 0"):
        MotionLibrary([make_clip(weight=0.0)])
    with pytest.raises(MotionError, match=r"at least one clip"):
        MotionLibrary([])
    with pytest.raises(MotionError, match=r"every 0.1 s and a step of walker/run takes 0.025 s; .*--dt 0.025"):
        MotionLibrary([clip]).need_dt(0.025, "walker/run")
    MotionLibrary([clip]).need_dt(0.1, "walker/run")
    with pytest.raises(MotionError, match=r"shorter than the 5 s"):
        MotionLibrary([clip]).draw(np.random.default_rng(0), 1, ahead=5.0)
    with pytest.raises(MotionError, match=r"nowhere does not exist, or is no folder of a motion"):
        MotionLibrary.load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StateFileError, match=r"holds no state"):
        MotionLibrary.load(tmp_path / "empty")


def test_a_folder_of_clips_is_a_library(tmp_path):
    for name in ("b", "a"):
        make_clip(name=name).save(tmp_path / name)
    library = MotionLibrary.load(tmp_path)
    assert [clip.name for clip in library.clips] == ["a", "b"]
    assert library.fingerprint == MotionLibrary.load([tmp_path / "a", tmp_path / "b"]).fingerprint
    assert library.fingerprint != MotionLibrary.load(str(tmp_path / "a")).fingerprint


def test_times_of_whole_frames_leave_as_much_as_is_asked():
    clip = make_clip()  # 11 frames, 0.1 s apart
    library = MotionLibrary([clip])
    _, times = library.draw(np.random.default_rng(0), 500, ahead=0.34, between_frames=False)
    np.testing.assert_allclose(times * 10, np.round(times * 10))
    assert {round(10 * time) for time in times} == set(range(7))  # 0.7 s would leave 0.3 s
