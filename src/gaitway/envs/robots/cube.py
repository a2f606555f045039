"""Test cubes: a box of 0.32 kg that three motors (in the plane two) push about, so that scripts can try out a task.

A constant force of mass * 9.81 / 50 on the vertical motor lets it hover. It never falls.
"""

from __future__ import annotations

import dataclasses

import mujoco

from gaitway.envs.robots.robot import Robot


def remove_y(spec: mujoco.MjSpec) -> None:
    """Take the sideways joint and its motor away."""
    spec.delete(spec.actuator("slide_y"))
    spec.delete(spec.joint("slide_y"))


CUBE = Robot(
    name="cube",
    asset="cube.xml",
    frame_skip=5,
    initial_height=0.3,
)

CUBE2D = dataclasses.replace(
    CUBE,
    name="cube2d",
    edit=remove_y,
)
