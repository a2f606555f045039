"""Decisions become the inputs of skills: by hand, against the goal space in float64, and in the right order."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gaitway.envs.registry import make_env
from gaitway.envs.tasks.skills.goal_spaces import HUMANOID_BODYFEET, WALKER_BODYFEET, GoalSpace
from gaitway.skills.frozen_policy import SkillFileError, component_names
from gaitway.skills.interface import GoalInterface, choose_subsets, subsets_of_skills
from gaitway.skills.skill_file import Skills

WALKER_MAP = {str(f): f for f in range(7)}
HUMANOID_MAP = {"0": 0, "2": 1, "3": 2, "4": 3, "6": 4, "7": 5, "8": 6, "9": 7, "10": 8, "11": 9}
HUMANOID_SUBSETS = ["0+3", "0+3,2+3", "3+9+10+11,3+4", "2+3,3+6+7+8"]


def walker(*subsets, **options):
    return GoalInterface(WALKER_BODYFEET, subsets, WALKER_MAP, **options)


def decide(interface, features, subset, subgoal):
    goal, task = interface.translate(
        torch.tensor([features], dtype=torch.float32), torch.tensor([subset]), torch.tensor([subgoal])
    )
    return goal[0].tolist(), task[0].tolist()


@pytest.mark.parametrize("x", [0.0, 2.5, -1e5])
def test_a_goal_of_a_delta_feature_does_not_depend_on_where_the_robot_is(x):
    # half of the range of 3 m
    features = [1.2, x, 0.1, 0.2, -0.9, 0.3, -0.8]
    goal, task = decide(walker("0", "1"), features, 1, [0.9, 0.5, 0.9, 0.9, 0.9, 0.9, 0.9])
    assert goal == pytest.approx([0, 1.5, 0, 0, 0, 0, 0], abs=1e-6)
    assert task == [0, 1, 0, 0, 0, 0, 0]


def test_a_goal_of_another_feature_is_a_place():
    # subgoal 0 is the centre 1.225 of the height's range
    goal, task = decide(walker("0", "1"), [1.30, 7.0, 0, 0, 0, 0, 0], 0, [0.0] * 7)
    assert goal == pytest.approx([-0.075, 0, 0, 0, 0, 0, 0], abs=1e-6)
    assert task == [1, 0, 0, 0, 0, 0, 0]


def test_goals_count_from_the_present_with_delta_actions():
    # a quarter of half the height's range, 0.25 * 0.275
    goal, _ = decide(walker("0,1", delta_actions=True), [1.30, 7.0, 0, 0, 0, 0, 0], 0, [0.25, 0.5, 1, 1, 1, 1, 1])
    assert goal == pytest.approx([0.06875, 1.5, 0, 0, 0, 0, 0], abs=1e-6)


def reference(space, subsets, task_map, features, subset, subgoal, delta_actions):
    """Row by row in float64, with the goal space's own projections."""
    members = sorted(task_map, key=task_map.__getitem__)
    goals, bits = [], []
    for row, chosen, entries in zip(features, subset, subgoal, strict=True):
        flat = list(dict.fromkeys(subsets[chosen].replace("+", ",").split(",")))
        numbers = [int(feature) for feature in flat]
        u = np.array([entries[task_map[feature]] for feature in flat])
        if delta_actions:
            u = u + space.project(row, numbers)
        target = space.back_project(u, numbers)
        if not delta_actions:
            target[space.delta] += row[space.delta]
        left = space.feature_difference(target, row)
        mask = np.array([feature in flat for feature in members], dtype=float)
        goals.append(left[[int(feature) for feature in members]] * mask)
        bits.append(mask)
    return torch.tensor(np.array(goals)), torch.tensor(np.array(bits))


def mixed_space():
    psi = np.array([[2.0, 0.5, 0.0], [0.3, 1.0, 0.0], [0.0, 0.0, 0.7]])
    return GoalSpace(
        ("a", "b", "c"), (0, -1, -2), (1, 1, 2), delta=(1,), twist=(2,), psi=psi, offset=np.array([-1.0, 0.0, 0.0])
    )


