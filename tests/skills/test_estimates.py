"""Controllability by the models, goals for given start states, and goals where visited features lie."""

import math

import numpy as np
import pytest
import torch

from gaitway.core.seeding import stream
from gaitway.envs.tasks.skills.goal_logic import GoalLogic
from gaitway.envs.tasks.skills.goal_spaces import HUMANOID_BODYFEET, WALKER_BODYFEET, GoalSpace
from gaitway.envs.tasks.skills.goals import TaskSet, length
from gaitway.envs.tasks.skills.options import HumanoidSkillConfig, WalkerSkillConfig
from gaitway.functional.clustering import GaussianMixture
from gaitway.skills import estimates
from gaitway.skills.estimates import (
    estimate_joint_spaces,
    goals_from,
    q_controllable,
    r_controllable,
    uniform_goals,
)

GAMMA = 1 - 1 / 72
WALKER = TaskSet(WALKER_BODYFEET, {str(feature): feature for feature in range(7)})
HUMANOID = TaskSet(HUMANOID_BODYFEET, {str(f): i for i, f in enumerate((0, 2, 3, 4, 6, 7, 8, 9, 10, 11))})


def random(seed=0):
    return stream(seed, "test")


def row(*numbers):
    return torch.tensor(numbers, dtype=torch.float32)


# estimates


def test_r_is_the_mean_of_clipped_values():
    # (0 + 0.25 + 0.75 + 1) / 4
    assert r_controllable(row(-0.5, 0.25, 0.75, 1.5)) == 0.5
    assert r_controllable(np.array([2.0, 2.0])) == 1.0


def test_q_uses_the_walkers_constants():
    # 72 steps * 0.001 * 0.25 * 6 actions = 0.108; (71 / 72)^72 = 0.3653
    slack, decay = 72 * 0.001 * 0.25 * 6, GAMMA**72
    assert (slack, decay) == (pytest.approx(0.108, abs=1e-12), pytest.approx(0.3653, abs=5e-5))
    # at distance 1.108 the value must be 0.36527...; below 0.108 less than nothing is enough
    threshold = (1.108 - slack) * decay
    for value, expected in [(threshold + 1e-4, 1.0), (threshold - 1e-4, 0.0)]:
        assert q_controllable(row(value), row(1.108), 72, 0.001, 6, GAMMA) == expected
    assert q_controllable(row(-0.039), row(0.0), 72, 0.001, 6, GAMMA) == 1.0
    assert q_controllable(row(-0.040), row(0.0), 72, 0.001, 6, GAMMA) == 0.0  # -0.108 * 0.36527 = -0.03945


def test_q_is_a_fraction_of_goals():
    # no cost, no discount: values 0.5, 1, 1.5 against distances 1, 1, 1: the equal one counts
    assert q_controllable(row(0.5, 1.0, 1.5), row(1, 1, 1), 10, 0.0, 4, 1.0) == pytest.approx(2 / 3)
    # horizon 2, cost 0.5, 4 actions: 2 * 0.5 * 0.25 * 4 = 1; gamma^2 = 0.25: thresholds 0, 0.25, 0.5
    assert q_controllable(row(0.0, 0.2, 0.5), row(1, 2, 3), 2, 0.5, 4, 0.5) == pytest.approx(2 / 3)


def test_twins_of_q_are_told_apart():
    value, distance = torch.rand(500, generator=random()), 2 * torch.rand(500, generator=random(1))
    found = q_controllable(value, distance, 72, 0.001, 6, GAMMA)
    rule = (value >= (distance - 0.108) * GAMMA**72).double().mean().item()
    assert found == pytest.approx(rule, abs=1e-9)
    assert found != q_controllable(value, distance, 72, 0.0, 6, GAMMA)  # controls for free
    assert found != q_controllable(value, distance, 72, 0.001, 6, 1.0)  # no discount
    assert found != (value >= distance * GAMMA**72 - 0.108).double().mean().item()  # cost after the discount


