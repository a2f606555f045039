"""What a step was, as tensors [B, ...]: the frame that actions, observations, rewards and endings are functions of.

A simulator hands out `Physics`, its own arrays as tensors; `measure` makes a `Frame` of them. SI units, z up, x
forward, y left, quaternions w x y z. Base frame: turned with the base; yaw frame: turned about the vertical alone;
IMU frame: what is measured is told in it, and the base's where a robot names no site for it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from gaitway.envs.legged.terrain.blocks import Place

CONTACT_FORCE = 1.0
"""A foot is in contact above this force (N)."""
FEW = 4
"""So many numbers torch adds in their order."""
SOFT = 0.9
"""Share of a joint's range that is free of penalties."""
Parts = TypeVar("Parts")
Columns = Tensor | slice
"""Of qpos or qvel: a slice where they stand side by side, of which no copy is made."""


@dataclass(frozen=True)
class RobotTensors:
    """A robot as tensors: [A] joints in the policy's order, F feet, and where its numbers are."""

    joints: tuple[str, ...]
    feet: int
    is_planar: bool
    root_position: tuple[int, ...]
    """Columns of qpos: (first,) of a free joint, or x, z, pitch."""
    root_velocity: tuple[int, ...]
    num_velocities: int
    positions: Columns
    velocities: Columns
    """Of qpos and qvel [A]."""
    foot_geoms: int
    links: int
    trunks: int
    """Contact sensors come first: of each geom of each foot, of geoms of the base, of links; four numbers each, whether
    there is contact and the force on what it touches. Then come positions and velocities of feet."""
    foot_radius: Tensor
    """How far below their places feet end in the default pose (m) [F]."""
    home: Tensor
    """qpos [nq] of the default pose."""
    pose: Tensor
    low: Tensor
    high: Tensor
    kp: Tensor
    kd: Tensor
    effort: Tensor
    pose_weights: Tensor
    """How much it matters that a joint leaves the default pose [A]."""
    action_offset: Tensor
    action_scale: Tensor
    mass: float
    stand_height: float
    fall_height: float
    fall_tilt: float
    imu_position: Tensor | None = None
    imu_rotation: Tensor | None = None
    """Of what measures how the base moves, in the base [3] and [4]; None: its own frame."""

    @property
    def size(self) -> int:
        return len(self.joints)

    @property
    def soft_low(self) -> Tensor:
        return (self.low + self.high) / 2 - SOFT * (self.high - self.low) / 2

    @property
    def soft_high(self) -> Tensor:
        return (self.low + self.high) / 2 + SOFT * (self.high - self.low) / 2


@dataclass
class Bodies:
    """All bodies of models, for tasks that ask where points of a robot are."""

    position: Tensor
    """[n, K, 3] in the world"""
    rotation: Tensor
    """[n, K, 4]"""
    velocity: Tensor
    """Angular and linear [n, K, 6] in the world, linear as if the body reached to `centre`."""
    centre: Tensor
    """The robot's centre of mass [n, 3]."""

    def rows(self, rows: Tensor) -> Bodies:
        return Bodies(self.position[rows], self.rotation[rows], self.velocity[rows], self.centre[rows])


@dataclass
class Physics:
    """Live arrays of a simulator as tensors: what they hold is the present state."""

    qpos: Tensor
    qvel: Tensor
    sensors: Tensor
    torque: Tensor
    """Of the last substep [B, A]."""
    bodies: Bodies | None = None
    """On tracks alone."""

    def rows(self, rows: Tensor) -> Physics:
        bodies = None if self.bodies is None else self.bodies.rows(rows)
        return Physics(self.qpos[rows], self.qvel[rows], self.sensors[rows], self.torque[rows], bodies)


@dataclass
class Substeps:
    """The substeps of a step [n, S, A]: positions and velocities before each, and the torque in it."""

    q: Tensor
    qd: Tensor
    torque: Tensor


