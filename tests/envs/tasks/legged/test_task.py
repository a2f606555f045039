"""Legged tasks on the native batch: contract, order of a step, frames, delays, models that differ, faults."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from gaitway.cli.build import build_env
from gaitway.cli.compose_run import compose_run
from gaitway.envs.batch_task import STAGE_NONE
from gaitway.envs.check import check_env
from gaitway.envs.legged import frame
from gaitway.envs.legged.frame import base_pose, base_velocity, rotate_back
from gaitway.envs.legged.logic import LeggedLogic
from gaitway.envs.legged.presets import DESCRIPTIONS, FLAT, PRESETS
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.registry import make_env
from gaitway.envs.tasks.legged.making import make_legged
from gaitway.envs.tasks.legged.task import LeggedTask

EVERYTHING: dict[str, Any] = {
    "pushes": {"kick_seconds": [0.08, 0.3], "push_seconds": [0.08, 0.3]},
    "randomise": {"enabled": True, "delay": 4, "gravity": 0.1},
    "commands": {"seconds": [0.08, 0.3], "heading": True},
    "latency": {"most": 5, "seconds": 0.1, "delay_action_obs": True},
    "episode_seconds": 0.4,
}
NOMINAL: dict[str, Any] = {"randomise": {"enabled": False}, "noise": 0.0, "pushes": {"kick_seconds": None}}
STILL: dict[str, Any] = {**NOMINAL, "commands": {"stand": 1.0, "seconds": None}}
RANDOM: dict[str, Any] = {**STILL, "randomise": {}}
AT_HOME: dict[str, Any] = {"start": {"joints": 0.0, "velocity": 0.0, "xy": 0.0, "yaw": 0.0}}


def made(id: str, num_envs: int = 2, seed: int = 0, **options: Any) -> tuple[MujocoBatchEnv, LeggedTask]:
    task = make_legged(id, options)
    return MujocoBatchEnv(task, num_envs, seed=seed, num_threads=1), task


def zeros(env: MujocoBatchEnv) -> torch.Tensor:
    return torch.zeros(env.num_envs, *env.spec.action.shape)


@pytest.mark.parametrize("id", ["pup12/gait_residual", "pup4/velocity"])
def test_the_contract_holds_with_everything_on(id: str) -> None:
    """Batch sizes, seeds, stored states and scenarios bit for bit, with noise, kicks, pushes, delays, new commands,
    frames that are seen late."""
    report = check_env(lambda num_envs, seed: make_env(id, num_envs, seed, num_threads=1, **EVERYTHING), steps=24)
    assert report.ok, str(report)


SHORT: dict[str, Any] = {
    "episode_seconds": 0.1,
    "latency": {"most": 2, "seconds": 0.04},
    "commands": {"seconds": [0.04, 0.1]},
}
CLIPS = {"name": "starts", "motion": "pup12_trot", "probability": 0.5}
FURTHER: dict[str, dict[str, Any]] = {
    "pup12/gait_params": {"latency": {}},  # shows nothing that can be late
    "pup12/amp_trot": {
        "wrappers": [{**CLIPS, "reference": True}],
        "commands": {"seconds": [0.04, 0.1], "from_clip": 0.5},
    },
    "walker/velocity": {},
    "pup12/recovery": {},
    "pup12/velocity": {},
    "pup12/blind": {},
    "pup12/amp_gaits": {"wrappers": [{**CLIPS, "motion": "pup12_gaits"}]},
    "humanoid/velocity": {},
}
"""Ids, and their options besides `SHORT`."""
# recovery stays in: its actions are steps from where joints are, and it may begin on its back. The others share their
# mechanisms with ids that are checked: commands, latency, noise and kicks with gait_residual, levels and images with
# velocity_rough and field in test_terrain.py
LONG = ("pup12/velocity", "pup12/blind", "pup12/amp_gaits", "humanoid/velocity")
MARKED = [pytest.param(id, marks=pytest.mark.long) if id in LONG else id for id in FURTHER]


@pytest.mark.parametrize("id", MARKED)
def test_the_contract_holds_for_the_other_ids(id: str) -> None:
    """Those of terrains are in `test_terrain.py`."""
    options = {**SHORT, **FURTHER[id]}
    report = check_env(lambda num_envs, seed: make_env(id, num_envs, seed, num_threads=1, **options), steps=8)
    assert report.ok, str(report)


def test_one_global_generator_would_be_found() -> None:
    """The twin: numbers that depend on the number of instances."""

    def build(num_envs: int, seed: int) -> MujocoBatchEnv:
        env, task = made("pup4/velocity", num_envs, seed, episode_seconds=0.2)
        drawn = task.numbers.of_step
        task.numbers.of_step = lambda *a, **k: torch.remainder(drawn(*a, **k) + num_envs / 8, 1.0)  # type: ignore[method-assign]
        return env

    report = check_env(build, steps=6)
    assert any("batch size" in problem for problem in report.problems)


def test_threads_do_not_matter() -> None:
    runs = []
    for threads in (1, 2, 4):
        env = MujocoBatchEnv(make_legged("pup12/velocity", EVERYTHING), 6, seed=3, num_threads=threads)
        generator = torch.Generator().manual_seed(0)
        steps = [env.step(torch.randn(6, 12, generator=generator)) for _ in range(8)]
        runs.append((steps[-1].obs["critic"].clone(), steps[-1].reward.clone()))
    for other in runs[1:]:
        assert torch.equal(runs[0][0], other[0])
        assert torch.equal(runs[0][1], other[1])


STORED = {**EVERYTHING, "episode_seconds": 20.0, "endings": [], "rewards": FLAT}


def goes_on_from_its_state(env: MujocoBatchEnv, task: LeggedTask, lost: Callable[[Any], None] | None = None) -> None:
    """Saved after 37 steps: the next 30 come again, unless something of it was `lost`."""
    generator = torch.Generator().manual_seed(0)
    actions = torch.randn(67, 2, 12, generator=generator)
    for action in actions[:37]:
        env.step(action)
    state, runs = env.state_dict(), []
    for again in (False, True):
        if again:
            env.load_state_dict(state)
            if lost is not None:
                lost(task)
        seen = []
        for action in actions[37:]:
            step = env.step(action)
            seen.append(torch.cat((step.obs["policy"], step.metrics["dof_acc_episode"][:, None]), 1))
        runs.append((torch.stack(seen), task.batch.state.copy()))
    assert torch.equal(runs[0][0], runs[1][0])
    np.testing.assert_array_equal(runs[0][1], runs[1][1])


def test_stored_states_go_on() -> None:
    goes_on_from_its_state(*made("pup12/velocity", seed=2, **STORED))


LOST: dict[str, Callable[[Any], Any]] = {
    "frames that are seen late": lambda task: task.memory["latency_frames"].fill(0.0),
    "time until another delay": lambda task: task.memory["latency_left"].fill(1.0),
    "time until another command": lambda task: task.memory["command_left"].fill(0.01),
    "time until another kick": lambda task: task.memory["kick_left"].fill(0.01),
    "what an episode adds up to": lambda task: task.memory["sums"].fill(0.0),
    "targets on their way": lambda task: task._models._history.zero_(),
}


@pytest.mark.parametrize("part", LOST)
def test_a_state_without_one_of_its_parts_does_not(part: str) -> None:
    env, task = made("pup12/velocity", seed=2, **STORED)
    with pytest.raises(AssertionError):
        goes_on_from_its_state(env, task, LOST[part])


FIELDS = ("walk", "tilt", "crawl", "jump", "leap", "hurdle", "down", "slope", "stairs")
SIZES: dict[str, tuple[dict[str, int], int, int]] = {
    "pup12/gait_params": ({"policy": 20}, 6, 250),
    "pup12/gait_residual": ({"policy": 47, "critic": 143}, 12, 250),
    "pup12/blind": ({"policy": 47, "critic": 143}, 12, 250),
    "pup12/velocity": ({"policy": 45, "critic": 141}, 12, 1000),
    "pup12/velocity_rough": ({"policy": 232, "critic": 328}, 12, 1000),
    "pup12/field_lite": ({"policy": 81}, 12, 1000),
    **{f"pup12/field_{name}": ({"policy": 87}, 12, 1000) for name in FIELDS},
    "pup12/field": ({"policy": 87, "student": 48, "depth": 1}, 12, 1500),
    "pup12/recovery": ({"policy": 45, "critic": 141}, 12, 300),
    "pup12/amp_trot": ({"policy": 45, "critic": 141, "amp": 46}, 12, 500),
    "pup12/amp_gaits": ({"policy": 45, "critic": 141, "amp": 46}, 12, 500),
    "pup4/velocity": ({"policy": 16, "critic": 63}, 4, 1000),
    "walker/velocity": ({"policy": 22, "critic": 77}, 6, 800),
    "humanoid/velocity": ({"policy": 72, "critic": 188}, 21, 800),
}


@pytest.mark.parametrize("id", SIZES)
def test_ids_are_what_they_should_be(id: str) -> None:
    env, task = made(id)
    groups, actions, steps = SIZES[id]
    assert {group.name: group.shape[0] for group in env.spec.groups} == groups
    assert (len(env.spec.action.names), env.spec.max_episode_steps) == (actions, steps)
    assert env.spec.drive is not None
    assert env.spec.drive.joints == task.legged.joint_names
    step = env.step(torch.full((2, actions), 0.3))
    assert all(torch.isfinite(value).all() for value in step.obs.values())
    assert {f"{term['name']}_episode" for term in PRESETS[id]["rewards"]} <= set(step.metrics)


def test_every_preset_is_described() -> None:
    assert set(DESCRIPTIONS) == set(PRESETS) == {*SIZES, "legged:velocity"}


def test_recovery_is_evaluated_as_it_is_trained() -> None:
    config, _ = compose_run(["experiment=ppo_pup12_recovery"])
    with build_env(config, "evaluation", 15) as env:  # as many as the grid has commands
        assert env.spec.max_episode_steps == 300
        group, seen = env.spec.group("policy"), env.reset(0)["policy"]
        assert not any(seen[:, group.columns(f"commands_{axis}")].any() for axis in range(3))


def episodes_have_exactly_their_steps_and_a_fall_wins(env: MujocoBatchEnv, task: LeggedTask) -> None:
    """Ten steps."""
    flags = [env.step(zeros(env)) for _ in range(9)]
    assert not any(bool((step.terminated | step.truncated).any()) for step in flags)
    task.qpos[1, 2] = 0.05  # falls and runs out of time in the same step
    step = env.step(zeros(env))
    assert step.truncated.tolist() == [True, False]
    assert step.terminated.tolist() == [False, True]
    assert step.metrics["fell"].tolist() == [0.0, 1.0]
    assert not bool(env.step(zeros(env)).truncated.any())


def test_episodes_have_exactly_their_steps_and_a_fall_wins() -> None:
    episodes_have_exactly_their_steps_and_a_fall_wins(*made("pup12/velocity", episode_seconds=0.2, **STILL))


def test_one_step_too_many_is_found() -> None:
    """As `>` in the place of `>=` would give."""
    env, task = made("pup12/velocity", episode_seconds=0.2, **STILL)
    task.max_episode_steps += 1
    with pytest.raises(AssertionError):
        episodes_have_exactly_their_steps_and_a_fall_wins(env, task)


def told_and_kicked() -> tuple[MujocoBatchEnv, LeggedTask]:
    """New commands and kicks in every step, and a reward for following them."""
    options = {
        **NOMINAL,
        "pushes": {"kick_seconds": [0.0199, 0.02]},
        "commands": {"seconds": [0.0199, 0.02], "stand": 0.0},
    }
    return made("pup12/velocity", 8, rewards=[{"name": "tracking_lin_vel", "weight": 50.0}], **options)


def test_rewards_see_the_old_command_and_the_velocity_before_a_kick() -> None:
    rewards_see_the_old_command_and_the_velocity_before_a_kick(*told_and_kicked())


def test_commands_that_are_drawn_before_the_reward_are_found() -> None:
    env, task = told_and_kicked()
    logic = task._logic
    right = logic.judge

    def judge(*given: Any) -> Any:
        logic.memory["command"].add_(0.5)
        found = right(*given)
        logic.memory["command"].sub_(0.5)
        return found

    logic.judge = judge  # type: ignore[method-assign]
    with pytest.raises(AssertionError):
        rewards_see_the_old_command_and_the_velocity_before_a_kick(env, task)


def rewards_see_the_old_command_and_the_velocity_before_a_kick(env: MujocoBatchEnv, task: LeggedTask) -> None:
    told = task.memory["command"].copy()
    env.step(zeros(env))
    step = env.step(zeros(env))
    told_then, seen = task.memory["command"].copy(), step.obs["critic"]
    columns = env.spec.group("critic")
    assert not np.allclose(told, told_then)
    velocity = task.qvel[:, :3].copy()
    third = env.step(zeros(env))
    assert np.allclose(seen[:, columns.columns("commands_0")].numpy(), 2.0 * told_then[:, :1], atol=1e-6)
    kicked = seen[:, columns.columns("lin_vel_true")].numpy() / 2.0
    assert np.allclose(np.linalg.norm(kicked, axis=1), np.linalg.norm(velocity, axis=1), atol=1e-5)  # the kick is seen
    assert np.linalg.norm(task.memory["kick"], axis=1).min() > 0.0
    # what was paid in the third step: the command that was seen before it, against the velocity before the new kick
    before = task.qvel[:, :2] - task.memory["kick"][:, :2]
    yaw = np.array([_yaw(q) for q in task.qpos])
    x = np.cos(yaw) * before[:, 0] + np.sin(yaw) * before[:, 1]
    y = -np.sin(yaw) * before[:, 0] + np.cos(yaw) * before[:, 1]
    expected = np.exp(-((told_then[:, 0] - x) ** 2 + (told_then[:, 1] - y) ** 2) / 0.25)
    assert np.allclose(third.reward.numpy(), expected, atol=1e-6)
    assert not np.allclose(told_then, task.memory["command"])


def _yaw(qpos: np.ndarray) -> float:
    w, x, y, z = qpos[3:7]
    return math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


@pytest.mark.parametrize("yaw", [0.0, 2.0, -2.5])
def test_velocities_are_those_of_the_base(yaw: float) -> None:
    velocities_are_those_of_the_base(yaw)


def _turned_again(robot: Any, qvel: Any, rotation: torch.Tensor, *rest: Any) -> dict[str, torch.Tensor]:
    found = base_velocity(robot, qvel, rotation, *rest)
    return {**found, "ang_vel": rotate_back(rotation, found["ang_vel"])}


def _scalar_last(robot: Any, qpos: torch.Tensor) -> tuple[torch.Tensor, ...]:
    position, rotation, yaw = base_pose(robot, qpos)
    return position, rotation[:, [1, 2, 3, 0]], yaw


@pytest.mark.parametrize("twin", [("base_velocity", _turned_again), ("base_pose", _scalar_last)])
def test_other_frames_are_found(twin: tuple[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Angular velocities that are turned once more; quaternions read as x y z w."""
    monkeypatch.setattr(frame, *twin)
    with pytest.raises(AssertionError):
        velocities_are_those_of_the_base(2.0)


