"""The planar HalfCheetah of Gym on the benchmark's terms: 14 kg, six motors, RK4, rootz the absolute torso height.

The model file derives from gymnasium's (see NOTICE). Angles in it are radians, unlike in the other robots' files.
"""

from __future__ import annotations

import numpy as np

from gaitway.envs.robots.robot import Robot

FALLEN_HEIGHT = 0.12
FALLEN_UPRIGHT = -0.8
"""A cheetah on its back has fallen: torso lower than this (m), vertical component of its z axis below this."""


def fallen(qpos: np.ndarray, height: np.ndarray, upright: np.ndarray) -> np.ndarray:
    """[B] torso heights and vertical components of the torso's z axis -> which robots have fallen over [B]."""
    return (upright < FALLEN_UPRIGHT) & (height < FALLEN_HEIGHT)


HALF_CHEETAH = Robot(
    name="halfcheetah",
    asset="half_cheetah.xml",
    frame_skip=5,
    initial_height=0.7,
    fall_test=fallen,
)
