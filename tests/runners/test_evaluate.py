"""Evaluation: fixed seeds, whole episodes, the same numbers for any batch size."""

import gymnasium
import numpy as np
import pytest
import torch

from gaitway.core.seeding import stream
from gaitway.envs.gym.env import GymnasiumEnv
from gaitway.envs.registry import make_env
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup
from gaitway.runners.evaluate import EvaluationConfig, evaluate, run_episodes


class Push:
    """A policy without memory that counts how often it was told to forget."""

    def __init__(self, env, scale=0.5):
        self.shape = (env.num_envs, *env.spec.action.shape)
        self.scale, self.resets = scale, 0

    def __call__(self, obs):
        return torch.full(self.shape, self.scale)

    def reset(self, mask=None):
        self.resets += 1


def episodes(num_envs, count=6):
    env = make_env("toy/pendulum", num_envs=num_envs, seed=3, purpose="evaluation")
    return run_episodes(env, Push(env), count)


def test_results_do_not_depend_on_the_batch_size():
    whole, chunks, single = episodes(6), episodes(4), episodes(1)
    assert whole["return"].shape == (6,)
    for name in whole:
        assert torch.equal(whole[name], chunks[name])
        assert torch.equal(whole[name], single[name])


def test_seeds_are_those_of_the_evaluation_stream():
    again = episodes(6)
    assert torch.equal(again["return"], episodes(6)["return"])
    env = make_env("toy/pendulum", num_envs=6, seed=3, purpose="train")
    assert not torch.equal(run_episodes(env, Push(env), 6)["return"], again["return"])


def test_returns_and_lengths_by_hand():
    # reward 1 a step, cut after 10
    env = make_env("toy/constant", num_envs=3, seed=0)
    table = run_episodes(env, Push(env), 5)
    assert table["return"].tolist() == [10.0] * 5
    assert table["length"].tolist() == [10.0] * 5


def test_long_episodes_are_cut_where_asked():
    env = make_env("toy/constant", num_envs=2, seed=0)
    assert run_episodes(env, Push(env), 2, max_steps=4)["length"].tolist() == [4.0, 4.0]


def test_totals_of_episodes_that_did_not_end_are_unknown():
    class Left(Push):
        def __call__(self, obs):
            return torch.zeros(self.shape, dtype=torch.int64)

    env = make_env("toy/cartpole", num_envs=2, seed=0)
    assert run_episodes(env, Left(env), 2, max_steps=3)["angle_episode"].isnan().all()
    assert not run_episodes(env, Left(env), 2)["angle_episode"].isnan().any()


def test_events_count_per_episode_and_other_metrics_average():
    env = make_env("Hopper-v5", num_envs=4, seed=0, purpose="evaluation")

    class Random(Push):
        def __init__(self, env):
            super().__init__(env)
            self.generator = stream(0, "test")

        def __call__(self, obs):
            return torch.rand(self.shape, generator=self.generator) * 2 - 1

    table = run_episodes(env, Random(env), 4)
    assert table["fell"].tolist() == [1.0] * 4
    assert (table["speed"].abs() < 5).all()


class Doors(gymnasium.Env):
    """Ends after 8 steps; says `is_success` at step 3 alone, `opened` at step 5 alone, `speed` always."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.count += 1
        info = {"is_success": self.count == 3, "speed": float(self.count)}
        info |= {"opened": True} if self.count == 5 else {}
        return np.zeros(2, np.float32), 1.0, self.count == 8, False, info


def test_success_and_declared_flags_count_once_per_episode():
    env = GymnasiumEnv([Doors] * 2, metrics=["is_success", "speed"], flags=["opened"])
    assert env.spec.metrics == ("is_success", "speed", "opened")
    table = run_episodes(env, Push(env), 3)
    assert table["is_success"].tolist() == [1.0] * 3 == table["opened"].tolist()
    assert table["speed"].tolist() == [4.5] * 3  # the mean of 1..8
    assert EnvSpec.from_dict(env.spec.to_dict()).flags == ("opened",)


def test_a_flag_is_a_metric():
    group = ObservationGroup("policy", (Component("x"),), (1,))
    with pytest.raises(ValueError, match="flags of test names 'open', which is not among its metrics"):
        EnvSpec("test", (group,), ActionSpec("continuous", ("a",), (0.0,), (1.0,)), 0.0, 0, ("speed",), ("open",))
    with pytest.raises(ValueError, match="metrics is 'is_success'; write a list"):
        GymnasiumEnv(Doors, metrics="is_success")


def test_summary_has_means_spread_and_the_noisy_return():
    env = make_env("toy/pendulum", num_envs=4, seed=0, purpose="evaluation")
    result = evaluate(env, lambda noisy: Push(env, 0.5 if noisy else 0.0), EvaluationConfig(episodes=4))
    assert result["return"] != result["stochastic_return"]
    table = run_episodes(env, Push(env, 0.0), 4)
    assert result["return"] == pytest.approx(float(table["return"].mean()))
    assert result["return_std"] == pytest.approx(float(table["return"].std(correction=0)))


def test_impossible_numbers_are_refused():
    with pytest.raises(ValueError, match="episodes is 0"):
        EvaluationConfig(episodes=0)
