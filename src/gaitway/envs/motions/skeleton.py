"""A robot's joints between two languages: qpos and qvel of a MuJoCo model, and the frames of a clip.

The root is the body that the others hang on. With a free joint qpos holds its place and quaternion; the planar robots
have slides along x and z and a hinge about y instead, which say the same. All other joints are found by their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from gaitway.envs.batch_task import BatchTask
from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.frames import Frames, MotionError, columns_of
from gaitway.envs.motions.lowest import touching_geoms
from gaitway.envs.motions.mirror import Mirror, other_side
from gaitway.envs.robots.robot import ALIGNED, BALL, FREE, HINGE, SLIDE, Robot, mirror_sign
from gaitway.functional.rotations import (
    about,
    angle_about,
    inverse,
    normalised,
    product,
    rotate,
    rotate_back,
)

OUT_OF_PLANE = 0.05
"""Sine of half the angle (rad) up to which a rotation counts as one about the only axis a robot can turn about."""


@dataclass(frozen=True)
class _Slide:
    """A joint of the root along an axis of the world."""

    axis: int
    position: int
    velocity: int
    offset: float
    """World coordinate minus qpos."""


@dataclass(frozen=True)
class _Turn:
    """The one hinge of the root."""

    axis: np.ndarray
    position: int
    velocity: int
    reference: float
    """qpos at which the body stands as the file has it."""


class Skeleton:
    """The robot in a compiled model, which may hold more than the robot. `joints` and `balls` are in the model's order.

    `kind` of the root: "free", "planar" (x, z and pitch alone), "partial" (some other of the six ways to move) or
    "fixed".
    """

    def __init__(self, model: mujoco.MjModel, name: str, joints: Sequence[str], torso: str) -> None:
        self.model, self.name, self.torso = model, name, torso
        self._body = model.body(torso).id
        self._base_position = model.body_pos[self._body].copy()
        self._base_rotation = model.body_quat[self._body].copy()
        self._free: tuple[int, int] | None = None
        self._slides: list[_Slide] = []
        self._turn: _Turn | None = None
        hinges: list[int] = []
        balls: list[int] = []
        for joint in joints:
            number = model.joint(joint).id
            if not self._is_root(number):
                (balls if model.jnt_type[number] == BALL else hinges).append(number)
        self.joints = tuple(model.joint(number).name for number in hinges)
        self.balls = tuple(model.joint(number).name for number in balls)
        self.joint_numbers = np.array(hinges, dtype=np.int64)
        self._positions = model.jnt_qposadr[hinges].astype(np.int64)
        self._velocities = model.jnt_dofadr[hinges].astype(np.int64)
        self._balls = [(int(model.jnt_qposadr[number]), int(model.jnt_dofadr[number])) for number in balls]

    @classmethod
    def of_robot(cls, robot: Robot) -> Skeleton:
        return cls(robot.model, robot.name, robot.joints, robot.torso)

    @classmethod
    def of_task(cls, task: BatchTask) -> Skeleton:
        """The robot of a task; where it names none, whatever moves in its model."""
        robot, model = getattr(task, "robot", None), task.model
        if isinstance(robot, Robot):
            return cls(model, robot.name, robot.joints, robot.torso)
        names = [model.joint(number).name for number in range(model.njnt)]
        if "" in names or not names:
            raise MotionError(f"{task.id} has joints without names, so no clip can move them; name them in its model")
        return cls(model, task.id, names, model.body(model.body_rootid[model.jnt_bodyid[0]]).name)

    @property
    def kind(self) -> str:
        if self._free is not None:
            return "free"
        axes = {slide.axis for slide in self._slides}
        if not axes and self._turn is None:
            return "fixed"
        turns_in_plane = self._turn is None or abs(self._turn.axis[1]) > ALIGNED
        return "planar" if axes == {0, 2} and turns_in_plane else "partial"

    @property
    def bodies(self) -> tuple[str, ...]:
        """Of a clip without further bodies: the root, unless it is fixed."""
        return () if self.kind == "fixed" else (self.torso,)

    def frames(self, qpos: np.ndarray, qvel: np.ndarray) -> Frames:
        """States of the model, qpos [n, nq] and qvel [n, nv], as frames of `joints`, `bodies` and `balls`."""
        count, bodies = len(qpos), len(self.bodies)
        shape = (count, bodies, 3)
        position, rotation, velocity, spin = self._root(qpos, qvel)
        own = [(normalised(qpos[:, at : at + 4]), qvel[:, to : to + 3]) for at, to in self._balls]
        return Frames(
            qpos[:, self._positions].astype(np.float64),
            qvel[:, self._velocities].astype(np.float64),
            np.reshape(position if bodies else (), shape),
            np.reshape(rotation if bodies else (), (count, bodies, 4)),
            np.reshape(velocity if bodies else (), shape),
            np.reshape(spin if bodies else (), shape),
            np.stack([turn for turn, _ in own], 1) if own else np.zeros((count, 0, 4)),
            np.stack([speed for _, speed in own], 1) if own else np.zeros((count, 0, 3)),
        )

    def clip(
        self, qpos: np.ndarray, qvel: np.ndarray, fps: float, bodies: Sequence[str] | None = None, **facts: object
    ) -> Clip:
        """A clip of states [F, nq] and [F, nv], with the poses of `bodies` beside that of the root (None: all bodies
        that hang on it); names of sites and geoms stand for their places on a body, such as feet."""
        frames = self.frames(qpos, qvel)
        if bodies is None:
            below = [number for number in range(1, self.model.nbody) if self.model.body_rootid[number] == self._body]
            names = [name for number in below if (name := self.model.body(number).name)]
        else:
            names = list(bodies)
        others = [name for name in names if name not in self.bodies]
        if others:
            poses = self._poses(qpos, qvel, others)
            added = {
                field: np.concatenate([getattr(frames, field), array], 1)
                for field, array in zip(
                    ("body_positions", "body_rotations", "body_velocities", "body_angular_velocities"),
                    poses,
                    strict=True,
                )
            }
            frames = frames.replaced(**added)
        return Clip(frames, fps, self.joints, (*self.bodies, *others), self.balls, **facts)  # type: ignore[arg-type]

    def fit(self, joints: Sequence[str], bodies: Sequence[str], balls: Sequence[str], clip: str) -> Fit:
        """How the columns of a clip, or of a library, come into states of this model; an error if one is missing."""
        if unknown := [name for name in joints if name not in self.joints]:
            raise MotionError(
                f"{clip} moves the joint {unknown[0]!r}, which {self.name} does not have; it has "
                f"{', '.join(self.joints)}"
            )
        if self.kind != "fixed" and not bodies:
            raise MotionError(f"{clip} holds no root, and {self.name} moves about; use a clip with its {self.torso}")
        return Fit(
            self,
            np.array(columns_of(joints, self.joints, clip, f"joint of {self.name}"), dtype=np.int64),
            columns_of(balls, self.balls, clip, f"ball joint of {self.name}"),
            clip,
        )

    def mirror(self) -> Mirror:
        """Which joint of the robot takes whose place in a mirror, and with which sign, from the axes in its file."""
        data = mujoco.MjData(self.model)
        mujoco.mj_resetData(self.model, data)
        mujoco.mj_kinematics(self.model, data)
        partners, signs = {}, {}
        for name in self.joints:
            partner = other_side(name)
            partners[name] = partner = partner if partner in self.joints else name
            sign = mirror_sign(self.model, data, name, partner)
            if sign is None:
                raise MotionError(f"{name!r} and {partner!r} of {self.name} are no mirror images; no mirror fits")
            signs[name] = sign
        return Mirror(partners, signs)

    @property
    def place(self) -> list[int]:
        """Columns of qpos that tell where on the floor the root is."""
        if self._free is not None:
            return [self._free[0], self._free[0] + 1]
        return [slide.position for slide in self._slides if slide.axis != 2]

    @property
    def height(self) -> int | None:
        """Column of qpos with the height of the root; None where nothing raises it."""
        if self._free is not None:
            return self._free[0] + 2
        return next((slide.position for slide in self._slides if slide.axis == 2), None)

    def heading(self, qpos: np.ndarray) -> np.ndarray | None:
        """Which way roots head about the vertical [n] (rad); None where they cannot turn about it freely."""
        if self._free is None:
            return None
        w, i, j, k = qpos[:, self._free[0] + 3 : self._free[0] + 7].T
        return np.arctan2(2.0 * (w * k + i * j), w * w + i * i - j * j - k * k)

    def turn_to(self, heading: np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> None:
        """Turn states about the vertical until they head that way [n]: roll and pitch stay, velocities turn along."""
        now = self.heading(qpos)
        assert now is not None
        assert self._free is not None
        at, to = self._free
        turn = about(np.array([0.0, 0.0, 1.0]), heading - now)
        qpos[:, at + 3 : at + 7] = product(turn, qpos[:, at + 3 : at + 7])
        qvel[:, to : to + 3] = rotate(turn, qvel[:, to : to + 3])  # angular ones are in the root's frame

    @property
    def geoms(self) -> list[int]:
        """What of the robot can touch the floor."""
        return touching_geoms(self.model, int(self.model.body_rootid[self._body]))

    def _is_root(self, number: int) -> bool:
        """Whether a joint moves the root in one of the ways that a clip knows; notes how."""
        model = self.model
        if model.jnt_bodyid[number] != self._body:
            return False
        kind, position, velocity = (int(a[number]) for a in (model.jnt_type, model.jnt_qposadr, model.jnt_dofadr))
        if kind == FREE:
            self._free = (position, velocity)
            return True
        axis = rotate(self._base_rotation, model.jnt_axis[number])
        at = int(np.abs(axis).argmax())
        if kind == SLIDE and axis[at] > ALIGNED:
            offset = self._base_position[at] - model.qpos0[position]
            self._slides.append(_Slide(at, position, velocity, float(offset)))
            return True
        if kind == HINGE and axis[at] > ALIGNED and self._moves_about():
            if self._turn is not None:
                raise MotionError(f"the root of {self.name} turns about several hinges; give it a free joint")
            if np.abs(model.jnt_pos[number]).max() > 1e-9:
                raise MotionError(f"the root of {self.name} turns about a point beside its origin; put the hinge there")
            self._turn = _Turn(model.jnt_axis[number].copy(), position, velocity, float(model.qpos0[position]))
            return True
        return False

    def _moves_about(self) -> bool:
        """Whether the root slides: a hinge without slides is the first joint of an arm."""
        here = np.flatnonzero(self.model.jnt_bodyid == self._body)
        return bool((self.model.jnt_type[here] == SLIDE).any())

    def _root(self, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Position [n, 3], rotation [n, 4], velocity and angular velocity [n, 3] of the root, in the world's frame."""
        if self._free is not None:
            at, to = self._free
            rotation = normalised(qpos[:, at + 3 : at + 7])
            spin = rotate(rotation, qvel[:, to + 3 : to + 6])
            return qpos[:, at : at + 3], rotation, qvel[:, to : to + 3], spin
        position = np.tile(self._base_position, (len(qpos), 1))
        velocity, spin = np.zeros((2, len(qpos), 3))
        for slide in self._slides:
            position[:, slide.axis] = qpos[:, slide.position] + slide.offset
            velocity[:, slide.axis] = qvel[:, slide.velocity]
        rotation = np.tile(self._base_rotation, (len(qpos), 1))
        if self._turn is not None:
            rotation = product(rotation, about(self._turn.axis, qpos[:, self._turn.position] - self._turn.reference))
            spin = qvel[:, [self._turn.velocity]] * rotate(self._base_rotation, self._turn.axis)
        return position, rotation, velocity, spin

    def _poses(self, qpos: np.ndarray, qvel: np.ndarray, bodies: Sequence[str]) -> list[np.ndarray]:
        """Positions, rotations, velocities and angular velocities of bodies, by forward kinematics."""
        data, objects = mujoco.MjData(self.model), [self._object(name) for name in bodies]
        shape = (len(qpos), len(objects))
        positions, rotations, both = np.zeros((*shape, 3)), np.zeros((*shape, 4)), np.zeros((*shape, 6))
        for frame in range(len(qpos)):
            data.qpos[:], data.qvel[:] = qpos[frame], qvel[frame]
            mujoco.mj_kinematics(self.model, data)
            mujoco.mj_comPos(self.model, data)
            mujoco.mj_comVel(self.model, data)
            for place, (kind, number) in enumerate(objects):
                if kind == mujoco.mjtObj.mjOBJ_XBODY:
                    positions[frame, place], rotations[frame, place] = data.xpos[number], data.xquat[number]
                else:
                    is_site = kind == mujoco.mjtObj.mjOBJ_SITE
                    at, turned = (data.site_xpos, data.site_xmat) if is_site else (data.geom_xpos, data.geom_xmat)
                    positions[frame, place] = at[number]
                    mujoco.mju_mat2Quat(rotations[frame, place], turned[number])
                mujoco.mj_objectVelocity(self.model, data, kind, number, both[frame, place], 0)
        return [positions, rotations, both[..., 3:].copy(), both[..., :3].copy()]

    def _object(self, name: str) -> tuple[mujoco.mjtObj, int]:
        """What `name` is in the model, and its number: a body, a site or a geom."""
        kinds = mujoco.mjtObj
        pairs = ((kinds.mjOBJ_BODY, kinds.mjOBJ_XBODY), (kinds.mjOBJ_SITE,) * 2, (kinds.mjOBJ_GEOM,) * 2)
        for known, kind in pairs:
            number = mujoco.mj_name2id(self.model, known, name)
            if number >= 0:
                return kind, number
        raise MotionError(f"{self.name} has no body, site or geom {name!r}")


