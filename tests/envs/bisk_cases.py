"""What the tests of the bipedal-skills benchmark share: environments, hovering cubes, and worlds written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import torch
from mujoco.batch import Batch

from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.robots import registry
from gaitway.envs.robots import robot as contract
from gaitway.envs.robots.registry import get_robot
from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.tasks.bisk import BENCHMARK_TASKS

ROBOTS, TASKS = tuple(registry.ROBOTS), tuple(BENCHMARK_TASKS)
PAIRS = tuple((robot, task) for robot in ROBOTS for task in TASKS if f"{robot}/{task}" in NATIVE_TASKS)
WALKER_TASKS = tuple(task for robot, task in PAIRS if robot == "walker")
HOVER = 0.32 * 9.81 / 50
"""What the vertical motor of a cube needs against gravity."""

WORLD = (
    'contype="1" conaffinity="1" condim="3" priority="0" friction="1 0.005 0.0001" solmix="1" solref="0.02 1" '
    'solimp="0.9 0.95 0.001 0.5 2" margin="0" gap="0"'
)
CORRIDOR = (
    '<geom type="plane" size="100 8 1" pos="92 0 0"/>',
    '<geom type="plane" size="8 1 1" pos="0 8 0" zaxis="0 -1 0"/>',
    '<geom type="plane" size="8 1 1" pos="0 -8 0" zaxis="0 1 0"/>',
    '<geom type="plane" size="8 1 1" pos="-4 0 0" zaxis="1 0 0"/>',
)


def make(id: str, num_envs: int = 1, num_threads: int = 1, seed: int = 3, **options: Any) -> MujocoBatchEnv:
    return MujocoBatchEnv(NATIVE_TASKS[id](**options), num_envs, seed, num_threads, dtype=torch.float64)


def act(env: MujocoBatchEnv, *action: float) -> torch.Tensor:
    return torch.tensor([action] * env.num_envs)


def random_actions(env: MujocoBatchEnv, steps: int, seed: int = 0) -> torch.Tensor:
    size = len(env.spec.action.names)
    return torch.from_numpy(np.random.default_rng(seed).uniform(-1, 1, (steps, env.num_envs, size)))


def begin(env: MujocoBatchEnv, x: float, z: float | None = None, settle: bool = False, **course: Any) -> Any:
    """All robots at rest at x, without noise; objects besides the robot as drawn."""
    task = env.task
    qpos, qvel = env.scenario()["qpos"].numpy(), env.scenario()["qvel"].numpy()
    qpos[:, task.view.qpos], qvel[:, task.view.qvel] = task.robot.initial_qpos(), 0.0
    qpos[:, task.view.forward] = x
    if z is not None:
        qpos[:, task.view.height] = z
    flags = np.full(env.num_envs, settle)
    return env.load_scenario({"qpos": qpos, "qvel": qvel, "settle": flags, **course})["policy"]


def text_model(robot: str, *geoms: str) -> mujoco.MjModel:
    """The robot's file with geoms of the world written into it as text."""
    path = Path(contract.__file__).with_name(get_robot(robot).asset)
    written = "\n".join(geom.replace("<geom ", f"<geom {WORLD} ") for geom in geoms)
    text = path.read_text().replace("</worldbody>", f"{written}</worldbody>", 1)
    return mujoco.MjModel.from_xml_string(text)


def box(x: float, z: float, half_length: float, half_height: float) -> str:
    return f'<geom type="box" pos="{x!r} 0 {z!r}" size="{half_length!r} 8 {half_height!r}"/>'


def deviation(env: MujocoBatchEnv, model: mujoco.MjModel, actions: torch.Tensor, settle: bool = True) -> np.ndarray:
    """Largest difference of qpos per control step between instance 0 and `model`, until its episode ends."""
    data, robot = mujoco.MjData(model), env.task.robot
    start = env.scenario()
    data.qpos[:], data.qvel[:] = start["qpos"][0].numpy(), start["qvel"][0].numpy()
    if settle:
        mujoco.mj_step(model, data, robot.frame_skip)
    differences = [np.abs(data.qpos - env.task.qpos[0]).max()]
    for action in actions:
        step = env.step(action)
        if bool(step.terminated[0]):
            break
        data.ctrl[:] = action[0].numpy()
        mujoco.mj_step(model, data, robot.frame_skip)
        differences.append(np.abs(data.qpos - env.task.qpos[0]).max())
    return np.array(differences)


def num_contacts(env: MujocoBatchEnv, x: float, z: float) -> int:
    """Contacts of the first robot at a place, without letting it move."""
    count = env.task.batch.bind("ncon")
    begin(env, x, z, **layout(env))
    return int(count[0, 0] if count.ndim > 1 else count[0])


def layout(env: MujocoBatchEnv) -> dict[str, torch.Tensor]:
    """The course of the present episodes."""
    return {name: value for name, value in env.scenario().items() if name in env.task.layout and name != "settle"}


def pass_items(env: MujocoBatchEnv, distance: int, fresh: int, forward: tuple[float, ...]) -> None:
    """A cube passes an item, returns, passes it again and passes the next; only new items pay.

    `distance` and `fresh` are columns of the observation, `forward` is the action that pushes it ahead.
    """
    back = (-forward[0], *forward[1:])

    def go(action: tuple[float, ...], until_fresh: float | None = None) -> list[float]:
        rewards: list[float] = []
        before = None
        for _ in range(120):
            step = env.step(act(env, *action))
            rewards.append(float(step.reward[0]))
            seen = step.obs["policy"][0]
            # the distance grows by more than a cube moves in one step
            if until_fresh is None and before is not None and seen[distance] > before + 0.3:
                break
            if until_fresh is not None and seen[fresh] == until_fresh:
                break
            before = float(seen[distance])
        else:
            raise AssertionError("no item was passed")
        return rewards

    rewards = go(forward)
    assert rewards[-1] == 1.0
    assert not any(rewards[:-1])
    rewards = go(back, until_fresh=0.0)
    assert not any(rewards)
    for _ in range(3):
        assert float(env.step(act(env, *back)).reward[0]) == 0.0
    rewards = go(forward)
    assert not any(rewards)
    rewards = go(forward)
    assert rewards[-1] == 1.0
    assert not any(rewards[:-1])


def without_refresh(monkeypatch: Any) -> None:
    """Break what must follow a change of the geometry."""
    monkeypatch.setattr(Batch, "set_const", lambda self, ids=None: None)


def evenly(num_envs: int, height: float, first: float = 5.0) -> dict[str, np.ndarray]:
    """Obstacles every 4 m, all of one height."""
    position = np.tile(first + 4.0 * np.arange(200), (num_envs, 1))
    return {"position": position, "height": np.full((num_envs, 200), height)}
