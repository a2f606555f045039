"""First states, tilt and components of every robot, and finding a robot among joints that a task added."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from gaitway.envs.robots import world
from gaitway.envs.robots.registry import ROBOTS, get_robot
from gaitway.envs.robots.robot import RobotView, as_index


def humanoid_with_pole() -> mujoco.MjModel:
    """A ball joint on the head: its entries come right after the root."""
    spec = get_robot("humanoid").spec()
    pole = spec.body("head").add_body(name="pole", pos=[0, 0, 0.09])
    pole.add_joint(name="pole", type=mujoco.mjtJoint.mjJNT_BALL, limited=0)
    pole.add_geom(name="pole", size=[0.02, 0.25, 0], mass=0.5, pos=[0, 0, 0.25])
    return spec.compile()


def pole_walker() -> mujoco.MjModel:
    spec = get_robot("walker").spec()
    pole = spec.body("torso").add_body(name="pole", pos=[0, 0, 0.3])
    pole.add_joint(name="pole", type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, 1, 0], limited=0)
    pole.add_geom(name="pole", size=[0.05, 0.25, 0], mass=0.5, pos=[0, 0, 0.25])
    return spec.compile()


@pytest.mark.parametrize("robot", map(get_robot, ROBOTS), ids=ROBOTS)
def test_first_state_noise(robot) -> None:
    states = [robot.draw_state(np.random.default_rng(seed)) for seed in range(500)]
    qpos, qvel = (np.array(part) for part in zip(*states, strict=True))
    assert qpos.shape == (500, robot.nq)
    np.testing.assert_allclose(qvel.std(axis=0), 0.1, rtol=0.12)
    if robot.quaternion_index is not None:
        quaternion = slice(robot.quaternion_index, robot.quaternion_index + 4)
        np.testing.assert_allclose(np.linalg.norm(qpos[:, quaternion], axis=1), 1.0)
        assert qpos[:, quaternion][:, 1:].std() > 0.05
        qpos = np.delete(qpos, quaternion, axis=1)
        centre = np.delete(robot.initial_qpos(), quaternion)
    else:
        centre = robot.initial_qpos()
    assert np.abs(qpos - centre).max() <= 0.1
    np.testing.assert_allclose((qpos - centre).std(axis=0), 0.1 / np.sqrt(3), rtol=0.12)


def test_order_of_draws() -> None:
    robot = get_robot("humanoid")
    generator = np.random.default_rng(3)
    expected = robot.initial_qpos() + generator.uniform(-0.2, 0.2, 28)
    expected_qvel = 0.2 * generator.standard_normal(27)
    expected[3:7] /= np.linalg.norm(expected[3:7])
    qpos, qvel = robot.draw_state(np.random.default_rng(3), noise=0.2)
    np.testing.assert_array_equal(qpos, expected)
    np.testing.assert_array_equal(qvel, expected_qvel)


@pytest.mark.parametrize("robot", map(get_robot, ROBOTS), ids=ROBOTS)
def test_many_first_states_are_those_of_one_after_the_other(robot) -> None:
    generator = np.random.default_rng(5)
    numbers = [(generator.random(robot.nq), generator.standard_normal(robot.nv)) for _ in range(20)]
    qpos, qvel = robot.first_states(*(np.array(block) for block in zip(*numbers, strict=True)), noise=0.3)
    generator = np.random.default_rng(5)
    for row in range(20):
        expected_qpos, expected_qvel = robot.draw_state(generator, noise=0.3)
        np.testing.assert_allclose(qpos[row], expected_qpos, rtol=0, atol=1e-15)
        np.testing.assert_array_equal(qvel[row], expected_qvel)


@pytest.mark.parametrize("robot", map(get_robot, ROBOTS), ids=ROBOTS)
def test_upright_is_what_the_simulator_says(robot) -> None:
    model = robot.spec().compile()
    data = mujoco.MjData(model)
    generator = np.random.default_rng(1)
    qpos = np.array([robot.draw_state(generator, 1.5)[0] for _ in range(30)])
    expected = np.zeros(30)
    for row in range(30):
        data.qpos[:] = qpos[row]
        mujoco.mj_kinematics(model, data)
        expected[row] = data.body(robot.torso).xmat[8]
    np.testing.assert_allclose(robot.upright(qpos), expected, atol=1e-14)
    np.testing.assert_allclose(np.cos(robot.tilt(qpos)), expected, atol=1e-14)
    if robot.name == "humanoid":
        assert np.abs(expected).max() > 0.5
        qpos[:, 3:7] *= 3.0  # length does not matter
        np.testing.assert_allclose(robot.upright(qpos), expected, atol=1e-14)


def test_tilt_by_hand() -> None:
    humanoid = get_robot("humanoid")
    qpos = np.tile(humanoid.initial_qpos(), (3, 1))
    turned = Rotation.from_euler("ZY", [[2.0, 0.0], [1.0, 0.4], [0.0, np.pi]])  # heading, then leaning forward
    qpos[:, 3:7] = turned.as_quat()[:, [3, 0, 1, 2]]
    np.testing.assert_allclose(humanoid.tilt(qpos), [0.0, 0.4, np.pi], atol=1e-7)
    walker = get_robot("walker")
    pitched = np.zeros((2, 9))
    pitched[:, 2] = [-0.3, 1.2]
    np.testing.assert_array_equal(walker.tilt(pitched), [-0.3, 1.2])


def test_components() -> None:
    walker, humanoid = get_robot("walker"), get_robot("humanoid")
    names = [component.name for component in walker.components_joints()]
    assert names[:3] == ["rootz", "rootx", "rooty"]
    assert names[9:12] == ["rootz_velocity", "rootx_velocity", "rooty_velocity"]
    assert names[18:] == [f"{body}_{kind}" for body in walker.bodies for kind in ("torque", "force")]
    units = [component.unit for component in walker.components_joints()]
    assert units[:4] + units[9:13] == ["m", "m", "rad", "rad", "m/s", "m/s", "rad/s", "rad/s"]
    parts = humanoid.components_joints()
    assert sum(part.size for part in parts) == 151
    assert [part.name for part in parts[:5]] == ["root_x", "root_y", "root_z", "root_quaternion", "abdomen_z"]
    assert parts[3].size == 4
    assert [(part.name, part.size, part.unit) for part in parts[25:27]] == [
        ("root_velocity", 3, "m/s"),
        ("root_angular_velocity", 3, "rad/s"),
    ]


def test_view_of_the_robot_alone() -> None:
    for robot in map(get_robot, ROBOTS):
        model = world.flat_model(robot)
        view = RobotView(robot, model)
        assert view.is_whole
        assert (view.qpos, view.qvel) == (slice(0, robot.nq), slice(0, robot.nv))
        assert view.bodies == slice(1, 1 + len(robot.bodies))
        assert (view.torso, view.height, view.forward) == (1, robot.height_index, robot.forward_index)


def test_view_among_other_joints() -> None:
    robot, model = get_robot("humanoid"), humanoid_with_pole()
    assert (model.nq, model.nv) == (32, 30)
    view = RobotView(robot, model)
    assert not view.is_whole
    assert view.qpos.tolist() == [*range(7), *range(11, 32)]
    assert view.qvel.tolist() == [*range(6), *range(9, 30)]
    assert view.bodies.tolist() == [1, 2, *range(4, 18)]  # the pole hangs on the head, body 2
    assert view.body("lower_waist") == 4
    full = np.arange(3 * 32.0).reshape(3, 32)
    np.testing.assert_array_equal(view.positions(full)[:, 7], [11.0, 43.0, 75.0])
    rows = np.array([0, 2])
    np.testing.assert_array_equal(view.positions(full, rows)[:, 7], [11.0, 75.0])
    assert view.forces(np.ones((3, 18, 6)), rows).shape == (2, 96)
    own_qpos, own_qvel = robot.draw_state(np.random.default_rng(0))
    qpos, qvel = view.place(model, own_qpos, own_qvel)
    np.testing.assert_array_equal(qpos[7:11], [1, 0, 0, 0])  # the pole upright
    np.testing.assert_array_equal(view.positions(qpos[None])[0], own_qpos)
    np.testing.assert_array_equal(view.velocities(qvel[None])[0], own_qvel)
    assert not qvel[6:9].any()


def test_falls_in_a_larger_model() -> None:
    robot, model = get_robot("walker"), pole_walker()
    view = RobotView(robot, model)
    assert view.qpos == slice(0, 9)
    assert model.nq == 10
    qpos = np.zeros((3, 10))
    qpos[:, 0] = [1.3, 0.8, 1.3]
    qpos[:, 9] = 3.0  # the pole's angle is not the robot's
    assert view.fallen(qpos).tolist() == [False, True, False]
    assert view.fallen(qpos, height=np.array([0.8, 1.3, 1.3])).tolist() == [True, False, False]
    assert view.fallen(qpos, rows=np.array([1])).tolist() == [True]


def test_errors_name_the_fix() -> None:
    walker = get_robot("walker")
    with pytest.raises(ValueError, match="'rootz'; build it from get_robot"):
        RobotView(walker, humanoid_with_pole())
    with pytest.raises(KeyError, match="no body 'hand'"):
        RobotView(walker, world.flat_model(walker)).body("hand")


def test_as_index() -> None:
    assert as_index([3, 4, 5]) == slice(3, 6)
    assert as_index([3, 5]).tolist() == [3, 5]
    assert as_index([5, 4]).tolist() == [5, 4]
