"""The curriculum of tasks: which are combined when, and every weighting by hand."""

import itertools
import json
import math

import numpy as np
import pytest
import torch

from gaitway.core.config import ConfigError, UnknownKeyError, from_config, to_config
from gaitway.core.files import load_state, save_state
from gaitway.envs.tasks.skills.goal_spaces import POINT_BODY, combinations, flatten_subset, rank, subsets_task_map
from gaitway.envs.tasks.skills.goals import TaskSet
from gaitway.envs.tasks.skills.options import HUMANOID_GROUPS, WALKER_GROUPS
from gaitway.skills import curriculum as module
from gaitway.skills.curriculum import EVAL_MODES, WEIGHTINGS, Curriculum, CurriculumConfig, subsets_below

WALKER = WALKER_GROUPS.split("#")
HUMANOID = HUMANOID_GROUPS.split("#")


def make(groups=("0", "1", "2"), **options):
    return Curriculum(groups, CurriculumConfig(**options))


def grow(curriculum, reviews, success=0.5):
    """Numbers of tasks after each of `reviews` reviews in which all tasks have the same success."""
    counts = []
    for number in range(reviews):
        curriculum.review(dict.fromkeys(curriculum.weights, success), 100_000 * number)
        counts.append(len(curriculum.weights))
    return counts


# which tasks there are


@pytest.mark.parametrize(("groups", "robot"), [(WALKER, "walker"), (HUMANOID, "humanoid")])
@pytest.mark.parametrize("success", [0.0, 0.3, 1.0])
def test_all_31_tasks_are_there_after_four_reviews(groups, robot, success):
    curriculum = make(groups)
    assert list(curriculum.weights) == groups
    # 5 + 10, + 10, + 5, + 1 combinations of five groups, and no more
    assert grow(curriculum, 6, success) == [15, 25, 30, 31, 31, 31]
    subsets, _ = subsets_task_map("bodyfeet", robot, "#".join(groups), 1, 5)
    assert list(curriculum.weights) == subsets
    assert curriculum.weights == dict.fromkeys(subsets, 1 / 31)


def test_each_review_adds_the_next_rank():
    curriculum = make(WALKER)
    for expected in (2, 3, 4, 5):
        curriculum.review(dict.fromkeys(curriculum.weights, 1.0), 0)
        assert {rank(task) for task in curriculum.new} == {expected}
        assert len(curriculum.new) == math.comb(5, expected)
    curriculum.review({}, 0)
    assert curriculum.new == ()


def test_success_of_0_is_controllable_when_ctrl_eps_is_1():
    assert grow(make(ctrl_eps=1.0), 1, 0.0) == [6]
    assert grow(make(ctrl_eps=0.999), 3, 0.0) == [3, 3, 3]


def test_no_pair_before_both_parents_can():
    curriculum = make(ctrl_eps=0.3)
    below = math.nextafter(0.7, 0.0)
    curriculum.review({"0": 1.0, "1": below, "2": 0.0}, 0)
    assert curriculum.new == ()
    curriculum.review({"0": 0.7, "1": 0.7, "2": below}, 0)
    assert curriculum.new == ("0,1",)
    curriculum.review({"0": 0.1, "1": 0.7, "2": 0.9}, 0)  # 0 was forgotten: 0,2 waits, 0,1 stays
    assert curriculum.new == ("1,2",)
    assert list(curriculum.weights) == ["0", "1", "2", "0,1", "1,2"]


def test_all_subsets_of_one_group_less_must_be_there_and_controllable():
    curriculum = make(ctrl_eps=0.5)
    curriculum.review({"0": 1, "1": 1, "2": 0}, 0)
    curriculum.review({"0": 1, "1": 1, "2": 1, "0,1": 1}, 0)
    assert curriculum.new == ("0,2", "1,2")  # 0,1 and 2 can, but 0,2 was not even there
    curriculum.review({"0": 1, "1": 1, "2": 1, "0,1": 1, "0,2": 1, "1,2": 0.4}, 0)
    assert curriculum.new == ()
    curriculum.review({"0": 0, "1": 0, "2": 0, "0,1": 0.5, "0,2": 0.6, "1,2": 0.5}, 0)
    assert curriculum.new == ("0,1,2",)  # its subsets of two groups alone are asked


