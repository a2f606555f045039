"""A legged robot's compiled model as tensors on the CPU."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import mujoco
import numpy as np
import torch

from gaitway.envs.legged.actions import Actions
from gaitway.envs.legged.config import LeggedConfig
from gaitway.envs.legged.frame import Columns, RobotTensors
from gaitway.envs.legged.gaits import OFFSETS, Gait
from gaitway.envs.legged.kinematics import FootChains
from gaitway.envs.robots.legged import LeggedRobot, LeggedView, RobotError
from gaitway.envs.robots.registry import get_legged_robot
from gaitway.envs.spec import ActionSpec

POSE_WEIGHTS = (1.0, 1.0, 0.1)
"""Of hip, thigh and calf in the term `pose`."""
RESIDUAL_SCALE, DELTA_SCALE = 0.15, 0.5
LEGS = {"front left": [1.0, 1.0], "front right": [1.0, -1.0], "rear left": [-1.0, 1.0], "rear right": [-1.0, -1.0]}
"""In the order of gaits: on which sides of the base their feet are, along x and y."""
LIKE = torch.zeros(0, dtype=torch.float64)
"""Type and device of everything on MuJoCo's batch."""


def robot_tensors(view: LeggedView, action_scale: float | None = None) -> RobotTensors:
    """What terms know of the robot; `action_scale` takes the place of the robot's own."""
    legged, model, drive = view.robot, view.model, view.drive()
    joints = len(legged.joint_names)
    is_three = joints % len(POSE_WEIGHTS) == 0 and legged.leg is not None
    scale = view.action_scale if action_scale is None else np.full(joints, action_scale)

    order = (view.foot_contacts.reshape(-1), view.trunk_contacts, view.link_contacts)
    starts = np.concatenate([*order, view.foot_positions, view.foot_velocities])
    sizes = [4] * sum(map(len, order)) + [3] * (len(starts) - sum(map(len, order)))
    if starts.tolist() != [0, *np.cumsum(sizes)[:-1].tolist()]:
        raise RobotError(f"sensors of {legged.name} are not where they should be; build its model from its spec()")

    def columns(array: np.ndarray) -> Columns:
        if len(array) and (np.diff(array) == 1).all():
            return slice(int(array[0]), int(array[-1]) + 1)
        return torch.from_numpy(np.array(array, dtype=np.int64))

    def floats(array: Any) -> torch.Tensor:
        return torch.tensor(np.asarray(array, dtype=np.float64))

    imu = view.imu
    return RobotTensors(
        joints=legged.joint_names,
        feet=len(legged.feet),
        is_planar=view.is_planar,
        root_position=view.root[1],
        root_velocity=view.root[2],
        num_velocities=model.nv,
        positions=columns(view.positions),
        velocities=columns(view.velocities),
        foot_geoms=view.foot_contacts.shape[1],
        links=len(view.link_contacts),
        trunks=len(view.trunk_contacts),
        foot_radius=floats(view.foot_radius),
        home=floats(view.home),
        pose=floats(view.pose),
        low=floats(view.low),
        high=floats(view.high),
        kp=floats(drive.kp),
        kd=floats(drive.kd),
        effort=floats(drive.effort),
        pose_weights=floats(POSE_WEIGHTS * (joints // 3) if is_three else np.ones(joints)),
        action_offset=floats(view.action_offset),
        action_scale=floats(scale),
        mass=view.mass,
        stand_height=view.stand_height,
        fall_height=legged.fall_height,
        fall_tilt=legged.fall_tilt,
        imu_position=None if imu is None else floats(imu.position),
        imu_rotation=None if imu is None else floats(imu.rotation),
    )


def robot_of(config: LeggedConfig) -> LeggedRobot:
    """The robot of a task, with the task's own time step and contacts where it has some."""
    robot = get_legged_robot(config.robot)
    names = ("timestep", "substeps", "self_collision")
    own = {name: getattr(config, name) for name in names if getattr(config, name) is not None}
    differs = any(value != getattr(robot, name) for name, value in own.items())
    return dataclasses.replace(robot, **own) if differs else robot


def foot_chains(view: LeggedView) -> FootChains:
    """The hinges from the base to each foot, as the model has them."""
    model, names = view.model, list(view.robot.joint_names)
    chains = []
    for foot in range(len(view.robot.feet)):
        site = model.site(f"foot_{foot}")
        body = int(model.site_bodyid[site.id])
        links: list[tuple[Any, ...]] = []
        while body != view.base:
            links = [*_links(model, body, names), *links]
            body = int(model.body_parentid[body])
        chains.append((links, model.site_pos[site.id]))
    longest = max(len(links) for links, _ in chains)
    still = (len(names), np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0]), np.zeros(3))
    padded = [[*links, *[still] * (longest - len(links))] for links, _ in chains]

    def stacked(part: int) -> torch.Tensor:
        return torch.from_numpy(np.array([[link[part] for link in links] for links in padded]))

    zero = torch.from_numpy(model.qpos0[view.positions].copy())
    tips = torch.from_numpy(np.array([tip for _, tip in chains]))
    joint, offset, turn, axis, anchor = (stacked(part) for part in range(5))
    return FootChains(joint, offset, turn, axis, anchor, zero, tips)


