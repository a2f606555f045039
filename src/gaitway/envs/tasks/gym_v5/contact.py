"""Gymnasium's MuJoCo v5 tasks that see contact forces: Ant, Humanoid and HumanoidStandup.

Gymnasium reads `cfrc_ext` (per body: torque, then force, in MuJoCo's com-based frame) by calling `mj_rnePostConstraint`
on every instance after the step. The three models integrate with RK4, so those are the forces of the last of four
stages. Here an accelerometer on the torso makes MuJoCo compute the forces itself, at the first stage of each substep:
the forces at the state before the last substep, not within it. They differ from gymnasium's by as much as a contact
changes within one substep; positions, velocities, ends and every other entry are the same. `exact_contact_forces=true`
reproduces gymnasium's numbers with one MjData and one Python call per instance and step, which is slower.

Other derived fields (positions, inertias, velocities of bodies, actuator forces) are read as gymnasium reads them:
after the step, from the last stage of the last substep. The first observation of an episode has zero contact forces.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any

import mujoco
import numpy as np
from mujoco.batch import Batch

from gaitway.core.config import configuration
from gaitway.core.ranges import INCREASING, Limit, NotNegative, Number, WholeNumber
from gaitway.envs.batch_task import STAGE_ACCELERATION, Arrays, Rows, record
from gaitway.envs.robots.world import add_accelerometer
from gaitway.envs.spec import Component
from gaitway.envs.task_options import resolve_options
from gaitway.envs.tasks.gym_v5.runners import (
    GymConfig,
    GymTask,
    asset_spec,
    compile_asset,
    noisy_state,
    sum_of_squares,
    within,
)

HIDDEN_POSITIONS = 2
"""x and y of the free joint, left out of the observation unless asked for."""


@configuration(kw_only=True)
class ContactConfig(GymConfig):
    """Options of all three, with gymnasium's names and defaults, and `exact_contact_forces`."""

    reset_noise_scale: NotNegative = 1e-2
    exclude_current_positions_from_observation: bool = True
    include_cfrc_ext_in_observation: bool = True
    exact_contact_forces: bool = False
    """Contact forces of gymnasium to the last digit, at the price of a Python call per instance and step."""


@configuration(kw_only=True)
class AntConfig(ContactConfig):
    """Options of Ant-v5."""

    forward_reward_weight: Number = 1.0
    ctrl_cost_weight: Number = 0.5
    contact_cost_weight: Number = 5e-4
    healthy_reward: Number = 1.0
    main_body: WholeNumber | str = field(default=1, metadata={"also": str})
    terminate_when_unhealthy: bool = True
    healthy_z_range: Annotated[tuple[Limit, Limit], INCREASING] = (0.2, 1.0)
    contact_force_range: Annotated[tuple[Limit, Limit], INCREASING] = (-1.0, 1.0)
    reset_noise_scale: NotNegative = 0.1


@configuration(kw_only=True)
class StandupConfig(ContactConfig):
    """Options of HumanoidStandup-v5 (gymnasium's `uph_cost_weight` has no effect there and is not offered)."""

    ctrl_cost_weight: Number = 0.1
    impact_cost_weight: Number = 0.5e-6
    impact_cost_range: Annotated[tuple[Limit, Limit], INCREASING] = (float("-inf"), 10.0)
    include_cinert_in_observation: bool = True
    include_cvel_in_observation: bool = True
    include_qfrc_actuator_in_observation: bool = True


@configuration(kw_only=True)
class HumanoidConfig(ContactConfig):
    """Options of Humanoid-v5."""

    forward_reward_weight: Number = 1.25
    ctrl_cost_weight: Number = 0.1
    contact_cost_weight: Number = 5e-7
    contact_cost_range: Annotated[tuple[Limit, Limit], INCREASING] = (float("-inf"), 10.0)
    healthy_reward: Number = 5.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: Annotated[tuple[Limit, Limit], INCREASING] = (1.0, 2.0)
    include_cinert_in_observation: bool = True
    include_cvel_in_observation: bool = True
    include_qfrc_actuator_in_observation: bool = True