def test_best_first_by_the_product_of_the_parents():
    # 0,1: 0.45; 0,2: 0.72; 1,2: 0.40
    curriculum = make(max_new_tasks=2)
    curriculum.review({"0": 0.9, "1": 0.5, "2": 0.8}, 0)
    assert curriculum.new == ("0,2", "0,1")
    curriculum.review({"0": 0.9, "1": 0.5, "2": 0.8, "0,1": 0.1, "0,2": 0.1}, 0)
    assert curriculum.new == ("1,2",)  # 0,1,2 was not possible yet
    assert list(curriculum.weights) == ["0", "1", "2", "0,1", "0,2", "1,2"]


def test_ranks_compete_by_the_same_product():
    curriculum = make(("0", "1", "2", "3"), max_new_tasks=3)
    curriculum.review({"0": 1, "1": 1, "2": 1, "3": 0.5}, 0)
    assert curriculum.new == ("0,1", "0,2", "1,2")
    # 0,1,2: 0.9 * 0.9 * 0.8 = 0.648, before 0,3, 1,3, 2,3 with 1 * 0.5
    success = {"0": 1, "1": 1, "2": 1, "3": 0.5, "0,1": 0.9, "0,2": 0.9, "1,2": 0.8}
    curriculum.review(success, 0)
    assert curriculum.new == ("0,1,2", "0,3", "1,3")


def test_equally_good_ones_come_in_the_order_of_combinations():
    curriculum = make(WALKER, max_new_tasks=3)
    assert grow(curriculum, 1) == [8]
    assert curriculum.new == ("0,1", "0,2", "0,3+4")
    backwards = Curriculum(WALKER, curriculum.config)
    backwards.review(dict.fromkeys(reversed(WALKER), 0.5), 0)
    assert backwards.new == curriculum.new


def test_equally_good_ones_are_equal_whatever_parent_comes_first():
    # 0,1,2 and 0,2,3 have parents of 0.3, 0.8 and 0.9; in the order of parents the second product is 3e-17 larger
    assert 0.3 * 0.8 * 0.9 < 0.9 * 0.3 * 0.8
    curriculum = make(("0", "1", "2", "3"), ctrl_eps=1.0, feature_rank=2, max_new_tasks=1)
    curriculum.review({"1,2": 0.3, "0,2": 0.8, "0,1": 0.9, "2,3": 0.9, "0,3": 0.3, "1,3": 0.0}, 0)
    assert curriculum.new == ("0,1,2",)


@pytest.mark.parametrize(("most", "counts"), [(0, [5, 5, 5]), (1, [6, 7, 8]), (7, [12, 18, 25]), (1000, [15, 25, 30])])
def test_max_new_tasks(most, counts):
    # of 7: seven pairs, then the other three and 0,1 with each of the rest, then the seven other triples
    assert grow(make(WALKER, max_new_tasks=most), 3) == counts


def test_combine_after_steps():
    curriculum = make(combine_after_steps=100)
    for steps, count in [(0, 3), (99, 3), (100, 6), (101, 7)]:
        curriculum.review(dict.fromkeys(curriculum.weights, 1.0), steps)
        assert len(curriculum.weights) == count


@pytest.mark.parametrize(("most", "total"), [(1, 5), (2, 15), (3, 25), (5, 31), (99, 31)])
def test_feature_rank_max_counts_groups(most, total):
    for groups in (WALKER, HUMANOID):
        assert grow(make(groups, feature_rank_max=most), 5)[-1] == total


@pytest.mark.parametrize(
    ("first", "counts"), [(1, [5, 15, 25, 30]), (2, [10, 20, 25, 26]), (5, [1, 1, 1, 1]), ("max", [1, 1, 1, 1])]
)
def test_feature_rank_is_that_of_the_first_tasks(first, counts):
    curriculum = make(WALKER, feature_rank=first)
    assert [len(curriculum.weights), *grow(curriculum, 3)] == counts
    assert all(rank(task) >= (5 if first == "max" else first) for task in curriculum.weights)


def test_a_first_rank_above_the_greatest_one_combines_nothing():
    assert grow(make(feature_rank=2, feature_rank_max=1), 3) == [3, 3, 3]


