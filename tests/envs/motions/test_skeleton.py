"""Clips of robots: to states and back, against MuJoCo's own kinematics; mirrors; what `check` finds."""

from __future__ import annotations

import dataclasses

import mujoco
import numpy as np
import pytest
from motion_cases import make_clip, walk

from gaitway.envs.motions.check import check_clip, lowest_points, velocity_errors
from gaitway.envs.motions.frames import MotionError
from gaitway.envs.motions.skeleton import Skeleton
from gaitway.envs.registry import make_env
from gaitway.envs.robots.registry import get_robot

ROBOTS = ("walker", "halfcheetah", "humanoid")


def states(robot, count=7, seed=0):
    """Random states, also turned far, [n, nq] and [n, nv]."""
    generator = np.random.default_rng(seed)
    qpos = robot.initial_qpos() + 0.5 * generator.standard_normal((count, robot.nq))
    if robot.quaternion_index is not None:
        at = slice(robot.quaternion_index, robot.quaternion_index + 4)
        qpos[:, at] = generator.standard_normal((count, 4))
        qpos[:, at] /= np.linalg.norm(qpos[:, at], axis=1, keepdims=True)
    return qpos, generator.standard_normal((count, robot.nv))


@pytest.mark.parametrize("name", ROBOTS)
def test_the_root_of_a_clip_is_where_mujoco_has_it(name):
    robot = get_robot(name)
    skeleton = Skeleton.of_robot(robot)
    qpos, qvel = states(robot)
    clip = skeleton.clip(qpos, qvel, 40.0)
    assert clip.bodies[0] == robot.torso
    assert set(clip.bodies) == set(robot.bodies)
    data, velocity = mujoco.MjData(robot.model), np.zeros(6)
    for frame in range(len(qpos)):
        data.qpos[:], data.qvel[:] = qpos[frame], qvel[frame]
        mujoco.mj_forward(robot.model, data)
        for column, body in enumerate(clip.bodies):
            number = robot.model.body(body).id
            np.testing.assert_allclose(clip.frames.body_positions[frame, column], data.xpos[number], atol=1e-12)
            turn, found = np.zeros(9), clip.frames.body_rotations[frame, column].copy()
            mujoco.mju_quat2Mat(turn, found)
            np.testing.assert_allclose(turn, data.xmat[number], atol=1e-12)
            mujoco.mj_objectVelocity(robot.model, data, mujoco.mjtObj.mjOBJ_XBODY, number, velocity, 0)
            np.testing.assert_allclose(clip.frames.body_angular_velocities[frame, column], velocity[:3], atol=1e-12)
            np.testing.assert_allclose(clip.frames.body_velocities[frame, column], velocity[3:], atol=1e-12)


@pytest.mark.parametrize("name", ROBOTS)
def test_a_clip_becomes_the_states_it_was_made_of(name):
    robot = get_robot(name)
    skeleton = Skeleton.of_robot(robot)
    qpos, qvel = states(robot)
    clip = skeleton.clip(qpos, qvel, 40.0, bodies=())
    assert clip.bodies == (robot.torso,)
    back, speeds = skeleton.fit(clip.joints, clip.bodies, clip.balls, "clip").states(clip.frames)
    if robot.quaternion_index is not None:  # signs of quaternions are made continuous
        at = slice(robot.quaternion_index, robot.quaternion_index + 4)
        back[:, at] *= np.sign(np.sum(back[:, at] * qpos[:, at], 1, keepdims=True))
    np.testing.assert_allclose(back, qpos, atol=1e-12)
    np.testing.assert_allclose(speeds, qvel, atol=1e-12)


def test_a_somersault_does_not_jump():
    robot = get_robot("walker")
    skeleton = Skeleton.of_robot(robot)
    qpos = np.tile(robot.initial_qpos(), (60, 1))
    qpos[:, robot.pitch_index] = np.linspace(0, 14, 60)
    clip = skeleton.clip(qpos, np.zeros((60, robot.nv)), 40.0)
    back, _ = skeleton.fit(clip.joints, clip.bodies, (), "clip").states(clip.frames)
    np.testing.assert_allclose(back, qpos, atol=1e-12)


