"""A native batch as gymnasium sees it: ended instances wait for their reset, and everything is NumPy, by key.

`gymnasium_export.py` makes single and vector environments of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import DTypeLike

from gaitway.core.config import did_you_mean
from gaitway.core.seeding import instance_seeds
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.step_buffers import FAULT_METRIC
from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.tasks.bisk.base import BiskTask
from gaitway.envs.vec_env import Observation, Step

Arrays = dict[str, np.ndarray]
Seeds = Sequence[int | None]

FIRST_SEEDS = 2**32
"""Environments that nobody seeded draw their seed below this."""
RENAMED = {"fell": "fell_over"}
"""Metrics that the benchmark calls otherwise."""
FLAGS = ("fell_over", FAULT_METRIC)


class HeldBatch(MujocoBatchEnv):
    """A batch whose ended instances stay as they ended until `restart` begins their next episodes."""

    def restart(self, rows: np.ndarray, seeds: Seeds) -> Observation:
        """Begin episodes in `rows`: the first one of a new stream where there is a seed, else the next one.

        `seeds` has an entry for every row. Returns the present observation of all instances.
        """
        self._simulation()
        given = [seed for seed in seeds if seed is not None]
        entropy = instance_seeds(given, len(given))
        self._streams.episode[rows] += 1
        if given:
            reseeded = rows[[seed is not None for seed in seeds]]
            self._streams.entropy[reseeded], self._streams.episode[reseeded] = entropy, 0
            self._generators.forget()
        if len(rows):
            self._buffers.settle()
            self._restart(rows.astype(np.int32), self._buffers.obs)
        return self._buffers.observation()

    def _follow_up(self, rows: np.ndarray, obs: Arrays) -> None:
        """Nothing: they wait."""


class ExportedBatch:
    """What both kinds of environment are made of: a batch, its spaces, and the sums of the present episodes."""

    def __init__(
        self, task: str, num_envs: int, num_threads: int | None, dtype: DTypeLike, options: Mapping[str, Any]
    ) -> None:
        if task not in NATIVE_TASKS:
            raise ValueError(f"there is no native task {task!r}{did_you_mean(task, NATIVE_TASKS)}")
        made = NATIVE_TASKS[task](**options)
        if not isinstance(made, BiskTask):
            raise ValueError(f"{task} is not of the bipedal-skills benchmark; use make_env({task!r}) of gaitway")
        precision: torch.dtype = getattr(torch, np.dtype(dtype).name)
        self.env = HeldBatch(made, num_envs, num_threads=num_threads, dtype=precision, id=task)
        self._columns = {key: ("policy", columns) for key, columns in made.views.items()}
        self._columns |= {name: (name, slice(None)) for name in self.env.spec.group_names if name != "policy"}
        action = self.env.spec.action
        self._limits = np.array((action.low, action.high), dtype=np.float32)
        self._returns, self._scores = np.zeros(num_envs), np.zeros(num_envs)
        self._is_seeded = np.zeros(num_envs, dtype=bool)

    def observation_space(self, num_envs: int | None = None) -> gymnasium.Space[Any]:
        """Of one instance, or of `num_envs`; the keys in the benchmark's order."""
        boxes = {}
        for key, (name, columns) in self._columns.items():
            group = self.env.spec.group(name)
            size = len(range(group.shape[0])[columns])
            shape = (size,) if num_envs is None else (num_envs, size)
            boxes[key] = spaces.Box(-np.inf, np.inf, shape, np.dtype(group.dtype).type)
        space = spaces.Dict(list(boxes.items()))  # pairs keep their order, a dictionary would be sorted
        space.sort_keys = False  # else gymnasium's vector environments sort the keys
        return space

    def action_space(self, num_envs: int | None = None) -> spaces.Box:
        """Of one instance, or of `num_envs`."""
        low, high = self._limits if num_envs is None else np.repeat(self._limits[:, None], num_envs, axis=1)
        return spaces.Box(low, high, dtype=np.float32)

    def observation(self, obs: Observation, rows: slice | int | np.ndarray = slice(None)) -> Arrays:
        """Copies of `rows`, by key."""
        return {key: obs[group].numpy()[rows, ..., columns].copy() for key, (group, columns) in self._columns.items()}

    def restart(self, rows: np.ndarray, seeds: Seeds, generator: np.random.Generator) -> Observation:
        """Begin episodes in `rows` (`HeldBatch.restart`); those that never had a seed draw one."""
        drawn = [
            int(generator.integers(FIRST_SEEDS)) if seed is None and not self._is_seeded[row] else seed
            for row, seed in zip(rows.tolist(), seeds, strict=True)
        ]
        self._is_seeded[rows] = True
        self._returns[rows] = self._scores[rows] = 0.0
        return self.env.restart(rows, drawn)

    def step(self, action: np.ndarray) -> tuple[Step, np.ndarray, Arrays, Arrays]:
        """The step, and of every instance the reward, the info of the step, and the sums of the episode so far [B]."""
        if not self._is_seeded.all():
            raise gymnasium.error.ResetNeeded(f"{self.env.spec.id} was never reset; call reset() before step()")
        step = self.env.step(torch.from_numpy(action))
        reward = step.reward.numpy().astype(np.float64)
        info = {RENAMED.get(name, name): value.numpy().astype(np.float64) for name, value in step.metrics.items()}
        info |= {name: info[name] != 0.0 for name in FLAGS}
        self._returns += reward
        self._scores += info["score"]
        sums = {"score": self._scores, "return": self._returns, "length": self.env.elapsed.numpy()}
        return step, reward, info, {f"episode_{name}": value.copy() for name, value in sums.items()}
