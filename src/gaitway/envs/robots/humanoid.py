"""The Humanoid: 40.8 kg, a free root and 21 hinges, with torque motors or with position control.

The model file derives from the DeepMind Control Suite (see NOTICE). Its parts touch the world and each other. With
straight legs at the first torso height of 1.3 m the feet hang 1.5 cm above the floor. The file lists the motors of the
abdomen and the ankles in another order than their joints.

`humanoid` turns an action u into the torque g u, with a gear g per joint. `humanoidpc` takes u as a position between
the joint's limits lo and hi (rad) and pulls towards it: torque = clip(g ((lo + hi) / 2 + u (hi - lo) / 2 - q), -g, g).
There is no damping term besides the joint's own, and u = 0 is the middle of the range, not the straight pose.
"""

from __future__ import annotations

import dataclasses
import math

import mujoco
import numpy as np

from gaitway.envs.robots.robot import Robot

FALLEN_HEIGHT = 0.9
"""A Humanoid whose torso is lower than this (m) has fallen."""


def fallen(qpos: np.ndarray, height: np.ndarray, upright: np.ndarray) -> np.ndarray:
    """[B] torso heights -> which robots have fallen over [B]."""
    return height < FALLEN_HEIGHT


def use_position_control(spec: mujoco.MjSpec) -> None:
    """Turn every motor of gear g into a proportional position actuator of gain g, limited to a torque of g."""
    per_unit = math.pi / 180 if spec.compiler.degree else 1.0
    for actuator in spec.actuators:
        gain = actuator.gear[0]
        low, high = (limit * per_unit for limit in spec.joint(actuator.target).range)
        actuator.gear = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
        actuator.gaintype = mujoco.mjtGain.mjGAIN_FIXED
        actuator.gainprm[:3] = gain * (high - low) / 2, 0.0, 0.0
        actuator.biastype = mujoco.mjtBias.mjBIAS_AFFINE
        actuator.biasprm[:3] = gain * (low + high) / 2, -gain, 0.0
        actuator.forcelimited = mujoco.mjtLimited.mjLIMITED_TRUE
        actuator.forcerange = [-gain, gain]


HUMANOID = Robot(
    name="humanoid",
    asset="humanoid.xml",
    frame_skip=5,
    initial_height=1.3,
    fall_test=fallen,
)

HUMANOIDPC = dataclasses.replace(HUMANOID, name="humanoidpc", edit=use_position_control)