SPACES = {
    "walker": (WALKER_BODYFEET, ["0", "1", "0,3+4", "5+6,2", "0,1,2"], WALKER_MAP),
    "humanoid": (HUMANOID_BODYFEET, HUMANOID_SUBSETS, HUMANOID_MAP),
    "permuted": (HUMANOID_BODYFEET, ["3,0", "0,2,3"], {"3": 0, "0": 1, "2": 2}),
    "mixed": (mixed_space(), ["0", "1,2", "2,0,1"], {"0": 1, "1": 0, "2": 2}),
}


@pytest.mark.parametrize("delta_actions", [False, True])
@pytest.mark.parametrize("name", SPACES)
def test_translation_equals_the_goal_space_row_by_row(name, delta_actions):
    space, subsets, task_map = SPACES[name]
    generator = np.random.default_rng(3)
    features = generator.normal(size=(200, space.size)) * 2
    subset = generator.integers(len(subsets), size=200)
    subgoal = generator.uniform(-1, 1, size=(200, len(task_map)))
    interface = GoalInterface(space, subsets, task_map, delta_actions=delta_actions)
    found = interface.translate(torch.tensor(features).float(), torch.tensor(subset), torch.tensor(subgoal).float())
    expected = reference(space, subsets, task_map, features, subset, subgoal, delta_actions)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == torch.float32
        assert_close(mine.double(), theirs, atol=2e-5, rtol=1e-5)


def test_subgoals_are_read_in_the_order_of_the_task_map():
    interface = GoalInterface(HUMANOID_BODYFEET, HUMANOID_SUBSETS, HUMANOID_MAP)
    assert interface.subsets[1] == "0,3,2"
    assert interface.subgoal_index == [[0, 2], [0, 2, 1], [2, 7, 8, 9, 3], [1, 2, 4, 5, 6]]
    features = [0.0] * 12
    subgoal = [0.1 * (k + 1) for k in range(10)]
    goal, _ = decide(interface, features, 1, subgoal)
    # x: 0.1 * 3 m; height: entry 1, 1.225 + 0.2 * 0.275; heading: entry 2, 0.3 * 1.57
    assert goal[:4] == pytest.approx([0.3, 1.28, 0.471, 0.0], abs=1e-5)
    listed = subgoal.copy()  # a twin that reads entry i for the i-th feature that the subset lists
    for place, position in enumerate(interface.subgoal_index[1]):
        listed[position] = subgoal[place]
    twin, _ = decide(interface, features, 1, listed)
    assert twin[:4] == pytest.approx([0.3, 1.3075, 0.314, 0.0], abs=1e-5)
    assert max(abs(a - b) for a, b in zip(goal, twin, strict=True)) > 0.02


def test_what_is_left_is_carried_and_its_target_stays():
    space, subsets, task_map = SPACES["humanoid"]
    interface = GoalInterface(space, subsets, task_map)
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(50, 12, generator=generator)
    subset = torch.randint(4, (50,), generator=generator)
    goal, task = interface.translate(features, subset, torch.rand(50, 10, generator=generator) * 2 - 1)
    later, left = features, goal
    for _ in range(5):
        moved = later + torch.randn(50, 12, generator=generator)
        left = interface.carry(later, moved, left, task)
        later = moved
    difference = (features - later)[:, interface.members] + goal
    expected = difference.clone()
    twist = HUMANOID_MAP["3"]
    expected[:, twist] = torch.remainder(difference[:, twist] + math.pi, 2 * math.pi) - math.pi
    assert_close(left, expected * task, atol=2e-5, rtol=1e-5)
    assert (left[:, twist].abs() <= math.pi + 1e-6).all()


