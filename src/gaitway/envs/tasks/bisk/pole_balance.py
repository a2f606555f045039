"""Balance poles: `polebalance`.

A pole stands on the robot: on top of the Walker's torso and of the Humanoid's head, in the middle of the HalfCheetah's
torso. Further poles stand on its tip. Planar robots have a hinge below each pole, the others a ball joint with, for the
Humanoids, a weak spring that pulls it upright. With the vertical components k of the poles' axes, poles of length L
fail when L (k_1 + ... + k_n-1) + L (k_1 + k_n) / 2 < 0.8 n L: one pole at a tilt of 36.87 degrees. Every step pays 1
until then.

Observed are the joints of all poles, then their velocities. As published the latter are not velocities but the entries
of qpos at the velocities' indices, for the Walker the angle again; `pole_velocity=true` (the default of the ids that
end in `-fixed`) shows velocities.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import Batch

from gaitway.core.config import configuration
from gaitway.core.ranges import Count, Positive
from gaitway.envs.batch_task import Rows
from gaitway.envs.robots import world
from gaitway.envs.robots.robot import as_index
from gaitway.envs.spec import Component
from gaitway.envs.tasks.bisk.base import BiskConfig, BiskTask, between

FEET = {
    "walker": ("torso", 0.3, 0.05),
    "humanoid": ("head", 0.09, 0.02),
    "humanoidpc": ("head", 0.09, 0.02),
    "halfcheetah": ("torso", 0.0, 0.05),
    "cube": ("torso", 0.2, 0.05),
    "cube2d": ("torso", 0.2, 0.05),
}
"""Body that the first pole stands on, how high above its origin (m), and the poles' radius (m)."""
DAMPING = 0.1
NOISE = 0.01
UPRIGHT_SHARE = 0.8
"""Poles have failed when they stand lower than this share of their length."""


@configuration(kw_only=True)
class PoleBalanceConfig(BiskConfig):
    pole_mass: Positive = 0.5
    """kg, of each pole."""
    pole_length: Positive = 0.5
    """m, of each pole."""
    n_poles: Count = 1
    pole_velocity: bool = False
    """Velocities where the benchmark shows entries of qpos."""


