"""The benchmark's models written down a second time, as MJCF text, for comparison with those the tasks build.

Numbers are those of the benchmark's specification and of the files it names (the Control Suite's Walker and Humanoid,
Gym's HalfCheetah). Nothing is read from the library: every attribute is written out at every part, without defaults
and classes, angles are radians, and masses follow from volumes. What the specification leaves to the implementation is
how courses are simulated: 4 obstacles that are moved about, 16 gaps and platforms, steps that are placed when an
episode begins; and the names of parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import mujoco
import numpy as np

Numbers = Sequence[float]
SKIN = (0.7, 0.5, 0.3, 1.0)
HALF_WIDTH = 8.0
POLE = "<!-- pole -->"
"""Where a robot carries a pole: behind the other parts of its torso, or on its head."""


def tag(kind: str, *inside: str, **attributes: Any) -> str:
    """One element; numbers are written so that they are read back exactly, and what is None is left out."""
    written = "".join(
        f' {name.rstrip("_")}="{value if isinstance(value, str) else " ".join(repr(float(n)) for n in listed(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{kind}{written}>{''.join(inside)}</{kind}>" if inside else f"<{kind}{written}/>"


def listed(value: float | Numbers) -> Numbers:
    return value if isinstance(value, Sequence) else (value,)


def world_geom(name: str, type: str, size: Numbers, **changes: Any) -> str:
    """Section 3: MuJoCo's own contact properties, no mass."""
    attributes: dict[str, Any] = {
        **{"contype": "1", "conaffinity": "1", "condim": "3", "friction": (1, 0.005, 0.0001), "solref": (0.02, 1)},
        **{"solimp": (0.9, 0.95, 0.001, 0.5, 2), "mass": 0, "rgba": (0.8, 0.9, 0.8, 1), **changes},
    }
    return tag("geom", name=name, type=type, size=size, **attributes)


class Robot(NamedTuple):
    """What the text of a robot consists of."""

    model: str
    option: Mapping[str, Any]
    statistic: str
    torso: Numbers
    """Where the torso stands in the file."""
    parts: tuple[str, ...]
    """What is inside the torso."""
    actuators: tuple[str, ...]
    joint: Mapping[str, Any]
    """Properties that joints of a task's parts share with the robot's."""
    geom: Mapping[str, Any]
    """The same for geoms."""
    planar: bool


# --- robots: section 2 ------------------------------------------------------------------------------------------------

LIMIT = {"solimplimit": (0, 0.99, 0.01, 0.5, 2)}
STATISTIC = tag("statistic", extent=2, center=(0, 0, 1))


def root(name: str, kind: str, axis: Numbers, **changes: Any) -> str:
    """A joint of a planar torso: unlimited, without damping and armature."""
    attributes: dict[str, Any] = {"damping": 0, "armature": 0, "limited": "false", **LIMIT, **changes}
    return tag("joint", name=name, type=kind, axis=axis, **attributes)


def camera(name: str, pos: Numbers, mode: str | None = "trackcom", **more: Any) -> str:
    return tag("camera", name=name, pos=pos, mode=mode, **more)


def motor(joint: str, gear: float) -> str:
    return tag("motor", name=joint, joint=joint, gear=gear, ctrllimited="true", ctrlrange=(-1, 1))


