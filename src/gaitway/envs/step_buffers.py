"""Preallocated outputs of `step`, written by NumPy and handed out as tensors on the same memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaitway.core.config import did_you_mean
from gaitway.envs.vec_env import EnvSpec, Observation, Step

FAULT_METRIC = "physics_error"


class Slots(dict[str, np.ndarray]):
    """Arrays by name that a task fills. `slots["speed"] = values` writes into the array, as `slots["speed"][:] =` does;
    a name that was not declared is an error."""

    def __init__(self, arrays: Mapping[str, np.ndarray], kind: str) -> None:
        super().__init__(arrays)
        self.kind = kind

    def __setitem__(self, name: str, value: Any) -> None:
        self[name][...] = value

    def __missing__(self, name: Any) -> np.ndarray:
        hint = did_you_mean(str(name), self)
        raise KeyError(f"{name!r} is not among the {self.kind} that the task declares: {', '.join(self)}{hint}")


class StepBuffers:
    """One set of everything `step` returns; an environment alternates between two.

    `scalars` [1 + M, B] holds the reward and then the metrics, one row each, in the order of the spec.
    """

    def __init__(self, spec: EnvSpec, num_envs: int, dtype: type[np.floating]) -> None:
        shapes = {group.name: (num_envs, *group.shape) for group in spec.groups}
        self.obs = {name: np.zeros(shape, dtype) for name, shape in shapes.items()}
        self.final_obs = Slots({name: np.zeros(shape, dtype) for name, shape in shapes.items()}, "groups")
        self.scalars = np.zeros((1 + len(spec.metrics), num_envs), dtype)
        self.reward = self.scalars[0]
        self.metrics = dict(zip(spec.metrics, self.scalars[1:], strict=True))
        self.terminated = np.zeros(num_envs, dtype=bool)
        self.truncated = np.zeros(num_envs, dtype=bool)
        self._obs = _as_tensors(self.obs)
        self._final_obs = _as_tensors(self.final_obs)
        self._metrics = _as_tensors(self.metrics)
        self._flat = tuple(torch.from_numpy(array) for array in (self.reward, self.terminated, self.truncated))

    def mark_fault(self, faulty: np.ndarray, previous: StepBuffers, reward: float) -> None:
        """Overwrite the rows of faulty instances [B] with numbers that no learner can choke on."""
        self.terminated[faulty] = True
        self.reward[faulty] = reward
        self.scalars[1:, faulty] = 0.0
        self.metrics[FAULT_METRIC][faulty] = 1.0
        for name, final_obs in self.final_obs.items():
            final_obs[faulty] = previous.obs[name][faulty]

    def observation(self, device: torch.device) -> Observation:
        return moved(self._obs, device)

    def as_step(self, device: torch.device) -> Step:
        reward, terminated, truncated = self._flat
        if device.type == "cpu":
            return Step(dict(self._obs), reward, terminated, truncated, dict(self._final_obs), dict(self._metrics))
        return Step(
            moved(self._obs, device),
            reward.to(device),
            terminated.to(device),
            truncated.to(device),
            moved(self._final_obs, device),
            moved(self._metrics, device),
        )


def _as_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def moved(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """The same tensors on the CPU, copies elsewhere."""
    return dict(tensors) if device.type == "cpu" else {name: tensor.to(device) for name, tensor in tensors.items()}
