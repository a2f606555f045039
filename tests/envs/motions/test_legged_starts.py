"""Reference-state starts of legged robots: first frames, how often, which command, which force; and twins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.env_agent import EnvAgent
from gaitway.envs.legged.logic import LeggedLogic
from gaitway.envs.motions.features import MotionFeatures
from gaitway.envs.motions.generate import velocity_of
from gaitway.envs.motions.skeleton import Fit, Skeleton
from gaitway.envs.motions.starts import STREAM
from gaitway.envs.registry import make_env

COUNT = 60


def make(
    probability: float = 1.0, num_envs: int = COUNT, seed: int = 0, reference: bool = False, **options: Any
) -> Any:
    starts = {"name": "starts", "motion": "pup12_trot", "probability": probability, "reference": reference}
    return make_env("pup12/amp_trot", num_envs, seed, num_threads=1, wrappers=[starts], **options)


def drawn(env: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the first episodes: whether they begin in a clip, which one, and when."""
    numbers = np.stack([env.env.episode_generator(row, STREAM).random(3) for row in range(env.num_envs)])
    return numbers[:, 0] < env.probability, *env.library.place(numbers[:, 1], numbers[:, 2])


# E-RSI


def first_frames_are_those_of_the_clip() -> None:
    with make(num_envs=16) as env:
        seen = env.reset(0)["amp"].numpy()
        expected = MotionFeatures.of_spec(env.spec).at(env.library, *drawn(env)[1:])
        np.testing.assert_allclose(seen[:, :34], expected[:, :34], atol=2e-5, rtol=1e-5)  # all but feet


def test_first_frames_are_those_of_the_clip() -> None:
    first_frames_are_those_of_the_clip()


def test_velocities_that_are_not_turned_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Fit.write

    def unturned(fit: Fit, frames: Any, qpos: np.ndarray, qvel: np.ndarray) -> None:
        right(fit, frames, qpos, qvel)
        w, i, j, k = qpos[:, 3:7].T
        yaw = np.arctan2(2 * (w * k + i * j), 1 - 2 * (j * j + k * k)) + 0.5  # as if the robot had another heading
        x, y = qvel[:, 0].copy(), qvel[:, 1].copy()
        qvel[:, 0], qvel[:, 1] = np.cos(yaw) * x + np.sin(yaw) * y, np.cos(yaw) * y - np.sin(yaw) * x

    monkeypatch.setattr(Fit, "write", unturned)
    with pytest.raises(AssertionError):
        first_frames_are_those_of_the_clip()


def share_is(env: Any, share: float) -> None:
    """Joints move at once only where an episode begins within a clip."""
    moves = (env.scenario()["qvel"][:, 6:].abs() > 0).any(1).double().mean()
    assert abs(float(moves) - share) < 4 * math.sqrt(share * (1 - share) / env.num_envs)


def test_as_many_begin_in_a_clip_as_asked_for() -> None:
    with make(0.85, 300) as env:
        share_is(env, 0.85)
        env.probability = 1.0  # the twin
        env.reset(1)
        with pytest.raises(AssertionError):
            share_is(env, 0.85)


# E-AMP


def played(steps: int = 30) -> tuple[Workspace, torch.Tensor]:
    """A rollout with noise and short episodes, and the features of the states that its steps led to [T, B, 46]."""
    with make(0.5, 4, episode_seconds=0.2) as env:
        task, world = env.env.task, EnvAgent(env)
        ws = Workspace.dense(world.variables(steps) | {"action": Variable(steps, 4, (12,), torch.float32)})
        generator, ends, states = torch.Generator().manual_seed(0), [], []
        env.on_end(lambda: ends.append((task.qpos.copy(), task.qvel.copy())))  # before any episode begins anew
        for t in range(steps):
            world.observe(ws, t)
            ws.put("action", t, torch.randn(4, 12, generator=generator))
            ends.clear()
            world.advance(ws, t)
            states.append(ends[0] if ends else (task.qpos.copy(), task.qvel.copy()))
        world.observe(ws, steps)
        qpos, qvel = (np.concatenate(each) for each in zip(*states, strict=True))
        clip = Skeleton.of_task(task).clip(qpos, qvel, 50.0, task.foot_names)
        features = MotionFeatures.of_spec(env.spec).of_clip(clip)
    return ws, torch.from_numpy(features).float().unflatten(0, (steps, 4))


def test_pairs_are_true_successors_and_none_spans_a_reset() -> None:
    ws, reached = played()
    assert int(ws["env/done"].sum()) > 8
    torch.testing.assert_close(ws.following("env/obs/amp"), reached, atol=1e-5, rtol=1e-5)
    with pytest.raises(AssertionError):  # the twin: the next row, whosever it is
        torch.testing.assert_close(ws["env/obs/amp"][1:], reached, atol=1e-5, rtol=1e-5)


# the clock along a clip