def walker() -> Robot:
    joint = {"damping": 0.1, "armature": 0.01, "limited": "true", **LIMIT}
    geom = {"type": "capsule", "contype": "1", "conaffinity": "0", "condim": "3", "friction": (0.7, 0.1, 0.1)}

    def hinge(name: str, low: float, high: float, pos: Numbers = (0, 0, 0)) -> str:
        limits = (math.radians(low), math.radians(high))
        return tag("joint", name=name, type="hinge", axis=(0, -1, 0), pos=pos, range=limits, **joint)

    def capsule(name: str, radius: float, half_length: float, **place: Any) -> str:
        return tag("geom", name=name, size=(radius, half_length), rgba=SKIN, **geom, **place)

    def leg(side: str, y: float) -> str:
        foot = tag(
            "body",
            hinge(f"{side}_ankle", -45, 45, (-0.06, 0, 0)),
            capsule(f"{side}_foot", 0.05, 0.1, zaxis=(1, 0, 0)),
            name=f"{side}_foot",
            pos=(0.06, 0, -0.25),
        )
        shank = tag(
            "body",
            hinge(f"{side}_knee", -150, 0, (0, 0, 0.25)),
            capsule(f"{side}_leg", 0.04, 0.25),
            foot,
            name=f"{side}_leg",
            pos=(0, 0, -0.7),
        )
        return tag(
            "body",
            hinge(f"{side}_hip", -20, 100),
            capsule(f"{side}_thigh", 0.05, 0.225, pos=(0, 0, -0.225)),
            shank,
            name=f"{side}_thigh",
            pos=(0, y, -0.3),
        )

    parts = (
        camera("side", (0, -6, 1), euler=(math.radians(80), 0, 0)),
        camera("back", (-2, 0, 0.5), xyaxes=(0, -1, 0, 1, 0, 3)),
        root("rootz", "slide", (0, 0, 1)),
        root("rootx", "slide", (1, 0, 0)),
        root("rooty", "hinge", (0, 1, 0)),
        capsule("torso", 0.07, 0.3),
        leg("right", -0.05),
        leg("left", 0.05),
    )
    gears = {"hip": 100, "knee": 50, "ankle": 20}
    motors = tuple(motor(f"{side}_{name}", gear) for side in ("right", "left") for name, gear in gears.items())
    option = {"timestep": 0.0025}
    return Robot("planar walker", option, STATISTIC, (0, 0, 0), parts, motors, joint, geom, planar=True)


