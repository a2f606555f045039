"""Goals on arrays alone: every rule by hand, without a simulator, and twins that break one rule each."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from skill_cases import make_skills, play

from gaitway.envs.tasks.skills import goal_spaces
from gaitway.envs.tasks.skills.goal_logic import METRICS, GoalLogic
from gaitway.envs.tasks.skills.goal_spaces import HUMANOID_BODYFEET, WALKER_BODYFEET, GoalSpace, register_goal_space
from gaitway.envs.tasks.skills.options import HumanoidSkillConfig, SkillConfig, WalkerSkillConfig

TABLES = {"walker": (WALKER_BODYFEET, WalkerSkillConfig), "humanoid": (HUMANOID_BODYFEET, HumanoidSkillConfig)}
STANDING = {"walker": np.array([1.225, 0.0, 0.0, 0.0, -1.0, 0.0, -1.0]), "humanoid": np.zeros(12)}


class Arrays:
    """Robots without bodies: features go where they are put. Rows that end are placed anew, as an owner must do."""

    def __init__(
        self, robot: str = "walker", num: int = 2, seed: int = 0, kind: type[GoalLogic] = GoalLogic, **options: Any
    ) -> None:
        space, config = TABLES[robot]
        self.logic = kind(robot, config(**options), space, 6)
        self.home, self.num = STANDING[robot], num
        self.seeds = np.random.default_rng(seed).integers(2**53, size=num).astype(np.float64)
        self.memory: dict[str, np.ndarray] = {}
        self.logic.attach(self.memory, self.seeds, lambda rows: np.zeros((len(rows), 3), np.float32))
        self.features = self.memory["features"]
        self.reset()

    def reset(self) -> None:
        self.logic.before_reset()
        self.place(np.arange(self.num))

    def place(self, rows: np.ndarray) -> None:
        self.features[rows] = self.home
        self.logic.forget_goals(rows)
        self.logic.next_goals(rows)

    def goal(self, task: str, **features: float) -> None:
        """Let all pursue the point with these features, f0=1.2 for example."""
        point = self.home.copy()
        for name, value in features.items():
            point[int(name[1:])] = value
        keys = np.full(self.num, self.logic.tasks.key_of(task))
        self.logic.place_goals(np.arange(self.num), keys, np.tile(self.logic.space.project(point), (self.num, 1)))

    def seen(self) -> dict[str, np.ndarray]:
        places, size = len(self.logic.tasks.members), self.logic.space.size
        sizes = {"desired_goal": self.logic.goal_width, "task": places, "gs_observation": size}
        out = {name: np.zeros((self.num, width)) for name, width in sizes.items()}
        self.logic.observe(slice(None), out)
        return out

    def step(self, moved: Any = 0.0, action: Any = 0.0, fallen: Any = False) -> dict[str, np.ndarray]:
        """Features move by `moved`; returns the metrics, reward and flags."""
        self.features += moved
        result = {name: np.zeros(self.num) for name in (*METRICS, "reward")}
        terminated = np.zeros(self.num, dtype=bool)
        cut = self.logic.outcome(
            np.broadcast_to(action, (self.num, 6)),
            np.broadcast_to(fallen, self.num).copy(),
            result["reward"],
            terminated,
            result,
        )
        if terminated.any():
            self.seeds[terminated] = (self.seeds[terminated] + 1) % 2**53
            self.place(np.flatnonzero(terminated))
        return {**result, "terminated": terminated, "cut": cut}


def test_nothing_here_needs_a_simulator():
    code = "import sys, gaitway.envs.tasks.skills.facts; sys.exit('mujoco' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_distance_and_potential_by_hand():
    robots = Arrays(ctrl_cost=0.01)
    robots.goal("0,2", f0=1.225 + 0.275 * 0.3, f2=1.3 * 0.4)  # 0.3 and 0.4 away in normalised units: 0.5
    assert robots.memory["start_distance"] == pytest.approx([0.5, 0.5], abs=1e-6)
    moved = np.zeros((2, 7))
    moved[0, 0] = 0.275 * 0.3  # the height is reached, the pitch is left
    moved[1, 1] = 2.0  # x does not count
    step = robots.step(moved, action=0.5)
    assert step["distance"] == pytest.approx([0.4, 0.5], abs=1e-6)
    assert step["potential"] == pytest.approx([0.1, 0.0], abs=1e-6)
    assert step["reward"] == pytest.approx([0.1 - 0.01 * 6 * 0.25, -0.01 * 6 * 0.25], abs=1e-6)
    assert not step["reached_goal"].any()


def test_reached_is_strictly_below_the_precision():
    robots = Arrays(num=3, precision=0.25, ctrl_cost=0.0)
    robots.goal("2", f2=0.0)
    # exactly 0.25, a bit less, far: the pitch has psi = 2 / (2.6 + 1e-7)
    robots.features[:, 2] = np.array([0.25, 0.2499, 0.9]) * (2.6 + 1e-7) / 2
    step = robots.step()
    assert step["reached_goal"].tolist() == [0, 1, 0]
    assert step["last_step_of_task"].tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("potential", 0.2),
        ("potential2", 0.35),
        ("potential3", 0.35),
        ("potential4", 0.4),
        ("distance", -0.3),
        ("sparse", 0),
    ],
)
def test_rewards_by_hand(kind, expected):
    # d = d0 = 0.5, d' = 0.3, gamma = 0.5: 0.5 - 0.15 = 0.35, 0.2 / 0.5 = 0.4
    robots = Arrays(reward=kind, ctrl_cost=0.0)
    robots.logic.set_model(None, 0.5)
    robots.goal("1", f1=1.5)
    moved = np.zeros((2, 7))
    moved[:, 1] = 0.6
    assert robots.step(moved)["reward"] == pytest.approx([expected] * 2, abs=1e-6)


def test_the_bonus_of_potential3():
    robots = Arrays(reward="potential3", ctrl_cost=0.0)
    robots.goal("1", f1=1.5)
    moved = np.zeros((2, 7))
    moved[0, 1] = 1.5
    assert robots.step(moved)["reward"] == pytest.approx([1.5, 0.0], abs=1e-6)


class Unwrapped(GoalLogic):
    """Angles that do not wrap."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.space = GoalSpace(self.space.names, self.space.low, self.space.high, self.space.delta)


