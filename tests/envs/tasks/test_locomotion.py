"""walker/stand, walker/walk and walker/run: rewards and falls by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gaitway.envs.mujoco_batch import MujocoBatchEnv
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
    with pytest.raises(ValueError, match="negative"):
        NATIVE_TASKS["walker/run"](target_speed=-1.0)
