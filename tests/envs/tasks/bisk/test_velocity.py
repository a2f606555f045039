"""Velocities to keep: their draws and changes, what keeping them pays; and running straight on."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest
import torch
from bisk_cases import HOVER, act, begin, make, random_actions
from scipy.stats import kstest

from gaitway.envs.batch_task import STAGE_NONE
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.pictures.scene import Scene
from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.tasks.bisk.velocity import NUM_DRAWN


def always(speed: float, angle: float, num_envs: int = 1) -> dict[str, np.ndarray]:
    shape = (num_envs, NUM_DRAWN)
    return {"speed": np.full(shape, speed), "angle": np.full(shape, angle)}


def judged(env: MujocoBatchEnv, *velocity: float) -> tuple[float, float]:
    """Score and shaped reward of a cube that moves like this, without letting it move."""
    task = env.task
    task._sensors = np.zeros((1, 3 + task._velocity))
    task._sensors[0, task._velocity : task._velocity + 2] = velocity
    score, reward = np.zeros(1), np.zeros(1)
    task.judge(np.zeros(1, dtype=bool), score, reward, np.zeros(1, dtype=bool))
    assert reward[0] == (task.shaped_reward[0] if task.config.shaped else score[0])
    return float(score[0]), float(task.shaped_reward[0])


def test_layout_laws() -> None:
    generator = np.random.default_rng(3)
    course = NATIVE_TASKS["humanoid/velocitycontrol"]().sample_course(generator.random((160, 2 * NUM_DRAWN)))
    speed, angle = course["speed"].reshape(-1), course["angle"].reshape(-1)
    assert len(speed) == len(angle) > 10_000
    assert kstest(speed, "uniform", args=(0, 4.5)).pvalue > 0.01
    assert kstest(speed, "uniform", args=(0, 4.8)).pvalue < 1e-6
    assert kstest(angle, "uniform", args=(0, 2 * np.pi)).pvalue > 0.01
    assert kstest(angle, "uniform", args=(0, 6.0)).pvalue < 1e-6
    assert abs(np.corrcoef(speed, angle)[0, 1]) < 0.05
    planar = NATIVE_TASKS["walker/velocitycontrol"](max_speed=2.0).sample_course(generator.random((160, 2 * NUM_DRAWN)))
    assert set(planar["angle"].reshape(-1)) == {0.0, math.pi}
    assert abs((planar["angle"] == 0.0).mean() - 0.5) < 0.025  # five deviations
    assert kstest(planar["speed"].reshape(-1), "uniform", args=(0, 2.0)).pvalue > 0.01


@pytest.mark.parametrize("shaped", [False, True])
def test_rewards_by_hand(shaped: bool) -> None:
    env = make("cube/velocitycontrol", shaped=shaped)
    begin(env, 0.0, 0.3, **always(2.0, math.pi / 2))  # 2 m/s along +y
    cases = {
        (0.0, 2.0): (1.0, 1.0),
        (0.0, 2.099): (1.0, math.exp(-((0.099 / 0.75) ** 2))),
        (0.0, 1.75): (0.0, math.exp(-1.0 / 9.0)),  # 0.25 too slow: a third of 0.75
        (2.0, 0.0): (0.0, 0.5),  # across
        (0.0, -2.0): (0.0, 0.0),  # the wrong way
        (0.0, 2.75): (0.0, math.exp(-1.0)),
        (0.0, 0.0): (0.0, math.exp(-((2.0 / 0.75) ** 2))),  # no direction
    }
    for degrees, score in ((14.9, 1.0), (15.1, 0.0)):
        angle = math.pi / 2 + math.radians(degrees)
        cases[2.0 * math.cos(angle), 2.0 * math.sin(angle)] = (score, (math.cos(math.radians(degrees)) + 1.0) / 2.0)
    for velocity, expected in cases.items():
        assert judged(env, *velocity) == pytest.approx(expected, abs=1e-12), velocity
    narrow = make("cube/velocitycontrol", shaped=shaped, reward_margin=0.25)
    begin(narrow, 0.0, 0.3, **always(2.0, math.pi / 2))
    assert judged(narrow, 0.0, 1.75)[1] == pytest.approx(math.exp(-1.0))
    begin(env, 0.0, 0.3, **always(0.05, 0.0))  # standing still is no direction, even where it is nearly fast enough
    assert judged(env, 0.0, 0.0) == pytest.approx((0.0, math.exp(-((0.05 / 0.75) ** 2))))


@pytest.mark.parametrize("stale", [False, True])
@pytest.mark.parametrize("robot", ["walker", "humanoid", "cube"])
def test_the_velocity_is_that_of_all_masses_after_the_step(robot: str, stale: bool) -> None:
    task = NATIVE_TASKS[f"{robot}/velocitycontrol"](allow_falls=True)
    if stale:  # what the sensor says before the last substep
        task.stage = STAGE_NONE
    env = MujocoBatchEnv(task, 3, 4, 1, dtype=torch.float64)
    data = mujoco.MjData(task.model)
    torso, deviations = task.model.body("torso").id, []
    for action in random_actions(env, 6):
        env.step(action)
        for row in range(3):
            data.qpos[:], data.qvel[:] = task.qpos[row], task.qvel[row]
            mujoco.mj_forward(task.model, data)
            mujoco.mj_subtreeVel(task.model, data)
            seen = task._sensors[row, task._velocity : task._velocity + 3]
            deviations.append(np.abs(seen - data.subtree_linvel[torso]).max())
    assert (max(deviations) < 1e-12) != stale


@pytest.mark.parametrize("robot", ["cube", "cube2d"])
def test_a_cube_at_the_right_speed_is_paid(robot: str) -> None:
    env = make(f"{robot}/velocitycontrol", 3)
    angle = math.pi if robot == "cube2d" else 2.0
    begin(env, 0.0, 0.3, **always(2.0, angle, 3))
    # damping 10 against 50 N: in the end 5 m/s at full push
    side = [math.sin(angle)] if robot == "cube" else []
    push = torch.tensor([[0.4 * share * way for way in (math.cos(angle), *side)] + [HOVER] for share in (1, 0.9, -1)])
    for _ in range(60):
        step = env.step(push)
    assert step.reward.tolist() == step.metrics["score"].tolist() == [1.0, 0.0, 0.0]
    assert step.metrics["shaped_reward"].tolist() == pytest.approx([1.0, math.exp(-((0.2 / 0.75) ** 2)), 0.0], abs=0.01)


def test_the_target_changes_after_166_steps() -> None:
    env = make("cube/velocitycontrol", max_episode_steps=400)
    course = always(1.0, 0.0)
    course["speed"][:, 1], course["angle"][:, 1] = 3.0, 0.5
    course["speed"][:, 2], course["angle"][:, 2] = 2.0, 4.0
    seen = begin(env, 0.0, 0.3, **course)[0, :4]
    assert seen.tolist() == [1.0, 0.0, 1.0, 0.0]
    for number in range(1, 400):
        before = seen.clone()
        step = env.step(act(env, 0.2, 0.0, HOVER))  # 1 m/s along x
        seen = step.obs["policy"][0, :4]
        speed, angle = (1.0, 0.0) if number < 166 else (3.0, 0.5) if number < 332 else (2.0, 4.0)
        assert seen.tolist() == pytest.approx([speed, math.sin(angle), math.cos(angle), number % 166 / 166])
        if 120 < number <= 166:  # the step that ends the stretch is still judged by the old target
            assert before[0] == 1.0
            assert step.reward.tolist() == [1.0]
        if number > 166:
            assert step.reward.tolist() == [0.0]
    step = env.step(act(env, 0.2, 0.0, HOVER))
    assert step.truncated.all()
    assert step.obs["policy"][0, 0] == env.scenario()["speed"][0, 0]  # the next episode begins with its first one
    assert step.obs["policy"][0, 3] == 0.0
    assert step.final_obs["policy"][0, :4].tolist() == pytest.approx([2.0, math.sin(4.0), math.cos(4.0), 68 / 166])


def test_velocities_begin_again_after_the_last() -> None:
    env = make("cube/velocitycontrol", max_episode_steps=0, steps_before_changing_velocity=1)
    speeds = env.scenario()["speed"][0].tolist()
    seen = [float(env.step(act(env, 0.0, 0.0, 0.0)).obs["policy"][0, 0]) for _ in range(NUM_DRAWN + 2)]
    assert seen == [*speeds[1:], *speeds[:3]]
    assert len(set(speeds)) == NUM_DRAWN


def trace(env: MujocoBatchEnv, plan: torch.Tensor) -> torch.Tensor:
    rows = []
    for action in plan:
        step = env.step(action)
        rows.append(torch.cat([step.obs["policy"], step.reward[:, None], step.metrics["score"][:, None]], 1))
    return torch.stack(rows)


def test_a_stored_state_goes_on_bit_for_bit() -> None:
    def made(seed: int) -> MujocoBatchEnv:
        return make(
            "humanoid/velocitycontrol", 3, seed=seed, shaped=True, allow_falls=True, steps_before_changing_velocity=4
        )

    env = made(3)
    plan = random_actions(env, 24)
    trace(env, plan[:10])
    assert env.task.memory["number"].tolist() == [2, 2, 2]
    assert env.task.memory["steps_since_change"].tolist() == [2, 2, 2]
    state = env.state_dict()
    expected = trace(env, plan[10:])
    other = made(99)
    other.load_state_dict(state)
    assert torch.equal(trace(other, plan[10:]), expected)
    state["memory"]["number"] -= 1
    other.load_state_dict(state)
    assert not torch.equal(trace(other, plan[10:]), expected)


def test_velocities_do_not_depend_on_the_batch() -> None:
    options = {"max_episode_steps": 9, "steps_before_changing_velocity": 2, "seed": 5}
    plan, traces = random_actions(make("walker/velocitycontrol", 4), 30), []
    for num_envs, num_threads in ((4, 1), (2, 2)):
        env = make("walker/velocitycontrol", num_envs, num_threads, **options)
        traces.append(trace(env, plan[:, :num_envs])[:, :2])
    assert torch.equal(*traces)


def test_pictures_show_the_velocity() -> None:
    env = make("humanoid/velocitycontrol", 2)
    course = always(2.0, math.pi / 2, 2)
    course["speed"][1] = 0.0
    begin(env, 1.0, **course)
    scene = Scene(env.task)
    scene.update(0)
    np.testing.assert_allclose(scene.data.site("direction_tip").xpos, [1.0, 2.0, 1.9], atol=1e-12)
    scene.update(1)
    np.testing.assert_allclose(scene.data.site("direction_tip").xpos, [1.0, 0.05, 1.9], atol=1e-12)


def test_running_pays_the_way_made_in_the_direction_of_the_torso() -> None:
    env = make("humanoid/rundir", 3, allow_falls=True)
    qpos, qvel = env.scenario()["qpos"], env.scenario()["qvel"] * 0
    half = math.sqrt(0.5)
    qpos[:] = torch.from_numpy(env.task.robot.initial_qpos())
    qpos[:, 2] = 3.0
    # straight on along x, turned to the left along y, and turned to the left but moving along x
    qpos[1:, 3:7] = torch.tensor([half, 0.0, 0.0, half])
    qvel[0, 0] = qvel[1, 1] = qvel[2, 0] = 2.0
    assert env.load_scenario({"qpos": qpos, "qvel": qvel, "settle": [False] * 3})["policy"].shape == (3, 151)
    step = env.step(torch.zeros(3, 21))
    assert step.reward.tolist() == pytest.approx([0.05, 0.05, 0.0], abs=2e-3)  # 25 ms
    assert torch.equal(step.reward, step.metrics["score"])
    assert torch.equal(step.reward, step.metrics["shaped_reward"])


@pytest.mark.parametrize(("heading", "expected"), [(0.0, (0.6, 0.0)), (90.0, (0.0, 0.8)), (-90.0, (0.0, -0.8))])
def test_headings(heading: float, expected: tuple[float, float]) -> None:
    env = make("cube/rundir", heading_deg=heading)
    begin(env, 0.0, 0.3)
    before, total = env.task.torso_position()[0], 0.0
    for _ in range(20):
        total += float(env.step(act(env, 0.6, 0.8, HOVER)).reward[0])
    way = env.task.torso_position()[0] - before
    assert way[1] / way[0] == pytest.approx(0.8 / 0.6)
    assert total == pytest.approx(expected[0] / 0.6 * way[0] + expected[1] / 0.8 * way[1])


def test_running_by_hand_in_the_plane() -> None:
    env = make("walker/rundir", 2)
    begin(env, 0.0)
    env.task.qpos[:, 2] = 0.0, 0.6  # the second leans forward: its x axis points downwards
    task = env.task
    task.before_step()
    task.qpos[:, 1] += 0.3  # rootx
    task.qpos[:, 0] -= 0.1  # rootz
    score, reward = np.zeros(2), np.zeros(2)
    task.judge(np.zeros(2, dtype=bool), score, reward, np.zeros(2, dtype=bool))
    assert reward.tolist() == pytest.approx([0.3, 0.3 * math.cos(0.6) + 0.1 * math.sin(0.6)])
    back = make("walker/rundir", heading_deg=180.0)
    np.testing.assert_allclose(back.task.directions() @ [1.0, 0.0, 0.0], -1.0, atol=0.02)
    scene = Scene(task)
    scene.update(1)
    tip = task.torso_position()[1] + [math.cos(0.6), 0.0, 0.6 - math.sin(0.6)]
    np.testing.assert_allclose(scene.data.site("direction_tip").xpos, tip, atol=1e-12)


def test_a_fall_costs_one() -> None:
    env = make("walker/rundir")
    begin(env, 0.0)
    env.task.qpos[0, :3] = 0.5, 0.0, 1.5
    env.task.qvel[0, 1] = 3.0
    step = env.step(torch.zeros(1, 6))
    assert step.reward.tolist() == [-1.0]
    assert step.metrics["score"][0] == step.metrics["shaped_reward"][0] != -1.0


def test_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match=r"heading_deg is 90.0; walker is planar and takes 0 or 180"):
        make("walker/rundir", heading_deg=90.0)
    with pytest.raises(TypeError, match="no option 'shaped'"):
        make("walker/rundir", shaped=True)
    with pytest.raises(ValueError, match="steps_before_changing_velocity is 0"):
        make("cube/velocitycontrol", steps_before_changing_velocity=0)
    with pytest.raises(ValueError, match=r"'speed' of cube/velocitycontrol holds -1.0 m/s"):
        make("cube/velocitycontrol").load_scenario({"speed": np.full((1, NUM_DRAWN), -1.0)})
    with pytest.raises(ValueError, match="takes 0 and pi; walker is planar"):
        make("walker/velocitycontrol").load_scenario({"angle": np.ones((1, NUM_DRAWN))})
