"""Gymnasium's MuJoCo v5 tasks as native batch tasks: the runners HalfCheetah, Hopper, Walker2d and Swimmer.

The models are the files that gymnasium ships. Observations, rewards, ends and the distributions of the first state are
those of gymnasium's v5 classes, option by option; started from the same state and given the same actions both produce
the same numbers. What differs is the random stream (`gaitway.core.seeding`), and that all instances move at once.
`gym_mujoco_contact` holds the tasks that see contact forces, `gym_mujoco_arms` the pendulums and arms.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import mujoco
import numpy as np
from mujoco.batch import Batch

from gaitway.core.config import configuration
from gaitway.core.ranges import INCREASING, Count, Limit, NotNegative, Number, WholeNumber
from gaitway.envs.batch_task import Arrays, BatchTask, Rows
from gaitway.envs.robots.robot import position_components, velocity_components
from gaitway.envs.robots.world import compile_model
from gaitway.envs.spec import Component, ObservationGroup
from gaitway.envs.task_options import resolve_options

VELOCITY_LIMIT = 10.0
"""Hopper and Walker2d show joint velocities clipped to this (m/s or rad/s)."""


@configuration(kw_only=True)
class GymConfig:
    """Options that every task has."""

    frame_skip: Count = 5
    max_episode_steps: WholeNumber = 1000


@configuration(kw_only=True)
class RunnerConfig(GymConfig):
    """Options of HalfCheetah-v5, with gymnasium's names and defaults."""

    forward_reward_weight: Number = 1.0
    ctrl_cost_weight: Number = 0.1
    reset_noise_scale: NotNegative = 0.1
    exclude_current_positions_from_observation: bool = True


@configuration(kw_only=True)
class SwimmerConfig(RunnerConfig):
    """Options of Swimmer-v5."""

    frame_skip: Count = 4
    ctrl_cost_weight: Number = 1e-4


@configuration(kw_only=True)
class Walker2dConfig(RunnerConfig):
    """Options of Walker2d-v5; the ranges are open intervals of torso height (m) and pitch (rad)."""

    frame_skip: Count = 4
    ctrl_cost_weight: Number = 1e-3
    healthy_reward: Number = 1.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: Annotated[tuple[Limit, Limit], INCREASING] = (0.8, 2.0)
    healthy_angle_range: Annotated[tuple[Limit, Limit], INCREASING] = (-1.0, 1.0)
    reset_noise_scale: NotNegative = 5e-3


@configuration(kw_only=True)
class HopperConfig(Walker2dConfig):
    """Options of Hopper-v5; `healthy_state_range` bounds every position and velocity but x and z."""

    healthy_state_range: Annotated[tuple[Limit, Limit], INCREASING] = (-100.0, 100.0)
    healthy_z_range: Annotated[tuple[Limit, Limit], INCREASING] = (0.7, float("inf"))
    healthy_angle_range: Annotated[tuple[Limit, Limit], INCREASING] = (-0.2, 0.2)


Health = Callable[[Any, np.ndarray, np.ndarray], np.ndarray]
"""(config, qpos [B, nq], qvel [B, nv]) -> which instances are healthy [B]."""


