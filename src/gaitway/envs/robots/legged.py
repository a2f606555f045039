"""A robot on legs from any MJCF, by the names of its joints and feet.

`LeggedRobot` says which joints a policy moves and in which order, how stiff they are, which geoms are feet; it can be
written as a YAML file. From the model file it takes everything else: lights, keyframes, actuators and sensors of the
file go, and position actuators, contact sensors, foot sites and a first pose come. `LeggedView` finds it all again in
the compiled model. The force of a joint is clip(kp (target - q) - kd qd, +-effort) in every substep.

Regular expressions match whole names. Policies see joints in the order of `joints`, wherever the file has them.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

import mujoco
import numpy as np

from gaitway.core.config import configuration, did_you_mean, from_config, read_config
from gaitway.core.ranges import Count, NotNegative, Positive
from gaitway.envs.robots.robot import BALL, FREE, HINGE, SLIDE, Robot
from gaitway.envs.vec_env import Drive

PACKAGE = "package:"
"""Before paths that begin with the name of an installed package."""
TERRAIN, FEET, LINKS, SELF = 1, 2, 4, 8
"""Bits of contacts: terrain meets feet and links; links meet each other with `self_collision` alone."""
CONTACT_SIZE = 4
"""Numbers of a contact sensor: whether there is contact, and the force (N) of the geom on what it touches."""
CLEARANCE = 0.005
"""How far above the ground (m) the lowest foot is when an episode begins."""


class RobotError(ValueError):
    """What is wrong with a robot's description, in a sentence."""


@configuration(kw_only=True)
class LegGeometry:
    """Four legs of hip (about x), thigh and calf (about y), with thigh and calf hanging straight at zero angles."""

    hip_x: Positive
    """From the base's origin to the hip joints, forwards and backwards (m)."""
    hip_y: Positive
    hip_offset: Positive
    """From the hip joint outwards to the plane of the leg (m)."""
    thigh: Positive
    calf: Positive
    """Lengths (m)."""
    foot_radius: NotNegative


@configuration(kw_only=True)
class Mirror:
    """Left and right: names in which one stands for the other, and joints that turn the other way round."""

    swap: tuple[tuple[str, str], ...]
    """Parts of names, such as [FL, FR]."""
    flip: tuple[str, ...] = ()
    """Regular expressions of joints whose sign changes."""


