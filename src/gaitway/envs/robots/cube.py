"""Test cubes: a box of 0.32 kg that three motors (in the plane two) push about, so that scripts can try out a task.

A constant force of mass * 9.81 / 50 on the vertical motor lets it hover. It never falls.
"""

from __future__ import annotations

import dataclasses

import mujoco
import numpy as np

from gaitway.envs.robots.robot import Robot


def never(qpos: np.ndarray, height: np.ndarray, upright: np.ndarray) -> np.ndarray:
    """A cube has no way to fall: false [B]."""
    return np.zeros(len(qpos), dtype=bool)


def remove_y(spec: mujoco.MjSpec) -> None:
    """Take the sideways joint and its motor away."""
    spec.delete(spec.actuator("slide_y"))
    spec.delete(spec.joint("slide_y"))


CUBE = Robot(
    name="cube",
    asset="cube.xml",
    joints=("slide_x", "slide_y", "slide_z"),
    action_names=("slide_x", "slide_y", "slide_z"),
    bodies=("torso",),
    timestep=0.01,
    frame_skip=5,
    initial_height=0.3,
    is_planar=False,
    height_index=2,
    forward_index=0,
    hidden=(0, 1),
    fall_test=never,
)

CUBE2D = dataclasses.replace(
    CUBE,
    name="cube2d",
    joints=("slide_x", "slide_z"),
    action_names=("slide_x", "slide_z"),
    is_planar=True,
    height_index=1,
    hidden=(0,),
    edit=remove_y,
)