class PoleBalanceTask(BiskTask):
    task = "polebalance"
    task_key = "pole"
    config_class = PoleBalanceConfig
    config: PoleBalanceConfig
    facts: Mapping[str, Any] = {"decision_interval": 1}
    """Poles fall within a few steps: whoever decides for several steps at once decides at each one here."""

    def prepare(self) -> None:
        self._joint_sizes = (1, 1) if self.robot.is_planar else (4, 3)

    def add_course(self, spec: mujoco.MjSpec, decorated: bool) -> None:
        world.add_floor(spec)
        name, foot, radius = FEET[self.robot.name]
        body, length = spec.body(name), self.config.pole_length
        kinds = mujoco.mjtJoint
        for pole in range(self.config.n_poles):
            body = body.add_body(name=f"pole_{pole}", pos=[0.0, 0.0, length if pole else foot])
            # what is not named here (armature, the Humanoids' spring, contacts) is as in the robot's own parts
            # linear, quadratic and cubic damping; the benchmark has the first alone
            joint = body.add_joint(name=f"pole_{pole}", pos=[0.0, 0.0, 0.0], damping=[DAMPING, 0.0, 0.0])
            joint.limited = mujoco.mjtLimited.mjLIMITED_TRUE
            if self.robot.is_planar:
                joint.type, joint.axis, joint.stiffness = kinds.mjJNT_HINGE, [0.0, 1.0, 0.0], [0.0] * 3
                joint.range = world.in_file_units(spec, -180.0, 180.0)
            else:
                joint.type = kinds.mjJNT_BALL
                joint.range = world.in_file_units(spec, 0.0, 90.0)
            body.add_geom(
                name=f"pole_{pole}",
                type=mujoco.mjtGeom.mjGEOM_CAPSULE,
                fromto=[0.0, 0.0, 0.0, 0.0, 0.0, length],
                size=[radius, 0.0, 0.0],
                mass=self.config.pole_mass,
                rgba=[0.8, 0.2 + 0.5 * (pole % 2), 0.1, 1.0],
            )

    def task_components(self) -> tuple[Component, ...]:
        poles, (positions, velocities) = range(self.config.n_poles), self._joint_sizes
        joint = ("angle", "rad") if self.robot.is_planar else ("quaternion", "")
        second = ("angular_velocity", "rad/s") if self.config.pole_velocity else ("qpos_at_velocity_index", "")
        return (
            *(Component(f"pole_{pole}_{joint[0]}", positions, joint[1]) for pole in poles),
            *(Component(f"pole_{pole}_{second[0]}", velocities, second[1]) for pole in poles),
        )

    def object_draws(self) -> tuple[int, int]:
        positions, velocities = self._joint_sizes
        return self.config.n_poles * positions, self.config.n_poles * velocities

    def sample_objects(self, uniform: np.ndarray, normal: np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> None:
        positions, velocities = self._pole_indices
        drawn = self.model.qpos0[positions] + between(-NOISE, NOISE, uniform)  # upright: 0, or w x y z = 1 0 0 0
        if not self.robot.is_planar:
            quaternions = drawn.reshape(len(drawn), -1, 4)
            quaternions /= np.linalg.norm(quaternions, axis=2, keepdims=True)
        qpos[:, positions], qvel[:, velocities] = drawn, NOISE * normal

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        positions, velocities = self._pole_indices
        self._positions = as_index(positions.tolist())
        self._velocities = as_index(velocities.tolist())
        self._split = len(positions)

    def judge(self, fell: np.ndarray, score: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> None:
        axes = self.vertical_axes()
        height = axes[:, :-1].sum(axis=1) + 0.5 * (axes[:, 0] + axes[:, -1])
        np.less(height, UPRIGHT_SHARE * self.config.n_poles, out=terminated)
        score[:] = ~(terminated | fell)
        reward[:] = score

    def vertical_axes(self) -> np.ndarray:
        """Vertical components of the poles' axes [B, n_poles]: 1 upright, 0 lying.

        Between the torso and the first pole nothing turns.
        """
        poles = self.qpos[:, self._positions]
        own = self.view.positions(self.qpos)
        if self.robot.pitch_index is not None:
            return np.cos(own[:, self.robot.pitch_index, None] + np.cumsum(poles, axis=1))
        if self.robot.is_planar:
            return np.cos(np.cumsum(poles, axis=1))
        turns = [poles[:, 4 * pole : 4 * pole + 4] for pole in range(self.config.n_poles)]
        if self.robot.quaternion_index is not None:
            first = own[:, self.robot.quaternion_index : self.robot.quaternion_index + 4]
            turns[0] = quaternion_product(first, turns[0])
        for pole in range(1, len(turns)):
            turns[pole] = quaternion_product(turns[pole - 1], turns[pole])
        squares = np.square(np.stack(turns, axis=1))
        lying = squares[..., 1] + squares[..., 2]  # x and y
        return 1.0 - 2.0 * lying / squares.sum(axis=-1)

    def observe_task(self, rows: Rows, out: np.ndarray) -> None:
        out[:, : self._split] = self.qpos[rows][:, self._positions]
        source = self.qvel if self.config.pole_velocity else self.qpos
        out[:, self._split :] = source[rows][:, self._velocities]

    @functools.cached_property
    def _pole_indices(self) -> tuple[np.ndarray, np.ndarray]:
        """Entries of qpos and of qvel that belong to the poles, from the lowest pole up."""
        joints = [self.model.joint(f"pole_{pole}") for pole in range(self.config.n_poles)]
        positions, velocities = (np.arange(size) for size in self._joint_sizes)
        return (
            np.concatenate([joint.qposadr[0] + positions for joint in joints]),
            np.concatenate([joint.dofadr[0] + velocities for joint in joints]),
        )


def quaternion_product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """[n, 4] times [n, 4], both w x y z: first the turn of `right`, then that of `left`."""
    a, b, c, d = left.T
    e, f, g, h = right.T
    return np.stack(
        [
            a * e - b * f - c * g - d * h,
            a * f + b * e + c * h - d * g,
            a * g - b * h + c * e + d * f,
            a * h + b * g - c * f + d * e,
        ],
        axis=1,
    )