# joint: (body, pos, axis, low, high (degrees), stiffness, damping, g)
HUMANOID_JOINTS = {
    "abdomen_z": ("lower_waist", (0, 0, 0.065), (0, 0, 1), -45, 45, 20, 5, 40),
    "abdomen_y": ("lower_waist", (0, 0, 0.065), (0, 1, 0), -75, 30, 10, 5, 40),
    "abdomen_x": ("pelvis", (0, 0, 0.1), (1, 0, 0), -35, 35, 10, 5, 40),
    "right_hip_x": ("right_thigh", (0, 0, 0), (1, 0, 0), -25, 5, 10, 5, 40),
    "right_hip_z": ("right_thigh", (0, 0, 0), (0, 0, 1), -60, 35, 10, 5, 40),
    "right_hip_y": ("right_thigh", (0, 0, 0), (0, 1, 0), -110, 20, 20, 5, 120),
    "right_knee": ("right_shin", (0, 0, 0.02), (0, -1, 0), -160, 2, 1, 0.2, 80),
    "right_ankle_y": ("right_foot", (0, 0, 0.08), (0, 1, 0), -50, 50, 6, 0.2, 20),
    "right_ankle_x": ("right_foot", (0, 0, 0.04), (1, 0, 0.5), -50, 50, 3, 0.2, 20),
    "left_hip_x": ("left_thigh", (0, 0, 0), (-1, 0, 0), -25, 5, 10, 5, 40),
    "left_hip_z": ("left_thigh", (0, 0, 0), (0, 0, -1), -60, 35, 10, 5, 40),
    "left_hip_y": ("left_thigh", (0, 0, 0), (0, 1, 0), -120, 20, 20, 5, 120),
    "left_knee": ("left_shin", (0, 0, 0.02), (0, -1, 0), -160, 2, 1, 0.2, 80),
    "left_ankle_y": ("left_foot", (0, 0, 0.08), (0, 1, 0), -50, 50, 6, 0.2, 20),
    "left_ankle_x": ("left_foot", (0, 0, 0.04), (1, 0, 0.5), -50, 50, 3, 0.2, 20),
    "right_shoulder1": ("right_upper_arm", (0, 0, 0), (2, 1, 1), -85, 60, 1, 0.2, 20),
    "right_shoulder2": ("right_upper_arm", (0, 0, 0), (0, -1, 1), -85, 60, 1, 0.2, 20),
    "right_elbow": ("right_lower_arm", (0, 0, 0), (0, -1, 1), -90, 50, 0, 0.2, 40),
    "left_shoulder1": ("left_upper_arm", (0, 0, 0), (2, -1, 1), -60, 85, 1, 0.2, 20),
    "left_shoulder2": ("left_upper_arm", (0, 0, 0), (0, 1, 1), -60, 85, 1, 0.2, 20),
    "left_elbow": ("left_lower_arm", (0, 0, 0), (0, -1, -1), -90, 50, 0, 0.2, 40),
}
HUMANOID_ACTIONS = (
    *("abdomen_y", "abdomen_z", "abdomen_x"),
    *(f"right_{name}" for name in ("hip_x", "hip_z", "hip_y", "knee", "ankle_x", "ankle_y")),
    *(f"left_{name}" for name in ("hip_x", "hip_z", "hip_y", "knee", "ankle_x", "ankle_y")),
    *(f"{side}_{name}" for side in ("right", "left") for name in ("shoulder1", "shoulder2", "elbow")),
)
# body: (parent, pos, quaternion)
HUMANOID_BODIES = {
    "head": ("torso", (0, 0, 0.19), None),
    "lower_waist": ("torso", (-0.01, 0, -0.26), (1, 0, -0.002, 0)),
    "pelvis": ("lower_waist", (0, 0, -0.165), (1, 0, -0.002, 0)),
    "right_thigh": ("pelvis", (0, -0.1, -0.04), None),
    "right_shin": ("right_thigh", (0, 0.01, -0.403), None),
    "right_foot": ("right_shin", (0, 0, -0.39), None),
    "left_thigh": ("pelvis", (0, 0.1, -0.04), None),
    "left_shin": ("left_thigh", (0, -0.01, -0.403), None),
    "left_foot": ("left_shin", (0, 0, -0.39), None),
    "right_upper_arm": ("torso", (0, -0.17, 0.06), None),
    "right_lower_arm": ("right_upper_arm", (0.18, -0.18, -0.18), None),
    "right_hand": ("right_lower_arm", (0.18, 0.18, 0.18), None),
    "left_upper_arm": ("torso", (0, 0.17, 0.06), None),
    "left_lower_arm": ("left_upper_arm", (0.18, 0.18, -0.18), None),
    "left_hand": ("left_lower_arm", (0.18, -0.18, 0.18), None),
}
# geom: (body, radius, both ends of a capsule, or None for a sphere)
HUMANOID_GEOMS = {
    "torso": ("torso", 0.07, (0, -0.07, 0, 0, 0.07, 0)),
    "upper_waist": ("torso", 0.06, (-0.01, -0.06, -0.12, -0.01, 0.06, -0.12)),
    "head": ("head", 0.09, None),
    "lower_waist": ("lower_waist", 0.06, (0, -0.06, 0, 0, 0.06, 0)),
    "butt": ("pelvis", 0.09, (-0.02, -0.07, 0, -0.02, 0.07, 0)),
    "right_thigh": ("right_thigh", 0.06, (0, 0, 0, 0, 0.01, -0.34)),
    "right_shin": ("right_shin", 0.049, (0, 0, 0, 0, 0, -0.3)),
    "right_right_foot": ("right_foot", 0.027, (-0.07, -0.02, 0, 0.14, -0.04, 0)),
    "left_right_foot": ("right_foot", 0.027, (-0.07, 0, 0, 0.14, 0.02, 0)),
    "left_thigh": ("left_thigh", 0.06, (0, 0, 0, 0, -0.01, -0.34)),
    "left_shin": ("left_shin", 0.049, (0, 0, 0, 0, 0, -0.3)),
    "left_left_foot": ("left_foot", 0.027, (-0.07, 0.02, 0, 0.14, 0.04, 0)),
    "right_left_foot": ("left_foot", 0.027, (-0.07, 0, 0, 0.14, -0.02, 0)),
    "right_upper_arm": ("right_upper_arm", 0.04, (0, 0, 0, 0.16, -0.16, -0.16)),
    "right_lower_arm": ("right_lower_arm", 0.031, (0.01, 0.01, 0.01, 0.17, 0.17, 0.17)),
    "right_hand": ("right_hand", 0.04, None),
    "left_upper_arm": ("left_upper_arm", 0.04, (0, 0, 0, 0.16, 0.16, -0.16)),
    "left_lower_arm": ("left_lower_arm", 0.031, (0.01, -0.01, 0.01, 0.17, -0.17, 0.17)),
    "left_hand": ("left_hand", 0.04, None),
}


