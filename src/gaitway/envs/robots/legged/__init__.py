"""Robots on legs: what their files say (robot.py), and where it is in the compiled model (view.py)."""

from gaitway.envs.robots.legged.robot import FEET, LINKS, TERRAIN, LeggedRobot, LegGeometry, Mirror, RobotError
from gaitway.envs.robots.legged.view import LeggedView

__all__ = ["FEET", "LINKS", "TERRAIN", "LegGeometry", "LeggedRobot", "LeggedView", "Mirror", "RobotError"]