def test_groups_that_share_a_feature_keep_their_rank():
    curriculum = make(HUMANOID, feature_rank_max=2)
    grow(curriculum, 3)
    assert "0+3,2+3" in curriculum.weights
    assert rank("0+3,2+3") == 2
    assert len(curriculum.weights) == 15


@pytest.mark.parametrize(
    ("groups", "tasks"),
    [
        # every combination of the first three has both features
        (("3", "0+3", "0"), ["3", "0+3", "0"]),
        # no group contains another one, and three pairs have the same features
        (
            ("0+1", "1+2", "0+2", "3"),
            ["0+1", "1+2", "0+2", "3", "0+1,1+2", "0+1,3", "1+2,3", "0+2,3", "0+1,1+2,3"],
        ),
    ],
)
def test_combinations_of_the_same_features_are_one_task(groups, tasks):
    space = TaskSet(POINT_BODY, {str(feature): feature for feature in range(4)}, groups)

    def name_of(task):
        return space.name_of(space.key_of(task))

    curriculum = Curriculum(groups, CurriculumConfig(), name_of)
    grow(curriculum, 4)
    assert list(curriculum.weights) == tasks
    assert len({space.key_of(task) for task in tasks}) == len(tasks)
    assert {space.key_of(task) for task in combinations(groups, len(groups))} == {space.key_of(t) for t in tasks}
    bare = make(groups)
    grow(bare, 4)
    assert len(bare.weights) == 2 ** len(groups) - 1  # without names every combination is a task
    whole = Curriculum(groups, CurriculumConfig(feature_rank="max", weighting="lp"), name_of)
    assert whole.weights == {name_of(",".join(groups)): 1.0}


def test_a_twin_that_ranks_by_commas_after_flattening_loses_the_feet(monkeypatch):
    monkeypatch.setattr(module, "rank", lambda task: rank(flatten_subset(task)))  # "3+4" -> "3,4" -> 2
    walker = make(WALKER, feature_rank_max=2)
    grow(walker, 3)
    assert "3+4,5+6" not in walker.weights
    assert len(walker.weights) < 15
    humanoid = make(HUMANOID, feature_rank_max=2)
    assert grow(humanoid, 3)[-1] == 5  # not one pair


def by_pairs(curriculum, performance, steps):
    """The definition of step 3 word by word: unions of pairs of controllable tasks."""
    config, groups = curriculum.config, curriculum.groups
    able = [task for task, p in performance.items() if p >= 1 - config.ctrl_eps]
    found = {}
    for one, other in itertools.combinations(able, 2):
        union = [group for group in groups if group in {*one.split(","), *other.split(",")}]
        subsets = [",".join(chosen) for chosen in itertools.combinations(union, len(union) - 1)]
        name = ",".join(union)
        if (
            name not in performance
            and len(union) <= config.feature_rank_max
            and steps >= config.combine_after_steps
            and all(subset in able for subset in subsets)
        ):
            found[name] = math.prod(performance[subset] for subset in subsets)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_combinations_are_those_of_all_pairs(seed):
    draw = np.random.default_rng(seed)
    groups = HUMANOID if seed % 2 else WALKER
    curriculum = make(
        groups,
        ctrl_eps=float(draw.uniform(0.6, 0.95)),
        feature_rank=int(draw.integers(1, 3)),
        feature_rank_max=int(draw.integers(3, 6)),
        max_new_tasks=int(draw.integers(1, 8)),
    )
    added = 0
    for number in range(8):
        success = {task: float(draw.random()) for task in curriculum.weights}
        expected = by_pairs(curriculum, success, number)
        curriculum.review(success, number)
        best = sorted(expected, key=lambda task: -expected[task])[: curriculum.config.max_new_tasks]
        assert set(curriculum.new) == set(best)
        assert [expected[task] for task in curriculum.new] == pytest.approx([expected[task] for task in best])
        added += len(best)
    assert added > 0


def test_subsets_below():
    assert subsets_below("0,1,3+4") == ["1,3+4", "0,3+4", "0,1"]
    assert subsets_below("3+4") == []


# weights