def test_headings_take_the_short_way():
    def left(kind: type[GoalLogic]) -> tuple[float, float]:
        robots = Arrays("humanoid", kind=kind)
        robots.features[:, 3] = 3.0
        robots.goal("3", f3=-3.0)
        return float(robots.seen()["desired_goal"][0, 2]), float(robots.memory["distance"][0])

    assert left(GoalLogic) == pytest.approx((2 * math.pi - 6.0, (2 * math.pi - 6.0) * 2 / 3.14), abs=1e-6)  # +0.283
    assert left(Unwrapped)[0] == pytest.approx(-6.0)


class Undisplaced(GoalLogic):
    """Goals for x that count from the origin of the world."""

    def _goals(self, uniform, projected):
        return super()._goals(uniform, np.zeros_like(projected))


def first_goals(start: float, kind: type[GoalLogic] = GoalLogic) -> np.ndarray:
    """How far x is to go in the goals of robots that stand at x = start, [8 goals, B]."""
    robots = Arrays(feature_dist={"1": 1.0}, max_steps=1, precision=1e-9, kind=kind)
    robots.home = robots.home + np.eye(7)[1] * start
    robots.reset()
    goals = []
    for _ in range(8):
        goals.append(robots.seen()["desired_goal"][:, 0])
        robots.step()
    return np.array(goals)


def test_delta_goals_count_from_where_the_robot_is():
    near, far = first_goals(0.0), first_goals(40.0)
    assert np.abs(near - far).max() < 1e-9
    assert near.std() > 0.5
    assert np.abs(near).max() <= 3.0
    assert np.abs(first_goals(0.0, Undisplaced) - first_goals(40.0, Undisplaced)).min() > 39


def test_a_delta_goal_stays_where_it_is_while_the_robot_moves():
    robots = Arrays(feature_dist={"1": 1.0}, precision=1e-9)
    left = robots.seen()["desired_goal"].copy()
    moved = np.zeros((2, 7))
    moved[:, 1] = 0.25
    for count in range(1, 5):
        robots.step(moved)
        assert robots.seen()["desired_goal"] == pytest.approx(left - 0.25 * count)


