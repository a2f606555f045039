"""Where robots are when an episode begins: states as functions of uniform numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from gaitway.envs.episode_numbers import Index
from gaitway.envs.legged.config import StartConfig
from gaitway.envs.legged.frame import RobotTensors, rotate
from gaitway.envs.legged.kinematics import CLEARANCE, FootChains
from gaitway.envs.legged.terrain.bank import FieldBank
from gaitway.envs.legged.terrain.tiles import Tiles
from gaitway.envs.legged.terrain.track import Track

DROP_HEIGHT = 0.5
START_DRAWS = 12
"""Numbers that a start takes, besides one for each joint."""


def first_states(
    start: StartConfig,
    robot: RobotTensors,
    chains: FootChains,
    uniform: Tensor,
    q: Tensor | None,
    terrain: Tiles | FieldBank | Track | None,
    rows: Index,
    drawn: Mapping[str, Tensor],
) -> tuple[Tensor, Tensor]:
    """qpos [n, nq] and qvel [n, nv] of new episodes of `rows`; `uniform` [n, START_DRAWS + A].

    `q` [n, A] are joints that somebody else decides about, such as a gait. Terrain is placed for what was `drawn`.
    """
    spread, joints = 2.0 * uniform[:, :START_DRAWS] - 1.0, uniform[:, START_DRAWS:]
    if start.tumbled:
        q = robot.low + (robot.high - robot.low) * joints
    elif q is None:
        q = robot.pose + start.joints * (2.0 * joints - 1.0)
    q = q.clamp(robot.low, robot.high)
    qpos = robot.home.expand(len(uniform), -1).clone()
    qvel = torch.zeros(len(uniform), robot.num_velocities, dtype=qpos.dtype, device=qpos.device)
    qpos[:, robot.positions] = q
    velocity = start.velocity * spread[:, 3:6]
    feet = chains(q)
    if robot.is_planar:
        x, z, pitch = robot.root_position
        qpos[:, x], qpos[:, z] = start.xy * spread[:, 0], CLEARANCE - (feet[..., 2] - robot.foot_radius).amin(1)
        if start.tumbled:
            qpos[:, z], qpos[:, pitch] = DROP_HEIGHT, math.pi * spread[:, 2]
        qvel[:, robot.root_velocity[0]], qvel[:, robot.root_velocity[1]] = velocity[:, 0], velocity[:, 2]
        return qpos, qvel
    first, motion = robot.root_position[0], robot.root_velocity[0]
    half = start.yaw * spread[:, 2] / 2
    none = torch.zeros_like(half)
    rotation = torch.stack((half.cos(), none, none, half.sin()), 1)
    if start.lean:
        rotation = _leaning(half, start.lean * spread[:, 6] / 2, start.lean * spread[:, 7] / 2)
        feet = rotate(rotation[:, None], feet)
    elif terrain is not None:
        feet = rotate(rotation[:, None], feet)
    place = start.xy * spread[:, :2]
    lowest = (feet[..., 2] - robot.foot_radius).amin(1)
    height = CLEARANCE - lowest
    if terrain is not None:
        place = place + terrain.origin(drawn)
        place = torch.cat((place[:, :1] + start.ahead, place[:, 1:]), 1)
        ground = terrain.ground(rows, feet[..., :2] + place[:, None])
        height = CLEARANCE + (ground + robot.foot_radius - feet[..., 2]).amax(1)
    if start.tumbled:
        rotation = _any_rotation(uniform[:, 6:9])
        height = torch.full_like(height, DROP_HEIGHT) if terrain is None else height + DROP_HEIGHT
    qpos[:, first : first + 2], qpos[:, first + 2] = place, height
    qpos[:, first + 3 : first + 7] = rotation
    qvel[:, motion : motion + 3] = velocity
    return qpos, qvel


def _leaning(yaw: Tensor, roll: Tensor, pitch: Tensor) -> Tensor:
    """Quaternions [n, 4] of half angles [n]: yaw about the vertical, then pitch, then roll."""
    (a, b), (c, d), (e, f) = ((angle.cos(), angle.sin()) for angle in (yaw, pitch, roll))
    return torch.stack((a * c * e + b * d * f, a * c * f - b * d * e, a * d * e + b * c * f, b * c * e - a * d * f), 1)


def _any_rotation(uniform: Tensor) -> Tensor:
    """Uniform numbers [n, 3] -> quaternions [n, 4], uniform over all rotations (Shoemake 1992)."""
    one, two = (1.0 - uniform[:, 0]).sqrt(), uniform[:, 0].sqrt()
    first, second = 2.0 * math.pi * uniform[:, 1], 2.0 * math.pi * uniform[:, 2]
    return torch.stack((two * second.cos(), one * first.sin(), one * first.cos(), two * second.sin()), 1)