class ContactTask(GymTask):
    """What the three share: the model with its forces, `self.forces` [B, bodies, 6], and the layout of `policy`."""

    start_stage = STAGE_ACCELERATION
    config: ContactConfig

    def __init__(self, id: str, asset: str, config: ContactConfig, options: Mapping[str, Any]) -> None:
        self.persistent = config.exact_contact_forces
        self.senses_last = not config.exact_contact_forces
        self._hidden = HIDDEN_POSITIONS if config.exclude_current_positions_from_observation else 0
        # (MjData field, first row shown): every shown field follows qpos and qvel in this order
        self._shown = _shown_fields(config)
        derived = {name for name, _ in self._shown} | {"cfrc_ext"}
        self.fields = tuple(sorted(derived - {"cfrc_ext"} if config.exact_contact_forces else derived))
        super().__init__(id, asset, config, options)

    def build(self, decorated: bool = False) -> mujoco.MjModel:
        spec = asset_spec(self.asset)
        if not self.config.exact_contact_forces:
            add_accelerometer(spec)
        return compile_asset(spec)

    def components(self) -> tuple[Component, ...]:
        derived = (_derived_components(self.model, name) for name, _ in self._shown)
        return super().components()[self._hidden :] + tuple(itertools.chain.from_iterable(derived))

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        self.forces = np.zeros((batch.nsim, self.model.nbody, 6))
        self._data = mujoco.MjData(self.model) if self.config.exact_contact_forces else None

    def draw(self, generator: np.random.Generator) -> Arrays:
        return noisy_state(self.model, generator, self.config.reset_noise_scale, normal_velocity=False)

    def start(self, rows: Rows) -> None:
        super().start(rows)
        self.forces[rows] = 0.0  # mj_forward alone leaves them at zero in gymnasium

    def read_forces(self) -> None:
        if self._data is None:
            np.copyto(self.forces, self.field["cfrc_ext"])
            return
        for index in range(self.batch.nsim):  # the call has no batched form; this is the option's price
            data = self.batch.get_data(index, self._data)
            mujoco.mj_rnePostConstraint(self.model, data)
            self.forces[index] = data.cfrc_ext

    def force_cost(self, weight: float) -> np.ndarray:
        """What the squares of all contact forces cost [B]."""
        return weight * sum_of_squares(self.forces.reshape(len(self.forces), -1))

    def observe(self, rows: Rows, out: Arrays) -> None:
        policy = out["policy"]
        start = self.model.nq + self.model.nv - self._hidden
        policy[:, :start] = self.motion[rows, self._hidden :]
        for name, first in self._shown:
            values = self.forces if name == "cfrc_ext" else self.field[name]
            values = values[rows, first:]
            size = values[0].size
            policy[:, start : start + size].reshape(values.shape)[:] = values  # splitting an axis gives a view
            start += size


class WalkTask(ContactTask):
    """Walk forward and stay healthy. Subclasses say where a robot is, whether it is healthy and what contacts cost.

    Metrics: `speed`, `y_velocity` (m/s), `x_position`, `y_position` (m), reward parts, `fell`.
    """

    config: AntConfig | HumanoidConfig
    metrics = (
        *("speed", "y_velocity", "x_position", "y_position"),
        *("reward_forward", "reward_ctrl", "reward_contact", "reward_survive", "fell"),
    )

    def place(self, rows: Rows) -> np.ndarray:
        """x and y (m) of what moves forward [n, 2]."""
        raise TypeError(f"{type(self).__name__} does not implement place")

    def healthy(self) -> np.ndarray:
        """Which robots are healthy [B]."""
        return within(self.qpos[:, 2], self.config.healthy_z_range)

    def contact_cost(self) -> np.ndarray:
        """What contacts cost [B]."""
        return self.force_cost(self.config.contact_cost_weight)

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        self.memory["xy"] = np.zeros((batch.nsim, 2))

    def start(self, rows: Rows) -> None:
        super().start(rows)
        self.memory["xy"][rows] = self.place(rows)

    def outcome(self, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, metrics: Arrays) -> None:
        config = self.config
        self.read_forces()
        xy = self.place(slice(None))
        velocity = (xy - self.memory["xy"]) / self.control_dt
        self.memory["xy"][:] = xy
        healthy = self.healthy()
        forward = config.forward_reward_weight * velocity[:, 0]
        survive = config.healthy_reward * healthy
        control_cost = config.ctrl_cost_weight * sum_of_squares(action)
        contact_cost = self.contact_cost()
        reward[:] = forward + survive - control_cost - contact_cost
        if config.terminate_when_unhealthy:
            np.logical_not(healthy, out=terminated)
        record(metrics, speed=velocity[:, 0], y_velocity=velocity[:, 1])
        record(metrics, x_position=self.qpos[:, 0], y_position=self.qpos[:, 1], fell=terminated)
        record(metrics, reward_forward=forward, reward_survive=survive)
        record(metrics, reward_ctrl=-control_cost, reward_contact=-contact_cost)


