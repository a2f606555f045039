"""T-TRACK, the part that arithmetic decides: the reward is the toy's own, and another phase is another reward."""

import dataclasses

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gaitway.agents.actor_critic import ActorCritic
from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.frames import MotionError, make_frames
from gaitway.envs.registry import make_env
from gaitway.rewards.tracking import TrackingReward
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.runner_config import RunnerConfig

SPEC = make_env("toy/oscillator").spec


def collected(source):
    env = make_env("toy/oscillator", num_envs=6, seed=3, max_episode_steps=7)
    algorithm = PPO(ActorCritic(env.spec), PPOConfig(rollout_steps=20, minibatches=2), num_envs=6)
    runner = OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**9), rewards=[source])
    runner._collect()
    return runner


class OtherPhase(TrackingReward):
    """Broken: the clip runs a quarter of a turn ahead."""

    def at_phase(self, turns):
        return super().at_phase(turns + 0.25)


def test_the_reward_is_the_toys_own():
    # exp(-4 dq^2 - 4 (dqd / 2 pi)^2) is exp(-mean of (dq / std)^2, (dqd / std)^2) with variances 1/8 and pi^2 / 2
    runner = collected(TrackingReward(SPEC, "oscillator"))
    metrics = runner._annotate(Now())
    ws = runner.rollout
    assert bool(ws["env/truncated"].any())
    # the clip is linear between frames 0.02 s apart, which misses the sine by up to 0.5 (2 pi 0.02)^2 / 8 = 0.001
    assert_close(ws["reward/tracking"], ws["env/reward"], atol=4e-3, rtol=1e-2)
    assert ws["reward/tracking"].std() > 0.1
    distance = (-ws["env/reward"].double().log()).sqrt().mean()
    assert metrics["tracking/distance"].item() == pytest.approx(distance.item(), rel=1e-2)


def test_another_phase_is_seen():
    runner = collected(OtherPhase(SPEC, "oscillator"))
    runner._annotate(Now())
    assert (runner.rollout["reward/tracking"] - runner.rollout["env/reward"]).abs().mean() > 0.1


def test_phases_are_those_of_the_clip_over_the_seam():
    source = TrackingReward(SPEC, "oscillator")
    turns = torch.tensor([-0.25, 0.0, 0.1234, 0.5, 0.999, 1.0, 2.25])
    found = source.at_phase(turns)
    angle = 2 * np.pi * turns
    assert_close(found, torch.stack((0.5 * angle.sin(), np.pi * angle.cos()), -1), atol=7e-3, rtol=0)


def test_options_by_hand():
    plain = collected(TrackingReward(SPEC, "oscillator"))
    plain._annotate(Now())
    sharp = TrackingReward(SPEC, "oscillator", k=3.0, times_dt=True)
    sharp.annotate(plain.rollout)
    assert_close(plain.rollout["reward/tracking"], 0.02 * plain.rollout["env/reward"] ** 3, atol=3e-4, rtol=3e-2)
    place = TrackingReward(SPEC, "oscillator", features=("position",))
    reached = plain.rollout.following("env/obs/amp")[..., 0]
    phase = plain.rollout.following("env/obs/phase")
    expected = ((reached - 0.5 * phase[..., 0]) ** 2) * 8
    assert_close(place.square_distance(plain.rollout), expected, atol=3e-2, rtol=1e-2)


def test_what_cannot_be_tracked_is_refused(tmp_path):
    with pytest.raises(MotionError, match="has no group 'amp' of motion features"):
        TrackingReward(make_env("toy/pendulum").spec, "oscillator")
    with pytest.raises(MotionError, match="has no group 'time' that shows a clock"):
        TrackingReward(SPEC, "oscillator", clock="time")
    with pytest.raises(MotionError, match="no components sin and cos"):
        TrackingReward(SPEC, "oscillator", clock="policy")
    with pytest.raises(MotionError, match="features names 'velocity'"):
        TrackingReward(SPEC, "oscillator", features=("velocity",))
    for name in ("a", "b"):
        frames = make_frames(np.zeros((5, 1)), np.zeros((5, 0, 3)), np.zeros((5, 0, 4)))
        Clip(frames, 50.0, ("position",), name=name).save(tmp_path / name)
    with pytest.raises(MotionError, match="holds 2 clips; a clock runs along one"):
        TrackingReward(SPEC, str(tmp_path))
    other = TrackingReward(SPEC, str(tmp_path / "a"))
    with pytest.raises(MotionError, match="put the former one back"):
        other.load_state_dict(TrackingReward(SPEC, "oscillator").state_dict())


def test_clips_of_other_robots_and_rates_are_refused(tmp_path):
    frames = make_frames(np.zeros((5, 1)), np.zeros((5, 0, 3)), np.zeros((5, 0, 4)))
    Clip(frames, 25.0, ("position",), name="slow").save(tmp_path / "slow")
    Clip(frames, 50.0, ("position",), name="other", meta={"robot": "pendulum"}).save(tmp_path / "other")
    with pytest.raises(MotionError, match=r"slow has a frame every 0.04 s and a step of toy/oscillator takes 0.02 s"):
        TrackingReward(SPEC, str(tmp_path / "slow"))
    TrackingReward(SPEC, str(tmp_path / "other"))  # the mass has no name
    named = dataclasses.replace(SPEC, facts={"amp": {**SPEC.facts["amp"], "robot": "mass"}})
    with pytest.raises(
        MotionError, match="other is a clip of pendulum and toy/oscillator moves mass; use a clip of mass"
    ):
        TrackingReward(named, str(tmp_path / "other"))
