"""The test cubes: sizes, and the scripted motions that task tests rely on."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from gaitway.envs.robots import world
from gaitway.envs.robots.cube import CUBE, CUBE2D


@pytest.mark.parametrize(("robot", "axes"), [(CUBE, "xyz"), (CUBE2D, "xz")])
def test_model(robot, axes) -> None:
    model = world.flat_model(robot)
    size = len(axes)
    assert (model.nq, model.nv, model.nu) == (robot.nq, robot.nv, robot.nu) == (size, size, size)
    assert [model.joint(index).name for index in range(size)] == [f"slide_{axis}" for axis in axes]
    np.testing.assert_allclose(model.jnt_axis, [["xyz".index(axis) == i for i in range(3)] for axis in axes])
    assert model.body_mass.sum() == pytest.approx(0.32)
    assert model.geom("torso").size.tolist() == [0.2, 0.2, 0.2]
    assert model.geom("torso").margin[0] == 0.01
    assert model.geom("floor").margin[0] == 0
    assert model.jnt_range.tolist() == [[-1000, 1000]] * size
    assert model.dof_damping.tolist() == [10] * size
    assert model.dof_armature.tolist() == [1] * size
    assert model.actuator_gear[:, 0].tolist() == [50] * size
    assert int(model.opt.integrator) == int(mujoco.mjtIntegrator.mjINT_RK4)
    assert model.opt.timestep == robot.timestep == 0.01
    assert robot.frame_skip == 5
    assert robot.initial_qpos()[robot.height_index] == 0.3
    assert not robot.fallen(np.zeros((2, size)), np.full(2, -5.0)).any()


def test_hovering_and_pushing() -> None:
    model = world.flat_model(CUBE)
    data = mujoco.MjData(model)
    data.qpos[:] = CUBE.initial_qpos()
    data.ctrl[:] = [1.0, 0.0, 0.32 * 9.81 / 50]
    mujoco.mj_step(model, data, 100)
    # (m + armature) a = 50 - 10 v: v(t) = 5 (1 - exp(-10 t / 1.32))
    assert data.qvel[0] == pytest.approx(5 * (1 - np.exp(-10 / 1.32)), rel=1e-4)
    assert data.qpos[2] == pytest.approx(0.3, abs=1e-9)
    assert data.qpos[1] == 0
