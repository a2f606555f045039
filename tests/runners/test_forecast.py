"""The line that says how long a run will take."""

import logging

import torch

from gaitway.runners.forecast import Forecast


def told(rows, target=1000):
    """Lines after iterations `rows`: (second, steps, whether there was an update)."""
    clock = iter([second for second, _, learnt in rows if learnt])
    forecast = Forecast(target, torch.device("cpu"), lambda: next(clock))
    return [forecast.line(steps, {"loss/actor": 1.0} if learnt else {"train/return": 1.0}) for _, steps, learnt in rows]


def test_speed_is_that_of_learning_and_is_told_once():
    rows = [(0, 100, False), (5, 110, True), (7, 130, True), (10, 160, True), (20, 170, True)]
    lines = told(rows)
    assert lines[:3] == [None] * 3
    assert lines[3].startswith("10 steps a second: 840 more take 84 s; memory ")  # 50 steps in the 5 s after the first
    assert lines[4] is None


def test_long_runs_are_in_minutes_and_hours():
    minutes, hours = (told([(0, 0, True), (5, 500, True)], target)[1] for target in (500 + 60_000, 500 + 720_000))
    assert "60,000 more take 10 minutes;" in minutes
    assert "720,000 more take 2.0 hours;" in hours


def test_nothing_is_said_at_the_end_or_without_learning():
    assert told([(0, 500, True), (9, 1000, True)]) == [None, None]
    assert told([(0, 500, False), (9, 600, False)]) == [None, None]


def test_a_run_says_it(caplog, monkeypatch):
    monkeypatch.setattr("gaitway.runners.forecast.MEASURED_S", 0.0)
    with caplog.at_level(logging.INFO, logger="gaitway"):
        _train()
    assert sum("steps a second: " in record.message for record in caplog.records) == 1


def _train():
    from gaitway import PPO, ActorCritic, OnPolicyRunner, PPOConfig, RunnerConfig, make_env
    from gaitway.core.seeding import stream

    with make_env("toy/pendulum", num_envs=4) as env:
        policy = ActorCritic(env.spec, generator=stream(0, "parameters"))
        algorithm = PPO(policy, PPOConfig(rollout_steps=8, epochs=1, minibatches=1), num_envs=4)
        OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=160)).learn()
