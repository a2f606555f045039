"""Every option of the skill environment does what it says, and mistakes are named when the environment is made."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from skill_cases import actions, make_skills, play

from gaitway.envs.registry import make_env
from gaitway.envs.tasks.skills import goal_logic
from gaitway.envs.tasks.skills.goal_logic import NUM_CANDIDATES
from gaitway.envs.tasks.skills.goal_spaces import HUMANOID_BODYFEET, WALKER_BODYFEET, GoalSpace
from gaitway.envs.tasks.skills.options import SkillConfig, make_tasks

FREE = {"allow_fallover": True}


@pytest.mark.parametrize(
    ("robot", "options", "words"),
    [
        ("walker", {"feature_dist": {"7": 1.0}}, r"features \[7\] of the task map cannot be controlled"),
        ("walker", {"feature_dist": "0#9"}, "features that bodyfeet of walker does not control"),
        (
            "walker",
            {"feature_dist": {"0": 1.0}, "task_map": {"1": 0}},
            "feature 0 of subset '0' is not in the task map",
        ),
        ("walker", {"feature_dist": "0#1", "rank_min": 3, "rank_max": 3}, "fewer than the 3 asked for"),
        ("humanoid", {"feature_dist": {"0": 1.0}}, r"lacks \['root:tz'\]"),
        ("humanoid", {"backproject_goal": False}, "does not wrap angles"),
        ("walker", {"relative_frame_of_reference": True}, "relative_frame_of_reference is not available"),
        ("walker", {"reward": "potential5"}, "did you mean"),
        ("walker", {"goal_sampling": "best"}, "use one of"),
        ("walker", {"compat": "published"}, "use one of"),
        ("walker", {"resample_features": "soft0"}, "soft2, soft3"),
        ("walker", {"resample_features": "never"}, "use hard, soft"),
        ("walker", {"max_steps": 0}, ">= 1"),
        ("walker", {"hard_reset_interval": -1}, ">= 0"),
        ("walker", {"precision": 0.0}, "precision is 0; use a number > 0"),
        ("walker", {"reset_p": 1.5}, "a number from 0 to 1"),
        ("walker", {"features": "joints"}, "no goal space joints of walker"),
    ],
)
def test_mistakes_are_named_at_construction(robot, options, words):
    with pytest.raises(ValueError, match=words):
        make_env(f"{robot}/skills", **options)


def test_more_groups_than_can_be_combined_are_refused_before_all_are_named():
    # 20 groups make 1,048,575 tasks, whose names alone took more than a minute
    space = GoalSpace([f"joint_{number}" for number in range(20)], [-1.0] * 20, [1.0] * 20)
    groups = [str(number) for number in range(20)]
    with pytest.raises(ValueError, match="names 20 groups of features, and tasks combine 16 at most"):
        make_tasks("arm", SkillConfig(feature_dist=dict.fromkeys(groups, 1.0)), space)
    joined = ["0+1+2+3+4", *groups[5:]]
    tasks, _ = make_tasks("arm", SkillConfig(feature_dist=dict.fromkeys(joined, 1.0)), space)
    assert len(tasks.groups) == 16


def test_options_by_name_types_and_the_spec():
    with pytest.raises(TypeError, match="no option 'horizon'"):
        make_env("walker/skills", horizon=3)
    with pytest.raises(TypeError, match="takes str"):
        make_env("walker/skills", feature_dist=3.5)
    env = make_env("walker/skills", feature_dist=3)  # `feature_dist: 3` in YAML
    assert env.spec.facts["skills"]["groups"] == ["3"]
    env = make_env("walker/skills", feature_dist={"0": 1, "3+4": 2}, max_steps=20)
    assert env.spec.options == {"feature_dist": {"0": 1, "3+4": 2}, "max_steps": 20}
    assert env.spec.group("task").shape == (3,)
    assert make_env("walker/skills").task.config.ctrl_cost == 0.001
    assert make_env("humanoidpc/skills").task.config.ctrl_cost == 0.0


def test_the_distribution_over_tasks_by_groups_and_ranks():
    task = make_skills(rank_min=1, rank_max=5).task
    used = np.flatnonzero(task.memory["task_weights"])
    assert len(used) == 31
    assert np.allclose(task.memory["task_weights"][used], 1 / 31)
    humanoid = make_skills("humanoid", rank_min=1, rank_max=5).task
    assert len(np.flatnonzero(humanoid.memory["task_weights"])) == 31
    assert humanoid.tasks.features_of(humanoid.tasks.key_of("0+3,2+3")) == "0,2,3"


def test_a_task_map_decides_the_order_of_bits():
    env = make_skills(feature_dist={"0": 1.0}, task_map={"4": 0, "0": 1})
    obs = env.reset(0)
    assert obs["task"].tolist() == [[0, 1], [0, 1]]
    assert (obs["desired_goal"][:, 0] == 0).all()
    assert (obs["desired_goal"][:, 1] != 0).all()
    assert [part.name for part in env.spec.group("task").components] == ["left_foot:pz", "rootz:p"]


def test_new_weights_take_effect_with_the_next_goal():
    env = make_skills(max_steps=3, precision=1e-9, feature_dist={"0": 1.0, "1": 0.0, "2": 0.0}, **FREE)
    env.task.set_feature_dist({"1,2": 1.0})
    keys = play(env, 7)["task_key"][:, 0].tolist()
    assert keys == [1, 1, 1, 6, 6, 6, 6]
    with pytest.raises(ValueError, match="not in the task map"):
        env.task.set_feature_dist({"3": 1.0})


@pytest.mark.parametrize(("rule", "drawn_at"), [("hard", [0]), ("soft", list(range(12))), ("soft3", [0, 3, 6, 9])])
def test_when_a_new_task_is_drawn(rule, drawn_at):
    options = {"max_steps": 1, "precision": 1e-9, "hard_reset_interval": 12, "rank_max": 5, **FREE}
    run = play(make_skills(num_envs=8, resample_features=rule, **options), 12, 0.1)
    keys = run["task_key"]
    changed = [0] + [step for step in range(1, 12) if (keys[step] != keys[step - 1]).any()]
    assert changed == drawn_at
    assert run["terminated"][-1].all()


def test_the_cost_of_controls_sees_the_action_as_given():
    env, free = make_skills(ctrl_cost=0.01), make_skills(ctrl_cost=0.0)
    action = torch.full((2, 6), 3.0, dtype=torch.float64)
    cost = free.step(action).reward - env.step(action).reward
    assert torch.allclose(cost, torch.full((2,), 0.01 * 6 * 9.0, dtype=torch.float64))


def test_a_fall_replaces_the_reward_and_ends_the_episode():
    env = make_skills(fallover_penalty=-7.0, precision=50.0, full_episodes=True, ctrl_cost=1.0, reward="sparse")
    run = play(env, 80)
    fell = run["fell"].bool()
    assert fell.any()
    assert torch.equal(fell, run["terminated"])
    assert (run["reward"][fell] == -7.0).all()
    assert not run["reached_goal"][fell].any()
    assert run["reached_goal"][~fell].all()  # everything is within a precision of 50
    assert not play(make_skills(**FREE), 80)["terminated"].any()


def test_reaching_a_goal_ends_it_unless_episodes_are_full():
    run = play(make_skills(precision=50.0, max_steps=5, **FREE), 6)
    assert run["last_step_of_task"].all()
    assert (run["time"] == 0).all()
    run = play(make_skills(precision=50.0, max_steps=5, full_episodes=True, **FREE), 6)
    assert run["reached_goal"].all()
    assert run["time"][:, 0].tolist() == [0, 1, 2, 3, 4, 0]


def test_goals_given_up_at_random():
    run = play(make_skills(num_envs=32, reset_p=0.3, precision=1e-9, max_steps=50, **FREE), 60, 0.2)
    given_up = run["random_reset"].bool()
    assert torch.equal(given_up, run["soft_reset"].bool())
    assert abs(float(run["random_reset"].mean()) - 0.3) < 4 * (0.21 / given_up.numel()) ** 0.5
    run = play(make_skills(reset_p=1.0, precision=50.0, max_steps=2, **FREE), 4)
    assert not run["random_reset"].any()  # reached
    run = play(make_skills(reset_p=1.0, precision=1e-9, max_steps=1, **FREE), 4)
    assert not run["random_reset"].any()  # over anyway


def test_no_interval_means_no_end_but_falls():
    run = play(make_skills(max_steps=1, hard_reset_interval=0, **FREE), 210, 0.1)
    assert run["soft_reset"].all()
    assert not run["terminated"].any()


@pytest.mark.parametrize("idle_steps", [0, 1, 3])
def test_settling_after_a_hard_reset(idle_steps):
    env = make_skills(idle_steps=idle_steps)
    scenario = env.scenario()
    found = env.task.qpos.copy()
    untouched = env.load_scenario({**scenario, "settle": [False, False]})
    assert torch.equal(untouched["gs_observation"][:, :3], scenario["qpos"][:, :3])
    task = env.task
    task.batch.reset(stage=0)
    task.qpos[:], task.qvel[:] = scenario["qpos"].numpy(), scenario["qvel"].numpy()
    for _ in range(10 * max(1, idle_steps)):
        task.batch.step()
    assert np.array_equal(found, task.qpos)


def test_goals_in_normalised_units_are_left_aligned():
    env = make_skills(feature_dist={"2": 1.0, "1,5+6": 1.0}, backproject_goal=False, max_steps=2, **FREE)
    assert env.spec.group("desired_goal").shape == (3,)
    assert env.spec.group("task").shape == (4,)
    obs, seen = env.reset(0), set()
    for action in actions(env, 20):
        left = env.task.memory["goal"] - WALKER_BODYFEET.project(obs["gs_observation"].numpy())
        for row in range(2):
            chosen = [2] if obs["task"][row].tolist() == [0, 1, 0, 0] else [1, 5, 6]
            expected = np.zeros(3)
            expected[: len(chosen)] = left[row, chosen]
            assert np.allclose(obs["desired_goal"][row].numpy(), expected, atol=1e-12)
            seen.add(len(chosen))
        obs = env.step(action).obs
    assert seen == {1, 3}
    with pytest.raises(ValueError, match="does not fit desired_goal"):
        env.task.set_feature_dist({"1,2,5,6": 1.0})


def test_humanoids_without_the_heading_take_normalised_goals():
    env = make_skills("humanoid", feature_dist={"2": 1.0}, backproject_goal=False)
    assert env.spec.group("desired_goal").shape == (1,)


def test_normalised_features_and_goals_without_a_turn():
    env = make_skills("humanoidpc", normalize_gs_observation=True, zero_twist_goals=True)
    obs = env.reset(0)
    assert np.allclose(obs["gs_observation"].numpy(), HUMANOID_BODYFEET.project(env.task.memory["features"]))
    assert {part.unit for part in env.spec.group("gs_observation").components} == {""}
    assert (env.task.memory["goal"][:, 3] == 0).all()
    assert (env.task.memory["mask"][:, 3] == 1).all()


def test_relative_heights_are_heights_on_flat_ground():
    plain, relative = make_skills(), make_skills(features="bodyfeet-relz")
    assert all(torch.equal(value, relative.reset(0)[name]) for name, value in plain.reset(0).items())


def test_feet_of_the_humanoid_turn_the_published_way_on_request():
    fixed, original = make_skills("humanoidpc"), make_skills("humanoidpc", compat="original")
    left, right = fixed.reset(0)["gs_observation"], original.reset(0)["gs_observation"]
    assert torch.equal(left[:, :6], right[:, :6])
    assert torch.equal(left[:, 8], right[:, 8])
    assert not torch.allclose(left[:, 6:8], right[:, 6:8], atol=1e-3)
    assert torch.allclose(left[:, 6:8].norm(dim=1), right[:, 6:8].norm(dim=1))


def test_the_discount_of_the_potential_comes_with_the_model():
    env = make_skills(reward="potential2", ctrl_cost=0.0, **FREE)
    env.task.set_model(None, 0.5)
    step = env.step(actions(env, 1)[0])
    assert torch.allclose(step.reward, step.metrics["potential"] + 0.5 * step.metrics["distance"])
    with pytest.raises(ValueError, match="above 0 and up to 1"):
        env.task.set_model(None, 1.5)


def test_goals_weighed_by_a_model():
    asked = []

    def prefers_far_ahead(groups):
        asked.append({name: value.copy() for name, value in groups.items()})
        return np.where(groups["desired_goal"][:, 1] > 2.0, 0.0, 1e9)  # of x; "r" clips it: weights 10 and 1 / 1.1

    def drawn(kind, model):
        env = make_skills(num_envs=32, goal_sampling=kind, feature_dist={"1": 1.0}, task_map={"0": 0, "1": 1}, **FREE)
        env.task.set_model(model, 1.0)
        return env.reset(0)

    obs = drawn("r", prefers_far_ahead)
    # a sixth of the candidates lies there and has a weight 11 times as large: 11 / (11 + 5) = 0.69 are drawn there
    assert float((obs["desired_goal"][:, 1] > 2.0).double().mean()) > 0.5
    plain = drawn("r", None)["desired_goal"][:, 1]
    assert float((plain > 2.0).double().mean()) < 0.4
    shapes = {name: value.shape for name, value in asked[-1].items()}
    rows = 32 * NUM_CANDIDATES
    assert shapes == {"observation": (rows, 59), "desired_goal": (rows, 2), "task": (rows, 2)}
    assert np.array_equal(asked[-1]["observation"][NUM_CANDIDATES], obs["observation"][1].float().numpy())
    assert {tuple(bits) for bits in asked[-1]["task"].tolist()} == {(0.0, 1.0)}
    # the goal that was taken is one of those that were shown
    shown = asked[-1]["desired_goal"].reshape(32, NUM_CANDIDATES, 2)[:, :, 1]
    assert (np.abs(shown - obs["desired_goal"][:, 1:].float().numpy()).min(axis=1) < 1e-6).all()
    for kind in ("r2", "q"):
        assert drawn(kind, lambda groups: np.zeros(len(groups["task"])))["desired_goal"].isfinite().all()
    with pytest.raises(ValueError, match="finite numbers"):
        drawn("q", lambda groups: np.full(len(groups["task"]), np.nan))


def test_the_slack_of_values_counts_controls_and_discounts_the_horizon(monkeypatch):
    seen = []

    def noted(kind, score, distance, cost, decay):
        seen.append((kind, float(cost), float(decay), distance.copy()))
        return np.ones_like(score)

    monkeypatch.setattr(goal_logic, "candidate_weights", noted)
    env = make_skills(goal_sampling="q", feature_dist={"0": 1.0})
    env.task.set_model(lambda groups: groups["desired_goal"][:, 0], 1 - 1 / 72)
    env.reset(0)
    kind, cost, decay, distance = seen[-1]
    assert (kind, round(cost, 6), round(decay, 4)) == ("q", 0.108, 0.3653)  # figures of the published Walker
    chosen = np.abs(distance - env.task.memory["distance"][:, None]).min(axis=1)
    assert distance.shape == (2, NUM_CANDIDATES)
    assert (chosen < 1e-12).all()


def test_a_physics_fault_ends_one_instance_alone():
    env, sound = make_skills(num_envs=3), make_skills(num_envs=3)
    play(env, 3), play(sound, 3)
    env.task.qvel[1, 0] = np.nan
    action = actions(env, 1)[0]
    step, expected = env.step(action), sound.step(action)
    assert step.metrics["physics_error"].tolist() == [0, 1, 0]
    assert step.terminated[1]
    assert float(step.reward[1]) == -1.0
    assert all(value.isfinite().all() for value in (*step.obs.values(), *step.final_obs.values()))
    others = torch.tensor([0, 2])
    assert all(torch.equal(step.obs[name][others], expected.obs[name][others]) for name in step.obs)
    assert play(env, 20)["reward"].isfinite().all()


@pytest.mark.parametrize("allow_fallover", [False, True])
def test_a_physics_fault_is_filed_under_the_goal_it_ended(allow_fallover):
    env = make_skills(num_envs=3, rank_max=5, allow_fallover=allow_fallover)
    play(env, 3)
    memory = env.task.memory
    key, time = float(memory["task_key"][1]), float(memory["time"][1])
    env.task.qvel[1, 0] = np.nan
    found = {name: float(value[1]) for name, value in env.step(actions(env, 1)[0]).metrics.items()}
    assert (key, time) > (0.0, 0.0)  # 0 would be no task, and a start state
    expected = {"task_key": key, "time": time, "last_step_of_task": 1.0, "physics_error": 1.0}
    assert found == dict.fromkeys(found, 0.0) | expected
    assert (memory["time"][1], memory["goals"][1]) == (0, 1)  # the first goal of the next episode


def test_goals_as_episodes():
    options = {"max_steps": 4, "precision": 1e-9, "hard_reset_interval": 3, "resample_features": "soft", **FREE}
    env = make_skills(implicit_soft_resets=False, **options)
    plain = make_skills(**{**options, "hard_reset_interval": 0})
    first, other = env.reset(0), plain.reset(0)
    assert torch.equal(first["desired_goal"], other["desired_goal"])
    target = first["desired_goal"] + first["gs_observation"] * first["task"]
    for number, action in enumerate(actions(env, 12)):
        step, moved = env.step(action), plain.step(action)
        assert torch.equal(step.final_obs["observation"], moved.final_obs["observation"])
        goal_ends, episode_ends = number % 4 == 3, number == 11
        assert bool(step.terminated.all()) == bool(step.terminated.any()) == episode_ends
        assert bool(step.truncated.all()) == bool(step.truncated.any()) == (goal_ends and not episode_ends)
        final = step.final_obs
        assert torch.allclose(final["desired_goal"] + final["gs_observation"] * final["task"], target, atol=1e-9)
        if goal_ends and not episode_ends:
            assert torch.equal(step.obs["observation"], final["observation"])
            assert env.elapsed.tolist() == [0, 0]
        target = step.obs["desired_goal"] + step.obs["gs_observation"] * step.obs["task"]
    play(env, 4)
    assert not env.scenario()["settle"].any()  # the robots stood there when their goals began
    env.reset(1)
    assert env.scenario()["settle"].all()
    assert (env.task.memory["goals"] == 1).all()


def test_what_ends_otherwise_is_not_kept():
    task = make_skills(implicit_soft_resets=False).task
    task._cut[:] = True  # both goals are over, and instance 1 is faulty
    truncated = np.zeros(2, dtype=bool)
    task.truncate(np.array([False, True]), truncated)
    assert truncated.tolist() == task._cut.tolist() == [True, False]
