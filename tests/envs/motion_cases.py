"""Small clips for the tests of motions."""

from __future__ import annotations

import dataclasses

import numpy as np

from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.frames import make_frames
from gaitway.envs.motions.skeleton import Skeleton
from gaitway.envs.robots.registry import get_robot
from gaitway.functional.rotations import about

Y, Z = np.array([0.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0])


def make_clip(loop=False, fps=10.0, frames=11, **changes):
    """A body that goes 2 m/s along x, turns about z at 1 rad/s and swings its two joints once a second."""
    times = np.arange(frames) / fps
    angles = np.stack([0.5 * np.sin(2 * np.pi * times), 0.2 * np.cos(2 * np.pi * times)], 1)
    places = np.stack([2.0 * times, np.zeros(frames), np.ones(frames)], 1)[:, None]
    made = Clip(
        make_frames(angles, places, about(Z, 1.0 * times)[:, None]),
        fps,
        ("left_knee", "right_knee"),
        ("torso",),
        loop=loop,
        name="swing",
    ).differentiated()
    return dataclasses.replace(made, **changes)


def walk(frames=41, fps=40.0):
    """The Walker's skeleton and a loop in which it glides along with swinging legs, feet above the floor."""
    robot = get_robot("walker")
    skeleton = Skeleton.of_robot(robot)
    phase = 2 * np.pi * np.arange(frames) / (frames - 1)
    qpos = np.tile(robot.initial_qpos(), (frames, 1))
    qpos[:, robot.forward_index] = 1.5 * np.arange(frames) / fps
    qpos[:, robot.height_index] = 1.35
    qpos[:, robot.pitch_index] = 0.1 * np.sin(phase)
    columns = {name: robot.model.joint(name).qposadr[0] for name in skeleton.joints}
    for side, shift in (("right", 0.0), ("left", np.pi)):
        qpos[:, columns[f"{side}_hip"]] = 0.3 + 0.3 * np.sin(phase + shift)
        qpos[:, columns[f"{side}_knee"]] = -0.6 + 0.3 * np.cos(phase + shift)
        qpos[:, columns[f"{side}_ankle"]] = 0.1 * np.sin(phase + shift)
    clip = skeleton.clip(qpos, np.zeros((frames, robot.nv)), fps, loop=True, name="walk", meta={"robot": "walker"})
    return skeleton, clip.differentiated()
