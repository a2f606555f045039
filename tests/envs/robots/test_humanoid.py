"""Humanoid and HumanoidPC against the tables of the benchmark's specification, torques recomputed in float64."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from gaitway.envs.robots import world
from gaitway.envs.robots.humanoid import HUMANOID, HUMANOIDPC

# joint: (low, high in degrees, stiffness, damping, gain), in the order of qpos
JOINTS = {
    "abdomen_z": (-45, 45, 20, 5, 40),
    "abdomen_y": (-75, 30, 10, 5, 40),
    "abdomen_x": (-35, 35, 10, 5, 40),
    "right_hip_x": (-25, 5, 10, 5, 40),
    "right_hip_z": (-60, 35, 10, 5, 40),
    "right_hip_y": (-110, 20, 20, 5, 120),
    "right_knee": (-160, 2, 1, 0.2, 80),
    "right_ankle_y": (-50, 50, 6, 0.2, 20),
    "right_ankle_x": (-50, 50, 3, 0.2, 20),
    "left_hip_x": (-25, 5, 10, 5, 40),
    "left_hip_z": (-60, 35, 10, 5, 40),
    "left_hip_y": (-120, 20, 20, 5, 120),
    "left_knee": (-160, 2, 1, 0.2, 80),
    "left_ankle_y": (-50, 50, 6, 0.2, 20),
    "left_ankle_x": (-50, 50, 3, 0.2, 20),
    "right_shoulder1": (-85, 60, 1, 0.2, 20),
    "right_shoulder2": (-85, 60, 1, 0.2, 20),
    "right_elbow": (-90, 50, 0, 0.2, 40),
    "left_shoulder1": (-60, 85, 1, 0.2, 20),
    "left_shoulder2": (-60, 85, 1, 0.2, 20),
    "left_elbow": (-90, 50, 0, 0.2, 40),
}
ACTIONS = [
    *("abdomen_y", "abdomen_z", "abdomen_x"),
    *("right_hip_x", "right_hip_z", "right_hip_y", "right_knee", "right_ankle_x", "right_ankle_y"),
    *("left_hip_x", "left_hip_z", "left_hip_y", "left_knee", "left_ankle_x", "left_ankle_y"),
    *("right_shoulder1", "right_shoulder2", "right_elbow", "left_shoulder1", "left_shoulder2", "left_elbow"),
]
BODIES = [
    *("torso", "head", "lower_waist", "pelvis", "right_thigh", "right_shin", "right_foot"),
    *("left_thigh", "left_shin", "left_foot", "right_upper_arm", "right_lower_arm", "right_hand"),
    *("left_upper_arm", "left_lower_arm", "left_hand"),
]
TORQUE, POSITION = world.flat_model(HUMANOID), world.flat_model(HUMANOIDPC)
TABLE = np.array(list(JOINTS.values()), dtype=np.float64)


@pytest.mark.parametrize(("robot", "model"), [(HUMANOID, TORQUE), (HUMANOIDPC, POSITION)])
def test_sizes_names_and_joints(robot, model) -> None:
    assert (model.nq, model.nv, model.nu) == (robot.nq, robot.nv, robot.nu) == (28, 27, 21)
    assert model.body_mass.sum() == pytest.approx(40.8440, abs=1e-4)
    assert model.opt.timestep == robot.timestep == 0.005
    assert robot.frame_skip == 5
    assert int(model.opt.integrator) == int(mujoco.mjtIntegrator.mjINT_EULER)
    assert [model.joint(index).name for index in range(22)] == ["root", *JOINTS]
    assert [model.actuator(index).name for index in range(21)] == ACTIONS == list(robot.action_names)
    assert [model.joint(int(joint)).name for joint in model.actuator_trnid[:, 0]] == ACTIONS
    assert [model.body(index).name for index in range(1, 17)] == BODIES == list(robot.bodies)
    assert model.actuator_ctrlrange.tolist() == [[-1, 1]] * 21
    assert model.actuator_ctrllimited.all()
    np.testing.assert_allclose(np.rad2deg(model.jnt_range[1:]), TABLE[:, :2], atol=1e-9)
    assert model.jnt_limited[1:].all()
    np.testing.assert_allclose(model.jnt_stiffness[1:], TABLE[:, 2])
    np.testing.assert_allclose(model.dof_damping[6:], TABLE[:, 3])
    np.testing.assert_allclose(model.dof_armature, [0] * 6 + [0.01] * 21)
    np.testing.assert_allclose(model.jnt_solimp[1:, :3], [[0, 0.99, 0.01]] * 21)


def test_contact_classes() -> None:
    own = np.flatnonzero(TORQUE.geom_bodyid > 0)
    assert len(own) == 19
    for name, value in {"contype": 1, "conaffinity": 1, "condim": 1}.items():
        assert set(getattr(TORQUE, f"geom_{name}")[own]) == {value}
    np.testing.assert_allclose(TORQUE.geom_friction[own, 0], 0.7)
    np.testing.assert_allclose(TORQUE.geom_solref[own], [[0.015, 1]] * 19)
    np.testing.assert_allclose(TORQUE.geom_solimp[own, :3], [[0.9, 0.99, 0.003]] * 19)


def test_parts_touch_each_other() -> None:
    data = mujoco.MjData(TORQUE)
    data.qpos[:] = HUMANOID.initial_qpos()
    data.qpos[2] = 5.0
    data.qpos[7 + list(JOINTS).index("right_hip_x")] = 0.4  # right leg through the left one
    data.qpos[7 + list(JOINTS).index("left_hip_x")] = 0.4
    mujoco.mj_forward(TORQUE, data)
    sides = {TORQUE.body(int(TORQUE.geom_bodyid[geom])).name.split("_")[0] for geom in data.contact.geom.ravel()}
    assert sides == {"left", "right"}


def test_torque_is_gain_times_action() -> None:
    gains = dict(zip(JOINTS, TABLE[:, 4], strict=True))
    np.testing.assert_allclose(TORQUE.actuator_gear[:, 0], [gains[name] for name in ACTIONS])
    data = mujoco.MjData(TORQUE)
    data.ctrl[:] = np.linspace(-1.2, 1.2, 21)
    mujoco.mj_forward(TORQUE, data)
    torque = {name: gains[name] * min(max(u, -1), 1) for name, u in zip(ACTIONS, data.ctrl, strict=True)}
    np.testing.assert_allclose(data.qfrc_actuator[6:], [torque[name] for name in JOINTS], rtol=1e-14)
    assert not data.qfrc_actuator[:6].any()


def test_position_control_pulls_towards_the_target() -> None:
    generator = np.random.default_rng(0)
    data = mujoco.MjData(POSITION)
    low, high = np.deg2rad(TABLE[:, 0]), np.deg2rad(TABLE[:, 1])
    gain = TABLE[:, 4]
    clipped = 0
    for _ in range(40):
        data.qpos[:] = HUMANOIDPC.initial_qpos()
        data.qpos[7:] = generator.uniform(low - 0.5, high + 0.5)
        data.qvel[:] = generator.standard_normal(27)  # there is no derivative term
        action = dict(zip(ACTIONS, generator.uniform(-1.3, 1.3, 21), strict=True))
        data.ctrl[:] = list(action.values())
        mujoco.mj_forward(POSITION, data)
        command = np.clip([action[name] for name in JOINTS], -1, 1)
        force = gain * ((low + high) / 2 + command * (high - low) / 2 - data.qpos[7:])
        clipped += np.count_nonzero(np.abs(force) > gain)
        np.testing.assert_allclose(data.qfrc_actuator[6:], np.clip(force, -gain, gain), rtol=1e-12, atol=1e-12)
    assert 50 < clipped < 500  # both branches of the clip were taken


def test_zero_action_holds_the_middle_not_the_straight_pose() -> None:
    data = mujoco.MjData(POSITION)
    data.qpos[:] = HUMANOIDPC.initial_qpos()
    mujoco.mj_forward(POSITION, data)
    torque = dict(zip(JOINTS, data.qfrc_actuator[6:], strict=True))
    assert torque["right_knee"] == -80  # the middle is -79 degrees, more than 1 rad away
    assert torque["abdomen_y"] == pytest.approx(40 * np.deg2rad(-22.5))
    data.qpos[7:] = np.deg2rad(TABLE[:, :2].mean(axis=1))
    mujoco.mj_forward(POSITION, data)
    np.testing.assert_allclose(data.qfrc_actuator[6:], 0, atol=1e-12)


def test_first_pose() -> None:
    data = mujoco.MjData(TORQUE)
    data.qpos[:] = HUMANOID.initial_qpos()
    assert data.qpos[:7].tolist() == [0, 0, 1.3, 1, 0, 0, 0]
    mujoco.mj_forward(TORQUE, data)
    feet = ("right_right_foot", "left_right_foot", "left_left_foot", "right_left_foot")
    lowest = min(data.geom(foot).xpos[2] - 0.027 for foot in feet)
    assert lowest == pytest.approx(0.015, abs=2e-3)
    np.testing.assert_array_equal(TORQUE.qpos0, HUMANOID.initial_qpos())


def test_fall_test() -> None:
    qpos = np.tile(HUMANOID.initial_qpos(), (3, 1))
    assert HUMANOID.fallen(qpos, np.array([0.9, 0.8999, 1.3])).tolist() == [False, True, False]


def test_cameras() -> None:
    assert [TORQUE.camera(index).name for index in range(TORQUE.ncam)] == ["track", "back", "side", "egocentric"]
