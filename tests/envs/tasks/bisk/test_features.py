"""Features against scipy's rotations and hand arithmetic, all in float64, on poses that a batch really reached."""

from __future__ import annotations

import json
import warnings
from types import SimpleNamespace
from typing import Any

import mujoco
import numpy as np
import pytest
from mujoco.batch import Batch
from scipy.spatial.transform import Rotation

from gaitway.envs.batch_task import STAGE_POSITION, STAGE_VELOCITY
from gaitway.envs.misfit import misfit_of
from gaitway.envs.registry import make_env
from gaitway.envs.robots import world
from gaitway.envs.robots.registry import ROBOTS, get_robot
from gaitway.envs.robots.robot import RobotView
from gaitway.envs.spec import EnvSpec
from gaitway.envs.tasks.bisk.features import (
    FEET,
    heading_of,
    joint_components,
    make_features,
    say_original_heading,
    twist_and_swing,
)

ALL = slice(None)
ROWS = np.array([1, 4, 5])


def arrays(name: str, num_envs: int = 6, noise: float = 0.4, steps: int = 3) -> tuple[RobotView, SimpleNamespace]:
    """A batch after a few random steps: some robots have touched the floor."""
    robot = get_robot(name)
    model = world.flat_model(robot, forces=True)
    batch = Batch(model, num_envs, 1, True)
    fields = {field: batch.bind(field) for field in ("xpos", "xmat", "cfrc_ext")}
    physics = SimpleNamespace(batch=batch, qpos=batch.bind("qpos"), qvel=batch.bind("qvel"), field=fields)
    generator = np.random.default_rng(2)
    for row in range(num_envs):
        physics.qpos[row], physics.qvel[row] = robot.draw_state(generator, noise)
    for _ in range(steps):
        batch.bind("ctrl")[:] = generator.uniform(-1, 1, (num_envs, robot.nu))
        batch.step(nstep=robot.frame_skip, stage=STAGE_VELOCITY)
    return RobotView(robot, model), physics


def write(features, physics, rows=ALL, dtype=np.float64, **height) -> np.ndarray:
    count = len(physics.qpos) if isinstance(rows, slice) else len(rows)
    out = np.full((count, features.size), np.nan, dtype)
    assert features.write(physics, rows, out, **height) is out
    return out


@pytest.mark.parametrize(
    ("name", "size"),
    [("walker", 60), ("humanoid", 151), ("humanoidpc", 151), ("halfcheetah", 60), ("cube", 12), ("cube2d", 10)],
)
def test_joints(name, size) -> None:
    view, physics = arrays(name)
    features = make_features("joints", view)
    assert features.size == size == sum(component.size for component in features.components)
    assert features.fields == ("cfrc_ext",)
    physics.qpos[0, view.height] = 0.1  # into the floor
    physics.batch.step(nstep=1, stage=STAGE_VELOCITY)
    forces = physics.field["cfrc_ext"][:, 1:]
    assert np.abs(forces).max() > 1  # something to clip
    expected = np.concatenate([physics.qpos, physics.qvel, np.clip(forces, -1, 1).reshape(6, -1)], axis=1)
    np.testing.assert_array_equal(write(features, physics), expected)
    np.testing.assert_array_equal(write(features, physics, ROWS), expected[ROWS])
    np.testing.assert_array_equal(write(features, physics, dtype=np.float32), expected.astype(np.float32))


def test_components_of_joints() -> None:
    walker, humanoid = get_robot("walker"), get_robot("humanoid")
    names = [component.name for component in joint_components(walker)]
    assert names[:3] == ["rootz", "rootx", "rooty"]
    assert names[9:12] == ["rootz_velocity", "rootx_velocity", "rooty_velocity"]
    assert names[18:] == [f"{body}_{kind}" for body in walker.bodies for kind in ("torque", "force")]
    units = [component.unit for component in joint_components(walker)]
    assert units[:4] + units[9:13] == ["m", "m", "rad", "rad", "m/s", "m/s", "rad/s", "rad/s"]
    parts = joint_components(humanoid)
    assert sum(part.size for part in parts) == 151
    assert [part.name for part in parts[:5]] == ["root_x", "root_y", "root_z", "root_quaternion", "abdomen_z"]
    assert parts[3].size == 4
    assert [(part.name, part.size, part.unit) for part in parts[25:27]] == [
        ("root_velocity", 3, "m/s"),
        ("root_angular_velocity", 3, "rad/s"),
    ]


