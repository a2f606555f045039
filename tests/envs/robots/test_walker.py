"""The Walker's model against the constants of the benchmark's specification and of the file it derives from."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from gaitway.envs.robots import world
from gaitway.envs.robots.walker import WALKER

MODEL = world.flat_model(WALKER)


def test_sizes_names_and_mass() -> None:
    assert (MODEL.nq, MODEL.nv, MODEL.nu) == (9, 9, 6)
    assert [MODEL.joint(index).name for index in range(9)] == [
        *("rootz", "rootx", "rooty", "right_hip", "right_knee", "right_ankle", "left_hip", "left_knee", "left_ankle")
    ]
    assert [MODEL.body(index).name for index in range(1, MODEL.nbody)] == [
        *("torso", "right_thigh", "right_leg", "right_foot", "left_thigh", "left_leg", "left_foot")
    ]
    assert MODEL.body_mass.sum() == pytest.approx(28.5403, abs=1e-4)
    assert MODEL.opt.timestep == WALKER.timestep == 0.0025
    assert WALKER.frame_skip == 10
    assert int(MODEL.opt.integrator) == int(mujoco.mjtIntegrator.mjINT_EULER)
    assert MODEL.actuator_gear[:, 0].tolist() == [100, 50, 20, 100, 50, 20]
    assert [MODEL.actuator(index).name for index in range(6)] == [
        *("right_hip", "right_knee", "right_ankle", "left_hip", "left_knee", "left_ankle")
    ]
    assert MODEL.actuator_ctrlrange.tolist() == [[-1, 1]] * 6


def test_joints() -> None:
    limits = np.rad2deg(MODEL.jnt_range[3:])
    np.testing.assert_allclose(limits, [[-20, 100], [-150, 0], [-45, 45]] * 2, atol=1e-9)
    assert MODEL.jnt_limited.tolist() == [0] * 3 + [1] * 6
    assert MODEL.dof_damping.tolist() == [0.0] * 3 + [0.1] * 6
    assert MODEL.dof_armature.tolist() == [0.0] * 3 + [0.01] * 6
    np.testing.assert_allclose(MODEL.jnt_solimp[3:, :3], [[0, 0.99, 0.01]] * 6)
    np.testing.assert_allclose(MODEL.jnt_axis[3:], [[0, -1, 0]] * 6)
    np.testing.assert_allclose(MODEL.jnt_axis[:3], [[0, 0, 1], [1, 0, 0], [0, 1, 0]])


def test_contact_classes() -> None:
    robot = np.flatnonzero(MODEL.geom_bodyid > 0)
    assert set(MODEL.geom_contype[robot]) == {1}
    assert set(MODEL.geom_conaffinity[robot]) == {0}  # no contact among themselves
    assert set(MODEL.geom_condim[robot]) == {3}
    np.testing.assert_allclose(MODEL.geom_friction[robot], [[0.7, 0.1, 0.1]] * len(robot))


def test_rootz_is_the_torso_height_and_feet_just_touch() -> None:
    data = mujoco.MjData(MODEL)
    data.qpos[:] = WALKER.initial_qpos()
    data.qpos[WALKER.forward_index] = 2.0
    mujoco.mj_forward(MODEL, data)
    np.testing.assert_allclose(data.body("torso").xpos, [2.0, 0.0, 1.3])
    # ankle at 1.3 - 0.3 - 0.7 - 0.25 = 0.05 m, the radius of the foot's capsule
    assert data.geom("right_foot").xpos[2] - 0.05 == pytest.approx(0.0, abs=1e-12)
    data.qpos[WALKER.height_index] = 1.29
    mujoco.mj_forward(MODEL, data)
    assert data.ncon == 4  # two ends of two feet
    assert data.contact.dist == pytest.approx([-0.01] * 4)


def test_fall_test() -> None:
    qpos = np.zeros((5, 9))
    qpos[:, 0] = [0.9, 0.8999, 1.3, 1.3, 1.3]
    qpos[:, 2] = [0.0, 0.0, 1.4, 1.4001, -1.41]
    assert WALKER.fallen(qpos, qpos[:, 0]).tolist() == [False, True, False, True, True]
    assert WALKER.fallen(qpos, qpos[:, 0] - 1).all()  # on a step of 1 m


def test_indices_are_those_of_the_root_joints() -> None:
    assert (WALKER.height_index, WALKER.forward_index, WALKER.pitch_index) == (0, 1, 2)
    assert WALKER.horizontal_indices == (1,)
    assert WALKER.quaternion_index is None
    assert WALKER.is_planar