def velocities_are_those_of_the_base(yaw: float) -> None:
    """Forwards at 1 m/s, turning at 0.5 rad/s, whichever way the robot heads; rolled by 30 degrees."""
    env, task = made("pup12/velocity", 2, **NOMINAL)
    half, roll = yaw / 2, math.radians(30.0) / 2
    task.qpos[:, 3:7] = [math.cos(half), 0.0, 0.0, math.sin(half)]
    task.qpos[1, 3:7] = [
        math.cos(half) * math.cos(roll), math.cos(half) * math.sin(roll),
        math.sin(half) * math.sin(roll), math.sin(half) * math.cos(roll),
    ]  # fmt: skip
    task.qvel[:] = 0.0
    task.qvel[:, :3] = [math.cos(yaw), math.sin(yaw), 0.0]
    task.qvel[:, 5] = 0.5
    out = {group.name: np.zeros((2, *group.shape)) for group in env.spec.groups}
    task.observe(np.arange(2, dtype=np.int32), out)
    group = env.spec.group("critic")
    velocity, turn, gravity = (
        out["critic"][:, group.columns(name)] for name in ("lin_vel_true", "ang_vel_true", "gravity_true")
    )
    np.testing.assert_allclose(velocity[0] / 2.0, [1.0, 0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(turn / 0.25, [[0.0, 0.0, 0.5]] * 2, atol=1e-12)
    np.testing.assert_allclose(gravity[0], [0.0, 0.0, -1.0], atol=1e-12)
    np.testing.assert_allclose(gravity[1], [0.0, -0.5, -math.sqrt(0.75)], atol=1e-12)


def test_feet_are_where_the_state_says() -> None:
    feet_are_where_the_state_says(*made("pup12/velocity", 2, **NOMINAL))


def test_feet_of_the_substep_before_are_found() -> None:
    env, task = made("pup12/velocity", 2, **NOMINAL)
    task.stage = STAGE_NONE
    with pytest.raises(AssertionError):
        feet_are_where_the_state_says(env, task)


def feet_are_where_the_state_says(env: MujocoBatchEnv, task: LeggedTask) -> None:
    """Positions and velocities of feet after a step, against a fresh computation of the same state."""
    for _ in range(5):
        env.step(torch.randn(2, 12, generator=torch.Generator().manual_seed(1)))
    data = mujoco.MjData(task.model)
    data.qpos[:], data.qvel[:] = task.qpos[0], task.qvel[0]
    mujoco.mj_forward(task.model, data)
    for kind in (task.view.foot_positions, task.view.foot_velocities):
        columns = (kind[:, None] + np.arange(3)).reshape(-1)
        np.testing.assert_allclose(task.field["sensordata"][0, columns], data.sensordata[columns], atol=1e-12)


@pytest.mark.parametrize("delay", [0, 1, 4])
def test_targets_reach_motors_when_they_should(delay: int) -> None:
    """The first force is that of the pose that is held; that of the target comes after so many substeps."""
    options = {**STILL, **AT_HOME, "randomise": {"delay": 4}}
    _env, task = made("pup12/velocity", 1, **options)
    drawn = task.layout
    for name in ("kp", "kd", "strength"):
        drawn[name][:] = 1.0
    for name in ("encoder", "payload", "com", "gravity"):
        drawn[name][:] = 0.0
    drawn["delay"][:] = delay * task.model.opt.timestep
    task.restore()
    pose, q = task.view.pose, task.qpos[0, task.view.positions].copy()
    held = 60.0 * (np.clip(q, task.view.low, task.view.high) - q)
    task.actuate(np.full((1, 12), 1.0))
    for substep in range(6):
        q, qd = task.qpos[0, task.view.positions].copy(), task.qvel[0, task.view.velocities].copy()
        task.batch.step(nstep=1)
        target = pose if substep < delay else pose + 0.25
        force = np.clip(60.0 * (target - q) - 1.5 * qd, -np.array(task.drive.effort), task.drive.effort)
        np.testing.assert_allclose(task.field["actuator_force"][0], force, atol=1e-6, err_msg=str(substep))
        if substep == 0 and delay:
            np.testing.assert_allclose(task.field["actuator_force"][0], held, atol=1e-9)


def test_a_delay_longer_than_the_history_is_refused() -> None:
    words = "randomise.delay is 1000 substeps, longer than the history: motors keep the targets of 64; use at most 64"
    with pytest.raises(ValueError, match=words):
        made("pup12/velocity", 1, randomise={"delay": 1000})
    with pytest.raises(ValueError, match=r"randomise\.delay is 65"):  # the twin below fits
        made("pup12/velocity", 1, randomise={"delay": 65})
    env, task = made("pup12/velocity", 2, **{**STILL, "randomise": {"delay": 64}})
    longest = np.full_like(task.layout["delay"], 64 * 0.005)
    env.load_scenario({"delay": longest})
    for wrong in (longest + 0.005, longest * [[1.0], [-1.0]]):
        with pytest.raises(ValueError, match=r"motors keep the targets of 0.32 s; use 0 to 0.32, or a larger"):
            env.load_scenario({"delay": wrong})


def test_a_history_that_is_not_refilled_kicks() -> None:
    env, task = made("pup12/velocity", 1, **{**STILL, **AT_HOME, "randomise": {"delay": 4}})
    task.layout["delay"][:] = 0.02
    task.restore()
    task._models.refill = lambda rows, targets: None  # type: ignore[method-assign]
    env.load_scenario({"delay": task.layout["delay"].copy()})
    task.batch.step(nstep=1)
    assert np.abs(task.field["actuator_force"][0]).max() > 20.0  # towards 0 rad


def test_models_differ_as_drawn_and_do_not_drift() -> None:
    env, task = made("pup12/velocity", 3, **RANDOM)
    subtree = task.batch.expand("body_subtreemass")[:, task.view.base]
    model, fields = task.model, task._models.fields
    task.layout["payload"][:, 0] = [2.0, 0.0, -1.0]
    task.layout["link_mass"][:] = 1.0
    task.layout["friction"][:, 0] = [0.2, 0.8, 1.0]
    task.layout["kp"][:], task.layout["strength"][:] = 1.1, 0.9
    for _ in range(3):  # again and again from the nominal numbers
        task.restore()
    trunk = task.view.base
    np.testing.assert_allclose(subtree, np.array([14.76, 12.76, 11.76]), atol=1e-9)  # set_const was called
    np.testing.assert_allclose(fields["body_inertia"][0, trunk], model.body_inertia[trunk] * 7.2 / 5.2)
    np.testing.assert_allclose(fields["geom_friction"][0, task.view.foot_geoms[:, 0], 0], 0.2)
    np.testing.assert_allclose(fields["actuator_gainprm"][:, :, 0], 60.0 * 1.1 * 0.9)
    np.testing.assert_allclose(fields["actuator_biasprm"][:, :, 1], -60.0 * 1.1 * 0.9)
    shown = env.spec.group("critic").columns("robot_config")
    out = {group.name: np.zeros((3, *group.shape)) for group in env.spec.groups}
    task.observe(np.arange(3, dtype=np.int32), out)
    np.testing.assert_allclose(
        out["critic"][:, shown][:, [0, 4, 5]], [[0.2, 2.0, -0.1], [0.8, 0.0, -0.1], [1.0, -1.0, -0.1]]
    )


def test_other_rows_are_left_alone_when_some_begin_anew() -> None:
    other_rows_are_left_alone_when_some_begin_anew(
        *made("pup12/velocity", 6, **{**EVERYTHING, "episode_seconds": 20.0})
    )


@pytest.mark.parametrize("name", ["sums", "latency_frames", "air_time"])
def test_a_part_that_begins_anew_in_all_rows_is_found(name: str) -> None:
    env, task = made("pup12/velocity", 6, **{**EVERYTHING, "episode_seconds": 20.0})
    right = task.start

    def start(rows: Any) -> None:
        right(rows)
        task.memory[name].fill(0.0)

    task.start = start  # type: ignore[method-assign]
    with pytest.raises(AssertionError):
        other_rows_are_left_alone_when_some_begin_anew(env, task)


def other_rows_are_left_alone_when_some_begin_anew(env: MujocoBatchEnv, task: LeggedTask) -> None:
    for _ in range(5):
        env.step(torch.randn(6, 12, generator=torch.Generator().manual_seed(0)))
    rows = np.array([1, 4], dtype=np.int32)
    others = [0, 2, 3, 5]
    models = {name: field.numpy() for name, field in task._models.fields.items()}
    arrays = {**task.memory, **task.layout, "state": task.batch.state, **models}
    before = {name: array[others].copy() for name, array in arrays.items()}
    env._follow_up(rows, dict(env._buffers.obs.items()))
    for name, array in arrays.items():
        np.testing.assert_array_equal(array[others], before[name], err_msg=name)
    assert (task.memory["action"][rows] == 0.0).all()


def test_a_fault_ends_its_own_row() -> None:
    a_fault_ends_its_own_row(*made("pup12/velocity", 3, **STILL))


def test_a_fault_that_nobody_notices_is_found() -> None:
    """MuJoCo resets a state that is not sound, and goes on."""
    env, task = made("pup12/velocity", 3, **STILL)
    env._advance = task.advance  # type: ignore[method-assign, assignment]
    with pytest.raises(AssertionError):
        a_fault_ends_its_own_row(env, task)


def a_fault_ends_its_own_row(env: MujocoBatchEnv, task: LeggedTask) -> None:
    twin, _ = made("pup12/velocity", 3, **STILL)
    env.step(zeros(env)), twin.step(zeros(twin))
    task.qvel[1, 0] = 1e12
    step, other = env.step(zeros(env)), twin.step(zeros(twin))
    assert step.metrics["physics_error"].tolist() == [0.0, 1.0, 0.0]
    assert step.terminated.tolist() == [False, True, False]
    # a fault is a fall, of an episode of two steps; other metrics would hold anything
    assert step.metrics["fell"].tolist() == step.metrics["falls_episode"].tolist() == [0.0, 1.0, 0.0]
    assert step.metrics["seconds_episode"].tolist() == pytest.approx([0.04] * 3)
    assert float(step.metrics["velocity_error"][1]) == 0.0
    assert float(step.reward[1]) == pytest.approx(-0.2)
    assert all(torch.isfinite(value).all() for value in (*step.obs.values(), *step.final_obs.values()))
    assert torch.equal(step.obs["policy"][[0, 2]], other.obs["policy"][[0, 2]])
    assert torch.isfinite(env.step(zeros(env)).reward).all()


def test_sums_of_an_episode_are_told_at_its_end() -> None:
    env, _task = made("pup12/gait_params", 4, seed=1, episode_seconds=1.4)
    total, squares, count = torch.zeros(4), torch.zeros(4), 0
    for number in range(70):
        step = env.step(zeros(env))
        total += step.reward
        if (number + 1) * 0.02 > 1.0:
            squares += step.metrics["velocity_error"] ** 2
            count += 1
    terms = [f"{name}_episode" for name in ("tracking_lin_vel", "tracking_ang_vel", "action_rate", "termination")]
    torch.testing.assert_close(sum(step.metrics[name] for name in terms), total, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(step.metrics["velocity_squares_episode"], squares, atol=1e-5, rtol=1e-4)
    assert step.metrics["measured_steps_episode"].tolist() == [count] * 4
    assert bool(step.truncated.all())


def test_evaluations_measure_all_substeps_and_move_alike() -> None:
    """Peaks are those of the episode so far; the twin, which looks at the last substep, misses them."""
    options = {"warm_up": 0.04, "randomise": {"enabled": True, "delay": 4}, "pushes": {"kick_seconds": None}}
    runs = {}
    for records in (True, False):
        task = make_legged("pup12/velocity", options)
        env = MujocoBatchEnv(task, 3, seed=0, purpose="evaluation", num_threads=1)
        assert task._records
        task._records = records
        generator, peaks, last, seen = torch.Generator().manual_seed(0), torch.zeros(3), [], []
        for number in range(12):
            step = env.step(torch.randn(3, 12, generator=generator))
            torque = task._substeps.torque if records else torch.from_numpy(task.field["actuator_force"])[:, None]
            if number >= 2:  # after 0.04 s
                peaks = torch.maximum(peaks, (torque / task._logic.robot.effort).abs().amax((1, 2)).float())
            torch.testing.assert_close(step.metrics["peak_torque"], peaks)
            last.append(step.metrics["peak_torque"].clone())
            seen.append(step.obs["critic"].clone())
        runs[records] = torch.stack(last), torch.stack(seen)
    assert torch.equal(runs[True][1], runs[False][1])
    assert (runs[True][0] > runs[False][0]).any()
    assert not made("pup12/velocity")[1]._records  # training does not pay for it


def test_weights_of_rewards_may_move_and_are_stored() -> None:
    env, task = made("pup12/velocity", 2, **STILL)
    state = env.state_dict()
    before = env.step(zeros(env))
    parts = {name: before.metrics[f"{name}_episode"].clone() for name in ("tracking_lin_vel", "orientation")}
    reward = before.reward.clone()
    env.load_state_dict(state)
    env.call("set_reward_weight", "tracking_lin_vel", 3.0)  # twice the preset's 1.5
    env.call("set_reward_weight", "termination", -40.0)
    assert task.fault_reward == pytest.approx(-0.8)
    changed = env.state_dict()
    after = env.step(zeros(env))
    torch.testing.assert_close(after.metrics["tracking_lin_vel_episode"], 2.0 * parts["tracking_lin_vel"])
    assert torch.equal(after.metrics["orientation_episode"], parts["orientation"])
    torch.testing.assert_close(after.reward, reward + parts["tracking_lin_vel"])
    other, twin = made("pup12/velocity", 2, seed=5, **STILL)  # begins with the weights of the preset
    other.load_state_dict(changed)
    assert twin.fault_reward == pytest.approx(-0.8)
    assert torch.equal(other.step(zeros(other)).reward, after.reward)
    with pytest.raises(ValueError, match=r"no term 'torque' .did you mean 'torques'.*Terms of weight 0 are left out"):
        env.call("set_reward_weight", "torque", 1.0)
    with pytest.raises(ValueError, match="the weight of torques is nan; use a finite number"):
        env.call("set_reward_weight", "torques", float("nan"))


def test_the_authority_of_a_gait_may_fade() -> None:
    """At 1 targets are those of the gait, bit for bit; at 0 those of the default pose; a quarter lies between."""
    targets = {}
    for share in (None, 1.0, 0.25, 0.0):
        env, task = made("pup12/gait_residual", 2, **NOMINAL)
        if share is not None:
            env.call("set_gait_authority", share)
        state = env.state_dict()
        env.step(zeros(env))
        targets[share] = task._logic.memory["target"].clone()
        env.call("set_gait_authority", 0.5)
        env.load_state_dict(state)  # with the share that it was stored with
        env.step(zeros(env))
        assert torch.equal(task._logic.memory["target"], targets[share])
    pose = task._logic.robot.pose
    assert torch.equal(targets[None], targets[1.0])
    torch.testing.assert_close(targets[0.0], pose.expand(2, -1))
    torch.testing.assert_close(targets[0.25], pose + 0.25 * (targets[1.0] - pose))
    assert (targets[1.0] - pose).abs().max() > 0.1
    begun, task = made("pup12/gait_residual", 2, gait={"authority": 0.0}, **NOMINAL)
    begun.step(zeros(begun))
    torch.testing.assert_close(task._logic.memory["target"], pose.expand(2, -1))
    assert begun.spec.facts["gait"]["authority"] == 0.0
    with pytest.raises(ValueError, match="use a share from 0 to 1"):
        env.call("set_gait_authority", 1.5)
    with pytest.raises(ValueError, match="in which no gait fades; use action=gait_residual"):
        made("pup12/gait_params")[0].call("set_gait_authority", 0.5)


def test_terms_of_substeps_are_recorded() -> None:
    """A term that looks into substeps leaves the motion as it is."""
    plain, _ = made("pup12/velocity", 2, **STILL)
    rewards = [{"name": "exceed_torque", "weight": -1.0}, {"name": "energy_substeps", "weight": -1.0}]
    env, task = made("pup12/velocity", 2, rewards=rewards, **STILL)
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        action = 3.0 * torch.randn(2, 12, generator=generator)
        one, two = plain.step(action), env.step(action)
        assert torch.equal(one.obs["critic"], two.obs["critic"])
    last = task._logic.frame
    assert last is not None
    assert last.substeps is not None
    torch.testing.assert_close(last.substeps.torque[:, -1], last.torque)
    assert float(two.metrics["exceed_torque_episode"].sum()) < 0.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"robot": "pup13"}, "no legged robot 'pup13'"),
        ({"reward_weights": {"alive": 1.0}}, "reward_weights names 'alive', which rewards does not list"),
        ({"observations": {"policy": ["phase"]}}, "lists phase, and only gaits have one"),
        ({"observations": {"policy": ["dof_pso"]}}, "no observation 'dof_pso' for 'policy'"),
        ({"action": "gait_params", "robot": "pup4"}, "pup4 has no leg geometry"),
        ({"endings": ["head"]}, "endings has 'head'"),
        ({"observations": {"policy": ["policy"], "critic": []}}, r"observations.critic is empty; list what it shows"),
        ({"commands": {"x": [1.0, -1.0]}}, "commands.x is .* write the smaller number first"),
        ({"commands": {"seconds": [0.0, 8.0]}}, r"commands.seconds\[0\] is 0; use a number > 0"),
        (
            {"randomise": {"enabled": True, "payload": [-5.2, 1.0]}},  # kg, as its trunk
            "randomise.payload has -5.2 kg, and 'trunk', the base of pup12, weighs 5.2 kg; use more than -5.2",
        ),
        ({"frictoin": 1.0}, "frictoin"),
        ({"episode_seconds": 0.005}, "episode_seconds is 0.005, shorter than a step, which takes 0.02 s; use at least"),
        (
            {"warm_up": 4.0, "episode_seconds": 4.0},
            "warm_up of pup12/velocity is 4 s, and an episode lasts 4 s: no step is left .* use less than 4",
        ),
        ({"latency": {"most": 8}}, "latency.most is 8 steps, longer than the history: 8 frames .* use at most 7, or"),
        ({"latency": {"least": 3, "most": 2}}, "latency.least is 3 steps and latency.most is 2; write the smaller"),
        ({"latency": {"most": 2}, "observations": {"policy": ["commands"]}}, "no group shows a leaf that can be late"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, KeyError), match=words):
        make_legged("pup12/velocity", options)


