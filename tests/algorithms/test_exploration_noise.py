"""Exploration noise in degrees, by hand."""

import math

import pytest
import torch

from gaitway import PPO, ActorCritic, OnPolicyRunner, PPOConfig, RunnerConfig, make_env
from gaitway.agents.actor_critic_config import ActorCriticConfig, DistributionConfig
from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.exploration_noise import noise_in_degrees
from gaitway.envs.spec import ActionSpec


def test_by_hand():
    action = ActionSpec("continuous", ("hip", "knee"), (-1, -1), (1, 1), unit="rad", scale=(0.25, 0.5))
    found = noise_in_degrees(action, torch.tensor([[0.2, 0.4], [0.4, 0.4]]))
    # mean 0.3 * 0.25 rad and 0.4 * 0.5 rad
    assert found["noise_degrees/hip"].item() == pytest.approx(math.degrees(0.075))
    assert found["noise_degrees/knee"].item() == pytest.approx(math.degrees(0.2))
    assert noise_in_degrees(ActionSpec("continuous", ("f",), (-1,), (1,), unit="N"), torch.ones(1, 1)) == {}


def test_ppo_tells_it_of_every_joint():
    env = make_env("pup4/velocity", 2, num_threads=1)
    config = ActorCriticConfig(distribution=DistributionConfig(init_std=0.1))  # of a half range of 4
    policy = ActorCritic(env.spec, config, generator=torch.Generator().manual_seed(0))
    runner = OnPolicyRunner(
        env, PPO(policy, PPOConfig(rollout_steps=2, minibatches=1), num_envs=2, seed=0), RunnerConfig(total_steps=4)
    )
    runner._collect()
    metrics = runner.algorithm.update(runner.rollout, Now())
    # 0.1 of 4 units of 0.25 rad
    for joint in env.spec.action.names:
        assert metrics[f"noise_degrees/{joint}"].item() == pytest.approx(math.degrees(0.1), rel=1e-3)
