"""Where a legged robot's numbers are in its compiled model, how it stands, and what is what in a mirror."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Sequence

import mujoco
import numpy as np

from gaitway.envs.legged.kinematics import CLEARANCE
from gaitway.envs.motions.lowest import LowestPoints, touching_geoms
from gaitway.envs.robots.legged.robot import LeggedRobot, Mirror, RobotError, find_one
from gaitway.envs.robots.robot import BALL, FREE, HINGE, SLIDE, mirror_sign
from gaitway.envs.spec import Drive, Imu

log = logging.getLogger("gaitway")

LEVEL = 1.0 - 1e-6
"""How much of the y axis a planar robot's IMU shares with the base, at least."""
UNEVEN = 0.1
"""How far from where a mirror says parts may be, as a share of how far aside of the base the farthest foot is; and a
millimetre."""


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
        self.loose = self._loose()
        if self.loose:
            _warn_once(
                f"nothing drives {', '.join(map(repr, self.loose))} of {robot.name}: joints below its base that are "
                "neither listed in joints nor held by springs; list them, strip their bodies, or give them stiffness"
            )
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
        self.mass = float(model.body_subtreemass[self.base])
        self.pose = np.clip(robot.pose, self.low, self.high)
        self.action_offset, self.action_scale = self.pose, robot.per_joint(robot.action_scale, "action_scale")
        self.home, self.foot_radius = self._standing()
        self.imu = self._imu()
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
            imu=self.imu,
        )

    def mirrored(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Which joint [A] stands where in a mirror, with which sign [A], and which foot [F]; None without a mirror."""
        mirror = self.robot.mirror
        if mirror is None:
            return None
        names, feet = list(self.robot.joint_names), [self.model.geom(g[0]).name for g in self.foot_geoms]
        for one, other in mirror.swap:
            if not any(part in name for part in (one, other) for name in (*names, *feet)):
                raise RobotError(
                    f"the mirror of {self.robot.name} swaps {one!r} and {other!r}, which no joint and no foot has in "
                    f"its name; write parts of {names} and {feet}, such as [FL, FR]"
                )
        joints, partners = (
            np.array([_partner(name, each, mirror, self.robot.name, what) for name in each])
            for what, each in (("joints", names), ("feet", feet))
        )
        self._check_sides(names, joints, feet, partners)
        signs = self._mirror_signs(mirror, [(name, names[other]) for name, other in zip(names, joints, strict=True)])
        return joints, signs, partners

    def _check_sides(self, names: Sequence[str], joints: np.ndarray, feet: Sequence[str], partners: np.ndarray) -> None:
        """Refuse a mirror whose partners, of joints [A] and feet [F], are not on the other side in the default pose."""
        model, data = self.model, mujoco.MjData(self.model)
        data.qpos[:] = self.home
        mujoco.mj_kinematics(model, data)

        def in_base(places: np.ndarray) -> np.ndarray:
            return (places - data.xpos[self.base]) @ data.xmat[self.base].reshape(3, 3)

        soles = in_base(np.array([data.site(f"foot_{foot}").xpos for foot in range(len(feet))]))
        y = in_base(data.xanchor[[model.joint(name).id for name in names]])[:, 1]
        most = UNEVEN * float(np.linalg.norm(soles[:, :2], axis=1).max()) + 1e-3
        apart = np.abs(soles[partners] * (1.0, -1.0, 1.0) - soles).max(1) > most
        # anchors may lie anywhere along their axes: of joints the side alone counts
        stays = (np.abs(y) > most) & (y * y[joints] > 0.0)
        wrong = [(feet[foot], feet[partners[foot]]) for foot in np.flatnonzero(apart).tolist()]
        wrong += [(names[joint], names[joints[joint]]) for joint in np.flatnonzero(stays).tolist()]
        if wrong:
            name, partner = wrong[0]
            raise RobotError(
                f"the mirror of {self.robot.name} makes {partner!r} of {name!r}, which is not its place on the other "
                "side of the base in the default pose; name all pairs of left and right in mirror.swap"
            )

    def _mirror_signs(self, mirror: Mirror, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Of joints and their partners: as the robot's file says, or by the axes of its joints."""
        data, found = mujoco.MjData(self.model), []
        mujoco.mj_kinematics(self.model, data)
        self.robot.need_joints(mirror.flip or (), "mirror.flip")
        for name, partner in pairs:
            sign = mirror_sign(self.model, data, name, partner)
            if mirror.flip is not None:
                flips = any(re.fullmatch(pattern, name) for pattern in mirror.flip)
                if sign is not None and flips != (sign < 0.0):
                    raise RobotError(
                        f"mirror.flip of {self.robot.name} {'names' if flips else 'does not name'} {name!r}, which by "
                        f"its axis {'does not turn' if flips else 'turns'} the other way round in a mirror; correct "
                        "flip, or leave it out: axes then say it"
                    )
                sign = -1.0 if flips else 1.0
            if sign is None:
                raise RobotError(
                    f"the axes of {name!r} and {partner!r} of {self.robot.name} are no mirror images; write `flip` of "
                    "its mirror, the joints that turn the other way round"
                )
            found.append(sign)
        return np.array(found)

    def report(self) -> str:
        """Masses, order, limits, gains, what nothing drives and where the IMU is, as a table."""
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
            + (f"; without {', '.join(self.robot.strip)}" if self.robot.strip else "")
        )
        if self.loose:
            lines.append(f"without a motor: {', '.join(self.loose)}")
        if self.imu is not None:
            place, turn = ([round(each, 4) for each in part] for part in (self.imu.position, self.imu.rotation))
            lines.append(f"imu: the site {self.imu.site}, {place} m in the base, turned by the quaternion {turn}")
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

    def _loose(self) -> tuple[str, ...]:
        """Joints below the base that neither the policy nor a spring moves."""
        model, found = self.model, []
        for number in range(model.njnt):
            name, body = model.joint(number).name, int(model.jnt_bodyid[number])
            while body not in (0, self.base):
                body = int(model.body_parentid[body])
            is_below = body == self.base != model.jnt_bodyid[number]
            if is_below and name not in self.robot.joint_names and not model.jnt_stiffness[number]:
                found.append(name)
        return tuple(found)

    def _standing(self) -> tuple[np.ndarray, np.ndarray]:
        """The default pose [nq] with the lowest foot `CLEARANCE` above the ground, and how far below their places feet
        end in it [F]."""
        model, data, geoms = self.model, mujoco.MjData(self.model), self.foot_geoms.reshape(-1)
        if unknown := set(geoms.tolist()) - set(touching_geoms(model)):
            name = model.geom(unknown.pop()).name
            raise RobotError(
                f"where the foot {name!r} of {self.robot.name} ends is not known for its shape; name a sphere, a "
                "capsule, an ellipsoid, a cylinder, a box or a mesh"
            )
        qpos = model.qpos0.copy()
        qpos[self.positions] = self.pose
        data.qpos[:] = qpos
        mujoco.mj_kinematics(model, data)
        places = np.array([data.site(f"foot_{number}").xpos[2] for number in range(len(self.robot.feet))])
        lowest = LowestPoints(model, geoms.tolist())(qpos[None])[0, :, 2].reshape(self.foot_geoms.shape).min(1)
        radius = np.round(places - lowest, 9)  # to a nanometre: a sphere's is its radius in every pose
        qpos[self.height] += CLEARANCE - min(places - radius)
        return qpos, radius

    def _imu(self) -> Imu | None:
        """Where the robot's `imu_site` is in the base."""
        if self.robot.imu_site is None:
            return None
        model, data = self.model, mujoco.MjData(self.model)
        ours = {f"foot_{foot}" for foot in range(len(self.robot.feet))}
        names = [name for name in (model.site(number).name for number in range(model.nsite)) if name not in ours]
        site = model.site(find_one(self.robot.imu_site, names, "site", self.robot.name))
        body = int(model.site_bodyid[site.id])
        if model.body_weldid[body] != model.body_weldid[self.base]:
            raise RobotError(
                f"imu_site of {self.robot.name} is {site.name!r} on {model.body(body).name!r}, which moves against its "
                f"base; name a site that is fixed to {self.robot.base_body!r}"
            )
        mujoco.mj_kinematics(model, data)
        turn, base = data.site_xmat[site.id].reshape(3, 3), data.xmat[self.base].reshape(3, 3)
        rotation = np.zeros(4)
        mujoco.mju_mat2Quat(rotation, (base.T @ turn).reshape(-1))
        if self.is_planar and abs((base.T @ turn)[1, 1]) < LEVEL:
            raise RobotError(
                f"imu_site {site.name!r} of {self.robot.name} is turned out of the plane in which the robot moves; "
                "turn it about y alone"
            )
        place = base.T @ (data.site_xpos[site.id] - data.xpos[self.base])
        # contracts of one robot from two machines are the same
        position, turned = ((np.round(each, 12) + 0.0).tolist() for each in (place, rotation))
        return Imu(site.name, tuple(position), tuple(turned))


@functools.cache
def _warn_once(text: str) -> None:
    """A run makes several environments, all of which would say the same."""
    log.warning(text)


def _partner(name: str, names: Sequence[str], mirror: Mirror, robot: str, what: str) -> int:
    """The place of what stands on the other side of the mirror; `what` is the list of the robot's file."""
    for one, other in mirror.swap:
        for here, there in ((one, other), (other, one)):
            if here in name:
                if name.replace(here, there) not in names:
                    raise RobotError(
                        f"the mirror of {robot} makes {name.replace(here, there)!r} of {name!r}, which is not among "
                        f"{list(names)}; name both sides in {what}, or correct mirror.swap"
                    )
                return names.index(name.replace(here, there))
    return names.index(name)