def test_episodes_within_the_warm_up_that_nobody_wrote_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        make_legged("pup12/velocity", {"episode_seconds": 0.62})
    told = "warm_up of pup12/velocity is 1 s, and an episode lasts 0.62 s: no step is left to measure"
    assert caplog.text.count(told) == len(caplog.records) == 1
    make_legged("pup12/velocity", {"episode_seconds": 0.62, "warm_up": 0.6})


def test_a_range_may_be_a_single_number() -> None:
    """Forwards alone, a command of 0.1 s each, on feet of one friction, is what this is for."""
    commands = {"x": [0.3, 0.3], "y": [0.0, 0.0], "turn": [0.0, 0.0], "seconds": [0.1, 0.1], "stand": 0.0}
    randomise = {"enabled": True, "friction": [0.7, 0.7]}
    env, task = made("pup12/velocity", 3, commands=commands, randomise=randomise)
    for _ in range(7):
        env.step(torch.zeros(3, 12))
        torch.testing.assert_close(torch.from_numpy(task.memory["command"]), torch.tensor([[0.3, 0, 0]] * 3).double())
    assert task.layout["friction"].tolist() == [[0.7]] * 3


def test_a_load_that_leaves_the_base_without_mass_is_refused_in_scenarios_too() -> None:
    env, _ = made("pup12/velocity", **{**STILL, "randomise": {"payload": [-5.0, 1.0]}})
    scenario = env.scenario()
    env.load_scenario(scenario)
    scenario["payload"][1] = -5.5
    with pytest.raises(ValueError, match=r"scenario field 'payload' has -5.5 kg, .* weighs 5.2 kg; use more than -5.2"):
        env.load_scenario(scenario)
    made("pup12/velocity", randomise={"enabled": False, "payload": [-9.0, 1.0]})  # which nobody draws


