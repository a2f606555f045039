"""GoalWall: the ball, shots with known ends, the line, and the bonus for a touch."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest
import torch
from bisk_cases import HOVER, act, begin, make
from mujoco.batch import Batch, SimulationError
from scipy.stats import kstest

from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.tasks import NATIVE_TASKS


def shoot(env: MujocoBatchEnv, *velocity: float) -> tuple[list[float], list[float]]:
    """Rewards and scores of an idle robot while the ball flies, from right after the reset."""
    env.task.qvel[:, env.task.robot.nv : env.task.robot.nv + len(velocity)] = velocity
    rewards, scores = [], []
    for _ in range(249):
        step = env.step(torch.zeros(1, len(env.spec.action.names)))
        rewards.append(float(step.reward[0]))
        scores.append(float(step.metrics["score"][0]))
        if step.terminated[0]:
            break
    assert step.terminated[0]
    assert not any(rewards[:-1])
    assert not any(scores[:-1])
    return rewards, scores


@pytest.mark.parametrize(("velocity", "points"), [((10, -3, 2.5), 1), ((10, 3, 4), 2), ((10, 0, 2), 0)])
def test_shots_in_three_dimensions(velocity: tuple[float, ...], points: float) -> None:
    rewards, scores = shoot(make("cube/goalwall"), *velocity)
    assert rewards[-1] == scores[-1] == points


@pytest.mark.parametrize(("velocity", "points"), [((10, 4), 1), ((10, 0), 0), ((10, 10), 0)])
def test_shots_in_the_plane(velocity: tuple[float, ...], points: float) -> None:
    rewards, scores = shoot(make("cube2d/goalwall"), *velocity)
    assert rewards[-1] == scores[-1] == points


def test_beyond_the_line_a_goal_scores_and_pays_nothing() -> None:
    env = make("cube/goalwall")
    begin(env, 4.01, settle=True)
    env.task.qpos[0, 1] = 3.0  # out of the way
    rewards, scores = shoot(env, 10, -3, 2.5)
    assert (rewards[-1], scores[-1]) == (0.0, 1.0)
    begin(env, 3.99, settle=True)
    env.task.qpos[0, 1] = 3.0
    assert shoot(env, 10, -3, 2.5)[0][-1] == 1.0


def test_where_the_ball_hit_counts_not_where_it_is_later() -> None:
    # Within one control step of 0.05 s the ball touches the wall and is away again: looked at after the step alone, it
    # never was there.
    env = make("cube2d/goalwall")
    begin(env, 0.0)
    env.task.qpos[0, 2:4] = 6.3, 1.0
    env.task.qvel[0, 2:4] = 10.0, 0.0
    step = env.step(act(env, 0.0, 0.0))
    assert env.scenario() is not None
    assert step.terminated[0]
    assert float(step.metrics["score"][0]) == 1.0
    assert step.final_obs["policy"][0, 0] < 6.3 + 0.05  # relative to the robot near 0
    assert step.final_obs["policy"][0, 3] < 0  # on its way back


def test_goals_by_hand() -> None:
    task = make("humanoid/goalwall", 6).task
    # (y, z) of the last touch: inside goal 1, at its rim, outside, in goal 2, at its rim, between the two
    places = [(-1.0, 0.65), (-1.0, 0.25 + 1e-9), (-1.0, 0.24), (1.0, 1.35), (1.0, 1.75 - 1e-9), (0.0, 1.0)]
    ball = np.zeros((6, 5, 7))
    for row, (y, z) in enumerate(places):
        ball[row, :, 1:3] = -1.0, 0.65  # earlier, and later without touching: these do not count
        ball[row, 1:4, 0] = 6.35
        ball[row, 3, 1:3] = y, z
    task._look_at_wall(ball)
    assert task._points.tolist() == [1, 1, 0, 2, 2, 0]
    assert task._at_wall.all()
    ball[:, :, 0] = 6.35 - 1e-9
    task._look_at_wall(ball)
    assert not task._at_wall.any()
    assert not task._points.any()


def test_near_misses_by_hand() -> None:
    task = make("humanoid/goalwall", 6).task
    # distances to the centres: 0.3 from goal 1; 0.8 from it, twice its radius; 0.6 from goal 2; 0.4 + 0.4 sqrt(2) from
    # goal 2; (0, 1) is as far from both, sqrt(1 + 0.35^2); not at the wall
    root, middle = 0.4 * math.sqrt(2.0), math.hypot(1.0, 0.35)
    places = [(-1.0, 0.35), (-1.8, 0.65), (1.6, 1.35), (1.0, 1.75 + root), (0.0, 1.0), (1.0, 1.35)]
    expected = [1.0, 0.1, 2 * 0.1**0.25, 2 * 0.01, 2 * 0.1 ** ((middle / 0.4 - 1) ** 2), 0.0]
    ball = np.zeros((6, 5, 7))
    ball[:5, 1:4, 0] = 6.35
    ball[:, :, 1:3] = np.array(places)[:, None]
    task._look_at_wall(ball)
    assert task.shaped_reward.tolist() == pytest.approx(expected, rel=1e-9)
    assert task._points.tolist() == [1, 0, 0, 0, 0, 0]
    task._look_at_wall(np.zeros((6, 5, 7)))
    assert not task.shaped_reward.any()


def test_near_misses_pay_in_the_shaped_form_alone() -> None:
    paid = {}
    for shaped in (False, True):
        env = make("cube2d/goalwall", 3, shaped=shaped)
        begin(env, 0.0)
        env.task.qpos[:, 2] = 6.3
        env.task.qpos[:, 3] = 1.0, 1.6, 0.5  # in the goal, 0.6 and 0.5 m from its centre
        env.task.qvel[:, 2:4] = 10.0, 0.0
        env.task.qpos[1:, 0] = 0.0, 4.1  # the last robot is beyond the line
        step = env.step(act(env, 0.0, 0.0))
        assert step.terminated.all()
        assert step.metrics["score"].tolist() == [1.0, 0.0, 0.0]
        assert step.metrics["shaped_reward"].tolist() == pytest.approx([1.0, 0.1**0.25, 0.1**0.0625], rel=0.02)
        paid[shaped] = step.reward.tolist()
    assert paid[False] == [1.0, 0.0, 0.0]
    assert paid[True] == pytest.approx([1.0, 0.1**0.25, 0.0], rel=0.02)


@pytest.mark.parametrize("robot", ["walker", "humanoid", "halfcheetah"])
def test_the_ball_is_free_and_bounces_by_its_own_rules(robot: str) -> None:
    model = NATIVE_TASKS[f"{robot}/goalwall"]().model
    ball = model.body("ball")
    assert ball.mass[0] == pytest.approx(0.1)
    geom = model.geom("ball")
    assert (geom.condim[0], geom.priority[0], geom.contype[0], geom.conaffinity[0]) == (6, 1, 1, 1)
    assert geom.friction.tolist() == [0.7, 0.005, 0.005]
    assert geom.solref.tolist() == [-10000, -30]
    assert geom.size[0] == 0.15
    dofs = np.flatnonzero(model.dof_bodyid == ball.id)
    assert len(dofs) == (6 if robot == "humanoid" else 3)
    for field in ("dof_damping", "dof_armature", "dof_frictionloss"):
        assert not getattr(model, field)[dofs].any()
    joints = np.flatnonzero(model.jnt_bodyid == ball.id)
    assert not model.jnt_limited[joints].any()
    assert not model.jnt_stiffness[joints].any()
    wall = model.geom("wall")
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(data.geom("wall").xmat.reshape(3, 3)[:, 2], [-1, 0, 0], atol=1e-12)
    assert wall.pos[0] == 6.5


def test_noise_of_the_ball() -> None:
    generator = np.random.default_rng(0)
    planar, free = NATIVE_TASKS["walker/goalwall"](), NATIVE_TASKS["humanoid/goalwall"]()
    draws = [planar.draw(generator) for _ in range(3400)]
    qpos = np.stack([draw["qpos"][9:] for draw in draws]) - [2.5, 0.25, 0.0]
    assert kstest(qpos.reshape(-1), "uniform", args=(-0.01, 0.02)).pvalue > 0.01
    assert kstest(np.stack([draw["qvel"][9:] for draw in draws]).reshape(-1), "norm", args=(0, 0.01)).pvalue > 0.01
    draws = [free.draw(generator) for _ in range(300)]
    ball = np.stack([draw["qpos"][28:] for draw in draws])
    assert np.abs(ball[:, :3] - [2.5, 0.0, 0.25]).max() <= 0.01
    np.testing.assert_allclose(np.linalg.norm(ball[:, 3:], axis=1), 1.0)
    assert 0.05 < np.abs(ball[:, 4:]).max() < 0.12


def test_observation_by_hand() -> None:
    env = make("walker/goalwall")
    begin(env, 0.5)
    qpos, qvel = env.scenario()["qpos"], env.scenario()["qvel"]
    qpos[0, 9:] = torch.tensor([2.0, 0.3, 1.5 * math.pi])
    qvel[0, 9:] = torch.tensor([1.0, 2.0, 3.0])
    state = {"qpos": qpos, "qvel": qvel, "settle": [False]}
    assert env.load_scenario(state)["policy"][0, :6].tolist() == pytest.approx([1.5, 0.3, -0.5 * math.pi, 1, 2, 3])
    for angle, shown in ((math.pi, math.pi), (-math.pi, math.pi), (0.0, 0.0), (-7.0, 2 * math.pi - 7.0)):
        qpos[0, 11] = angle
        assert env.load_scenario(state)["policy"][0, 2].item() == pytest.approx(shown)
    env = make("humanoid/goalwall")
    begin(env, 0.5)
    qpos, qvel = env.scenario()["qpos"], env.scenario()["qvel"]
    qpos[0, 1], qpos[0, 28:31] = 0.25, torch.tensor([2.0, 1.0, 0.4])
    qvel[0, 27:] = torch.arange(6.0)
    seen = env.load_scenario({"qpos": qpos, "qvel": qvel, "settle": [False]})["policy"][0, :9]
    assert seen.tolist() == pytest.approx([1.5, 0.75, 0.4, 0, 1, 2, 3, 4, 5])


def test_the_first_touch_pays_once() -> None:
    env = make("cube2d/goalwall", touch_ball_reward=0.1)
    assert list(env.task.views) == ["ball", "touched_ball", "observation"]
    assert env.task.views["touched_ball"] == slice(6, 7)
    begin(env, 1.7)
    env.task.qpos[0, 2:4] = 2.5, 0.15
    env.task.qpos[0, 1] = 0.25
    rewards, flags = [], []
    for push in [0.3] * 20 + [-1.0] * 3 + [1.0] * 12:
        step = env.step(act(env, push, HOVER))
        rewards.append(round(float(step.reward[0]), 6))
        flags.append(float(step.final_obs["policy"][0, 6]))
        if step.terminated[0]:
            break
    assert rewards.count(0.1) == 1
    paid = rewards.index(0.1)
    assert not any(flags[:paid])
    assert all(flags[paid:])
    assert len(rewards) > paid + 5
    begin(env, 1.7)
    assert not env.task.memory["touched"].any()


def test_a_step_that_fails_does_not_pay_the_touch_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make("cube2d/goalwall", 2, touch_ball_reward=0.1)
    begin(env, 1.7)
    env.task.qpos[:, 2:4] = 2.5, 0.15
    env.task.qpos[:, 1] = 0.25
    for _ in range(20):
        step = env.step(act(env, 0.3, HOVER))
        if step.reward[0] > 0:
            break
    assert step.reward[0] == pytest.approx(0.1)

    def fail(self: Batch, *given: object, **named: object) -> None:
        raise SimulationError(np.array([1]), "the arena is full")

    monkeypatch.setattr(Batch, "rollout", fail)
    step = env.step(act(env, 0.3, HOVER))
    assert step.reward.tolist() == [0.0, -1.0]


def test_a_touch_while_settling_never_pays() -> None:
    env = make("cube2d/goalwall", touch_ball_reward=0.1)
    qpos = torch.tensor([[2.2, 0.2, 2.5, 0.2, 0.0]])  # 5 cm in each other
    seen = env.load_scenario({"qpos": qpos, "qvel": torch.zeros(1, 5)})["policy"]
    assert float(seen[0, 6]) == 1.0
    assert not any(float(env.step(act(env, 1.0, HOVER)).reward[0]) for _ in range(5))


def test_the_line_takes_the_bonus_too_and_a_fall_has_the_last_word() -> None:
    env = make("cube2d/goalwall", touch_ball_reward=0.1)
    begin(env, 4.3, 0.25)
    env.task.qpos[0, 2:4] = 4.62, 0.2
    step = env.step(act(env, 1.0, HOVER))
    assert step.obs["policy"][0, 6] == 1.0
    assert float(step.reward[0]) == 0.0
    walker = make("walker/goalwall")
    begin(walker, 4.3)
    walker.task.qpos[0, 0] = 0.5
    walker.task.qpos[0, 9:11] = 6.3, 1.0
    walker.task.qvel[0, 9] = 10.0
    step = walker.step(torch.zeros(1, 6))
    assert float(step.reward[0]) == -1.0
    assert float(step.metrics["score"][0]) == 1.0


def test_everything_stands_behind_the_ball() -> None:
    task = NATIVE_TASKS["walker/goalwall"](init_distance=1.5)
    assert (task.wall_x, task.line_x) == (5.5, 3.0)
    assert task.model.geom("wall").pos[0] == 5.5
    assert task.draw(np.random.default_rng(0))["qpos"][9] == pytest.approx(1.5, abs=0.011)
    with pytest.raises(ValueError, match="touch_ball_reward is -1"):
        NATIVE_TASKS["walker/goalwall"](touch_ball_reward=-1.0)
