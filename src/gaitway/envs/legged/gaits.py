"""Procedural gaits: where each foot of a quadruped should be at a phase of its cycle, for a commanded velocity.

Phase of leg i: frac(phase + offset_i). In stance (phase below the duty factor b) a foot moves backwards with the
velocity of the ground below it, in swing it returns on a cubic without a jump in velocity, lifted by h/2 (1 - cos 2 pi
u). The stride of a foot follows from its own velocity, (vx - w y, vy + w x) at its nominal place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gaitway.core.config import configuration, to_config
from gaitway.core.ranges import Number, Positive, PositiveShare, Share
from gaitway.envs.legged.kinematics import leg_angles

OFFSETS = {
    "trot": (0.0, 0.5, 0.5, 0.0),
    "pace": (0.0, 0.5, 0.0, 0.5),
    "bound": (0.0, 0.0, 0.5, 0.5),
    "walk": (0.25, 0.75, 0.0, 0.5),
}
"""Of FL, FR, RL, RR, in cycles."""


@configuration(kw_only=True)
class GaitConfig:
    """A gait of four legs."""

    name: str = "trot"
    """trot, pace, bound or walk: the order of the legs."""
    frequency: Positive = 2.5
    """Cycles per second; a whole number of control steps per cycle closes it exactly."""
    duty: PositiveShare = 0.6
    """Share of the cycle in which a foot is on the ground."""
    lift: Positive = 0.06
    """Height of the swing (m)."""
    height: Positive = 0.285
    """Of the hips above the ground (m)."""
    x_offset: Number = -0.03
    """Nominal feet ahead of the hips (m)."""
    authority: Share = 1.0
    """Share of the gait that `gait_residual` corrects, the rest is the default pose; `set_gait_authority` moves it."""

    def __post_init__(self) -> None:
        if self.name not in OFFSETS:
            raise ValueError(f"name is {self.name!r}; use one of {list(OFFSETS)}")
        if self.duty >= 1.0:
            raise ValueError("duty is 1: no foot would ever be lifted; use less")


@dataclass(frozen=True)
class Gait:
    """A gait of one robot, on a device. `side` and `front` [4] are +-1 for FL, FR, RL, RR."""

    config: GaitConfig
    hip_x: float
    hip_y: float
    hip_offset: float
    thigh: float
    calf: float
    foot_radius: float
    offsets: Tensor
    front: Tensor
    side: Tensor
    zeros: tuple[float, float] = (0.0, 0.0)
    """Angles of thighs and calves at which legs hang straight (rad)."""

    @property
    def facts(self) -> dict[str, Any]:
        """What a robot needs to walk so by itself, plain: for the contract."""
        sizes = ("hip_x", "hip_y", "hip_offset", "thigh", "calf", "foot_radius")
        zeros = dict(zip(("thigh_zero", "calf_zero"), self.zeros, strict=True)) if any(self.zeros) else {}
        found = to_config(self.config) | {name: getattr(self, name) for name in sizes} | zeros
        if self.config.authority == 1.0:
            del found["authority"]
        return found | {"offsets": self.offsets.tolist()}

    def feet(
        self, phase: Tensor, command: Tensor, height: Tensor | None = None, x_offset: Tensor | None = None
    ) -> Tensor:
        """phase [n] in cycles, command [n, 3] -> feet in the frames of their hips [n, 4, 3].

        `height` [n, 4] and `x_offset` [n] take the place of the gait's own.
        """
        gait = self.config
        ahead = torch.full_like(phase, gait.x_offset) if x_offset is None else x_offset
        above = torch.full_like(phase, gait.height)[:, None].expand(-1, 4) if height is None else height
        x = self.front * self.hip_x + ahead[:, None]
        y = self.side * (self.hip_y + self.hip_offset)
        vx, vy, turn = (command[:, column, None] for column in range(3))
        velocity = torch.stack((vx - turn * y, vy + turn * x), -1)  # [n, 4, 2]
        along, lift = stride(torch.frac(phase[:, None] + self.offsets), velocity, gait)
        place_x = ahead[:, None] + along[..., 0]
        place_y = self.side * self.hip_offset + along[..., 1]
        return torch.stack((place_x, place_y, lift - above + self.foot_radius), -1)

    def pose(
        self, phase: Tensor, command: Tensor, height: Tensor | None = None, x_offset: Tensor | None = None
    ) -> Tensor:
        """The joint angles of `feet` [n, 12]."""
        offset = (self.side * self.hip_offset).expand(len(phase), 4)
        feet = self.feet(phase, command, height, x_offset)
        angles = leg_angles(feet, offset, self.thigh, self.calf)
        if any(self.zeros):
            hip, swing, knee = angles.unbind(-1)
            angles = torch.stack((hip, swing + self.zeros[0], knee + self.zeros[1]), -1)
        return angles.flatten(1)


def stride(phase: Tensor, velocity: Tensor, gait: GaitConfig) -> tuple[Tensor, Tensor]:
    """phase [...] in [0, 1), velocity [..., 2] -> way along the ground [..., 2] and height above it [...]."""
    period, duty = 1.0 / gait.frequency, gait.duty
    length = velocity * (duty * period)
    stance = length / 2 - velocity * (phase * period)[..., None]
    u = ((phase - duty) / (1.0 - duty)).clamp(min=0.0)
    slope = -velocity * ((1.0 - duty) * period)
    # cubic Hermite from -length/2 to length/2 with the same slope at both ends
    bend = (2.0 * u**3 - 3.0 * u**2)[..., None]
    swing = length * (-0.5 - bend) + slope * (u - 3.0 * u**2 + 2.0 * u**3)[..., None]
    lift = gait.lift / 2 * (1.0 - torch.cos(2.0 * torch.pi * u))
    on_ground = phase < duty
    return torch.where(on_ground[..., None], stance, swing), torch.where(on_ground, torch.zeros_like(lift), lift)