@pytest.mark.parametrize(("fixed", "said"), [((0.5, 0.0, 1.5), "turn 1.5"), ((0.5, 0.0, 0.5), "")])
def test_a_command_that_is_never_trained_is_told_once(fixed: tuple[float, ...], said: str, caplog: Any) -> None:
    for _ in range(3):  # a run makes as many
        make_legged("pup12/velocity", {"commands": {"fixed": list(fixed)}})
    told = "commands.fixed of pup12/velocity has turn 1.5, and commands.turn is -1 to 1: a policy that was trained"
    assert caplog.text.count(told) == len(caplog.records) == bool(said)


def ages_move_ends_and_nothing_else() -> None:
    """Noise, commands, kicks, late frames and images are drawn by how many steps an episode has had."""
    options = {**EVERYTHING, "commands": {"seconds": [0.08, 0.3]}, "episode_seconds": 1.0, "endings": []}
    (env, _), (aged, _) = (made("pup12/field", 2, seed=5, **options) for _ in range(2))
    env.reset(5), aged.reset(5)
    aged.set_elapsed(torch.tensor([0, 38]))
    generator = torch.Generator().manual_seed(0)
    for number in range(1, 13):
        action = 0.3 * torch.randn(2, 12, generator=generator)
        one, other = env.step(action), aged.step(action)
        assert torch.equal(one.reward, other.reward)
        assert other.truncated.tolist() == [False, number == 12]  # its 50th step, after 1 s
        going_on = slice(0, 1 if number == 12 else 2)
        for name in one.obs:
            assert torch.equal(one.obs[name][going_on], other.obs[name][going_on]), (name, number)
    assert not bool(one.truncated.any())


