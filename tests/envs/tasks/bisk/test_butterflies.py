"""Butterflies: where they hang, when the net touches them, and the grid in which they are seen."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from bisk_cases import HOVER, act, begin, make, random_actions
from scipy.stats import kstest

from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.pictures.scene import Scene
from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.tasks.bisk.butterflies import disc_touches, grid_fields

DISC = 0.2 + 0.5 + 0.15
"""Height of the disc's centre above the cube's (m)."""


def hanging(*places: tuple[float, float, float], num_envs: int = 1) -> dict[str, np.ndarray]:
    """Butterflies at these places, the others out of the way."""
    course = np.zeros((num_envs, 10, 3))
    course[:, :, 2] = 50.0 + np.arange(10)
    course[:, : len(places)] = places
    return {"butterfly": course}


def test_layout_law() -> None:
    task = NATIVE_TASKS["cube/butterflies"]()
    places = task.sample_course(np.random.default_rng(1).random((1000, 30)))["butterfly"]
    assert places.shape == (1000, 10, 3)
    for axis, (middle, half) in enumerate(((0.0, 4.0), (0.0, 4.0), (1.6, 0.5))):
        drawn = places[:, :, axis].reshape(-1)
        assert kstest(drawn, "uniform", args=(middle - half, 2 * half)).pvalue > 0.01
        assert kstest(drawn, "uniform", args=(middle - 1.1 * half, 2.2 * half)).pvalue < 1e-6
    assert np.abs(np.corrcoef(places.reshape(-1, 3).T) - np.eye(3)).max() < 0.05
    low = NATIVE_TASKS["cube/butterflies"](zoff=1.0, goal_area=2.0, n_butterflies=3)
    places = low.sample_course(np.full((1, 9), 0.75))["butterfly"]
    np.testing.assert_allclose(places, np.full((1, 3, 3), [1.0, 1.0, 1.25]))


def test_fields_by_hand() -> None:
    cases = {
        # direction -> row (18 degrees from +y each) and column (36 degrees each, from -z by -x and +z to +x)
        (0.0, 1.0, 0.0): (0, 5),  # atan2(0, 0) = 0
        (0.0, -1.0, 0.0): (9, 5),  # 180 degrees: clipped
        (1e-9, 0.0, 1.0): (5, 5),  # ahead
        (-1e-9, 0.0, 1.0): (5, 4),
        (1.0, 0.0, 0.0): (5, 7),  # 90 + 180 degrees
        (-1.0, 0.0, 0.0): (5, 2),
        (0.0, 0.0, -1.0): (5, 9),  # 180 + 180 degrees: clipped
        (-1e-9, 0.0, -1.0): (5, 0),
        (math.sin(0.1), math.cos(0.1), 0.0): (0, 7),  # 6 degrees off +y
        (math.sin(0.35), math.cos(0.35), 0.0): (1, 7),  # 20 degrees
    }
    for distance in (0.5, 3.0):
        for direction, (row, column) in cases.items():
            field, value = grid_fields(distance * np.array([direction]))
            assert (field[0] // 10, field[0] % 10) == (row, column), direction
            assert value[0] == pytest.approx(math.exp(-distance))
    field, value = grid_fields(np.zeros((1, 3)))  # in the head
    assert 0 <= field[0] <= 99
    assert value[0] == 1.0


def test_fields_equal_a_loop() -> None:
    seen = np.random.default_rng(0).normal(size=(40, 10, 3))
    field, value = grid_fields(seen)
    for row, number in np.ndindex(40, 10):
        x, y, z = seen[row, number]
        length = math.sqrt(x * x + y * y + z * z)
        latitude = math.degrees(math.acos(y / length)) / 18
        longitude = (math.degrees(math.atan2(x, z)) + 180) / 36
        assert field[row, number] == 10 * min(math.floor(latitude), 9) + min(math.floor(longitude), 9)
        assert value[row, number] == pytest.approx(math.exp(-length))


def test_the_grid_holds_the_nearest_that_is_not_caught() -> None:
    env = make("cube/butterflies")
    ahead, further, side = (0.1, 0.0, 1.5), (0.2, 0.0, 2.7), (-3.0, 0.0, 0.4)  # the cube is at (0, 0, 0.3)
    seen = begin(env, 0.0, 0.3, **hanging(ahead, further, side))[0, :100].reshape(10, 10)
    column = 5  # straight up
    assert seen[5, column] == pytest.approx(math.exp(-math.hypot(0.1, 1.2)))
    assert seen[5, 2] == pytest.approx(math.exp(-math.hypot(3.0, 0.1)))
    assert int((seen > 0).sum()) == 2  # those out of the way are straight up too
    env.task.memory["caught"][0, 0] = True
    out = np.empty((1, 100), dtype=np.float32)
    env.task.observe_task(slice(None), out)
    assert out.reshape(10, 10)[5, column] == pytest.approx(math.exp(-math.hypot(0.2, 2.4)))
    env.task.memory["caught"][:] = True
    env.task.observe_task(np.array([0], dtype=np.int32), out)
    assert not out.any()


def test_touching_by_hand() -> None:
    away = np.array(
        [
            (0.0, 0.0999, 0.0),  # beside the middle of the disc
            (0.0, 0.1001, 0.0),
            (0.2499, 0.0, 0.0),  # beside its rim, in its plane
            (0.0, 0.0, -0.2501),
            (0.15 * math.cos(1.0), 0.0999, 0.15 * math.sin(1.0)),  # before the rim
            (0.15 + 0.0706, 0.0706, 0.0),  # slantwise beyond the rim: 0.0998 away
            (0.15 + 0.0709, -0.0709, 0.0),  # 0.1003 away
            (0.2, -0.099, 0.0),
        ]
    )
    expected = [True, False, True, False, True, True, False, False]
    assert disc_touches(away, 0.15, 0.1).tolist() == expected
    # the nearest point of a finely cut disc says the same
    radius, angle = np.meshgrid(np.linspace(0, 0.15, 151), np.linspace(0, 2 * np.pi, 721))
    disc = np.stack([radius * np.cos(angle), np.zeros_like(angle), radius * np.sin(angle)], -1).reshape(-1, 3)
    nearest = np.linalg.norm(away[:, None] - disc, axis=2).min(axis=1)
    assert (nearest <= 0.1).tolist() == expected


def test_a_cube_catches_one_after_the_other() -> None:
    env = make("cube/butterflies")
    middle = 0.3 + DISC
    begin(env, 0.0, 0.3, **hanging((1.0, 0.0, middle), (2.0, 0.05, middle), (2.0, -0.05, middle), (3.0, 0.3, middle)))
    scores, caught = [], []
    for _ in range(40):
        step = env.step(act(env, 0.5, 0.0, HOVER))
        scores.append(float(step.metrics["score"][0]))
        caught.append(env.task.memory["caught"][0, :4].tolist())
        assert torch.equal(step.reward, step.metrics["score"])
        assert not step.terminated.any()
    assert env.task.qpos[0, 0] > 3.5
    assert [score for score in scores if score] in ([1.0, 2.0], [1.0, 1.0, 1.0])
    assert caught[-1] == [True, True, True, False]  # the last is 30 cm beside the way
    first = scores.index(1.0)
    assert caught[first] == [True, False, False, False]


def test_what_is_touched_between_two_steps_is_caught() -> None:
    # Along y, across the disc, a cube makes 0.25 m in a control step, more than a butterfly is thick.
    env = make("cube/butterflies", 2)
    begin(env, 0.0, 0.3, **hanging((0.0, 0.12, 0.3 + DISC), (0.0, 2.0, 0.3 + DISC), num_envs=2))
    env.task.qvel[:, 1] = 5.0, 0.0
    step = env.step(torch.tensor([[0.0, 1.0, HOVER], [0.0, 0.0, HOVER]]))
    end = float(env.task.qpos[0, 1])
    assert end > 0.23
    assert not disc_touches(np.array([0.0, 0.12 - end, 0.0]), 0.15, 0.1)
    assert not disc_touches(np.array([0.0, 0.12, 0.0]), 0.15, 0.1)
    assert step.metrics["score"].tolist() == [1.0, 0.0]


def test_one_touched_while_settling_is_gone_without_a_score() -> None:
    env = make("cube/butterflies", 2)
    qpos = torch.tensor([[0.0, 0.0, 0.3]] * 2)
    course = hanging((0.0, 0.0, 0.3 + DISC), num_envs=2)
    seen = env.load_scenario({"qpos": qpos, "qvel": torch.zeros(2, 3), "settle": [True, False], **course})["policy"]
    assert env.task.memory["caught"][:, 0].tolist() == [True, False]
    assert seen[0, :100].max() < 1e-9
    assert seen[1, :100].max() == pytest.approx(math.exp(-DISC))
    step = env.step(act(env, 0.0, 0.0, HOVER))
    assert step.metrics["score"].tolist() == [0.0, 1.0]
    assert step.obs["policy"][:, :100].max() < 1e-9
    begin(env, 0.0, 0.3, **course)  # in a new episode they all hang there again
    assert not env.task.memory["caught"].any()


def test_the_net_changes_nothing_about_the_cube() -> None:
    env = make("cube/butterflies")
    begin(env, 0.0, 1.0, **hanging((0.0, 0.0, 1.2)))
    other = make("cube/gototargets")
    begin(other, 0.0, 1.0)
    for action in random_actions(env, 10):
        env.step(action)
        other.step(action)
        np.testing.assert_array_equal(env.task.qpos, other.task.qpos)


def test_a_wider_net_catches_more() -> None:
    place = (0.0, 0.0, 0.3 + 0.7 + 0.5 + 0.55)  # within a disc of 0.5 m whose centre is at 1.5 m
    for radius, score in ((0.15, 0.0), (0.5, 1.0)):
        env = make("cube/butterflies", net_radius=radius)
        begin(env, 0.0, 0.3, **hanging(place))
        assert env.step(act(env, 0.0, 0.0, HOVER)).metrics["score"].tolist() == [score]


def trace(env: MujocoBatchEnv, plan: torch.Tensor) -> torch.Tensor:
    rows = []
    for action in plan:
        step = env.step(action)
        rows.append(torch.cat([step.obs["policy"], step.reward[:, None]], 1))
    return torch.stack(rows)


def test_a_stored_state_goes_on_bit_for_bit() -> None:
    options = {"net_radius": 2.0, "goal_area": 1.0, "max_episode_steps": 40}
    env = make("cube/butterflies", 4, **options)
    plan = random_actions(env, 60)
    trace(env, plan[:25])
    assert env.task.memory["caught"].any()
    state = env.state_dict()
    expected = trace(env, plan[25:])
    other = make("cube/butterflies", 4, seed=77, **options)
    other.load_state_dict(state)
    assert torch.equal(trace(other, plan[25:]), expected)
    other.load_state_dict(state)
    other.task.memory["caught"][:] = False
    assert not torch.equal(trace(other, plan[25:]), expected)


def test_pictures_show_the_net_and_those_that_are_left() -> None:
    env = make("cube/butterflies", 2)
    env.task.memory["caught"][:] = False
    env.task.memory["caught"][1, 3] = True
    scene = Scene(env.task)
    for index in (1, 0):
        scene.update(index)
        for number in range(10):
            height = scene.data.site(f"butterfly_{number}").xpos[2]
            if (index, number) == (1, 3):
                assert height == -10.0
            else:
                place = scene.data.site(f"butterfly_{number}").xpos
                np.testing.assert_allclose(place, env.task.layout["butterfly"][index, number])
        np.testing.assert_allclose(scene.data.site("net").xpos, env.task.qpos[index] + [0.0, 0.0, DISC])
    assert scene.model.site("net").size[0] == scene.model.site("net").size[2] == 0.15


def test_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="n_butterflies is 0"):
        make("cube/butterflies", n_butterflies=0)
    with pytest.raises(ValueError, match=r"net_radius is 0; use a number > 0"):
        make("cube/butterflies", net_radius=0.0)
    with pytest.raises(TypeError, match="no option 'shaped'"):
        make("cube/butterflies", shaped=True)
    assert "walker/butterflies" not in NATIVE_TASKS