def test_rewards_telescope_over_a_goal():
    generator = np.random.default_rng(3)
    robots = Arrays(feature_dist="0#1#3+4", rank_max=3, max_steps=9, ctrl_cost=0.0, precision=0.3, num=4)
    totals, starts, goals = np.zeros(4), robots.memory["start_distance"].copy(), 0
    for _ in range(60):
        step = robots.step(generator.normal(0, 0.05, (4, 7)))
        totals += step["reward"]
        for row in np.flatnonzero(step["last_step_of_task"]):
            assert totals[row] == pytest.approx(starts[row] - step["distance"][row], abs=1e-12)
            totals[row], starts[row] = 0.0, robots.memory["start_distance"][row]
            goals += 1
    assert goals > 24


def test_time_starts_anew_with_every_goal():
    robots = Arrays(max_steps=3, precision=1e-9)
    times = [robots.step()["time"].tolist() for _ in range(7)]
    assert times == [[t, t] for t in (0, 1, 2, 0, 1, 2, 0)]
    robots = Arrays(max_steps=50, precision=1e3)  # reached at once
    assert [robots.step()["time"][0] for _ in range(4)] == [0, 0, 0, 0]


@pytest.mark.parametrize("interval", [1, 7, 100])
def test_exactly_so_many_goals_per_hard_reset(interval):
    robots = Arrays(max_steps=2, precision=1e-9, hard_reset_interval=interval)
    ends = [step for step in range(1, 4 * interval + 1) if robots.step()["terminated"].all()]
    assert ends == [2 * interval, 4 * interval]


def test_a_fall_ends_goal_and_episode_and_replaces_the_reward():
    robots = Arrays(fallover_penalty=-3.0, precision=1e3, ctrl_cost=1.0)  # reached, if it had not fallen
    step = robots.step(action=1.0, fallen=[True, False])
    assert (step["reward"][0], step["reached_goal"].tolist(), step["fell"].tolist()) == (-3.0, [0, 1], [1, 0])
    assert (step["terminated"].tolist(), step["soft_reset"].tolist()) == ([True, False], [0, 1])
    assert robots.memory["goals"].tolist() == [1, 2]
    robots = Arrays(allow_fallover=True, precision=1e-9)
    step = robots.step(fallen=True)
    assert not step["fell"].any()
    assert not step["terminated"].any()


def test_without_implicit_soft_resets_the_owner_is_told():
    robots = Arrays(implicit_soft_resets=False, max_steps=2, precision=1e-9, hard_reset_interval=2)
    before = robots.memory["goal"].copy()
    assert not robots.step()["cut"].any()
    assert robots.step()["cut"].all()
    assert np.array_equal(robots.memory["goal"], before)  # the old goal is still seen
    robots.logic.next_goals(np.arange(2))
    robots.step()
    step = robots.step()
    assert not step["cut"].any()
    assert step["terminated"].all()


def test_tasks_are_drawn_by_their_weights():
    weights = {"0": 1.0, "1,2": 2.0, "3+4": 3.0, "0,3+4,5+6": 4.0}
    robots = Arrays(num=64, feature_dist=weights, max_steps=1, precision=1e-9)
    keys = np.concatenate([robots.step()["task_key"] for _ in range(150)])
    found = np.array([(keys == robots.logic.tasks.key_of(subset)).sum() for subset in weights], dtype=float)
    assert found.sum() == len(keys) == 9600
    expected = np.array(list(weights.values())) / 10 * len(keys)
    assert ((found - expected) ** 2 / expected).sum() < 16.27  # 3 degrees of freedom, p = 0.001
    even = np.full(4, len(keys) / 4)
    assert ((found - even) ** 2 / even).sum() > 1000


def test_given_up_goals():
    robots = Arrays(num=256, reset_p=0.25, max_steps=30, precision=1e-9, hard_reset_interval=0)
    run = [robots.step() for _ in range(20)]
    rate = np.mean([step["random_reset"] for step in run])
    assert abs(rate - 0.25) < 4 * (0.1875 / 5120) ** 0.5
    assert all(np.array_equal(step["random_reset"], step["last_step_of_task"]) for step in run)