def humanoid(position_control: bool) -> Robot:
    joint = {"armature": 0.01, "limited": "true", **LIMIT}
    geom = {
        **{"contype": "1", "conaffinity": "1", "condim": "1", "friction": (0.7, 0.005, 0.0001)},
        **{"solref": (0.015, 1), "solimp": (0.9, 0.99, 0.003, 0.5, 2)},
    }

    def inside(body: str) -> Iterator[str]:
        for name, (owner, pos, axis, low, high, stiffness, damping, _) in HUMANOID_JOINTS.items():
            if owner == body:
                limits = (math.radians(low), math.radians(high))
                passive = {"stiffness": stiffness, "damping": damping}
                yield tag("joint", name=name, type="hinge", pos=pos, axis=axis, range=limits, **passive, **joint)
        for name, (owner, radius, ends) in HUMANOID_GEOMS.items():
            if owner == body:
                kind = "sphere" if ends is None else "capsule"
                yield tag("geom", name=name, type=kind, size=radius, fromto=ends, rgba=SKIN, **geom)
        if body == "head":
            yield POLE
            yield camera("egocentric", (0.09, 0, 0), mode=None, xyaxes=(0, -1, 0, 0.1, 0, 1), fovy=80)
        for name, (parent, pos, quat) in HUMANOID_BODIES.items():
            if parent == body:
                yield tag("body", *inside(name), name=name, pos=pos, quat=quat)

    def actuator(name: str) -> str:
        _, _, _, low, high, _, _, g = HUMANOID_JOINTS[name]
        if not position_control:
            return motor(name, g)
        lo, hi = math.radians(low), math.radians(high)
        limits = {"ctrllimited": "true", "ctrlrange": (-1, 1), "forcelimited": "true", "forcerange": (-g, g)}
        law = {"gainprm": g * (hi - lo) / 2, "biastype": "affine", "biasprm": (g * (lo + hi) / 2, -g, 0)}
        return tag("general", name=name, joint=name, **law, **limits)

    parts = (
        camera("track", (0, -4, 0), xyaxes=(1, 0, 0, 0, 0, 1)),
        camera("back", (-3, 0, 1), xyaxes=(0, -1, 0, 1, 0, 2)),
        camera("side", (0, -3, 1), xyaxes=(1, 0, 0, 0, 1, 2)),
        tag("freejoint", name="root"),
        *inside("torso"),
    )
    actuators = tuple(actuator(name) for name in HUMANOID_ACTIONS)
    option = {"timestep": 0.005}
    pole = {**joint, "stiffness": 1}  # Q4: the joint default of the Humanoids
    return Robot("humanoid", option, STATISTIC, (0, 0, 1.3), parts, actuators, pole, geom, planar=False)


