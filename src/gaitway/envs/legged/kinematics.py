"""Where feet are: chains of hinges in general, and the closed form of a leg with hip, thigh and calf."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gaitway.envs.legged.frame import rotate

CLEARANCE = 0.005
"""How far above the ground (m) the lowest foot is when an episode begins."""


@dataclass(frozen=True)
class FootChains:
    """From the base to each foot: J hinges, padded with ones that do not turn (`joint` = A). Constants of the model.

    Before hinge j the frame moves by `offset` and turns by `turn`; the hinge turns about `axis` through `anchor`.
    """

    joint: Tensor
    """Number of the joint in the policy's order [F, J], A for none."""
    offset: Tensor
    """[F, J, 3]"""
    turn: Tensor
    """[F, J, 4]"""
    axis: Tensor
    anchor: Tensor
    """[F, J, 3]"""
    zero: Tensor
    """Positions of the joints at which nothing is turned [A]."""
    tip: Tensor
    """The foot in the last frame [F, 3]."""

    def __call__(self, q: Tensor) -> Tensor:
        """Joint positions [n, A] -> feet in the base frame [n, F, 3]."""
        q = torch.cat((q - self.zero, torch.zeros_like(q[:, :1])), 1)
        count, (feet, links) = len(q), self.joint.shape
        place = self.tip.expand(count, feet, 3)
        for link in reversed(range(links)):
            half = q[:, self.joint[:, link]] / 2
            spin = torch.cat((half.cos()[..., None], half.sin()[..., None] * self.axis[:, link]), -1)
            place = rotate(spin, place - self.anchor[:, link]) + self.anchor[:, link]
            place = rotate(self.turn[:, link].expand(count, feet, 4), place) + self.offset[:, link]
        return place


def leg_angles(foot: Tensor, hip_offset: Tensor, thigh: float, calf: float) -> Tensor:
    """Feet [..., 3] in the frames of their hips -> hip, thigh, calf angles [..., 3]; out of reach: the leg straight.

    `hip_offset` [...] is positive on the left. The knee bends backwards.
    """
    x, y, z = foot.unbind(-1)
    down = (y * y + z * z - hip_offset * hip_offset).clamp(min=0.0).sqrt()
    hip = torch.atan2(z, y) - torch.atan2(-down, hip_offset)
    hip = torch.remainder(hip + math.pi, 2.0 * math.pi) - math.pi
    bend = (x * x + down * down - thigh * thigh - calf * calf) / (2.0 * thigh * calf)
    knee = -bend.clamp(-1.0, 1.0).acos()
    swing = torch.atan2(-x, down) - torch.atan2(calf * knee.sin(), thigh + calf * knee.cos())
    return torch.stack((hip, swing, knee), -1)


def leg_foot(angles: Tensor, hip_offset: Tensor, thigh: float, calf: float) -> Tensor:
    """The inverse of `leg_angles`: angles [..., 3] -> feet [..., 3] in the frames of their hips."""
    hip, swing, knee = angles.unbind(-1)
    x = -thigh * swing.sin() - calf * (swing + knee).sin()
    down = -thigh * swing.cos() - calf * (swing + knee).cos()
    y = hip_offset * hip.cos() - down * hip.sin()
    z = hip_offset * hip.sin() + down * hip.cos()
    return torch.stack((x, y, z), -1)
