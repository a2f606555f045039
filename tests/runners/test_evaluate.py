"""Evaluation: fixed seeds, whole episodes, the same numbers for any batch size."""

import pytest
import torch

from gaitway.core.seeding import stream
from gaitway.envs.registry import make_env
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


def test_summary_has_means_spread_and_the_noisy_return():
    env = make_env("toy/pendulum", num_envs=4, seed=0, purpose="evaluation")
    result = evaluate(env, lambda noisy: Push(env, 0.5 if noisy else 0.0), EvaluationConfig(episodes=4))
    assert result["return"] != result["stochastic_return"]
    table = run_episodes(env, Push(env, 0.0), 4)
    assert result["return"] == pytest.approx(float(table["return"].mean()))
    assert result["return_std"] == pytest.approx(float(table["return"].std(correction=0)))


def test_impossible_numbers_are_refused():
    with pytest.raises(ValueError, match="episodes 0"):
        EvaluationConfig(episodes=0)