# limb: (parent, pos of the body, low, high (rad), stiffness, damping, gear, angle, pos, half-length of the capsule)
CHEETAH_LIMBS = {
    "bthigh": ("torso", (-0.5, 0, 0), -0.52, 1.05, 240, 6, 120, -3.8, (0.1, 0, -0.13), 0.145),
    "bshin": ("bthigh", (0.16, 0, -0.25), -0.785, 0.785, 180, 4.5, 90, -2.03, (-0.14, 0, -0.07), 0.15),
    "bfoot": ("bshin", (-0.28, 0, -0.14), -0.4, 0.785, 120, 3, 60, -0.27, (0.03, 0, -0.097), 0.094),
    "fthigh": ("torso", (0.5, 0, 0), -1, 0.7, 180, 4.5, 120, 0.52, (-0.07, 0, -0.12), 0.133),
    "fshin": ("fthigh", (-0.14, 0, -0.24), -1.2, 0.87, 120, 3, 60, -0.6, (0.065, 0, -0.09), 0.106),
    "ffoot": ("fshin", (0.13, 0, -0.18), -0.5, 0.5, 60, 1.5, 30, -0.6, (0.045, 0, -0.07), 0.07),
}


def half_cheetah() -> Robot:
    radius, half_lengths = 0.046, [0.5, 0.15, *(limb[-1] for limb in CHEETAH_LIMBS.values())]
    volume = sum(math.pi * radius**2 * (2 * half + 4 / 3 * radius) for half in half_lengths)
    joint = {"armature": 0.1, "limited": "true", "solimplimit": (0, 0.8, 0.03, 0.5, 2), "solreflimit": (0.02, 1)}
    contact = {
        **{"contype": "1", "conaffinity": "0", "condim": "3", "friction": (0.4, 0.1, 0.1)},
        **{"solimp": (0, 0.8, 0.01, 0.5, 2), "solref": (0.02, 1)},
    }

    def capsule(name: str, half_length: float | None, **place: Any) -> str:
        pink = name.endswith(("shin", "foot"))
        colour = (0.9, 0.6, 0.6, 1) if pink else (0.8, 0.6, 0.4, 1)
        density = 14.0 / volume  # settotalmass
        size = (radius,) if half_length is None else (radius, half_length)
        return tag("geom", name=name, type="capsule", size=size, rgba=colour, density=density, **contact, **place)

    def limbs(body: str) -> Iterator[str]:
        for name, limb in CHEETAH_LIMBS.items():
            parent, pos, low, high, stiffness, damping, _, angle, middle, half_length = limb
            if parent == body:
                passive = {"stiffness": stiffness, "damping": damping, **joint}
                yield tag(
                    "body",
                    tag("joint", name=name, type="hinge", axis=(0, 1, 0), range=(low, high), **passive),
                    capsule(name, half_length, pos=middle, axisangle=(0, 1, 0, angle)),
                    *limbs(name),
                    name=name,
                    pos=pos,
                )

    free = {"solimplimit": joint["solimplimit"], "stiffness": 0}
    parts = (
        camera("track", (0, -3, 0.3), xyaxes=(1, 0, 0, 0, 0, 1)),
        root("rootx", "slide", (1, 0, 0), **free),
        root("rootz", "slide", (0, 0, 1), **free),
        root("rooty", "hinge", (0, 1, 0), **free),
        capsule("torso", None, fromto=(-0.5, 0, 0, 0.5, 0, 0)),
        capsule("head", 0.15, pos=(0.6, 0, 0.1), axisangle=(0, 1, 0, 0.87)),
        *limbs("torso"),
    )
    motors = tuple(motor(name, limb[6]) for name, limb in CHEETAH_LIMBS.items())
    option = {"timestep": 0.01, "integrator": "RK4"}
    return Robot("cheetah", option, "", (0, 0, 0), parts, motors, joint, contact, planar=True)


def cube(axes: str) -> Robot:
    joint = {"armature": 1, "limited": "true"}
    geom = {"margin": 0.01}
    directions = {"x": (1, 0, 0), "y": (0, 1, 0), "z": (0, 0, 1)}
    slide = {"type": "slide", "range": (-1000, 1000), "damping": 10, **joint}
    slides = (tag("joint", name=f"slide_{axis}", axis=directions[axis], **slide) for axis in axes)
    parts = (
        camera("side", (0, -6, 1), xyaxes=(1, 0, 0, 0, 0.17, 0.98)),
        *slides,
        tag("geom", name="torso", type="box", size=(0.2, 0.2, 0.2), density=5, rgba=SKIN, **geom),
    )
    motors = tuple(motor(f"slide_{axis}", 50) for axis in axes)
    option = {"timestep": 0.01, "integrator": "RK4"}
    return Robot("cube", option, "", (0, 0, 0), parts, motors, joint, geom, planar="y" not in axes)


