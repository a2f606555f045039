"""The curriculum between iterations: environments draw by its weights, and evaluations try every task alike."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from resume_cases import FILE, STEPS, Case, begun, close, metrics

from gaitway.cli.build import build_runner
from gaitway.core.config import ConfigError


def weights_of(env) -> dict[str, float]:
    """What tasks of a toy are drawn by, by task."""
    logic = env.toy.logic
    keys = [int(key) for key in logic.memory["task_order"] if key]
    return {logic.tasks.name_of(key): float(logic.memory["task_weights"][key]) for key in keys}


def test_reviews_set_what_is_practised_and_evaluations_try_all_of_it(tmp_path):
    """Four groups; every review adds the next rank, as the presets do: 4, 6, 4 and 1 tasks."""
    case = Case(callbacks=({"name": "curriculum", "interval": STEPS}, FILE), end=3 * STEPS)
    runner = begun(case.config(), tmp_path / "run")
    curriculum = runner.upkeep.callbacks.named["curriculum"].curriculum
    seen = []
    iterate = runner._iterate

    def watched(target):
        weights = weights_of(runner.env)
        assert weights == pytest.approx(curriculum.weights)
        assert math.fsum(weights.values()) == pytest.approx(1.0)
        seen.append(len(weights))
        iterate(target)

    runner._iterate = watched
    runner.learn()
    assert seen == [10, 14, 15]  # the first review comes before the first step, the last one adds nothing
    tried = weights_of(runner.upkeep.judge.env)
    assert list(tried) == list(curriculum.weights)
    assert len(set(tried.values())) == 1
    lines = metrics(tmp_path / "run")
    close(runner)
    reviews = {line["step"]: line["curriculum/tasks"] for line in lines if "curriculum/tasks" in line}
    assert reviews == {0: 10.0, STEPS: 14.0, 2 * STEPS: 15.0, 3 * STEPS: 15.0}
    evaluations = [line for line in lines if "eval/success" in line]
    assert [line["step"] for line in evaluations] == [2 * STEPS, 3 * STEPS]
    for line in evaluations:
        assert {name for name in line if name.startswith("eval/success/")} == {f"eval/success/{t}" for t in tried}
    last = max(line["step"] for line in lines if "curriculum/r/0" in line)
    assert last == 3 * STEPS
    assert any(key.startswith("floor/random/") for line in lines for key in line)


def test_groups_that_contain_each_other_are_no_two_tasks():
    """`0,3`, `3,0+3` and so on control what `0+3` does: it is practised, measured and weighed under that name."""
    options = {"feature_dist": {"3": 1.0, "0+3": 1.0, "0": 1.0}, "max_steps": 4, "precision": 0.5}
    curriculum = {"name": "curriculum", "interval": STEPS, "eval_mode": "running_avg", "weighting": "lp"}
    runner = build_runner(Case(callbacks=(curriculum,), options=options, end=2 * STEPS).config(), None)
    runner.learn()
    found = runner.upkeep.callbacks.named["curriculum"].curriculum
    assert list(found.weights) == ["3", "0+3", "0"]
    assert weights_of(runner.env) == pytest.approx(found.weights)
    assert found.performance["0+3"] > 0  # that many goals are reached in random play
    close(runner)


@pytest.mark.parametrize("options", [{"eval_mode": "rollouts"}, {"interval": None}])
def test_reviews_after_evaluations_need_evaluations(options):
    config = Case(callbacks=({"name": "curriculum"} | options,)).config()
    none = replace(config, evaluation=replace(config.evaluation, interval=0))
    with pytest.raises(ConfigError, match=r"evaluation.interval is 0, for only at the end; set it") as caught:
        build_runner(none, None)
    assert "\n" not in str(caught.value)
    build_runner(config, None).env.close()
    build_runner(replace(none, callbacks=({"name": "curriculum"},)), None).env.close()


@pytest.mark.parametrize("mode", ["rollouts", "running_avg", "q_value", "reachability"])
def test_every_source_of_success_is_heard(mode):
    """With ctrl_eps 0 pairs of tasks that always succeed are combined, with 1 all pairs are."""
    for ctrl_eps in (0.0, 1.0):
        option = {"name": "curriculum", "interval": 2 * STEPS, "eval_mode": mode, "ctrl_eps": ctrl_eps}
        case = Case(callbacks=(option | {"feature_rank_max": 2},), end=2 * STEPS)
        runner = build_runner(case.config(), None)
        runner.learn()
        callback = runner.upkeep.callbacks.named["curriculum"]
        performance = callback.curriculum.performance
        able = sum(success >= 1 - ctrl_eps for task, success in performance.items() if "," not in task)
        assert len(callback.curriculum.weights) == 4 + able * (able - 1) // 2
        assert len(callback.curriculum.weights) == 10 or ctrl_eps == 0
        assert callback.reviewed == 2 * STEPS
        source = {"rollouts": callback.measured, "running_avg": callback.running}.get(mode)
        if source is not None:
            assert performance == {task: source.get(task, 0.0) for task in performance}
        close(runner)