def test_ages_that_somebody_sets_move_ends_and_nothing_else() -> None:
    ages_move_ends_and_nothing_else()


def test_numbers_drawn_by_age_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeggedLogic, "steps", lambda logic, rows: logic.numbers.elapsed[rows])
    with pytest.raises(AssertionError):
        ages_move_ends_and_nothing_else()


def test_planar_robots_are_kicked_and_pushed_in_their_plane() -> None:
    pushes = {"kick_seconds": [0.0199, 0.02], "push_seconds": [0.0199, 0.02]}
    env, task = made("pup4/velocity", 4, pushes=pushes, observations={"policy": ["policy"], "push": ["push"]})
    for _ in range(3):
        shown = env.step(zeros(env)).obs["push"]
    x, y, z, force_x, force_y, _ = shown.abs().amin(0).tolist()
    assert min(x, force_x) > 0.0
    assert max(y, z, force_y) == 0.0
    assert task.memory["push_impulse"][:, 1].tolist() == [0.0] * 4


def test_time_steps_and_contacts_are_the_tasks_to_choose() -> None:
    env, task = made("pup12/velocity", 2, timestep=0.004, substeps=5, self_collision=True, **STILL)
    assert task.control_dt == pytest.approx(0.02)
    assert env.spec.drive is not None
    assert env.spec.drive.physics_dt == 0.004
    assert (task.model.geom_conaffinity[task.view.foot_geoms] == 8).all()
    assert dict(env.spec.options) == {**STILL, "timestep": 0.004, "substeps": 5, "self_collision": True}
    assert (made("pup12/velocity")[1].model.geom_conaffinity[task.view.foot_geoms] == 0).all()