class AntTask(WalkTask):
    """Ant-v5. `speed` is that of the main body."""

    config: AntConfig

    def __init__(self, options: Mapping[str, Any]) -> None:
        config, changed = resolve_options(AntConfig, "Ant-v5", options)
        super().__init__("Ant-v5", "ant.xml", config, changed)
        self.fields += ("xpos",)
        self._body = self.model.body(config.main_body).id

    def draw(self, generator: np.random.Generator) -> Arrays:
        return noisy_state(self.model, generator, self.config.reset_noise_scale, normal_velocity=True)

    def place(self, rows: Rows) -> np.ndarray:
        return self.field["xpos"][rows, self._body, :2]

    def healthy(self) -> np.ndarray:
        """Gymnasium counts the limits themselves as healthy here."""
        height, (low, high) = self.qpos[:, 2], self.config.healthy_z_range
        return (height >= low) & (height <= high)

    def read_forces(self) -> None:
        super().read_forces()
        np.clip(self.forces, *self.config.contact_force_range, out=self.forces)


class HumanoidTask(WalkTask):
    """Humanoid-v5. `speed` is that of the mass centre."""

    config: HumanoidConfig

    def __init__(self, options: Mapping[str, Any]) -> None:
        config, changed = resolve_options(HumanoidConfig, "Humanoid-v5", options)
        super().__init__("Humanoid-v5", "humanoid.xml", config, changed)
        self.fields += ("xipos",)
        self._mass_share = self.model.body_mass / self.model.body_mass.sum()

    def contact_cost(self) -> np.ndarray:
        return np.clip(super().contact_cost(), *self.config.contact_cost_range)

    def place(self, rows: Rows) -> np.ndarray:
        """Of the whole robot's mass centre."""
        return np.einsum("n,bnk->bk", self._mass_share, self.field["xipos"][rows, :, :2])


class StandupTask(ContactTask):
    """HumanoidStandup-v5: height of the torso per physics step length, never ends early. Metrics: gymnasium's."""

    config: StandupConfig
    metrics = ("height", "reward_linup", "reward_quadctrl", "reward_impact")

    def __init__(self, options: Mapping[str, Any]) -> None:
        config, changed = resolve_options(StandupConfig, "HumanoidStandup-v5", options)
        super().__init__("HumanoidStandup-v5", "humanoidstandup.xml", config, changed)

    def outcome(self, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, metrics: Arrays) -> None:
        config = self.config
        self.read_forces()
        height = self.qpos[:, 2]
        upward = height / self.model.opt.timestep
        control_cost = config.ctrl_cost_weight * sum_of_squares(action)
        impact_cost = np.clip(self.force_cost(config.impact_cost_weight), *config.impact_cost_range)
        reward[:] = upward - control_cost - impact_cost + 1.0
        record(metrics, height=height, reward_linup=upward, reward_quadctrl=-control_cost, reward_impact=-impact_cost)


def _shown_fields(config: ContactConfig) -> tuple[tuple[str, int], ...]:
    """MjData fields shown after qpos and qvel, with the first row shown (the world, the free joint are left out)."""
    candidates = (("cinert", 1), ("cvel", 1), ("qfrc_actuator", 6), ("cfrc_ext", 1))
    return tuple(item for item in candidates if getattr(config, f"include_{item[0]}_in_observation", False))


def _derived_components(model: mujoco.MjModel, name: str) -> tuple[Component, ...]:
    bodies = [model.body(index).name or f"body_{index}" for index in range(1, model.nbody)]
    if name == "cinert":
        return tuple(Component(f"{body}_inertia", 10, "kg m^2, kg m, kg") for body in bodies)
    if name == "cvel":
        return tuple(Component(f"{body}_com_velocity", 6, "rad/s, m/s") for body in bodies)
    if name == "cfrc_ext":
        return tuple(Component(f"{body}_contact", 6, "N m, N") for body in bodies)
    joints = [model.joint(int(model.dof_jntid[dof])).name for dof in range(6, model.nv)]
    return tuple(Component(f"{joint}_torque", 1, "N m") for joint in joints)
