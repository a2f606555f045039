"""Evaluation by trials: as many of each kind, settled before they begin; running success while training."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from gaitway import make_env
from gaitway.core.workspace import Workspace
from gaitway.envs.trials import Trials, TrialStatistics, run_trials
from gaitway.runners.evaluate import EvaluationConfig, evaluate, evaluation_instances, result_names


class Still:
    """No action at all; counts how often it is asked."""

    def __init__(self, env) -> None:
        self.action = torch.zeros(env.num_envs, len(env.spec.action.names))
        self.calls = 0

    def __call__(self, obs):
        self.calls += 1
        return self.action

    def reset(self, mask=None) -> None:
        pass


def seen_goals(env, per_kind):
    """The same evaluation counted by hand, goal after goal of each instance."""
    names = env.call("plan_trials", per_kind)
    share = -(-len(names) * per_kind // env.num_envs)
    room = [max(0, min(share, len(names) * per_kind - row * share)) for row in range(env.num_envs)]
    outcomes = {name: [] for name in names.values()}
    env.reset(seed=list(range(env.num_envs)))
    while any(room):
        step = env.step(torch.zeros(env.num_envs, len(env.spec.action.names)))
        for row in range(env.num_envs):
            if step.metrics["last_step_of_task"][row] and room[row]:
                room[row] -= 1
                outcomes[names[int(step.metrics["task_key"][row])]].append(float(step.metrics["reached_goal"][row]))
    env.call("plan_trials", 0)
    return outcomes


@pytest.mark.parametrize("num_envs", [1, 4, 7])
def test_each_kind_is_tried_equally_often_and_counted_rightly(num_envs):
    with make_env("point/skills", num_envs=num_envs, rank_max=2, precision=0.4, purpose="evaluation") as env:
        result = run_trials(env, Still(env), 3, 10_000)
        expected = seen_goals(env, 3)
    assert {len(found) for found in expected.values()} == {3}
    assert {name: np.mean(found) for name, found in expected.items()} == {
        name.removeprefix("success/"): value for name, value in result.items() if "/" in name
    }
    assert result["success"] == pytest.approx(np.mean([np.mean(found) for found in expected.values()]))
    assert 0 < result["success"] < 1


@pytest.mark.parametrize("precision", [1e-9, 10.0], ids=["never_reached", "always_reached"])
def test_a_physics_fault_ends_the_trial_of_its_kind_and_no_other(precision, monkeypatch):
    with make_env("walker/skills", num_envs=2, rank_max=5, max_steps=3, precision=precision) as env:
        move, steps = env.task.advance, itertools.count(1)

        def break_sometimes():
            move()
            if next(steps) % 4 == 0:
                env.task.qvel[1, 4] = np.nan

        monkeypatch.setattr(env.task, "advance", break_sometimes)
        names, left, tried = env.call("plan_trials", 2), np.array([31, 31]), []
        env.reset()
        while left.any():
            metrics = {name: value.numpy() for name, value in env.step(torch.zeros(2, 6)).metrics.items()}
            over = (metrics["last_step_of_task"] > 0) & (left > 0)
            tried += [names[int(key)] for key in metrics["task_key"][over]]
            assert (metrics["reached_goal"][metrics["physics_error"] > 0] == 0).all()
            left -= over
    assert len(names) == 31
    assert Counter(tried) == dict.fromkeys(names.values(), 2)


def test_evaluating_twice_gives_the_same_numbers_and_draws_tasks_again_afterwards():
    with make_env("point/skills", num_envs=4, rank_max=4, purpose="evaluation") as env:
        config = EvaluationConfig(trials=2, stochastic=True)
        first = evaluate(env, lambda stochastic: Still(env), config)
        second = evaluate(env, lambda stochastic: Still(env), config)
        assert first == second
        assert set(result_names(env.spec, config)) <= set(first)
        assert first["stochastic_success"] == first["success"]
        assert evaluation_instances(env.spec, 10) == 64


def test_a_kind_without_an_ended_trial_is_unknown_not_zero():
    with make_env("point/skills", num_envs=2) as env:
        result = run_trials(env, Still(env), 5, max_steps=3)
        assert any(np.isnan(value) for name, value in result.items() if "/" in name)


def test_environments_without_trials_are_refused_and_evaluated_by_episodes():
    with make_env("walker/run", num_envs=1) as env:
        assert Trials.of(env.spec) is None
        with pytest.raises(ValueError, match="states no trials in its contract; evaluate it by episodes"):
            run_trials(env, Still(env), 1, 10)


def test_running_success_follows_each_trial_by_a_tenth():
    trials = Trials("over", "kind", "won", {1: "a", 2: "b"})
    ends = [[1, 0], [1, 1], [0, 1], [1, 0]]
    kinds = [[1, 2], [1, 2], [1, 1], [2, 2]]
    won = [[1, 1], [0, 1], [1, 1], [0, 1]]
    expected: dict[int, float] = {}
    for row in range(4):
        for column in range(2):
            if ends[row][column]:
                key, outcome = kinds[row][column], won[row][column]
                before = expected.get(key, float(outcome))
                expected[key] = 0.9 * before + 0.1 * outcome
    statistics, parts = TrialStatistics(trials), TrialStatistics(trials)

    def rows(start, stop):
        named = {"env/metric/over": ends, "env/metric/kind": kinds, "env/metric/won": won}
        return Workspace.packed({name: torch.tensor(value[start:stop]).float() for name, value in named.items()})

    statistics.add(rows(0, 4))
    parts.add(rows(0, 2))
    other = TrialStatistics(trials)
    other.load_state_dict(parts.state_dict())
    other.add(rows(2, 4))
    for found in (statistics, other):
        assert found.metrics() == pytest.approx({"env/success/a": expected[1], "env/success/b": expected[2]})


@pytest.mark.parametrize("outcome", [0.3, 1.0])
def test_running_success_stays_within_what_was_met(outcome):
    """The weights of the mean add up to 1.0000000000000002 for 7 trials at once, and for many other numbers of them."""
    statistics = TrialStatistics(Trials("over", "kind", "won", {0: "a"}))
    for count in range(1, 60):
        one = torch.ones(count, 1, dtype=torch.float64)
        named = {"env/metric/over": one, "env/metric/kind": 0 * one, "env/metric/won": outcome * one}
        statistics.add(Workspace.packed(named))
        assert statistics.success == {0: outcome}
