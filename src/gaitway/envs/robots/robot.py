"""What a robot is: a model file, a first state and a fall test; the rest is read from the file.

    Robot("hopper", Path(__file__).with_name("hopper.xml"), frame_skip=5)

`Robot` describes the machine alone. `RobotView` finds it again in a compiled model, where a task may have put joints
and bodies of its own between the robot's: a pole on a humanoid's head moves all hinges four entries up in qpos.
All numbers are float64; B is the number of instances and n the number of those asked for.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np

from gaitway.envs.spec import Component

ALL = slice(None)
Index = slice | np.ndarray
"""Columns of an array: a slice where they lie side by side, else sorted int64 indices."""

FallTest = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(qpos [B, nq], torso height [B], vertical component of the torso's z axis [B]) -> fallen [B]."""

ROOT_NQ, ROOT_NV = 7, 6
"""Entries of a free joint in qpos (place, quaternion w x y z) and qvel (linear in the world, angular in the body)."""
FREE, BALL = int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_BALL)
SLIDE, HINGE = int(mujoco.mjtJoint.mjJNT_SLIDE), int(mujoco.mjtJoint.mjJNT_HINGE)
ROOT_AXES = {SLIDE: ("x", "y", "z"), HINGE: ("roll", "pitch", "yaw")}
"""What a joint of the torso along or about an axis of the world says."""
ALIGNED = 0.999
"""Cosine from which on two axes are the same."""


def mirror_sign(model: mujoco.MjModel, data: mujoco.MjData, joint: str, partner: str) -> float | None:
    """Whether `joint` turns as its `partner` does in a mirror of the x-z plane, 1.0, or the other way round, -1.0, by
    their axes in the state of `data`; None if they are no mirror images. Turns flip x and z, slides flip y."""
    numbers = [model.joint(each).id for each in (joint, partner)]
    own, other = (data.xaxis[number] for number in numbers)
    flips = (1.0, -1.0, 1.0) if model.jnt_type[numbers[0]] == SLIDE else (-1.0, 1.0, -1.0)
    same = float(np.dot(other * np.array(flips), own))
    return None if abs(same) < ALIGNED else math.copysign(1.0, same)