def test_what_is_no_distribution_is_refused_and_changes_nothing():
    robots = Arrays()
    before = {name: array.copy() for name, array in robots.memory.items()}
    for wrong, words in [
        (["0"], "mapping"),
        ({}, "positive weight"),
        ({"x": 1.0}, "no subset"),
        ({"0": -1}, "at least 0"),
    ]:
        with pytest.raises(ValueError, match=words):
            robots.logic.set_feature_dist(wrong)
    assert all(np.array_equal(before[name], robots.memory[name]) for name in before)
    robots.logic.set_feature_dist({1: 1.0, 0: 2.0})  # numbers, as YAML gives them
    assert robots.memory["task_order"][:3].tolist() == [2, 1, 0]


# plans of trials


def plan_of(kinds: list[int], per_kind: int) -> list[int]:
    plan = np.repeat(kinds, per_kind)
    np.random.Generator(np.random.Philox(0)).shuffle(plan)
    return plan.tolist()


def keys_played(robots: Arrays, goals: int) -> list[list[int]]:
    """Tasks of the next goals of each instance; every goal takes one step."""
    run = np.array([robots.step()["task_key"] for _ in range(goals)], dtype=int)
    return run.T.tolist()


QUICK = {"max_steps": 1, "precision": 1e-9, "hard_reset_interval": 4, "allow_fallover": False}


def test_a_plan_gives_every_task_so_many_goals():
    robots = Arrays(num=4, feature_dist={"3+4": 1.0, "0": 5.0, "1": 0.0, "0,2": 1.0}, **QUICK)
    named = robots.logic.plan_trials(5)
    keys = {name: robots.logic.tasks.key_of(name) for name in ("3+4", "0", "0,2")}
    assert named == {keys["3+4"]: "3+4", keys["0"]: "0", keys["0,2"]: "0,2"}
    assert list(named.values()) == ["3+4", "0", "0,2"]  # as listed; what weighs nothing is not tried
    robots.reset()
    plan = plan_of(list(named), 5)
    played = keys_played(robots, 6)  # 15 trials on 4 instances: 4, 4, 4, 3, also across the hard resets after 4 goals
    assert [row[:4] for row in played[:3]] == [plan[:4], plan[4:8], plan[8:12]]
    assert played[3][:3] == plan[12:]
    assert sorted(plan) == sorted(list(named) * 5)


def test_a_plan_begins_with_the_next_reset_and_anew_with_every_one():
    robots, free = (Arrays(num=3, rank_max=5, **QUICK) for _ in range(2))
    named = robots.logic.plan_trials(2)
    assert len(named) == 31
    assert keys_played(robots, 5) == keys_played(free, 5)  # nothing changes before the reset
    plan = plan_of(list(named), 2)
    for _ in range(2):
        robots.reset()
        first, second, third = keys_played(robots, 21)
        assert (first, second, third[:20]) == (plan[:21], plan[21:42], plan[42:])  # the last slice is one shorter
    robots.logic.plan_trials(0)
    robots.reset()
    assert robots.memory["plan_place"].tolist() == [-1] * 3
    assert keys_played(robots, 21)[0] != plan[:21]


def test_falls_go_on_in_the_plan():
    robots = Arrays(num=2, **{**QUICK, "max_steps": 50})
    named = robots.logic.plan_trials(4)
    robots.reset()
    played = np.array([robots.step(fallen=True)["task_key"] for _ in range(10)], dtype=int)
    assert played.T.tolist() == np.reshape(plan_of(list(named), 4), (2, 10)).tolist()