def test_joints_in_another_order_arrive_where_they_belong():
    robot = get_robot("walker")
    skeleton, (qpos, qvel) = Skeleton.of_robot(robot), states(robot)
    clip = skeleton.clip(qpos, qvel, 40.0)
    other = clip.reordered(clip.joints[::-1], clip.bodies)
    back, _ = skeleton.fit(other.joints, other.bodies, (), "clip").states(other.frames)
    np.testing.assert_allclose(back, qpos, atol=1e-12)


@pytest.mark.parametrize("id", ["HalfCheetah-v5", "Hopper-v5", "Ant-v5", "Reacher-v5", "InvertedDoublePendulum-v5"])
def test_tasks_without_a_robot_have_a_skeleton_too(id):
    with make_env(id, 3) as env:
        task, skeleton = env.task, Skeleton.of_task(env.task)
        frames = skeleton.frames(task.qpos, task.qvel)
        qpos, qvel = skeleton.fit(skeleton.joints, skeleton.bodies, (), id).states(frames)
        if id != "Ant-v5":  # which draws quaternions of any length
            np.testing.assert_allclose(qpos, task.qpos, atol=1e-12)
        np.testing.assert_allclose(qvel, task.qvel, atol=1e-12)
        data = mujoco.MjData(task.model)
        data.qpos[:] = task.qpos[0]
        mujoco.mj_kinematics(task.model, data)
        if skeleton.bodies:
            np.testing.assert_allclose(frames.body_positions[0, 0], data.xpos[task.model.body(skeleton.torso).id])


def test_a_mirrored_humanoid_is_the_mirror_image():
    robot = get_robot("humanoid")
    skeleton, (qpos, qvel) = Skeleton.of_robot(robot), states(robot)
    clip = skeleton.clip(qpos, qvel, 40.0)
    mirrored = clip.mirrored(skeleton.mirror())
    back, speeds = skeleton.fit(mirrored.joints, mirrored.bodies, (), "clip").states(mirrored.frames)
    # MuJoCo's kinematics of the mirrored joints puts every body where the mirror shows it
    again = skeleton.clip(back, speeds, 40.0)
    for field in ("body_positions", "body_velocities", "body_angular_velocities"):
        np.testing.assert_allclose(
            getattr(again.frames, field), getattr(mirrored.frames, field), atol=1e-12, err_msg=field
        )
    left, right = (clip.bodies.index(f"{side}_foot") for side in ("left", "right"))
    expected = clip.frames.body_positions[:, left] * [1, -1, 1]
    np.testing.assert_allclose(mirrored.frames.body_positions[:, right], expected, atol=1e-12)


def test_a_mirror_with_wrong_signs_is_no_mirror_image():
    robot = get_robot("humanoid")
    skeleton, (qpos, qvel) = Skeleton.of_robot(robot), states(robot)
    clip, mirror = skeleton.clip(qpos, qvel, 40.0), skeleton.mirror()
    mirror.signs["abdomen_z"] *= -1
    mirrored = clip.mirrored(mirror)
    back, speeds = skeleton.fit(mirrored.joints, mirrored.bodies, (), "clip").states(mirrored.frames)
    again = skeleton.clip(back, speeds, 40.0)
    assert np.abs(again.frames.body_positions - mirrored.frames.body_positions).max() > 0.01


def test_joints_that_do_not_fit_are_named():
    walker = Skeleton.of_robot(get_robot("walker"))
    clip = make_clip()
    with pytest.raises(MotionError, match=r"no joint of walker 'right_hip'.*it has left_knee, right_knee"):
        walker.fit(clip.joints, clip.bodies, (), "swing")
    with pytest.raises(MotionError, match=r"swing moves the joint 'tail', which walker does not have"):
        walker.fit(("tail", *walker.joints), clip.bodies, (), "swing")
    with pytest.raises(MotionError, match=r"swing holds no root, and walker moves about"):
        walker.fit(walker.joints, (), (), "swing")