def robot_text(name: str) -> Robot:
    makers = {
        **{"walker": walker, "halfcheetah": half_cheetah, "cube": lambda: cube("xyz"), "cube2d": lambda: cube("xz")},
        **{"humanoid": lambda: humanoid(False), "humanoidpc": lambda: humanoid(True)},
    }
    return makers[name]()


# --- courses: sections 3, 4, 6 and 10.3 -------------------------------------------------------------------------------


class Course(NamedTuple):
    """What a task adds: to the world before and after the robot (MuJoCo numbers bodies in this order), and sensors."""

    geoms: tuple[str, ...] = ()
    bodies: tuple[str, ...] = ()
    sensors: tuple[str, ...] = ()
    pole: str = ""
    many_boxes: bool = False
    """The search tree over static geoms is kept."""


def floor(size: Numbers = (0, 0, 0.05), x: float = 0.0) -> str:
    return world_geom("floor", "plane", size, pos=(x, 0, 0), rgba=(0.2, 0.3, 0.4, 1))


def walls() -> tuple[str, ...]:
    hidden = {"rgba": (0, 0, 0, 0), "group": "3"}
    return (
        world_geom("left_wall", "plane", (8, 1, 0.05), pos=(0, 8, 0), zaxis=(0, -1, 0), **hidden),
        world_geom("right_wall", "plane", (8, 1, 0.05), pos=(0, -8, 0), zaxis=(0, 1, 0), **hidden),
        world_geom("back_wall", "plane", (8, 1, 0.05), pos=(-4, 0, 0), zaxis=(1, 0, 0), **hidden),
    )


def corridor() -> tuple[str, ...]:
    return floor((100, HALF_WIDTH, 0.05), 92), *walls()


def obstacles(kinds: str, notouch: bool = False) -> Course:
    """h: a box of which only the upper end is above the floor; b: a bar of radius 0.1 along y."""
    bodies, sensors = [], []
    for slot, kind in enumerate(kinds):
        name = f"{'hurdle' if kind == 'h' else 'bar'}_{slot}"
        shape = ("box", (0.05, HALF_WIDTH, 1.0)) if kind == "h" else ("capsule", (0.1, HALF_WIDTH))
        turn = {} if kind == "h" else {"zaxis": (0, 1, 0)}
        bodies.append(tag("body", world_geom(name, *shape, **turn), name=name, pos=(0, 0, -10), mocap="true"))
        if kind == "b" and notouch:
            nearest = {"data": "found dist", "reduce": "mindist", "num": "1"}
            sensors.append(tag("contact", name=f"touch_{slot}", geom1=name, **nearest))
    return Course(corridor(), tuple(bodies), tuple(sensors))


def gaps() -> Course:
    shades = ((0.2, 0.3, 0.4, 1), (0.3, 0.4, 0.5, 1))
    parked = {"size": (0.5, HALF_WIDTH, 0.1), "pos": (0, 0, -10)}
    base = world_geom("base", "box", (6, HALF_WIDTH, 0.1), pos=(-2, 0, -0.1), rgba=shades[0])
    platforms = (world_geom(f"platform_{slot}", "box", rgba=shades[slot % 2], **parked) for slot in range(16))
    lava = (world_geom(f"lava_{slot}", "box", rgba=(0.9, 0.35, 0.05, 1), **parked) for slot in range(16))
    sensor = tag("contact", name="lava", body1="lava", subtree2="torso", data="found", num="1")
    return Course((*walls(), base, *platforms), (tag("body", *lava, name="lava"),), (sensor,), many_boxes=True)


