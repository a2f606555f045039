"""What ends an episode of a legged robot: it has fallen, or it has passed its track.

On a plane and on tiles limits are the robot's. On a track they follow the block under the robot, leaving the track ends
an episode too, and under bars and between walls robots may touch them.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import torch
from torch import Tensor

from gaitway.envs.legged.frame import Frame, roll_and_pitch

FINISH = "finish"
ENDINGS = ("trunk", "links", "tilt", "height", FINISH)
"""What may terminate an episode: contact of the base, of a link; the base tilted too far; the base too low; the end of
a track, which truncates it otherwise."""
TOUCHED = 1.0
"""Force of a contact that counts (N)."""


def fallen(frame: Frame, endings: Collection[str]) -> Tensor:
    """Who has fallen [n], as far as `endings` lists it; who is beside its track has in any case."""
    place, robot = frame.place, frame.robot
    found = torch.zeros_like(frame.terminated)
    touches = torch.zeros_like(frame.terminated)
    if "trunk" in endings:
        touches = touches | (frame.trunk_force > TOUCHED)
    if "links" in endings and frame.link_force.shape[1]:
        touches = touches | (frame.link_force > TOUCHED).any(1)
    if place is None:
        if "tilt" in endings:
            found = found | (frame.gravity[:, 2] > -math.cos(robot.fall_tilt))
        if "height" in endings:
            found = found | (frame.height < robot.fall_height)
        return found | touches
    if "tilt" in endings:
        found = found | place.is_tilted(*roll_and_pitch(frame.gravity))
    if "height" in endings:
        found = found | place.is_low(frame.height, robot.fall_height)
    return found | (touches & ~place.may_touch()) | place.is_off()


def finished(frame: Frame) -> Tensor:
    """Who has passed its track without a fall [n]; nobody has where there is none."""
    if frame.place is None:
        return torch.zeros_like(frame.terminated)
    return frame.place.is_past() & ~frame.terminated