@dataclass
class Frame:
    """All that terms may ask for; [n, ...]. What memory knows (`logic.py`) is filled in after `measure`."""

    robot: RobotTensors
    dt: float
    position: Tensor
    """Of the base in the world [n, 3]."""
    rotation: Tensor
    """[n, 4]"""
    velocity: Tensor
    """Of the base in the world [n, 3]."""
    lin_vel: Tensor
    ang_vel: Tensor
    gravity: Tensor
    """Velocities and the direction of gravity in the base frame [n, 3]."""
    yaw: Tensor
    """[n]"""
    yaw_vel: Tensor
    """Velocity in the yaw frame [n, 3]."""
    turn: Tensor
    """Angular velocity about the vertical [n]."""
    height: Tensor
    """Of the base above the ground [n]."""
    q: Tensor
    qd: Tensor
    torque: Tensor
    foot_position: Tensor
    foot_velocity: Tensor
    foot_force: Tensor
    """Of the ground on the foot [n, F, 3], in the world."""
    foot_height: Tensor
    """Of the sole above the ground [n, F]."""
    contact: Tensor
    """bool [n, F]"""
    link_force: Tensor
    """Norms [n, L]."""
    trunk_force: Tensor
    """[n]"""
    # from memory
    command: Tensor
    action: Tensor
    last_action: Tensor
    older_action: Tensor
    last_qd: Tensor
    steps: Tensor
    """Steps of the episode, this one included, 0 in first states [n]."""
    air_time: Tensor
    contact_time: Tensor
    """Seconds since the foot left the ground, since it touched it [n, F]."""
    first_contact: Tensor
    """bool [n, F]: landed in this step, after having been in the air for `air_time`."""
    peak: Tensor
    """Largest height of the sole since the foot left the ground [n, F]."""
    ctrl: Tensor
    """Targets of the joints [n, A]."""
    terminated: Tensor
    """bool [n]: by a fall. Rewards are computed after endings."""
    substeps: Substeps | None = None
    place: Place | None = None
    """Where on their tracks robots are."""

    @property
    def imu_lin_vel(self) -> Tensor:
        """Velocity of what measures it, in its own frame [n, 3]."""
        if self.robot.imu_position is None:
            return self.lin_vel
        around = torch.linalg.cross(self.ang_vel, self.robot.imu_position.expand_as(self.ang_vel))
        return self._in_imu(self.lin_vel + around)

    @property
    def imu_ang_vel(self) -> Tensor:
        return self._in_imu(self.ang_vel)

    @property
    def imu_gravity(self) -> Tensor:
        return self._in_imu(self.gravity)

    def _in_imu(self, vector: Tensor) -> Tensor:
        turn = self.robot.imu_rotation
        return vector if turn is None else rotate_back(turn.expand(len(vector), 4), vector)

    def moving(self, threshold: float = 0.1) -> Tensor:
        """Whether the command asks for a place elsewhere, bool [n]."""
        return norm(self.command[:, :2]) >= threshold


def moved_to(parts: Parts, like: Tensor) -> Parts:
    """A dataclass with its tensors on the device of `like`, those of floats in its type."""
    given: Any = parts
    values = {each.name: getattr(given, each.name) for each in fields(given)}
    found = {
        name: value.to(like) if value.is_floating_point() else value.to(like.device)
        for name, value in values.items()
        if isinstance(value, Tensor)
    }
    return replace(given, **found)


def measure(robot: RobotTensors, physics: Physics) -> dict[str, Tensor]:
    """Everything of a frame that follows from the physical state alone."""
    base = base_state(robot, physics.qpos, physics.qvel)
    feet, trunks = robot.feet * robot.foot_geoms, robot.trunks
    touching = 4 * (feet + trunks + robot.links)
    contacts = physics.sensors[:, :touching].unflatten(1, (-1, 4))
    foot_position, foot_velocity = physics.sensors[:, touching:].unflatten(1, (2, robot.feet, 3)).unbind(1)
    found = contacts[:, :feet, 0].unflatten(1, (robot.feet, -1)).amax(2) > 0
    forces = -summed(contacts[:, :feet, 1:].unflatten(1, (robot.feet, -1)), 2)  # over the geoms of a foot
    others = norm(contacts[:, feet:, 1:])
    return {
        **base,
        "height": base["position"][:, 2],
        "q": physics.qpos[:, robot.positions],
        "qd": physics.qvel[:, robot.velocities],
        "torque": physics.torque,
        "foot_position": foot_position,
        "foot_velocity": foot_velocity,
        "foot_force": forces,
        "foot_height": foot_position[..., 2] - robot.foot_radius,
        "contact": found & (norm(forces) > CONTACT_FORCE),
        "link_force": others[:, trunks:],
        "trunk_force": others[:, :trunks].amax(1) if trunks else torch.zeros_like(base["yaw"]),
    }