def test_a_robot_that_moves_as_it_is_told_arrives():
    interface = walker("0,1", "2", "3,4,5,6")
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(30, 7, generator=generator)
    subset, subgoal = torch.arange(3).repeat(10), torch.rand(30, 7, generator=generator) * 2 - 1
    goal, task = interface.translate(features, subset, subgoal)
    for _ in range(4):  # a kinematic robot: a third of the rest in each step, then all of it
        step = torch.zeros(30, 7)
        step[:, interface.members] = goal / 3
        goal = interface.carry(features, features + step, goal, task)
        features = features + step
    step = torch.zeros(30, 7)
    step[:, interface.members] = goal
    assert_close(interface.carry(features, features + step, goal, task), torch.zeros(30, 7), atol=1e-6, rtol=0)


def test_distance_is_that_of_the_subset_and_reward_what_it_lost():
    interface = walker("0", "0,1")
    # height 1.5 projects to 1 and x = 1.5 to 0.5: (0 - 1, 0.5 - 0.5) and (0.2 - 1, 1.5 - 0.5)
    features = torch.tensor([[1.5, 1.5, 0, 0, 0, 0, 0]] * 2)
    subgoal = torch.tensor([[0.0, 9.0, 9, 9, 9, 9, 9], [0.2, 1.5, 9, 9, 9, 9, 9]])
    subset = torch.tensor([0, 1])
    distance = interface.distance(features, subset, subgoal)
    assert distance.tolist() == pytest.approx([1.0, math.hypot(0.8, 1.0)], abs=1e-5)
    lower = features.clone()
    lower[:, 0] = 1.225
    reward = interface.reward(features, lower, subset, subgoal)
    assert reward.tolist() == pytest.approx([1.0, math.hypot(0.8, 1.0) - math.hypot(0.2, 1.0)], abs=1e-5)


def test_masked_features_have_no_entry_but_are_translated():
    interface = walker("0,1", "2,3", mask_features=[1, 3])
    assert interface.action_mask.tolist() == [[1, 0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0]]
    assert interface.task_bits.tolist() == [[1, 1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0, 0]]
    goal, _ = decide(interface, [1.225, 0, 0, 0, 0, 0, 0], 0, [0.0, 0.5] + [0.0] * 5)
    assert goal[1] == pytest.approx(1.5)
    with pytest.raises(ValueError, match=r"leave nothing to decide in the subset '1'"):
        walker("0", "1", mask_features=[1])
    with pytest.raises(ValueError, match="mask_features names feature 9"):
        walker("0", mask_features=[9])


def test_permuting_subsets_permutes_rows():
    subsets, order = ["0", "1", "3,4"], [2, 0, 1]
    first, second = walker(*subsets), walker(*(subsets[k] for k in order))
    assert_close(second.task_bits, first.task_bits[order])
    assert_close(second.action_mask, first.action_mask[order])
    features, subgoal = torch.randn(3, 7), torch.randn(3, 7)
    assert_close(
        second.translate(features, torch.tensor([0, 1, 2]), subgoal),
        first.translate(features, torch.tensor(order), subgoal),
    )


def test_subsets_are_chosen_by_success_and_rank_of_their_groups():
    success = {"10": 0.95, "2": 0.95, "0+3,2+3": 0.9, "0": 0.2, "3+4": 0.9, "0,3+4": 0.91, "total": 1.0, "1,2,3": 0.99}
    assert choose_subsets(success, 0.1) == ["2", "3,4", "10", "0,3,2", "0,3,4", "1,2,3"]
    assert choose_subsets(success, 1.0, 1, 1) == ["0", "2", "3,4", "10"], "both members of a group have one rank"
    assert choose_subsets(success, 1.0, 3) == ["1,2,3"]
    with pytest.raises(
        ValueError, match=r"no subset of ranks 2 to 99 has a success of 0.995 or more.*raise from_lo_eps"
    ):
        choose_subsets(success, 0.005, 2)
    with pytest.raises(ValueError, match=r"of ranks 2 to 2 has .* among 2, the best of which has 0\.91; raise"):
        choose_subsets(success, 0.05, 2, 2)  # those of other ranks, 0.99 the best of them, are not asked for
    with pytest.raises(ValueError, match=r"no subset of ranks 4 to 9 is among the 7 known ones; ranks are 1 to 3"):
        choose_subsets(success, 1.0, 4, 9)
    for nothing in ({}, {"total": 0.5}):
        with pytest.raises(ValueError, match=r"no subset of ranks 1 to 99 is among the 0 known ones; name them in sub"):
            choose_subsets(nothing, 1.0)
    for ranks in ((0, 0), (0, 3), (3, 2)):
        with pytest.raises(ValueError, match="use 1 <= rank_min <= rank_max"):
            choose_subsets(success, 1.0, *ranks)


