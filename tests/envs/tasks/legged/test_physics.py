"""Physics of legged robots on the batch: how they stand, what drives them, models that differ, what a state holds. Each
check runs on twins with one mistake too, which it must find."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from gaitway.envs.legged import logic
from gaitway.envs.legged.frame import Frame
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.tasks.legged.making import make_legged
from gaitway.envs.tasks.legged.task import LeggedTask

NOMINAL: dict[str, Any] = {"randomise": {"enabled": False}, "noise": 0.0, "pushes": {"kick_seconds": None}}
STILL: dict[str, Any] = {**NOMINAL, "commands": {"stand": 1.0, "seconds": None}, "endings": []}
AT_HOME: dict[str, Any] = {"start": {"joints": 0.0, "velocity": 0.0, "xy": 0.0, "yaw": 0.0}}
RANDOM: dict[str, Any] = {**STILL, "randomise": {}}
WEIGHT = 12.76 * 9.81


def made(num_envs: int, integrator: int | None = None, seed: int = 0, **options: Any) -> tuple[Any, LeggedTask]:
    task = make_legged("pup12/velocity", options)
    if integrator is not None:
        task.model.opt.integrator = integrator
    return MujocoBatchEnv(task, num_envs, seed=seed, num_threads=1), task


def zeros(env: MujocoBatchEnv) -> torch.Tensor:
    return torch.zeros(env.num_envs, *env.spec.action.shape)


def seen(task: LeggedTask) -> Frame:
    found = task._logic.frame
    assert found is not None
    return found


# How it stands


def stands_as_calculated() -> None:
    """After 2 s of zero actions: 0.263 m high, less than 4 degrees of pitch, the ground carries the weight."""
    env, task = made(1, **STILL, **AT_HOME)
    for _ in range(100):
        env.step(zeros(env))
    found = seen(task)
    assert task.qpos[0, 2] == pytest.approx(0.263, abs=0.005)
    assert abs(float(found.gravity[0, 0])) < math.sin(math.radians(4.0))  # of a pitched base
    assert float(found.foot_force[0, :, 2].sum()) == pytest.approx(WEIGHT, rel=0.01)  # upwards, 125.2 N
    assert found.contact.all()
    assert not found.link_force.any()
    assert not found.trunk_force.any()


def test_robots_stand_as_calculated() -> None:
    stands_as_calculated()


def test_forces_with_the_sign_of_the_sensor_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sensor tells the force on the ground: downwards."""
    true = logic.measure

    def turned(*arguments: Any, **options: Any) -> Any:
        found = true(*arguments, **options)
        found["foot_force"] = -found["foot_force"]
        return found

    monkeypatch.setattr(logic, "measure", turned)
    with pytest.raises(AssertionError):
        stands_as_calculated()


# What drives it

RECORDED = [{"name": "exceed_torque", "weight": -1.0}]
"""A term that looks into substeps: what they were is recorded."""


def scattered(task: LeggedTask, generator: np.random.Generator, height: float = 0.0) -> None:
    """Joints anywhere near the pose, turning at some rad/s; with `height` (m) in the air."""
    view, count = task.view, len(task.qpos)
    task.qpos[:, view.positions] = np.clip(view.pose + generator.normal(0.0, 0.2, (count, 12)), view.low, view.high)
    task.qvel[:, view.velocities] = generator.normal(0.0, 2.0, (count, 12))
    task.qpos[:, 2] += height


def forces_are_those_of_the_law(drive: Callable[[LeggedTask, np.ndarray], None]) -> None:
    """clip(kp (target - q) - kd qd) of the state before each of the four substeps of a control step, to 1e-9."""
    env, task = made(4, rewards=RECORDED, **STILL)
    generator, limits = np.random.default_rng(0), np.array(task.drive.effort)
    kp, kd = np.array(task.drive.kp), np.array(task.drive.kd)
    limited = 0
    for _ in range(10):
        scattered(task, generator)
        task.batch.forward()
        action = generator.normal(0.0, 1.5, (4, 12))
        drive(task, action)
        target = np.clip(task.view.pose + 0.25 * np.clip(action, -4.0, 4.0), task.view.low, task.view.high)
        task.advance()
        q, qd, torque = (part.numpy() for part in (task._substeps.q, task._substeps.qd, task._substeps.torque))
        law = kp * (target[:, None] - q) - kd * qd
        np.testing.assert_allclose(torque, np.clip(law, -limits, limits), atol=1e-9)
        limited += int((np.abs(law) > limits).sum())
    assert limited > 10
    env.close()


