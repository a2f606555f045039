"""Frames made by hand, for terms that need no simulation."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
import yaml

from gaitway.core.config import to_config
from gaitway.envs.legged.frame import Frame, RobotTensors
from gaitway.envs.robots.legged import FEET, LINKS, LeggedRobot, LeggedView
from gaitway.envs.robots.pup import PUP12
from gaitway.envs.robots.world import add_static, compile_model
from gaitway.envs.tasks.legged.model import robot_tensors


@functools.cache
def pup12() -> tuple[LeggedView, RobotTensors]:
    spec = PUP12.robot.spec()
    add_static(spec, "floor", "plane", [0.0, 0.0, 0.05], contype=1, conaffinity=FEET | LINKS)
    view = LeggedView(PUP12, compile_model(spec))
    return view, robot_tensors(view)


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


def frame_of(**changes: Any) -> Frame:
    """One robot that stands still and level, of which `changes` are different; numbers and lists become [1, ...]."""
    _, robot = pup12()
    feet, links = torch.zeros(1, 4, dtype=torch.float64), torch.zeros(1, 8, dtype=torch.float64)
    joints, vector, one = torch.zeros(1, 12, dtype=torch.float64), tensor(0.0, 0.0, 0.0), tensor(0.0)[0]
    plain: dict[str, Any] = {
        **dict.fromkeys(("position", "velocity", "lin_vel", "ang_vel", "yaw_vel", "command"), vector),
        **dict.fromkeys(("yaw", "turn", "trunk_force"), one),
        **dict.fromkeys(("foot_height", "air_time", "contact_time", "peak"), feet),
        **dict.fromkeys(("qd", "torque", "action", "last_action", "older_action", "last_qd"), joints),
        **{name: feet[..., None].expand(1, 4, 3) for name in ("foot_position", "foot_velocity", "foot_force")},
        "rotation": tensor(1.0, 0.0, 0.0, 0.0),
        "gravity": tensor(0.0, 0.0, -1.0),
        "height": tensor(0.27)[0],
        "q": robot.pose[None].clone(),
        "ctrl": robot.pose[None].clone(),
        "contact": feet > 0,
        "first_contact": feet > 0,
        "link_force": links,
        "steps": torch.tensor([10]),
        "terminated": torch.tensor([False]),
    }
    given = {
        name: value if isinstance(value, torch.Tensor) or name not in plain else torch.tensor([value]).to(plain[name])
        for name, value in changes.items()
    }
    return Frame(robot=robot, dt=0.02, **{**plain, **given})


def with_imu(folder: Path, site: str = '<site name="imu"/>', robot: LeggedRobot = PUP12, **changes: Any) -> str:
    """The YAML file of a pup with this site, or body with a site, on its trunk as its IMU."""
    text = robot.robot.path.read_text()
    assert text.count('<site name="imu"/>') == 1
    (folder / "imu.xml").write_text(text.replace('<site name="imu"/>', site))
    path = folder / "imu.yaml"
    path.write_text(yaml.safe_dump(to_config(robot) | {"mjcf": "imu.xml", "imu_site": "imu"} | changes))
    return str(path)


def at(size: int, column: int, value: float) -> list[float]:
    """A list of zeros but for one place."""
    return [value if number == column else 0.0 for number in range(size)]