@dataclass(frozen=True)
class Robot:
    """One robot. Names, sizes and indices are those of the file; indices count entries of the robot's own qpos."""

    name: str
    asset: str | Path
    """MJCF file. A name without a folder is a file beside this one, anything else is a path."""
    frame_skip: int = 1
    """Substeps per control step."""
    initial_height: float | None = None
    """Torso height (m) of the first state; None for that of the file."""
    fall_test: FallTest | None = None
    """None: it never falls."""
    edit: Callable[[mujoco.MjSpec], None] | None = None
    """Changes of the model that the file does not hold."""

    def __post_init__(self) -> None:
        if not self.path.is_file():
            raise ValueError(
                f"the robot {self.name!r} has no model file {str(self.path)!r}; write asset as a path with its folder, "
                f"for example Path(__file__).with_name({self.path.name!r})"
            )
        if self.frame_skip < 1:
            raise ValueError(f"frame_skip of {self.name} is {self.frame_skip}; use at least one substep per step")

    @property
    def path(self) -> Path:
        is_ours = Path(self.asset).name == str(self.asset)
        return Path(__file__).with_name(str(self.asset)) if is_ours else Path(self.asset)

    def spec(self) -> mujoco.MjSpec:
        """The robot alone, editable; `gaitway.envs.robots.world` adds what is around it. Nameless parts get numbers."""
        try:
            spec = mujoco.MjSpec.from_file(str(self.path))
        except ValueError as error:
            said = " ".join(str(error).split())  # MuJoCo takes several lines
            raise ValueError(
                f"MuJoCo cannot read {str(self.path)!r}, the file of {self.name}: {said}; correct it there"
            ) from error
        if self.edit is not None:
            self.edit(spec)
        for kind, parts in (("joint", spec.joints), ("body", spec.bodies[1:])):
            for number, part in enumerate(parts):
                part.name = part.name or f"{kind}_{number}"
        return spec

    @functools.cached_property
    def model(self) -> mujoco.MjModel:
        """The robot alone, compiled; to look things up in."""
        model = self.spec().compile()
        if model.njnt == 0:
            raise ValueError(f"nothing moves in {str(self.path)!r}, the file of {self.name}: give a body a joint")
        return model

    @property
    def nq(self) -> int:
        return self.model.nq

    @property
    def nv(self) -> int:
        return self.model.nv

    @property
    def nu(self) -> int:
        return self.model.nu

    @property
    def timestep(self) -> float:
        """Seconds per physics substep."""
        return self.model.opt.timestep

    @functools.cached_property
    def joints(self) -> tuple[str, ...]:
        """Names in the order of qpos; a free joint counts once."""
        return tuple(self.model.joint(number).name for number in range(self.model.njnt))

    @functools.cached_property
    def action_names(self) -> tuple[str, ...]:
        """Names of the actuators in the order of ctrl."""
        return tuple(self.model.actuator(number).name for number in range(self.model.nu))

    @functools.cached_property
    def bodies(self) -> tuple[str, ...]:
        return tuple(self.model.body(number).name for number in range(1, self.model.nbody))

    @functools.cached_property
    def torso(self) -> str:
        """The body that the others hang on: the first of the file that moves or carries what moves."""
        return self.model.body(self.model.body_rootid[self.model.jnt_bodyid[0]]).name

    @functools.cached_property
    def height_index(self) -> int:
        """Where qpos holds the absolute height of the torso."""
        index, height = self._root_index("z"), float(self.model.body(self.torso).pos[2])
        if self.model.qpos0[index] != height:
            raise ValueError(
                f"the joint of {self.name} along z reads {self.model.qpos0[index]:g} where the torso is at {height:g} "
                f'm; write ref="{height:g}" in the file, so that it is the height'
            )
        return index

    @functools.cached_property
    def forward_index(self) -> int:
        """Where qpos holds the x position of the torso."""
        return self._root_index("x")

    @functools.cached_property
    def horizontal_indices(self) -> tuple[int, ...]:
        """Where qpos tells where on the floor the torso is; policies do not see it."""
        return tuple(self._root[axis] for axis in "xy" if axis in self._root)

    @property
    def pitch_index(self) -> int | None:
        """Where qpos holds the rotation about y, for robots that turn about the axes one by one."""
        return self._root.get("pitch")

    @property
    def quaternion_index(self) -> int | None:
        """Where the torso's quaternion begins in qpos, for robots with a free joint."""
        return self._root.get("quaternion")

    @property
    def is_planar(self) -> bool:
        """Moves in the x-z plane only."""
        return not self._root.keys() & {"y", "roll", "yaw", "quaternion"}

    @functools.cached_property
    def _root(self) -> dict[str, int]:
        """What the joints of the torso say, x, y, z, roll, pitch, yaw or quaternion -> entry of qpos."""
        model, axis = self.model, np.zeros(3)
        found: dict[str, int] = {}
        body = model.body(self.torso).id
        for joint in np.flatnonzero(model.jnt_bodyid == body):
            index, kind = int(model.jnt_qposadr[joint]), int(model.jnt_type[joint])
            if kind == FREE:
                found |= {"x": index, "y": index + 1, "z": index + 2, "quaternion": index + 3}
            elif kind == BALL:
                found["quaternion"] = index
            else:
                mujoco.mju_rotVecQuat(axis, model.jnt_axis[joint], model.body_quat[body])
                if axis.max() > ALIGNED:
                    found[ROOT_AXES[kind][int(axis.argmax())]] = index
        return found

    def _root_index(self, axis: str) -> int:
        if axis not in self._root:
            raise ValueError(
                f"no joint of {self.torso!r}, the torso of {self.name}, moves it along {axis}; give it a free joint or "
                f"a slide joint with the axis {'1 0 0' if axis == 'x' else '0 0 1'}"
            )
        return self._root[axis]

    @functools.cached_property
    def _quaternions(self) -> list[slice]:
        """Where quaternions lie in qpos."""
        starts = {FREE: 3, BALL: 0}
        kinds = zip(self.model.jnt_type.tolist(), self.model.jnt_qposadr.tolist(), strict=True)
        return [slice(first + starts[kind], first + starts[kind] + 4) for kind, first in kinds if kind in starts]

    def initial_qpos(self) -> np.ndarray:
        """The file's first keyframe, else its own pose, with the torso at `initial_height`, [nq]."""
        qpos = (self.model.key_qpos[0] if self.model.nkey else self.model.qpos0).copy()
        if self.initial_height is not None:
            qpos[self.height_index] = self.initial_height
        return qpos

    def draw_state(self, generator: np.random.Generator, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
        """qpos [nq] = initial + U(-noise, noise), quaternions then normalised; qvel [nv] = noise * N(0, 1).

        Drawn in this order, in two calls.
        """
        qpos = self.initial_qpos() + generator.uniform(-noise, noise, self.nq)
        qvel = noise * generator.standard_normal(self.nv)
        for quaternion in self._quaternions:
            qpos[quaternion] /= np.linalg.norm(qpos[quaternion])
        return qpos, qvel

    def first_states(
        self, uniform: np.ndarray, normal: np.ndarray, noise: float = 0.1
    ) -> tuple[np.ndarray, np.ndarray]:
        """`draw_state` for n robots, to rounding: their numbers in [0, 1) [n, nq] and normal ones [n, nv] are given."""
        qpos = self.initial_qpos() + (-noise + 2 * noise * uniform)
        for quaternion in self._quaternions:
            qpos[:, quaternion] /= np.linalg.norm(qpos[:, quaternion], axis=1, keepdims=True)
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
        if self.fall_test is None:
            return np.zeros(len(qpos), dtype=bool)
        return self.fall_test(qpos, height, self.upright(qpos) if upright is None else upright)


class RobotView:
    """Where a robot's joints and bodies are in a compiled model that may hold more than the robot.

    `qpos`, `qvel`, `bodies` index the last axis of the model's qpos and qvel and the body axis of xpos, xmat and
    cfrc_ext. `torso` is a body number. `is_whole` says that qpos and qvel hold nothing but the robot.
    """

    def __init__(self, robot: Robot, model: mujoco.MjModel) -> None:
        self.robot = robot
        joints = [_number(model, mujoco.mjtObj.mjOBJ_JOINT, name, robot) for name in robot.joints]
        bodies = [_number(model, mujoco.mjtObj.mjOBJ_BODY, name, robot) for name in robot.bodies]
        positions, velocities = _addresses(model, joints)
        if (len(positions), len(velocities)) != (robot.nq, robot.nv):
            raise ValueError(
                f"the joints of {robot.name} have {len(positions)} positions and {len(velocities)} velocities in this "
                f"model; the robot has {robot.nq} and {robot.nv}. Build the model from the robot's spec()"
            )
        self.qpos = as_index(positions)
        self.qvel = as_index(velocities)
        self.bodies = as_index(bodies)
        self.torso = bodies[robot.bodies.index(robot.torso)]
        self.is_whole = (model.nq, model.nv) == (robot.nq, robot.nv)
        self._body_numbers = dict(zip(robot.bodies, bodies, strict=True))
        self._positions = positions

    @functools.cached_property
    def height(self) -> int:
        """Column of the model's qpos with the absolute height of the torso."""
        return self._positions[self.robot.height_index]

    @functools.cached_property
    def forward(self) -> int:
        """Column of the model's qpos with the x position of the torso."""
        return self._positions[self.robot.forward_index]

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
        raise ValueError(f"the model has nothing called {name!r}; build it from spec() of {robot.name}")
    return number


def _addresses(model: mujoco.MjModel, joints: Sequence[int]) -> tuple[list[int], list[int]]:
    """Entries of qpos and qvel that belong to these joints, in their order."""
    sizes = {FREE: (ROOT_NQ, ROOT_NV), BALL: (4, 3)}
    positions: list[int] = []
    velocities: list[int] = []
    for joint in joints:
        num_positions, num_velocities = sizes.get(int(model.jnt_type[joint]), (1, 1))
        first_position, first_velocity = int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])
        positions += range(first_position, first_position + num_positions)
        velocities += range(first_velocity, first_velocity + num_velocities)
    return positions, velocities