def test_a_fall_costs_the_same_at_every_rate() -> None:
    # WALK: -0.2 for a fall. At 25 Hz the weight is -0.2 / 0.04 = -5; the preset's -10 would make it -0.4
    slow = made("legged:velocity", robot="pup12", substeps=8)[1]
    assert slow.control_dt == 0.04
    assert slow.fault_reward == pytest.approx(-0.2)
    assert made("legged:velocity", robot="pup12")[1].fault_reward == pytest.approx(-0.2)
    given = made("legged:velocity", robot="pup12", substeps=8, reward_weights={"termination": -10.0})[1]
    assert given.fault_reward == pytest.approx(-0.4)  # a weight that somebody wrote is that weight


def test_a_robot_must_be_named() -> None:
    with pytest.raises(ValueError, match="legged:velocity needs a robot"):
        make_legged("legged:velocity", {})


def test_options_that_differ_are_told() -> None:
    task = make_legged("pup12/velocity", {"noise": 0.5, "episode_seconds": 20.0, "reward_weights": {"torques": 0.0}})
    assert task.options == {"noise": 0.5, "reward_weights": {"torques": 0.0}}
    assert "torques_episode" not in task.metrics
    noise = {part.name: part.noise for part in task.groups[0].components}
    assert noise["ang_vel"] == 0.1
    assert dataclasses.asdict(task.groups[0].components[0])["scale"] == 0.25


def test_the_action_0_of_the_humanoid_is_to_stand() -> None:
    """Its servos are too weak to balance: for a second it stands on straight legs."""
    options = {"noise": 0.0, "start": {"joints": 0.0, "velocity": 0.0}, "commands": {"stand": 1.0}}
    task = make_legged("humanoid/velocity", options)
    env = MujocoBatchEnv(task, 1, num_threads=1)
    knees = task.view.positions[[task.legged.joint_names.index(f"{side}_knee") for side in ("right", "left")]]
    for _ in range(40):
        assert not env.step(torch.zeros(1, 21)).terminated.any()
        assert abs(task.qpos[0, knees]).max() < 0.1
    assert task.qpos[0, 2] > 1.2
    env.close()
