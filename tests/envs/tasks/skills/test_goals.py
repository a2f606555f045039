"""Tasks as keys, draws that depend on nothing but their place, rewards and weights by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gaitway.envs.tasks.skills.goal_spaces import HUMANOID_BODYFEET, WALKER_BODYFEET, GoalSpace, combinations
from gaitway.envs.tasks.skills.goals import TaskSet, candidate_weights, goal_reward, length, pick, uniforms

WALKER_MAP = {str(feature): feature for feature in range(7)}


def test_keys_bits_and_names_of_tasks():
    # bits: feature 0 -> 0, 3 -> 2, 4 -> 1, so 0,3 is 0b101
    tasks = TaskSet(WALKER_BODYFEET, {"0": 0, "4": 1, "3": 2})
    assert tasks.members.tolist() == [0, 4, 3]
    assert tasks.num_keys == 8
    assert (tasks.key_of("0,3"), tasks.key_of("3+0"), tasks.key_of("3+4,4+0")) == (5, 5, 7)
    assert (tasks.features_of(5), tasks.features_of(2), tasks.features_of(7)) == ("0,3", "4", "0,3,4")
    assert tasks.bits(np.array([5, 2])).tolist() == [[1, 0, 1], [0, 1, 0]]
    assert tasks.mask(np.array([5, 2])).tolist() == [[1, 0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0, 0]]
    for key in (0, 8, -1):
        with pytest.raises(ValueError, match="keys are 1 to 7"):
            tasks.features_of(key)


def test_tasks_of_too_many_features_are_refused_before_they_take_memory():
    # 2^40 weights in float64 are 8 TiB
    space = GoalSpace([f"joint_{number}" for number in range(40)], [-1.0] * 40, [1.0] * 40)
    assert TaskSet(space, {str(feature): feature for feature in range(24)}).num_keys == 2**24
    with pytest.raises(ValueError, match="numbers 40 features, and tasks may control 24; choose those"):
        TaskSet(space, {str(feature): feature for feature in range(40)})
    assert float(np.float32(2**24 - 1)) == 2**24 - 1  # the largest key, as metrics hold it


def test_weights_of_equal_tasks_add_up():
    tasks = TaskSet(HUMANOID_BODYFEET, {"0": 0, "2": 1, "3": 2})
    weights = tasks.weights({"0+3,2+3": 1, "0,2,3": 2.0, "3": 1})
    assert np.allclose(weights, [0, 0, 0, 0, 0.25, 0, 0, 0.75])


def test_wrong_task_maps_and_distributions_are_named():
    empty_range = GoalSpace(("a", "b"), (0.0, 1.0), (1.0, 1.0))
    for space, task_map, words in [
        (WALKER_BODYFEET, {"0": 0, "1": 2}, "each once"),
        (WALKER_BODYFEET, {}, "no feature is to be a goal; name at least one"),
        (WALKER_BODYFEET, {"height": 0}, "is {'height': 0}; write numbers of features"),
        (WALKER_BODYFEET, {"0": "first"}, "is {'0': 'first'}; write numbers of features"),
        (WALKER_BODYFEET, {"7": 0}, r"features \[7\] of the task map cannot be controlled"),
        (empty_range, {"0": 0, "1": 1}, r"features \[1\] of the task map cannot be controlled"),
        (WALKER_BODYFEET, {"-1": 0}, "negative"),
    ]:
        with pytest.raises(ValueError, match=words):
            TaskSet(space, task_map)
    tasks = TaskSet(WALKER_BODYFEET, {"0": 0, "1": 1})
    for distribution, words in [
        ({"0,2": 1.0}, "feature 2 of subset '0,2' is not in the task map.*; give it the position 2 there"),
        ({"9": 1.0}, "feature 9 of subset '9' cannot be controlled"),
        ({"0": -1.0}, "at least 0"),
        ({"0": float("nan")}, "finite"),
        ({"0": "often"}, "finite number"),
        ({"0": 0.0}, "positive weight"),
        ({}, "positive weight"),
    ]:
        with pytest.raises(ValueError, match=words):
            tasks.weights(distribution)


def test_the_generator_is_splitmix64():
    """The published sequence of SplitMix64 with state 0 starts e220a8397b1dcdaf, 6e789e6aa1b965f4, 06c45d188009454f."""
    plain = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    # find the seed whose mixed key is 0: mixing is a bijection with mix(0) = 0, and key = mix(seed + golden)
    golden = 0x9E3779B97F4A7C15
    drawn = uniforms(np.array([2**64 - golden], dtype=np.uint64), np.array([0]), 3)[0]
    assert [int(value * 2**53) for value in drawn] == [word >> 11 for word in plain]


def test_draws_depend_on_their_place_alone():
    seed = np.array([5, 5, 2**53 - 1, 7])
    whole = uniforms(seed, np.array([0, 4, 0, 0]), 8)
    assert np.array_equal(whole[0, 4:], whole[1, :4])
    assert np.array_equal(uniforms(seed[2:3], np.array([6]), 2)[0], whole[2, 6:])
    assert not np.intersect1d(whole[0], uniforms(seed[:1], np.array([0]), 8, stream=1)[0]).size
    assert whole.min() >= 0
    assert whole.max() < 1
    assert uniforms(np.array([2.0**53 - 1]), np.array([0]), 2).tolist() == whole[2:3, :2].tolist()


def test_draws_are_uniform_and_unrelated():
    drawn = uniforms(np.arange(200), np.zeros(200, dtype=np.int64), 100)
    counts = np.histogram(drawn, bins=50, range=(0, 1))[0]
    assert ((counts - 400.0) ** 2 / 400.0).sum() < 85.4  # chi-square, 49 degrees of freedom, p = 0.001
    for left, right in ((drawn[:, :-1], drawn[:, 1:]), (drawn[:-1], drawn[1:])):
        assert abs(np.corrcoef(left.ravel(), right.ravel())[0, 1]) < 0.03


def test_picking_by_weights():
    weights = np.array([0.0, 2.0, 0.0, 6.0, 0.0])
    assert pick(weights, np.array([0.0, 0.2499, 0.25, 0.9999, 1 - 2.0**-53])).tolist() == [1, 1, 3, 3, 3]
    rows = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 5.0]])
    assert pick(rows, np.array([0.5, 0.0])).tolist() == [1, 2]
    odd = np.array([0.1, 0.3, 0.1, 0.0])  # the sum is no power of two: the largest draw must stay inside
    assert pick(odd, np.array([1 - 2.0**-53])).tolist() == [2]


def test_rewards_by_hand():
    before, after, start = np.array([1.0, 0.4, 0.05]), np.array([0.8, 0.05, 0.06]), np.array([2.0, 0.5, 0.0])
    reached = np.array([False, True, True])
    expected = {
        "potential": [0.2, 0.35, -0.01],
        "potential2": [0.28, 0.355, -0.004],
        "potential3": [0.28, 1.355, 0.996],
        "potential4": [0.1, 0.7, -0.01],
        "distance": [-0.8, -0.05, -0.06],
        "sparse": [0.0, 1.0, 1.0],
    }
    for kind, values in expected.items():
        assert np.allclose(goal_reward(kind, before, after, start, reached, 0.9), values, atol=1e-12), kind


def test_length_does_not_depend_on_the_layout_of_memory():
    values = np.random.default_rng(0).standard_normal((64, 12))
    expected = length(values)
    assert np.allclose(expected, np.linalg.norm(values, axis=1), rtol=1e-14)
    assert np.array_equal(length(np.asfortranarray(values)), expected)
    assert np.array_equal(np.concatenate([length(row[None]) for row in values]), expected)


def test_weights_of_candidates_by_hand():
    score = np.array([[0.0, 0.5, 1.0, 1.4, -3.0]])
    assert np.allclose(candidate_weights("r", score, score, 0, 0), [[10.0, 1 / 0.6, 1 / 1.1, 1 / 1.1, 10.0]])
    low, high = np.tanh(0.2), np.tanh(2.2)
    assert np.allclose(candidate_weights("r2", score, score, 0, 0), [[low, high, low, low, low]])
    # slack: 0.5 - (1.0 - 0.2) * 0.5 = 0.1 and 0.5 - (0.4 - 0.2) * 0.5 = 0.4
    value, distance = np.array([[0.5, 0.5]]), np.array([[1.0, 0.4]])
    assert np.allclose(candidate_weights("q", value, distance, 0.2, 0.5), [[1.0, 1 / 1.3]])


def test_names_of_tasks_in_group_spelling():
    walker = TaskSet(WALKER_BODYFEET, WALKER_MAP, ("0", "1", "2", "3+4", "5+6"))
    for subset in combinations(walker.groups, 5):
        assert walker.name_of(walker.key_of(subset)) == subset
    assert walker.name_of(walker.key_of("4+3,0")) == "0,3+4"
    assert walker.name_of(walker.key_of("3")) == "3"  # no combination of groups: feature by feature
    assert walker.name_of(walker.key_of("0,3")) == "0,3"
    with pytest.raises(ValueError, match="keys are 1 to 127"):
        walker.name_of(128)


def test_names_where_groups_overlap():
    task_map = {"0": 0, "2": 1, "3": 2, "4": 3, "6": 4, "7": 5, "8": 6, "9": 7, "10": 8, "11": 9}
    groups = ("0+3", "2+3", "3+4", "3+6+7+8", "3+9+10+11")
    humanoid = TaskSet(HUMANOID_BODYFEET, task_map, groups)
    for subset in combinations(groups, 5):  # greedy growth by features would end with the wrong groups
        assert humanoid.name_of(humanoid.key_of(subset)) == subset
    # "0+1" and "0,1" control the same: the lower rank comes first, then the order of the groups
    assert TaskSet(WALKER_BODYFEET, WALKER_MAP, ("0", "1", "0+1")).name_of(3) == "0+1"
    assert TaskSet(WALKER_BODYFEET, WALKER_MAP, ("0+1", "1+2", "0+2")).name_of(7) == "0+1,1+2"
    assert TaskSet(WALKER_BODYFEET, WALKER_MAP, ("0+2", "1+2", "0+1", "5")).name_of(7 + 32) == "0+2,1+2,5"


def test_many_groups_are_named_at_once():
    wide = GoalSpace([str(index) for index in range(18)], [0.0] * 18, [1.0] * 18)
    tasks = TaskSet(wide, {str(index): index for index in range(18)})
    assert tasks.name_of(2**18 - 1) == ",".join(map(str, range(18)))
    assert tasks.name_of(5) == "0,2"


@pytest.mark.parametrize("subset", ["", "0,", "x", "0 ,1", "-1", "0,,1", "3.5"])
def test_what_is_no_subset_is_named(subset):
    tasks = TaskSet(WALKER_BODYFEET, WALKER_MAP)
    with pytest.raises(ValueError, match=f"'{subset}' is no subset"):
        tasks.weights({subset: 1.0})