def position_components(model: mujoco.MjModel) -> tuple[Component, ...]:
    """Names and units of qpos, joint by joint; a free joint gives x, y, z and a quaternion w x y z."""
    components: list[Component] = []
    for name, kind in _names_and_kinds(model):
        if kind == FREE:
            components += (Component(f"{name}_{axis}", 1, "m") for axis in "xyz")
        if kind in (FREE, BALL):
            components.append(Component(f"{name}_quaternion", 4))
        else:
            components.append(Component(name, 1, "m" if kind == SLIDE else "rad"))
    return tuple(components)


def velocity_components(model: mujoco.MjModel) -> tuple[Component, ...]:
    """Names and units of qvel, joint by joint; a free joint moves in the world frame and turns in its own."""
    components: list[Component] = []
    for name, kind in _names_and_kinds(model):
        if kind == FREE:
            components.append(Component(f"{name}_velocity", 3, "m/s"))
        if kind in (FREE, BALL):
            components.append(Component(f"{name}_angular_velocity", 3, "rad/s"))
        else:
            components.append(Component(f"{name}_velocity", 1, "m/s" if kind == SLIDE else "rad/s"))
    return tuple(components)


def _names_and_kinds(model: mujoco.MjModel) -> list[tuple[str, int]]:
    return [(model.joint(number).name, int(model.jnt_type[number])) for number in range(model.njnt)]
