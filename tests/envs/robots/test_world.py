"""World furniture: contact properties, corridor, obstacles, sensors, and decoration that changes no number."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from gaitway.envs.robots import world
from gaitway.envs.robots.registry import ROBOTS, get_robot
from gaitway.envs.robots.robot import RobotView


def scene(name: str, decorated: bool = False) -> mujoco.MjModel:
    robot = get_robot(name)
    spec = robot.spec()
    world.add_corridor(spec)
    world.add_static(spec, "step", "box", [0.5, 8, 0.1], [2, 0, 0.1])
    world.add_mocap(spec, "hurdle", "box", [0.05, 8, 0.5], [4, 0, -0.2])
    world.add_mocap(spec, "bar", "capsule", [0.1, 8], zaxis=[0, 1, 0])
    world.add_accelerometer(spec, robot.torso)
    world.add_contact_sensor(spec, "touch", "step", robot.torso)
    if decorated:
        world.decorate(spec, robot.torso)
    return world.compile_model(spec)


@pytest.mark.parametrize("name", ROBOTS)
def test_world_geoms_have_mujocos_defaults(name) -> None:
    model = scene(name)
    plain = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
    others = [
        model.geom(geom).id for geom in ("floor", "left_wall", "right_wall", "back_wall", "step", "hurdle", "bar")
    ]
    fields = ("contype", "conaffinity", "condim", "priority", "friction", "solmix", "solref", "solimp", "margin", "gap")
    for field in fields:
        values = getattr(model, f"geom_{field}")[others]
        np.testing.assert_array_equal(values, np.repeat(getattr(plain, f"geom_{field}"), len(others), axis=0), field)
    # the numbers of the specification, should MuJoCo change its own
    np.testing.assert_allclose(model.geom_friction[others], [[1, 0.005, 0.0001]] * 7)
    np.testing.assert_allclose(model.geom_solimp[others], [[0.9, 0.95, 0.001, 0.5, 2]] * 7)
    robot_mass = RobotView(get_robot(name), model).bodies
    assert model.body_mass.sum() == pytest.approx(model.body_mass[robot_mass].sum())  # nothing else weighs anything


def test_geoms_added_without_help_would_inherit_the_robots() -> None:
    spec = get_robot("walker").spec()
    spec.worldbody.add_geom(name="box", type=mujoco.mjtGeom.mjGEOM_BOX, size=[1, 1, 1])
    assert spec.compile().geom("box").conaffinity[0] == 0


def test_corridor() -> None:
    model = scene("humanoid")
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    walls = {
        "left_wall": ([0, 8, 0], [0, -1, 0]),
        "right_wall": ([0, -8, 0], [0, 1, 0]),
        "back_wall": ([-4, 0, 0], [1, 0, 0]),
    }
    for name, (place, normal) in walls.items():
        wall = data.geom(name)
        np.testing.assert_allclose(wall.xpos, place)
        np.testing.assert_allclose(wall.xmat.reshape(3, 3)[:, 2], normal, atol=1e-12)
        assert model.geom(name).rgba[3] == 0
    floor = model.geom("floor")
    assert floor.size[:2].tolist() == [100, 8]
    assert floor.pos.tolist() == [92, 0, 0]


def test_walls_stop_a_cube_from_inside() -> None:
    model = scene("cube")
    data = mujoco.MjData(model)
    hover = 0.32 * 9.81 / 50
    for push, index, limit in (([0, 1, hover], 1, 7.8), ([0, -1, hover], 1, -7.8), ([-1, 0, hover], 0, -3.8)):
        mujoco.mj_resetData(model, data)
        data.qpos[:] = [0, 0, 3.0]
        data.ctrl[:] = push
        mujoco.mj_step(model, data, 400)  # 4 s at 5 m/s
        assert data.qpos[index] == pytest.approx(limit, abs=0.05)


def test_mocap_obstacles_move_collide_and_weigh_nothing() -> None:
    model = scene("walker")
    assert model.nmocap == 2
    assert model.body("hurdle").mocapid[0] == 0
    assert model.body("bar").mocapid[0] == 1
    assert model.body("hurdle").mass[0] == 0
    data = mujoco.MjData(model)
    np.testing.assert_array_equal(data.mocap_pos[1], world.PARKED)
    robot = get_robot("walker")
    data.qpos[:9] = robot.initial_qpos()
    data.qpos[0] = 1.4
    mujoco.mj_forward(model, data)
    assert data.ncon == 0  # neither with the floor nor with each other
    data.mocap_pos[0] = [0.05, 0, 0.0]  # into the legs
    mujoco.mj_forward(model, data)
    assert data.ncon > 0
    touched = {model.geom(int(geom)).name for geom in data.contact.geom[:, 0]} | {
        model.geom(int(geom)).name for geom in data.contact.geom[:, 1]
    }
    assert "hurdle" in touched
    assert not touched & {"floor", "step", "bar"}
    data.mocap_pos[0] = world.PARKED
    data.mocap_pos[1] = [0, 0, 1.5]
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(data.geom("bar").xmat.reshape(3, 3)[:, 2], [0, 1, 0], atol=1e-12)
    assert data.ncon > 0


def test_accelerometer_fills_the_external_forces() -> None:
    robot = get_robot("walker")
    filled, empty = world.flat_model(robot, forces=True), world.flat_model(robot)
    for model, wanted in ((filled, True), (empty, False)):
        data = mujoco.MjData(model)
        data.qpos[:] = robot.initial_qpos()
        data.qpos[0] = 1.29
        mujoco.mj_step(model, data)
        assert bool(data.cfrc_ext.any()) is wanted
        if wanted:
            found = data.cfrc_ext.copy()
            mujoco.mj_rnePostConstraint(model, data)
            np.testing.assert_array_equal(found, data.cfrc_ext)
            assert found[1:, 5].sum() > 100  # the floor pushes up


def test_contact_sensors() -> None:
    robot = get_robot("cube")
    spec = robot.spec()
    world.add_floor(spec)
    world.add_static(spec, "lava", "box", [1, 1, 0.1], [3, 0, 0.0])
    world.add_mocap(spec, "stone", "sphere", [0.5])
    world.add_contact_sensor(spec, "robot_lava", "lava", robot.torso)
    world.add_contact_sensor(spec, "stone_any", "stone", distance=True)
    model = world.compile_model(spec)
    assert model.nsensordata == 3
    lava, stone = world.sensor_columns(model, "robot_lava"), world.sensor_columns(model, "stone_any")
    assert (lava, stone) == (slice(0, 1), slice(1, 3))
    assert set(model.sensor_needstage) == {int(mujoco.mjtStage.mjSTAGE_POS)}
    data = mujoco.MjData(model)
    data.qpos[:] = [0, 0, 0.15]
    mujoco.mj_forward(model, data)
    assert data.ncon == 4  # the cube touches the floor
    assert data.sensordata.tolist() == [0, 0, 0]
    data.qpos[:] = [3, 0, 0.25]
    mujoco.mj_forward(model, data)
    assert data.sensordata[lava][0] == 4
    data.mocap_pos[0] = [3, 0, 0.9]  # above the cube, whose top is at 0.45: 5 cm deep
    mujoco.mj_forward(model, data)
    assert data.sensordata[stone].tolist() == pytest.approx([1, -0.05])
    data.mocap_pos[0] = [3, 0, 0.955]  # 5 mm away, within the cube's margin
    mujoco.mj_forward(model, data)
    assert data.sensordata[stone].tolist() == pytest.approx([1, 0.005])


@pytest.mark.parametrize("name", ROBOTS)
def test_decoration_changes_no_number(name) -> None:
    robot = get_robot(name)
    plain, decorated = scene(name), scene(name, decorated=True)
    assert (plain.ntex, plain.nmat, plain.nlight) == (0, 0, 0)
    assert (decorated.ntex, decorated.nlight) == (2, 1)
    assert decorated.light_castshadow.all()
    for field in ("nq", "nv", "nbody", "ngeom", "nmocap", "nsensordata"):
        assert getattr(plain, field) == getattr(decorated, field)
    assert [plain.body(i).name for i in range(plain.nbody)] == [decorated.body(i).name for i in range(plain.nbody)]
    data = [mujoco.MjData(model) for model in (plain, decorated)]
    qpos, qvel = robot.draw_state(np.random.default_rng(0))
    for model, state in zip((plain, decorated), data, strict=True):
        state.qpos[:], state.qvel[:] = qpos, qvel
        state.ctrl[:] = 0.5
        mujoco.mj_step(model, state, 100)
    np.testing.assert_array_equal(data[0].qpos, data[1].qpos)


def test_a_sky_lights_and_a_floor_of_the_file_stay() -> None:
    text = """
    <mujoco>
      <asset>
        <texture name="dawn" type="skybox" builtin="flat" rgb1="1 0 0" width="8" height="8"/>
        <material name="grass" rgba="0 1 0 1"/>
      </asset>
      <worldbody>
        <light name="sun" pos="0 0 5"/><geom name="floor" type="plane" size="0 0 1" material="grass"/>
        <body name="ball" pos="0 0 1"><freejoint/><geom size="0.1"/></body>
      </worldbody>
    </mujoco>
    """
    spec = mujoco.MjSpec.from_string(text)
    world.add_ground(spec)
    world.decorate(spec, "ball")
    model = world.compile_model(spec)
    assert (model.ntex, model.nmat, model.nlight, model.ngeom) == (1, 1, 1, 2)
    assert (model.tex(0).name, model.mat(0).name, model.light(0).name) == ("dawn", "grass", "sun")
    assert model.geom("floor").matid[0] == 0
    assert model.camera(0).name == world.WIDE


def test_models_are_small() -> None:
    model = world.flat_model(get_robot("humanoid"))
    assert model.narena == 2 * 2**20
    assert mujoco.mj_sizeModel(model) < 200_000


def test_cameras_of_the_world_come_first() -> None:
    spec = get_robot("walker").spec()
    world.add_floor(spec)
    world.add_camera(spec, "stairs_side", [0, -6, 1], [80, 0, 0], follows=True)
    world.add_camera(spec, "sideline", [6.5 / 3, -9, 2], [80, -5, 0])
    model = world.compile_model(spec)
    assert [model.camera(index).name for index in range(4)] == ["stairs_side", "sideline", "side", "back"]
    assert model.cam_mode[:3].tolist() == [2, 0, 2]  # 2 follows the centre of mass
    # euler (80, 0, 0) is what the Walker's own camera has
    np.testing.assert_allclose(model.cam_quat[0], model.cam_quat[2], atol=1e-12)
    text = "<mujoco><worldbody><camera pos='0 0 0' euler='80 -5 0'/></worldbody></mujoco>"
    np.testing.assert_allclose(model.cam_quat[1], mujoco.MjModel.from_xml_string(text).cam_quat[0], atol=1e-12)


@pytest.mark.parametrize("name", ROBOTS)
def test_a_camera_that_follows_counts_from_the_torso(name) -> None:
    # the Humanoid's file has its torso at 1.3 m, the others' at 0; what is seen must not depend on that
    robot = get_robot(name)
    spec = robot.spec()
    world.add_camera(spec, "side_of_it", [0, -6, 1], [80, 0, 0], follows=True)
    model = world.compile_model(spec)
    data = mujoco.MjData(model)
    for x in (0.0, 7.0):
        data.qpos[robot.forward_index] = x
        mujoco.mj_forward(model, data)
        away = data.camera("side_of_it").xpos - data.body(robot.torso).xpos
        np.testing.assert_allclose(away, [0, -6, 1], atol=1e-12)


@pytest.mark.parametrize("name", ROBOTS)
def test_the_wide_camera_shows_four_metres_around(name) -> None:
    robot = get_robot(name)
    plain, model = scene(name), scene(name, decorated=True)
    assert model.camera(0).name == plain.camera(0).name  # the first one is what pictures are taken with
    data = mujoco.MjData(model)
    data.qpos[:] = robot.initial_qpos()
    data.qpos[robot.forward_index] += 20.0
    mujoco.mj_forward(model, data)
    camera, half = data.camera(world.WIDE), np.tan(np.radians(model.camera(world.WIDE).fovy[0]) / 2)
    for x, y in ((4, 0), (-4, 0), (0, 4), (0, -4)):
        right, up, back = camera.xmat.reshape(3, 3).T @ (np.array([20.0 + x, y, 0.0]) - camera.xpos)
        assert back < 0
        assert abs(up / back) < half
        assert abs(right / back) < half * 4 / 3  # pictures are 4 : 3


def test_a_course_keeps_the_search_tree() -> None:
    spec = get_robot("walker").spec()
    world.add_floor(spec)
    midphase = int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)
    assert world.flat_model(get_robot("walker")).opt.disableflags & midphase
    assert not world.compile_course(spec).opt.disableflags & midphase


def test_angles_in_the_units_of_the_file() -> None:
    assert world.in_file_units(get_robot("walker").spec(), -180, 180) == [-180, 180]
    assert world.in_file_units(get_robot("halfcheetah").spec(), -180, 180) == pytest.approx([-np.pi, np.pi])


def test_unknown_kind_of_geom() -> None:
    with pytest.raises(ValueError, match="no kind of geom 'pyramid'; use plane"):
        world.add_static(get_robot("walker").spec(), "x", "pyramid", [1])