@configuration(kw_only=True)
class LeggedRobot:
    """One robot. Mappings go from regular expressions of joint names to numbers: {".*": 60.0} holds for all."""

    name: str
    mjcf: str
    """The model file: a path (in a YAML file: from its folder), or `package:NAME/...` within an installed package."""
    base_body: str
    """The body that carries the others: on a free joint, or on slides along x and z and a hinge about y."""
    joints: tuple[str, ...]
    """Regular expressions in the policy's order; each matches one joint."""
    feet: tuple[str, ...]
    """Regular expressions of geoms, one for each foot; a foot may have several geoms of one body."""
    default_pose: Mapping[str, float]
    """rad"""
    kp: Mapping[str, float]
    """N m / rad"""
    kd: Mapping[str, float]
    """N m s / rad"""
    effort: Mapping[str, float] | None = None
    """N m; null: the limits of the file's actuators."""
    action_scale: Mapping[str, float] = field(default_factory=lambda: {".*": 0.25})
    """rad of one unit of action; the action 0 is the default pose."""
    timestep: Positive = 0.005
    substeps: Count = 4
    """Substeps of `timestep` seconds per control step."""
    stand_height: Positive | None = None
    """Height (m) of the base that rewards ask for; null: that of the default pose."""
    fall_height: Positive = 0.12
    """An episode ends with the base lower than this (m), or tilted by more than `fall_tilt` (rad)."""
    fall_tilt: Positive = math.radians(70.0)
    self_collision: bool = False
    leg: LegGeometry | None = None
    """For gaits (`envs/legged/gaits.py`)."""
    mirror: Mirror | None = None

    def __post_init__(self) -> None:
        if not self.joints or not self.feet:
            raise RobotError(f"{self.name} names no {'feet' if self.joints else 'joints'}; list regular expressions")
        for pattern in (*self.joints, *self.feet, *self.default_pose):
            try:
                re.compile(pattern)
            except re.error as error:
                raise RobotError(f"{pattern!r} of {self.name} is no regular expression: {error}") from error

    @classmethod
    def load(cls, path: str | Path) -> LeggedRobot:
        """The robot that a YAML file describes; its `mjcf` counts from the file's folder."""
        plain = read_config(path)
        mjcf = plain.get("mjcf")
        if isinstance(mjcf, str) and not mjcf.startswith(PACKAGE):
            plain["mjcf"] = str((Path(path).resolve().parent / mjcf).resolve())
        return from_config(cls, plain)

    @functools.cached_property
    def robot(self) -> Robot:
        """The machine as native tasks know it."""
        return Robot(self.name, _model_file(self), frame_skip=self.substeps, edit=self._edit)

    @functools.cached_property
    def joint_names(self) -> tuple[str, ...]:
        spec = mujoco.MjSpec.from_file(str(_model_file(self)))
        names = [joint.name for joint in spec.joints]
        found = [_one(pattern, names, "joint", self.name) for pattern in self.joints]
        if len(set(found)) != len(found):
            double = next(name for name in found if found.count(name) > 1)
            both = [pattern for pattern, name in zip(self.joints, found, strict=True) if name == double]
            raise RobotError(f"the joint {double!r} of {self.name} is matched twice, by {both}; name it once")
        return tuple(found)

    def per_joint(self, values: Mapping[str, float], what: str) -> np.ndarray:
        """One number for each joint [A]."""
        found = []
        for joint in self.joint_names:
            fitting = [pattern for pattern in values if re.fullmatch(pattern, joint)]
            if len(fitting) != 1:
                said = f"{len(fitting)} of them do, {fitting}" if fitting else "none of them does"
                raise RobotError(f"{what} of {self.name}: one key must match the joint {joint!r}; {said}")
            found.append(float(values[fitting[0]]))
            if not math.isfinite(found[-1]) or (found[-1] < 0.0 and what != "default_pose"):
                raise RobotError(f"{what} of {self.name} is {found[-1]:g} for {joint!r}; use a number >= 0")
        return np.array(found)

    @functools.cached_property
    def pose(self) -> np.ndarray:
        """The default pose in the policy's order [A]."""
        return self.per_joint(self.default_pose, "default_pose")

    def _edit(self, spec: mujoco.MjSpec) -> None:
        """Turn the file into the model that policies drive."""
        efforts = self._efforts()
        for part in (*spec.lights, *spec.keys, *spec.actuators, *spec.sensors, *spec.pairs):
            spec.delete(part)
        option = spec.option
        option.timestep, option.integrator = self.timestep, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        option.solver, option.cone = mujoco.mjtSolver.mjSOL_NEWTON, mujoco.mjtCone.mjCONE_PYRAMIDAL
        option.iterations, option.ls_iterations, option.impratio = 10, 20, 1.0
        for number, geom in enumerate(spec.geoms):
            geom.name = geom.name or f"geom_{number}"
        self._add_actuators(spec, efforts)
        self._sort_geoms(spec)

    def _efforts(self) -> np.ndarray:
        if self.effort is not None:
            return self.per_joint(self.effort, "effort")
        spec = mujoco.MjSpec.from_file(str(_model_file(self)))
        for part in (*spec.keys, *spec.pairs):  # they may name a floor that is in another file
            spec.delete(part)
        model = spec.compile()
        found = []
        for name in self.joint_names:
            joint = model.joint(name).id
            actuators = np.flatnonzero((model.actuator_trnid[:, 0] == joint) & (model.actuator_trntype == 0))
            if len(actuators) and model.actuator_forcelimited[actuators[0]]:
                found.append(float(model.actuator_forcerange[actuators[0], 1]))
            elif model.jnt_actfrclimited[joint]:
                found.append(float(model.jnt_actfrcrange[joint, 1]))
            else:
                raise RobotError(
                    f"the joint {name!r} of {self.name} has no actuator with a force limit in its file; write effort"
                )
        return np.array(found)

    def _add_actuators(self, spec: mujoco.MjSpec, efforts: np.ndarray) -> None:
        kp, kd = self.per_joint(self.kp, "kp"), self.per_joint(self.kd, "kd")
        per_unit = math.pi / 180.0 if spec.compiler.degree else 1.0
        for number, name in enumerate(self.joint_names):
            joint = spec.joint(name)
            if joint.type != mujoco.mjtJoint.mjJNT_HINGE:
                raise RobotError(f"{name!r} of {self.name} is no hinge; name hinges in joints")
            low, high = (limit * per_unit for limit in joint.range)
            actuator = spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            actuator.gaintype, actuator.biastype = mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtBias.mjBIAS_AFFINE
            actuator.gainprm[0] = kp[number]
            actuator.biasprm[:3] = 0.0, -kp[number], -kd[number]
            if high > low:
                actuator.ctrllimited, actuator.ctrlrange = mujoco.mjtLimited.mjLIMITED_TRUE, [low, high]
            actuator.forcelimited = mujoco.mjtLimited.mjLIMITED_TRUE
            actuator.forcerange = [-efforts[number], efforts[number]]

    def _sort_geoms(self, spec: mujoco.MjSpec) -> None:
        """Give contacts their bits, and put sensors on whatever may touch the ground."""
        base = _named(spec.bodies, self.base_body, "body", self.name)
        feet = self.foot_geoms(spec)
        for foot, geoms in enumerate(feet):
            middle = np.mean([geom.pos for geom in geoms], axis=0)
            geoms[0].parent.add_site(name=f"foot_{foot}", pos=middle, size=[0.005, 0.005, 0.005], group=4)
        of_feet = {geom.name for geoms in feet for geom in geoms}
        others = [geom for geom in spec.geoms if geom.name not in of_feet and (geom.contype or geom.conaffinity)]
        for geom in (*others, *(geom for geoms in feet for geom in geoms)):
            bit = FEET if geom.name in of_feet else LINKS
            if bit == FEET:  # a foot decides about its contacts, and cannot do without friction
                geom.priority, geom.condim = 1, max(geom.condim, 3)
            geom.contype, geom.conaffinity = bit | (SELF if self.self_collision else 0), SELF * self.self_collision
        for foot, geoms in enumerate(feet):
            for number, geom in enumerate(geoms):
                _add_contact_force(spec, f"foot_{foot}_{number}", geom.name)
        trunk = [geom for geom in others if geom.parent.name == base.name]
        for kind, geoms in (("trunk", trunk), ("link", [geom for geom in others if geom.parent.name != base.name])):
            for number, geom in enumerate(geoms):
                _add_contact_force(spec, f"{kind}_{number}", geom.name)
        for kind in (mujoco.mjtSensor.mjSENS_FRAMEPOS, mujoco.mjtSensor.mjSENS_FRAMELINVEL):
            for foot in range(len(feet)):
                spec.add_sensor(
                    name=f"{_MOTION[kind]}_{foot}",
                    type=kind,
                    objtype=mujoco.mjtObj.mjOBJ_SITE,
                    objname=f"foot_{foot}",
                )

    def foot_geoms(self, spec: mujoco.MjSpec) -> list[list[mujoco.MjsGeom]]:
        """The geoms of each foot."""
        found = []
        for pattern in self.feet:
            geoms = [geom for geom in spec.geoms if geom.name and re.fullmatch(pattern, geom.name)]
            if not geoms:
                names = [geom.name for geom in spec.geoms if geom.name]
                raise RobotError(f"no geom of {self.name} is called {pattern!r}{did_you_mean(pattern, names)}")
            if len({geom.parent.name for geom in geoms}) > 1:
                raise RobotError(f"the geoms {pattern!r} of {self.name} lie on several bodies; a foot is on one")
            found.append(geoms)
        if len({len(geoms) for geoms in found}) > 1:
            counts = [len(geoms) for geoms in found]
            raise RobotError(f"the feet of {self.name} have {counts} geoms; name the same number for each foot")
        return found