def _links(model: mujoco.MjModel, body: int, names: list[str]) -> list[tuple[Any, ...]]:
    """The hinges of a body; the first one carries the body's own place in its parent."""
    place = model.body_pos[body], model.body_quat[body]
    first, count = int(model.body_jntadr[body]), int(model.body_jntnum[body])
    links = []
    for joint in range(first, first + count) if count else ():
        name = model.joint(joint).name
        number = names.index(name) if name in names else len(names)
        links.append((number, *place, model.jnt_axis[joint], model.jnt_pos[joint]))
        place = np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0])
    return links or [(len(names), *place, np.array([0.0, 0.0, 1.0]), np.zeros(3))]


def action_spec(actions: Actions) -> ActionSpec:
    robot, count = actions.robot, len(actions.names)
    limit = (min(actions.limit, 1.0) if actions.mode == "gait_params" else actions.limit,) * count
    low = tuple(-value for value in limit)
    about: dict[str, Any] = {"meaning": actions.mode}
    if actions.mode == "joint_offset":
        scale, offset = tuple(robot.action_scale.tolist()), tuple(robot.action_offset.tolist())
        about |= {"unit": "rad", "scale": scale, "offset": offset}
    elif actions.mode != "gait_params":
        about |= {"unit": "rad", "scale": tuple(actions.scale.tolist())}
    return ActionSpec("continuous", actions.names, low, limit, **about)


def make_actions(config: LeggedConfig, legged: LeggedRobot, robot: RobotTensors) -> Actions:
    gait = None
    if config.action.startswith("gait"):
        leg = legged.leg
        if leg is None or robot.size != 12 or robot.is_planar:
            raise RobotError(f"{legged.name} has no leg geometry, which {config.action} needs; write leg for it")
        offsets = robot.pose.new_tensor(OFFSETS[config.gait.name])
        front, side = robot.pose.new_tensor(list(LEGS.values())).T.contiguous()
        sizes = (leg.hip_x, leg.hip_y, leg.hip_offset, leg.thigh, leg.calf, leg.foot_radius)
        gait = Gait(config.gait, *sizes, offsets, front, side, (leg.thigh_zero, leg.calf_zero))
    default = {"gait_residual": RESIDUAL_SCALE, "joint_delta": DELTA_SCALE}.get(config.action)
    scale = config.action_scale or default
    scales = robot.action_scale if scale is None else torch.full_like(robot.action_scale, scale)
    limit = 1.0 if config.action == "gait_params" else config.action_limit
    return Actions(config.action, limit, robot, gait, scales)


def check_legs(mode: str, view: LeggedView) -> None:
    """Refuse a robot whose joints do not come leg by leg in the order that gaits have: mirrored legs would turn the
    robot the other way, and nobody would be told."""
    legged, chains = view.robot, foot_chains(view)
    ways = torch.sign(chains(torch.from_numpy(view.pose)[None])[0, :, :2]).tolist()
    moved = [[joint for joint in foot if joint < len(legged.joint_names)] for foot in chains.joint.tolist()]
    for leg, (name, way) in enumerate(LEGS.items()):
        joints = [3 * leg, 3 * leg + 1, 3 * leg + 2]
        if (joints, way) not in zip(moved, ways, strict=True):
            raise RobotError(
                f"{mode} needs hip, thigh and calf of the legs {', '.join(LEGS)}, in this order; of {legged.name} "
                f"{[legged.joint_names[joint] for joint in joints]} are not those {name}; order its joints so"
            )


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """The same memory as a tensor; arrays that only the simulator writes are read alone."""
    with warnings.catch_warnings(), torch.inference_mode(False):
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)