def references_are_what_clips_show_now(env: Any) -> None:
    """Two episodes of ten steps: features of the clip as many steps after its beginning, also in their last step."""
    features = MotionFeatures.of_spec(env.spec)
    obs, steps = env.reset(0), 0
    _, clips, begins = drawn(env)
    for number in range(1, 22):
        expected = features.at(env.library, clips, begins + 0.02 * steps)
        np.testing.assert_allclose(obs["reference"].numpy(), expected, atol=1e-6, rtol=1e-6)
        step = env.step(torch.zeros(env.num_envs, 12))
        obs, steps = step.obs, steps + 1
        last = features.at(env.library, clips, begins + 0.02 * steps)
        np.testing.assert_allclose(step.final_obs["reference"].numpy(), last, atol=1e-6, rtol=1e-6)
        assert bool(step.truncated.all()) is (number % 10 == 0)
        if number % 10 == 0:
            (_, clips, begins), steps = drawn(env), 0


def test_references_are_what_clips_show_now() -> None:
    with make(0.5, 4, reference=True, episode_seconds=0.2, endings=[]) as env:
        assert env.spec.group("reference").components == env.spec.group("amp").components
        references_are_what_clips_show_now(env)
    with make(1.0, 16, reference=True) as env:  # who begins in the clip begins where its clock does
        obs = env.reset(3)
        torch.testing.assert_close(obs["reference"][:, :34], obs["amp"][:, :34], atol=2e-5, rtol=1e-5)


def test_a_clock_that_goes_on_into_the_next_episode_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with make(0.5, 4, reference=True, episode_seconds=0.2, endings=[]) as env:
        clock = env._clock
        tick = clock.tick

        def tick_and_stay_wound() -> None:
            tick()
            clock.wind = lambda rows, which, when: None

        monkeypatch.setattr(clock, "tick", tick_and_stay_wound)
        with pytest.raises(AssertionError):
            references_are_what_clips_show_now(env)


def test_scenarios_hold_the_clock_and_wrong_ones_are_refused() -> None:
    with make(0.5, 2, reference=True) as env, make(0.5, 2, seed=9, reference=True) as other:
        for _ in range(3):
            step = env.step(torch.zeros(2, 12))
        assert torch.equal(other.load_scenario(env.scenario())["reference"], step.obs["reference"])
        with pytest.raises(ValueError, match=r"write \[clip, seconds\] for each of 2 instances, clips counted from 0"):
            env.load_scenario({"reference_clock": [[0.0, 0.1], [7.0, 0.1]]})


# commands


def test_commands_are_those_of_the_clip_as_often_as_asked_for() -> None:
    with (
        make(0.5, seed=3, commands={"from_clip": 0.5}) as env,
        make(0.5, seed=3) as plain,
        make(0.5, seed=3, commands={"from_clip": 1.0}) as always,
    ):
        starts, clips, _ = drawn(env)
        reached = np.array([velocity_of(clip) for clip in env.library.clips])[clips]
        told, before, ever = (each.env.task.memory["command"].copy() for each in (env, plain, always))
        from_clip = (told == reached).all(1)
        assert not from_clip[~starts].any()
        np.testing.assert_array_equal(told[~from_clip], before[~from_clip])
        assert abs(from_clip[starts].mean() - 0.5) < 4 * 0.5 / math.sqrt(starts.sum())
        np.testing.assert_array_equal(ever[starts], reached[starts])
        np.testing.assert_array_equal(ever[~starts], before[~starts])
        assert env.library.clips[0].meta["velocity"] == pytest.approx(list(velocity_of(env.library.clips[0])), abs=1e-4)


def test_a_command_that_is_held_stays() -> None:
    with make(num_envs=2, commands={"from_clip": 1.0, "fixed": [0.1, 0.0, 0.2]}) as env:
        assert env.env.task.memory["command"].tolist() == [[0.1, 0.0, 0.2]] * 2


def test_without_the_option_layouts_are_as_they_were() -> None:
    with make(num_envs=1) as env, make(num_envs=1, commands={"from_clip": 0.5}) as tells:
        assert set(tells.scenario()) - set(env.scenario()) == {"clip_velocity"}


# targets


def first_forces_are_none() -> None:
    """Motors that hear from the policy four substeps later neither push nor brake before."""
    nominal = {"friction": None, "payload": None, "com": None, "link_mass": None, "gains": None, "strength": None}
    with make(num_envs=8, randomise={**nominal, "enabled": True, "encoder": 0.0, "delay": 4}) as env:
        task = env.env.task
        delay = np.full_like(task.layout["delay"], 0.02)
        env.load_scenario({"delay": delay})
        q, qd = task.qpos[:, task.view.positions].copy(), task.qvel[:, task.view.velocities].copy()
        assert np.abs(qd).max() > 1.0
        within = (q + qd * 1.5 / 60.0 > task.view.low) & (q + qd * 1.5 / 60.0 < task.view.high)
        assert within.mean() > 0.95
        task.actuate(np.ones((8, 12)))
        task.batch.step(nstep=1)
        np.testing.assert_allclose(task.field["actuator_force"][within], 0.0, atol=1e-9)


def test_first_forces_are_none() -> None:
    first_forces_are_none()


def test_targets_that_hold_the_pose_would_brake(monkeypatch: pytest.MonkeyPatch) -> None:
    right = LeggedLogic.first_targets
    monkeypatch.setattr(
        LeggedLogic, "first_targets", lambda logic, qpos, qvel: right(logic, qpos, torch.zeros_like(qvel))
    )
    with pytest.raises(AssertionError):
        first_forces_are_none()