def test_forces_are_those_of_the_law_in_every_substep() -> None:
    forces_are_those_of_the_law(lambda task, action: task.actuate(action))


def test_a_law_at_the_rate_of_control_is_found() -> None:
    """The twin: torques are calculated once per control step, outside of the engine, and held for four substeps."""

    def held(task: LeggedTask, action: np.ndarray) -> None:
        task.actuate(action)
        limits = np.array(task.drive.effort)
        q, qd = task.qpos[:, task.view.positions], task.qvel[:, task.view.velocities]
        torque = np.array(task.drive.kp) * (task.ctrl - q) - np.array(task.drive.kd) * qd
        task.batch.expand("actuator_gainprm")[:, :, 0] = 1.0
        task.batch.expand("actuator_biasprm")[:] = 0.0
        task.batch.expand("actuator_ctrlrange")[:] = np.stack((-limits, limits), -1)
        task.ctrl[:] = np.clip(torque, -limits, limits)

    with pytest.raises(AssertionError, match="Mismatched elements"):
        forces_are_those_of_the_law(held)


def damping_is_implicit(integrator: int | None = None) -> None:
    """In the air, a substep h with inertia M, forces f and damping d of joints and motors: (M + h d) dv = h f.

    The force of a motor alone does not tell how it is integrated: it is the law's with Euler, too. At kd = 1.5 and
    h = 0.005 s an explicit d of a calf, about 0.011 kg m2, takes away 1.5 * 0.005 / 0.011 = 70 % of its velocity in a
    substep; the implicit one takes 1 - 1 / (1 + 0.7) = 41 %."""
    env, task = made(3, integrator, **STILL)
    scattered(task, np.random.default_rng(1), height=1.0)
    task.actuate(np.zeros((3, 12)))
    model, data = task.model, mujoco.MjData(task.model)
    expected = []
    for row in range(3):
        data.qpos[:], data.qvel[:], data.ctrl[:] = task.qpos[row], task.qvel[row], task.ctrl[row]
        data.qacc_warmstart[:] = 0.0
        mujoco.mj_forward(model, data)
        limits = np.array(task.drive.effort)
        damping = model.dof_damping.copy()
        free = np.abs(data.actuator_force) < limits  # a motor at its limit does not damp
        damping[task.view.velocities] += np.where(free, task.drive.kd, 0.0)
        inertia = np.zeros((model.nv, model.nv))
        for column, one in zip(inertia, np.eye(model.nv), strict=True):  # symmetric
            mujoco.mj_mulM(model, data, column, one)
        h = model.opt.timestep
        force = data.qfrc_smooth + data.qfrc_constraint
        expected.append(data.qvel + np.linalg.solve(inertia + h * np.diag(damping), h * force))
    task.batch.step(nstep=1)
    np.testing.assert_allclose(task.qvel, np.array(expected), atol=1e-6)
    env.close()


def test_motors_damp_implicitly() -> None:
    damping_is_implicit()


def test_explicit_damping_is_found() -> None:
    with pytest.raises(AssertionError, match="Mismatched elements"):
        damping_is_implicit(mujoco.mjtIntegrator.mjINT_EULER)


# Models that differ


def on_a_slope(frictions: list[float], degrees: float) -> tuple[np.ndarray, np.ndarray]:
    """Ways of bases (m) and the fastest foot of each (m/s) after 0.6 s under gravity that leans forwards."""
    env, task = made(len(frictions), **RANDOM, **AT_HOME)
    for name in ("payload", "com", "encoder"):
        task.layout[name][:] = 0.0
    for name in ("link_mass", "kp", "kd", "strength"):
        task.layout[name][:] = 1.0
    task.layout["friction"][:, 0] = frictions
    lean = math.radians(degrees)
    task.layout["gravity"][:] = [9.81 * math.sin(lean), 0.0, 9.81 * (1.0 - math.cos(lean))]
    task.restore()
    for _ in range(30):
        env.step(zeros(env))
    way, speed = task.qpos[:, 0].copy(), seen(task).foot_velocity[..., :2].norm(dim=-1).amax(1).numpy()
    env.close()
    return way, speed


