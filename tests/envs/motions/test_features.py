"""Motion features: the same numbers of a simulated robot and of the clip that was recorded of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from motion_cases import make_clip, walk

from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.features import MotionFeatures
from gaitway.envs.motions.frames import MotionError, make_frames
from gaitway.envs.motions.library import MotionLibrary
from gaitway.envs.motions.skeleton import Skeleton
from gaitway.envs.registry import make_env

AMP = {"name": "features", "features": "amp"}


def play(env, steps, seed=0):
    """qpos, qvel and `amp` of the first instance until its episode ends, and the observation it ended with."""
    task, generator = env.env.task, torch.Generator().manual_seed(seed)
    obs, rows = env.reset(seed), []
    for _ in range(steps):
        rows.append((task.qpos[0].copy(), task.qvel[0].copy(), obs["amp"][0].double().numpy()))
        step = env.step(0.4 * torch.randn(env.num_envs, *env.spec.action.shape, generator=generator))
        obs = step.obs
        if bool(step.terminated[0] | step.truncated[0]):
            break
    return [np.array(each) for each in zip(*rows, strict=True)]


@pytest.mark.parametrize(
    ("id", "bodies", "size"),
    [
        # height, gravity, velocity, pitch rate, joints and their velocities: 1 + 2 + 2 + 1 + 6 + 6
        ("walker/run", [], 18),
        ("walker/run", ["left_foot", "right_foot"], 22),
        ("halfcheetah/hurdles", [], 18),
        ("HalfCheetah-v5", [], 18),
        ("humanoid/stand", [], 52),  # 1 + 3 + 3 + 3 + 21 + 21
        ("humanoid/stand", ["left_foot", "head"], 58),
    ],
)
def test_a_clip_of_a_rollout_has_the_features_that_the_policy_showed(tmp_path, id, bodies, size):
    with make_env(id, 2, 0, wrappers=[{**AMP, "bodies": bodies}]) as env:
        assert env.spec.group("amp").shape == (size,)
        qpos, qvel, shown = play(env, 40)
        assert len(shown) > 8
        skeleton = Skeleton.of_task(env.env.task)
        skeleton.clip(qpos, qvel, 1 / env.spec.control_dt).save(tmp_path / "clip")
        features = MotionFeatures.of_spec(type(env.spec).from_dict(env.spec.to_dict()))  # as contract.json keeps it
        assert features.components == env.spec.group("amp").components
    found = features.of_clip(Clip.load(tmp_path / "clip"))
    np.testing.assert_allclose(found, shown, atol=1e-5)
    library = MotionLibrary.load(tmp_path / "clip")
    times = np.arange(len(shown)) * library.clips[0].dt
    np.testing.assert_allclose(features.at(library, np.zeros(len(shown), int), times), shown, atol=1e-5)


def test_pairs_of_a_clip_are_those_of_the_rollout():
    with make_env("walker/run", 1, 0, wrappers=[AMP], dtype="float64") as env:
        qpos, qvel, shown = play(env, 30)
        dt = env.spec.control_dt
        library = MotionLibrary([Skeleton.of_task(env.env.task).clip(qpos, qvel, 1 / dt)])
        features = MotionFeatures.of_spec(env.spec)
    first, second = features.draw_pairs(library, np.random.default_rng(0), 300, dt)
    assert first.shape == second.shape == (300, 18)
    at = np.arange(len(shown) - 1) * dt
    zeros = np.zeros(len(at), int)
    np.testing.assert_allclose(features.at(library, zeros, at + dt), shown[1:], atol=1e-12)
    assert len(np.unique(first[:, 0])) == 300
    first, second = features.draw_pairs(library, np.random.default_rng(0), 300, dt, between_frames=False)
    row = np.array([np.abs(shown - each).max(1).argmin() for each in first])
    assert set(row) == set(range(len(shown) - 1))  # every step of the rollout, and as it was
    np.testing.assert_allclose(first, shown[row], atol=1e-12)
    np.testing.assert_allclose(second, shown[row + 1], atol=1e-12)


def test_features_do_not_know_where_a_robot_is_nor_its_heading():
    with make_env("humanoid/stand", 1, 0, wrappers=[{**AMP, "bodies": ["left_foot"]}], dtype="float64") as env:
        scenario = env.scenario()
        qpos, qvel = scenario["qpos"].clone(), scenario["qvel"].clone()
        qvel[:, :3] = torch.tensor([1.0, 2.0, 3.0])
        before = env.load_scenario({"qpos": qpos, "qvel": qvel})["amp"].clone()
        yaw = torch.tensor([math.cos(0.6), 0.0, 0.0, math.sin(0.6)], dtype=torch.float64)  # 1.2 rad about z
        w, x, y, z = qpos[0, 3:7]
        c, s = yaw[0], yaw[3]
        qpos[0, 3:7] = torch.stack([c * w - s * z, c * x - s * y, c * y + s * x, c * z + s * w])
        qpos[0, :2] += torch.tensor([5.0, -7.0])
        angle = torch.tensor(1.2, dtype=torch.float64)
        vx, vy = qvel[0, 0].clone(), qvel[0, 1].clone()
        qvel[0, 0] = angle.cos() * vx - angle.sin() * vy
        qvel[0, 1] = angle.sin() * vx + angle.cos() * vy
        after = env.load_scenario({"qpos": qpos, "qvel": qvel})["amp"]
        torch.testing.assert_close(after, before, atol=1e-12, rtol=0)
        lifted = qpos.clone()
        lifted[0, 2] += 0.1
        assert not torch.allclose(env.load_scenario({"qpos": lifted, "qvel": qvel})["amp"], before)


def test_features_on_paper():
    # pitched down by 90 degrees about y: the body's x points down, so gravity is (1, 0); going 2 m/s along world x
    # is 2 m/s along the body's z
    half = np.sqrt(0.5)
    frames = make_frames(
        np.array([[0.3, 0.4]] * 2), np.array([[[0, 0, 1.1]]] * 2), np.array([[[half, 0, half, 0]]] * 2)
    )
    frames = frames.replaced(body_velocities=np.array([[[2.0, 0, 0]]] * 2), joint_velocities=np.array([[5.0, 6.0]] * 2))
    frames = frames.replaced(body_angular_velocities=np.array([[[0, 7.0, 0]]] * 2))
    features = MotionFeatures(("b", "a"), "planar")
    assert [c.name for c in features.components] == [
        "height", "gravity", "velocity", "angular_velocity", "b", "a", "b_velocity", "a_velocity",
    ]  # fmt: skip
    found = features(frames, ("a", "b"), ("torso",))
    np.testing.assert_allclose(found[0], [1.1, 1, 0, 0, 2, 7, 0.4, 0.3, 6, 5], atol=1e-12)
    fixed = MotionFeatures(("a",), "fixed")
    np.testing.assert_allclose(fixed(frames, ("a", "b"), ())[0], [0.3, 5.0])


def test_a_finished_episode_shows_its_own_last_features():
    with make_env("walker/run", 3, 0, wrappers=[AMP], dtype="float64") as env:
        generator, ended = torch.Generator().manual_seed(0), 0
        for _ in range(120):
            step = env.step(torch.randn(3, 6, generator=generator))
            policy, amp = step.final_obs["policy"], step.final_obs["amp"]
            torch.testing.assert_close(amp[:, 0], policy[:, 0])  # height
            torch.testing.assert_close(amp[:, 6:12], policy[:, 2:8])  # joints
            torch.testing.assert_close(step.obs["amp"][:, 6:12], step.obs["policy"][:, 2:8])
            torch.testing.assert_close(amp[:, 1], policy[:, 1].sin())  # gravity along the body's x
            ended += int((step.terminated | step.truncated).sum())
        assert ended > 3


def test_what_does_not_fit_is_named():
    clip = make_clip()
    with pytest.raises(MotionError, match=r"swing has no joint 'hip'"):
        MotionFeatures(("hip",)).of_clip(clip)
    with pytest.raises(MotionError, match=r"swing has no body 'foot'"):
        MotionFeatures(("left_knee",), bodies=("foot",)).of_clip(clip)
    with (
        make_env("walker/run", 1) as env,
        pytest.raises(MotionError, match=r"no group 'amp' of motion features.*wrapper"),
    ):
        MotionFeatures.of_spec(env.spec)
    for wrapper, words in (
        ({**AMP, "bodies": ["tail"]}, "no body 'tail'"),
        ({**AMP, "into": "policy"}, "already has a group 'policy'"),
        ({"name": "features", "features": "amps"}, "did you mean 'amp'"),
        ({"name": "features", "features": "joints", "bodies": ["torso"]}, "takes no bodies"),
    ):
        with pytest.raises(ValueError, match=words):
            make_env("walker/run", 1, wrappers=[wrapper])
    with pytest.raises(ValueError, match=r"no native task"):
        make_env("toy/pendulum", 1, wrappers=[AMP])


def test_a_walk_is_told_from_its_mirror_image_by_nothing_but_sides():
    skeleton, clip = walk()
    features = MotionFeatures(skeleton.joints, "planar")
    found, mirrored = features.of_clip(clip), features.of_clip(clip.mirrored(skeleton.mirror()))
    np.testing.assert_allclose(found[:, :6], mirrored[:, :6], atol=1e-12)
    np.testing.assert_allclose(found[:, [6, 7, 8]], mirrored[:, [9, 10, 11]], atol=1e-12)
