"""Clips as files of AMP-for-hardware: JSON with rows of numbers, without names.

A row is the root's place and quaternion x y z w, joints, feet in the root's frame, the root's velocity and turn in its
own frame, speeds of joints, and of feet in the root's frame: 61 numbers for a quadruped, whose legs stand in the order
of these files, FR FL RR RL. `importers/amp.py` reads them back.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gaitway.core.files import atomic_write_json
from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.frames import MotionError, columns_of
from gaitway.envs.motions.importers.amp import LEG_FEET, LEG_JOINTS
from gaitway.functional.rotations import rotate_back

SUFFIXES = (".txt", ".json")


def write_amp(clip: Clip, path: str | Path) -> int:
    """Write a clip; returns the numbers of a row. Bodies after the root are its feet."""
    if clip.balls or not clip.bodies:
        raise MotionError(f"{clip.name} has ball joints or no root, and AMP files no columns for that; keep the folder")
    joints = LEG_JOINTS if set(clip.joints) == set(LEG_JOINTS) else clip.joints
    feet = LEG_FEET if set(clip.bodies[1:]) == set(LEG_FEET) else clip.bodies[1:]
    frames = clip.frames
    order = columns_of(clip.joints, joints, clip.name, "joint")
    places = columns_of(clip.bodies, feet, clip.name, "body")
    position, rotation = frames.body_positions[:, 0], frames.body_rotations[:, 0]
    velocity, spin = frames.body_velocities[:, 0], frames.body_angular_velocities[:, 0]
    around = rotation[:, None]
    away = frames.body_positions[:, places] - position[:, None]
    speed = frames.body_velocities[:, places] - velocity[:, None] - np.cross(spin[:, None], away)
    rows = np.concatenate(
        (
            position,
            rotation[:, [1, 2, 3, 0]],
            frames.joint_positions[:, order],
            rotate_back(around, away).reshape(len(clip), -1),
            rotate_back(rotation, velocity),
            rotate_back(rotation, spin),
            frames.joint_velocities[:, order],
            rotate_back(around, speed).reshape(len(clip), -1),
        ),
        1,
    )
    document = {
        "LoopMode": "Wrap" if clip.loop else "Clamp",
        "FrameDuration": clip.dt,
        "EnableCycleOffsetPosition": True,
        "EnableCycleOffsetRotation": True,
        "MotionWeight": clip.weight,
        "Frames": rows.tolist(),
    }
    atomic_write_json(path, document)
    return rows.shape[1]
