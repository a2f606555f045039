"""Episodes that begin within a clip: how often, where, what stays, and that runs resume exactly."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from motion_cases import make_clip, walk

from gaitway.envs.check import check_env
from gaitway.envs.motions.check import lowest_points
from gaitway.envs.motions.library import MotionLibrary
from gaitway.envs.motions.skeleton import Skeleton
from gaitway.envs.registry import make_env
from gaitway.envs.robots.registry import same_machine
from gaitway.rewards.style import StyleReward


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("clips") / "walk"
    walk()[1].save(path)
    return str(path)


def starts(folder, **options):
    return {"name": "starts", "motion": folder, **options}


def make(folder, num_envs=4, probability=1.0, seed=0, id="walker/run", **options):
    wrappers = [starts(folder, probability=probability), *options.pop("wrappers", ())]
    return make_env(id, num_envs, seed, wrappers=wrappers, dtype="float64", **options)


def lies_on_the_walk(qpos, qvel):
    """Whether a state (without its place) is one of the clip's, found by a fine search."""
    skeleton, clip = walk()
    fit = skeleton.fit(clip.joints, clip.bodies, (), "walk")
    dense, speeds = fit.states(clip.at(np.linspace(0, clip.duration, 4_001)))
    columns = [column for column in range(dense.shape[1]) if column not in skeleton.place]
    off = np.abs(dense[:, columns] - np.asarray(qpos)[columns]).max(1)
    return off.min() < 1e-3 and np.abs(speeds[off.argmin()] - np.asarray(qvel)).max() < 2e-2


def test_every_first_state_is_of_the_clip_and_stands_where_the_task_put_it(folder):
    with make(folder, 6) as env, make_env("walker/run", 6, dtype="float64") as plain:
        robot = env.env.task.robot
        for _ in range(3):
            found, drawn = env.scenario(), plain.scenario()
            for row in range(6):
                assert lies_on_the_walk(found["qpos"][row], found["qvel"][row])
            assert torch.equal(found["qpos"][:, robot.forward_index], drawn["qpos"][:, robot.forward_index])
            env.reset(), plain.reset()
    assert not lies_on_the_walk(drawn["qpos"][0], drawn["qvel"][0])


def test_the_share_is_the_probability_and_other_episodes_are_as_without(folder):
    count, share = 400, 0.3
    with make(folder, count, share) as env, make_env("walker/run", count, dtype="float64") as plain:
        found, drawn = env.scenario()["qpos"], plain.scenario()["qpos"]
        from_clip = (found != drawn).any(1)
        deviation = math.sqrt(share * (1 - share) / count)
        assert abs(from_clip.double().mean() - share) < 4 * deviation
        assert torch.equal(found[~from_clip], drawn[~from_clip])
        assert len(torch.unique(found[from_clip], dim=0)) == int(from_clip.sum())


def test_zero_and_none_leave_the_task_alone(folder):
    with make(folder, 3, 0.0) as env, make_env("walker/run", 3, dtype="float64") as plain:
        assert torch.equal(env.scenario()["qpos"], plain.scenario()["qpos"])


def run(env, steps, seed=0):
    generator, seen = torch.Generator().manual_seed(seed), []
    for _ in range(steps):
        step = env.step(torch.randn(env.num_envs, *env.spec.action.shape, generator=generator).double())
        seen.append(torch.cat([step.obs["policy"].flatten(), step.reward, step.terminated.double()]))
    return torch.stack(seen)


def test_the_same_seed_gives_the_same_episodes_whatever_runs_beside(folder):
    with (
        make(folder, 4, 0.5) as env,
        make(folder, 4, 0.5, num_threads=1) as twin,
        make(folder, 4, 0.5, seed=1) as other,
    ):
        first = run(env, 80)
        assert torch.equal(first, run(twin, 80))
        assert not torch.equal(first, run(other, 80))
        env.reset(0)
        assert torch.equal(first, run(env, 80))
    with make(folder, 2, 0.5) as few, make(folder, 4, 0.5) as many:
        assert torch.equal(few.scenario()["qpos"], many.scenario()["qpos"][:2])


def test_a_stored_state_goes_on_bit_for_bit(folder):
    amp = [{"name": "features", "features": "amp"}]
    with make(folder, 4, 0.5, wrappers=amp) as env, make(folder, 4, 0.5, seed=9, wrappers=amp) as other:
        run(env, 30)
        state = env.state_dict()
        expected = run(env, 60, seed=5)
        other.load_state_dict(state)
        assert torch.equal(run(other, 60, seed=5), expected)


