"""What the tests of exported environments share: actions, and transitions in a form that every mode gives."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode

from gaitway.envs.gym.export import BiskVectorEnv
from gaitway.envs.registry import make_env

ID, NATIVE = "gaitway/BiskHurdlesWalker-v1", "walker/hurdles"
MODES = list(AutoresetMode)
NUM_ENVS, STEPS = 4, 150
Row = tuple[dict[str, np.ndarray], np.ndarray, float, bool, bool, dict[str, np.ndarray]]


def table(seed: int = 0, steps: int = STEPS, num_envs: int = NUM_ENVS, size: int = 6) -> np.ndarray:
    """Actions [steps, num_envs, size]; row k is what an instance does in its k-th step that counts."""
    return np.random.default_rng(seed).uniform(-1, 1, (steps, num_envs, size)).astype(np.float32)


def row_of(obs: dict[str, Any], index: int) -> dict[str, np.ndarray]:
    return {key: np.array(value[index]) for key, value in obs.items()}


def transitions(env: Any, mode: AutoresetMode, actions: np.ndarray, seed: int = 7) -> list[list[Row]]:
    """Per instance, what it saw, did, got and reached, whatever the mode in which it resets."""
    rows: list[list[Row]] = [[] for _ in range(env.num_envs)]
    seen, _ = env.reset(seed=seed)
    ended = np.zeros(env.num_envs, dtype=bool)
    while min(map(len, rows)) < len(actions):
        # instances that reset in a step of their own fall behind; the others wait for none of them
        at = [min(len(own), len(actions) - 1) for own in rows]
        action = actions[at, range(env.num_envs)]
        if mode is AutoresetMode.NEXT_STEP:
            action[ended] = np.nan  # nobody may look at it
        obs, reward, terminated, truncated, info = env.step(action)
        for index, own in enumerate(rows):
            if mode is AutoresetMode.NEXT_STEP and ended[index]:
                assert (reward[index], terminated[index], truncated[index]) == (0.0, False, False)
                assert not info["_score"][index]
                continue
            reached = row_of(obs, index)
            if mode is AutoresetMode.SAME_STEP and (terminated[index] or truncated[index]):
                reached = info["final_obs"][index]
            flags = bool(terminated[index]), bool(truncated[index])
            own.append((row_of(seen, index), actions[at[index], index], float(reward[index]), *flags, reached))
        ended = terminated | truncated
        if mode is AutoresetMode.DISABLED and ended.any():
            obs, _ = env.reset(options={"reset_mask": ended})
        seen = obs
    return [own[: len(actions)] for own in rows]


def native_transitions(num_envs: int, actions: np.ndarray, seed: int = 7, **options: Any) -> list[list[Row]]:
    """The same from the native environment, whose keys are columns."""
    env = make_env(NATIVE, num_envs, seed=range(seed, seed + num_envs), **options)
    views = env.task.views
    rows: list[list[Row]] = [[] for _ in range(num_envs)]
    seen = env.reset(range(seed, seed + num_envs))["policy"].clone()
    for action in actions:
        step = env.step(torch.from_numpy(action))
        for index, own in enumerate(rows):
            before, after = (
                {key: policy[index, columns].numpy().copy() for key, columns in views.items()}
                for policy in (seen, step.final_obs["policy"])
            )
            flags = bool(step.terminated[index]), bool(step.truncated[index])
            own.append((before, action[index], float(step.reward[index]), *flags, after))
        seen = step.obs["policy"].clone()
    return rows


def are_equal(one: list[list[Row]], other: list[list[Row]]) -> bool:
    return data_equivalence(one, other, exact=True)


def make_vec(mode: AutoresetMode | str = AutoresetMode.SAME_STEP, **options: Any) -> BiskVectorEnv:
    env = gymnasium.make_vec(ID, NUM_ENVS, autoreset_mode=mode, num_threads=1, **options)
    assert isinstance(env, BiskVectorEnv)
    return env
