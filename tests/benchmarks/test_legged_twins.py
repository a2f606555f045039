"""Twins of the experiments on legged robots have the mistake that they are named for."""

import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from gaitway import make_env

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def experiments(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    before = set(sys.modules)
    from robot_learning_experiments import legged, legged_field

    yield legged, legged_field
    for name in set(sys.modules) - before:
        if str(ROOT / "benchmarks") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_frames_of_an_episode_are_seen_in_the_next_one(experiments):
    """Episodes of three steps; five frames. The second episode begins with the last frames of the first one."""
    legged, _ = experiments
    options = {"num_threads": 1, "episode_seconds": 0.06}
    whole = make_env("pup12/blind", 2, seed=0, wrappers=[legged.HISTORY], **options)
    broken = make_env("pup12/blind", 2, seed=0, wrappers=[legged.STALE], **options)
    size, frames = whole.spec.group("policy").shape[0], []
    assert broken.spec.group("policy_history").shape == (5 * size,)
    for env in (whole, broken):
        env.reset(0)
    first = broken.reset(0)["policy"]
    frames.append(first.clone())
    whole.reset(0)
    for number in range(3):
        action = torch.zeros(2, 12)
        honest, step = whole.step(action), broken.step(action)
        assert torch.equal(step.obs["policy"], honest.obs["policy"])
        frames.append(step.obs["policy"].clone())
        past = step.obs["policy_history"].view(2, 5, size)
        assert_close(past[:, -1], frames[-1])
        assert_close(past[:, -2], frames[-2])  # across the end, too
        is_refilled = torch.equal(honest.obs["policy_history"].view(2, 5, size)[:, 0], honest.obs["policy"])
        assert is_refilled is (number == 2)
    assert bool(step.truncated.all())


def test_a_ring_that_is_added_up_acts_too_far(experiments):
    _, field = experiments
    env = make_env(field.ID, 2, seed=0, num_threads=1, purpose="evaluation")
    obs = env.reset(0)
    actions = {}
    for kind in (field.Mutex, field.AddedUp):
        policy, state = field.mutex(env.spec, order=("walk",) * 5, kind=kind), None
        for _ in range(5):  # until the ring is full
            action, state = policy.act(obs, state, stochastic=False)
        actions[kind] = action
    assert_close(actions[field.AddedUp], 5.0 * actions[field.Mutex])