@pytest.mark.parametrize("weighting", sorted(WEIGHTINGS))
def test_first_weights(weighting):
    first = 1 / 3 if weighting in ("lp", "lp_smooth") else 1.0
    curriculum = make(weighting=weighting)
    assert curriculum.weights == {"0": first, "1": first, "2": first}
    assert (curriculum.performance, curriculum.progress, curriculum.new) == ({}, {}, ())


@pytest.mark.parametrize("weighting", sorted(WEIGHTINGS))
def test_reviewed_weights_add_up_to_1(weighting):
    curriculum = make(WALKER, weighting=weighting, max_new_tasks=4)
    draw = np.random.default_rng(0)
    for number in range(12):
        numbers = {task: float(draw.random()) for task in curriculum.weights}
        weights = curriculum.review(numbers, number, numbers)
        assert weights == curriculum.weights
        assert weights is not curriculum.weights
        assert sum(weights.values()) == pytest.approx(1.0, abs=1e-12)
        assert min(weights.values()) > 0


def test_uniform():
    curriculum = make()
    assert curriculum.review({"0": 0.9, "1": 0.1, "2": 0.5}, 0) == dict.fromkeys(
        ["0", "1", "2", "0,1", "0,2", "1,2"], 1 / 6
    )


def test_lp():
    curriculum = make(weighting="lp", lp_eps=0.1, lp_new_task=0.1, max_new_tasks=1)
    # first: lp = p = 0.4, 0.2, 0.0; 0,1 (0.08) is new with 0.1; N = 4, sum = 0.7; 0.1 / 4 + 0.9 * lp / 0.7
    weights = curriculum.review({"0": 0.4, "1": 0.2, "2": 0.0}, 0)
    assert curriculum.new == ("0,1",)
    assert curriculum.progress == {"0": 0.4, "1": 0.2, "2": 0.0, "0,1": 0.1}
    assert weights == pytest.approx(
        {"0": 0.025 + 0.36 / 0.7, "1": 0.025 + 0.18 / 0.7, "2": 0.025, "0,1": 0.025 + 0.09 / 0.7}, abs=1e-12
    )
    # second: 0.5 - 0.4, 0.1 - 0.2, 0.2 - 0, 0,1: itself, 0.3; 0,2 (0.5 * 0.2) is new with 0.1
    # N = 5, sum of sizes = 0.1 + 0.1 + 0.2 + 0.3 + 0.1 = 0.8; 0.02 + 0.9 * |lp| / 0.8
    weights = curriculum.review({"0": 0.5, "1": 0.1, "2": 0.2, "0,1": 0.3}, 0)
    assert curriculum.new == ("0,2",)
    assert curriculum.progress == pytest.approx({"0": 0.1, "1": -0.1, "2": 0.2, "0,1": 0.3, "0,2": 0.1}, abs=1e-12)
    assert weights == pytest.approx({"0": 0.1325, "1": 0.1325, "2": 0.245, "0,1": 0.3575, "0,2": 0.1325}, abs=1e-12)


@pytest.mark.parametrize("weighting", ["lp", "lp_smooth"])
def test_no_progress_at_all_is_uniform(weighting):
    curriculum = make(weighting=weighting, max_new_tasks=0)
    assert curriculum.review({}, 0) == pytest.approx(dict.fromkeys(["0", "1", "2"], 1 / 3), abs=1e-12)


def test_lp_eps_at_both_ends():
    success = {"0": 0.6, "1": 0.2, "2": 0.0}
    # nothing spread evenly: 0.6 / 0.8, 0.2 / 0.8, 0
    assert make(weighting="lp", lp_eps=0, max_new_tasks=0).review(success, 0) == pytest.approx(
        {"0": 0.75, "1": 0.25, "2": 0.0}, abs=1e-12
    )
    assert make(weighting="lp", lp_eps=1, max_new_tasks=0).review(success, 0) == pytest.approx(
        dict.fromkeys(["0", "1", "2"], 1 / 3), abs=1e-12
    )


