"""Targets: where they are drawn, what is seen of them, what reaching them pays, and what comes next."""

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
from gaitway.envs.tasks.bisk.open_floor import FloorTask
from gaitway.envs.tasks.bisk.targets import NUM_DRAWN, shaped_reward


def row_of(*targets: tuple[float, float], num_envs: int = 1) -> dict[str, np.ndarray]:
    """These targets, then ones far away, all different."""
    course = np.zeros((num_envs, NUM_DRAWN, 2))
    course[:, :, 0] = 100.0 + np.arange(NUM_DRAWN)
    course[:, : len(targets)] = targets
    return {"target": course}


def test_layout_laws() -> None:
    generator = np.random.default_rng(1)
    uniform = generator.random((100, 2 * NUM_DRAWN))
    target = NATIVE_TASKS["humanoid/gototargets"]().sample_course(uniform)["target"]
    assert target.shape == (100, 64, 2)
    for axis in range(2):
        assert kstest(target[:, :, axis].reshape(-1), "uniform", args=(-8, 16)).pvalue > 0.01
        assert kstest(target[:, :, axis].reshape(-1), "uniform", args=(-8.8, 17.6)).pvalue < 1e-6
    assert abs(np.corrcoef(target.reshape(-1, 2).T)[0, 1]) < 0.05
    planar = NATIVE_TASKS["walker/gototargets"]()
    assert planar.course_draws() == NUM_DRAWN
    drawn = planar.sample_course(generator.random((200, NUM_DRAWN)))["target"]
    assert kstest(drawn[:, :, 0].reshape(-1), "uniform", args=(-8, 16)).pvalue > 0.01
    assert not drawn[:, :, 1].any()
    near = NATIVE_TASKS["walker/gototargets"](goal_area=2.0).sample_course(generator.random((9, NUM_DRAWN)))["target"]
    assert 1.9 < np.abs(near).max() <= 2.0


def test_the_sphere_lies_on_a_circle() -> None:
    generator = np.random.default_rng(2)
    target = NATIVE_TASKS["humanoid/gotosphere"]().sample_course(generator.random((10_000, 1)))["target"]
    assert target.shape == (10_000, 1, 2)
    np.testing.assert_allclose(np.hypot(target[..., 0], target[..., 1]), 4.0)
    angle = np.arctan2(target[:, 0, 1], target[:, 0, 0])
    assert kstest(angle, "uniform", args=(-np.pi, 2 * np.pi)).pvalue > 0.01
    assert kstest(angle, "uniform", args=(-2.8, 5.6)).pvalue < 1e-6
    planar = NATIVE_TASKS["walker/gotosphere"]().sample_course(generator.random((10_000, 1)))["target"]
    assert set(planar[:, 0, 0]) == {-4.0, 4.0}
    assert abs((planar[:, 0, 0] > 0).mean() - 0.5) < 0.025  # five deviations
    assert not planar[:, 0, 1].any()