def test_bad_goal_spaces_are_told_in_a_sentence():
    with pytest.raises(ValueError, match="no goal spaces are selected"):
        walker()
    with pytest.raises(ValueError, match="feature 4 of subset '0,4' is not in the task map"):
        GoalInterface(WALKER_BODYFEET, ["0,4"], {"0": 0, "1": 1})
    with pytest.raises(ValueError, match="'a,b' is no subset"):
        walker("a,b")


def test_the_walkers_skills_give_the_published_sizes():
    skills = Skills.load("walker")
    subsets = subsets_of_skills(skills)
    interface = GoalInterface(skills.space, subsets, skills.task_map)
    env = make_env("walker/hurdles", 1)
    high = len(component_names(env.spec, "policy")) + 1  # and the phase
    env.close()
    assert (len(subsets), interface.subgoal_size) == (31, 7)
    assert high == 64
    assert high + 31 + 31 * 7 == 312
    assert sum(map(len, skills.inputs.values())) == 73
    assert len(interface.describe()) == 31
    assert interface.describe()[0].split() == ["0", "0", "rootz:p"]
    goal, task = interface.translate(torch.zeros(5, 7), torch.arange(5), torch.rand(5, 7))
    assert skills.act(torch.zeros(5, 59), goal, task).shape == (5, 6)


def test_groups_of_a_configuration_are_goal_spaces_that_skills_must_have_learnt():
    skills = Skills.load("walker")
    assert subsets_of_skills(skills, "0-1-2-3+4-5+6") == ["0,1,2,3,4,5,6"]
    assert subsets_of_skills(skills, "0#3+4") == ["0", "3,4", "0,3,4"]
    assert subsets_of_skills(skills, "0#3+4", rank_min=2) == ["0,3,4"]
    for never in ("3", "0#9"):
        with pytest.raises(
            SkillFileError, match=r"the skills never learnt the subset.*choose among those they did: 0, 1"
        ):
            subsets_of_skills(skills, never)
    with pytest.raises(SkillFileError, match="no feature matches the subsets 'knee'"):
        subsets_of_skills(skills, "knee")
    for ranks in ((3, 99), (2, 1)):
        with pytest.raises(SkillFileError, match=r"2 groups, so ranks 1 to 2.*widen rank_min and rank_max"):
            subsets_of_skills(skills, "0#3+4", 1.0, *ranks)
    for spelled in ("0,3+4", "0,3,4"):  # as files and as metrics have it
        with pytest.raises(SkillFileError, match=r"is one goal space.*write 0-3-4 for it alone"):
            subsets_of_skills(skills, spelled)
    assert subsets_of_skills(skills, "0-3-4") == ["0,3,4"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_graph_records_it():
    interface = GoalInterface(HUMANOID_BODYFEET, HUMANOID_SUBSETS, HUMANOID_MAP).cuda()
    features, subset = torch.randn(64, 12).cuda(), torch.randint(4, (64,)).cuda()
    subgoal = torch.rand(64, 10).cuda()

    def work():
        goal, task = interface.translate(features, subset, subgoal)
        return interface.carry(features, features * 0.9, goal, task), interface.reward(
            features, features * 0.9, subset, subgoal
        )

    expected = work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = work()
    graph.replay()
    for mine, theirs in zip(found, expected, strict=True):
        assert_close(mine, theirs)
