"""Ended instances wait for their restart, and what is handed out is NumPy by key."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gaitway.envs.gym.held_batch import ExportedBatch, HeldBatch
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.tasks import NATIVE_TASKS

ID = "walker/hurdles"


def held(num_envs: int = 2, **options: int) -> HeldBatch:
    return HeldBatch(NATIVE_TASKS[ID](**options), num_envs, num_threads=1)


def test_ended_instances_stay_where_they_ended():
    env, plain = held(max_episode_steps=2), MujocoBatchEnv(NATIVE_TASKS[ID](max_episode_steps=2), 2, num_threads=1)
    for _ in range(2):
        step, usual = env.step(torch.ones(2, 6)), plain.step(torch.ones(2, 6))
    assert step.truncated.tolist() == [True, True]
    assert torch.equal(step.obs["policy"], usual.final_obs["policy"])
    assert env.elapsed.tolist() == [2, 2]
    begun = env.restart(np.array([1]), [None])["policy"]
    assert torch.equal(begun[1], usual.obs["policy"][1])  # the second episode, as without waiting
    assert torch.equal(begun[0], usual.final_obs["policy"][0])
    assert env.elapsed.tolist() == [2, 0]


def test_seeds_begin_streams_of_their_own():
    env = held(3)
    begun = env.restart(np.array([0, 2]), [None, 9])["policy"].clone()
    assert torch.equal(begun[2], held(1).reset([9])["policy"][0])
    assert torch.equal(begun[0], held(1).restart(np.array([0]), [None])["policy"][0])
    assert torch.equal(begun[1], held(3).reset(0)["policy"][1])
    assert torch.equal(env.restart(np.array([], dtype=np.int64), [])["policy"], begun)
    with pytest.raises(ValueError, match="use an integer >= 0"):
        env.restart(np.array([0]), [-1])


def test_streams_restart_after_many_episodes():
    """From the ninth episode on keys come in blocks, which a new seed must not inherit."""
    env, other, rows = held(1), held(1), np.array([0])
    for seed in (4, 5):
        env.restart(rows, [seed])
        for _ in range(12):
            latest = env.restart(rows, [None])["policy"]
    other.restart(rows, [5])
    for _ in range(12):
        expected = other.restart(rows, [None])["policy"]
    assert torch.equal(latest, expected)


def test_spaces_are_in_the_order_of_the_benchmark():
    batch = ExportedBatch("humanoid/polebalance", 3, 1, "float32", {"goal_space": True})
    sizes = {"pole": 7, "observation": 151, "goal_space": 12}
    one, many = batch.observation_space(), batch.observation_space(3)
    assert [(key, space.shape) for key, space in one.items()] == [(key, (size,)) for key, size in sizes.items()]
    assert [(key, space.shape) for key, space in many.items()] == [(key, (3, size)) for key, size in sizes.items()]
    assert batch.action_space().shape == (21,)
    assert batch.action_space(3).shape == (3, 21)
