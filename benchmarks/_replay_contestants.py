"""The buffers that replay.py compares, each filled, added to and drawn from in its own way; and the stream of steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

GAMMA, CHUNK = 0.99, 10_000
Chunk = dict[str, np.ndarray]
Transitions = dict[str, Any]
"""What a contestant returned: obs, next_obs, action, reward and terminated, arrays or tensors with n rows."""


def stream(steps: int, envs: int, sizes: tuple[int, int]) -> Iterator[Chunk]:
    """A stream of steps [T, B, ...] in chunks; the first observation of a step is its number, which tells it apart."""
    observations, actions = sizes
    random = np.random.default_rng(0)
    number, following = 0, None
    for start in range(0, steps, CHUNK):
        count = min(CHUNK, steps - start)
        obs = random.standard_normal((count + 1, envs, observations), dtype=np.float32)
        obs[..., 0] = (number + np.arange((count + 1) * envs)).reshape(count + 1, envs)
        if following is not None:
            obs[0] = following
        following, number = obs[-1].copy(), number + count * envs
        ends = random.random((count, envs)) < 2e-3
        truncated = ends & (random.random((count, envs)) < 0.5)
        reached = np.where(ends[..., None], obs[1:] + 0.5, obs[1:])
        yield {
            "obs": obs,
            "next_obs": reached,
            "action": random.uniform(-1.0, 1.0, (count, envs, actions)).astype(np.float32),
            "reward": random.standard_normal((count, envs), dtype=np.float32),
            "terminated": ends & ~truncated,
            "truncated": truncated,
        }


class Contestant:
    """A buffer: `fill` puts a chunk in by whatever way is quick, `add` one step of all instances as a loop would."""

    def fill(self, start: int, chunk: Chunk) -> None:
        raise TypeError(f"{type(self).__name__} does not implement fill")

    def finish(self) -> None:
        """Called after the last chunk."""

    def prepare(self, chunk: Chunk) -> None:
        """Keep a chunk for `add`, in the buffer's own kind of arrays."""
        raise TypeError(f"{type(self).__name__} does not implement prepare")

    def add(self, t: int) -> None:
        raise TypeError(f"{type(self).__name__} does not implement add")

    def sample(self, n: int) -> Any:
        raise TypeError(f"{type(self).__name__} does not implement sample")

    def read(self, sample: Any) -> Transitions:
        raise TypeError(f"{type(self).__name__} does not implement read")


class Gaitway(Contestant):
    def __init__(self, capacity: int, envs: int, sizes: tuple[int, int]) -> None:
        from gaitway.data.step_replay import StepReplay

        groups, action = {"policy": ((sizes[0],), torch.float32)}, ((sizes[1],), torch.float32)
        self.replay = StepReplay(capacity, envs, groups, action, seed=0, gamma=GAMMA, max_episode_steps=1000)
        self._kept: dict[int, Any] = {}

    def fill(self, start: int, chunk: Chunk) -> None:
        self.replay.add(_workspace(chunk))

    def prepare(self, chunk: Chunk) -> None:
        self.rows = _workspace(chunk)

    def add(self, t: int) -> None:
        self.replay.add(self.rows, t, t + 1)

    def sample(self, n: int) -> dict[str, Tensor]:
        return self.replay.gather(self.replay.draw((n,)))

    def sample_again(self, n: int) -> dict[str, Tensor]:
        """Into the same memory every time, as SAC does."""
        if n not in self._kept:
            self._kept[n] = torch.zeros(n, dtype=torch.int64), self.replay.batch(n)
        index, batch = self._kept[n]
        return self.replay.gather(self.replay.draw((n,), out=index), batch)

    def read(self, sample: dict[str, Tensor]) -> Transitions:
        fields = {"obs": "obs/policy", "next_obs": "next_obs/policy", "action": "action", "reward": "reward"}
        return {name: sample[field] for name, field in fields.items()} | {"terminated": sample["discount"] == 0}


