"""Preallocated outputs of `step`, written by NumPy and handed out as tensors on the same memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaitway.core.config import did_you_mean
from gaitway.envs.spec import EnvSpec, ObservationGroup
from gaitway.envs.vec_env import Observation, Step

FAULT_METRIC = "physics_error"
ALIGNMENT = 64
"""Arrays begin at multiples of so many bytes, the length of a cache line."""

Shapes = Mapping[str, tuple[tuple[int, ...], torch.dtype]]


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


class SharedMemory:
    """Arrays in one piece of memory, so that a single copy takes all of them to a GPU, and nobody waits for it.

    `here` holds them on the CPU, `there` on the device, where `send` has copied them. What `here` holds may be
    overwritten after `settle`, which waits until the last copy was made.
    """

    def __init__(self, shapes: Shapes, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        size = sum(_room(shape, dtype) for shape, dtype in shapes.values())
        with torch.inference_mode(False):
            self._here = torch.zeros(size, dtype=torch.uint8, pin_memory=self._on_gpu)
            self._there = torch.zeros(size, dtype=torch.uint8, device=device) if self._on_gpu else self._here
            self.here = self._views(self._here, shapes)
            self.there = self._views(self._there, shapes) if self._on_gpu else self.here
        self._device = device
        self._sent = torch.cuda.Event() if self._on_gpu else None

    def send(self) -> None:
        if self._sent is not None:
            self._there.copy_(self._here, non_blocking=True)
            self._sent.record(torch.cuda.current_stream(self._device))

    def settle(self) -> None:
        if self._sent is not None:
            self._sent.synchronize()

    @staticmethod
    def _views(memory: Tensor, shapes: Shapes) -> dict[str, Tensor]:
        found, start = {}, 0
        for name, (shape, dtype) in shapes.items():
            found[name] = memory[start : start + math.prod(shape) * dtype.itemsize].view(dtype).view(shape)
            start += _room(shape, dtype)
        return found


def _room(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """Bytes from one array to the next."""
    return -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT


class StepBuffers:
    """One set of everything `step` returns; an environment alternates between two, and calls `settle` before it fills
    one again.

    `scalars` [1 + M, B] holds the reward and then the metrics, one row each, in the order of the spec.
    """

    def __init__(self, spec: EnvSpec, num_envs: int, dtype: type[np.floating], device: torch.device) -> None:
        floats = torch.from_numpy(np.zeros(0, dtype)).dtype
        shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
        for kind in ("obs", "final_obs"):
            shapes |= {
                f"{kind}/{group.name}": ((num_envs, *group.shape), _type_of(group, floats)) for group in spec.groups
            }
        shapes["scalars"] = ((1 + len(spec.metrics), num_envs), floats)
        shapes |= dict.fromkeys(("terminated", "truncated"), ((num_envs,), torch.bool))
        self._memory = SharedMemory(shapes, device)
        arrays = {name: tensor.numpy() for name, tensor in self._memory.here.items()}
        names = [group.name for group in spec.groups]
        self.obs = {name: arrays[f"obs/{name}"] for name in names}
        self.final_obs = Slots({name: arrays[f"final_obs/{name}"] for name in names}, "groups")
        self.scalars = arrays["scalars"]
        self.reward = self.scalars[0]
        self.metrics = dict(zip(spec.metrics, self.scalars[1:], strict=True))
        self.terminated, self.truncated = arrays["terminated"], arrays["truncated"]
        there = self._memory.there
        self._obs = {name: there[f"obs/{name}"] for name in names}
        self._final_obs = {name: there[f"final_obs/{name}"] for name in names}
        reward, *metrics = there["scalars"].unbind()
        self._metrics = dict(zip(spec.metrics, metrics, strict=True))
        self._flat = reward, there["terminated"], there["truncated"]
        here = self._memory.here["truncated"]
        self._known = None if here is there["truncated"] else (there["truncated"], here)

    def settle(self) -> None:
        """Wait until these buffers may be filled."""
        self._memory.settle()

    def mark_fault(self, faulty: np.ndarray, reward: float, kept: Sequence[str] = ()) -> None:
        """Overwrite reward and metrics, but those `kept`, of faulty instances [B] with numbers that no learner can
        choke on."""
        self.terminated[faulty] = True
        self.reward[faulty] = reward
        for name, values in self.metrics.items():
            if name not in kept:
                values[faulty] = 0.0
        self.metrics[FAULT_METRIC][faulty] = 1.0

    def repeat(self, faulty: np.ndarray, previous: StepBuffers) -> None:
        """Make the last observation before the fault the final one of faulty instances [B]."""
        for name, final_obs in self.final_obs.items():
            final_obs[faulty] = previous.obs[name][faulty]

    def observation(self) -> Observation:
        self._memory.send()
        return dict(self._obs)

    def as_step(self) -> Step:
        self._memory.send()
        return Step(dict(self._obs), *self._flat, dict(self._final_obs), dict(self._metrics), known=self._known)


def _type_of(group: ObservationGroup, floats: torch.dtype) -> torch.dtype:
    """Vectors of floats have the type of the environment, others their own."""
    return floats if group.is_vector and group.torch_dtype.is_floating_point else group.torch_dtype


def moved(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """The same tensors on the CPU, copies elsewhere."""
    return dict(tensors) if device.type == "cpu" else {name: tensor.to(device) for name, tensor in tensors.items()}
