"""Goal spaces of one's own: checked when they are registered, and proposed from recorded motion."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gaitway.envs.tasks.skills import goal_spaces
from gaitway.envs.tasks.skills.goal_spaces import (
    WALKER_BODYFEET,
    GoalSpace,
    goal_space,
    propose_ranges,
    register_goal_space,
    subsets_task_map,
)


@pytest.fixture(autouse=True)
def _tables(monkeypatch):
    monkeypatch.setattr(goal_spaces, "GOAL_SPACES", dict(goal_spaces.GOAL_SPACES))


def arm(**changed):
    table = {"names": ("x", "lift", "turn"), "low": (-1, 0, -2), "high": (1, 0.5, 2), "delta": (0,), "twist": (2,)}
    return GoalSpace(**{**table, **changed})


def test_a_registered_table_is_found_everywhere():
    space = arm(units=("m", "m", "rad"))
    register_goal_space("reach", "arm", space)
    assert goal_space("reach", "arm") is space
    assert goal_space("reach-relz", "arm") is space
    assert subsets_task_map("reach", "arm", "0#1+2", 1, 2) == (["0", "1+2", "0,1+2"], {"0": 0, "1": 1, "2": 2})
    with pytest.raises(ValueError, match=r"did you mean 'reach of arm'"):
        goal_space("reach", "arn")


@pytest.mark.parametrize(
    ("features", "robot", "changed", "words"),
    [
        ("bodyfeet", "walker", {}, "bodyfeet of walker is there already"),
        ("reach-relz", "arm", {}, "without the ending -relz"),
        ("", "arm", {}, "needs two names"),
        ("reach", "arm", {"names": ("x", "x", "turn")}, r"several features called \['x'\]"),
        ("reach", "arm", {"high": (1, 0, 2)}, r"empty range for \['lift'\]; use low < high, or name them"),
        ("reach", "arm", {"low": (-1, 0, -4), "high": (1, 0.5, 4)}, r"goals for \['turn'\] beyond half a turn"),
    ],
)
def test_mistakes_are_named_at_registration(features, robot, changed, words):
    before = dict(goal_spaces.GOAL_SPACES)
    with pytest.raises(ValueError, match=words):
        register_goal_space(features, robot, arm(**changed))
    assert before == goal_spaces.GOAL_SPACES


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"low": (-1, 0)}, "3 features need as many ranges"),
        ({"low": (-1, 0, -2, 0), "high": (1, 1, 2, 1)}, "3 features need as many ranges"),
        ({"high": (1, -0.5, 2)}, "low <= high"),
        ({"high": (2, 0.5, 2)}, "delta feature x is .* symmetric about 0"),
        ({"low": (-1, 0, -1)}, "twist feature turn is .* symmetric about 0"),
        ({"low": (-1, math.nan, -2)}, "use finite numbers"),
        ({"high": (math.inf, 0.5, 2), "low": (-math.inf, 0, -2)}, "use finite numbers"),
        ({"delta": (3,)}, "delta feature 3 does not exist"),
        ({"twist": (-1,)}, "twist feature -1 does not exist"),
        ({"delta": ("x",)}, "delta feature x does not exist"),
        ({"low": ("a", 0, -2)}, "use a number per feature"),
        ({"units": ("m",)}, "3 features need as many units"),
    ],
)
def test_mistakes_are_named_when_a_table_is_made(changed, words):
    with pytest.raises(ValueError, match=words):
        arm(**changed)


def test_features_without_goals_are_named():
    still = arm(high=(1, 0, 2))
    register_goal_space("reach", "arm", still, uncontrollable=(1,))
    assert not goal_space("reach", "arm").is_controllable(1)
    with pytest.raises(ValueError, match=r"has no features \[7\]"):
        register_goal_space("grasp", "arm", arm(), uncontrollable=(7,))
    with pytest.raises(ValueError, match="no feature with a range"):
        register_goal_space("rest", "arm", GoalSpace(("x",), (1,), (1,)), uncontrollable=(0,))
    with pytest.raises(TypeError, match="is a dict; pass a GoalSpace"):
        register_goal_space("grasp", "arm", {"names": ("x",)})


def test_ranges_proposed_from_motion():
    # 0, 1, ..., 100: the 5 and 95 % quantiles are 5 and 95
    ramp = np.arange(101.0)
    recorded = np.stack([ramp, -ramp, ramp - 20.0, np.full(101, 3.0)], axis=1)
    low, high = propose_ranges(recorded)
    assert low == pytest.approx([5, -95, -15, 3])
    assert high == pytest.approx([95, -5, 75, 3])
    low, high = propose_ranges(recorded, 0.1, 0.9, symmetric=(1, 2))
    assert low == pytest.approx([10, -90, -70, 3])
    assert high == pytest.approx([90, 90, 70, 3])
    GoalSpace("abcd", low, high, delta=(1,), twist=(2,))  # symmetric to the last digit


def test_ranges_of_random_motion_are_those_it_was_drawn_from():
    generator = np.random.default_rng(0)
    recorded = generator.uniform(WALKER_BODYFEET.low, WALKER_BODYFEET.high, (20_000, 7))
    low, high = propose_ranges(recorded, symmetric=(1,))
    width = WALKER_BODYFEET.high - WALKER_BODYFEET.low
    assert np.abs(low - WALKER_BODYFEET.low - 0.05 * width).max() < 0.02 * width.max()
    assert np.abs(high - WALKER_BODYFEET.high + 0.05 * width).max() < 0.02 * width.max()
    assert low[1] == -high[1]


@pytest.mark.parametrize(
    ("features", "options", "words"),
    [
        (np.zeros(3), {}, r"\[N, n\]"),
        (np.zeros((0, 3)), {}, r"\[N, n\]"),
        (np.array([[0.0, 1.0], [0.0, math.nan]]), {}, "recorded feature 1 of row 1 is nan"),
        (np.zeros((4, 2)), {"low": 0.9, "high": 0.1}, "0 <= low < high <= 1"),
        (np.zeros((4, 2)), {"low": -0.1}, "0 <= low < high <= 1"),
        (np.zeros((4, 2)), {"low": math.nan}, "0 <= low < high <= 1"),
        (np.zeros((4, 2)), {"symmetric": (2,)}, r"no features \[2\]"),
    ],
)
def test_what_cannot_be_proposed_from_is_named(features, options, words):
    with pytest.raises(ValueError, match=words):
        propose_ranges(features, **options)