class StableBaselines3(Contestant):
    def __init__(self, capacity: int, envs: int, sizes: tuple[int, int]) -> None:
        from gymnasium.spaces import Box
        from stable_baselines3.common.buffers import ReplayBuffer

        spaces = Box(-np.inf, np.inf, (sizes[0],), np.float32), Box(-1.0, 1.0, (sizes[1],), np.float32)
        self.buffer = ReplayBuffer(capacity, *spaces, device="cpu", n_envs=envs)

    def fill(self, start: int, chunk: Chunk) -> None:
        buffer, rows = self.buffer, slice(start, start + len(chunk["reward"]))
        buffer.observations[rows], buffer.next_observations[rows] = chunk["obs"][:-1], chunk["next_obs"]
        buffer.actions[rows], buffer.rewards[rows] = chunk["action"], chunk["reward"]
        buffer.dones[rows] = chunk["terminated"] | chunk["truncated"]
        buffer.timeouts[rows] = chunk["truncated"]

    def finish(self) -> None:
        self.buffer.full = True

    def prepare(self, chunk: Chunk) -> None:
        done = chunk["terminated"] | chunk["truncated"]
        infos = [[{"TimeLimit.truncated": bool(flag)} for flag in row] for row in chunk["truncated"]]
        fields = (chunk["obs"], chunk["next_obs"], chunk["action"], chunk["reward"], done, infos)
        self.rows = list(zip(*fields, strict=False))

    def add(self, t: int) -> None:
        self.buffer.add(*self.rows[t])

    def sample(self, n: int) -> Any:
        return self.buffer.sample(n)

    def read(self, sample: Any) -> Transitions:
        return {
            "obs": sample.observations,
            "next_obs": sample.next_observations,
            "action": sample.actions,
            "reward": sample.rewards.squeeze(-1),
            "terminated": sample.dones.squeeze(-1) == 1,
        }


class TorchRL(Contestant):
    def __init__(self, capacity: int, envs: int, sizes: tuple[int, int]) -> None:
        from torchrl.data import LazyTensorStorage, ReplayBuffer

        self.buffer = ReplayBuffer(storage=LazyTensorStorage(capacity))

    def fill(self, start: int, chunk: Chunk) -> None:
        self.buffer.extend(self._table(chunk).flatten(0, 1))

    def prepare(self, chunk: Chunk) -> None:
        self.rows = list(self._table(chunk).unbind(0))

    def add(self, t: int) -> None:
        self.buffer.extend(self.rows[t])

    def sample(self, n: int) -> Any:
        return self.buffer.sample(n)

    def read(self, sample: Any) -> Transitions:
        return {name: sample[name] for name in ("obs", "next_obs", "action", "reward", "terminated")}

    def _table(self, chunk: Chunk) -> Any:
        from tensordict import TensorDict

        fields = {name: torch.from_numpy(value) for name, value in chunk.items() if name != "truncated"}
        fields["obs"] = fields["obs"][:-1]
        return TensorDict(fields, batch_size=chunk["reward"].shape)


