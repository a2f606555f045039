"""A robot on legs from any MJCF, by the names of its joints and feet.

`LeggedRobot` says which joints a policy moves and in which order, how stiff they are, which geoms are feet; it can be
written as a YAML file. From the model file it takes everything else: lights, keyframes, actuators and sensors of the
file go, and position actuators, contact sensors, foot sites and a first pose come. `LeggedView` (view.py) finds it all
again in the compiled model. The force of a joint is clip(kp (target - q) - kd qd, +-effort) in every substep.

Regular expressions match whole names. Policies see joints in the order of `joints`, wherever the file has them.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

import mujoco
import numpy as np

from gaitway.core.config import configuration, did_you_mean, from_config, read_config
from gaitway.core.ranges import Count, NotNegative, Number, Positive
from gaitway.envs.robots.robot import Robot

PACKAGE = "package:"
"""Before paths that begin with the name of an installed package."""
TERRAIN, FEET, LINKS, SELF = 1, 2, 4, 8
"""Bits of contacts: terrain meets feet and links; links meet each other with `self_collision` alone."""
POSITIVE = ("kp", "effort")
"""What of a joint is above 0: without them it could not be driven."""


class RobotError(ValueError):
    """What is wrong with a robot's description, in a sentence."""


@configuration(kw_only=True)
class LegGeometry:
    """Four legs of hip (about x), thigh and calf (about y)."""

    hip_x: Positive
    """From the base's origin to the hip joints, forwards and backwards (m)."""
    hip_y: Positive
    hip_offset: Positive
    """From the hip joint outwards to the plane of the leg (m)."""
    thigh: Positive
    calf: Positive
    """Lengths (m)."""
    foot_radius: NotNegative
    thigh_zero: Number = 0.0
    calf_zero: Number = 0.0
    """Angles of these joints at which both links hang straight (rad)."""


