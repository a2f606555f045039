"""The learner guides the drawing of goals, tells its discount, and estimates by proposed goals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gaitway import OffPolicyRunner, RunnerConfig, make_env
from gaitway.agents.skill_policy import SkillPolicy, SkillPolicyConfig
from gaitway.core.seeding import stream
from gaitway.skills import controllability
from gaitway.skills.callbacks import TaskCurriculum
from gaitway.skills.controllability import estimate_controllability
from gaitway.skills.estimates import goals_from
from gaitway.skills.multitask_sac import MultitaskSAC, MultitaskSACConfig

CONFIG = MultitaskSACConfig(
    batch_size=16, replay_size=2000, learning_starts=80, iteration_steps=80, update_ratio=0.1, critic_learning_rate=1e-2
)


def make(env_options, make_callbacks=lambda algorithm: (), config=CONFIG, folder=None) -> OffPolicyRunner:
    env = make_env("point/skills", num_envs=4, seed=0, max_steps=6, **env_options)
    agent = SkillPolicyConfig(actor_hidden=(16, 16), critic_hidden=(16, 16))
    algorithm = MultitaskSAC(SkillPolicy(env.spec, agent, stream(0, "parameters")), config, num_envs=4)
    return OffPolicyRunner(
        env, algorithm, RunnerConfig(total_steps=10**6), callbacks=make_callbacks(algorithm), folder=folder
    )


def logic_of(runner):
    return runner.env.toy.logic


@pytest.mark.parametrize("sampling", ["r", "r2", "q"])
def test_goals_are_weighed_by_the_networks_of_the_learner(sampling):
    runner = make({"goal_sampling": sampling, "rank_max": 2})
    asked = []
    guide = runner.upkeep.callbacks.named["goal_guide"]
    score = guide.scores

    def watched(seen):
        asked.append({name: array.copy() for name, array in seen.items()})
        return score(seen)

    guide.scores = watched
    runner.learn(320)
    assert len(asked) > 10
    assert logic_of(runner).memory["gamma"][0] == pytest.approx(1 - 1 / 6)
    seen = asked[-1]
    assert len(seen["task"]) % 128 == 0
    policy = runner.policy
    rows = {name: torch.from_numpy(array) for name, array in seen.items()}
    with torch.no_grad():
        action = policy.mean_action(policy.network_input(rows, "actor"))
        values = policy.values(policy.critic, policy.network_input(rows, "critic"), action).numpy()
    expected = values[-1] if sampling in ("r", "r2") else np.minimum(values[0], values[1])
    np.testing.assert_allclose(score(seen), expected, rtol=1e-6)
    assert np.ptp(expected) > 0


def test_guided_runs_differ_from_uniform_ones_and_are_the_same_again():
    goals = {}
    for name, options in {"r": {"goal_sampling": "r"}, "again": {"goal_sampling": "r"}, "random": {}}.items():
        runner = make(options)
        runner.learn(320)
        goals[name] = logic_of(runner).memory["goal"].copy()
    assert np.array_equal(goals["r"], goals["again"])
    assert not np.array_equal(goals["r"], goals["random"])


def test_a_guided_run_resumes_exactly(tmp_path):
    whole = make({"goal_sampling": "r2", "reward": "potential2"}, folder=tmp_path / "whole")
    whole.learn(480)
    first = make({"goal_sampling": "r2", "reward": "potential2"}, folder=tmp_path / "parts")
    first.learn(240)
    second = make({"goal_sampling": "r2", "reward": "potential2"}, folder=first.folder)
    assert second.resume() == 240
    second.learn(240)
    for name, value in whole.policy.state_dict().items():
        assert torch.equal(value, second.policy.state_dict()[name]), name
    assert np.array_equal(logic_of(whole).memory["goal"], logic_of(second).memory["goal"])


@pytest.mark.parametrize(("reward", "bonus"), [("potential2", 0.0), ("potential3", 1.0)])
def test_discounted_rewards_use_the_learners_discount(reward, bonus):
    runner = make({"reward": reward, "precision": 0.5})
    runner.learn(320)
    ws = runner.rollout
    metric = {name: ws[f"env/metric/{name}"].double() for name in ("distance", "potential", "reached_goal", "fell")}
    gamma = 1 - 1 / 6
    before = metric["distance"] + metric["potential"]
    expected = before - gamma * metric["distance"] + bonus * metric["reached_goal"]
    stands = metric["fell"] == 0
    torch.testing.assert_close(ws["env/reward"].double()[stands], expected[stands], atol=1e-5, rtol=1e-5)
    assert bool(metric["reached_goal"].any())


@pytest.mark.parametrize("kind", ["gmm", "kmeans"])
def test_estimates_by_goals_where_features_were_visited(kind):
    runner = make({"rank_max": 2}, lambda algorithm: [TaskCurriculum(algorithm, interval=80)])
    runner.learn(400)
    tasks = ["0", "2", "3", "2,3"]
    uniform, proposed = (estimate_controllability(runner.algorithm, tasks, each) for each in (None, kind))
    assert proposed.r == estimate_controllability(runner.algorithm, tasks, kind).r
    assert all(0 <= p <= 1 for p in (*proposed.r.values(), *proposed.q.values()))
    assert proposed != uniform


def test_the_curriculum_takes_proposed_goals_and_refuses_an_unknown_kind():
    runner = make(
        {"rank_max": 2}, lambda algorithm: [TaskCurriculum(algorithm, interval=80, estimate_joint_spaces="kmeans")]
    )
    runner.learn(240)
    with pytest.raises(ValueError, match=r"estimate_joint_spaces is 'kmean' .did you mean 'kmeans'"):
        TaskCurriculum(runner.algorithm, estimate_joint_spaces="kmean")


def test_features_in_normalised_units_are_refused():
    with pytest.raises(ValueError, match="normalize_gs_observation=false"):
        make({"normalize_gs_observation": True})


def test_goals_in_normalised_units_are_refused():
    """With three features in every task the widths agree, and estimates would show networks other numbers."""
    with pytest.raises(ValueError, match="backproject_goal=true"):
        make({"backproject_goal": False, "feature_dist": "0#1#2", "rank_min": 3, "rank_max": 3})


@pytest.mark.parametrize("joint_space", [None, "kmeans"])
@pytest.mark.parametrize("zero_twist", [False, True])
def test_estimates_ask_for_the_angles_that_the_environment_asks_for(zero_twist, joint_space, monkeypatch):
    runner = make({"rank_max": 2, "zero_twist_goals": zero_twist})
    runner.learn(240)
    asked = []

    def watched(*arguments):
        asked.append(goals_from(*arguments).goal)
        return goals_from(*arguments)

    monkeypatch.setattr(controllability, "goals_from", watched)
    estimate_controllability(runner.algorithm, ["3", "0,3"], joint_space)
    headings = np.concatenate(asked)[:, 3]
    assert (headings == 0).all() == zero_twist
    assert (asked[1][:, 0] != 0).any()  # other features are asked for as before