def test_a_planar_robot_does_not_take_a_turn_out_of_its_plane():
    robot = get_robot("walker")
    skeleton, (qpos, qvel) = Skeleton.of_robot(robot), states(robot)
    clip = skeleton.clip(qpos, qvel, 40.0)
    turned = dataclasses.replace(clip, frames=clip.frames.replaced(body_rotations=clip.frames.body_rotations * 0 + 0.5))
    with pytest.raises(MotionError, match=r"degrees in a way that walker cannot"):
        skeleton.fit(clip.joints, clip.bodies, (), "clip").states(turned.frames)


# check


def verdicts(clip, skeleton=None):
    return {each.question: each.verdict for each in check_clip(clip, skeleton)}


def test_a_sound_clip_has_nothing_wrong():
    skeleton, clip = walk()
    assert set(verdicts(clip, skeleton).values()) == {"ok"}
    assert set(verdicts(clip, skeleton)) == {"quaternions", "continuity", "velocities", "loop", "joint limits", "floor"}


def test_each_fault_is_found_and_nothing_else():
    skeleton, clip = walk()
    frames = clip.frames

    def changed(**arrays):
        return dataclasses.replace(clip, frames=frames.replaced(**arrays))

    long = verdicts(changed(body_rotations=1.01 * frames.body_rotations), skeleton)
    assert [name for name, verdict in long.items() if verdict != "ok"] == ["quaternions"]
    jump = frames.joint_positions.copy()
    jump[5, 1] -= 2.0
    found = verdicts(changed(joint_positions=jump), skeleton)
    assert found["continuity"] == "wrong"
    assert found["velocities"] == "warning"
    twice = verdicts(changed(joint_velocities=2 * frames.joint_velocities), skeleton)
    assert [name for name, verdict in twice.items() if verdict != "ok"] == ["velocities"]
    sunk = verdicts(changed(body_positions=frames.body_positions - [0, 0, 0.3]), skeleton)
    assert [name for name, verdict in sunk.items() if verdict != "ok"] == ["floor"]
    bend = np.array([0, 0.5, 0, 0, 0, 0])
    bent = verdicts(changed(joint_positions=frames.joint_positions + bend), skeleton)
    assert bent["joint limits"] == "wrong"
    open_ended = dataclasses.replace(clip, frames=frames.map(lambda array: array[:-4]))
    assert verdicts(open_ended, skeleton)["loop"] == "wrong"


def test_stored_velocities_are_compared_with_differences():
    _, clip = walk()
    faster = dataclasses.replace(clip, frames=clip.frames.replaced(joint_velocities=1.1 * clip.frames.joint_velocities))
    assert velocity_errors(faster)["joint_velocities"] == pytest.approx(0.1)
    assert max(velocity_errors(clip).values()) < 1e-9


@pytest.mark.parametrize(
    ("geom", "lowest"),
    [
        ('type="sphere" size="0.1"', 0.9),
        ('type="capsule" size="0.1 0.3"', 0.6),
        ('type="capsule" size="0.1 0.3" euler="90 0 0"', 0.9),
        ('type="box" size="0.1 0.2 0.3" euler="90 0 0"', 0.8),
        ('type="box" size="0.1 0.1 0.1" euler="45 0 0"', 1 - 0.1 * np.sqrt(2)),
        ('type="cylinder" size="0.1 0.3" euler="90 0 0"', 0.9),
        ('type="ellipsoid" size="0.1 0.2 0.3" euler="90 0 0"', 0.8),
        ('type="mesh" mesh="wedge"', 0.5),
    ],
)
def test_the_lowest_point_of_a_shape(geom, lowest):
    xml = f"""<mujoco><asset><mesh name="wedge" vertex="0 0 -0.5  1 0 0.5  0 1 0.5  -1 -1 0.5" refpos="0 0 0"/></asset>
    <worldbody><body pos="0 0 1"><freejoint/><geom {geom}/></body></worldbody></mujoco>"""
    model = mujoco.MjModel.from_xml_string(xml)
    np.testing.assert_allclose(lowest_points(model, model.qpos0[None]), [lowest], atol=1e-6)
