"""The empty floor: where the torso is, how it is turned, and marks in pictures."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from bisk_cases import ROBOTS, make, random_actions

from gaitway.envs.robots import world
from gaitway.envs.robots.registry import get_robot
from gaitway.envs.tasks.bisk.open_floor import add_arrow, add_mark, put_arrow, put_mark, quaternion_matrix


def test_a_quarter_turn_by_hand() -> None:
    half = np.sqrt(0.5)
    # about z: the x axis becomes y; about y: the x axis becomes -z; the length of a quaternion says nothing
    turns = np.array([[half, 0, 0, half], [half, 0, half, 0], [3 * half, 0, 0, 3 * half], [-1, 0, 0, 0]])
    axes = quaternion_matrix(turns)[:, :, 0]
    np.testing.assert_allclose(axes, [[0, 1, 0], [0, 0, -1], [0, 1, 0], [1, 0, 0]], atol=1e-15)


def test_quaternions_are_turned_as_mujoco_turns_them() -> None:
    quaternions = np.random.default_rng(0).normal(size=(50, 4))
    quaternions /= np.linalg.norm(quaternions, axis=1, keepdims=True)
    expected = np.zeros(9)
    for quaternion, matrix in zip(quaternions, quaternion_matrix(quaternions), strict=True):
        mujoco.mju_quat2Mat(expected, quaternion)
        np.testing.assert_allclose(matrix.reshape(-1), expected, atol=1e-15)


@pytest.mark.parametrize("robot", ROBOTS)
def test_the_torso_is_where_mujoco_has_it(robot: str) -> None:
    env = make(f"{robot}/rundir", 3, allow_falls=True)
    task = env.task
    generator = np.random.default_rng(1)
    task.qpos[:] = generator.normal(size=task.qpos.shape)
    data = mujoco.MjData(task.model)
    places, turns = task.torso_position(), task.torso_rotation()
    for row in range(3):
        data.qpos[:] = task.qpos[row]
        mujoco.mj_kinematics(task.model, data)
        np.testing.assert_allclose(places[row], data.body("torso").xpos, atol=1e-14)
        np.testing.assert_allclose(turns[row].reshape(-1), data.body("torso").xmat, atol=1e-14)
    some = np.array([2, 0], dtype=np.int32)
    np.testing.assert_array_equal(task.torso_position(some), places[some])
    np.testing.assert_array_equal(task.torso_rotation(some), turns[some])
    for action in random_actions(env, 3):
        env.step(action)
    assert np.isfinite(task.torso_rotation()).all()


def test_marks_and_arrows_stand_where_they_are_put() -> None:
    spec = get_robot("cube").spec()
    add_mark(spec, "spot", "sphere", [0.1], (1, 0, 0, 1))
    add_arrow(spec, "way", (1, 0, 0, 1))
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert data.site("spot").xpos.tolist() == list(world.PARKED)
    for start, way in (([1.0, 2.0, 3.0], [0.0, 2.0, 0.0]), ([0.0, 0.0, 1.0], [-0.3, 0.0, 0.4]), ([0, 0, 0], [0, 0, 1])):
        put_mark(model, "spot", start)
        put_arrow(model, "way", np.array(start), np.array(way))
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(data.site("spot").xpos, start)
        np.testing.assert_allclose(data.site("spot").xmat.reshape(3, 3), np.eye(3), atol=1e-12)
        np.testing.assert_allclose(data.site("way_tip").xpos, np.array(start) + way)
        shaft, length = data.site("way"), np.linalg.norm(way)
        ends = [shaft.xpos + sign * model.site("way").size[1] * shaft.xmat.reshape(3, 3)[:, 2] for sign in (-1, 1)]
        np.testing.assert_allclose(ends, [start, np.array(start) + way], atol=1e-12)
        assert model.site("way").size[1] == pytest.approx(length / 2)


@pytest.mark.parametrize("id", ["cube/gototargets", "walker/velocitycontrol", "humanoid/rundir", "cube/butterflies"])
def test_what_is_simulated_has_no_marks(id: str) -> None:
    task = make(id).task
    drawn = task.render_model()
    assert drawn.nsite > task.model.nsite == 1  # the accelerometer's
    assert (drawn.nq, drawn.nv, drawn.nmocap, drawn.ngeom) == (task.model.nq, task.model.nv, 0, task.model.ngeom)
    assert not task.model.nmocap
