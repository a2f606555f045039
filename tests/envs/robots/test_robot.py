"""First states, tilt and components of every robot, and finding a robot among joints that a task added."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from gaitway.envs.robots import world
from gaitway.envs.robots.registry import ROBOTS, get_robot
from gaitway.envs.robots.robot import Robot, RobotView, as_index, position_components, velocity_components


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


@pytest.mark.parametrize("robot", [get_robot(name) for name in ROBOTS], ids=ROBOTS)
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


@pytest.mark.parametrize("robot", [get_robot(name) for name in ROBOTS], ids=ROBOTS)
def test_many_first_states_are_those_of_one_after_the_other(robot) -> None:
    generator = np.random.default_rng(5)
    numbers = [(generator.random(robot.nq), generator.standard_normal(robot.nv)) for _ in range(20)]
    qpos, qvel = robot.first_states(*(np.array(block) for block in zip(*numbers, strict=True)), noise=0.3)
    generator = np.random.default_rng(5)
    for row in range(20):
        expected_qpos, expected_qvel = robot.draw_state(generator, noise=0.3)
        np.testing.assert_allclose(qpos[row], expected_qpos, rtol=0, atol=1e-15)
        np.testing.assert_array_equal(qvel[row], expected_qvel)


@pytest.mark.parametrize("robot", [get_robot(name) for name in ROBOTS], ids=ROBOTS)
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
    with pytest.raises(ValueError, match="'rootz'; build it from spec"):
        RobotView(walker, humanoid_with_pole())
    with pytest.raises(KeyError, match="no body 'hand'"):
        RobotView(walker, world.flat_model(walker)).body("hand")


DRONE = """
<mujoco>
  <worldbody>
    <body pos="0 0 0.4">
      <freejoint/>
      <geom size="0.1"/>
      <body><joint type="ball"/><geom size="0.05" pos="0.2 0 0"/></body>
      <body name="arm"><joint name="elbow"/><geom size="0.05" pos="0 0.2 0"/></body>
    </body>
  </worldbody>
  <actuator><motor joint="elbow"/></actuator>
  {more}
</mujoco>
"""
LEG = """
<mujoco>
  <worldbody>
    <body name="hip" pos="0 0 {height}" {turned}>
      <joint name="up" type="slide" axis="{up}" ref="{ref}"/>
      <joint name="ahead" type="slide" axis="1 0 0"/>
      <joint name="lean" axis="0 1 0"/>
      <geom size="0.1"/>
    </body>
  </worldbody>
</mujoco>
"""


def own(tmp_path, text: str, **fields) -> Robot:
    path = tmp_path / "own.xml"
    path.write_text(text)
    return Robot("own", path, **fields)


def test_a_file_is_enough(tmp_path) -> None:
    robot = own(tmp_path, DRONE.format(more=""))
    assert (robot.frame_skip, robot.timestep) == (1, 0.002)  # MuJoCo's default
    assert robot.joints == ("joint_0", "joint_1", "elbow")  # two have no name in the file
    assert robot.bodies == ("body_0", "body_1", "arm")
    assert robot.torso == "body_0"
    assert (robot.nq, robot.nv, robot.nu) == (7 + 4 + 1, 6 + 3 + 1, 1)
    assert (robot.forward_index, robot.height_index, robot.quaternion_index) == (0, 2, 3)
    assert robot.initial_qpos().tolist() == [0, 0, 0.4, 1, 0, 0, 0, 1, 0, 0, 0, 0]
    qpos, _ = robot.draw_state(np.random.default_rng(0), 0.5)
    np.testing.assert_allclose([np.linalg.norm(qpos[3:7]), np.linalg.norm(qpos[7:11])], 1.0)
    assert not robot.fallen(qpos[None], np.zeros(1)).any()  # no fall test
    model = world.flat_model(robot)
    names = [part.name for part in position_components(model)]
    assert names[3:] == ["joint_0_quaternion", "joint_1_quaternion", "elbow"]
    assert sum(part.size for part in position_components(model)) == 12
    assert sum(part.size for part in velocity_components(model)) == 10
    assert RobotView(robot, model).height == 2


def test_the_first_keyframe_is_the_first_pose(tmp_path) -> None:
    home = [1.0, 2.0, 0.9, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.3]
    more = f'<keyframe><key name="home" qpos="{" ".join(map(str, home))}"/></keyframe>'
    assert own(tmp_path, DRONE.format(more=more)).initial_qpos().tolist() == home
    home[2] = 0.7
    assert own(tmp_path, DRONE.format(more=more), initial_height=0.7).initial_qpos().tolist() == home


def test_root_joints_are_known_by_their_axes_in_the_world(tmp_path) -> None:
    upright = own(tmp_path, LEG.format(height=0.5, ref=0.5, up="0 0 1", turned=""))
    assert (upright.height_index, upright.forward_index, upright.pitch_index) == (0, 1, 2)
    assert upright.is_planar
    # a quarter turn about z: the body's x axis is the world's y axis, its y axis points backwards
    turned = own(tmp_path, LEG.format(height=0.5, ref=0.5, up="0 0 1", turned='euler="0 0 90"'))
    assert turned.horizontal_indices == (1,)
    assert turned.pitch_index is None
    assert not turned.is_planar
    with pytest.raises(ValueError, match="no joint of 'hip', the torso of own, moves it along x; give it a free joint"):
        _ = turned.forward_index
    lying = own(tmp_path, LEG.format(height=0.5, ref=0.5, up="0 1 0", turned=""))
    with pytest.raises(ValueError, match="along z; give it a free joint or a slide joint with the axis 0 0 1"):
        _ = RobotView(lying, world.flat_model(lying)).height
    with pytest.raises(ValueError, match=r'reads 0 where the torso is at 0.5 m; write ref="0.5" in the file'):
        _ = own(tmp_path, LEG.format(height=0.5, ref=0, up="0 0 1", turned="")).height_index


def test_a_bare_name_is_a_file_of_ours_and_anything_else_a_path(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "walker.xml").write_text(DRONE.format(more=""))
    assert Robot("ours", "walker.xml").joints == get_robot("walker").joints
    for path in ("./walker.xml", tmp_path / "walker.xml", str(tmp_path / "walker.xml")):
        assert Robot("own", path).joints == ("joint_0", "joint_1", "elbow")
    (tmp_path / "own.xml").write_text(DRONE.format(more=""))
    with pytest.raises(ValueError, match=r"'own' has no model file '.*robots/own.xml'; write asset as a path with its"):
        Robot("own", "own.xml")
    with pytest.raises(ValueError, match=r"no model file 'models/own.xml'.*Path\(__file__\).with_name\('own.xml'\)"):
        Robot("own", "models/own.xml")


def test_what_cannot_be_a_robot_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="frame_skip of own is 0; use at least one"):
        own(tmp_path, DRONE.format(more=""), frame_skip=0)
    still = own(tmp_path, '<mujoco><worldbody><geom size="1"/></worldbody></mujoco>')
    with pytest.raises(ValueError, match=r"nothing moves in .*own.xml', the file of own: give a body a joint"):
        _ = still.nq


def test_as_index() -> None:
    assert as_index([3, 4, 5]) == slice(3, 6)
    assert as_index([3, 5]).tolist() == [3, 5]
    assert as_index([5, 4]).tolist() == [5, 4]