class Skrl(Contestant):
    names = ("obs", "next_obs", "action", "reward", "terminated")

    def __init__(self, capacity: int, envs: int, sizes: tuple[int, int]) -> None:
        from skrl.memories.torch import RandomMemory

        self.memory = RandomMemory(memory_size=capacity // envs, num_envs=envs, device="cpu", replacement=True)
        widths = {"obs": sizes[0], "next_obs": sizes[0], "action": sizes[1], "reward": 1, "terminated": 1}
        for name, width in widths.items():
            self.memory.create_tensor(name, size=width, dtype=torch.bool if name == "terminated" else torch.float32)

    def fill(self, start: int, chunk: Chunk) -> None:
        for name, value in self._tensors(chunk).items():
            self.memory.tensors[name][start : start + len(value)].copy_(value)

    def finish(self) -> None:
        self.memory.filled = True

    def prepare(self, chunk: Chunk) -> None:
        tensors = self._tensors(chunk)
        self.rows = [{name: value[t] for name, value in tensors.items()} for t in range(len(chunk["reward"]))]

    def add(self, t: int) -> None:
        self.memory.add_samples(**self.rows[t])

    def sample(self, n: int) -> Any:
        return self.memory.sample(list(self.names), batch_size=n)[0]

    def read(self, sample: Any) -> Transitions:
        found = dict(zip(self.names, sample, strict=True))
        return found | {name: found[name].squeeze(-1) for name in ("reward", "terminated")}

    def _tensors(self, chunk: Chunk) -> dict[str, Tensor]:
        found = {name: torch.from_numpy(chunk[name]) for name in self.names}
        found["obs"] = found["obs"][:-1]
        return {name: value.unsqueeze(-1) if value.ndim == 2 else value for name, value in found.items()}


class Tianshou(Contestant):
    """Its batches stay NumPy arrays; turning them into tensors is left out."""

    def __init__(self, capacity: int, envs: int, sizes: tuple[int, int]) -> None:
        from tianshou.data import ReplayBuffer, VectorReplayBuffer

        self.envs, self.capacity = envs, capacity
        self.buffer = ReplayBuffer(capacity) if envs == 1 else VectorReplayBuffer(capacity, envs)

    def fill(self, start: int, chunk: Chunk) -> None:
        if self.envs > 1:
            raise RuntimeError("filled step by step only")
        if start == 0:
            self.prepare({name: value[:2] for name, value in chunk.items()})
            self.add(0)  # its arrays are made by the first step
        rows = slice(start, start + len(chunk["reward"]))
        meta = self.buffer._meta
        meta.obs[rows], meta.obs_next[rows] = chunk["obs"][:-1, 0], chunk["next_obs"][:, 0]
        meta.act[rows], meta.rew[rows] = chunk["action"][:, 0], chunk["reward"][:, 0]
        meta.terminated[rows], meta.truncated[rows] = chunk["terminated"][:, 0], chunk["truncated"][:, 0]
        meta.done[rows] = (chunk["terminated"] | chunk["truncated"])[:, 0]

    def finish(self) -> None:
        self.buffer._size, self.buffer._insertion_idx = self.capacity, 0

    def prepare(self, chunk: Chunk) -> None:
        from tianshou.data import Batch

        names = {"obs": "obs", "act": "action", "rew": "reward", "obs_next": "next_obs"}
        names |= {"terminated": "terminated", "truncated": "truncated"}
        self.rows = []
        for t in range(len(chunk["reward"])):
            row = {name: chunk[field][t] if self.envs > 1 else chunk[field][t, 0] for name, field in names.items()}
            self.rows.append(Batch(**row, info=Batch()))

    def add(self, t: int) -> None:
        self.buffer.add(self.rows[t])

    def sample(self, n: int) -> Any:
        return self.buffer.sample(n)[0]

    def read(self, sample: Any) -> Transitions:
        return {
            "obs": sample.obs,
            "next_obs": sample.obs_next,
            "action": sample.act,
            "reward": sample.rew,
            "terminated": sample.terminated,
        }


class BareGather(Contestant):
    """Whole transitions in one matrix of 8-byte words; also the truth that others are checked against."""

    def __init__(self, capacity: int, envs: int, sizes: tuple[int, int]) -> None:
        self.sizes = sizes
        self.width = 2 * sizes[0] + sizes[1] + 2
        self.words = torch.zeros(capacity, (self.width + 1) // 2, dtype=torch.int64)
        self.matrix = self.words.view(torch.float32)
        self.filled = 0
        self._drawn: dict[int, Iterator[Tensor]] = {}
        self._kept: dict[int, Tensor] = {}

    def fill(self, start: int, chunk: Chunk) -> None:
        count, envs = chunk["reward"].shape
        parts = [chunk["obs"][:-1], chunk["next_obs"], chunk["action"], chunk["reward"][..., None]]
        parts.append(chunk["terminated"][..., None].astype(np.float32))
        rows = torch.from_numpy(np.concatenate(parts, -1)).flatten(0, 1)
        self.matrix[start * envs : (start + count) * envs, : self.width] = rows
        self.filled = max(self.filled, (start + count) * envs)

    def sample(self, n: int) -> Tensor:
        if n not in self._drawn:
            # so many that rows are seldom in the cache from the time before, as with indices that are drawn anew
            self._drawn[n] = itertools.cycle(torch.randint(len(self.words), (4_000_000 // n, n)).unbind(0))
        return self.words.index_select(0, next(self._drawn[n]))

    def sample_again(self, n: int) -> Tensor:
        if n not in self._kept:
            self.sample(n)
            self._kept[n] = torch.empty(n, self.words.shape[1], dtype=torch.int64)
        return torch.index_select(self.words, 0, next(self._drawn[n]), out=self._kept[n])

    def read(self, sample: Tensor) -> Transitions:
        rows, (o, a) = sample.view(torch.float32), self.sizes
        return {
            "obs": rows[:, :o],
            "next_obs": rows[:, o : 2 * o],
            "action": rows[:, 2 * o : 2 * o + a],
            "reward": rows[:, 2 * o + a],
            "terminated": rows[:, 2 * o + a + 1] == 1,
        }


ENTRIES = {
    "gaitway": Gaitway,
    "stable-baselines3": StableBaselines3,
    "torchrl": TorchRL,
    "skrl": Skrl,
    "tianshou": Tianshou,
}


def _workspace(chunk: Chunk) -> Any:
    from gaitway.core.workspace import Variable, Workspace

    names = {"env/obs/policy": "obs", "env/final_obs/policy": "next_obs", "action": "action", "env/reward": "reward"}
    names |= {"env/terminated": "terminated", "env/truncated": "truncated"}
    tensors = {name: torch.from_numpy(chunk[field]) for name, field in names.items()}
    variables = {name: Variable(len(t), t.shape[1], tuple(t.shape[2:]), t.dtype) for name, t in tensors.items()}
    ws = Workspace.dense(variables, "cpu")
    for name, value in tensors.items():
        ws[name].copy_(value)
    return ws