def stairs(pairs: int, camera_height: float) -> Course:
    heights = [0.2 * n for n in range(1, 11)]
    geoms = []
    for number, top in enumerate([*heights, *reversed(heights)] * pairs):
        colour = (0.6, 0.6, 0.6, 1) if number % 2 else (0.8, 0.9, 0.8, 1)
        size, pos = (0.375, HALF_WIDTH, top / 2), (0, 0, top / 2)
        geoms.append(world_geom(f"step_{number}", "box", size, pos=pos, rgba=colour))
    geoms += (world_geom(f"top_{pair}", "box", (3, HALF_WIDTH, 1), pos=(0, 0, 1)) for pair in range(pairs))
    view = camera("stairs_side", (0, -6, 1 + camera_height), euler=(math.radians(80), 0, 0))
    return Course((view, *corridor(), *geoms), many_boxes=True)


def goal_wall(planar: bool, senses_touch: bool = False) -> Course:
    wall = world_geom("wall", "plane", (1, 3, 0.05), pos=(6.5, 0, 1), zaxis=(-1, 0, 0), rgba=(0, 0.5, 0.1, 1))
    view = camera("sideline", (6.5 / 3, -9, 2), mode="fixed", euler=(math.radians(80), math.radians(-5), 0))
    free = {"limited": "false", "damping": 0, "armature": 0, "stiffness": 0, "frictionloss": 0}
    joints = (
        tag("joint", name="ball_x", type="slide", axis=(1, 0, 0), **free),
        tag("joint", name="ball_z", type="slide", axis=(0, 0, 1), **free),
        tag("joint", name="ball_y_rotation", type="hinge", axis=(0, 1, 0), **free),
    )
    contact = {"condim": "6", "friction": (0.7, 0.005, 0.005), "solref": (-10000, -30), "priority": "1"}
    ball = world_geom("ball", "sphere", (0.15,), mass=0.1, rgba=(0.9, 0.9, 0.9, 1), **contact)
    body = tag("body", *(joints if planar else (tag("freejoint", name="ball"),)), ball, name="ball")
    touch = {"geom1": "ball", "subtree2": "torso", "data": "found dist", "reduce": "mindist", "num": "1"}
    sensors = (tag("contact", name="touch", **touch),) if senses_touch else ()
    return Course((view, floor(), wall), (body,), sensors)


def pole(name: str, robot: Robot, n_poles: int = 1, length: float = 0.5, mass: float = 0.5) -> str:
    feet = {"walker": 0.3, "humanoid": 0.09, "humanoidpc": 0.09, "halfcheetah": 0.0, "cube": 0.2, "cube2d": 0.2}
    radius = 0.02 if name.startswith("humanoid") else 0.05
    if robot.planar:
        kind = {"type": "hinge", "axis": (0, 1, 0), "range": (-math.pi, math.pi), "stiffness": 0}
    else:
        kind = {"type": "ball", "range": (0, math.pi / 2)}
    text = ""
    for number in reversed(range(n_poles)):
        colour = (0.8, 0.7 if number % 2 else 0.2, 0.1, 1)
        shape = {"type": "capsule", "size": radius, "fromto": (0, 0, 0, 0, 0, length), "mass": mass}
        text = tag(
            "body",
            tag("joint", name=f"pole_{number}", **{**robot.joint, **kind, "damping": 0.1}),
            tag("geom", name=f"pole_{number}", **{**robot.geom, **shape, "rgba": colour}),
            text,
            name=f"pole_{number}",
            pos=(0, 0, length if number else feet[name]),
        )
    return text


def course_text(name: str, robot: Robot, task: str, options: Mapping[str, Any]) -> Course:
    notouch = bool(options.get("notouch"))
    if task in ("hurdles", "limbo", "hurdleslimbo"):
        return obstacles({"hurdles": "hhhh", "limbo": "bbbb", "hurdleslimbo": "hbhb"}[task], notouch)
    if task == "gaps":
        return gaps()
    if task in ("stairs", "stairscont"):
        return stairs(1 if task == "stairs" else 5, 1.3 if name.startswith("humanoid") else 0.0)
    if task == "goalwall":
        return goal_wall(robot.planar, options.get("touch_ball_reward", 0.0) > 0.0)
    if task == "polebalance":
        sizes = {"n_poles": options.get("n_poles", 1), "length": options.get("pole_length", 0.5)}
        return Course((floor(),), pole=pole(name, robot, mass=options.get("pole_mass", 0.5), **sizes))
    if task == "velocitycontrol":
        return Course((floor(),), sensors=(tag("subtreelinvel", name="velocity", body="torso"),))
    return Course((floor(),))  # empty floors