_MOTION = {mujoco.mjtSensor.mjSENS_FRAMEPOS: "foot_position", mujoco.mjtSensor.mjSENS_FRAMELINVEL: "foot_velocity"}


class LeggedView:
    """Where a legged robot's numbers are in a compiled model, in the policy's order. A joints, F feet, K geoms each."""

    def __init__(self, robot: LeggedRobot, model: mujoco.MjModel) -> None:
        self.robot, self.model = robot, model
        joints = [model.joint(name).id for name in robot.joint_names]
        self.positions = model.jnt_qposadr[joints].astype(np.int64)
        self.velocities = model.jnt_dofadr[joints].astype(np.int64)
        self.low, self.high = model.jnt_range[joints].T
        unlimited = model.jnt_limited[joints] == 0
        self.low, self.high = np.where(unlimited, -np.pi, self.low), np.where(unlimited, np.pi, self.high)
        self.base = model.body(robot.base_body).id
        self.root = self._root()
        sensors = {model.sensor(number).name: number for number in range(model.nsensor)}
        address = model.sensor_adr

        def columns(name: str) -> list[int]:
            return [int(address[sensors[each]]) for each in sensors if re.fullmatch(name, each)]

        feet = len(robot.feet)
        self.foot_contacts = np.array(columns(r"foot_\d+_\d+"), dtype=np.int64).reshape(feet, -1)  # [F, K]
        self.foot_positions = np.array(columns(r"foot_position_\d+"), dtype=np.int64)
        self.foot_velocities = np.array(columns(r"foot_velocity_\d+"), dtype=np.int64)
        self.link_contacts = np.array(columns(r"link_\d+"), dtype=np.int64)
        self.trunk_contacts = np.array(columns(r"trunk_\d+"), dtype=np.int64)
        geoms = [[g for g in range(model.ngeom) if re.fullmatch(p, model.geom(g).name)] for p in robot.feet]
        self.foot_geoms = np.array(geoms, dtype=np.int64)  # [F, K]
        self.foot_radius = np.array([_thickness(model, group[0]) for group in geoms])
        self.mass = float(model.body_subtreemass[self.base])
        self.pose = np.clip(robot.pose, self.low, self.high)
        self.action_offset, self.action_scale = self.pose, robot.per_joint(robot.action_scale, "action_scale")
        self.home = self._home()
        if (robot.pose < self.low).any() or (robot.pose > self.high).any():
            joint = robot.joint_names[int(np.argmax((robot.pose < self.low) | (robot.pose > self.high)))]
            raise RobotError(f"default_pose of {robot.name} has {joint!r} outside its range; move it inside")

    @property
    def is_planar(self) -> bool:
        return self.root[0] == "planar"

    @property
    def stand_height(self) -> float:
        return self.robot.stand_height or float(self.home[self.height]) - CLEARANCE

    @property
    def height(self) -> int:
        """Column of qpos with the height of the base."""
        return self.root[1][1] if self.is_planar else self.root[1][0] + 2

    def drive(self) -> Drive:
        model = self.model
        return Drive(
            self.robot.joint_names,
            tuple(self.pose.tolist()),
            tuple(model.actuator_gainprm[:, 0].tolist()),
            tuple((-model.actuator_biasprm[:, 2]).tolist()),
            tuple(model.actuator_forcerange[:, 1].tolist()),
            float(model.opt.timestep),
        )

    def mirrored(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Which joint [A] stands where in a mirror, with which sign [A], and which foot [F]; None without a mirror."""
        mirror = self.robot.mirror
        if mirror is None:
            return None
        names, feet = list(self.robot.joint_names), [self.model.geom(g[0]).name for g in self.foot_geoms]
        joints = np.array([_partner(name, names, mirror, self.robot.name) for name in names])
        signs = np.array([-1.0 if any(re.fullmatch(p, name) for p in mirror.flip) else 1.0 for name in names])
        return joints, signs, np.array([_partner(name, feet, mirror, self.robot.name) for name in feet])

    def report(self) -> str:
        """Masses, order, limits and gains, as a table."""
        model, drive = self.model, self.drive()
        rate, height = 1.0 / (model.opt.timestep * self.robot.substeps), float(self.home[self.height]) - CLEARANCE
        head = (
            f"{self.robot.name}: {self.mass:.2f} kg, {model.nq} positions, {model.nv} velocities, "
            f"{len(drive.joints)} joints, {len(self.robot.feet)} feet, {self.root[0]} root; base at "
            f"{height:.3f} m; {rate:g} Hz"
        )
        lines = [f"{'joint':28} {'default':>8} {'low':>7} {'high':>7} {'kp':>7} {'kd':>6} {'effort':>7} {'scale':>6}"]
        for number, name in enumerate(drive.joints):
            numbers = (drive.default_pose, self.low, self.high, drive.kp, drive.kd, drive.effort, self.action_scale)
            widths = (8, 7, 7, 7, 6, 7, 6)
            cells = (f"{float(each[number]):{width}.3g}" for each, width in zip(numbers, widths, strict=True))
            lines.append(f"{name:28} {' '.join(cells)}")
        lines.append(
            f"contacts: {self.foot_contacts.size} of feet, {len(self.link_contacts)} of links, "
            f"{len(self.trunk_contacts)} of the base"
        )
        return "\n".join([head, *lines])

    def _root(self) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
        """Kind of root, columns of qpos and of qvel: (first,) of a free joint, or x, z, pitch."""
        model, found = self.model, {}
        for joint in np.flatnonzero(model.jnt_bodyid == self.base):
            kind, axis = int(model.jnt_type[joint]), model.jnt_axis[joint]
            if kind == FREE:
                return "free", (int(model.jnt_qposadr[joint]),), (int(model.jnt_dofadr[joint]),)
            if kind in (SLIDE, HINGE) and axis.max() > 0.999:
                found[{SLIDE: "xyz", HINGE: "rpw"}[kind][int(axis.argmax())]] = joint
        if set(found) == {"x", "z", "p"} and BALL not in model.jnt_type[model.jnt_bodyid == self.base]:
            joints = [found[axis] for axis in "xzp"]
            return (
                "planar",
                tuple(int(model.jnt_qposadr[joint]) for joint in joints),
                tuple(int(model.jnt_dofadr[joint]) for joint in joints),
            )
        raise RobotError(
            f"{self.robot.base_body!r}, the base of {self.robot.name}, has no free joint (or slides along x and z and "
            "a hinge about y); name the body that has it, or give it one: <freejoint/>"
        )

    def _home(self) -> np.ndarray:
        """The default pose [nq] with the lowest foot `CLEARANCE` above the ground."""
        data = mujoco.MjData(self.model)
        qpos = self.model.qpos0.copy()
        qpos[self.positions] = self.pose
        data.qpos[:] = qpos
        mujoco.mj_kinematics(self.model, data)
        feet = [data.site(f"foot_{number}").xpos[2] for number in range(len(self.robot.feet))]
        qpos[self.height] += CLEARANCE - min(np.array(feet) - self.foot_radius)
        return qpos


def _model_file(robot: LeggedRobot) -> Path:
    """The path of a robot's MJCF."""
    if not robot.mjcf.startswith(PACKAGE):
        return Path(robot.mjcf) if Path(robot.mjcf).is_absolute() else Path(__file__).with_name(robot.mjcf)
    package, _, rest = robot.mjcf.removeprefix(PACKAGE).partition("/")
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise RobotError(f"the model of {robot.name} is in the package {package}; pip install 'gaitway[robots]'")
    return Path(found.submodule_search_locations[0]) / rest


def _add_contact_force(spec: mujoco.MjSpec, name: str, geom: str) -> None:
    """Whether `geom` touches anything, and the sum of its forces on it, in the world's axes."""
    fields = mujoco.mjtConDataField
    data = 1 << int(fields.mjCONDATA_FOUND) | 1 << int(fields.mjCONDATA_FORCE)
    net_force = 3
    spec.add_sensor(
        name=name,
        type=mujoco.mjtSensor.mjSENS_CONTACT,
        objtype=mujoco.mjtObj.mjOBJ_GEOM,
        objname=geom,
        intprm=[data, net_force, 1],
    )


def _thickness(model: mujoco.MjModel, geom: int) -> float:
    """How far below its middle a foot's geom ends (m): the radius, or half the height of a box."""
    is_box = int(model.geom_type[geom]) == int(mujoco.mjtGeom.mjGEOM_BOX)
    return float(model.geom_size[geom, 2 if is_box else 0])


def _one(pattern: str, names: Sequence[str], kind: str, robot: str) -> str:
    found = [name for name in names if name and re.fullmatch(pattern, name)]
    if len(found) == 1:
        return found[0]
    known = [name for name in names if name]
    hint = f"{did_you_mean(pattern, known)}; it has {known}"
    said = f"{len(found)} {kind}s, {found}; write one entry for each" if found else f"no {kind} of it{hint}"
    raise RobotError(f"{pattern!r} of {robot} matches {said}")


def _named(parts: Sequence[mujoco.MjsBody], name: str, kind: str, robot: str) -> mujoco.MjsBody:
    for part in parts:
        if part.name == name:
            return part
    names = [part.name for part in parts]
    raise RobotError(f"{robot} has no {kind} {name!r}{did_you_mean(name, names)}; it has {names}")


def _partner(name: str, names: Sequence[str], mirror: Mirror, robot: str) -> int:
    """The place of what stands on the other side of the mirror."""
    for one, other in mirror.swap:
        for here, there in ((one, other), (other, one)):
            if here in name:
                if name.replace(here, there) not in names:
                    raise RobotError(
                        f"the mirror of {robot} makes {name.replace(here, there)!r} of {name!r}, which is not among "
                        f"{list(names)}"
                    )
                return names.index(name.replace(here, there))
    return names.index(name)
