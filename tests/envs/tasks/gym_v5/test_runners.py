"""The native tasks against gymnasium's own classes: same state, same actions, same numbers."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
import torch

from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.tasks.gym_v5.runners import HopperConfig, hopper_health

GYM_TASKS = sorted(id for id in NATIVE_TASKS if id.endswith("-v5"))
CONTACT_TASKS = ("Ant-v5", "Humanoid-v5", "HumanoidStandup-v5")

OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("HalfCheetah-v5", {"forward_reward_weight": 2.0, "ctrl_cost_weight": 0.3, "frame_skip": 2}),
    ("HalfCheetah-v5", {"exclude_current_positions_from_observation": False}),
    ("Swimmer-v5", {"exclude_current_positions_from_observation": False, "ctrl_cost_weight": 0.2}),
    ("Hopper-v5", {"healthy_reward": 3.0, "terminate_when_unhealthy": False, "healthy_angle_range": (-0.1, 0.05)}),
    ("Hopper-v5", {"healthy_state_range": (-1.0, 1.0), "healthy_z_range": (0.5, 1.24)}),
    ("Walker2d-v5", {"healthy_z_range": (1.1, 1.3), "exclude_current_positions_from_observation": False}),
    ("Walker2d-v5", {"healthy_angle_range": (-0.05, 0.05), "forward_reward_weight": 0.5, "ctrl_cost_weight": 1.0}),
    ("Ant-v5", {"contact_force_range": (-0.2, 3.0), "contact_cost_weight": 0.1, "main_body": "aux_2"}),
    ("Ant-v5", {"include_cfrc_ext_in_observation": False, "healthy_z_range": (0.5, 0.8), "healthy_reward": 2.0}),
    ("Humanoid-v5", {"contact_cost_weight": 1e-3, "contact_cost_range": (0.1, 0.5), "healthy_z_range": (1.3, 1.5)}),
    ("Humanoid-v5", {"include_cvel_in_observation": False, "include_qfrc_actuator_in_observation": False}),
    ("HumanoidStandup-v5", {"impact_cost_weight": 1e-3, "include_cinert_in_observation": False}),
    ("InvertedDoublePendulum-v5", {"healthy_reward": 1.0}),
    ("Reacher-v5", {"reward_dist_weight": 3.0, "reward_control_weight": 0.2}),
    ("Pusher-v5", {"reward_near_weight": 2.0, "reward_dist_weight": 0.3, "reward_control_weight": 0.7}),
]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MuJoCo notes in the current folder that gymnasium's half_cheetah.xml uses a deprecated attribute."""
    monkeypatch.chdir(tmp_path)