def test_more_instances_than_trials():
    robots = Arrays(num=8, feature_dist={"0": 1.0, "1": 1.0}, **QUICK)
    named = robots.logic.plan_trials(2)
    robots.reset()
    assert [row[0] for row in keys_played(robots, 1)[:4]] == plan_of(list(named), 2)
    assert robots.memory["plan_place"].tolist() == [1, 1, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("rule", ["hard", "soft3"])
def test_a_plan_gives_every_goal_its_own_task(rule):
    robots = Arrays(num=1, resample_features=rule, **{**QUICK, "hard_reset_interval": 100})
    named = robots.logic.plan_trials(3)
    robots.reset()
    assert keys_played(robots, 15) == [plan_of(list(named), 3)]


@pytest.mark.parametrize("wrong", [-1, 2.0, True, "5", None, 10**9])
def test_what_is_no_number_of_trials_is_refused(wrong):
    robots = Arrays()
    with pytest.raises(ValueError, match=r"per_kind is .* use an integer from 0"):
        robots.logic.plan_trials(wrong)
    assert not robots.memory["plan_per_kind"].any()


def test_goals_of_a_plan_are_those_that_would_be_drawn():
    planned, free = (Arrays(num=2, feature_dist={"0": 1.0}, **QUICK) for _ in range(2))
    planned.logic.plan_trials(20)
    planned.reset()
    free.reset()
    for _ in range(8):
        assert np.array_equal(planned.seen()["desired_goal"], free.seen()["desired_goal"])
        planned.step(), free.step()


def test_a_plan_on_a_robot_goes_on_from_a_stored_state():
    options = {"max_steps": 3, "rank_max": 2, "hard_reset_interval": 5}
    env, other = make_skills(num_envs=3, seed=1, **options), make_skills(num_envs=3, seed=2, **options)
    env.call("set_feature_dist", {"5+6": 1.0, "0,3+4": 2.0, "1": 0.0, "2": 1.0})
    named = env.call("plan_trials", 7)
    assert list(named.values()) == ["5+6", "0,3+4", "2"]
    env.reset(seed=4)
    trials = dict(env.spec.facts["trials"])
    kinds = trials.pop("kinds")
    assert trials == {"ends": "last_step_of_task", "kind": "task_key", "outcome": "reached_goal"}
    assert len(kinds) == 31
    assert kinds["25"] == "0,3+4"  # bits 0, 3 and 4
    first = play(env, 10)
    state = env.state_dict()
    expected = play(env, 40)
    other.load_state_dict(state)
    resumed = play(other, 40)
    assert all(torch.equal(value, resumed[name]) for name, value in expected.items())
    assert other.call("plan_trials", 7) == named  # the order of the tasks is part of the state
    plan = plan_of(list(named), 7)
    for row in range(3):
        run = {name: torch.cat([first[name], expected[name]])[:, row] for name in ("task_key", "last_step_of_task")}
        played = run["task_key"][run["last_step_of_task"] > 0].int().tolist()
        assert len(played) > 7
        assert played[:7] == plan[7 * row : 7 * row + 7]


def test_a_scenario_does_not_begin_the_plan():
    env = make_skills(num_envs=2)
    env.call("plan_trials", 3)
    env.load_scenario(env.scenario())
    assert env.task.memory["plan_place"].tolist() == [-1, -1]
    env.reset()
    assert env.task.memory["plan_place"].tolist() == [1, 1]


@pytest.mark.parametrize("size", [31, 64])
def test_guided_goals_share_no_draw_with_the_next_ones(size, monkeypatch):
    monkeypatch.setattr(goal_spaces, "GOAL_SPACES", dict(goal_spaces.GOAL_SPACES))
    space = GoalSpace(tuple(f"f{number}" for number in range(size)), (-1.0,) * size, (1.0,) * size)
    register_goal_space("many", "mine", space)
    logic = GoalLogic("mine", SkillConfig(features="many", feature_dist="0#1", goal_sampling="r"), space, 2)
    logic.attach({}, np.array([5.0]), lambda rows: np.zeros((len(rows), 1), np.float32))
    logic.set_model(lambda groups: np.ones(len(groups["task"])), 0.9)
    drawn, guided = [], logic._guided

    def noted(rows, uniform, *rest):
        drawn.append(set(uniform[0].tolist()))
        return guided(rows, uniform, *rest)

    monkeypatch.setattr(logic, "_guided", noted)
    for _ in range(2):
        logic.next_goals(np.array([0]))
    first, second = drawn
    assert len(first) == len(second) == 128 * size + 1
    assert not first & second