def test_a_clip_that_was_changed_in_the_meantime_is_refused(folder, tmp_path):
    clip = walk()[1]
    swung = clip.frames.replaced(joint_positions=0.9 * clip.frames.joint_positions)
    dataclasses.replace(clip, frames=swung).differentiated().save(tmp_path / "other")
    with (
        make(folder, 2) as env,
        make(str(tmp_path / "other"), 2) as other,
        pytest.raises(ValueError, match=r"not those of the stored state"),
    ):
        other.load_state_dict(env.state_dict())


def test_features_see_the_first_state_of_the_clip(folder):
    wrappers = [{"name": "features", "features": "amp"}, starts(folder, probability=1.0)]
    with make_env("walker/run", 3, wrappers=wrappers, dtype="float64") as env:
        for look in (lambda: env.load_state_dict(env.state_dict()), env.reset, lambda: env.reset(3)):
            obs = look()
            torch.testing.assert_close(obs["amp"][:, 0], torch.full((3,), 1.35).double())
            torch.testing.assert_close(obs["amp"][:, 6:12], obs["policy"][:, 2:8])


def test_scenarios_take_precedence(folder):
    with make(folder, 2) as env:
        given = {"qpos": env.scenario()["qpos"] * 0 + 1.3}
        env.load_scenario(given)
        assert torch.equal(env.scenario()["qpos"], given["qpos"])


def test_evaluations_begin_as_the_task_says_unless_told_otherwise(folder):
    with (
        make(folder, 3, purpose="evaluation") as env,
        make_env("walker/run", 3, purpose="evaluation", dtype="float64") as plain,
        make_env(
            "walker/run", 3, purpose="evaluation", dtype="float64",
            wrappers=[starts(folder, probability=1.0, in_evaluation=True)],
        ) as told,
    ):  # fmt: skip
        assert torch.equal(env.scenario()["qpos"], plain.scenario()["qpos"])
        assert lies_on_the_walk(told.scenario()["qpos"][0], told.scenario()["qvel"][0])
    make_env("walker/run", 1, purpose="evaluation", wrappers=[starts("gone")]).close()  # needs no clip to be judged


@pytest.mark.parametrize("id", ["walker/hurdles", "walker/skills", "walker/goalwall"])
def test_other_tasks_of_the_robot_begin_in_the_clip_too(folder, id):
    """Also those that settle first, and those with more in their model than the robot."""
    with make(folder, 2, id=id) as env:
        task = env.env.task
        skeleton, clip = Skeleton.of_task(task), walk()[1]
        frames = skeleton.frames(task.qpos, task.qvel)
        np.testing.assert_allclose(frames.body_positions[:, 0, 2], 1.35, atol=1e-9)
        dense = clip.at(np.linspace(0, clip.duration, 20_001)).joint_positions
        for row in range(2):
            assert np.abs(dense - frames.joint_positions[row]).max(1).min() < 1e-3
        env.step(torch.zeros(2, *env.spec.action.shape))


def test_a_clip_within_the_floor_is_lifted_out_of_it(tmp_path):
    """The Walker's walk, 30 cm too low: its lowest point, by MuJoCo, is 0.5 mm above the floor, the rest as it was."""
    clip = walk()[1]
    places = clip.frames.body_positions - [0.0, 0.0, 0.3]
    dataclasses.replace(clip, frames=clip.frames.replaced(body_positions=places)).save(tmp_path / "low")
    with make(str(tmp_path / "low"), 6) as env:
        task = env.env.task
        lowest = lowest_points(task.robot.model, task.qpos)
        np.testing.assert_allclose(lowest, 5e-4, atol=1e-9)
        for row in range(6):
            state = task.qpos[row].copy()
            state[task.robot.height_index] = 1.35
            assert lies_on_the_walk(state, task.qvel[row])


def test_a_task_without_a_robot(tmp_path):
    with make_env("HalfCheetah-v5", 1, dtype="float64") as env:
        skeleton = Skeleton.of_task(env.task)
        qpos = np.tile(env.task.qpos, (3, 1)) + 0.1
        skeleton.clip(qpos, np.full((3, 9), 0.2), 20.0).save(tmp_path / "still")
    with make(str(tmp_path / "still"), 2, id="HalfCheetah-v5") as env:
        np.testing.assert_allclose(env.scenario()["qpos"][:, 1:], np.tile(qpos[0, 1:], (2, 1)), atol=1e-9)
        np.testing.assert_allclose(env.scenario()["qvel"], 0.2, atol=1e-9)