def test_lp_smooth_is_kept_from_review_to_review():
    curriculum = make(weighting="lp_smooth", max_new_tasks=1)
    curriculum.review({"0": 0.4, "1": 0.2, "2": 0.0}, 0)
    assert curriculum.progress == {"0": 0.4, "1": 0.2, "2": 0.0, "0,1": 0.1}
    # 0: 0.9 * 0.4 + 0.1 * (0.5 - 0.4) = 0.37; 1: 0.18 - 0.01 = 0.17; 2: 0 + 0.02 = 0.02
    # 0,1: 0.9 * 0.1 + 0.1 * 0.3 = 0.12; 0,2 is new with 0.1; sum = 0.78
    weights = curriculum.review({"0": 0.5, "1": 0.1, "2": 0.2, "0,1": 0.3}, 0)
    progress = {"0": 0.37, "1": 0.17, "2": 0.02, "0,1": 0.12, "0,2": 0.1}
    assert curriculum.progress == pytest.approx(progress, abs=1e-12)
    assert weights == pytest.approx({task: 0.02 + 0.9 * lp / 0.78 for task, lp in progress.items()}, abs=1e-12)
    # a third: 0: 0.9 * 0.37 + 0.1 * 0 = 0.333
    curriculum.review({"0": 0.5}, 0)
    assert curriculum.progress["0"] == pytest.approx(0.333, abs=1e-12)


def test_a_twin_of_lp_smooth_without_state_is_lp():
    kept, forgetful = make(weighting="lp_smooth", max_new_tasks=0), make(weighting="lp_smooth", max_new_tasks=0)
    plain = make(weighting="lp", max_new_tasks=0)
    for success in ({"0": 0.4, "1": 0.2}, {"0": 0.5, "1": 0.6}):
        forgetful.progress = {}
        found = [each.review(success, 0) for each in (kept, forgetful, plain)]
    assert found[1] == found[2]
    # change 0.1 and 0.4; smooth 0.36 + 0.01 and 0.18 + 0.04
    assert found[2]["1"] > found[2]["0"]
    assert found[0]["0"] > found[0]["1"]


def test_downrank_new():
    curriculum = make(weighting="downrank_new", downrank=0.25, max_new_tasks=2)
    # all others weigh 1: 3 + 2 * 0.25 = 3.5
    weights = curriculum.review({"0": 0.9, "1": 0.5, "2": 0.8}, 0)
    one, seldom = 1 / 3.5, 0.25 / 3.5
    assert weights == pytest.approx({"0": one, "1": one, "2": one, "0,1": seldom, "0,2": seldom}, abs=1e-12)
    # what was new weighs 1 now: 5 + 0.25
    weights = curriculum.review({"0": 0.9, "1": 0.5, "2": 0.8}, 0)
    assert weights == pytest.approx({**dict.fromkeys(["0", "1", "2", "0,1", "0,2"], 1 / 5.25), "1,2": 0.25 / 5.25})


def test_downrank_combined():
    curriculum = make(("0", "1", "2", "3"), weighting="downrank_combined", downrank=0.25, max_new_tasks=1)
    # 0,2 is new: 0 and 2 weigh 0.25; 1, 3 and 0,2 weigh 1: 3.5
    weights = curriculum.review({"0": 0.9, "1": 0.5, "2": 0.8, "3": 0.1}, 0)
    assert weights == pytest.approx(
        {"0": 0.25 / 3.5, "1": 1 / 3.5, "2": 0.25 / 3.5, "3": 1 / 3.5, "0,2": 1 / 3.5}, abs=1e-12
    )


def test_downrank_combined_means_the_subsets_of_one_group_less_alone():
    curriculum = make(weighting="downrank_combined", downrank=0.5)
    curriculum.review({}, 0)
    # 0,1,2 is new: its three pairs weigh 0.5, the single groups and itself 1: 5.5
    weights = curriculum.review({}, 0)
    assert curriculum.new == ("0,1,2",)
    assert weights == pytest.approx(
        {
            **dict.fromkeys(["0", "1", "2", "0,1,2"], 1 / 5.5),
            **dict.fromkeys(["0,1", "0,2", "1,2"], 0.5 / 5.5),
        },
        abs=1e-12,
    )


@pytest.mark.parametrize("weighting", ["downrank_new", "downrank_combined"])
def test_downranking_without_a_new_task_is_uniform(weighting):
    curriculum = make(weighting=weighting, max_new_tasks=0)
    assert curriculum.review({"0": 0.9}, 0) == pytest.approx(dict.fromkeys(["0", "1", "2"], 1 / 3), abs=1e-12)