def base_state(robot: RobotTensors, qpos: Tensor, qvel: Tensor) -> dict[str, Tensor]:
    """Place, rotation and velocities of the base."""
    position, rotation, yaw = base_pose(robot, qpos)
    gravity = -up_in_base(rotation)
    moving = base_velocity(robot, qvel, rotation, gravity, yaw)
    return {"position": position, "rotation": rotation, "gravity": gravity, "yaw": yaw, **moving}


def base_pose(robot: RobotTensors, qpos: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Places [n, 3], quaternions [n, 4] and headings [n] of bases."""
    if robot.is_planar:
        x, z, pitch = (qpos[:, column] for column in robot.root_position)
        none = torch.zeros_like(x)
        position = torch.stack((x, none, z), 1)
        rotation = torch.stack(((pitch / 2).cos(), none, (pitch / 2).sin(), none), 1)
        yaw = none
    else:
        first = robot.root_position[0]
        position, rotation = qpos[:, first : first + 3], qpos[:, first + 3 : first + 7]
        w, i, j, k = rotation.unbind(1)
        yaw = torch.atan2(2.0 * (w * k + i * j), 1.0 - 2.0 * (j * j + k * k))
    return position, rotation, yaw


def base_velocity(
    robot: RobotTensors, qvel: Tensor, rotation: Tensor, gravity: Tensor, yaw: Tensor
) -> dict[str, Tensor]:
    """Velocities of bases that are turned so. A free joint's qvel is linear in the world, angular in the base."""
    if robot.is_planar:
        vx, vz, rate = (qvel[:, column] for column in robot.root_velocity)
        none = torch.zeros_like(vx)
        velocity, ang_vel = torch.stack((vx, none, vz), 1), torch.stack((none, rate, none), 1)
    else:
        first = robot.root_velocity[0]
        velocity, ang_vel = qvel[:, first : first + 3], qvel[:, first + 3 : first + 6]
    return {
        "velocity": velocity,
        "lin_vel": rotate_back(rotation, velocity),
        "ang_vel": ang_vel,
        "yaw_vel": turned(velocity, -yaw),
        "turn": -summed(gravity * ang_vel),  # the vertical in the base frame is -gravity
    }


def rotate_back(rotation: Tensor, vector: Tensor) -> Tensor:
    """Vectors [..., 3] of the world in the frame of a body with quaternions [..., 4]."""
    scalar, axis = rotation[..., :1], rotation[..., 1:]
    twice = torch.linalg.cross(vector, axis).mul_(2.0)
    return torch.addcmul(vector, scalar, twice).add_(torch.linalg.cross(twice, axis))


def rotate(rotation: Tensor, vector: Tensor) -> Tensor:
    """Vectors [..., 3] of a body's frame in the world."""
    scalar, axis = rotation[..., :1], rotation[..., 1:]
    twice = torch.linalg.cross(axis, vector).mul_(2.0)
    return torch.addcmul(vector, scalar, twice).add_(torch.linalg.cross(axis, twice))


def roll_and_pitch(gravity: Tensor) -> tuple[Tensor, Tensor]:
    """Angles [n] of bases with the direction of gravity [n, 3] in their frame."""
    return torch.atan2(-gravity[:, 1], -gravity[:, 2]), torch.asin(gravity[:, 0].clamp(-1.0, 1.0))


def up_in_base(rotation: Tensor) -> Tensor:
    """The vertical [n, 3] in the base frame."""
    w, i, j, k = rotation.unbind(-1)
    return torch.stack((2.0 * (i * k - w * j), 2.0 * (j * k + w * i), 1.0 - 2.0 * (i * i + j * j)), -1)


def turned(vector: Tensor, angle: Tensor) -> Tensor:
    """Vectors [n, 3] turned about the vertical by angles [n]."""
    cos, sin = angle.cos(), angle.sin()
    x, y, z = vector.unbind(-1)
    return torch.stack((cos * x - sin * y, sin * x + cos * y, z), -1)


def norm(vector: Tensor) -> Tensor:
    """Lengths over the last axis."""
    return summed(vector.square()).sqrt()


def summed(values: Tensor, axis: int = -1) -> Tensor:
    """The sum over an axis. A few numbers are added one by one: to the last bit what torch gives, whose reduction over
    so short an axis takes ten times as long on the CPU."""
    if not 1 <= values.shape[axis] <= FEW or not values.is_floating_point():
        return values.sum(axis)
    first, *others = values.unbind(axis)
    for other in others:
        first = first + other
    return first