@pytest.mark.parametrize("kind", [torch.float16, torch.float32, torch.float64])
def test_estimates_take_any_precision_and_arrays(kind):
    value, distance = torch.tensor([0.5, 1.5], dtype=kind), torch.tensor([1.0, 1.0], dtype=kind)
    assert q_controllable(value, distance, 1, 0.0, 1, 1.0) == 0.5
    assert q_controllable(value.numpy(), distance.numpy(), 1, 0.0, 1, 1.0) == 0.5
    assert q_controllable(value.requires_grad_(), distance, 1, 0.0, 1, 1.0) == 0.5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_estimates_on_a_gpu():
    assert q_controllable(row(0.5, 1.5).cuda(), row(1, 1), 1, 0.0, 1, 1.0) == 0.5
    assert r_controllable(row(0.5, 1.5).cuda()) == 0.75


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"min_q": row(1, 2)}, r"min_q is \[2\] but distance is \[3\]"),
        ({"min_q": row(1, 2, 3).unsqueeze(1)}, r"min_q is \[3, 1\]; use \[n\]"),
        ({"min_q": row(), "distance": row()}, r"min_q is \[0\]; use \[n\] with at least one"),
        ({"min_q": row(1, math.nan, 2)}, "min_q holds NaN or infinite values"),
        ({"distance": row(1, math.inf, 2)}, "distance holds NaN or infinite values"),
        ({"horizon": 0}, "horizon is 0"),
        ({"actions": 0}, "actions 0"),
        ({"ctrl_cost": -1.0}, "ctrl_cost -1.0"),
        ({"gamma": 0.0}, "gamma 0.0"),
        ({"gamma": 1.5}, "gamma 1.5"),
    ],
)
def test_bad_estimates(options, said):
    given = {"min_q": row(1, 2, 3), "distance": row(1, 2, 3), "horizon": 72, "ctrl_cost": 0.0, "actions": 6, "gamma": 1}
    with pytest.raises(ValueError, match=said) as caught:
        q_controllable(**{**given, **options})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("reach", [row(), row(0.5, math.nan), row(0.5).unsqueeze(0)])
def test_bad_reachability(reach):
    with pytest.raises(ValueError, match="reach "):
        r_controllable(reach)


# goals for start states


def test_uniform_goals_fill_the_range():
    goals = uniform_goals(HUMANOID_BODYFEET, 4000, random())
    assert goals.shape == (4000, 12)
    assert goals.dtype == np.float64
    assert goals.min() >= -1.0
    assert goals.max() < 1.0
    assert np.abs(goals.mean(0)).max() < 0.05
    np.testing.assert_allclose(goals.var(0), 1 / 3, atol=0.03)
    assert np.array_equal(goals, uniform_goals(HUMANOID_BODYFEET, 4000, random()))
    still = uniform_goals(HUMANOID_BODYFEET, 5, random(), zero_twist=True)
    assert (still[:, 3] == 0).all()
    assert (still[:, :3] != 0).all()


def test_a_walkers_goals_by_hand():
    # height 1.225 is the middle of its range, x = 30 m is far from home, pitch 0.65 is half way up
    features = np.array([[1.225, 30.0, 0.65, 0.0, -1.0, 0.0, -1.0]])
    drawn = np.array([[1.0, -0.5, 0.0, 0.3, 0.3, 0.3, 0.3]])
    found = goals_from(WALKER, "0,1,2", features, drawn)
    # x: half the range back, 1.5 m, wherever it is; projected 10 - 0.5; height to 1.5; pitch to 0
    np.testing.assert_allclose(found.goal, [[1.0, 9.5, 0.0, 0, 0, 0, 0]], atol=1e-5)
    np.testing.assert_allclose(found.desired_goal, [[0.275, -1.5, -0.65, 0, 0, 0, 0]], atol=1e-5)
    assert found.task.tolist() == [[1, 1, 1, 0, 0, 0, 0]]
    # sqrt(1 + 0.25 + 0.25)
    assert found.distance[0] == pytest.approx(math.sqrt(1.5), abs=1e-5)
    assert found.desired_goal.dtype == found.task.dtype == np.float32