def walker2d_health(config: Walker2dConfig, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    """Torso height and pitch within their ranges."""
    return within(qpos[:, 1], config.healthy_z_range) & within(qpos[:, 2], config.healthy_angle_range)


def hopper_health(config: HopperConfig, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    """As Walker2d, and no other position or velocity out of bounds."""
    sound = within(qpos[:, 2:], config.healthy_state_range).all(axis=1)
    sound &= within(qvel, config.healthy_state_range).all(axis=1)
    return sound & walker2d_health(config, qpos, qvel)


class GymTask(BatchTask):
    """What gymnasium's tasks share: a model file, the numbers of a config and one observed vector."""

    config: GymConfig

    def __init__(self, id: str, asset: str, config: GymConfig, options: Mapping[str, Any]) -> None:
        self.id = id
        self.asset = asset
        self.config = config
        self.options = options
        self.frame_skip = config.frame_skip
        self.max_episode_steps = config.max_episode_steps
        self.groups = (vector_group(self.components()),)

    def build(self, decorated: bool = False) -> mujoco.MjModel:
        return load_asset(self.asset)

    def components(self) -> tuple[Component, ...]:
        """What is observed, all of qpos and qvel unless a task shows something else."""
        return position_components(self.model) + velocity_components(self.model)


class RunnerTask(GymTask):
    """Run forward in a plane: `forward_reward_weight * speed + healthy_reward - ctrl_cost_weight * |action|^2`.

    Group `policy`: qpos without its first `hidden` entries, then qvel, clipped to `velocity_limit` if there is one.
    Metrics: `speed` (m/s, displacement of x over the step), `x_position` (m), gymnasium's reward parts and, where the
    task ends when unhealthy, `fell`.
    """

    config: RunnerConfig

    def __init__(
        self,
        id: str,
        asset: str,
        config: RunnerConfig,
        options: Mapping[str, Any],
        hidden: int = 1,
        velocity_limit: float | None = None,
        normal_velocity: bool = False,
        health: Health | None = None,
    ) -> None:
        self.metrics = ("speed", "x_position", "reward_forward", "reward_ctrl")
        if health is not None:
            self.metrics += ("reward_survive", "fell")
        self._hidden = hidden if config.exclude_current_positions_from_observation else 0
        self._velocity_limit = velocity_limit
        self._normal_velocity = normal_velocity
        self._health = health
        super().__init__(id, asset, config, options)

    def components(self) -> tuple[Component, ...]:
        return super().components()[self._hidden :]

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        self._x_before = np.zeros(batch.nsim)

    def draw(self, generator: np.random.Generator) -> Arrays:
        return noisy_state(self.model, generator, self.config.reset_noise_scale, self._normal_velocity)

    def before_step(self) -> None:
        np.copyto(self._x_before, self.qpos[:, 0])

    def outcome(self, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, metrics: Arrays) -> None:
        x, speed = metrics["x_position"], metrics["speed"]
        forward, cost = metrics["reward_forward"], metrics["reward_ctrl"]
        np.copyto(x, self.qpos[:, 0])
        np.subtract(x, self._x_before, out=speed)
        speed /= self.control_dt
        np.multiply(speed, self.config.forward_reward_weight, out=forward)
        np.multiply(sum_of_squares(action), -self.config.ctrl_cost_weight, out=cost)
        np.add(forward, cost, out=reward)
        if self._health is not None and isinstance(self.config, Walker2dConfig):
            healthy = self._health(self.config, self.qpos, self.qvel)
            survive = np.multiply(healthy, self.config.healthy_reward, out=metrics["reward_survive"])
            reward += survive
            if self.config.terminate_when_unhealthy:
                np.logical_not(healthy, out=terminated)
            metrics["fell"][:] = terminated

    def observe(self, rows: Rows, out: Arrays) -> None:
        policy = out["policy"]
        policy[:] = self.motion[rows, self._hidden :]
        if self._velocity_limit is not None:
            velocity = policy[:, self.model.nq - self._hidden :]
            np.clip(velocity, -self._velocity_limit, self._velocity_limit, out=velocity)


def half_cheetah(options: Mapping[str, Any]) -> RunnerTask:
    config, changed = resolve_options(RunnerConfig, "HalfCheetah-v5", options)
    return RunnerTask("HalfCheetah-v5", "half_cheetah.xml", config, changed, normal_velocity=True)


def swimmer(options: Mapping[str, Any]) -> RunnerTask:
    config, changed = resolve_options(SwimmerConfig, "Swimmer-v5", options)
    return RunnerTask("Swimmer-v5", "swimmer.xml", config, changed, hidden=2)


def hopper(options: Mapping[str, Any]) -> RunnerTask:
    config, changed = resolve_options(HopperConfig, "Hopper-v5", options)
    limit = VELOCITY_LIMIT
    return RunnerTask("Hopper-v5", "hopper.xml", config, changed, velocity_limit=limit, health=hopper_health)


def walker2d(options: Mapping[str, Any]) -> RunnerTask:
    config, changed = resolve_options(Walker2dConfig, "Walker2d-v5", options)
    limit = VELOCITY_LIMIT
    return RunnerTask("Walker2d-v5", "walker2d_v5.xml", config, changed, velocity_limit=limit, health=walker2d_health)


def asset_spec(name: str) -> mujoco.MjSpec:
    """A model file of the installed gymnasium, editable."""
    package = find_spec("gymnasium")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("gymnasium is not installed; its model files are needed: pip install gymnasium")
    return mujoco.MjSpec.from_file(str(Path(package.origin).parent / "envs" / "mujoco" / "assets" / name))


def compile_asset(spec: mujoco.MjSpec) -> mujoco.MjModel:
    """Compile without MuJoCo's note that gymnasium's HalfCheetah uses a deprecated attribute."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*settotalmass.*")
        return compile_model(spec)


def load_asset(name: str) -> mujoco.MjModel:
    return compile_asset(asset_spec(name))


def vector_group(components: tuple[Component, ...], name: str = "policy") -> ObservationGroup:
    return ObservationGroup(name, components, (sum(component.size for component in components),))


def noisy_state(model: mujoco.MjModel, generator: np.random.Generator, scale: float, normal_velocity: bool) -> Arrays:
    """Default pose plus U(-scale, scale); velocity `scale` N(0, 1) or U(-scale, scale). Draw order: qpos, qvel."""
    qpos = model.qpos0 + generator.uniform(-scale, scale, model.nq)
    if normal_velocity:
        qvel = scale * generator.standard_normal(model.nv)
    else:
        qvel = generator.uniform(-scale, scale, model.nv)
    return {"qpos": qpos, "qvel": qvel}


def sum_of_squares(values: np.ndarray) -> np.ndarray:
    """[B, A] -> [B]."""
    return np.vecdot(values, values)


def within(values: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    """Strictly between the two limits, element by element; NaN is not."""
    return (values > limits[0]) & (values < limits[1])
