"""How well a legged robot did: sums over an episode after its warm-up, and the figures that evaluations make of them.

Squares and counts are summed, and roots taken of all episodes together: a mean of roots would be another number.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gaitway.envs.legged.frame import Frame, norm
from gaitway.envs.vec_env import Pooled

GRAVITY = 9.81
MEASURES = (
    *("velocity_squares", "yaw_squares", "measured_steps", "distance", "joint_work", "slip", "stance_steps"),
    *("slipped", "action_change", "seconds"),
)
"""Told at the end of an episode as `<name>_episode`."""


def measures(frame: Frame, error: Tensor, yaw_error: Tensor, moved: Tensor) -> Tensor:
    """What a step adds to the sums [n, len(MEASURES)].

    `error` [n] is how far the velocity is off the command (m/s), `yaw_error` [n] the turn (rad/s), `moved` [n] how far
    the base came (m).
    """
    slip = (norm(frame.foot_velocity[..., :2]) * frame.contact).sum(1)
    return torch.stack(
        (
            error.square(),
            yaw_error.square(),
            torch.ones_like(error),
            moved,
            (frame.torque * frame.qd).abs().sum(1) * frame.dt,
            slip,
            frame.contact.sum(1).to(error.dtype),
            slip * frame.dt,
            norm(frame.action - frame.last_action),
            torch.full_like(error, frame.dt),
        ),
        1,
    )


def figures(mass: float) -> dict[str, Pooled]:
    """What evaluations tell of a robot of that mass (kg)."""

    def over(of: str, per: str, root: bool = False, factor: float = 1.0) -> Pooled:
        return Pooled(f"{of}_episode", f"{per}_episode", root, factor)

    return {
        "velocity_rmsd": over("velocity_squares", "measured_steps", root=True),
        "yaw_rmsd": over("yaw_squares", "measured_steps", root=True),
        "cost_of_transport": over("joint_work", "distance", factor=1.0 / (mass * GRAVITY)),
        "foot_slip": over("slip", "stance_steps"),
        "slip_per_metre": over("slipped", "distance"),
        "action_change_per_step": over("action_change", "measured_steps"),
    }
