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

LEGS = ("right_hip", "right_knee", "right_ankle", "left_hip", "left_knee", "left_ankle")


def fallen(qpos: np.ndarray, height: np.ndarray, upright: np.ndarray) -> np.ndarray:
    """[B, 9] positions and [B] torso heights -> which robots have fallen over [B]."""
    return (height < FALLEN_HEIGHT) | (np.abs(qpos[:, 2]) > FALLEN_PITCH)


WALKER = Robot(
    name="walker",
    asset="walker.xml",
    joints=("rootz", "rootx", "rooty", *LEGS),
    action_names=LEGS,
    bodies=("torso", "right_thigh", "right_leg", "right_foot", "left_thigh", "left_leg", "left_foot"),
    timestep=0.0025,
    frame_skip=10,
    initial_height=1.3,
    is_planar=True,
    height_index=0,
    forward_index=1,
    pitch_index=2,
    hidden=(1,),
    bodyfeet=("torso", "left_foot", "right_foot"),
    fall_test=fallen,
)