def test_tderr():
    curriculum = make(weighting="tderr", max_new_tasks=1)
    # 0,1 is new and 2 unseen: both get the maximum, 0.6; 0.2 + 0.6 + 0.6 + 0.6 = 2
    weights = curriculum.review({"0": 0.4, "1": 0.2}, 0, {"0": 0.2, "1": 0.6})
    assert weights == pytest.approx({"0": 0.1, "1": 0.3, "2": 0.3, "0,1": 0.3}, abs=1e-12)
    # keys in another order of groups: 0.2 + 0.2 + 0.2 + 0.4, 0,2 is new: 0.4; sum 1.4
    weights = curriculum.review({"0": 0.4, "2": 0.2}, 0, {"0": 0.2, "1": 0.2, "2": 0.2, "1,0": 0.4})
    assert weights == pytest.approx({"0": 1 / 7, "1": 1 / 7, "2": 1 / 7, "0,1": 2 / 7, "0,2": 2 / 7}, abs=1e-12)


@pytest.mark.parametrize("errors", [None, {}, {"0": 0.0, "1": 0.0, "2": 0.0}])
def test_tderr_without_an_error_is_uniform(errors):
    curriculum = make(weighting="tderr", max_new_tasks=0)
    assert curriculum.review({}, 0, errors) == pytest.approx(dict.fromkeys(["0", "1", "2"], 1 / 3), abs=1e-12)


# keys


def test_keys_in_any_order_of_groups_and_members():
    curriculum = make(["0", "4+3", " 5+6"])
    assert curriculum.groups == ("0", "3+4", "5+6")
    curriculum.review({"6+5": 0.1, "3+4": 0.2, "0": 0.3}, 0)
    curriculum.review({"4+3,0": 0.4, "5+6, 3+4": 0.5}, 0)
    assert curriculum.performance == {
        "0": 0.0,
        "3+4": 0.0,
        "5+6": 0.0,
        "0,3+4": 0.4,
        "0,5+6": 0.0,
        "3+4,5+6": 0.5,
    }


def test_groups_keep_their_order_which_need_not_be_ascending():
    curriculum = make(["3+4", "0", "1"])
    grow(curriculum, 2)
    assert list(curriculum.weights) == ["3+4", "0", "1", "3+4,0", "3+4,1", "0,1", "3+4,0,1"]


def test_a_task_without_an_entry_counts_as_0():
    curriculum = make(ctrl_eps=0.5)
    curriculum.review({"0": 1.0, "1": 1.0}, 0)
    assert curriculum.performance == {"0": 1.0, "1": 1.0, "2": 0.0}
    assert curriculum.new == ("0,1",)


def test_combinations_that_are_no_tasks_yet_are_not_read():
    everything = [",".join(chosen) for size in (1, 2, 3) for chosen in itertools.combinations("012", size)]
    curriculum = make(ctrl_eps=0.5)
    curriculum.review(dict.fromkeys(everything, 1.0), 0)
    assert len(curriculum.weights) == 6
    assert list(curriculum.performance) == ["0", "1", "2"]
    curriculum.review(dict.fromkeys(everything, 1.0), 0)
    assert curriculum.progress["0,1"] == 1.0  # new: itself


def test_numbers_of_other_libraries():
    curriculum = make()
    curriculum.review({"0": np.float32(0.5), "1": torch.tensor(0.25), "2": 1}, np.int64(5))
    assert curriculum.performance == {"0": 0.5, "1": 0.25, "2": 1.0}
    assert all(type(value) is float for value in curriculum.performance.values())


BAD_SUCCESS = [
    ({"7": 0.5}, "success: '7' is not a task.*'0', '1', '2', '3\\+4', '5\\+6'"),
    ({"0,7": 0.5}, "'0,7' is not a task"),
    ({"3": 0.5}, "'3' is not a task"),
    ({"0,3,4": 0.5}, "'0,3,4' is not a task"),  # flattened: the features of 0,3+4
    ({"0,0": 0.5}, "'0,0' is not a task"),
    ({"": 0.5}, "'' is not a task"),
    ({"height": 0.5}, "'height' is not a task"),
    ({3: 0.5}, "3 is not a task"),
    ({"0": math.nan}, "success of task '0' is nan; use a number from 0 to 1"),
    ({"0": math.inf}, "success of task '0' is inf"),
    ({"0": -0.1}, "success of task '0' is -0.1"),
    ({"0": 1.5}, "success of task '0' is 1.5"),
    ({"0": "0.5"}, "success of task '0' is '0.5'"),
    ({"0": None}, "success of task '0' is None"),
    ({"0,1": 0.5, "1,0": 0.5}, "success names the task '0,1' twice"),
]