@configuration(kw_only=True)
class Mirror:
    """Left and right: names in which one stands for the other, and joints that turn the other way round."""

    swap: tuple[tuple[str, str], ...]
    """Parts of names, such as [FL, FR]."""
    flip: tuple[str, ...] | None = None
    """Regular expressions of joints whose sign changes; null: as the axes of the joints say."""


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
    foot_sites: tuple[str, ...] | None = None
    """Regular expressions of sites of the file, one for each foot, where its place is measured; null: in the middle of
    its geoms."""
    imu_site: str | None = None
    """Regular expression of a site that is fixed to the base, in whose place and frame velocity, angular velocity and
    gravity are measured; null: those of the base body."""
    link_geoms: tuple[str, ...] | None = None
    trunk_geoms: tuple[str, ...] | None = None
    """Regular expressions of geoms that touch things as links and as the base; null: all of other bodies, and of the
    base, that collide in the file. What neither names touches nothing."""
    strip: tuple[str, ...] = ()
    """Regular expressions of bodies, geoms and sites that go: a floor, an arm. What a body carries goes with it."""
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
        optional = (*(self.foot_sites or ()), *(self.link_geoms or ()), *(self.trunk_geoms or ()), *self.strip)
        optional = (*optional, *((self.imu_site,) if self.imu_site is not None else ()))
        numbers = (self.default_pose, self.kp, self.kd, self.effort or {}, self.action_scale)
        flip = (self.mirror.flip or ()) if self.mirror is not None else ()
        for pattern in (*self.joints, *self.feet, *itertools.chain(*numbers), *optional, *flip):
            try:
                re.compile(pattern)
            except re.error as error:
                raise RobotError(f"{pattern!r} of {self.name} is no regular expression: {error}") from error
        if self.foot_sites is not None and len(self.foot_sites) != len(self.feet):
            counts = f"{len(self.foot_sites)} foot_sites for {len(self.feet)} feet"
            raise RobotError(f"{self.name} names {counts}; name a site for each foot, in the order of feet")

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
        names = [joint.name for joint in self._stripped().joints]
        found = [find_one(pattern, names, "joint", self.name) for pattern in self.joints]
        if len(set(found)) != len(found):
            double = next(name for name in found if found.count(name) > 1)
            both = [pattern for pattern, name in zip(self.joints, found, strict=True) if name == double]
            raise RobotError(f"the joint {double!r} of {self.name} is matched twice, by {both}; name it once")
        return tuple(found)

    def per_joint(self, values: Mapping[str, float], what: str) -> np.ndarray:
        """One number for each joint [A]."""
        self.need_joints(values, what)
        found = []
        for joint in self.joint_names:
            fitting = [pattern for pattern in values if re.fullmatch(pattern, joint)]
            if len(fitting) != 1:
                said = f"{len(fitting)} of them do, {fitting}" if fitting else "none of them does"
                raise RobotError(f"{what} of {self.name}: one key must match the joint {joint!r}; {said}")
            found.append(float(values[fitting[0]]))
            is_too_small = found[-1] <= 0.0 if what in POSITIVE else found[-1] < 0.0
            if not math.isfinite(found[-1]) or (is_too_small and what != "default_pose"):
                least = "> 0" if what in POSITIVE else ">= 0"
                raise RobotError(f"{what} of {self.name} is {found[-1]:g} for {joint!r}; use a number {least}")
        return np.array(found)

    def need_joints(self, patterns: Iterable[str], what: str) -> None:
        """Refuse a pattern that matches no joint of the policy; `what` holds it."""
        for pattern in patterns:
            if not any(re.fullmatch(pattern, joint) for joint in self.joint_names):
                hint = did_you_mean(pattern, self.joint_names)
                raise RobotError(
                    f"{what} of {self.name}: {pattern!r} matches none of its joints{hint}; correct it, or leave it out"
                )

    @functools.cached_property
    def pose(self) -> np.ndarray:
        """The default pose in the policy's order [A]."""
        return self.per_joint(self.default_pose, "default_pose")

    def _edit(self, spec: mujoco.MjSpec) -> None:
        """Turn the file into the model that policies drive."""
        efforts = self._efforts()
        self._strip(spec)
        scenery = spec.worldbody.geoms  # a floor of the file's: tasks bring the ground
        for part in (*scenery, *spec.lights, *spec.keys, *spec.actuators, *spec.sensors, *spec.pairs):
            spec.delete(part)
        option = spec.option
        option.timestep, option.integrator = self.timestep, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        option.solver, option.cone = mujoco.mjtSolver.mjSOL_NEWTON, mujoco.mjtCone.mjCONE_PYRAMIDAL
        option.iterations, option.ls_iterations, option.impratio = 10, 20, 1.0
        taken = {geom.name for geom in spec.geoms}
        for number, geom in enumerate(spec.geoms):
            if not geom.name:
                geom.name = next(name for at in itertools.count(number) if (name := f"geom_{at}") not in taken)
                taken.add(geom.name)
        self._add_actuators(spec, efforts)
        self._sort_geoms(spec)

    def _stripped(self) -> mujoco.MjSpec:
        """The file without what `strip` names."""
        spec = mujoco.MjSpec.from_file(str(_model_file(self)))
        self._strip(spec)
        return spec

    def _strip(self, spec: mujoco.MjSpec) -> None:
        for pattern in self.strip:
            kinds = (spec.bodies[1:], spec.geoms, spec.sites)
            named = [part.name for parts in kinds for part in parts if part.name]
            found = [name for name in named if re.fullmatch(pattern, name)]
            if not found:
                raise RobotError(f"strip of {self.name}: nothing is called {pattern!r}{did_you_mean(pattern, named)}")
            if self.base_body in found:
                raise RobotError(f"strip of {self.name} names its base, {self.base_body!r}; leave the base in")
            for kind in ("bodies", "geoms", "sites"):
                # one at a time: what a body carries has gone with it
                while gone := [part for part in getattr(spec, kind) if part.name and re.fullmatch(pattern, part.name)]:
                    spec.delete(gone[0])

    def _efforts(self) -> np.ndarray:
        if self.effort is not None:
            return self.per_joint(self.effort, "effort")
        spec = self._stripped()
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
        ours = {f"foot_{foot}" for foot in range(len(feet))}
        if taken := [site.name for site in spec.sites if site.name in ours]:
            raise RobotError(
                f"{self.name} has a site {taken[0]!r}, as places of feet are called here; give it another name, or "
                "write it into strip"
            )
        for foot, (geoms, middle) in enumerate(zip(feet, self._foot_places(spec, feet), strict=True)):
            geoms[0].parent.add_site(name=f"foot_{foot}", pos=middle, size=[0.005, 0.005, 0.005], group=4)
        of_feet = {geom.name for geoms in feet for geom in geoms}
        trunk, links = self._other_geoms(spec, base.name, of_feet)
        others = [*trunk, *links] if self._names_geoms else [
            geom for geom in spec.geoms if geom.name not in of_feet and (geom.contype or geom.conaffinity)
        ]  # fmt: skip
        for geom in spec.geoms if self._names_geoms else ():
            geom.contype, geom.conaffinity = 0, 0
        for geom in (*others, *(geom for geoms in feet for geom in geoms)):
            bit = FEET if geom.name in of_feet else LINKS
            if bit == FEET:  # a foot decides about its contacts, and cannot do without friction
                geom.priority, geom.condim = 1, max(geom.condim, 3)
            geom.contype, geom.conaffinity = bit | (SELF if self.self_collision else 0), SELF * self.self_collision
        for foot, geoms in enumerate(feet):
            for number, geom in enumerate(geoms):
                _add_contact_force(spec, f"foot_{foot}_{number}", geom.name)
        for kind, geoms in (("trunk", trunk), ("link", links)):
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

    @property
    def _names_geoms(self) -> bool:
        return self.link_geoms is not None or self.trunk_geoms is not None

    def _other_geoms(
        self, spec: mujoco.MjSpec, base: str, of_feet: Collection[str]
    ) -> tuple[list[mujoco.MjsGeom], list[mujoco.MjsGeom]]:
        """What touches things as the base and as links, in the order of the file."""
        rest = [geom for geom in spec.geoms if geom.name not in of_feet]
        colliding = [geom for geom in rest if geom.contype or geom.conaffinity]
        trunk = [geom for geom in colliding if geom.parent.name == base]
        links = [geom for geom in colliding if geom.parent.name != base]
        if self.trunk_geoms is not None:
            trunk = self._chosen(rest, self.trunk_geoms, "trunk_geoms")
        if self.link_geoms is not None:
            links = self._chosen(rest, self.link_geoms, "link_geoms")
        if both := [geom.name for geom in links if geom.name in {each.name for each in trunk}]:
            raise RobotError(f"the geom {both[0]!r} of {self.name} is of the base and of the links; name it once")
        return trunk, links

    def _chosen(self, geoms: Sequence[mujoco.MjsGeom], patterns: Sequence[str], what: str) -> list[mujoco.MjsGeom]:
        names = [geom.name for geom in geoms]
        for pattern in patterns:
            if not any(re.fullmatch(pattern, name) for name in names):
                hint = did_you_mean(pattern, names)
                raise RobotError(f"{what} of {self.name}: no geom besides those of feet is called {pattern!r}{hint}")
        return [geom for geom in geoms if any(re.fullmatch(pattern, geom.name) for pattern in patterns)]

    def _foot_places(self, spec: mujoco.MjSpec, feet: Sequence[Sequence[mujoco.MjsGeom]]) -> list[np.ndarray]:
        """Where feet are in their bodies [3]: at their sites, or in the middle of their geoms."""
        parts: list[Sequence[mujoco.MjsGeom | mujoco.MjsSite]] = list(feet)
        if self.foot_sites is not None:
            parts = [[self._foot_site(spec, foot, geoms[0].parent.name)] for foot, geoms in enumerate(feet)]
        if all(_is_placed(part) for each in parts for part in each):
            return [np.mean([part.pos for part in each], axis=0) for each in parts]
        model = spec.copy().compile()
        place = model.geom if self.foot_sites is None else model.site
        return [np.mean([place(part.name).pos for part in each], axis=0) for each in parts]

    def _foot_site(self, spec: mujoco.MjSpec, foot: int, body: str) -> mujoco.MjsSite:
        assert self.foot_sites is not None
        name = find_one(self.foot_sites[foot], [site.name for site in spec.sites], "site", self.name)
        site = spec.site(name)
        if site.parent.name != body:
            raise RobotError(
                f"the site {name!r} of {self.name} is on {site.parent.name!r}, and its foot {self.feet[foot]!r} on "
                f"{body!r}; name a site of that body"
            )
        return site

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
        names = [geom.name for geoms in found for geom in geoms]
        if double := [name for name in names if names.count(name) > 1]:
            both = [pattern for pattern in self.feet if re.fullmatch(pattern, double[0])]
            raise RobotError(f"the geom {double[0]!r} of {self.name} is of several feet, {both}; name it once")
        if len({len(geoms) for geoms in found}) > 1:
            counts = [len(geoms) for geoms in found]
            raise RobotError(f"the feet of {self.name} have {counts} geoms; name the same number for each foot")
        return found


_MOTION = {mujoco.mjtSensor.mjSENS_FRAMEPOS: "foot_position", mujoco.mjtSensor.mjSENS_FRAMELINVEL: "foot_velocity"}


def _model_file(robot: LeggedRobot) -> Path:
    """The path of a robot's MJCF."""
    if not robot.mjcf.startswith(PACKAGE):
        path = Path(robot.mjcf) if Path(robot.mjcf).is_absolute() else Path(__file__).parent.with_name(robot.mjcf)
        if not path.is_file():
            raise RobotError(
                f"mjcf of {robot.name} is {str(path)!r}, and there is no such file; write its path in full, or from "
                "the folder of the YAML file"
            )
        return path
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


def _is_placed(part: mujoco.MjsGeom | mujoco.MjsSite) -> bool:
    """Whether its `pos` is its place in its body: with `fromto`, in a frame or of a mesh only a compiler knows it."""
    return bool(np.isnan(part.fromto[0])) and part.frame is None and part.type != mujoco.mjtGeom.mjGEOM_MESH


def find_one(pattern: str, names: Sequence[str], kind: str, robot: str) -> str:
    """The one name that a pattern matches; `kind` and `robot` are for the sentence where there is not one."""
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