def test_joints_into_part_of_a_larger_array() -> None:
    view, physics = arrays("walker")
    features = make_features("joints", view)
    whole = np.zeros((6, 63), np.float32)
    features.write(physics, ALL, whole[:, 3:])
    assert not whole[:, :3].any()
    np.testing.assert_array_equal(whole[:, 3:], write(features, physics, dtype=np.float32))


def test_torque_comes_before_force() -> None:
    view, physics = arrays("walker", noise=0.0, steps=0)
    physics.qpos[:, 0] = 1.25  # both feet pressed into the floor
    physics.batch.step(nstep=1, stage=STAGE_VELOCITY)
    features = make_features("joints", view)
    columns = np.cumsum([0, *(component.size for component in features.components)])
    force = columns[features.names.index("right_foot_force")]
    out = write(features, physics)
    assert (out[:, force + 2] == 1).all()  # upwards, clipped
    assert (out[:, columns[features.names.index("torso_force")] :][:, :3] == 0).all()


@pytest.mark.parametrize("name", ROBOTS)
def test_relative_height_replaces_one_entry(name) -> None:
    view, physics = arrays(name)
    height = np.linspace(0, 1, 6)
    for base in ("joints", "bodyfeet"):
        if base == "bodyfeet" and name not in FEET:
            continue
        plain, relative = make_features(base, view), make_features(f"{base}-relz", view)
        expected = write(plain, physics)
        expected[:, {"walker": 0, "humanoid": 2, "humanoidpc": 2, "halfcheetah": 1, "cube": 2, "cube2d": 1}[name]] = (
            height
        )
        np.testing.assert_array_equal(write(relative, physics, height=height), expected)
        assert relative.components == plain.components
        with pytest.raises(ValueError, match=f"{base}-relz needs the height"):
            write(relative, physics)
        with pytest.raises(ValueError, match=f"{base} takes no height"):
            write(plain, physics, height=height)


def test_walker_bodyfeet() -> None:
    view, physics = arrays("walker")
    features = make_features("bodyfeet", view)
    assert features.names == (
        *("rootz:p", "rootx:p", "rooty:p", "left_foot:px", "left_foot:pz", "right_foot:px", "right_foot:pz"),
    )
    assert [component.unit for component in features.components] == ["m", "m", "rad", "m", "m", "m", "m"]
    out = write(features, physics)
    np.testing.assert_array_equal(out[:, :3], physics.qpos[:, :3])
    torso, left, right = view.body("torso"), view.body("left_foot"), view.body("right_foot")
    for row in range(6):
        rotation = Rotation.from_euler("y", physics.qpos[row, 2])
        for column, foot in ((3, left), (5, right)):
            offset = physics.field["xpos"][row, foot] - physics.field["xpos"][row, torso]
            np.testing.assert_allclose(out[row, column : column + 2], rotation.inv().apply(offset)[[0, 2]], atol=1e-14)
    np.testing.assert_array_equal(write(features, physics, ROWS), out[ROWS])


def test_walker_bodyfeet_of_a_straight_robot_by_hand() -> None:
    view, physics = arrays("walker", noise=0.0, steps=0)
    physics.qpos[1, 2] = 0.7  # tilted: in the torso's frame nothing changes
    physics.qpos[2, 6] = np.pi / 2  # left hip: the leg, 0.3 below the torso's origin, stretched forward
    physics.batch.forward(stage=STAGE_POSITION)
    out = write(make_features("bodyfeet", view), physics)
    # foot: 0.3 + 0.7 + 0.25 below, 0.06 ahead
    np.testing.assert_allclose(out[0], [1.3, 0, 0, 0.06, -1.25, 0.06, -1.25], atol=1e-12)
    np.testing.assert_allclose(out[1], [1.3, 0, 0.7, 0.06, -1.25, 0.06, -1.25], atol=1e-12)
    np.testing.assert_allclose(out[2], [1.3, 0, 0, 0.95, -0.3 + 0.06, 0.06, -1.25], atol=1e-12)


