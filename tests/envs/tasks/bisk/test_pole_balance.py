"""PoleBalance: where poles stand, when they have failed, what is seen of them."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest
import torch
from bisk_cases import ROBOTS, begin, make, random_actions
from scipy.spatial.transform import Rotation
from scipy.stats import kstest

from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.tasks import NATIVE_TASKS


def judged(env: MujocoBatchEnv, fell: bool = False) -> tuple[float, float, bool]:
    """Score, reward and end at the present state."""
    score, reward, terminated = np.zeros(env.num_envs), np.zeros(env.num_envs), np.zeros(env.num_envs, dtype=bool)
    env.task.judge(np.full(env.num_envs, fell), score, reward, terminated)
    return float(score[0]), float(reward[0]), bool(terminated[0])


def lean(env: MujocoBatchEnv, degrees: float, pole: int = 0) -> None:
    """Turn the joint of one pole about y, in all instances."""
    address = env.task.model.joint(f"pole_{pole}").qposadr[0]
    angle = math.radians(degrees)
    if env.task.robot.is_planar:
        env.task.qpos[:, address] = angle
    else:
        env.task.qpos[:, address : address + 4] = math.cos(angle / 2), 0.0, math.sin(angle / 2), 0.0


@pytest.mark.parametrize("robot", ROBOTS)
def test_a_pole_fails_at_36_87_degrees(robot: str) -> None:
    env = make(f"{robot}/polebalance")
    begin(env, 0.0)
    for degrees, fails in ((0.0, False), (36.8, False), (36.9, True), (-36.8, False), (-36.9, True)):
        lean(env, degrees)
        assert judged(env) == (float(not fails), float(not fails), fails)


@pytest.mark.parametrize("robot", ["walker", "humanoid"])
def test_the_torso_carries_the_pole_along(robot: str) -> None:
    env = make(f"{robot}/polebalance")
    begin(env, 0.0)
    angle = math.radians(20.0)
    if robot == "walker":
        env.task.qpos[0, 2] = angle
    else:
        env.task.qpos[0, 3:7] = math.cos(angle / 2), 0.0, math.sin(angle / 2), 0.0
    for degrees, fails in ((16.8, False), (16.9, True), (-56.8, False), (-56.9, True)):
        lean(env, degrees)
        assert judged(env)[2] is fails


@pytest.mark.parametrize("robot", ROBOTS)
@pytest.mark.parametrize("n_poles", [1, 3])
def test_axes_and_heights_equal_the_simulators(robot: str, n_poles: int) -> None:
    env = make(f"{robot}/polebalance", 4, n_poles=n_poles)
    task, model = env.task, env.task.model
    generator = np.random.default_rng(0)
    task.qpos[:] += generator.normal(0, 0.4, task.qpos.shape)
    axes = task.vertical_axes()
    data = mujoco.MjData(model)
    for row in range(4):
        data.qpos[:] = task.qpos[row]
        mujoco.mj_kinematics(model, data)
        poles = [data.body(f"pole_{pole}") for pole in range(n_poles)]
        np.testing.assert_allclose(axes[row], [pole.xmat[8] for pole in poles], atol=1e-12)
        top = poles[-1].xpos[2] + 0.25 * poles[-1].xmat[8]
        bottom = poles[0].xpos[2] - 0.25 * poles[0].xmat[8]
        score, reward, terminated = np.zeros(4), np.zeros(4), np.zeros(4, dtype=bool)
        task.judge(np.zeros(4, dtype=bool), score, reward, terminated)
        assert bool(terminated[row]) is bool(top - bottom < 0.8 * n_poles * 0.5)


def test_every_step_pays_until_the_pole_fails() -> None:
    env = make("walker/polebalance", 8)
    ended = torch.zeros(8, dtype=torch.bool)
    outcomes = set()
    for action in random_actions(env, 80):
        step = env.step(action)
        fell = step.metrics["fell"] > 0
        expected = torch.where(fell, -1.0, torch.where(step.terminated, 0.0, 1.0)).double()
        assert torch.equal(step.reward, expected)
        assert torch.equal(step.metrics["score"], (~step.terminated).double())
        ended |= step.terminated
        outcomes |= set(step.reward.tolist())
    assert ended.all()
    assert {0.0, 1.0} <= outcomes


def test_a_fall_costs_one_and_scores_nothing() -> None:
    env = make("walker/polebalance")
    begin(env, 0.0)
    env.task.qpos[0, 0] = 0.5
    env.task.qpos[0, 3:9] = [0.9, -1.8, 0.0] * 2
    step = env.step(torch.zeros(1, 6))
    assert (float(step.reward[0]), float(step.metrics["score"][0]), bool(step.terminated[0])) == (-1.0, 0.0, True)


def test_state_layout() -> None:
    walker, humanoid = NATIVE_TASKS["walker/polebalance"]().model, NATIVE_TASKS["humanoid/polebalance"]().model
    assert (walker.joint("pole_0").qposadr[0], walker.joint("pole_0").dofadr[0], walker.nq) == (9, 9, 10)
    assert (humanoid.joint("pole_0").qposadr[0], humanoid.joint("pole_0").dofadr[0]) == (7, 6)
    assert (humanoid.nq, humanoid.nv) == (32, 30)


@pytest.mark.parametrize(
    ("robot", "foot", "radius", "stiffness", "limit", "armature"),
    [
        ("walker", 0.3, 0.05, 0.0, math.pi, 0.01),
        ("humanoid", 0.09, 0.02, 1.0, math.pi / 2, 0.01),
        ("humanoidpc", 0.09, 0.02, 1.0, math.pi / 2, 0.01),
        ("halfcheetah", 0.0, 0.05, 0.0, math.pi, 0.1),
    ],
)
def test_poles_are_built_as_published(
    robot: str, foot: float, radius: float, stiffness: float, limit: float, armature: float
) -> None:
    model = NATIVE_TASKS[f"{robot}/polebalance"](n_poles=2).model
    for pole, base in ((0, foot), (1, 0.5)):
        body, joint, geom = (getattr(model, kind)(f"pole_{pole}") for kind in ("body", "joint", "geom"))
        np.testing.assert_allclose(body.pos, [0, 0, base])
        assert body.mass[0] == pytest.approx(0.5)
        np.testing.assert_allclose(geom.pos, [0, 0, 0.25], atol=1e-12)
        np.testing.assert_allclose(geom.size[:2], [radius, 0.25], atol=1e-12)
        assert joint.stiffness.reshape(-1)[0] == stiffness
        assert joint.damping[0] == 0.1
        assert model.dof_armature[joint.dofadr[0]] == armature
        assert joint.range[1] == pytest.approx(limit)
        assert joint.limited[0]
        own = model.geom("torso")
        for field in ("contype", "conaffinity", "condim", "friction", "solref", "solimp"):
            np.testing.assert_array_equal(getattr(geom, field), getattr(own, field))


def test_pole_options() -> None:
    model = NATIVE_TASKS["walker/polebalance"](pole_mass=0.2, pole_length=0.8).model
    assert model.body("pole_0").mass[0] == pytest.approx(0.2)
    assert model.geom("pole_0").size[1] == pytest.approx(0.4)
    with pytest.raises(ValueError, match="n_poles is 0; use an integer >= 1"):
        make("walker/polebalance", n_poles=0)


def test_noise_of_the_pole() -> None:
    task, generator = NATIVE_TASKS["walker/polebalance"](n_poles=5), np.random.default_rng(3)
    draws = [task.draw(generator) for _ in range(2000)]
    angles = np.concatenate([draw["qpos"][9:] for draw in draws])
    rates = np.concatenate([draw["qvel"][9:] for draw in draws])
    assert kstest(angles, "uniform", args=(-0.01, 0.02)).pvalue > 0.01
    assert kstest(rates, "norm", args=(0, 0.01)).pvalue > 0.01
    free = NATIVE_TASKS["humanoid/polebalance"]().draw(generator)
    assert np.linalg.norm(free["qpos"][7:11]) == pytest.approx(1.0)
    assert free["qpos"][7] > 0.98
    assert np.abs(free["qpos"][11:]).max() <= 0.1


@pytest.mark.parametrize("n_poles", [1, 2])
def test_what_is_seen_of_poles(n_poles: int) -> None:
    for robot, positions, velocities in (("walker", 9, 9), ("humanoid", 7, 6)):
        size = (1, 1) if robot == "walker" else (4, 3)
        count, rates = n_poles * size[0], n_poles * size[1]
        for ending in ("", "-fixed"):
            env = make(f"{robot}/polebalance{ending}", n_poles=n_poles)
            qpos, qvel = env.scenario()["qpos"], torch.arange(env.task.model.nv, dtype=torch.float64)[None] / 50
            seen = env.load_scenario({"qpos": qpos, "qvel": qvel, "settle": [False]})["policy"][0]
            assert torch.equal(seen[:count], qpos[0, positions : positions + count])
            source = qvel if ending else qpos  # as published: positions at the velocities' indices
            assert torch.equal(seen[count : count + rates], source[0, velocities : velocities + rates])
            # the robot's own part has no pole in it
            own = seen[env.task.views["observation"]]
            assert len(own) == (60 if robot == "walker" else 151)
            hinges = qpos[0, positions + count :] if robot == "humanoid" else qpos[0, :9]
            assert torch.equal(own[7:28] if robot == "humanoid" else own[:9], hinges)
    names = [component.name for component in make("humanoid/polebalance-fixed").spec.groups[0].components[:2]]
    assert names == ["pole_0_quaternion", "pole_0_angular_velocity"]


def test_chained_quaternions() -> None:
    from gaitway.envs.tasks.bisk.pole_balance import quaternion_product

    left, right = Rotation.random(5, random_state=0), Rotation.random(5, random_state=1)
    product = quaternion_product(left.as_quat(scalar_first=True), right.as_quat(scalar_first=True))
    np.testing.assert_allclose(
        Rotation.from_quat(product, scalar_first=True).as_matrix(), (left * right).as_matrix(), atol=1e-12
    )