def test_the_environment_keeps_its_contract(folder):
    wrappers = [starts(folder), {"name": "features", "features": "amp"}]
    with make_env("walker/run", 2, wrappers=wrappers, max_episode_steps=25) as env:
        report = check_env(env)
        assert report.ok, str(report)


def test_what_does_not_fit_is_named(folder, tmp_path):
    make_clip(fps=40.0).save(tmp_path / "swing")
    for id, entry, words in (
        ("walker/run", starts(str(tmp_path / "swing")), "swing has no joint of walker 'right_hip'"),
        ("humanoid/run", starts(folder), "is a clip of walker and humanoid/run moves humanoid; use a clip of humanoid"),
        ("walker/run", starts(str(tmp_path / "gone")), "gone does not exist, or is no folder of a motion"),
        ("walker/run", starts(folder, probability=1.5), "probability"),
        ("walker/run", starts(folder, probability=float("nan")), "probability"),
        ("walker/run", starts(folder, share=0.5), "no option 'share'"),
        ("walker/run", {"name": "starts"}, "needs motion"),
        ("walker/run", starts(""), "no motion is named"),
        ("walker/run", starts([]), "no motion is named"),
        ("walker/run", starts([folder, 3]), "motion.*expected text"),
        ("toy/pendulum", starts(folder), "no native task"),
    ):
        with pytest.raises(ValueError, match=words) as caught:
            make_env(id, 1, wrappers=[entry])
        assert "\n" not in str(caught.value)


def clips_of_other_robots_and_rates_are_refused(tmp_path):
    """Of another robot with the same joints, by its name alone; of another rate; and what says nothing is taken."""
    clip = walk()[1]
    for name, changed in (
        ("other", dataclasses.replace(clip, meta={"robot": "stalker"})),
        ("slow", clip.resampled(0.05)),
        ("silent", dataclasses.replace(clip, meta={})),
    ):
        changed.save(tmp_path / name)
    for name, words in (
        ("other", "walk is a clip of stalker and walker/run moves walker; use a clip of walker"),
        ("slow", r"walk has a frame every 0.05 s and a step of walker/run takes 0.025 s; use `gaitway motion convert"),
    ):
        with pytest.raises(ValueError, match=words) as caught:
            make(str(tmp_path / name), 1)
        assert "\n" not in str(caught.value)
    make(str(tmp_path / "silent"), 1).close()


def test_clips_of_other_robots_and_rates_are_refused(tmp_path, monkeypatch):
    clips_of_other_robots_and_rates_are_refused(tmp_path)
    monkeypatch.setattr(MotionLibrary, "need_fit", lambda *_: None)  # the twin: joints alone
    with pytest.raises(pytest.fail.Exception):
        clips_of_other_robots_and_rates_are_refused(tmp_path)


def test_a_quadruped_does_not_begin_in_the_clip_of_another(tmp_path):
    """All quadrupeds with these names of joints; with `reference` too, and where starts are off but clips are shown."""
    clip = MotionLibrary.load("pup12_trot").clips[0]
    dataclasses.replace(clip, meta={**clip.meta, "robot": "go1"}).save(tmp_path / "go1")
    for options in ({}, {"reference": True, "probability": 0.0}):
        with pytest.raises(ValueError, match=r"is a clip of go1 and pup12/amp_trot moves pup12"):
            make_env("pup12/amp_trot", 1, wrappers=[starts(str(tmp_path / "go1"), **options)])
    env = make_env("pup12/amp_trot", 1, wrappers=[starts("pup12_trot")])
    assert env.spec.facts["amp"]["robot"] == "pup12"
    with pytest.raises(ValueError, match=r"is a clip of go1 and pup12/amp_trot moves pup12"):
        StyleReward(env.spec, str(tmp_path / "go1"))


def test_robots_of_one_file_share_their_clips():
    assert same_machine("humanoid", "humanoidpc")
    assert same_machine("mine", "mine")
    assert not same_machine("humanoid", "walker")
    assert not same_machine("humanoid", "mine")