@pytest.mark.parametrize(("success", "said"), BAD_SUCCESS)
def test_bad_success_is_refused_and_nothing_changes(success, said):
    curriculum = make(WALKER, weighting="lp_smooth")
    curriculum.review({"0": 0.5}, 0)
    before = json.dumps(curriculum.state_dict())
    with pytest.raises(ValueError, match=said) as caught:
        curriculum.review(success, 0)
    assert "\n" not in str(caught.value)
    assert json.dumps(curriculum.state_dict()) == before


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ({"3,4": 0.5}, "td_errors: '3,4' is not a task"),
        ({"0": -1.0}, "td_errors of task '0' is -1.0; use a finite number of at least 0"),
        ({"0": math.nan}, "td_errors of task '0' is nan"),
        ({"0": math.inf}, "td_errors of task '0' is inf"),
    ],
)
def test_bad_td_errors_are_refused_and_nothing_changes(errors, said):
    curriculum = make(WALKER, weighting="tderr")
    before = json.dumps(curriculum.state_dict())
    with pytest.raises(ValueError, match=said):
        curriculum.review({"0": 0.5}, 0, errors)
    assert json.dumps(curriculum.state_dict()) == before


@pytest.mark.parametrize("steps", [-1, math.nan, "many", None])
def test_bad_steps(steps):
    with pytest.raises(ValueError, match="env_steps is"):
        make().review({}, steps)


# configuration


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"weighting": "lpsmooth"}, r"weighting is 'lpsmooth' \(did you mean 'lp_smooth'\?\)"),
        ({"weighting": "unifrom"}, "did you mean 'uniform'"),
        ({"weighting": ""}, "weighting is ''; use one of"),
        ({"weighting": None}, "weighting is None"),
        ({"eval_mode": "rollout"}, r"eval_mode is 'rollout' \(did you mean 'rollouts'\?\)"),
        ({"eval_mode": "reach"}, "did you mean 'reachability'"),
        ({"ctrl_eps": -0.1}, "ctrl_eps is -0.1; use a number from 0 to 1"),
        ({"ctrl_eps": 1.1}, "ctrl_eps is 1.1"),
        ({"ctrl_eps": math.nan}, "ctrl_eps is nan"),
        ({"ctrl_eps": "1"}, "ctrl_eps is '1'"),
        ({"ctrl_eps": True}, "ctrl_eps is True"),
        ({"feature_rank": 0}, "feature_rank is 0; use an integer >= 1, or 'max'"),
        ({"feature_rank": 1.5}, "feature_rank is 1.5"),
        ({"feature_rank": True}, "feature_rank is True"),
        ({"feature_rank": "all"}, "feature_rank is 'all'"),
        ({"feature_rank_max": 0}, "feature_rank_max is 0; use an integer >= 1"),
        ({"max_new_tasks": -1}, "max_new_tasks is -1"),
        ({"max_new_tasks": 2.5}, "max_new_tasks is 2.5; use an integer"),
        ({"combine_after_steps": -5}, "combine_after_steps is -5"),
        ({"downrank": -0.1}, "downrank is -0.1"),
        ({"downrank": 2}, "downrank is 2"),
        ({"lp_new_task": -1}, "lp_new_task is -1"),
        ({"lp_new_task": math.inf}, "lp_new_task is inf"),
        ({"lp_eps": 1.01}, "lp_eps is 1.01"),
    ],
)
def test_a_bad_option_is_named(options, said):
    with pytest.raises(ValueError, match=said) as caught:
        CurriculumConfig(**options)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"algorithm\.curriculum"):
        from_config(CurriculumConfig, options, "algorithm.curriculum")


