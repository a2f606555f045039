"""What a mirror makes of observations and actions: entry i becomes sign[i] * x[order[i]].

Left and right change places; of vectors y turns its sign, of turns x and z. Which joint and which foot stands on the
other side, and which joints turn the other way, is known of the robot by its names (`LeggedView.mirrored`); what
becomes of the terrain's leaves is known of the terrain (`Surroundings.leaf_mirrors`). Of an image the order is that of
its columns. What an IMU measures has an image if an order and signs make it, as where its axes lie along those of the
base; its velocity needs an IMU in the plane of the mirror.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gaitway.envs.legged.gaits import OFFSETS
from gaitway.envs.spec import Imu

VECTOR, TURN, COMMAND = (1, -1, 1), (-1, 1, -1), (1, -1, -1)
VELOCITIES = ("lin_vel", "lin_vel_true", "lin_vel_unscaled")
DIRECTIONS = ("projected_gravity", "gravity_true")
TURNS = ("ang_vel", "ang_vel_true", "ang_vel_unscaled")
"""What is measured."""
SIGNS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("lin_vel_hidden", "yaw_velocity", "lin_vel_base", "gravity_base"), VECTOR),
    "ang_vel_base": TURN,
    **dict.fromkeys(("commands", "commands_unscaled"), COMMAND),
    **dict.fromkeys(("base_height", "height_unscaled", "latency", "observation_latency"), (1,)),
    "base_pose": (1, -1, 1, -1, 1, -1),
    "push": (*VECTOR, *VECTOR),
}
"""Leaves whose numbers stay where they are."""
JOINTS = ("dof_pos", "dof_vel", "dof_pos_true", "dof_vel_true", "dof_pos_absolute", "dof_vel_unscaled", "joint_torque")
FEET = ("foot_contact", "foot_air_time")
FOOT_VECTORS = ("foot_force", "foot_pos", "foot_vel")
GAIT_PARAMS = (1, -1, -1, 1, 1, 1)
"""Of x, y, turn, height of the front and of the rear legs, feet ahead."""
LEFT, RIGHT = (0, 2), (1, 3)
"""Legs of a gait, FL FR RL RR."""
NEAR = 1e-6
Image = tuple[list[int], list[float]]
"""Order and signs."""


@dataclass(frozen=True)
class Sides:
    """Of a robot: which joint [A] and which foot [F] stands where in a mirror, and with which signs joints turn [A]."""

    joints: Sequence[int]
    signs: Sequence[float]
    feet: Sequence[int]
    imu: Imu | None = None


def measured_image(leaf: str, imu: Imu | None) -> Image | None:
    """Of a vector as the IMU shows it; None where no order and signs make it of the vector."""
    if imu is None:
        return [0, 1, 2], [float(each) for each in (TURN if leaf in TURNS else VECTOR)]
    if leaf in VELOCITIES and abs(imu.position[1]) > NEAR:
        return None
    w, x, y, z = imu.rotation
    across = (2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x))  # the base's y
    rows = [[float(i == j) - 2.0 * across[i] * across[j] for j in range(3)] for i in range(3)]
    order = [max(range(3), key=lambda column: abs(row[column])) for row in rows]
    sign = [round(row[column]) for row, column in zip(rows, order, strict=True)]
    if any(abs(abs(row[column]) - 1.0) > NEAR for row, column in zip(rows, order, strict=True)):
        return None
    return order, [float(-each if leaf in TURNS else each) for each in sign]


def action_image(mode: str, sides: Sides) -> Image:
    if mode == "gait_params":
        return list(range(len(GAIT_PARAMS))), [float(sign) for sign in GAIT_PARAMS]
    return [int(each) for each in sides.joints], [float(each) for each in sides.signs]


def group_image(
    leaves: Sequence[str], mode: str, gait: str, sides: Sides, around: Mapping[str, Sequence[int]]
) -> Image | None:
    """The image of a group of leaves; None if one of them has none, such as a picture of a camera at one side."""
    order: list[int] = []
    sign: list[float] = []
    for leaf in leaves:
        image = _leaf_image(leaf, mode, gait, sides, around)
        if image is None:
            return None
        order += [len(sign) + each for each in image[0]]
        sign += image[1]
    return order, sign


def images(
    leaves: Mapping[str, Sequence[str]],
    mode: str,
    gait: str,
    sides: Sides,
    around: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, dict[str, list[float] | list[int]]]:
    """Of `action` and of every group that has one, plain: for the contract. `around` are orders of terrain leaves."""
    found = {group: group_image(names, mode, gait, sides, around or {}) for group, names in leaves.items()}
    found["action"] = action_image(mode, sides)
    return {name: {"order": image[0], "sign": image[1]} for name, image in found.items() if image is not None}


def _leaf_image(leaf: str, mode: str, gait: str, sides: Sides, around: Mapping[str, Sequence[int]]) -> Image | None:
    joints, signs = [int(each) for each in sides.joints], [float(each) for each in sides.signs]
    if leaf in (*VELOCITIES, *DIRECTIONS, *TURNS):
        return measured_image(leaf, sides.imu)
    if leaf in SIGNS:
        return list(range(len(SIGNS[leaf]))), [float(each) for each in SIGNS[leaf]]
    if leaf in around:
        return list(around[leaf]), [1.0] * len(around[leaf])
    if leaf in JOINTS:
        return joints, signs
    if leaf == "last_actions":
        return action_image(mode, sides)
    if leaf == "phase":  # where left and right legs are half a cycle apart, so are a gait and its image
        apart = OFFSETS[gait][LEFT[0]] != OFFSETS[gait][RIGHT[0]]
        return [0, 1], [-1.0, -1.0] if apart else [1.0, 1.0]
    if leaf in FEET:
        return [int(each) for each in sides.feet], [1.0] * len(sides.feet)
    if leaf in FOOT_VECTORS:
        order = [3 * int(foot) + axis for foot in sides.feet for axis in range(3)]
        return order, [float(each) for each in VECTOR] * len(sides.feet)
    if leaf == "robot_config":  # friction, centre of mass, payload, strength of motors
        own = [1.0, *(float(each) for each in VECTOR), 1.0]
        return [*range(5), *(5 + joint for joint in joints)], [*own, *[1.0] * len(joints)]
    if leaf == "gain_factors":
        return [*joints, *(len(joints) + joint for joint in joints)], [1.0] * (2 * len(joints))
    return None
