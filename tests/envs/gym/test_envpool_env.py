"""EnvPool behind the contract: rows of resets are marked, seeds mean what they mean elsewhere."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from gaitway.envs.check import check_env
from gaitway.envs.gym.envpool_env import EnvPoolEnv

envpool = pytest.importorskip("envpool")


def pool_seed(seed: int, index: int, restarts: int = 0, *spawn_key: int) -> int:
    return int(np.random.SeedSequence([seed, index, restarts], spawn_key=spawn_key).generate_state(1)[0]) % (2**31 - 1)


def test_the_stream_is_that_of_a_plain_pool():
    env = EnvPoolEnv("CartPole-v1", 2, seed=3, num_threads=1)
    seeds = [pool_seed(3, index) for index in range(2)]
    plain = envpool.make_gymnasium("CartPole-v1", num_envs=2, seed=seeds, num_threads=1)
    expected, _ = plain.reset()
    assert np.array_equal(env.reset(3)["policy"], expected)
    pending = np.zeros(2, dtype=bool)
    resets = 0
    for _ in range(40):
        step = env.step(torch.tensor([1, 0]))
        obs, reward, terminated, truncated, _ = plain.step(np.array([1, 0]))
        assert np.array_equal(step.obs["policy"], obs)
        assert torch.equal(step.obs["policy"], step.final_obs["policy"])
        assert step.valid.tolist() == (~pending).tolist()
        assert np.array_equal(step.reward, np.where(pending, 0, reward))
        assert np.array_equal(step.terminated, terminated)
        resets += pending.sum()
        pending = terminated | truncated
    assert resets > 4
    assert env.spec.reset_rows
    assert not env.spec.exact_state
    assert env.spec.max_episode_steps == 500


def test_check_env_accepts_it():
    def build(num_envs, seed):
        return EnvPoolEnv("CartPole-v1", num_envs, seed, num_threads=1, max_episode_steps=12)

    report = check_env(build, steps=30)
    assert report.ok, report


def test_half_cheetah_with_metrics():
    with EnvPoolEnv("HalfCheetah-v5", 2, num_threads=1, metrics=("x_velocity",), max_episode_steps=3) as env:
        assert env.spec.group("policy").shape == (17,)
        velocity = [env.step(torch.full((2, 6), 9.0)).metrics["x_velocity"].clone() for _ in range(4)]
        assert all(value.any() for value in velocity[:3])
        assert not velocity[3].any(), "a reset row has no speed"
        assert env.spec.max_episode_steps == 3
        assert env.spec.id == "envpool:HalfCheetah-v5"
        with pytest.raises(ValueError, match="is nan"):
            env.step(torch.full((2, 6), float("nan")))


def test_dict_observations():
    with EnvPoolEnv("FetchReach-v4", 2, num_threads=1) as env:
        assert set(env.spec.group_names) == {"observation", "achieved_goal", "desired_goal"}
        assert env.reset(1)["desired_goal"].shape == (2, 3)


def test_seeds_are_per_instance_and_purpose():
    env = EnvPoolEnv("CartPole-v1", 3, num_threads=1)
    by_list = env.reset([4, 9, 4])["policy"].clone()
    assert torch.equal(by_list[0], by_list[2])
    assert torch.equal(env.reset(4)["policy"][0], by_list[0])
    first = env.reset(4)["policy"].clone()
    assert not torch.equal(env.reset()["policy"], first)
    other = EnvPoolEnv("CartPole-v1", 3, num_threads=1, purpose="evaluation")
    assert not torch.equal(other.reset(4)["policy"], first)


def test_a_stored_state_starts_fresh_episodes():
    env = EnvPoolEnv("CartPole-v1", 2, seed=6, num_threads=1)
    state = env.state_dict()
    with pytest.warns(UserWarning, match="fresh seeds"):
        obs = env.load_state_dict(state)["policy"].clone()
    plain = envpool.make_gymnasium(
        "CartPole-v1", num_envs=2, seed=[pool_seed(6, index, 1) for index in range(2)], num_threads=1
    )
    assert np.array_equal(obs, plain.reset()[0])


def test_wrong_names_and_a_missing_package(monkeypatch):
    with pytest.raises(ValueError, match="HalfCheetah-v5"):
        EnvPoolEnv("HalfCheeta-v5")
    with pytest.raises(ValueError, match="cannot be drawn"):
        EnvPoolEnv("CartPole-v1", num_threads=1).render()
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(ImportError, match=r'pip install "gaitway\[envpool\]"'):
        EnvPoolEnv("CartPole-v1")
