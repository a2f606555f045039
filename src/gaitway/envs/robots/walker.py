"""The planar Walker: 28.5 kg, six motors. qpos begins with rootz, the absolute height of the torso, then rootx, rooty.

The model file derives from the DeepMind Control Suite (see NOTICE). At a torso height of 1.3 m with straight legs the
feet just touch the floor. Its parts touch the world but not each other.
"""

from __future__ import annotations

import numpy as np

from gaitway.envs.robots.robot import Robot

FALLEN_HEIGHT = 0.9
FALLEN_PITCH = 1.4
"""A Walker whose torso is lower than this (m) or tilted further than this (rad) has fallen."""


def fallen(qpos: np.ndarray, height: np.ndarray, upright: np.ndarray) -> np.ndarray:
    """[B, 9] positions and [B] torso heights -> which robots have fallen over [B]."""
    return (height < FALLEN_HEIGHT) | (abs(qpos[:, 2]) > FALLEN_PITCH)


WALKER = Robot(
    name="walker",
    asset="walker.xml",
    frame_skip=10,
    initial_height=1.3,
    fall_test=fallen,
)
