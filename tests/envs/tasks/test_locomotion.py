"""walker/stand, walker/walk, walker/run, humanoid/stand and humanoid/run: rewards and falls by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from gaitway.envs.check import check_env
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.pictures.render import rendering_problem
from gaitway.envs.registry import make_env
from gaitway.envs.robots.registry import get_robot
from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.tasks.locomotion import locomotion_reward


def make(id: str, num_envs: int = 2, **options: object) -> MujocoBatchEnv:
    return MujocoBatchEnv(NATIVE_TASKS[id](**options), num_envs, seed=3, dtype=torch.float64)


def standing(num_envs: int) -> torch.Tensor:
    qpos = torch.zeros(num_envs, 9, dtype=torch.float64)
    qpos[:, 0] = 1.3
    return qpos


def test_reward_by_hand() -> None:
    height = np.array([1.3, 0.9, 0.5, 1.2, 1.2])
    pitch = np.array([0.0, math.pi / 3, math.pi, 0.0, 0.0])
    speed = np.array([9.0, 1.0, -3.0, 2.0, 0.0])
    # upright part: (3 + 1)/4, (3 * 0.5 + 0.75)/4, (0 + 0)/4, 1, 1
    stand = [1.0, 0.5625, 0.0, 1.0, 1.0]
    np.testing.assert_allclose(locomotion_reward(height, pitch, speed, 0.0), stand)
    # speed part for 4 m/s: (1 + 5)/6, (1 + 5/4)/6, 1/6, (1 + 5/2)/6, 1/6
    run = [1.0, 0.5625 * 2.25 / 6, 0.0, 3.5 / 6, 1 / 6]
    np.testing.assert_allclose(locomotion_reward(height, pitch, speed, 4.0), run)
    walk = [1.0, 0.5625, 0.0, 1.0, 1 / 6]
    np.testing.assert_allclose(locomotion_reward(height, pitch, speed, 1.0), walk)


@pytest.mark.parametrize(("id", "target"), [("walker/stand", 0.0), ("walker/walk", 1.0), ("walker/run", 4.0)])
def test_step_pays_the_formula_at_the_reached_state(id: str, target: float) -> None:
    env = make(id)
    before = env.load_scenario({"qpos": standing(2), "qvel": torch.tensor([[0.0, 2.0] + [0.0] * 7] * 2)})
    assert before["policy"][:, 0].tolist() == [1.3, 1.3]
    step = env.step(torch.zeros(2, 6))
    after = env.scenario()["qpos"]
    speed = after[0, 1].item() / 0.025
    assert 1.5 < speed < 2.1
    height = 3 * min(max((after[0, 0].item() - 0.6) / 0.6, 0), 1)
    upright = (height + (1 + math.cos(after[0, 2].item())) / 2) / 4
    share = min(max(speed / target, 0), 1) if target else 1.0
    assert step.reward[0].item() == pytest.approx(upright * (1 + 5 * share) / 6, abs=1e-12)
    assert step.metrics["speed"][0].item() == pytest.approx(speed, abs=1e-12)


def test_policy_group() -> None:
    env = make("walker/run")
    group = env.spec.groups[0]
    assert group.shape == (17,)
    assert [c.name for c in group.components[:3]] == ["rootz", "rooty", "right_hip"]
    assert group.columns("rootx_velocity") == slice(9, 10)
    assert {c.unit for c in group.components[1:8]} == {"rad"}
    qpos = torch.arange(18, dtype=torch.float64).reshape(2, 9) / 20 + 1
    qvel = torch.arange(18, dtype=torch.float64).reshape(2, 9) / 10
    obs = env.load_scenario({"qpos": qpos, "qvel": qvel})["policy"]
    expected = torch.cat([qpos[:, :1], qpos[:, 2:], qvel], dim=1)  # everything but x; no settling step
    assert torch.equal(obs, expected)
    assert env.spec.control_dt == pytest.approx(0.025)
    assert env.spec.max_episode_steps == 1000


@pytest.mark.parametrize(("height", "pitch", "falls"), [(1.3, 0.0, False), (0.88, 0.0, True), (1.3, 1.45, True)])
def test_falling_terminates(height: float, pitch: float, falls: bool) -> None:
    env = make("walker/stand", 1)
    qpos = standing(1)
    qpos[0, 0], qpos[0, 2] = height, pitch
    if falls:
        qpos[0, 3:] = torch.tensor([0.9, -1.8, 0.0] * 2)  # legs folded, so that the floor does not push it up
    env.load_scenario({"qpos": qpos, "qvel": torch.zeros(1, 9)})
    step = env.step(torch.zeros(1, 6))
    assert step.terminated.tolist() == [falls]
    assert step.metrics["fell"].tolist() == [float(falls)]
    assert env.elapsed.tolist() == [0 if falls else 1]
    assert not step.metrics["physics_error"].any()


def test_an_idle_walker_falls() -> None:
    env = make("walker/run", 4)
    fell = torch.zeros(4)
    for _ in range(120):
        fell += env.step(torch.zeros(4, 6)).metrics["fell"]
    assert (fell >= 1).all()


def test_options() -> None:
    env = make("walker/run", 1, target_speed=2, max_episode_steps=3)
    assert env.spec.options == {"target_speed": 2.0, "max_episode_steps": 3}
    assert [env.step(torch.zeros(1, 6)).truncated.item() for _ in range(3)] == [False, False, True]
    assert NATIVE_TASKS["walker/walk"](target_speed=1.0).options == {}
    with pytest.raises(TypeError, match="did you mean 'target_speed'"):
        NATIVE_TASKS["walker/run"](target_sped=1.0)
    with pytest.raises(ValueError, match="use a number >= 0"):
        NATIVE_TASKS["walker/run"](target_speed=-1.0)


def upright_humanoids(num_envs: int) -> torch.Tensor:
    return torch.tensor(get_robot("humanoid").initial_qpos()).repeat(num_envs, 1)


def test_humanoid_reward_by_hand() -> None:
    height = np.array([1.3, 0.89, 0.59])
    tilt = np.array([0.0, math.pi / 3, math.pi])
    speed = np.array([2.0, 4.0, 1.0])
    # (3 * 1 + 1)/4, (3 * 0.5 + 0.75)/4, 0
    stand = [1.0, 0.5625, 0.0]
    np.testing.assert_allclose(locomotion_reward(height, tilt, speed, 0.0, (0.59, 1.19)), stand)
    np.testing.assert_allclose(locomotion_reward(height, tilt, speed, 4.0, (0.59, 1.19)), [3.5 / 6, 0.5625, 0.0])


@pytest.mark.parametrize(("id", "target"), [("humanoid/stand", 0.0), ("humanoid/run", 4.0)])
def test_humanoid_step_pays_the_formula(id: str, target: float) -> None:
    env = make(id)
    qpos, qvel = upright_humanoids(2), torch.zeros(2, 27, dtype=torch.float64)
    qpos[0, 3:7] = torch.tensor(Rotation.from_euler("ZY", [0.5, 0.3]).as_quat()[[3, 0, 1, 2]])  # turned and leaning
    qpos[:, 2] = 1.0
    qpos[:, 13] = qpos[:, 19] = -1.0  # bent legs
    qvel[:, 0] = 2.0
    env.load_scenario({"qpos": qpos, "qvel": qvel})
    step = env.step(torch.zeros(2, 21))
    after = env.scenario()["qpos"].numpy()
    for row in range(2):
        upright = Rotation.from_quat(after[row, [4, 5, 6, 3]]).as_matrix()[2, 2]
        speed = (after[row, 0] - qpos[row, 0].item()) / 0.025
        height = 3 * min(max((after[row, 2] - 0.59) / 0.6, 0), 1)
        share = min(max(speed / target, 0), 1) if target else 1.0
        expected = (height + (1 + upright) / 2) / 4 * (1 + 5 * share) / 6
        assert step.reward[row].item() == pytest.approx(expected, abs=1e-12)
        assert step.metrics["speed"][row].item() == pytest.approx(speed, abs=1e-12)
    assert step.reward[0] < step.reward[1]
    assert not step.terminated.any()


def test_humanoid_policy_group() -> None:
    env = make("humanoid/run")
    group = env.spec.groups[0]
    assert group.shape == (53,)
    assert [c.name for c in group.components[:3]] == ["root_z", "root_quaternion", "abdomen_z"]
    assert group.columns("root_velocity") == slice(26, 29)
    assert group.columns("left_elbow_velocity") == slice(52, 53)
    qpos, qvel = upright_humanoids(2), torch.arange(54, dtype=torch.float64).reshape(2, 27)
    qpos[:, 0], qpos[:, 1] = 5.0, -3.0  # where it is in the world is not shown
    obs = env.load_scenario({"qpos": qpos, "qvel": qvel})["policy"]
    assert torch.equal(obs, torch.cat([qpos[:, 2:], qvel], dim=1))
    assert env.spec.control_dt == pytest.approx(0.025)
    assert env.spec.action.names == get_robot("humanoid").action_names


def test_humanoid_falls() -> None:
    env = make("humanoid/stand", 3)
    qpos = upright_humanoids(3)
    qpos[1, 2] = 0.89
    qpos[2, 2] = 1.6  # however it is tilted, only height counts
    qpos[2, 3:7] = torch.tensor([0.0, 1.0, 0.0, 0.0])
    qpos[1, 7:] = torch.zeros(21)
    qpos[1, 12] = qpos[1, 18] = -1.5  # thighs up and knees bent, so that the floor does not push it up
    qpos[1, 13] = qpos[1, 19] = -2.5
    env.load_scenario({"qpos": qpos, "qvel": torch.zeros(3, 27)})
    step = env.step(torch.zeros(3, 21))
    assert step.terminated.tolist() == [False, True, False]
    assert step.metrics["fell"].tolist() == [0, 1, 0]


def test_first_humanoids_differ_and_are_normalised() -> None:
    env = make("humanoid/stand", 4)
    qpos = env.scenario()["qpos"]
    assert torch.unique(qpos[:, 2]).numel() == 4
    torch.testing.assert_close(qpos[:, 3:7].norm(dim=1), torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize("id", ["humanoid/stand", "humanoid/run"])
def test_humanoid_tasks_are_sound(id: str) -> None:
    report = check_env(lambda num_envs, seed: make_env(id, num_envs, seed, max_episode_steps=30), steps=100)
    assert report.ok, report


def test_humanoids_do_not_depend_on_batch_size_or_threads() -> None:
    actions = torch.rand(80, 4, 21, generator=torch.Generator().manual_seed(1)) * 2 - 1
    traces = []
    for num_envs, num_threads in ((4, 1), (4, 2), (2, 1)):
        env = make_env("humanoid/run", num_envs, seed=5, num_threads=num_threads)
        steps = []
        for action in actions:
            step = env.step(action[:num_envs])
            steps.append(torch.cat([step.obs["policy"][:2], step.reward[:2, None], step.terminated[:2, None]], dim=1))
        traces.append(torch.stack(steps))
    assert torch.equal(traces[0], traces[1])
    assert torch.equal(traces[0], traces[2])
    assert traces[0][:, :, -1].any()  # an episode ended on the way


@pytest.mark.skipif(rendering_problem() is not None, reason="no OpenGL here")
@pytest.mark.parametrize("id", ["walker/run", "humanoid/run"])
def test_pictures(id: str) -> None:
    frame = make(id, 1).render(0, 96, 72)
    assert frame.shape == (72, 96, 3)
    robot = (frame[:, :, 0].astype(int) - frame[:, :, 2]) > 40  # orange on blue
    assert 20 < robot.sum() < 2000
    assert robot[:, 32:64].sum() > 0.9 * robot.sum()  # in the middle
