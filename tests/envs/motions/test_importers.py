"""Motion files of others, written by hand, against an independent computation in float64."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest

from gaitway.envs.motions.frames import MotionError
from gaitway.envs.motions.importers.amp import LEG_FEET, LEG_JOINTS
from gaitway.envs.motions.importers.deepmimic import HUMANOID3D
from gaitway.envs.motions.importers.read import read_motion
from gaitway.envs.motions.importers.reading import Reading


def matrix(w, x, y, z):
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def amp_rows(frames=4, joints=12, feet=4, seed=0):
    """Rows of 13 + 2 joints + 6 feet numbers, and the parts they are made of."""
    generator = np.random.default_rng(seed)
    parts = {
        "place": generator.standard_normal((frames, 3)),
        "quaternion": generator.standard_normal((frames, 4)),
        "angles": generator.standard_normal((frames, joints)),
        "feet": generator.standard_normal((frames, feet, 3)),
        "velocity": generator.standard_normal((frames, 3)),
        "spin": generator.standard_normal((frames, 3)),
        "speeds": generator.standard_normal((frames, joints)),
        "feet_speeds": generator.standard_normal((frames, feet, 3)),
    }
    parts["quaternion"] /= np.linalg.norm(parts["quaternion"], axis=1, keepdims=True)
    return np.concatenate([part.reshape(frames, -1) for part in parts.values()], 1), parts


def write_amp(path, rows, **changes):
    document = {"LoopMode": "Wrap", "FrameDuration": 0.021, "EnableCycleOffsetPosition": True, "MotionWeight": 0.5}
    path.write_text(json.dumps({**document, "Frames": rows.tolist(), **changes}))
    return path


def test_amp_rows_of_61_numbers(tmp_path):
    rows, parts = amp_rows()
    assert rows.shape[1] == 61
    clip = read_motion(write_amp(tmp_path / "trot.txt", rows))
    assert (clip.joints, clip.bodies, clip.loop, clip.weight) == (LEG_JOINTS, ("root", *LEG_FEET), True, 0.5)
    assert clip.dt == pytest.approx(0.021)
    assert clip.name == "trot"
    assert "trot.txt" in clip.source
    found = clip.frames
    np.testing.assert_array_equal(found.joint_positions, parts["angles"])
    np.testing.assert_array_equal(found.joint_velocities, parts["speeds"])
    for frame in range(4):
        x, y, z, w = parts["quaternion"][frame]
        turn = matrix(w, x, y, z)
        np.testing.assert_allclose(matrix(*found.body_rotations[frame, 0]), turn, atol=1e-14)
        np.testing.assert_allclose(found.body_positions[frame, 0], parts["place"][frame])
        velocity, spin = turn @ parts["velocity"][frame], turn @ parts["spin"][frame]
        np.testing.assert_allclose(found.body_velocities[frame, 0], velocity, atol=1e-14)
        np.testing.assert_allclose(found.body_angular_velocities[frame, 0], spin, atol=1e-14)
        for foot in range(4):
            away = turn @ parts["feet"][frame, foot]
            np.testing.assert_allclose(found.body_positions[frame, 1 + foot], parts["place"][frame] + away, atol=1e-14)
            expected = velocity + np.cross(spin, away) + turn @ parts["feet_speeds"][frame, foot]
            np.testing.assert_allclose(found.body_velocities[frame, 1 + foot], expected, atol=1e-14)


def test_amp_rows_without_velocities_get_differences(tmp_path):
    # 19 numbers; root goes 0.5 m/s along x and turns about z by 0.1 rad a frame, one joint 2 rad/s
    rows = np.zeros((5, 19))
    times = np.arange(5) * 0.02
    rows[:, 0], rows[:, 2], rows[:, 7] = 0.5 * times, 0.3, 2.0 * times
    rows[:, 5], rows[:, 6] = np.sin(0.05 * np.arange(5)), np.cos(0.05 * np.arange(5))  # x y z w
    clip = read_motion(write_amp(tmp_path / "m.json", rows, FrameDuration=0.02, LoopMode="Clamp"))
    assert not clip.loop
    assert len(clip.joints) == 12
    assert clip.bodies == ("root",)
    np.testing.assert_allclose(clip.frames.body_velocities[:, 0], np.tile([0.5, 0, 0], (5, 1)), atol=1e-12)
    np.testing.assert_allclose(clip.frames.body_angular_velocities[:, 0], np.tile([0, 0, 5.0], (5, 1)), atol=1e-12)
    np.testing.assert_allclose(clip.frames.joint_velocities[:, 0], 2.0, atol=1e-12)


def test_amp_rows_of_another_robot_are_read_with_its_names(tmp_path):
    rows, parts = amp_rows(joints=2, feet=1)
    reading = Reading(joints=("hip", "knee"), bodies=("trunk", "foot"))
    clip = read_motion(write_amp(tmp_path / "hopper.txt", rows), reading)
    assert clip.joints == ("hip", "knee")
    assert clip.bodies == ("trunk", "foot")
    np.testing.assert_array_equal(clip.frames.joint_velocities, parts["speeds"])


def test_columns_with_names_are_taken_by_name(tmp_path):
    # columns in an order of their own; velocities of the root in its own frame
    fields = ["knee_dof_pos", "root_rot_x", "root_rot_y", "root_rot_z", "root_rot_w", "root_pos_z", "root_pos_x"]
    fields += ["root_pos_y", "knee_dof_vel", "root_vel_x_b", "root_vel_y_b", "root_vel_z_b"]
    half = math.sqrt(0.5)
    rows = np.tile([0.1, 0, 0, half, half, 0.9, 1.0, 2.0, 0.7, 3.0, 0.0, 0.0], (3, 1))
    clip = read_motion(write_amp(tmp_path / "f.json", rows, Fields=fields))
    assert clip.joints == ("knee",)
    np.testing.assert_allclose(clip.frames.body_positions[0, 0], [1, 2, 0.9])
    np.testing.assert_allclose(clip.frames.body_velocities[0, 0], [0, 3, 0], atol=1e-12)  # x is y after 90 degrees
    np.testing.assert_allclose(clip.frames.joint_velocities[:, 0], 0.7)
    np.testing.assert_allclose(clip.frames.body_angular_velocities, 0, atol=1e-12)


def write_deepmimic(path, rows, loop="wrap", **changes):
    path.write_text(json.dumps({"Loop": loop, "Frames": rows.tolist(), **changes}))
    return path


def deepmimic_rows(frames=4, seed=1):
    generator = np.random.default_rng(seed)
    columns = [np.full((frames, 1), 1 / 30), generator.standard_normal((frames, 3))]
    for size in (4, *(size for _, size in HUMANOID3D)):
        part = generator.standard_normal((frames, size))
        columns.append(part / np.linalg.norm(part, axis=1, keepdims=True) if size == 4 else part)
    return np.concatenate(columns, 1)


def test_deepmimic_rows_of_44_numbers(tmp_path):
    rows = deepmimic_rows()
    assert rows.shape[1] == 44
    clip = read_motion(write_deepmimic(tmp_path / "walk.txt", rows))
    assert clip.fps == pytest.approx(30)
    assert clip.loop
    assert clip.joints == ("right_knee", "right_elbow", "left_knee", "left_elbow")
    assert len(clip.balls) == 8
    assert clip.balls[:2] == ("chest", "neck")
    assert clip.bodies == ("root",)
    up = np.array([[1, 0, 0], [0, 0, -1], [0, 1, 0]])  # y becomes z
    np.testing.assert_allclose(up @ [0, 1, 0], [0, 0, 1])
    for frame in range(4):
        np.testing.assert_allclose(clip.frames.body_positions[frame, 0], up @ rows[frame, 1:4], atol=1e-14)
        expected = up @ matrix(*rows[frame, 4:8]) @ up.T
        np.testing.assert_allclose(matrix(*clip.frames.body_rotations[frame, 0]), expected, atol=1e-13)
        chest = up @ matrix(*rows[frame, 8:12]) @ up.T
        np.testing.assert_allclose(matrix(*clip.frames.ball_rotations[frame, 0]), chest, atol=1e-13)
    np.testing.assert_array_equal(clip.frames.joint_positions[:, 0], rows[:, 20])  # behind chest, neck and right hip
    np.testing.assert_array_equal(clip.frames.joint_positions[:, 3], rows[:, 43])


def test_deepmimic_frames_last_equally_long_but_for_the_last(tmp_path):
    rows = deepmimic_rows()
    rows[-1, 0] = 0.0
    assert read_motion(write_deepmimic(tmp_path / "a.txt", rows)).fps == pytest.approx(30)
    rows[1, 0] = 0.1
    with pytest.raises(MotionError, match=r"last 0.0333333 to 0.1 s"):
        read_motion(write_deepmimic(tmp_path / "b.txt", rows))


def npz_arrays(frames=4, joints=3, bodies=2, seed=2):
    generator = np.random.default_rng(seed)
    quaternions = generator.standard_normal((frames, bodies, 4))
    return {
        "fps": np.array([50]),
        "joint_pos": generator.standard_normal((frames, joints)),
        "joint_vel": generator.standard_normal((frames, joints)),
        "body_pos_w": generator.standard_normal((frames, bodies, 3)),
        "body_quat_w": quaternions / np.linalg.norm(quaternions, axis=-1, keepdims=True),
        "body_lin_vel_w": generator.standard_normal((frames, bodies, 3)),
        "body_ang_vel_w": generator.standard_normal((frames, bodies, 3)),
    }


NAMES = {"joint_names": np.array(["a", "b", "c"]), "body_names": np.array(["pelvis", "foot"])}


def write_npz(path, arrays):
    np.savez(path, **arrays)
    return path


def same_as_npz(clip, arrays, bodies=slice(None)):
    found = clip.frames
    np.testing.assert_array_equal(found.joint_positions, arrays["joint_pos"])
    np.testing.assert_array_equal(found.joint_velocities, arrays["joint_vel"])
    np.testing.assert_array_equal(found.body_positions, arrays["body_pos_w"][:, bodies])
    np.testing.assert_array_equal(found.body_velocities, arrays["body_lin_vel_w"][:, bodies])
    np.testing.assert_array_equal(found.body_angular_velocities, arrays["body_ang_vel_w"][:, bodies])
    for frame in range(len(clip)):
        expected = matrix(*arrays["body_quat_w"][frame, bodies][0])
        np.testing.assert_allclose(matrix(*found.body_rotations[frame, 0]), expected, atol=1e-14)


def test_mjlab_files_with_names_and_without(tmp_path):
    arrays = npz_arrays()
    clip = read_motion(write_npz(tmp_path / "m.npz", {**arrays, **NAMES}))
    assert (clip.joints, clip.bodies, clip.fps, clip.loop) == (("a", "b", "c"), ("pelvis", "foot"), 50.0, False)
    same_as_npz(clip, arrays)
    plain = write_npz(tmp_path / "plain.npz", arrays)
    with pytest.raises(MotionError, match=r"names no joints; .*--joints"):
        read_motion(plain)
    named = read_motion(plain, Reading(joints=("a", "b", "c")))
    assert named.bodies == ("root", "body_1")
    same_as_npz(named, arrays)


def test_holosoma_files_have_columns_of_the_root_and_a_world(tmp_path):
    arrays = npz_arrays(bodies=3)
    wide = dict(arrays)
    wide["joint_pos"] = np.concatenate([np.full((4, 7), 9.0), arrays["joint_pos"]], 1)
    wide["joint_vel"] = np.concatenate([np.full((4, 6), 9.0), arrays["joint_vel"]], 1)
    names = {**NAMES, "body_names": np.array(["world", "pelvis", "foot"])}
    clip = read_motion(write_npz(tmp_path / "h.npz", {**wide, **names}))
    assert clip.bodies == ("pelvis", "foot")
    same_as_npz(clip, arrays, slice(1, 3))
    foot = read_motion(tmp_path / "h.npz", Reading(root="foot"))
    assert foot.bodies == ("foot", "pelvis")
    np.testing.assert_array_equal(foot.frames.body_positions[:, 0], arrays["body_pos_w"][:, 2])


def test_isaac_lab_files(tmp_path):
    arrays = npz_arrays()
    keys = {"joint_pos": "dof_positions", "joint_vel": "dof_velocities", "body_pos_w": "body_positions"}
    keys |= {"body_quat_w": "body_rotations", "body_lin_vel_w": "body_linear_velocities"}
    keys |= {"body_ang_vel_w": "body_angular_velocities", "fps": "fps"}
    theirs = {keys[name]: array for name, array in arrays.items()}
    clip = read_motion(
        write_npz(tmp_path / "i.npz", {**theirs, "dof_names": NAMES["joint_names"], "body_names": NAMES["body_names"]})
    )
    assert clip.joints == ("a", "b", "c")
    same_as_npz(clip, arrays)


def test_velocities_that_a_file_lacks_are_differences(tmp_path):
    arrays = {name: array for name, array in npz_arrays().items() if "vel" not in name}
    clip = read_motion(write_npz(tmp_path / "m.npz", {**arrays, **NAMES}))
    expected = (arrays["joint_pos"][2] - arrays["joint_pos"][0]) * 25.0
    np.testing.assert_allclose(clip.frames.joint_velocities[1], expected, atol=1e-12)
    np.testing.assert_allclose(
        clip.frames.body_velocities[0], (arrays["body_pos_w"][1] - arrays["body_pos_w"][0]) * 50, atol=1e-12
    )


def test_what_the_user_knows_better(tmp_path):
    arrays = {**npz_arrays(), **NAMES}
    arrays["body_quat_w"] = arrays["body_quat_w"][..., [1, 2, 3, 0]]
    clip = read_motion(
        write_npz(tmp_path / "m.npz", arrays), Reading(quaternion="xyzw", fps=25.0, loop=True, weight=3.0)
    )
    np.testing.assert_allclose(
        matrix(*clip.frames.body_rotations[0, 0]), matrix(*npz_arrays()["body_quat_w"][0, 0]), atol=1e-14
    )
    assert (clip.fps, clip.loop, clip.weight) == (25.0, True, 3.0)


def test_our_own_folders_are_read_too(tmp_path):
    clip = read_motion(write_amp(tmp_path / "a.txt", amp_rows()[0]))
    clip.save(tmp_path / "clip")
    assert read_motion(tmp_path / "clip").fingerprint == clip.fingerprint


# what is refused, a sentence each


class Bomb:
    def __reduce__(self):
        return (open, ("bomb_went_off", "w"))


def test_pickles_are_never_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("motion.pkl", "motion.txt", "motion.npz"):
        (tmp_path / name).write_bytes(pickle.dumps({"walk": Bomb()}))
        with pytest.raises(MotionError, match=f"{name} is a pickle, which could run anything"):
            read_motion(tmp_path / name)
    (tmp_path / "old.pkl").write_bytes(pickle.dumps(Bomb(), protocol=0))
    with pytest.raises(MotionError, match=r"is a pickle"):
        read_motion(tmp_path / "old.pkl")
    write_npz(tmp_path / "hidden.npz", {**npz_arrays(), "joint_names": np.array([Bomb()], dtype=object)})
    with pytest.raises(MotionError, match=r"'joint_names' is a pickled object"):
        read_motion(tmp_path / "hidden.npz")
    assert not (tmp_path / "bomb_went_off").exists()


ROWS = amp_rows()[0]
RAGGED = [*ROWS.tolist()[:3], [1.0, 2.0]]
TEXT = [*ROWS.tolist()[:2], ["1.0"] * 61]
BAD = ROWS.copy()
BAD[2, 9] = np.nan
ZERO = ROWS.copy()
ZERO[1, 3:7] = 0.0


@pytest.mark.parametrize(
    ("changes", "reading", "words"),
    [
        ({"Frames": BAD.tolist()}, {}, ["joint_positions of 'FR_calf_joint' is nan in frame 2"]),
        ({"Frames": ZERO.tolist()}, {}, ["quaternion of the root is zero in frame 1"]),
        ({"Frames": RAGGED}, {}, ["frame 3 has 2 numbers and frame 0 has 61"]),
        ({"Frames": TEXT}, {}, ["frame 2 holds '1.0', which is no number"]),
        ({"Frames": [[10**400] * 61] * 3}, {}, ["too large"]),
        ({"Frames": ROWS.tolist()[:1]}, {}, ["1 frames", "at least 2"]),
        ({"Frames": [1, 2, 3]}, {}, ["frame 0 has no numbers"]),
        ({"Frames": 7}, {}, ["no list 'Frames'"]),
        ({"Frames": np.zeros((3, 30)).tolist()}, {}, ["30 numbers", "--joints"]),
        ({}, {"joints": ("a", "b", "c", "d", "e")}, []),
        ({}, {"joints": ("a",) * 1 + ("b",)}, []),
        ({"FrameDuration": 0}, {}, ["FrameDuration is 0"]),
        ({"FrameDuration": float("nan")}, {}, ["FrameDuration is nan"]),
        ({"LoopMode": "Bounce"}, {}, ["LoopMode is 'Bounce'", "Wrap or Clamp"]),
        ({"MotionWeight": -2}, {}, ["weight is -2"]),
        ({"MotionWeight": "x"}, {}, ["weight is 'x'"]),
        ({"Fields": ["a"]}, {}, ["'Fields' does not name the 61 columns"]),
        ({"Fields": [str(n) for n in range(61)]}, {}, ["'Fields' lacks root_pos_x"]),
        ({}, {"quaternion": "zyxw"}, ["quaternion order is 'zyxw'", "wxyz", "xyzw"]),
        ({}, {"format": "bvh"}, ["no motion format 'bvh'", "deepmimic"]),
        ({}, {"format": "deepmimic"}, ["61 numbers", "44"]),
        ({}, {"format": "mjlab"}, ["is no NPZ file"]),
        ({}, {"bodies": ("trunk",)}, ["a root and 4 feet; 1 names"]),
        ({}, {"root": "pelvis"}, ["no body 'pelvis'"]),
        ({}, {"fps": -1.0}, ["-1.0 frames per second"]),
    ],
)
def test_rows_that_mean_nothing_are_refused(tmp_path, changes, reading, words):
    path = write_amp(tmp_path / "m.txt", ROWS, **changes)
    if not words:  # 61 = 13 + 2 x 5 + 38, and 38 is no multiple of 6; 13 + 2 x 2 + 44 neither
        words = ["61 numbers, which fit no"]
    with pytest.raises(MotionError) as caught:
        read_motion(path, Reading(**reading))
    sentence = str(caught.value)
    assert all(word in sentence for word in words), sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "neither JSON nor NPZ"),
        (b"{", "neither JSON nor NPZ"),
        (b"\xff\xfe\x00", "neither JSON nor NPZ"),
        (b"[" * 100_000, "neither JSON nor NPZ"),
        (b"[1, 2]", "no list 'Frames'"),
        (b"PK\x03\x04 and then nothing", "damaged NPZ"),
        (b"\x93NUMPY", "a single array"),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path, content, words):
    (tmp_path / "m.npz").write_bytes(content)
    with pytest.raises(MotionError, match=words):
        read_motion(tmp_path / "m.npz")
    with pytest.raises(MotionError, match=r"nowhere.txt does not exist"):
        read_motion(tmp_path / "nowhere.txt")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fps": None}, "says no rate .*--fps"),
        ({"fps": np.array([0])}, "says no rate"),
        ({"fps": np.array(["fast"])}, "says no rate"),
        ({"joint_pos": None}, "motions of mjlab and holosoma hold joint_pos"),
        ({"joint_pos": np.zeros((4, 5))}, r"joint_pos is \[4, 5\]; 3 joints have 3 columns, or 7 more"),
        ({"joint_pos": np.array([["x"] * 3] * 4)}, "it is an array of numbers"),
        ({"joint_pos": np.zeros((1, 3))}, "body_pos_w is"),
        ({"joint_vel": np.zeros((4, 4))}, "joint_vel is"),
        ({"joint_vel": np.zeros((9, 3))}, "joint_velocities is"),
        ({"body_pos_w": None}, "lacks body_pos_w"),
        ({"body_quat_w": np.zeros((4, 2, 4))}, "quaternion of 'pelvis' is zero in frame 0"),
        ({"body_quat_w": np.zeros((4, 2, 3))}, "body_quat_w is"),
        ({"body_lin_vel_w": np.zeros((4, 3))}, "body_lin_vel_w is"),
        ({"joint_names": np.array(["a", "b", "a"])}, "'a' twice"),
        ({"joint_names": np.zeros(3)}, "list of names"),
        ({"joint_pos": np.full((4, 3), np.nan)}, "joint_positions of 'a' is nan in frame 0"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, changes, words):
    arrays = {**npz_arrays(), **NAMES, **changes}
    path = write_npz(tmp_path / "m.npz", {name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(MotionError, match=words) as caught:
        read_motion(path)
    assert "\n" not in str(caught.value)