def reference(quaternion: np.ndarray) -> tuple[float, float, float]:
    """Heading, sy, sx by scipy, as the specification words it; quaternion w x y z."""
    w, x, y, z = quaternion
    rotation = Rotation.from_quat([x, y, z, w])
    twist = Rotation.from_quat(np.array([0, 0, z, w]) / np.hypot(z, w))
    angles = (rotation * twist.inv()).as_euler("yzx")
    return twist.as_rotvec()[2], angles[0], angles[2]


def test_twist_and_swing() -> None:
    quaternions = Rotation.random(300, random_state=0).as_quat()[:, [3, 0, 1, 2]]
    expected = np.array([reference(quaternion) for quaternion in quaternions])
    np.testing.assert_allclose(np.stack(twist_and_swing(quaternions), axis=1), expected, atol=1e-11)
    assert expected[:, 0].min() < -2.9
    assert expected[:, 0].max() > 2.9
    # neither the sign nor the length of a quaternion means anything
    np.testing.assert_allclose(np.stack(twist_and_swing(-2.5 * quaternions), axis=1), expected, atol=1e-11)


def test_twist_and_swing_by_hand() -> None:
    def quaternion(order: str, angles: list[float]) -> np.ndarray:
        return Rotation.from_euler(order, angles).as_quat()[[3, 0, 1, 2]]

    cases = np.array(
        [
            quaternion("Z", [0.4]),  # turned left
            quaternion("zy", [0.3, 0.5]),  # turned, then tilted about the world's y axis
            quaternion("zx", [-1.2, 0.2]),
            quaternion("Z", [np.pi]),
        ]
    )
    expected = [[0.4, 0, 0], [0.3, 0.5, 0], [-1.2, 0, 0.2], [np.pi, 0, 0]]
    np.testing.assert_allclose(np.stack(twist_and_swing(cases), axis=1), expected, atol=1e-12)