def gym_environment(id: str, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gymnasium.make(id, **options).unwrapped


def place(reference: Any, qpos: torch.Tensor, qvel: torch.Tensor) -> np.ndarray:
    """Start an episode of gymnasium's environment at this state; returns its observation."""
    reference.reset()
    reference.set_state(qpos.numpy(), qvel.numpy())
    return reference._get_obs()


def largest_differences(id: str, options: dict[str, Any], steps: int, starts: int = 3) -> tuple[float, float, int]:
    """(observation, reward, ends): play both with unclipped random actions; an end restarts gymnasium at our start."""
    exact = {"exact_contact_forces": True} if id in CONTACT_TASKS else {}
    env = MujocoBatchEnv(NATIVE_TASKS[id](**options, **exact, max_episode_steps=0), starts, 5, 2, dtype=torch.float64)
    references = [gym_environment(id, **options) for _ in range(starts)]
    now = env.scenario()
    first = env.load_scenario(now)["policy"].numpy()
    observation_error = reward_error = 0.0
    ends = 0

    def note(expected: np.ndarray, found: np.ndarray) -> None:
        nonlocal observation_error
        assert expected.shape == found.shape
        observation_error = max(observation_error, float(np.abs(expected - found).max()))

    for index, reference in enumerate(references):
        note(place(reference, now["qpos"][index], now["qvel"][index]), first[index])
    generator = np.random.default_rng(0)
    low, high = np.array(env.spec.action.low), np.array(env.spec.action.high)
    for _ in range(steps):
        action = generator.uniform(1.2 * low, 1.2 * high, (starts, len(low)))  # costs must see the unclipped action
        step = env.step(torch.from_numpy(action))
        now = env.scenario()
        for index, reference in enumerate(references):
            expected, reward, terminated, _, _ = reference.step(action[index])
            note(expected, step.final_obs["policy"][index].numpy())
            reward_error = max(reward_error, abs(reward - step.reward[index].item()))
            assert terminated == step.terminated[index].item()
            if terminated:
                ends += 1
                note(place(reference, now["qpos"][index], now["qvel"][index]), step.obs["policy"][index].numpy())
    return observation_error, reward_error, ends


@pytest.mark.parametrize("id", GYM_TASKS)
def test_equals_gymnasium(id: str) -> None:
    observation_error, reward_error, ends = largest_differences(id, {}, steps=300)
    assert observation_error < 1e-8
    assert reward_error < 1e-8
    ending = ("Ant-v5", "Hopper-v5", "Humanoid-v5", "InvertedDoublePendulum-v5", "InvertedPendulum-v5", "Walker2d-v5")
    assert (ends > 0) == (id in ending)  # otherwise the comparison of ends proved nothing


@pytest.mark.parametrize(("id", "options"), OPTIONS)
def test_options_equal_gymnasium(id: str, options: dict[str, Any]) -> None:
    observation_error, reward_error, _ = largest_differences(id, options, steps=40, starts=2)
    assert observation_error < 1e-8
    assert reward_error < 1e-8


@pytest.mark.parametrize("id", GYM_TASKS)
def test_defaults_are_gymnasiums(id: str) -> None:
    registered = gymnasium.spec(id)
    task = NATIVE_TASKS[id]()
    reference = gym_environment(id)
    assert task.max_episode_steps == registered.max_episode_steps
    assert task.frame_skip == reference.frame_skip
    assert task.groups[0].shape == reference.observation_space.shape
    assert len({component.name for component in task.groups[0].components}) == len(task.groups[0].components)


def test_force_of_last_substep_without_the_exact_option() -> None:
    # The default's forces are those at the state before the last substep: replayed here with a plain MjData.
    task = NATIVE_TASKS["Ant-v5"](contact_force_range=(-1e9, 1e9))
    env = MujocoBatchEnv(task, 2, seed=1, dtype=torch.float64)
    data = mujoco.MjData(task.model)
    generator = np.random.default_rng(0)
    seen = 0.0
    for _ in range(40):
        action = torch.from_numpy(generator.uniform(-1, 1, (2, 8)))
        mujoco.mj_setState(task.model, data, task.batch.state[0], int(mujoco.mjtState.mjSTATE_INTEGRATION))
        data.ctrl[:] = action[0].numpy()
        mujoco.mj_step(task.model, data, task.frame_skip - 1)
        mujoco.mj_forward(task.model, data)
        mujoco.mj_rnePostConstraint(task.model, data)
        step = env.step(action)
        forces = step.final_obs["policy"][0, 13 + 14 :].numpy()
        np.testing.assert_allclose(forces, data.cfrc_ext[1:].ravel(), rtol=1e-6, atol=1e-6)
        seen = max(seen, np.abs(forces).max())
    assert seen > 1.0  # the ant did touch the floor


def test_exact_forces_change_nothing_but_forces() -> None:
    envs = [
        MujocoBatchEnv(NATIVE_TASKS["Humanoid-v5"](exact_contact_forces=exact), 2, seed=3, dtype=torch.float64)
        for exact in (False, True)
    ]
    generator = np.random.default_rng(0)
    differ = False
    for _ in range(20):
        action = torch.from_numpy(generator.uniform(-0.4, 0.4, (2, 17)))
        default, exact = (env.step(action).final_obs["policy"] for env in envs)
        assert torch.equal(default[:, :-78], exact[:, :-78])  # 13 bodies x 6 contact numbers come last
        differ |= not torch.equal(default, exact)
    assert differ


def test_first_observation_has_no_contact_forces() -> None:
    env = MujocoBatchEnv(NATIVE_TASKS["HumanoidStandup-v5"](), 2)
    contact = env.reset(0)["policy"][:, -78:]
    assert torch.equal(contact, torch.zeros_like(contact))


def test_reset_distributions() -> None:
    draws: dict[str, dict[str, np.ndarray]] = {}
    for id in ("HalfCheetah-v5", "Hopper-v5", "Reacher-v5", "Pusher-v5"):
        task = NATIVE_TASKS[id]()
        generator = np.random.default_rng(0)
        starts = [task.draw(generator) for _ in range(2000)]
        draws[id] = {name: np.array([start[name] for start in starts]) for name in ("qpos", "qvel")}
    cheetah, hopper = draws["HalfCheetah-v5"], draws["Hopper-v5"]
    assert np.abs(cheetah["qpos"]).max() <= 0.1
    np.testing.assert_allclose(cheetah["qpos"].std(axis=0), 0.1 / np.sqrt(3), rtol=0.06)  # uniform of half-width 0.1
    np.testing.assert_allclose(cheetah["qvel"].std(axis=0), 0.1, rtol=0.06)
    assert np.abs(cheetah["qvel"]).max() > 0.25  # normal, not uniform
    np.testing.assert_allclose(hopper["qpos"].mean(axis=0), [0, 1.25, 0, 0, 0, 0], atol=5e-4)
    np.testing.assert_allclose(hopper["qvel"].std(axis=0), 5e-3 / np.sqrt(3), rtol=0.06)
    target = draws["Reacher-v5"]["qpos"][:, 2:]
    radius = np.linalg.norm(target, axis=1)
    assert radius.max() < 0.2
    np.testing.assert_allclose((radius < 0.1).mean(), 0.25, atol=0.03)  # uniform over the disc
    assert not draws["Reacher-v5"]["qvel"][:, 2:].any()
    cylinder = draws["Pusher-v5"]["qpos"][:, -4:-2]
    assert np.linalg.norm(cylinder, axis=1).min() > 0.17
    assert cylinder[:, 0].max() <= 0.0
    assert np.abs(cylinder[:, 1]).max() <= 0.2
    assert not draws["Pusher-v5"]["qvel"][:, -4:].any()


def test_hopper_health_by_hand() -> None:
    config = HopperConfig()
    qpos = np.array([[0, 1.2, 0.1, 0, 0, 0.0]] * 6)
    qvel = np.zeros((6, 6))
    qpos[1, 1] = 0.7  # the limit itself is unhealthy
    qpos[2, 2] = -0.21
    qpos[3, 0] = 500.0  # x is not judged
    qvel[4, 0] = 100.0  # every velocity is
    qpos[5, 4] = -100.5
    assert hopper_health(config, qpos, qvel).tolist() == [True, False, False, True, False, False]


def test_components_are_named() -> None:
    group = NATIVE_TASKS["HalfCheetah-v5"]().groups[0]
    assert [(c.name, c.unit) for c in group.components][:3] == [("rootz", "m"), ("rooty", "rad"), ("bthigh", "rad")]
    assert group.columns("rootx_velocity") == slice(8, 9)
    humanoid = NATIVE_TASKS["Humanoid-v5"]().groups[0]
    assert humanoid.columns("root_z") == slice(0, 1)
    assert humanoid.columns("root_quaternion") == slice(1, 5)
    assert humanoid.columns("torso_inertia") == slice(45, 55)
    assert humanoid.columns("left_lower_arm_contact") == slice(342, 348)


def test_actions_take_joint_names() -> None:
    env = MujocoBatchEnv(NATIVE_TASKS["Ant-v5"](), 1)
    assert env.spec.action.names[0] == "hip_4"  # ant.xml leaves its motors unnamed; the first drives hip_4
    assert env.spec.action.low == (-1.0,) * 8
    assert env.spec.action.high == (1.0,) * 8


@pytest.mark.parametrize(
    ("id", "options", "words"),
    [
        ("HalfCheetah-v5", {"ctrl_cost_wieght": 0.1}, ["ctrl_cost_wieght", "did you mean 'ctrl_cost_weight'"]),
        ("Reacher-v5", {"healthy_reward": 1.0}, ["healthy_reward", "reward_dist_weight"]),
        ("Hopper-v5", {"healthy_z_range": 0.7}, ["healthy_z_range", "2 numbers"]),
        ("Hopper-v5", {"healthy_z_range": (0.7, 1.0, 2.0)}, ["healthy_z_range", "2 numbers"]),
        ("HalfCheetah-v5", {"frame_skip": 2.5}, ["frame_skip", "int"]),
        ("HalfCheetah-v5", {"frame_skip": True}, ["frame_skip", "int"]),
        ("Ant-v5", {"terminate_when_unhealthy": 1}, ["terminate_when_unhealthy", "bool"]),
        ("HumanoidStandup-v5", {"uph_cost_weight": 2.0}, ["uph_cost_weight", "ctrl_cost_weight"]),
    ],
)
def test_wrong_options_are_refused(id: str, options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(TypeError) as error:
        NATIVE_TASKS[id](**options)
    assert all(word in str(error.value) for word in words)


def test_option_values_are_checked() -> None:
    with pytest.raises(ValueError, match="frame_skip is 0"):
        NATIVE_TASKS["HalfCheetah-v5"](frame_skip=0)
    with pytest.raises(ValueError, match="max_episode_steps is -1"):
        NATIVE_TASKS["Reacher-v5"](max_episode_steps=-1)


def test_spec_reports_changed_options_only() -> None:
    task = NATIVE_TASKS["Hopper-v5"](healthy_reward=1, healthy_z_range=[0.5, 1.0])
    assert task.options == {"healthy_z_range": (0.5, 1.0)}


def test_task_list_does_not_import_mujoco() -> None:
    code = "import sys, gaitway.envs.tasks; sys.exit('mujoco' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
