"""Stand, walk and run with the planar Walker: dense rewards on a flat floor.

Group `policy` [17]: torso height and pitch, the six joint angles, then all nine velocities in the order of qvel, so the
first three are rootz, rootx (forward speed) and rooty. The absolute x position is not shown. One step is 0.025 s. The
first observation is the drawn state itself. An episode terminates when the robot falls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import Batch

from gaitway.envs.batch_task import BatchTask, Rows, resolve_options
from gaitway.envs.robots import walker
from gaitway.envs.vec_env import Component, ObservationGroup

HEIGHT_RANGE = (0.6, 1.2)
"""Torso heights (m) that earn nothing and everything."""


@dataclass(frozen=True, kw_only=True)
class WalkerConfig:
    """Options of walker/run; walker/walk and walker/stand differ in `target_speed`."""

    target_speed: float = 4.0
    """Forward speed (m/s) that earns the full reward; 0 rewards standing alone."""
    reset_noise_scale: float = walker.INITIAL_NOISE
    """Half-width of the uniform noise on positions and deviation of the normal noise on velocities."""
    max_episode_steps: int = 1000

    def __post_init__(self) -> None:
        if self.target_speed < 0 or self.reset_noise_scale < 0 or self.max_episode_steps < 0:
            raise ValueError(f"target_speed, reset_noise_scale and max_episode_steps may not be negative: {self}")


@dataclass(frozen=True, kw_only=True)
class WalkConfig(WalkerConfig):
    target_speed: float = 1.0


@dataclass(frozen=True, kw_only=True)
class StandConfig(WalkerConfig):
    target_speed: float = 0.0


def locomotion_reward(height: np.ndarray, pitch: np.ndarray, speed: np.ndarray, target_speed: float) -> np.ndarray:
    """[B] heights (m), pitches (rad), speeds (m/s) -> rewards [B] in 0..1.

    s = (3 clip((z - 0.6) / 0.6, 0, 1) + (1 + cos pitch) / 2) / 4 for standing, and s (1 + 5 clip(v / v*, 0, 1)) / 6
    for moving at v*.
    """
    low, high = HEIGHT_RANGE
    upright = (3.0 * np.clip((height - low) / (high - low), 0.0, 1.0) + 0.5 * (1.0 + np.cos(pitch))) / 4.0
    if target_speed == 0.0:
        return upright
    return upright * (1.0 + 5.0 * np.clip(speed / target_speed, 0.0, 1.0)) / 6.0


class WalkerTask(BatchTask):
    """Move forward at `target_speed`. Metrics: `speed` (m/s, displacement of x over the step) and `fell`."""

    frame_skip = walker.FRAME_SKIP
    metrics = ("speed", "fell")
    camera = "follow"

    def __init__(self, id: str, config: WalkerConfig, options: Mapping[str, Any]) -> None:
        self.id = id
        self.config = config
        self.options = options
        self.model = walker.walker_model()
        self.max_episode_steps = config.max_episode_steps
        names = walker.JOINTS
        components = (
            Component("rootz", 1, "m"),
            *(Component(name, 1, "rad") for name in names[walker.PITCH :]),
            *(Component(f"{name}_velocity", 1, "m/s") for name in names[: walker.PITCH]),
            *(Component(f"{name}_velocity", 1, "rad/s") for name in names[walker.PITCH :]),
        )
        self.groups = (ObservationGroup("policy", components, (len(components),)),)

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        self._x_before = np.zeros(batch.nsim)

    def draw(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        qpos, qvel = walker.draw_state(generator, self.config.reset_noise_scale)
        return {"qpos": qpos, "qvel": qvel}

    def before_step(self) -> None:
        np.copyto(self._x_before, self.qpos[:, walker.FORWARD])

    def outcome(
        self, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, metrics: dict[str, np.ndarray]
    ) -> None:
        height, pitch = self.qpos[:, walker.HEIGHT], self.qpos[:, walker.PITCH]
        speed = (self.qpos[:, walker.FORWARD] - self._x_before) / self.control_dt
        reward[:] = locomotion_reward(height, pitch, speed, self.config.target_speed)
        terminated[:] = walker.fallen(height, pitch)
        metrics["speed"][:] = speed
        metrics["fell"][:] = terminated

    def observe(self, rows: Rows, out: dict[str, np.ndarray]) -> None:
        policy = out["policy"]
        policy[:, 0] = self.qpos[rows, walker.HEIGHT]
        policy[:, 1:] = self.motion[rows, walker.PITCH :]

    def render_model(self) -> mujoco.MjModel:
        return walker.walker_model(decorated=True)


def walker_run(options: Mapping[str, Any]) -> WalkerTask:
    return WalkerTask("walker/run", *resolve_options(WalkerConfig, "walker/run", options))


def walker_walk(options: Mapping[str, Any]) -> WalkerTask:
    return WalkerTask("walker/walk", *resolve_options(WalkConfig, "walker/walk", options))


def walker_stand(options: Mapping[str, Any]) -> WalkerTask:
    return WalkerTask("walker/stand", *resolve_options(StandConfig, "walker/stand", options))