class Fit:
    """Writes frames of a clip into states of a model, joint by joint."""

    def __init__(self, skeleton: Skeleton, joints: np.ndarray, balls: list[int], clip: str) -> None:
        self.skeleton, self._joints, self._ball_columns, self._clip = skeleton, joints, balls, clip

    def write(self, frames: Frames, qpos: np.ndarray, qvel: np.ndarray) -> None:
        """Write into qpos [n, nq] and qvel [n, nv]; what is not the robot's stays."""
        skeleton = self.skeleton
        qpos[:, skeleton._positions] = frames.joint_positions[:, self._joints]
        qvel[:, skeleton._velocities] = frames.joint_velocities[:, self._joints]
        for column, (at, to) in zip(self._ball_columns, skeleton._balls, strict=True):
            qpos[:, at : at + 4] = frames.ball_rotations[:, column]
            qvel[:, to : to + 3] = frames.ball_velocities[:, column]
        if skeleton.kind != "fixed":
            self._write_root(frames, qpos, qvel)

    def _write_root(self, frames: Frames, qpos: np.ndarray, qvel: np.ndarray) -> None:
        skeleton = self.skeleton
        position, rotation = frames.body_positions[:, 0], frames.body_rotations[:, 0]
        velocity, spin = frames.body_velocities[:, 0], frames.body_angular_velocities[:, 0]
        if skeleton._free is not None:
            at, to = skeleton._free
            qpos[:, at : at + 3], qpos[:, at + 3 : at + 7] = position, rotation
            qvel[:, to : to + 3], qvel[:, to + 3 : to + 6] = velocity, rotate_back(rotation, spin)
            return
        for slide in skeleton._slides:
            qpos[:, slide.position] = position[:, slide.axis] - slide.offset
            qvel[:, slide.velocity] = velocity[:, slide.axis]
        turn, relative = skeleton._turn, product(inverse(skeleton._base_rotation), rotation)
        axis = np.zeros(3) if turn is None else turn.axis
        aside = np.linalg.norm(relative[:, 1:] - (relative[:, 1:] @ axis)[:, None] * axis, axis=1)
        if aside.max(initial=0.0) > OUT_OF_PLANE:
            degrees = np.degrees(2.0 * np.arcsin(min(1.0, float(aside.max()))))
            raise MotionError(
                f"{self._clip} turns its root by {degrees:.0f} degrees in a way that {skeleton.name} cannot; "
                "use a clip of a robot that moves alike"
            )
        if turn is not None:
            angle = angle_about(axis, relative)
            qpos[:, turn.position] = angle + turn.reference
            qvel[:, turn.velocity] = spin @ rotate(skeleton._base_rotation, axis)

    def states(self, frames: Frames) -> tuple[np.ndarray, np.ndarray]:
        """qpos [n, nq] and qvel [n, nv] over time, without jumps of angles; the rest of the model as in its file."""
        model = self.skeleton.model
        qpos = np.tile(model.qpos0, (len(frames), 1))
        qvel = np.zeros((len(frames), model.nv))
        self.write(frames, qpos, qvel)
        if (turn := self.skeleton._turn) is not None:
            qpos[:, turn.position] = np.unwrap(qpos[:, turn.position])
        return qpos, qvel


def robot_name(task: BatchTask) -> str:
    """The robot of a task, "" where it names none."""
    robot = getattr(task, "robot", None)
    return robot.name if isinstance(robot, Robot) else ""