def test_upside_down_has_no_heading() -> None:
    upside_down = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0.6, 0.8, 0], [0, np.sqrt(0.5), np.sqrt(0.5), 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        heading, swing_y, swing_x = twist_and_swing(upside_down)
        cosine, sine = heading_of(Rotation.from_quat(upside_down[:, [1, 2, 3, 0]]).as_matrix().reshape(-1, 9))
    np.testing.assert_array_equal(heading, 0)
    assert np.isfinite(swing_y).all()
    assert np.isfinite(swing_x).all()
    np.testing.assert_allclose(np.abs(swing_x[0]), np.pi)  # half a turn about x
    np.testing.assert_allclose(np.abs(swing_y[1]), np.pi)
    np.testing.assert_array_equal(cosine, 1)
    np.testing.assert_array_equal(sine, 0)


@pytest.mark.parametrize("heading", ["original", "corrected"])
@pytest.mark.parametrize("name", ["humanoid", "humanoidpc"])
def test_humanoid_bodyfeet(name, heading) -> None:
    view, physics = arrays(name, noise=0.8)
    features = make_features("bodyfeet", view, heading=heading)
    assert features.names == (
        *("root:px", "root:py", "root:pz", "root:tz", "root:sy", "root:sx"),
        *("left_foot:px", "left_foot:py", "left_foot:pz", "right_foot:px", "right_foot:py", "right_foot:pz"),
    )
    assert [component.unit for component in features.components] == ["m"] * 3 + ["rad"] * 3 + ["m"] * 6
    out = write(features, physics)
    turned = 0.0
    for row in range(6):
        np.testing.assert_array_equal(out[row, :3], physics.qpos[row, :3])
        np.testing.assert_allclose(out[row, 3:6], reference(physics.qpos[row, 3:7]), atol=1e-12)
        pelvis = Rotation.from_matrix(physics.field["xmat"][row, view.body("pelvis")].reshape(3, 3)).as_quat()
        twist = Rotation.from_quat([0, 0, pelvis[2], pelvis[3]])
        turned = max(turned, abs(twist.as_rotvec()[2]))
        if heading == "corrected":
            twist = twist.inv()
        for column, foot in ((6, "left_foot"), (9, "right_foot")):
            offset = physics.field["xpos"][row, view.body(foot)] - physics.field["xpos"][row, view.body("pelvis")]
            np.testing.assert_allclose(out[row, column : column + 3], twist.apply(offset), atol=1e-12)
    assert turned > 0.3
    np.testing.assert_array_equal(write(features, physics, ROWS), out[ROWS])


def test_only_the_corrected_heading_is_free_of_the_direction() -> None:
    view, physics = arrays("humanoid", num_envs=3, noise=0.0, steps=0)
    physics.qpos[:, 7:] = 0.2
    physics.qpos[1, 3:7] = [np.cos(0.45), 0, 0, np.sin(0.45)]  # the same pose, turned by 0.9 rad
    physics.qpos[2, 3:7] = [np.cos(1.3), 0, 0, np.sin(1.3)]
    physics.batch.forward(stage=STAGE_POSITION)
    feet = {
        heading: write(make_features("bodyfeet", view, heading), physics)[:, 6:]
        for heading in ("original", "corrected")
    }
    np.testing.assert_allclose(feet["corrected"][1:], feet["corrected"][[0, 0]], atol=1e-12)
    assert np.abs(feet["original"][1:] - feet["original"][0]).max(axis=1).min() > 0.1


def test_features_ignore_what_a_task_attached() -> None:
    """A pole on the head changes neither sizes nor which numbers are read."""
    robot = get_robot("humanoid")
    spec = robot.spec()
    world.add_floor(spec)
    world.add_accelerometer(spec)
    pole = spec.body("head").add_body(name="pole", pos=[0, 0, 0.09])
    pole.add_joint(name="pole", type=mujoco.mjtJoint.mjJNT_BALL, limited=0)
    pole.add_geom(name="pole", size=[0.02, 0.25, 0], mass=0.5, pos=[0, 0, 0.25])
    model = spec.compile()
    data = mujoco.MjData(model)
    view = RobotView(robot, model)
    qpos, qvel = view.place(model, *robot.draw_state(np.random.default_rng(0), 0.3))
    data.qpos[:], data.qvel[:] = qpos, qvel
    mujoco.mj_step(model, data, 20)
    mujoco.mj_kinematics(model, data)
    fields = {"cfrc_ext": data.cfrc_ext[None], "xpos": data.xpos[None], "xmat": data.xmat[None]}
    physics = SimpleNamespace(qpos=data.qpos[None], qvel=data.qvel[None], field=fields)
    out = write(make_features("joints", view), physics)[0]
    assert out.shape == (151,)
    np.testing.assert_array_equal(out[7:28], data.qpos[11:])
    np.testing.assert_array_equal(out[34:55], data.qvel[9:])
    wrenches = np.clip([data.body(body).cfrc_ext for body in robot.bodies], -1, 1)
    np.testing.assert_array_equal(out[55:], wrenches.ravel())
    feet = write(make_features("bodyfeet", view), physics)[0]
    assert feet.shape == (12,)
    assert feet[8] == data.body("left_foot").xpos[2] - data.body("pelvis").xpos[2]


def test_errors_name_the_fix() -> None:
    view, _ = arrays("halfcheetah", steps=0)
    with pytest.raises(ValueError, match="halfcheetah has no feet"):
        make_features("bodyfeet", view)
    with pytest.raises(ValueError, match="did you mean 'bodyfeet'"):
        make_features("bodyfet", view)
    with pytest.raises(ValueError, match="heading is 'right'; use one of"):
        make_features("joints", view, heading="right")


@pytest.mark.parametrize(
    ("id", "options", "headings"),
    [
        ("humanoid/hurdles", {"goal_space": True}, {"goal_space": "original"}),
        ("humanoidpc/stairs", {"goal_space": True}, {"goal_space": "original"}),
        ("humanoid/hurdles-fixed", {"goal_space": True}, {"goal_space": "corrected"}),
        ("humanoid/hurdles", {"goal_space": True, "heading": "corrected"}, {"goal_space": "corrected"}),
        ("humanoid/rundir", {"features": "bodyfeet"}, {"policy": "original"}),
        ("humanoid/skills", {}, {"desired_goal": "corrected", "gs_observation": "corrected"}),
        ("humanoidpc/skills", {"compat": "original"}, {"desired_goal": "original", "gs_observation": "original"}),
        ("humanoid/hurdles", {}, {}),
        ("walker/hurdles", {"goal_space": True}, {}),
        ("walker/skills", {}, {}),
    ],
)
def test_the_contract_carries_the_heading_and_a_line_says_it(
    id: str, options: dict[str, Any], headings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    say_original_heading.cache_clear()
    with make_env(id, num_envs=1, **options) as env:
        contract = env.spec.to_dict()
    found = {group["name"]: group["heading"] for group in contract["groups"] if "heading" in group}
    assert found == headings
    assert EnvSpec.from_dict(json.loads(json.dumps(contract))) == env.spec
    lines = [record.message for record in caplog.records if "heading" in record.message]
    assert len(lines) == int("original" in headings.values())
    for line in lines:
        robot = id.split("/")[0]
        assert all(part in line for part in (f"{robot}/skills", "1.49", "heading=corrected", "compat=original"))


@pytest.mark.parametrize("wrappers", [[{"name": "features"}], [{"name": "features"}, {"name": "flatten"}]])
def test_wrappers_carry_the_heading(wrappers: list[dict[str, Any]]) -> None:
    with make_env("humanoid/run", num_envs=1, wrappers=wrappers) as env:
        assert env.spec.groups[-1].heading == "original"


def test_a_policy_trained_on_one_heading_does_not_fit_the_other() -> None:
    def contract(heading: str) -> EnvSpec:
        with make_env("humanoid/hurdles", num_envs=1, goal_space=True, heading=heading) as env:
            return env.spec

    original, corrected = contract("original"), contract("corrected")
    reads = ("env/obs/policy", "env/obs/goal_space")
    assert misfit_of(original, original, reads) is None
    misfit = misfit_of(corrected, original, reads)
    assert misfit is not None
    assert "'goal_space'" in misfit
    assert "env.options.heading=corrected" in misfit
    assert misfit_of(corrected, original, reads[:1]) is None  # it does not read feet
    older = corrected.to_dict()
    for group in older["groups"]:
        group.pop("heading", None)
    assert misfit_of(EnvSpec.from_dict(older), original, reads) is None  # contracts of earlier runs do not say


def test_the_option_that_turns_feet_is_named_as_the_environment_has_it() -> None:
    def contract(**options: str) -> EnvSpec:
        with make_env("humanoidpc/skills", num_envs=1, **options) as env:
            return env.spec

    fixed, original = contract(), contract(compat="original")
    for learnt, here, wanted in ((fixed, original, "fixed"), (original, fixed, "original")):
        misfit = misfit_of(learnt, here, ("env/obs/desired_goal",))
        assert misfit is not None
        assert misfit.endswith(f"write env.options.compat={wanted}")


def test_headings_differ_by_metres() -> None:
    """Feet lie up to 0.9 m beside the pelvis; turned by plus and minus a right angle they are twice that apart."""
    with make_env("humanoid/run", num_envs=256, seed=0, wrappers=[{"name": "features"}]) as env:
        generator, task = np.random.default_rng(0), env.env.task
        largest = 0.0
        corrected = make_features("bodyfeet", RobotView(task.robot, task.model), "corrected")
        for _ in range(20):
            half = generator.uniform(-1.5, 1.5, 256)
            task.qpos[:, 3:7] = np.stack([np.cos(half), 0 * half, 0 * half, np.sin(half)], axis=1)
            limits = task.model.jnt_range[1:]
            task.qpos[:, 7:] = generator.uniform(limits[:, 0], limits[:, 1], (256, 21))
            task.batch.forward(stage=STAGE_POSITION)
            views = [np.empty((256, 12)), np.empty((256, 12))]
            for features, view in zip((env.features, corrected), views, strict=True):
                features.write(task, slice(None), view)
            largest = max(largest, float(np.abs(views[0] - views[1]).max()))
        assert 1.4 < largest < 1.8
