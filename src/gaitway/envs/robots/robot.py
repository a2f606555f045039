"""What a robot is: a model file, names in a fixed order, a first state and a fall test.

`Robot` describes the machine alone. `RobotView` finds it again in a compiled model, where a task may have put joints
and bodies of its own between the robot's: a pole on a humanoid's head moves all hinges four entries up in qpos.
All numbers are float64; B is the number of instances and n the number of those asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np

from gaitway.envs.vec_env import Component

ALL = slice(None)
Index = slice | np.ndarray
"""Columns of an array: a slice where they lie side by side, else sorted int64 indices."""

FallTest = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(qpos [B, nq], torso height [B], vertical component of the torso's z axis [B]) -> fallen [B]."""

ROOT_NQ, ROOT_NV = 7, 6
"""Entries of a free joint in qpos (place, quaternion w x y z) and qvel (linear in the world, angular in the body)."""
FORCE_LIMIT = 1.0
"""Contact forces (N) and torques (N m) are shown clipped to this: practically signed contact flags."""


@dataclass(frozen=True)
class Robot:
    """One robot. Indices count entries of the robot's own qpos, which begins with its root joints."""

    name: str
    asset: str
    """MJCF file in this folder: the robot alone, without floor, lights, sensors and textures."""
    joints: tuple[str, ...]
    """Names in the order of qpos; a free joint counts once."""
    action_names: tuple[str, ...]
    """Names of the actuators in the order of ctrl; all take -1..1."""
    bodies: tuple[str, ...]
    timestep: float
    """Seconds per physics substep."""
    frame_skip: int
    """Substeps per control step."""
    initial_height: float
    """Torso height (m) of the first state."""
    is_planar: bool
    """Moves in the x-z plane only."""
    height_index: int
    """Where qpos holds the absolute height of the torso."""
    forward_index: int
    """Where qpos holds the x position of the torso."""
    hidden: tuple[int, ...]
    """Entries of the `joints` features that tell where in the world the robot is; skills do not see them."""
    fall_test: FallTest
    pitch_index: int | None = None
    """Planar robots: where qpos holds the rotation about y."""
    quaternion_index: int | None = None
    """Robots with a free joint: where its quaternion begins in qpos."""
    bodyfeet: tuple[str, str, str] | None = None
    """Bodies that the `bodyfeet` features read: the one that feet are measured from, the left and the right foot."""
    edit: Callable[[mujoco.MjSpec], None] | None = None
    """Changes of the model that the file does not hold."""
    torso: str = "torso"

    @property
    def nq(self) -> int:
        return len(self.joints) + (ROOT_NQ - 1 if self.quaternion_index is not None else 0)

    @property
    def nv(self) -> int:
        return len(self.joints) + (ROOT_NV - 1 if self.quaternion_index is not None else 0)

    @property
    def nu(self) -> int:
        return len(self.action_names)

    @property
    def joint_names(self) -> tuple[str, ...]:
        """The joints that have an actuator, in the order of qpos (the actions of the Humanoid have another one)."""
        return tuple(name for name in self.joints if name in self.action_names)

    @property
    def control_dt(self) -> float:
        """Seconds per control step."""
        return self.timestep * self.frame_skip

    def spec(self) -> mujoco.MjSpec:
        """The robot alone, editable; `gaitway.envs.robots.world` adds what is around it."""
        spec = mujoco.MjSpec.from_file(str(Path(__file__).with_name(self.asset)))
        if self.edit is not None:
            self.edit(spec)
        return spec

    def initial_qpos(self) -> np.ndarray:
        """All joints at zero, the torso upright at its first height, [nq]."""
        qpos = np.zeros(self.nq)
        qpos[self.height_index] = self.initial_height
        if self.quaternion_index is not None:
            qpos[self.quaternion_index] = 1.0
        return qpos

    def draw_state(self, generator: np.random.Generator, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
        """qpos [nq] = initial + U(-noise, noise), the quaternion then normalised; qvel [nv] = noise * N(0, 1).

        Drawn in this order, in two calls.
        """
        qpos = self.initial_qpos() + generator.uniform(-noise, noise, self.nq)
        qvel = noise * generator.standard_normal(self.nv)
        if self.quaternion_index is not None:
            quaternion = qpos[self.quaternion_index : self.quaternion_index + 4]
            quaternion /= np.linalg.norm(quaternion)
        return qpos, qvel

    def first_states(
        self, uniform: np.ndarray, normal: np.ndarray, noise: float = 0.1
    ) -> tuple[np.ndarray, np.ndarray]:
        """`draw_state` for n robots, to rounding: their numbers in [0, 1) [n, nq] and normal ones [n, nv] are given."""
        qpos = self.initial_qpos() + (-noise + 2 * noise * uniform)
        if self.quaternion_index is not None:
            quaternion = qpos[:, self.quaternion_index : self.quaternion_index + 4]
            quaternion /= np.linalg.norm(quaternion, axis=1, keepdims=True)
        return qpos, noise * normal

    def upright(self, qpos: np.ndarray) -> np.ndarray:
        """qpos [B, nq] -> vertical component of the torso's z axis [B]: 1 upright, 0 lying, -1 upside down.

        The same number as `xmat[:, torso, 8]`, without asking the simulator for it.
        """
        if self.pitch_index is not None:
            return np.cos(qpos[:, self.pitch_index])
        if self.quaternion_index is not None:
            squares = np.square(qpos[:, self.quaternion_index : self.quaternion_index + 4])
            lying = squares[:, 1] + squares[:, 2]  # x and y of the quaternion
            return 1.0 - 2.0 * lying / (lying + squares[:, 0] + squares[:, 3])
        return np.ones(len(qpos))

    def tilt(self, qpos: np.ndarray) -> np.ndarray:
        """qpos [B, nq] -> angle of the torso's z axis to the vertical (rad) [B], for planar robots their pitch."""
        return qpos[:, self.pitch_index] if self.pitch_index is not None else np.arccos(self.upright(qpos))

    def fallen(self, qpos: np.ndarray, height: np.ndarray, upright: np.ndarray | None = None) -> np.ndarray:
        """Which robots have fallen over, bool [B].

        qpos [B, nq] holds the robot's own entries. `height` [B] is the torso's height (m), above z = 0 or above the
        ground below it, as the task says. `upright` [B], the vertical component of the torso's z axis, is computed
        where it is not given.
        """
        return self.fall_test(qpos, height, self.upright(qpos) if upright is None else upright)

    def position_components(self) -> tuple[Component, ...]:
        """Names and units of qpos."""
        return tuple(component for joint in self.spec().joints for component in _positions(joint))

    def velocity_components(self) -> tuple[Component, ...]:
        """Names and units of qvel; a free joint moves in the world frame and turns in its own."""
        return tuple(component for joint in self.spec().joints for component in _velocities(joint))

    def force_components(self) -> tuple[Component, ...]:
        """Names and units of the external wrench on every body, torque first as in MuJoCo's `cfrc_ext`."""
        kinds = (("torque", "N m"), ("force", "N"))
        return tuple(Component(f"{body}_{kind}", 3, unit) for body in self.bodies for kind, unit in kinds)

    def components_joints(self) -> tuple[Component, ...]:
        """Names and units of the `joints` features: qpos, qvel and the clipped wrenches of all bodies."""
        return self.position_components() + self.velocity_components() + self.force_components()


class RobotView:
    """Where a robot's joints and bodies are in a compiled model that may hold more than the robot.

    `qpos`, `qvel`, `bodies` index the last axis of the model's qpos and qvel and the body axis of xpos, xmat and
    cfrc_ext; `ctrl` the actuators. `torso` is a body number, `height` and `forward` are columns of the model's qpos.
    `is_whole` says that qpos and qvel hold nothing but the robot.
    """

    def __init__(self, robot: Robot, model: mujoco.MjModel) -> None:
        self.robot = robot
        joints = [_number(model, mujoco.mjtObj.mjOBJ_JOINT, name, robot) for name in robot.joints]
        bodies = [_number(model, mujoco.mjtObj.mjOBJ_BODY, name, robot) for name in robot.bodies]
        motors = [_number(model, mujoco.mjtObj.mjOBJ_ACTUATOR, name, robot) for name in robot.action_names]
        positions, velocities = _addresses(model, joints)
        if (len(positions), len(velocities)) != (robot.nq, robot.nv):
            raise ValueError(
                f"the joints of {robot.name} have {len(positions)} positions and {len(velocities)} velocities in this "
                f"model; the robot has {robot.nq} and {robot.nv}. Build the model from get_robot({robot.name!r}).spec()"
            )
        self.qpos = as_index(positions)
        self.qvel = as_index(velocities)
        self.bodies = as_index(bodies)
        self.ctrl = as_index(motors)
        self.torso = bodies[robot.bodies.index(robot.torso)]
        self.height = positions[robot.height_index]
        self.forward = positions[robot.forward_index]
        self.is_whole = (model.nq, model.nv) == (robot.nq, robot.nv)
        self._body_numbers = dict(zip(robot.bodies, bodies, strict=True))

    def body(self, name: str) -> int:
        """Number of one of the robot's bodies, for xpos, xmat and cfrc_ext."""
        if name not in self._body_numbers:
            raise KeyError(f"{self.robot.name} has no body {name!r}; it has {list(self._body_numbers)}")
        return self._body_numbers[name]

    def positions(self, qpos: np.ndarray, rows: Index = ALL) -> np.ndarray:
        """The robot's own qpos [n, robot.nq] of the model's [B, nq]; a view where that is possible."""
        return qpos[rows][:, self.qpos]

    def velocities(self, qvel: np.ndarray, rows: Index = ALL) -> np.ndarray:
        """The robot's own qvel [n, robot.nv] of the model's [B, nv]; a view where that is possible."""
        return qvel[rows][:, self.qvel]

    def forces(self, cfrc_ext: np.ndarray, rows: Index = ALL) -> np.ndarray:
        """External wrenches of the robot's bodies [n, bodies * 6] of the model's [B, nbody, 6]."""
        chosen = cfrc_ext[rows][:, self.bodies]
        return chosen.reshape(len(chosen), -1)

    def fallen(self, qpos: np.ndarray, height: np.ndarray | None = None, rows: Index = ALL) -> np.ndarray:
        """Fall test [n] on the model's qpos [B, nq]; `height` [n] replaces the height above z = 0."""
        own = self.positions(qpos, rows)
        return self.robot.fallen(own, own[:, self.robot.height_index] if height is None else height)

    def place(self, model: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The robot's state (qpos [robot.nq], qvel [robot.nv]) in a full state of the model, the rest at rest."""
        full_qpos, full_qvel = model.qpos0.copy(), np.zeros(model.nv)
        full_qpos[self.qpos], full_qvel[self.qvel] = qpos, qvel
        return full_qpos, full_qvel


def as_index(numbers: Sequence[int]) -> Index:
    """A slice for consecutive numbers, an int64 array for others."""
    if list(numbers) == list(range(numbers[0], numbers[0] + len(numbers))):
        return slice(numbers[0], numbers[0] + len(numbers))
    return np.array(numbers, dtype=np.int64)


def _number(model: mujoco.MjModel, kind: mujoco.mjtObj, name: str, robot: Robot) -> int:
    number = int(mujoco.mj_name2id(model, int(kind), name))
    if number < 0:
        raise ValueError(f"the model has nothing called {name!r}; build it from get_robot({robot.name!r}).spec()")
    return number


def _addresses(model: mujoco.MjModel, joints: Sequence[int]) -> tuple[list[int], list[int]]:
    """Entries of qpos and qvel that belong to these joints, in their order."""
    sizes = {
        int(mujoco.mjtJoint.mjJNT_FREE): (ROOT_NQ, ROOT_NV),
        int(mujoco.mjtJoint.mjJNT_BALL): (4, 3),
    }
    positions: list[int] = []
    velocities: list[int] = []
    for joint in joints:
        num_positions, num_velocities = sizes.get(int(model.jnt_type[joint]), (1, 1))
        first_position, first_velocity = int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])
        positions += range(first_position, first_position + num_positions)
        velocities += range(first_velocity, first_velocity + num_velocities)
    return positions, velocities


def _positions(joint: mujoco.MjsJoint) -> list[Component]:
    if joint.type == mujoco.mjtJoint.mjJNT_FREE:
        return [
            *(Component(f"{joint.name}_{axis}", 1, "m") for axis in "xyz"),
            Component(f"{joint.name}_quaternion", 4),
        ]
    return [Component(joint.name, 1, "m" if joint.type == mujoco.mjtJoint.mjJNT_SLIDE else "rad")]


def _velocities(joint: mujoco.MjsJoint) -> list[Component]:
    if joint.type == mujoco.mjtJoint.mjJNT_FREE:
        return [
            Component(f"{joint.name}_velocity", 3, "m/s"),
            Component(f"{joint.name}_angular_velocity", 3, "rad/s"),
        ]
    unit = "m/s" if joint.type == mujoco.mjtJoint.mjJNT_SLIDE else "rad/s"
    return [Component(f"{joint.name}_velocity", 1, unit)]
