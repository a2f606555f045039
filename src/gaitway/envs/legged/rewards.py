"""Reward terms: functions of a frame, [n] each, without weight and time step.

A task's reward is the sum over its list of weight * value * dt. `TERMS` names them; a term of one's own is
`package.module:function`, called with the frame and the options of its entry.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from gaitway.core.config import configuration, did_you_mean, resolve_class
from gaitway.core.parts import bind_options, judge_part
from gaitway.core.ranges import NotNegative, Number, Positive
from gaitway.core.user_code import UserCodeError
from gaitway.envs.legged.frame import Frame, norm, roll_and_pitch, summed

if TYPE_CHECKING:
    from gaitway.envs.legged.terrain.blocks import Place

Term = Callable[..., Tensor]
TARGET_HEIGHT = 0.08
"""Of a swinging foot (m)."""
TERMINATION = "termination"
SLOW = 1e-3
"""m/s that points inside obstacles count as moving at least."""


@configuration(kw_only=True)
class RewardTerm:
    """An entry of a task's list."""

    name: str
    weight: Number
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the term."""


def tracking_lin_vel(frame: Frame, sigma: Positive = 0.25, frame_of: Literal["yaw", "body"] = "yaw") -> Tensor:
    velocity = frame.yaw_vel if frame_of == "yaw" else frame.lin_vel
    return torch.exp(-summed((frame.command[:, :2] - velocity[:, :2]).square()) / sigma)


def tracking_ang_vel(frame: Frame, sigma: Positive = 0.25) -> Tensor:
    return torch.exp(-(frame.command[:, 2] - frame.turn).square() / sigma)


def world_vel_l2norm(frame: Frame) -> Tensor:
    return norm(frame.command[:, :2] - frame.velocity[:, :2])


def alive(frame: Frame) -> Tensor:
    return torch.ones_like(frame.height)


def lin_vel_z(frame: Frame) -> Tensor:
    return frame.lin_vel[:, 2].square()


def ang_vel_xy(frame: Frame) -> Tensor:
    return summed(frame.ang_vel[:, :2].square())


def orientation(frame: Frame) -> Tensor:
    return summed(frame.gravity[:, :2].square())


def base_height(frame: Frame, target: Number | None = None) -> Tensor:
    return (frame.height - (frame.robot.stand_height if target is None else target)).square()


def pose(frame: Frame) -> Tensor:
    return torch.exp(-(frame.robot.pose_weights * (frame.q - frame.robot.pose).square()).sum(1))


def torques(frame: Frame) -> Tensor:
    return frame.torque.square().sum(1)


def energy(frame: Frame) -> Tensor:
    return (frame.torque * frame.qd).abs().sum(1)


def dof_acc(frame: Frame) -> Tensor:
    return ((frame.qd - frame.last_qd) / frame.dt).square().sum(1)


def dof_speed(frame: Frame, above: NotNegative = 2.0 * torch.pi) -> Tensor:
    return (frame.qd.abs() - above).clamp(min=0.0).square().sum(1)


def action_rate(frame: Frame) -> Tensor:
    return (frame.action - frame.last_action).square().sum(1)


def action_smooth(frame: Frame) -> Tensor:
    bend = (frame.action - 2.0 * frame.last_action + frame.older_action).square().sum(1)
    return torch.where(frame.steps > 2, bend, torch.zeros_like(bend))


def feet_air_time(frame: Frame, least: NotNegative = 0.2) -> Tensor:
    return summed((frame.air_time - least) * frame.first_contact) * frame.moving()


def air_time_biped(frame: Frame, most: Positive = 0.4) -> Tensor:
    """In single stance the shorter of the times for which one foot has stood and the other swung."""
    single = frame.contact.sum(1) == 1
    present = torch.where(frame.contact, frame.contact_time, frame.air_time)
    return present.amin(1).clamp(max=most) * single * frame.moving()


def feet_slip(frame: Frame) -> Tensor:
    return summed(summed(frame.foot_velocity[..., :2].square()) * frame.contact)


def feet_clearance(frame: Frame, target: NotNegative = TARGET_HEIGHT) -> Tensor:
    return summed((frame.foot_height - target).abs() * norm(frame.foot_velocity[..., :2]).sqrt())


def feet_height(frame: Frame, target: Positive = TARGET_HEIGHT) -> Tensor:
    return summed((frame.peak / target - 1.0).square() * frame.first_contact) * frame.moving()


def feet_force(frame: Frame, above: NotNegative = 150.0) -> Tensor:
    return summed((norm(frame.foot_force) - above).clamp(min=0.0))


def stumble(frame: Frame, ratio: NotNegative = 5.0) -> Tensor:
    force = frame.foot_force
    return (norm(force[..., :2]) > ratio * force[..., 2].abs()).any(1).to(force.dtype)


def collision(frame: Frame, above: NotNegative = 0.1) -> Tensor:
    return (frame.link_force > above).sum(1).to(frame.height.dtype)


def stand_still(frame: Frame) -> Tensor:
    stands = norm(frame.command) < 0.1
    return (frame.q - frame.robot.pose).abs().sum(1) * stands


def dof_pos_limits(frame: Frame) -> Tensor:
    low = (frame.robot.soft_low - frame.q).clamp(min=0.0)
    return (low + (frame.q - frame.robot.soft_high).clamp(min=0.0)).sum(1)


def lin_pos_y(frame: Frame) -> Tensor:
    return frame.position[:, 1].abs()


def yaw_abs(frame: Frame) -> Tensor:
    return frame.yaw.abs()


def upright(frame: Frame) -> Tensor:
    """exp(-2 |g - (0, 0, -1)|^2)"""
    away = summed(frame.gravity[:, :2].square()) + (frame.gravity[:, 2] + 1.0).square()
    return torch.exp(-2.0 * away)


def rise(frame: Frame, most: Positive = 0.26) -> Tensor:
    return torch.exp(frame.height.clamp(max=most)) - 1.0


def posture(frame: Frame) -> Tensor:
    return _is_upright(frame) * torch.exp(-0.5 * (frame.q - frame.robot.pose).square().sum(1))


def stillness(frame: Frame) -> Tensor:
    return _is_upright(frame) * torch.exp(-0.5 * frame.action.square().sum(1))


def penetrate_depth(frame: Frame) -> Tensor:
    """Sum over the points of the robot of how deep they are in obstacles, times how fast they move there."""
    place = _place(frame)
    return (place.penetration() * (place.speeds + SLOW)).sum(1)


def penetrate_volume(frame: Frame) -> Tensor:
    """The same, each point inside counted as one."""
    place = _place(frame)
    return ((place.penetration() > 0.0) * (place.speeds + SLOW)).sum(1)


def tilt_cond(frame: Frame) -> Tensor:
    """The roll between the walls of a tilt, less than nothing elsewhere."""
    roll = roll_and_pitch(frame.gravity)[0].abs().clamp(max=torch.pi / 2)
    return torch.where(_place(frame).tilts(), roll, -roll)


def finish(frame: Frame) -> Tensor:
    """1 in the step in which the whole robot is past the last block, without a fall."""
    return (_place(frame).is_past() & ~frame.terminated).to(frame.height.dtype)


def termination(frame: Frame) -> Tensor:
    return frame.terminated.to(frame.height.dtype)


def energy_substeps(frame: Frame) -> Tensor:
    """Mean over substeps of the squared powers of joints."""
    substeps = _substeps(frame)
    return (substeps.torque * substeps.qd).square().sum(2).mean(1)


def exceed_dof_pos(frame: Frame) -> Tensor:
    """Mean over substeps of the number of joints beyond their soft limits."""
    q = _substeps(frame).q
    return ((q < frame.robot.soft_low) | (q > frame.robot.soft_high)).sum(2).to(q.dtype).mean(1)


def exceed_torque(frame: Frame, share: NotNegative = 0.9) -> Tensor:
    """Sum over substeps of what unlimited torques have beyond a share of the limits."""
    substeps, robot = _substeps(frame), frame.robot
    asked = robot.kp * (frame.ctrl[:, None] - substeps.q) - robot.kd * substeps.qd
    return (asked.abs() - share * robot.effort).clamp(min=0.0).sum((1, 2))


def _substeps(frame: Frame) -> Any:
    if frame.substeps is None:
        raise ValueError(
            "the substeps of this step were not recorded: in training they are beside a term of the list that looks at "
            f"them; list one of {list(SUBSTEP_TERMS)} with a small weight"
        )
    return frame.substeps


def _place(frame: Frame) -> Place:
    if frame.place is None:
        raise ValueError("only tracks have obstacles to penetrate; this term needs terrain.kind=track")
    return frame.place


def _is_upright(frame: Frame) -> Tensor:
    return (frame.gravity[:, 2] < -0.8).to(frame.height.dtype)


TERMS: dict[str, Term] = {
    term.__name__: term
    for term in (
        *(tracking_lin_vel, tracking_ang_vel, world_vel_l2norm, alive, lin_vel_z, ang_vel_xy, orientation),
        *(base_height, pose, torques, energy, energy_substeps, dof_acc, dof_speed, action_rate, action_smooth),
        *(feet_air_time, air_time_biped, feet_slip, feet_clearance, feet_height, feet_force, stumble, collision),
        *(stand_still, dof_pos_limits, exceed_dof_pos, exceed_torque, lin_pos_y, yaw_abs),
        *(upright, rise, posture, stillness, penetrate_depth, penetrate_volume, tilt_cond, finish, termination),
    )
}
SUBSTEP_TERMS = ("energy_substeps", "exceed_dof_pos", "exceed_torque")
TRACK_TERMS = ("penetrate_depth", "penetrate_volume", "tilt_cond", "finish")


class Rewards:
    """A list of weighted terms as one function. Terms of weight 0 are left out."""

    def __init__(self, terms: Sequence[RewardTerm], clip_negative: bool) -> None:
        self.clip_negative = clip_negative
        self._terms = [
            (_short(each.name), each.weight, _function(each, f"env.options.rewards[{number}]"))
            for number, each in enumerate(terms)
            if each.weight
        ]
        self.names = tuple(name for name, _, _ in self._terms)
        if len(set(self.names)) != len(self.names):
            double = next(name for name in self.names if self.names.count(name) > 1)
            raise ValueError(f"rewards names {double!r} twice; write it once")

    def per_step(self, dt: float) -> list[float]:
        """What a value of 1 is worth in a step of `dt` seconds, of each term [K]."""
        return [weight * dt for _, weight, _ in self._terms]

    def number(self, name: str) -> int:
        """The place of a term among those that are paid."""
        if name not in self.names:
            raise ValueError(
                f"the reward has no term {name!r}{did_you_mean(name, self.names)}; it has {list(self.names)}. Terms of "
                "weight 0 are left out: begin with a small one"
            )
        return self.names.index(name)

    def try_own(self, frame: Frame) -> None:
        """Call the terms of users for nothing: they refuse what is not a number for each robot."""
        for _, _, term in self._terms:
            if isinstance(term, OwnTerm):
                term(frame)

    def __call__(self, frame: Frame, worth: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The reward [n], and what each term added to it [n, K]. `worth` [K] takes the place of `per_step`.

        With `clip_negative` a negative sum of all other terms becomes 0 before the termination's is added.
        """
        worths: Sequence[Any] = self.per_step(frame.dt) if worth is None else worth.unbind(0)
        parts = [each * function(frame) for each, (_, _, function) in zip(worths, self._terms, strict=True)]
        total = torch.zeros_like(frame.height)
        for name, part in zip(self.names, parts, strict=True):
            total = total + part if name != TERMINATION else total
        if self.clip_negative:
            total = total.clamp(min=0.0)
        for name, part in zip(self.names, parts, strict=True):
            total = total + part if name == TERMINATION else total
        return total, torch.stack(parts, 1) if parts else total.new_zeros(len(total), 0)


