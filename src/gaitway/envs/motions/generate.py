"""Clips without a recording: gaits that are written down, for a legged robot with leg geometry.

Two kinds. *Replayed*: the gait drives the simulated robot open loop, and what the robot does is the clip; dynamically
right, slower than commanded, so `meta` tells the velocity that it reached. *Kinematic*: the base moves exactly as
commanded, level, at the gait's height; feet do not slip and nothing weighs anything: for loaders and tests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.frames import MotionError
from gaitway.envs.motions.skeleton import Skeleton, robot_name
from gaitway.functional.rotations import rotate_back

if TYPE_CHECKING:
    from gaitway.envs.tasks.legged.task import LeggedTask
    from gaitway.envs.vec_env import Observation, VecEnv

Command = tuple[float, float, float]
TROTS: tuple[Command, ...] = (
    *((0.3, 0.0, 0.0), (0.5, 0.0, 0.0), (0.8, 0.0, 0.0), (1.0, 0.0, 0.0), (-0.4, 0.0, 0.0)),
    *((0.5, 0.0, 0.5), (0.5, 0.0, -0.5)),
)
"""Commands of a set of clips."""
SLOW_TROTS = tuple(command for command in TROTS if command[0] <= 0.8)
WALKS: tuple[Command, ...] = ((0.2, 0.0, 0.0), (0.3, 0.0, 0.0), (0.4, 0.0, 0.0), (-0.2, 0.0, 0.0))
"""A walk falls faster than that, and in turns."""
COMMANDS = {"trot_slow": SLOW_TROTS, "bound": SLOW_TROTS, "walk": WALKS}
"""Of the gaits that are not for all of `TROTS`."""
GAITS: dict[str, dict[str, Any]] = {
    "trot": {},
    "trot_slow": {"name": "trot", "frequency": 2.0},
    "pace": {"name": "pace"},
    "bound": {"name": "bound", "duty": 0.55},
    "walk": {"name": "walk", "frequency": 1.25, "duty": 0.75},
}
"""Gaits by name, as options of `GaitConfig`; a cycle is a whole number of frames at 50 Hz."""
MAX_TILT = math.radians(20.0)
TASK = "pup12/gait_residual"
"""The task whose action 0 is the gait alone."""


class _Still:
    """The action 0."""

    def __init__(self, env: VecEnv) -> None:
        self.action = torch.zeros(env.num_envs, len(env.spec.action.names))

    def __call__(self, obs: Observation) -> Tensor:
        return self.action

    def reset(self, mask: Tensor | None = None) -> None:
        """Nothing is remembered."""


def replayed(
    gait: str, command: Command, robot: str = "pup12", seconds: float = 4.0, warmup: float = 2.0, seed: int = 0
) -> Clip:
    """The gait on the nominal robot, `seconds` of it after a `warmup`; refused if the robot falls or tilts."""
    from gaitway.envs.motions.recording import record
    from gaitway.envs.registry import make_env

    options = _options(gait, command, robot) | {"episode_seconds": seconds + warmup + 1.0}
    with make_env(TASK, 1, seed=seed, num_threads=1, **options) as env:
        try:
            clip = record(env, _Still(env), seconds, warmup, seed, episodes=1)
        except MotionError as error:
            raise MotionError(f"{robot} falls in a {gait} at {list(command)}; command less ({error})") from error
    tilt = float(np.arccos(np.clip(_up(clip), -1.0, 1.0)).max())
    if tilt > MAX_TILT:
        raise MotionError(
            f"{robot} tilts by {math.degrees(tilt):.0f} degrees in a {gait} at {list(command)}; command less"
        )
    return _told(clip, gait, command, "replayed")


def kinematic(gait: str, command: Command, robot: str = "pup12", cycles: int = 10) -> Clip:
    """`cycles` cycles and the first frame again; a loop unless it turns."""
    from gaitway.envs.registry import make_env

    with make_env(TASK, 1, num_threads=1, **_options(gait, command, robot)) as env:
        task = _task(env)
        walk, dt = task.gait, env.spec.control_dt
        steps = cycles / (walk.config.frequency * dt)
        if abs(steps - round(steps)) > 1e-9:
            raise MotionError(f"a cycle of {gait} is no whole number of frames of {dt:g} s; choose another frequency")
        time = torch.arange(round(steps) + 1, dtype=torch.float64) * dt
        asked = torch.tensor(command, dtype=torch.float64).expand(len(time), 3)
        phase = torch.frac(walk.config.frequency * time + 1e-12)  # not just below a whole cycle
        qpos = np.tile(task.view.home, (len(time), 1))
        qpos[:, task.view.positions] = walk.pose(phase, asked).numpy()
        first = task.view.root[1][0]
        place, yaw = _way(np.array(command), time.numpy())
        qpos[:, first : first + 2], qpos[:, first + 2] = place, walk.config.height
        qpos[:, first + 3 : first + 7] = np.stack((np.cos(yaw / 2), 0 * yaw, 0 * yaw, np.sin(yaw / 2)), 1)
        skeleton = Skeleton.of_task(task)
        still = np.zeros((len(qpos), task.model.nv))
        # who turns does not come back to where it looked, so the end of a turn is no beginning
        clip = skeleton.clip(
            qpos, still, 1.0 / dt, task.foot_names, loop=abs(command[2]) < 1e-9, meta={"robot": robot_name(task)}
        )
    return _told(clip.differentiated(), gait, command, "kinematic")


def commands_of(gait: str) -> tuple[Command, ...]:
    """Commands that the gait is for, a set of clips of it."""
    return COMMANDS.get(gait, TROTS)


def velocity_of(clip: Clip) -> Command:
    """Mean velocity of the root ahead and to the left (m/s), and its turn (rad/s)."""
    frames = clip.frames
    w, i, j, k = frames.body_rotations[:, 0].T
    yaw = np.arctan2(2.0 * (w * k + i * j), 1.0 - 2.0 * (j * j + k * k))
    vx, vy = frames.body_velocities[:, 0, :2].T
    ahead, left = np.cos(yaw) * vx + np.sin(yaw) * vy, np.cos(yaw) * vy - np.sin(yaw) * vx
    return float(ahead.mean()), float(left.mean()), float(frames.body_angular_velocities[:, 0, 2].mean())


def motion_facts(clip: Clip, command: Sequence[float] | None) -> dict[str, Any]:
    """What `meta` says of how a robot was told to move, where it was told one thing, and how it did."""
    told = {} if command is None else {"command": list(command)}
    return told | {"velocity": [round(each, 4) for each in velocity_of(clip)]}


def _options(gait: str, command: Command, robot: str) -> dict[str, Any]:
    if gait not in GAITS:
        raise MotionError(f"no gait {gait!r}; there are {', '.join(GAITS)}")
    told = [float(each) for each in command]
    ranges = {axis: [value, value] for axis, value in zip(("x", "y", "turn"), told, strict=True)}  # nothing is trained
    return {
        "robot": robot,
        "gait": GAITS[gait],
        "commands": {"fixed": told, **ranges},
        "randomise": {"enabled": False},
        "pushes": {"kick_seconds": None},
        "start": {"xy": 0.0, "yaw": 0.0, "velocity": 0.0},
        "noise": 0.0,
    }


def _task(env: VecEnv) -> LeggedTask:
    return env.task  # type: ignore[attr-defined]


def _way(command: np.ndarray, time: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where a base that follows `command` is [n, 2], and which way it heads [n]: an arc, or a line."""
    x, y, turn = command
    yaw = turn * time
    if abs(turn) < 1e-9:
        return np.outer(time, command[:2]), yaw
    sin, cos = np.sin(yaw) / turn, (1.0 - np.cos(yaw)) / turn
    return np.stack((x * sin - y * cos, x * cos + y * sin), 1), yaw


def _up(clip: Clip) -> np.ndarray:
    """Cosine of the tilt of the root, [F]."""
    rotation = clip.frames.body_rotations[:, 0]
    return rotate_back(rotation, np.broadcast_to([0.0, 0.0, 1.0], (len(clip), 3)))[:, 2]


def _told(clip: Clip, gait: str, command: Sequence[float], kind: str) -> Clip:
    facts: Mapping[str, Any] = {"kind": kind, "gait": gait, **motion_facts(clip, command)}
    source = f"gaitway motion generate {gait} --command {','.join(f'{each:g}' for each in command)} --kind {kind}"
    name = f"{clip.meta['robot']}_{gait}_{'_'.join(f'{each:g}' for each in command)}"
    name += "_kinematic" if kind == "kinematic" else ""
    arrays: dict[str, Any] = {"name": name, "source": source, "meta": {**clip.meta, **facts}}
    return Clip(
        clip.frames, clip.fps, clip.joints, clip.bodies, clip.balls, loop=clip.loop, weight=clip.weight, **arrays
    )
