"""All robots by name: `get_robot("walker")`."""

from __future__ import annotations

from gaitway.core.config import did_you_mean
from gaitway.envs.robots.contract import Robot, RobotView
from gaitway.envs.robots.cube import CUBE, CUBE2D
from gaitway.envs.robots.half_cheetah import HALF_CHEETAH
from gaitway.envs.robots.humanoid import HUMANOID, HUMANOIDPC
from gaitway.envs.robots.walker import WALKER

__all__ = ["ROBOTS", "Robot", "RobotView", "get_robot"]

ROBOTS: dict[str, Robot] = {robot.name: robot for robot in (WALKER, HUMANOID, HUMANOIDPC, HALF_CHEETAH, CUBE, CUBE2D)}


def get_robot(name: str) -> Robot:
    """The robot of that name; an unknown one is a KeyError that lists them."""
    if name not in ROBOTS:
        raise KeyError(f"no robot {name!r}{did_you_mean(name.lower(), ROBOTS)}; there are {list(ROBOTS)}")
    return ROBOTS[name]