def written_model(name: str, task: str, **options: Any) -> mujoco.MjModel:
    """The model of `<name>/<task>` from text alone."""
    robot = robot_text(name)
    course = course_text(name, robot, task, options)
    bare = task in ("run", "walk", "stand")  # these read no forces
    inside = "".join(robot.parts)
    inside = inside.replace(POLE, course.pole) if POLE in inside else inside + course.pole
    site = "" if bare else tag("site", name="accelerometer", pos=(0, 0, 0))
    sensors = course.sensors
    if not bare:
        sensors += (tag("accelerometer", name="accelerometer", site="accelerometer"),)
    trees = 2 if task == "goalwall" else 1
    off = {
        **{"equality": "disable", "frictionloss": "disable", "sensor": None if sensors else "disable"},
        **{"island": "disable" if trees == 1 else None},
        **{"midphase": "disable" if trees == 1 and not course.many_boxes else None},
    }
    torso = tag("body", inside, site, name="torso", pos=robot.torso)
    text = (
        f'<mujoco model="{robot.model}"><compiler angle="radian" autolimits="false"/><size memory="2M"/>'
        f"{tag('option', tag('flag', **off), **robot.option)}{robot.statistic}"
        f"<worldbody>{torso}{''.join(course.geoms)}{''.join(course.bodies)}</worldbody>"
        f"<actuator>{''.join(robot.actuators)}</actuator><sensor>{''.join(sensors)}</sensor></mujoco>"
    )
    return mujoco.MjModel.from_xml_string(text)


# --- comparison -------------------------------------------------------------------------------------------------------


def model_fields(model: mujoco.MjModel) -> dict[str, Any]:
    """Everything a compiled model holds: arrays, sizes, names, options, statistics and visual settings."""
    fields: dict[str, Any] = {}
    for name in dir(model):
        value = None if name.startswith("_") else getattr(model, name)
        if isinstance(value, (int, float, bytes, np.ndarray)):
            fields[name] = value
    for group in ("opt", "stat"):
        fields |= inner_fields(group, getattr(model, group))
    for group in ("global_", "headlight", "map", "quality", "rgba", "scale"):
        fields |= inner_fields(f"vis.{group}", getattr(model.vis, group))
    return fields


def inner_fields(prefix: str, part: Any) -> dict[str, Any]:
    return {f"{prefix}.{name}": getattr(part, name) for name in dir(part) if not name.startswith("_")}


def differences(ours: mujoco.MjModel, written: mujoco.MjModel) -> dict[str, str]:
    """Fields in which two models differ -> how."""
    first, second = model_fields(ours), model_fields(written)
    found = dict.fromkeys(first.keys() ^ second.keys(), "is there in one of them only")
    for name in first.keys() & second.keys():
        how = difference(first[name], second[name])
        if how is not None:
            found[name] = how
    return found


def difference(here: Any, there: Any, tolerance: float = 1e-12) -> str | None:
    """How two values of a field differ; None if they are equal to rounding."""
    if isinstance(here, bytes) or np.shape(here) != np.shape(there):
        return None if np.array_equal(here, there) else f"{here!r} here, {there!r} as written"
    off = ~np.isclose(here, there, rtol=tolerance, atol=tolerance, equal_nan=True)
    if not np.any(off):
        return None
    some = [np.atleast_1d(value)[np.atleast_1d(off)].tolist()[:6] for value in (here, there)]
    return f"{some[0]} here, {some[1]} as written, at {np.argwhere(off)[0].tolist()}"