def test_slippery_feet_slide_on_a_slope_of_20_degrees() -> None:
    """tan 20 = 0.364: friction 0.2 slides, 1.0 holds. Forwards, because that is where the robot can lean on its pose:
    backwards and sideways it tips over at 20 degrees with either friction (measured; at 12 it does not). What holds
    creeps, 0.04 m/s, as soft contacts do."""
    way, speed = on_a_slope([0.2, 1.0], 20.0)
    # g (sin 20 - 0.2 cos 20) = 1.51 m/s2 for 0.6 s is 0.27 m and 0.9 m/s
    assert way[0] > 0.2
    assert speed[0] > 0.5
    assert abs(way[1]) < 0.05
    assert speed[1] < 0.1


FIELDS = ("body_mass", "body_inertia", "geom_friction", "actuator_gainprm", "actuator_biasprm", "dof_damping")


def models_follow_from_what_was_drawn(env: MujocoBatchEnv, task: LeggedTask) -> None:
    """After 1000 other models: fields are those of the numbers drawn last, to the bit, and so are constants."""
    generator = np.random.default_rng(0)
    for _ in range(1000):
        for name in ("link_mass", "kp", "strength"):
            task.layout[name][:] = generator.uniform(0.9, 1.1, task.layout[name].shape)
        task.layout["payload"][:] = generator.uniform(-1.0, 3.0, (2, 1))
        task.restore()
    task.layout["payload"][:, 0] = [2.0, 0.0]
    task.layout["link_mass"][:], task.layout["strength"][:], task.layout["kp"][:] = 1.0, 1.0, 1.1
    task.restore()
    fresh_env, fresh = made(2, **RANDOM)
    for name, value in task.layout.items():
        fresh.layout[name][:] = value
    fresh.restore()
    for name in FIELDS:
        np.testing.assert_array_equal(task._models.fields[name].numpy(), fresh._models.fields[name].numpy(), name)
    subtree = task.batch.expand("body_subtreemass")[:, task.view.base]
    np.testing.assert_allclose(subtree, [14.76, 12.76], atol=1e-9)  # 12.76 + 2
    np.testing.assert_allclose(task._models.fields["actuator_gainprm"][:, :, 0], 66.0)  # 60 * 1.1
    env.close()
    fresh_env.close()


def test_a_thousand_resets_leave_no_drift() -> None:
    models_follow_from_what_was_drawn(*made(2, **RANDOM))


class WithoutConstants:
    """A batch whose `set_const` does nothing."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return (lambda *args: None) if name == "set_const" else getattr(self._batch, name)


def test_masses_without_new_constants_are_found() -> None:
    env, task = made(2, **RANDOM)
    task.batch = WithoutConstants(task.batch)  # type: ignore[assignment]
    with pytest.raises(AssertionError):
        models_follow_from_what_was_drawn(env, task)


def test_factors_on_the_numbers_of_the_last_episode_are_found() -> None:
    """The twin: each episode changes what the one before left, instead of the nominal model."""
    env, task = made(2, **RANDOM)
    true = task._write_model

    def changing(rows: torch.Tensor) -> None:
        task._models.nominal["body_mass"] = task._models.fields["body_mass"][0].clone()
        true(rows)

    task._write_model = changing  # type: ignore[method-assign]
    with pytest.raises(AssertionError):
        models_follow_from_what_was_drawn(env, task)


# What a state holds


def goes_on(lost: Callable[[LeggedTask], None] | None = None) -> None:
    """Saved after 37 steps: the next 50 come again to the bit, unless something was `lost` of the state."""
    env, task = made(2, seed=2, **STILL)
    actions = 2.0 * torch.randn(87, 2, 12, generator=torch.Generator().manual_seed(0))
    for action in actions[:37]:
        env.step(action)
    state, runs = env.state_dict(), []
    for again in (False, True):
        if again:
            env.load_state_dict(state)
            if lost is not None:
                lost(task)
        runs.append([])
        for action in actions[37:]:
            env.step(action)
            runs[-1].append(task.batch.state.copy())
    env.close()
    np.testing.assert_array_equal(runs[0], runs[1])


def test_states_go_on() -> None:
    goes_on()


def test_a_state_without_its_warm_start_does_not() -> None:
    """The solver begins with the accelerations of the last substep; from others it ends a rounding away."""

    def forget(task: LeggedTask) -> None:
        columns = slice(1 + task.model.nq + task.model.nv, 1 + task.model.nq + 2 * task.model.nv)
        warm = task.batch.state[:, columns]
        np.testing.assert_array_equal(warm, task.batch.bind("qacc_warmstart"))
        warm[:] = 0.0

    with pytest.raises(AssertionError, match="Mismatched elements"):
        goes_on(forget)