@pytest.mark.parametrize("broken", [False, True])
def test_targets_are_seen_in_the_torsos_frame(broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if broken:  # turned the other way
        turn = FloorTask.torso_rotation
        monkeypatch.setattr(FloorTask, "torso_rotation", lambda *given: turn(*given).transpose(0, 2, 1))
    env = make("humanoid/gototargets")
    qpos, qvel = env.scenario()["qpos"], env.scenario()["qvel"] * 0
    half = math.sqrt(0.5)
    state = {"qpos": qpos, "qvel": qvel, "settle": [False], **row_of((3.0, 2.0), (-1.0, 0.5))}
    qpos[0, :3] = torch.tensor([1.0, 1.0, 1.3])
    seen = {}
    for name, quaternion in {
        "straight": (1.0, 0.0, 0.0, 0.0),
        "left": (half, 0.0, 0.0, half),  # x of the torso is y of the world, y of the torso is -x of the world
        "down": (half, 0.0, half, 0.0),  # x of the torso is -z of the world, z of the torso is x of the world
    }.items():
        qpos[0, 3:7] = torch.tensor(quaternion)
        seen[name] = env.load_scenario(state)["policy"][0, :6].tolist()
    # offsets from the torso are (2, 1) and (-2, -0.5)
    assert seen["straight"] == pytest.approx([2, 1, 0, -2, -0.5, 0])
    turned = {"left": [1, -2, 0, -0.5, 2, 0], "down": [0, 1, 2, 0, -0.5, -2]}
    for name, expected in turned.items():
        assert (seen[name] == pytest.approx(expected, abs=1e-12)) != broken


def test_planar_robots_see_distances() -> None:
    env = make("walker/gototargets", num_targets=3)
    assert begin(env, 1.5, **row_of((3.0, 0.0), (-1.0, 0.0)))[0, :3].tolist() == pytest.approx([1.5, -2.5, 100.5])
    names = [component.name for component in env.spec.group("policy").components[:3]]
    assert names == ["target_0_distance", "target_1_distance", "target_2_distance"]
    assert make("halfcheetah/gotosphere").task.views["targets"] == slice(0, 1)


def test_shaped_rewards_by_hand() -> None:
    distance = np.array([0.0, 2.0, 4.0, 8.0, 100.0])
    assert shaped_reward(distance, 4.0).tolist() == pytest.approx([0, -0.1 * (1 - 0.1**0.25), -0.09, -0.09999, -0.1])
    assert shaped_reward(distance, 2.0).tolist() == pytest.approx([0, -0.09, -0.09999, -0.1, -0.1])
    for task, margin in (("gototargets", 4.0), ("gotosphere", 2.0)):
        for shaped in (False, True):
            env = make(f"cube/{task}", shaped=shaped)
            course = row_of((3.0, 4.0)) if task == "gototargets" else {"target": np.array([[[3.0, 4.0]]])}
            begin(env, 0.0, 0.3, **course)
            step = env.step(act(env, 0.0, 0.0, HOVER))  # 5 m away, seen from above
            expected = -0.1 * (1 - 0.1 ** ((5.0 / margin) ** 2))
            assert step.metrics["shaped_reward"].tolist() == pytest.approx([expected], abs=1e-6)
            assert step.reward.tolist() == pytest.approx([expected if shaped else 0.0], abs=1e-6)


@pytest.mark.parametrize(
    ("robot", "push"),
    [("cube", (0.6, 0.8, HOVER)), ("cube2d", (1.0, HOVER))],
)
def test_a_cube_goes_from_target_to_target(robot: str, push: tuple[float, ...]) -> None:
    env = make(f"{robot}/gototargets")
    goals = [(3.0, 4.0), (6.0, 8.0)] if robot == "cube" else [(5.0, 0.0), (10.0, 0.0)]
    begin(env, 0.0, 0.3, **row_of(*goals))
    scores = []
    for _ in range(60):
        number = int(env.task.memory["first_target"][0])
        step = env.step(act(env, *push))
        seen = step.obs["policy"][0].numpy()
        scores.append(float(step.metrics["score"][0]))
        assert torch.equal(step.reward, step.metrics["score"])
        assert not step.terminated.any()
        place = env.task.torso_position()[0, :2]
        distance = math.dist(place, goals[number]) if number < 2 else math.inf
        assert scores[-1] == (distance < 0.5)
        if scores[-1]:  # what was second is first, from where the robot is now
            first = goals[1] if number == 0 else (102.0, 0.0)
            shown = seen[:2] if robot == "cube" else seen[:1]
            np.testing.assert_allclose(shown, (np.array(first) - place)[: len(shown)], atol=1e-12)
    assert sum(scores) == 2.0
    assert env.task.memory["first_target"].tolist() == [2]


def test_at_the_radius_nothing_is_reached_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make("cube/gototargets", 3)
    begin(env, 0.0, 0.3, **row_of((5.0, 0.0), num_envs=3))
    env.task.qpos[:, 0] = 4.5 - 1e-9, 4.5, 4.5 + 1e-9
    monkeypatch.setattr(env.task, "advance", lambda: None)
    step = env.step(act(env, 0.0, 0.0, 0.0))
    assert step.metrics["score"].tolist() == [0.0, 0.0, 1.0]


def test_a_target_can_ask_for_several_steps() -> None:
    env = make("cube/gototargets", goal_switch_steps=3)
    begin(env, 2.8, 0.3, **row_of((3.0, 0.0)))
    scores = [float(env.step(act(env, 0.0, 0.0, HOVER)).metrics["score"][0]) for _ in range(5)]
    assert scores == [1.0, 1.0, 1.0, 0.0, 0.0]
    assert env.task.memory["first_target"].tolist() == [1]


def test_targets_begin_again_after_the_last() -> None:
    env = make("cube/gototargets", max_episode_steps=0)
    course = row_of((3.0, 0.0))
    begin(env, 0.0, 0.3, **course)
    env.task.memory["first_target"][:] = NUM_DRAWN - 1
    assert env.task.targets(slice(None), 2)[0].tolist() == [[163.0, 0.0], [3.0, 0.0]]
    env.task.memory["first_target"][:] = NUM_DRAWN
    assert env.task.targets(slice(None), 2)[0].tolist() == [[3.0, 0.0], [101.0, 0.0]]
    env.task.qpos[0, 0] = 3.0
    step = env.step(act(env, 0.0, 0.0, HOVER))
    assert step.metrics["score"].tolist() == [1.0]
    assert step.obs["policy"][0, 0] == pytest.approx(98.0, abs=0.01)


def test_every_episode_begins_with_its_own_first_target() -> None:
    env = make("cube/gototargets", 2, max_episode_steps=2, goal_switch_steps=2)
    course = row_of((0.0, 0.0), num_envs=2)
    begin(env, 0.0, 0.3, **course)
    step = env.step(act(env, 0.0, 0.0, HOVER))
    begin(env, 0.0, 0.3, **course)  # one step within reach is forgotten
    for expected in ([0, 0], [0, 0]):
        step = env.step(act(env, 0.0, 0.0, HOVER))
        assert step.metrics["score"].tolist() == [1.0, 1.0]
        assert env.task.memory["first_target"].tolist() == expected  # after the second step episodes begin anew
    assert step.truncated.all()
    np.testing.assert_allclose(step.final_obs["policy"][:, 0], 101.0, atol=0.1)
    drawn = env.scenario()["target"][:, 0] - torch.from_numpy(env.task.torso_position()[:, :2])
    assert torch.equal(step.obs["policy"][:, :2], drawn)


@pytest.mark.parametrize("shaped", [False, True])
def test_reaching_the_sphere_ends_the_episode(shaped: bool) -> None:
    env = make("cube/gotosphere", 2, shaped=shaped)
    begin(env, 0.0, 0.3, target=np.array([[[4.0, 0.0]], [[0.0, -4.0]]]))
    ends = torch.zeros(2, dtype=torch.bool)
    total = torch.zeros(2)
    for _ in range(60):
        step = env.step(torch.tensor([[1.0, 0.0, HOVER], [0.0, -0.9, HOVER]]))
        assert torch.equal(step.terminated, step.metrics["score"] == 1.0)
        assert not step.truncated.any()
        total += step.metrics["score"] * ~ends
        for row in torch.nonzero(step.terminated & ~ends)[:, 0].tolist():
            seen = step.final_obs["policy"][row, :2]
            assert math.hypot(*seen.tolist()) < 0.5
            if shaped:
                assert -0.1 * (1 - 0.1**0.0625) < step.reward[row] < 0.0
        ends |= step.terminated
        if ends.all():
            break
    assert total.tolist() == [1.0, 1.0]
    assert ends.all()


def trace(env: MujocoBatchEnv, plan: torch.Tensor) -> torch.Tensor:
    rows = []
    for action in plan:
        step = env.step(action)
        rows.append(torch.cat([step.obs["policy"], step.reward[:, None], step.metrics["shaped_reward"][:, None]], 1))
    return torch.stack(rows)


@pytest.mark.parametrize(("task", "tolerance"), [("gototargets", 6.0), ("gotosphere", 3.9)])
def test_a_stored_state_goes_on_bit_for_bit(task: str, tolerance: float) -> None:
    env = make(f"cube/{task}", 4, max_episode_steps=30, tolerance=tolerance)
    plan = random_actions(env, 60)
    trace(env, plan[:25])
    if task == "gototargets":
        assert env.task.memory["first_target"].any()  # in the middle of an episode, after a change
    state = env.state_dict()
    expected = trace(env, plan[25:])
    other = make(f"cube/{task}", 4, seed=77, max_episode_steps=30, tolerance=tolerance)
    other.load_state_dict(state)
    assert torch.equal(trace(other, plan[25:]), expected)
    if task == "gototargets":  # the number of the target is part of it
        other.load_state_dict(state)
        other.task.memory["first_target"][:] = 0
        assert not torch.equal(trace(other, plan[25:]), expected)


def test_targets_do_not_depend_on_the_batch() -> None:
    plan, traces = random_actions(make("cube/gototargets", 4), 60), []
    for num_envs in (4, 2):
        env = make("cube/gototargets", num_envs, seed=5, max_episode_steps=25, tolerance=6.0)
        traces.append(trace(env, plan[:, :num_envs])[:, :2])
    assert torch.equal(*traces)


def test_pictures_show_the_targets() -> None:
    env = make("humanoid/gototargets", 2)
    scene = Scene(env.task)
    for index in (1, 0):
        scene.update(index)
        for number in range(2):
            expected = env.task.layout["target"][index, number]
            np.testing.assert_allclose(scene.data.site(f"target_{number}").xpos[:2], expected)
            np.testing.assert_allclose(scene.data.site(f"target_disc_{number}").xpos[:2], expected)
            assert scene.model.site(f"target_disc_{number}").size[0] == 0.5
    env.task.memory["first_target"][0] = 5
    scene.update(0)
    np.testing.assert_allclose(scene.data.site("target_1").xpos[:2], env.task.layout["target"][0, 6])


def test_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="num_targets is 65; use an integer from 1 to 64"):
        make("cube/gototargets", num_targets=65)
    with pytest.raises(ValueError, match="goal_switch_steps is 0"):
        make("cube/gototargets", goal_switch_steps=0)
    with pytest.raises(ValueError, match=r"goal_area is -1; use a number > 0"):
        make("cube/gotosphere", goal_area=-1.0)
    with pytest.raises(TypeError, match="no option 'num_targets'"):
        make("cube/gotosphere", num_targets=2)
    with pytest.raises(ValueError, match="'target' of walker/gototargets has a y that is not 0"):
        make("walker/gototargets").load_scenario(row_of((1.0, 1.0)))