def test_a_configuration_file():
    given = {"feature_rank": "max", "combine_after_steps": 1e6, "ctrl_eps": 1, "weighting": "tderr"}
    config = from_config(CurriculumConfig, given)
    assert (config.feature_rank, config.combine_after_steps, config.ctrl_eps) == ("max", 1_000_000, 1.0)
    assert from_config(CurriculumConfig, to_config(config)) == config
    with pytest.raises(UnknownKeyError, match=r"task_weighting.*did you mean.*weighting"):
        from_config(CurriculumConfig, {"task_weighting": "lp"})


@pytest.mark.parametrize("eval_mode", EVAL_MODES)
def test_known_eval_modes(eval_mode):
    assert CurriculumConfig(eval_mode=eval_mode).eval_mode == eval_mode


@pytest.mark.parametrize(
    ("groups", "options", "said"),
    [
        (WALKER, {"feature_rank": 6}, r"feature_rank is 6, but there are 5 groups.*use 1 to 5, or 'max'"),
        (["0"], {"feature_rank": 2}, "feature_rank is 2, but there are 1 groups"),
        (["0", "0"], {}, r"\['0'\] more than once"),
        (["3+4", "4+3"], {}, r"\['3\+4'\] more than once"),
        (["0", "x"], {}, "feature numbers joined by"),
        (["0,1"], {}, "feature numbers joined by"),
        (["-1"], {}, "feature numbers joined by"),
        (["3+"], {}, "feature numbers joined by"),
        ([""], {}, "feature numbers joined by"),
        ([], {}, "feature numbers joined by"),
        ("0#1", {}, r"use a list, one entry per group: \['0', '1'\]"),
    ],
)
def test_bad_groups(groups, options, said):
    with pytest.raises(ValueError, match=said) as caught:
        make(groups, **options)
    assert "\n" not in str(caught.value)


def test_groups_that_a_file_brings_as_numbers():
    assert list(make([0, 1, "3+4"]).weights) == ["0", "1", "3+4"]


# state


@pytest.mark.parametrize("weighting", sorted(WEIGHTINGS))
@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_curriculum_goes_on_exactly_from_its_state(weighting, at, tmp_path):
    config = CurriculumConfig(weighting=weighting, max_new_tasks=6, ctrl_eps=0.8)

    def play(curriculum, numbers, seed):
        draw = np.random.default_rng(seed)
        for number in range(numbers):
            success = {task: float(draw.random()) for task in curriculum.weights}
            curriculum.review(success, number, success)

    whole = Curriculum(WALKER, config)
    play(whole, at, 1)
    for way in ("json", "file"):
        if way == "json":
            state = json.loads(json.dumps(whole.state_dict(), sort_keys=True))
        else:
            save_state(tmp_path / way, {"curriculum": whole.state_dict()}, kind="test")
            state = load_state(tmp_path / way, kind="test")[0]["curriculum"]
        again = Curriculum(WALKER, config)
        again.load_state_dict(state)
        assert again.state_dict() == whole.state_dict()
        assert list(again.weights) == list(whole.weights)
        copy = Curriculum(WALKER, config)
        copy.load_state_dict(whole.state_dict())
        play(copy, 4, 2)
        play(again, 4, 2)
        assert again.state_dict() == copy.state_dict()
        assert list(again.weights) == list(copy.weights)


def test_the_state_is_a_copy():
    curriculum = make()
    state = curriculum.state_dict()
    state["weights"]["0"] = 7.0
    assert curriculum.weights["0"] == 1.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"groups": ["0", "1"]}, r"groups \['0', '1'\], but this one has \['0', '1', '2'\]"),
        ({"progress": {"9": 1.0}}, "'9' is not a task"),
        ({"new": ["0,9"]}, "'0,9' is not a task"),
    ],
)
def test_a_state_of_another_curriculum_is_refused_and_nothing_changes(change, said):
    curriculum = make(weighting="lp")
    curriculum.review({"0": 0.5}, 0)
    before = curriculum.state_dict()
    with pytest.raises(ValueError, match=said):
        curriculum.load_state_dict({**make().state_dict(), **change})
    assert curriculum.state_dict() == before


def test_many_groups_stay_quick():
    curriculum = make([str(feature) for feature in range(12)], max_new_tasks=10_000)
    assert grow(curriculum, 12)[-1] == 2**12 - 1
