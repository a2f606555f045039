"""The HalfCheetah against gymnasium's own file, and what the benchmark changes in it."""

from __future__ import annotations

import warnings

import mujoco
import numpy as np
import pytest

from gaitway.envs.robots import world
from gaitway.envs.robots.half_cheetah import HALF_CHEETAH
from gaitway.envs.tasks.gym_v5.runners import load_asset

LEGS = ["bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot"]
MODEL = world.flat_model(HALF_CHEETAH)


def test_sizes_names_and_mass() -> None:
    assert (MODEL.nq, MODEL.nv, MODEL.nu) == (9, 9, 6)
    assert [MODEL.joint(index).name for index in range(9)] == ["rootx", "rootz", "rooty", *LEGS]
    assert [MODEL.body(index).name for index in range(1, 8)] == ["torso", *LEGS] == list(HALF_CHEETAH.bodies)
    assert [MODEL.actuator(index).name for index in range(6)] == LEGS
    assert MODEL.actuator_gear[:, 0].tolist() == [120, 90, 60, 120, 60, 30]
    assert MODEL.body_mass.sum() == pytest.approx(14.0, abs=1e-12)
    assert MODEL.opt.timestep == HALF_CHEETAH.timestep == 0.01
    assert HALF_CHEETAH.frame_skip == 5
    assert int(MODEL.opt.integrator) == int(mujoco.mjtIntegrator.mjINT_RK4)
    own = np.flatnonzero(MODEL.geom_bodyid > 0)
    assert set(MODEL.geom_conaffinity[own]) == {0}
    np.testing.assert_allclose(MODEL.geom_friction[own], [[0.4, 0.1, 0.1]] * len(own))


def test_same_bodies_and_joints_as_gymnasium() -> None:
    other = load_asset("half_cheetah.xml")
    for name in ("body_mass", "body_inertia", "body_ipos", "body_iquat", "jnt_range", "jnt_stiffness", "jnt_solimp"):
        np.testing.assert_allclose(getattr(MODEL, name), getattr(other, name), rtol=1e-12, atol=1e-15, err_msg=name)
    for name in ("dof_damping", "dof_armature", "geom_size", "geom_solimp", "geom_solref"):
        first = 1 if name.startswith("geom") else 0  # the floor
        np.testing.assert_allclose(getattr(MODEL, name)[first:], getattr(other, name)[first:], rtol=1e-12)
    np.testing.assert_allclose(MODEL.body_pos[2:], other.body_pos[2:])
    assert (MODEL.body_pos[1] == 0).all()


def test_what_a_task_adds_keeps_its_mass() -> None:
    spec = HALF_CHEETAH.spec()
    spec.body("torso").add_body(name="load").add_geom(name="load", size=[0.1, 0, 0], mass=2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = spec.compile()
    assert model.body("load").mass[0] == 2.0
    assert model.body_mass.sum() == pytest.approx(16.0)


def test_first_pose_and_falls() -> None:
    assert HALF_CHEETAH.initial_qpos().tolist() == [0, 0.7, 0, 0, 0, 0, 0, 0, 0]
    height = np.array([0.11, 0.13, 0.11, 0.11])
    pitch = np.array([np.pi, np.pi, 2.4, 0.0])  # cos 2.4 = -0.74
    qpos = np.zeros((4, 9))
    qpos[:, 2] = pitch
    assert HALF_CHEETAH.fallen(qpos, height).tolist() == [True, False, False, False]
    assert HALF_CHEETAH.fallen(qpos, height, np.array([-0.9, -0.9, -0.81, -0.79])).tolist() == [
        True,
        False,
        True,
        False,
    ]
