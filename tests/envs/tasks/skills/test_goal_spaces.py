"""Projections by hand, and the grammar of subsets with the counts of the published presets."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from gaitway.envs.tasks.skills import goal_spaces
from gaitway.envs.tasks.skills.goal_spaces import (
    GoalSpace,
    flatten_subset,
    goal_space,
    parse_groups,
    rank,
    subset_features,
    subsets_task_map,
    task_bits,
    wrap,
)

WALKER = goal_space("bodyfeet", "walker")
HUMANOID = goal_space("bodyfeet", "humanoidpc")


def test_tables() -> None:
    np.testing.assert_allclose(
        np.diag(WALKER.psi), [3.63636, 0.33333, 0.76923, 1.16959, 1.53846, 1.16959, 1.53846], atol=1e-5
    )
    np.testing.assert_allclose(WALKER.offset, [-4.45454, 0, 0, -0.15789, 1, -0.15789, 1], atol=1e-5)
    np.testing.assert_allclose(
        np.diag(HUMANOID.psi),
        [0.33333, 0.33333, 3.63636, 0.63694, 0.63694, 2, 1, 1, 1.66667, 1, 1, 1.66667],
        atol=1e-5,
    )
    np.testing.assert_allclose(HUMANOID.offset, [0, 0, -4.45454, 0, 0, 0, 0, 0, 0.66667, 0, 0, 0.66667], atol=1e-5)
    assert (WALKER.delta, WALKER.twist) == ([1], [])
    assert (HUMANOID.delta, HUMANOID.twist) == ([0, 1], [3])
    assert HUMANOID.half_turn == pytest.approx([2.00101], abs=1e-5)
    assert goal_space("bodyfeet-relz", "walker") is WALKER
    assert goal_space("bodyfeet", "humanoid") is HUMANOID


def test_names_are_those_of_the_features() -> None:
    from gaitway.envs.robots import world
    from gaitway.envs.robots.registry import get_robot
    from gaitway.envs.robots.robot import RobotView
    from gaitway.envs.tasks.bisk.features import make_features

    for (features, name), space in goal_spaces.GOAL_SPACES.items():
        if name == "point":  # the toy robot is no model
            continue
        robot = get_robot(name)
        assert make_features(features, RobotView(robot, world.flat_model(robot))).names == space.names


@pytest.mark.parametrize("space", [WALKER, HUMANOID], ids=["walker", "humanoid"])
def test_projection_and_back(space) -> None:
    goal = np.random.default_rng(0).uniform(-1, 1, (5, space.size))
    np.testing.assert_allclose(space.project(space.back_project(goal)), goal, atol=1e-12)
    np.testing.assert_allclose(space.project(space.low), -1, atol=1e-6)
    np.testing.assert_allclose(space.project(space.high), 1, atol=1e-6)
    np.testing.assert_allclose(space.offset1, (space.low + space.high) / 2, atol=1e-6)
    members = [4, 0, 2]
    np.testing.assert_array_equal(space.project(goal, members), space.project(goal)[:, members])
    target = space.back_project(goal[:, :3], members)
    assert target.shape == (5, space.size)
    np.testing.assert_allclose(space.project(target, members), goal[:, :3], atol=1e-12)
    rest = [index for index in range(space.size) if index not in members]
    np.testing.assert_array_equal(target[:, rest], np.tile(space.offset1[rest], (5, 1)))


def test_walker_height_by_hand() -> None:
    features = np.array([1.225, 0.6, 0.13, 0, 0, 0, 0])
    np.testing.assert_allclose(WALKER.project(features)[:3], [0.0, 0.2, 0.1], atol=1e-6)
    # the success radius of 0.1 in units
    step = WALKER.back_project(np.full(7, 0.1)) - WALKER.offset1
    np.testing.assert_allclose(step, [0.0275, 0.3, 0.13, 0.0855, 0.065, 0.0855, 0.065], atol=1e-6)


def test_a_full_matrix_projects_like_a_matrix() -> None:
    generator = np.random.default_rng(1)
    psi, offset = generator.standard_normal((4, 4)), generator.standard_normal(4)
    space = GoalSpace("abcd", [-1] * 4, [1] * 4, delta=[1], psi=psi, offset=offset)
    features = generator.standard_normal((3, 4))
    np.testing.assert_allclose(space.project(features), features @ psi.T + offset, atol=1e-12)
    np.testing.assert_allclose(space.project(features, [2, 0]), (features @ psi.T + offset)[:, [2, 0]], atol=1e-12)
    goal = generator.uniform(-1, 1, (3, 4))
    np.testing.assert_allclose(space.project(space.back_project(goal)), goal, atol=1e-9)
    inverse = np.linalg.inv(psi).T
    np.testing.assert_allclose(
        space.back_project(goal[:, :2], [3, 1]), goal[:, :2] @ inverse[[3, 1]] - offset @ inverse
    )
    diagonal = GoalSpace("ab", [-1, 0], [1, 1])
    written_out = GoalSpace("ab", [-1, 0], [1, 1], psi=diagonal.psi, offset=diagonal.offset)
    np.testing.assert_array_equal(diagonal.project(features[:, :2]), written_out.project(features[:, :2]))


def test_rows_do_not_depend_on_their_number() -> None:
    features = np.random.default_rng(2).standard_normal((7, 12))
    mixed = GoalSpace("a" * 12, [-1] * 12, [1] * 12, psi=np.random.default_rng(3).standard_normal((12, 12)))
    for space in (HUMANOID, mixed):
        np.testing.assert_array_equal(space.project(features)[3], space.project(features[3]))
        np.testing.assert_array_equal(space.back_project(features)[3], space.back_project(features[3]))


def test_a_delta_goal_does_not_depend_on_where_the_robot_starts() -> None:
    drawn = np.array([0.3, 0.5, 0, 0, 0, 0, 0])
    for start in (0.0, 40.0, -7.0):
        features = np.array([1.2, start, 0, 0, 0, 0, 0])
        goal = WALKER.absolute(drawn, WALKER.project(features))
        left = WALKER.feature_difference(WALKER.back_project(goal), features)
        assert left[1] == pytest.approx(1.5, abs=1e-6)  # half of 3 m
        assert left[0] == pytest.approx(1.225 + 0.3 * 0.275 - 1.2, abs=1e-6)
        moved = features + np.array([0.01, 0.4, 0, 0, 0, 0, 0])
        after = WALKER.feature_difference(WALKER.back_project(goal), moved)
        np.testing.assert_allclose(left[:2] - after[:2], [0.01, 0.4])
    assert drawn[1] == 0.5  # the drawn goal stays


def test_twists_wrap() -> None:
    features, target = np.zeros(12), np.zeros(12)
    features[3], target[3] = 3.0, -3.0
    features[4], target[4] = 3.0, -3.0  # swings do not wrap
    difference = HUMANOID.feature_difference(target, features)
    assert difference[3] == pytest.approx(2 * math.pi - 6.0)
    assert difference[3] == pytest.approx(0.283, abs=1e-3)
    assert difference[4] == -6
    projected = HUMANOID.goal_difference(HUMANOID.project(target), HUMANOID.project(features))
    assert projected[3] == pytest.approx(0.283 * 0.63694, abs=1e-3)
    assert projected[4] == pytest.approx(-6 * 0.63694, abs=1e-3)
    batch = HUMANOID.feature_difference(np.tile(target, (2, 1)), np.tile(features, (2, 1)))
    np.testing.assert_array_equal(batch, [difference, difference])
    np.testing.assert_allclose(
        wrap(np.array([math.pi, -math.pi, 7.0, 0.5]), math.pi), [-math.pi, -math.pi, 7 - 2 * math.pi, 0.5]
    )


def test_ranges_are_checked() -> None:
    with pytest.raises(ValueError, match=r"delta feature x is .* symmetric"):
        GoalSpace(["x"], [-1.0], [2.0], delta=[0])
    with pytest.raises(ValueError, match=r"twist feature x is .* symmetric"):
        GoalSpace(["x"], [0.0], [2.0], twist=[0])
    with pytest.raises(ValueError, match="delta feature 3 does not exist"):
        GoalSpace(["x"], [-1.0], [1.0], delta=[3])
    with pytest.raises(ValueError, match="low <= high"):
        GoalSpace(["x"], [1.0], [-1.0])
    with pytest.raises(ValueError, match="as many ranges"):
        GoalSpace(["x", "y"], [1.0], [2.0])
    with pytest.raises(ValueError, match="keep its row diagonal"):
        GoalSpace("ab", [-1, -1], [1, 1], twist=[0], psi=np.ones((2, 2)) + np.eye(2))
    with pytest.raises(ValueError, match=r"2 features take \(2, 2\)"):
        GoalSpace("ab", [-1, -1], [1, 1], psi=np.eye(3))
    with pytest.raises(ValueError, match="psi cannot be inverted"):
        GoalSpace("ab", [-1, -1], [1, 1], psi=np.ones((2, 2)))


def test_controllability() -> None:
    space = GoalSpace(["a", "b"], [0.0, 1.0], [1.0, 1.0])
    assert space.is_controllable(0)
    assert not space.is_controllable(1)  # its range is a point
    assert not space.is_controllable(2)  # it does not exist
    with pytest.raises(ValueError, match="negative"):
        space.is_controllable(-1)


def test_walker_preset() -> None:
    subsets, task_map = subsets_task_map("bodyfeet", "walker", "0#1#2#3+4#5+6", 1, 5)
    assert len(subsets) == 31
    assert [sum(rank(subset) == wanted for subset in subsets) for wanted in range(1, 6)] == [5, 10, 10, 5, 1]
    assert subsets[:7] == ["0", "1", "2", "3+4", "5+6", "0,1", "0,2"]
    assert subsets[-1] == "0,1,2,3+4,5+6"
    assert task_map == {str(index): index for index in range(7)}


def test_humanoid_preset() -> None:
    subsets, task_map = subsets_task_map("bodyfeet", "humanoidpc", "0+3#2+3#3+4#3+6+7+8#3+9+10+11", 1, 5)
    assert len(subsets) == 31
    assert task_map == {"0": 0, "2": 1, "3": 2, "4": 3, "6": 4, "7": 5, "8": 6, "9": 7, "10": 8, "11": 9}
    assert subsets[5] == "0+3,2+3"
    assert flatten_subset(subsets[5]) == "0,3,2"
    assert subset_features(subsets[5]) == (0, 3, 2)
    np.testing.assert_array_equal(task_bits(subsets[5], task_map), [1, 1, 1, 0, 0, 0, 0, 0, 0, 0])


def test_one_group_with_everything() -> None:
    assert subsets_task_map("bodyfeet", "walker", "0-1-2-3+4-5+6", 1, 1)[0] == ["0+1+2+3+4+5+6"]
    spec = "0-3-2-3-3-4-3-6-7-8-3-9-10-11"  # repeated members stay until flattened
    subsets, task_map = subsets_task_map("bodyfeet", "humanoid", spec)
    assert subsets == ["0+2+3+3+3+3+3+4+6+7+8+9+10+11"]
    assert flatten_subset(subsets[0]) == "0,2,3,4,6,7,8,9,10,11"
    assert len(task_map) == 10


def test_words_numbers_and_expressions() -> None:
    assert subsets_task_map("bodyfeet", "walker", "all")[0] == [str(index) for index in range(7)]
    assert subsets_task_map("bodyfeet", "walker", "torso")[0] == ["0", "1", "2"]
    assert subsets_task_map("bodyfeet", "humanoid", "torso")[0] == ["0", "1", "2", "3", "4", "5"]
    assert subsets_task_map("bodyfeet", "walker", 1, 1, 1) == (["1"], {"1": 0})
    assert subsets_task_map("bodyfeet", "walker", "2#4+3") == (["2", "3+4"], {"2": 0, "3": 1, "4": 2})
    assert subsets_task_map("bodyfeet", "walker", "left_.*|rootx", 1, 1)[0] == ["1", "3", "4"]
    assert subsets_task_map("bodyfeet", "walker", ".*foot:pz")[0] == ["4", "6"]
    assert parse_groups("foot", WALKER.names) == []  # expressions match from the start of a name
    assert parse_groups("0#left_foot", WALKER.names) == []  # one piece of text makes all of it an expression


def test_what_cannot_be_controlled_is_dropped_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"\['3\+9', '12'\] .* left out"):
        subsets, task_map = subsets_task_map("bodyfeet", "walker", "0#9+3#12#1", 1, 2)
    assert subsets == ["0", "1", "0,1"]
    assert task_map == {"0": 0, "1": 1}
    with pytest.raises(ValueError, match="does not control; features 0 to 6"):
        subsets_task_map("bodyfeet", "walker", "0#9", 1, 1, allow_drop=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        subsets_task_map("bodyfeet", "walker", "0#1", 1, 2)


def test_too_few_groups() -> None:
    with pytest.raises(ValueError, match=r"gives 2 groups .* fewer than the 3"):
        subsets_task_map("bodyfeet", "walker", "0#1", 3, 3)
    with pytest.raises(ValueError, match=r"gives 0 groups .* 'rootz:p'"):
        subsets_task_map("bodyfeet", "walker", "wheel")
    assert subsets_task_map("bodyfeet", "walker", "0#1", 1, 9)[0] == ["0", "1", "0,1"]


def test_other_errors() -> None:
    with pytest.raises(ValueError, match="ranks are 3 to 2"):
        subsets_task_map("bodyfeet", "walker", "all", 3, 2)
    with pytest.raises(ValueError, match=r"neither groups of features .* nor a regular expression"):
        subsets_task_map("bodyfeet", "walker", "left(")
    with pytest.raises(ValueError, match=r"no goal space bodyfeet of Walker .*did you mean 'bodyfeet of walker'"):
        subsets_task_map("bodyfeet", "Walker", "all")
    with pytest.raises(ValueError, match="feature 4 of subset '0,4' is not in the task map"):
        task_bits("0,4", {"0": 0})
