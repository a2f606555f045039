"""check_env finds every broken environment, names its fault, and leaves sound ones alone."""

from __future__ import annotations

import pytest
import torch
from broken_envs import BROKEN, LIMIT, FinalIsReset, cartpole, pendulum

from gaitway.envs.check import check_env
from gaitway.envs.toys.toy_env import ToyEnv
from gaitway.envs.toys.toys import TOYS


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_environment_gets_its_sentence(name):
    factory, sentence = BROKEN[name]
    report = check_env(factory, steps=3 * LIMIT)
    assert any(sentence in problem for problem in report.problems), report
    assert len(report.problems) <= 2, f"one fault, at most one shadow: {report}"
    with pytest.raises(ValueError, match="problem"):
        report.raise_if_broken()


@pytest.mark.parametrize("id", TOYS)
def test_toys_are_sound(id):
    report = check_env(lambda num_envs, seed: ToyEnv(TOYS[id](), num_envs, seed, id=id), steps=60)
    assert report.ok, report
    report.raise_if_broken()


def test_double_precision_is_sound():
    toy = TOYS["toy/cartpole"]
    report = check_env(
        lambda num_envs, seed: ToyEnv(toy(max_episode_steps=LIMIT), num_envs, seed, dtype=torch.float64), steps=40
    )
    assert report.ok, report


def test_a_single_environment_is_checked_as_far_as_possible():
    report = check_env(pendulum(3, 5), seed=5, steps=3 * LIMIT)
    assert report.ok, report
    assert any("pass a factory" in sentence for sentence in report.skipped)
    assert "not checked" in str(report)
    broken = check_env(FinalIsReset(pendulum(3, 5)), steps=3 * LIMIT)
    assert "final_obs equals obs" in str(broken)


def test_too_few_steps_are_admitted():
    report = check_env(cartpole, steps=3)
    assert any("none came in 3 steps" in sentence for sentence in report.skipped)


def test_the_environment_given_is_left_open():
    env = pendulum(2, 0)
    check_env(env, steps=LIMIT + 2)
    env.reset(1)
    assert env.step(torch.zeros(2, 1)).reward.shape == (2,)


def test_an_id_is_checked_like_a_factory():
    report = check_env("toy/cue", steps=60)
    assert report.ok, report
    assert report.id == "toy/cue"
    assert not any("pass a factory" in sentence for sentence in report.skipped)
    with pytest.raises(ValueError, match="did you mean toy/cue"):
        check_env("toy/que")
    with pytest.raises(TypeError, match="cannot check 3; pass an id, an environment or a factory"):
        check_env(3)