class OwnTerm:
    """A term of the user's. Tensors of a GPU cannot be looked at on the way: whatever does is named."""

    def __init__(self, name: str, function: Term) -> None:
        self.name, self.function = name, function

    def __call__(self, frame: Frame) -> Tensor:
        try:
            value = self.function(frame)
        except (TypeError, RuntimeError) as error:
            # torch: "can't convert cuda:0 device type tensor to numpy", "not permitted when stream is capturing"
            if not any(word in str(error) for word in ("to numpy", "captur")):
                raise
            raise UserCodeError(
                f"the reward term {self.name!r} needs values on the CPU, and those of {frame.height.device} stay "
                "where they are; write it with functions of torch alone: no NumPy, no .cpu(), no .item(), no branch on "
                "a value"
            ) from error
        if not isinstance(value, Tensor) or value.shape != frame.height.shape:
            gave = f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else repr(value)
            raise UserCodeError(
                f"the reward term {self.name!r} gives {gave} for {len(frame.height)} robots; return a tensor with one "
                f"number for each, {list(frame.height.shape)}"
            )
        return value


def _function(entry: RewardTerm, key: str) -> Term:
    """The term with its options; `key` is where its entry stands."""
    is_own = ":" in entry.name
    if not is_own and entry.name not in TERMS:
        raise ValueError(f"no reward term {entry.name!r}{did_you_mean(entry.name, TERMS)}; there are {sorted(TERMS)}")
    term = resolve_class(entry.name, key) if is_own else TERMS[entry.name]
    judge_part(term, entry.options, key)
    bound = bind_options(entry.name, term, entry.options, key, given={}, leading=1)  # the frame comes first
    function = functools.partial(term, **bound.kwargs)
    return OwnTerm(entry.name, function) if is_own else function


def _short(name: str) -> str:
    return name.rpartition(":")[2]
