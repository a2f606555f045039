"""All robots by name: `get_robot("walker")`. Nothing here imports MuJoCo before a robot is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from gaitway.core.config import did_you_mean

if TYPE_CHECKING:
    from gaitway.envs.robots.legged import LeggedRobot
    from gaitway.envs.robots.robot import Robot


class RobotEntry(NamedTuple):
    """Where a robot is defined, what sentences call it, and one line about it."""

    module: str
    constant: str
    title: str
    description: str


ROBOTS = {
    "walker": RobotEntry(
        "walker",
        "WALKER",
        "the planar Walker",
        "planar biped of 28.5 kg with six motors (hip, knee, ankle), from the DeepMind Control Suite",
    ),
    "humanoid": RobotEntry(
        "humanoid",
        "HUMANOID",
        "the Humanoid",
        "humanoid of 40.8 kg with 21 torque motors, from the DeepMind Control Suite",
    ),
    "humanoidpc": RobotEntry(
        "humanoid",
        "HUMANOIDPC",
        "the Humanoid with position control",
        "the same humanoid with position control: an action is a position between the joint's limits",
    ),
    "halfcheetah": RobotEntry(
        "half_cheetah",
        "HALF_CHEETAH",
        "the planar HalfCheetah",
        "planar cheetah of 14 kg with six motors, from Gym",
    ),
    "cube": RobotEntry(
        "cube",
        "CUBE",
        "a cube that motors push about",
        "box of 0.32 kg that slides along x, y and z, for testing tasks with scripts",
    ),
    "cube2d": RobotEntry("cube", "CUBE2D", "a cube in the x-z plane", "the same box in the x-z plane"),
}
"""The one list of robots; tasks are named <robot>/<task>."""


def get_robot(name: str) -> Robot:
    """The robot of that name; an unknown one is a KeyError that lists them."""
    if name not in ROBOTS:
        raise KeyError(f"no robot {name!r}{did_you_mean(name.lower(), ROBOTS)}; there are {list(ROBOTS)}")
    entry = ROBOTS[name]
    return getattr(import_module(f"gaitway.envs.robots.{entry.module}"), entry.constant)


def same_machine(one: str, other: str) -> bool:
    """Whether two names mean the same body, as humanoid and humanoidpc do: those of one model file."""
    if one == other or one not in ROBOTS or other not in ROBOTS:
        return one == other
    return get_robot(one).path == get_robot(other).path


LEGGED_ROBOTS = {
    "pup12": RobotEntry("pup", "PUP12", "the quadruped pup12", "quadruped of 12.8 kg with twelve joints"),
    "pup4": RobotEntry("pup", "PUP4", "the planar pup4", "pup12 in the x-z plane, two legs for four"),
    "walker": RobotEntry("bipeds", "WALKER_LEGS", "the planar Walker", "the Walker with position control"),
    "humanoid": RobotEntry("bipeds", "HUMANOID_LEGS", "the Humanoid", "the Humanoid with position control"),
    "go1": RobotEntry("menagerie", "GO1", "Unitree's Go1", "quadruped of 12.7 kg, from gaitway[robots]"),
    "spot": RobotEntry("menagerie", "SPOT", "Boston Dynamics' Spot", "quadruped of 50 kg, from gaitway[robots]"),
    "g1": RobotEntry("menagerie", "G1", "Unitree's G1", "humanoid of 29 joints, from gaitway[robots]"),
    "h1": RobotEntry("menagerie", "H1", "Unitree's H1", "humanoid of 19 joints, from gaitway[robots]"),
    "t1": RobotEntry("menagerie", "T1", "Booster's T1", "humanoid of 23 joints, from gaitway[robots]"),
}
"""Robots that tasks of `envs/legged` know by name; others come from YAML files."""


def get_legged_robot(name: str) -> LeggedRobot:
    """The legged robot of that name, or of that YAML file."""
    from gaitway.envs.robots.legged import LeggedRobot

    if name.endswith((".yaml", ".yml")):
        return LeggedRobot.load(name)
    if name not in LEGGED_ROBOTS:
        hint = did_you_mean(name.lower(), LEGGED_ROBOTS)
        raise KeyError(f"no legged robot {name!r}{hint}; there are {list(LEGGED_ROBOTS)}, and YAML files of your own")
    entry = LEGGED_ROBOTS[name]
    return getattr(import_module(f"gaitway.envs.robots.{entry.module}"), entry.constant)