def test_angles_wrap_by_hand():
    features = np.zeros((1, 12))
    features[0, 3] = 3.0
    drawn = np.zeros((1, 12))
    drawn[0, 3] = -1.0  # -1.57 rad: 4.57 rad back, or 1.713 rad on
    found = goals_from(HUMANOID, "3+4", features, drawn)
    left = 2 * math.pi - 4.57
    np.testing.assert_allclose(found.desired_goal[0, 2], left, atol=1e-5)
    assert found.distance[0] == pytest.approx(left / 1.57, abs=1e-5)


def test_a_twin_without_wrap_overestimates_distances():
    features = np.zeros((2000, 12))
    features[:, 3] = np.linspace(-math.pi, math.pi, 2000)
    drawn = uniform_goals(HUMANOID_BODYFEET, 2000, random())
    found = goals_from(HUMANOID, "3+4", features, drawn)
    space = HUMANOID_BODYFEET
    mask = HUMANOID.mask(np.full(2000, HUMANOID.key_of("3+4")))
    twin = length((space.absolute(drawn, space.project(features)) - space.project(features)) * mask)
    assert (found.distance <= twin + 1e-9).all()
    assert (twin - found.distance).max() > 0.9
    turned = features + 2 * math.pi * (np.arange(12) == 3)
    np.testing.assert_allclose(goals_from(HUMANOID, "3+4", turned, drawn).distance, found.distance, atol=1e-9)
    assert np.abs(found.desired_goal[:, 2]).max() <= math.pi + 1e-6
    # a promise that suffices for the wrapped distance does not for the twin's
    value = torch.from_numpy(found.distance)
    assert q_controllable(value, found.distance, 72, 0.0, 21, 1.0) == 1.0
    assert q_controllable(value, twin, 72, 0.0, 21, 1.0) < 0.9


def test_a_twin_without_offset_sends_the_robot_home():
    features = np.zeros((100, 7))
    features[:, 1] = 30.0
    drawn = uniform_goals(WALKER_BODYFEET, 100, random())
    found = goals_from(WALKER, "1", features, drawn)
    assert found.distance.max() <= 1.0
    assert np.abs(found.desired_goal).max() <= 3.0 + 1e-5
    twin = np.abs(drawn[:, 1] - WALKER_BODYFEET.project(features)[:, 1])
    assert twin.min() > 8.0


@pytest.mark.parametrize("robot", ["walker", "humanoid"])
@pytest.mark.parametrize("seed", range(3))
def test_goals_are_those_of_the_environment(robot, seed):
    config = WalkerSkillConfig(rank_max=5) if robot == "walker" else HumanoidSkillConfig(rank_max=5)
    space = WALKER_BODYFEET if robot == "walker" else HUMANOID_BODYFEET
    logic, count = GoalLogic(robot, config, space, 6), 40
    seeds = np.arange(count) + 100 * seed
    logic.attach({}, seeds, lambda rows: np.zeros((len(rows), 1), dtype=np.float32))
    logic.memory["features"][:] = np.random.default_rng(seed).uniform(-4, 4, (count, space.size))
    logic.next_goals(np.arange(count))
    memory, positions = logic.memory, len(logic.tasks.members)
    out = {name: np.zeros((count, positions), dtype=np.float32) for name in ("desired_goal", "task")}
    out["gs_observation"] = np.zeros((count, space.size), dtype=np.float32)
    logic.observe(slice(None), out)
    # what was drawn in [-1, 1]: the absolute goal without the offset of delta features
    drawn = memory["goal"].copy()
    drawn[:, space.delta] -= space.project(memory["features"])[:, space.delta]
    for number in range(count):
        subset = logic.tasks.name_of(int(memory["task_key"][number]))
        one = slice(number, number + 1)
        found = goals_from(logic.tasks, subset, memory["features"][one], drawn[one])
        np.testing.assert_allclose(found.goal, memory["goal"][one], atol=1e-12)
        np.testing.assert_allclose(found.distance, memory["distance"][one], atol=1e-12)
        np.testing.assert_allclose(found.desired_goal, out["desired_goal"][one], atol=1e-6)
        np.testing.assert_array_equal(found.task, out["task"][one])


