"""How well a legged robot did: sums over an episode, and the figures that evaluations make of them.

Squares and counts are summed, and roots taken of all episodes together: a mean of roots would be another number. What
is measured after the warm-up stands first; falls and time count from the beginning.

The gait is told by touch-downs, of feet that were in the air for `FLIGHT` seconds: strides per second, and when in the
stride of the first foot each other one lands, as an angle: sums of its sine and cosine, so that 0 and 1 are the same.
Touch-downs per second are the stride frequency that the autocorrelation of contacts peaks at (a test compares the two
on a trot), need no contacts of the past, and can be pooled over episodes.

The share of saturated torques and the largest one are of every substep where substeps are recorded: in evaluations, and
where a reward term needs them. Elsewhere, and for the work of joints, torques are those of the last substep.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from gaitway.envs.legged.frame import Frame, norm, summed
from gaitway.envs.spec import Pooled

GRAVITY = 9.81
FLIGHT = 0.04
SATURATED = 0.99
"""Share of a joint's effort from which on it gives all it has."""
LEAST_WAY = 0.5
"""m; who comes less far has no cost of transport."""
AFTER_WARM_UP = (
    *("velocity_squares", "x_squares", "y_squares", "yaw_squares", "measured_steps", "distance", "weight_distance"),
    *("joint_work", "slip", "stance_steps", "foot_steps", "slipped", "action_change", "saturated", "joint_steps"),
    *("touchdowns", "foot_seconds"),
)
ALWAYS = ("falls", "seconds")
FALLS = ("fell", "falls_episode")
"""What says of a step that the robot fell, and of an episode."""
COSTS = (
    *("velocity_squares", "x_squares", "y_squares", "yaw_squares", "joint_work", "slip", "slipped", "action_change"),
    *("saturated", "falls"),
)
"""Sums of which less is better, as of the figures that are made of them."""


def measure_names(feet: int) -> tuple[str, ...]:
    """What is summed up, told at the end of an episode as `<name>_episode`."""
    turns = (f"phase_{part}_{foot}" for foot in range(1, feet) for part in ("sine", "cosine"))
    return *AFTER_WARM_UP, *turns, *ALWAYS


def costs(pooled: Mapping[str, Pooled]) -> list[str]:
    """Sums, and figures of `pooled`, of which less is better."""
    sums = [f"{name}_episode" for name in COSTS]
    return [*sums, *(name for name, figure in pooled.items() if figure.of in sums)]


def measures(
    frame: Frame, error: Tensor, yaw_error: Tensor, moved: Tensor, mass: Tensor, phase: Tensor, counts: Tensor
) -> Tensor:
    """What a step adds to the sums [n, len(measure_names(feet))].

    `error` [n, 2] is how far the velocity is off the command (m/s), `yaw_error` [n] the turn (rad/s), `moved` [n] how
    far the base came (m), `mass` [n] with its load (kg), `phase` [n, F - 1, 2] as from `touch_phases`; `counts` [n] is
    0 during the warm-up.
    """
    slip = summed(norm(frame.foot_velocity[..., :2]) * frame.contact)
    one, kind = torch.ones_like(yaw_error), yaw_error.dtype
    saturated = (substep_torques(frame).abs() >= SATURATED * frame.robot.effort).to(kind).mean(1).sum(1)
    feet, joints = frame.contact.shape[1], frame.torque.shape[1]
    measured = (
        summed(error.square()),
        error[:, 0].square(),
        error[:, 1].square(),
        yaw_error.square(),
        one,
        moved,
        moved * mass * GRAVITY,
        (frame.torque * frame.qd).abs().sum(1) * frame.dt,
        slip,
        frame.contact.sum(1).to(kind),
        one * feet,
        slip * frame.dt,
        norm(frame.action - frame.last_action),
        saturated,
        one * joints,
        landed(frame).sum(1).to(kind),
        one * (feet * frame.dt),
        *phase.flatten(1).unbind(1),
    )
    always = (frame.terminated.to(kind), one * frame.dt)
    return torch.cat((torch.stack(measured, 1) * counts[:, None], torch.stack(always, 1)), 1)


def substep_torques(frame: Frame) -> Tensor:
    """[n, S, A], of the last substep alone where others are not recorded."""
    return frame.torque[:, None] if frame.substeps is None else frame.substeps.torque


def landed(frame: Frame) -> Tensor:
    """bool [n, F]: feet that touch down after a flight."""
    return frame.first_contact & (frame.air_time >= FLIGHT)


def touch_phases(clock: Tensor, period: Tensor, landed: Tensor, dt: float) -> tuple[Tensor, Tensor, Tensor]:
    """The clock of the first foot's stride [n] (s), its last period [n], and touch-downs of the others as sine and
    cosine of their phase in it [n, F - 1, 2], 0 where there is none.

    A period of 0 means that the first foot has not landed yet, -1 that it has once.
    """
    clock = clock + dt
    known = (period > 0.0)[:, None]
    angle = 2.0 * math.pi * (clock / period.clamp(min=dt))[:, None]
    seen = (landed[:, 1:] & known).to(clock.dtype)
    phase = torch.stack((angle.sin() * seen, angle.cos() * seen), -1)
    first = landed[:, 0]
    period = torch.where(first, torch.where(period == 0.0, -torch.ones_like(period), clock), period)
    return torch.where(first, torch.zeros_like(clock), clock), period, phase


def figures(feet: int) -> dict[str, Pooled]:
    """What evaluations tell of a robot with so many feet."""

    def over(of: str, per: str, **how: float | bool | str) -> Pooled:
        return Pooled(f"{of}_episode", f"{per}_episode", **how)  # type: ignore[arg-type]

    return {
        "velocity_rmsd": over("velocity_squares", "measured_steps", root=True),
        "velocity_rmsd_x": over("x_squares", "measured_steps", root=True),
        "velocity_rmsd_y": over("y_squares", "measured_steps", root=True),
        "yaw_rmsd": over("yaw_squares", "measured_steps", root=True),
        "cost_of_transport": over("joint_work", "weight_distance", least=LEAST_WAY, least_of="distance_episode"),
        "falls_per_1000_s": over("falls", "seconds", factor=1000.0),
        "foot_slip": over("slip", "stance_steps"),
        "slip_per_metre": over("slipped", "distance"),
        "action_change_per_step": over("action_change", "measured_steps"),
        "torque_saturation": over("saturated", "joint_steps"),
        "duty_factor": over("stance_steps", "foot_steps"),
        "stride_frequency": over("touchdowns", "foot_seconds"),
        **{
            f"stride_phase_{foot}": over(f"phase_sine_{foot}", f"phase_cosine_{foot}", angle=True)
            for foot in range(1, feet)
        },
    }
