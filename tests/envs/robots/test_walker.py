"""The Walker's model against the constants of the benchmark's specification and of the file it derives from."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from gaitway.envs.robots import walker


def test_sizes_names_and_mass() -> None:
    model = walker.walker_model()
    assert (model.nq, model.nv, model.nu) == (9, 9, 6)
    assert tuple(model.joint(index).name for index in range(model.njnt)) == walker.JOINTS
    assert tuple(model.body(index).name for index in range(1, model.nbody)) == walker.BODIES
    assert model.body_mass.sum() == pytest.approx(28.5403, abs=1e-4)
    assert model.opt.timestep == walker.TIMESTEP == 0.0025
    assert int(model.opt.integrator) == int(mujoco.mjtIntegrator.mjINT_EULER)
    assert model.actuator_gear[:, 0].tolist() == [100, 50, 20, 100, 50, 20]
    assert [model.actuator(index).name for index in range(6)] == list(walker.JOINTS[3:])
    assert model.ntex == model.nlight == 0
    assert model.narena == 2 * 2**20


def test_joints() -> None:
    model = walker.walker_model()
    limits = np.rad2deg(model.jnt_range[3:])
    np.testing.assert_allclose(limits, [[-20, 100], [-150, 0], [-45, 45]] * 2, atol=1e-9)
    assert model.jnt_limited.tolist() == [0] * 3 + [1] * 6
    assert model.dof_damping.tolist() == [0.0] * 3 + [0.1] * 6
    assert model.dof_armature.tolist() == [0.0] * 3 + [0.01] * 6
    np.testing.assert_allclose(model.jnt_solimp[3:, :3], [[0, 0.99, 0.01]] * 6)
    np.testing.assert_allclose(model.jnt_axis[3:], [[0, -1, 0]] * 6)


def test_contact_classes() -> None:
    model = walker.walker_model()
    floor = model.geom("floor").id
    robot = [index for index in range(model.ngeom) if index != floor]
    assert set(model.geom_contype[robot]) == {1}
    assert set(model.geom_conaffinity[robot]) == {0}  # no contact among themselves
    np.testing.assert_allclose(model.geom_friction[robot], [[0.7, 0.1, 0.1]] * len(robot))
    assert (model.geom_contype[floor], model.geom_conaffinity[floor]) == (1, 1)
    np.testing.assert_allclose(model.geom_friction[floor], [1, 0.005, 0.0001])
    np.testing.assert_allclose(model.geom_solref[floor], [0.02, 1])
    np.testing.assert_allclose(model.geom_solimp[floor], [0.9, 0.95, 0.001, 0.5, 2])


def test_rootz_is_the_torso_height_and_feet_just_touch() -> None:
    model = walker.walker_model()
    data = mujoco.MjData(model)
    data.qpos[:] = walker.initial_qpos()
    data.qpos[walker.FORWARD] = 2.0
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(data.body("torso").xpos, [2.0, 0.0, 1.3])
    # ankle at 1.3 - 0.3 - 0.7 - 0.25 = 0.05 m, the radius of the foot's capsule
    assert data.geom("right_foot").xpos[2] - 0.05 == pytest.approx(0.0, abs=1e-12)
    data.qpos[walker.HEIGHT] = 1.29
    mujoco.mj_forward(model, data)
    assert data.ncon == 4  # two ends of two feet
    assert data.contact.dist == pytest.approx([-0.01] * 4)


def test_decorated_model_moves_the_same() -> None:
    plain, decorated = walker.walker_model(), walker.walker_model(decorated=True)
    assert decorated.nlight == 1
    assert decorated.ntex == 2
    assert decorated.camera("side").id == 0
    data = [mujoco.MjData(model) for model in (plain, decorated)]
    generator = np.random.default_rng(0)
    qpos, qvel = walker.draw_state(generator)
    for model, state in zip((plain, decorated), data, strict=True):
        state.qpos[:], state.qvel[:] = qpos, qvel
        state.ctrl[:] = 0.5
        mujoco.mj_step(model, state, 100)
    np.testing.assert_array_equal(data[0].qpos, data[1].qpos)


def test_first_state_noise() -> None:
    states = [walker.draw_state(np.random.default_rng(seed)) for seed in range(500)]
    qpos, qvel = (np.array(part) for part in zip(*states, strict=True))
    centred = qpos - [1.3, 0, 0, 0, 0, 0, 0, 0, 0]
    assert np.abs(centred).max() <= 0.1
    np.testing.assert_allclose(centred.std(axis=0), 0.1 / np.sqrt(3), rtol=0.1)
    np.testing.assert_allclose(qvel.std(axis=0), 0.1, rtol=0.12)


def test_fall_test() -> None:
    height = np.array([0.9, 0.8999, 1.3, 1.3, 1.3])
    pitch = np.array([0.0, 0.0, 1.4, 1.4001, -1.41])
    assert walker.fallen(height, pitch).tolist() == [False, True, False, True, True]