def test_groups_that_share_a_feature_are_one_mask():
    found = goals_from(HUMANOID, "0+3,2+3", np.zeros((1, 12)), np.full((1, 12), 0.5))
    assert found.task.tolist() == [[1, 1, 1, 0, 0, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("subset", "features", "drawn", "said"),
    [
        ("9", np.zeros((2, 7)), np.zeros((2, 7)), "feature 9 of subset '9' cannot be controlled"),
        ("0", np.zeros((2, 6)), np.zeros((2, 7)), r"features are \[2, 6\]; use \[n, 7\]"),
        ("0", np.zeros((2, 7)), np.zeros(7), r"drawn are \[7\]; use \[n, 7\]"),
        ("0", np.zeros((2, 7)), np.zeros((3, 7)), "3 goals for 2 start states"),
    ],
)
def test_bad_goals(subset, features, drawn, said):
    with pytest.raises(ValueError, match=said):
        goals_from(WALKER, subset, features, drawn)


def test_arguments_are_left_alone():
    features, drawn = np.full((3, 12), 0.5), np.full((3, 12), 0.25)
    goals_from(HUMANOID, "0+3,2+3", features, drawn)
    estimate_joint_spaces("kmeans", features, HUMANOID_BODYFEET, random())
    assert (features == 0.5).all()
    assert (drawn == 0.25).all()


# goals where visited features lie


def visited(count=3000, seed=0):
    """Features of a Walker that bends as it goes down, left foot forward when the right one is back, far from home."""
    draws = np.random.default_rng(seed)
    bend = draws.uniform(-0.5, 0.5, count)
    projected = np.stack([-bend, bend, bend, bend, 0 * bend + 0.2, -bend, 0 * bend - 0.2], axis=1)
    projected += 0.02 * draws.standard_normal(projected.shape)
    features = WALKER_BODYFEET.back_project(projected)
    features[:, 1] = draws.uniform(50, 100, count)
    return features


@pytest.mark.parametrize("kind", ["gmm", "kmeans"])
def test_proposals_lie_where_features_were(kind):
    space = estimate_joint_spaces(kind, visited(), WALKER_BODYFEET, random())
    goals = space.draw(1024, random(1))
    assert goals.shape == (1024, 7)
    assert np.abs(goals).max() <= 1.0
    correlation = np.corrcoef(goals[:, [0, 2, 3, 5]].T)
    assert correlation[0, 1] < -0.95
    assert correlation[1, 2] > 0.95
    assert correlation[2, 3] < -0.95
    np.testing.assert_allclose(goals[:, [4, 6]].mean(0), [0.2, -0.2], atol=0.02)
    # x is a delta feature: where in the world the robot was has no say
    assert abs(goals[:, 1].mean()) < 0.1
    assert goals[:, 1].var() == pytest.approx(1 / 3, abs=0.05)
    uniform = uniform_goals(WALKER_BODYFEET, 1024, random(1))
    assert abs(np.corrcoef(uniform[:, [0, 2]].T)[0, 1]) < 0.1  # the twin: ranges alone


def test_kinds_and_sizes():
    assert (estimates.COMPONENTS, estimates.CENTRES) == (32, 1024)
    mixture = estimate_joint_spaces("gmm", visited(), WALKER_BODYFEET, random())
    assert isinstance(mixture.model, GaussianMixture)
    assert mixture.model.means.shape == (32, 6)
    assert mixture.fitted == [0, 2, 3, 4, 5, 6]
    centres = estimate_joint_spaces("kmeans", visited(), WALKER_BODYFEET, random())
    assert centres.model.shape == (1024, 6)


def test_every_centre_is_proposed_equally_often():
    space = estimate_joint_spaces("kmeans", visited(10), WALKER_BODYFEET, random())
    assert space.model.shape == (10, 6)
    goals = space.draw(25, random())
    _, counts = np.unique(goals[:, 0], return_counts=True)
    assert sorted(counts) == [2] * 5 + [3] * 5


@pytest.mark.parametrize("kind", ["gmm", "kmeans"])
def test_proposals_beyond_the_range_are_clipped(kind):
    features = WALKER_BODYFEET.back_project(np.full((50, 7), 1.7))
    goals = estimate_joint_spaces(kind, features, WALKER_BODYFEET, random()).draw(20, random())
    np.testing.assert_array_equal(goals[:, [0, 2, 3, 4, 5, 6]], 1.0)


@pytest.mark.parametrize("kind", ["gmm", "kmeans"])
def test_angles_are_wrapped_before_they_are_fitted(kind):
    # the heading is 0.5 rad, counted with whole turns as a simulator may do
    draws = np.random.default_rng(0)
    features = 0.1 * draws.standard_normal((500, 12))
    features[:, 3] += 0.5 + 2 * math.pi * draws.integers(-3, 4, 500)
    goals = estimate_joint_spaces(kind, features, HUMANOID_BODYFEET, random()).draw(500, random())
    np.testing.assert_allclose(goals[:, 3].mean(), 0.5 / 1.57, atol=0.03)
    assert np.abs(goals[:, 3] - 0.5 / 1.57).max() < 0.4
    unwrapped = np.clip(HUMANOID_BODYFEET.project(features)[:, 3], -1, 1)  # the twin
    assert (np.abs(unwrapped) == 1).mean() > 0.7


@pytest.mark.parametrize("kind", ["gmm", "kmeans"])
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_few_or_equal_features_are_no_trouble(kind, rows):
    few = estimate_joint_spaces(kind, visited(rows), WALKER_BODYFEET, random()).draw(64, random())
    assert np.isfinite(few).all()
    same = estimate_joint_spaces(kind, np.repeat(visited(1), rows, axis=0), WALKER_BODYFEET, random())
    goals = same.draw(64, random())
    expected = np.clip(WALKER_BODYFEET.project(visited(1)), -1, 1)[:, [0, 2, 3, 4, 5, 6]]
    np.testing.assert_allclose(goals[:, [0, 2, 3, 4, 5, 6]], np.repeat(expected, 64, axis=0), atol=0.01)


@pytest.mark.parametrize("kind", ["gmm", "kmeans"])
def test_the_same_generator_gives_the_same_proposals(kind, monkeypatch):
    monkeypatch.setattr(estimates, "MOST_ROWS", 300)
    features = torch.from_numpy(visited(1000)).float()
    one, other = (estimate_joint_spaces(kind, features, WALKER_BODYFEET, random()).draw(64, random()) for _ in "ab")
    assert np.array_equal(one, other)
    another = estimate_joint_spaces(kind, features, WALKER_BODYFEET, random(1)).draw(64, random())
    assert not np.array_equal(one, another)


def test_a_space_of_delta_features_alone_is_uniform():
    space = GoalSpace(("x", "y"), (-3, -3), (3, 3), delta=(0, 1))
    found = estimate_joint_spaces("gmm", np.full((5, 2), 40.0), space, random())
    assert np.array_equal(found.draw(16, random(1)), uniform_goals(space, 16, random(1)))


def test_a_feature_with_a_point_for_a_range_is_not_fitted():
    space = GoalSpace(("a", "b"), (0, 1), (1, 1))
    assert estimate_joint_spaces("kmeans", np.random.default_rng(0).random((9, 2)), space, random()).fitted == [0]


def test_proposals_serve_as_goals():
    space = estimate_joint_spaces("gmm", visited(), WALKER_BODYFEET, random())
    found = goals_from(WALKER, "0,3+4", visited(16, 1), space.draw(16, random()))
    assert (found.distance < 1.8).all()


@pytest.mark.parametrize(
    ("kind", "features", "said"),
    [
        ("gm", np.zeros((5, 7)), r"estimate_joint_spaces is 'gm' \(did you mean 'gmm'\?\); use one of"),
        ("k-means", np.zeros((5, 7)), "did you mean 'kmeans'"),
        (None, np.zeros((5, 7)), "estimate_joint_spaces is None"),
        ("gmm", np.zeros((0, 7)), "0 visited features.*collect steps first"),
        ("kmeans", np.full((5, 7), np.nan), "5 visited features, of which 5 are not finite"),
        ("gmm", np.zeros((5, 6)), r"features are \[5, 6\]; use \[n, 7\]"),
    ],
)
def test_bad_joint_spaces(kind, features, said):
    with pytest.raises(ValueError, match=said) as caught:
        estimate_joint_spaces(kind, features, WALKER_BODYFEET, random())
    assert "\n" not in str(caught.value)
