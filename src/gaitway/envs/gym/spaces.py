"""Gymnasium spaces as observation groups and actions: numpy on their side, tensors on ours.

What becomes of an observation space:

| space | group | dtype |
|---|---|---|
| Box of floats, any shape | its shape (`()` becomes `(1,)`) | the requested one |
| Box of uint8, of bool, of other integers | its shape | uint8, bool, int64 |
| Discrete, MultiDiscrete | one-hot vector, all dimensions one after the other | the requested one |
| MultiBinary | its shape | the requested one |
| Dict, Tuple | one group per entry, keys or indices joined by `/` | as the entry |

A space without entries is the group `policy`. Discrete observations are one-hot because a state number has no order
that a network could use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from numpy.typing import ArrayLike
from torch import Tensor

from gaitway.envs.spec import ActionSpec, Component, ObservationGroup
from gaitway.envs.step_buffers import moved
from gaitway.envs.vec_env import Observation, Step

NUMPY_DTYPES = (torch.float16, torch.float32, torch.float64)


@dataclass(frozen=True)
class _Leaf:
    """One group and the way to it: `path` into the raw observation, one-hot classes if there are any."""

    path: tuple[Any, ...]
    group: ObservationGroup
    raw_shape: tuple[int, ...]
    owner: np.ndarray | None = None
    """One-hot column -> dimension of the space."""
    classes: np.ndarray | None = None
    """One-hot column -> the value that lights it."""

    def encode(self, raw: Any) -> np.ndarray:
        """Raw values `[*lead, *raw_shape]` -> numbers `[*lead, *group.shape]`, `lead` being `(B,)` or nothing."""
        for key in self.path:
            raw = raw[key]
        values = np.asarray(raw)
        lead = values.shape[: values.ndim - len(self.raw_shape)]
        if self.owner is None:
            return values.reshape(*lead, *self.group.shape)
        return values.reshape(*lead, -1)[..., self.owner] == self.classes


class ObservationCodec:
    """Writes raw gymnasium observations into preallocated tensors."""

    def __init__(self, space: Space, dtype: torch.dtype = torch.float32) -> None:
        if dtype not in NUMPY_DTYPES:
            raise ValueError(f"dtype is {dtype}; gymnasium observations take {[str(kind) for kind in NUMPY_DTYPES]}")
        self._leaves = [_leaf(path, leaf, dtype) for path, leaf in walk(space, ())]
        self.groups = tuple(leaf.group for leaf in self._leaves)

    def allocate(self, num_envs: int) -> Observation:
        """Zeros `[B, *shape]` for every group."""
        return {group.name: torch.zeros(num_envs, *group.shape, dtype=group.torch_dtype) for group in self.groups}

    def write(self, raw: Any, into: Observation, rows: np.ndarray | None = None) -> None:
        """Copy a batched observation into tensors made by `allocate`; `rows` is a mask `[B]` or None for all."""
        for leaf in self._leaves:
            target, values = into[leaf.group.name].numpy(), leaf.encode(raw)
            if values.shape != target.shape:
                raise ValueError(f"group {leaf.group.name!r} came as {values.shape}; its space says {target.shape}")
            if rows is None:
                target[...] = values
            else:
                target[rows] = values[rows]

    def write_row(self, raw: Any, into: Observation, row: int) -> None:
        """Copy the observation of one instance into its row."""
        for leaf in self._leaves:
            into[leaf.group.name].numpy()[row] = leaf.encode(raw)


class ActionCodec:
    """Turns policy actions into what a gymnasium `step` takes; `spec` is the matching ActionSpec."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self.spec = _action_spec(space)
        self._first = np.array(self.spec.start or (0,) * len(self.spec.choices))
        self._last = self._first + np.array(self.spec.choices, dtype=np.int64) - 1

    def to_numpy(self, action: Tensor) -> np.ndarray:
        """Action of the right shape -> `[B, *space.shape]`; choices that do not exist are refused here."""
        values = action.cpu().numpy()
        if self.spec.kind != "continuous":
            flat = values.reshape(len(values), -1)
            outside = (flat < self._first) | (flat > self._last)
            if outside.any():
                row, column = np.argwhere(outside)[0]
                raise ValueError(
                    f"the action of instance {row} is {flat[row, column]} in {self.spec.names[column]!r}; "
                    f"it takes {self._first[column]} to {self._last[column]}"
                )
        return self.encode(values)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Checked values -> a copy `[B, *space.shape]` in the dtype of the space; continuous ones are clipped to it."""
        box = self._space
        values = values.astype(box.dtype).reshape(-1, *(box.shape or ()))
        if self.spec.kind != "continuous":
            return values
        return np.minimum(np.maximum(values, box.low), box.high)  # type: ignore[attr-defined]


class StepBuffers:
    """One set of everything `step` returns, on the CPU; an adapter alternates between two of them."""

    def __init__(self, codec: ObservationCodec, num_envs: int, metrics: tuple[str, ...], dtype: torch.dtype) -> None:
        self.obs = codec.allocate(num_envs)
        self.final_obs = codec.allocate(num_envs)
        self.reward = torch.zeros(num_envs, dtype=dtype)
        self.terminated, self.truncated, self.valid = (torch.zeros(num_envs, dtype=torch.bool) for _ in range(3))
        self.metrics = {name: torch.zeros(num_envs, dtype=dtype) for name in metrics}

    def fill(self, reward: ArrayLike, terminated: ArrayLike, truncated: ArrayLike, valid: ArrayLike) -> None:
        """Everything that is `[B]`."""
        for target, values in zip(
            (self.reward, self.terminated, self.truncated, self.valid),
            (reward, terminated, truncated, valid),
            strict=True,
        ):
            target.numpy()[:] = values

    def copied_to_final(self) -> Observation:
        """`final_obs`, filled with `obs`."""
        for name, value in self.obs.items():
            self.final_obs[name].copy_(value)
        return self.final_obs

    def take_final(self, codec: ObservationCodec, infos: Mapping[str, Any], done: np.ndarray, id: str) -> Observation:
        """`final_obs` of environments that reset in the same step: where they are `done` [B], what `infos` say."""
        final, target = infos.get("final_obs"), self.copied_to_final()
        if final is None:
            raise ValueError(f"{id} resets in the same step but infos has no 'final_obs' with the last states")
        if isinstance(final, np.ndarray) and final.dtype == object:
            for row in np.flatnonzero(done):
                codec.write_row(final[row], target, int(row))
        else:
            codec.write(final, target, rows=done)
        return target

    def as_step(self, final_obs: Observation, reset_rows: bool, device: torch.device) -> Step:
        """`final_obs` is this object's own, or its `obs` where nothing ended."""
        valid = self.valid if reset_rows else None
        if device.type == "cpu":
            flat = self.reward, self.terminated, self.truncated
            return Step(dict(self.obs), *flat, dict(final_obs), dict(self.metrics), valid)
        return Step(
            obs=moved(self.obs, device),
            reward=self.reward.to(device),
            terminated=self.terminated.to(device),
            truncated=self.truncated.to(device),
            final_obs=moved(final_obs, device),
            metrics=moved(self.metrics, device),
            valid=None if valid is None else valid.to(device),
        )


def resized(picture: np.ndarray, width: int, height: int) -> np.ndarray:
    """The picture, uint8 `[H, W, 3]`, with the nearest pixels of another size."""
    rows = np.arange(height) * picture.shape[0] // height
    columns = np.arange(width) * picture.shape[1] // width
    return np.ascontiguousarray(picture[rows][:, columns])


def walk(space: Space, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Space]]:
    """Leaf spaces with their paths, in declared order."""
    if isinstance(space, spaces.Dict):
        for key, entry in space.spaces.items():
            yield from walk(entry, (*path, key))
    elif isinstance(space, spaces.Tuple):
        for index, entry in enumerate(space.spaces):
            yield from walk(entry, (*path, index))
    else:
        yield path, space


def _leaf(path: tuple[Any, ...], space: Space, dtype: torch.dtype) -> _Leaf:
    name = "/".join(str(key) for key in path) or "policy"
    floating = str(dtype).removeprefix("torch.")
    if isinstance(space, spaces.Box):
        kind = np.dtype(space.dtype)
        own = {"f": floating, "b": "bool", "u": "int64", "i": "int64"}[kind.kind]
        return _Leaf(path, _group(name, space.shape or (1,), "uint8" if kind == np.uint8 else own), space.shape)
    if isinstance(space, spaces.MultiBinary):
        return _Leaf(path, _group(name, space.shape, floating), space.shape)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        sizes, start = _choices(space)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        classes = np.concatenate([first + np.arange(size) for first, size in zip(start, sizes, strict=True)])
        prefix = [name] if len(sizes) == 1 else [f"{name}_{dimension}" for dimension in range(len(sizes))]
        components = tuple(Component(f"{prefix[at]}={value}") for at, value in zip(owner, classes, strict=True))
        group = ObservationGroup(name, components, (len(classes),), floating)
        return _Leaf(path, group, space.shape or (), owner, classes)
    raise ValueError(
        f"observation {name!r} is a {type(space).__name__} space; supported are Box, Discrete, MultiDiscrete, "
        "MultiBinary, and Dict or Tuple of these. Convert it with a gymnasium.ObservationWrapper"
    )


def _group(name: str, shape: tuple[int, ...], dtype: str) -> ObservationGroup:
    if len(shape) == 1:
        return ObservationGroup(name, tuple(Component(f"{name}_{i}") for i in range(shape[0])), shape, dtype)
    return ObservationGroup(name, (Component(name, shape[-1]),), shape, dtype)


def _choices(space: spaces.Discrete | spaces.MultiDiscrete) -> tuple[list[int], list[int]]:
    """Number of values and smallest value of each dimension."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)], [int(space.start)]
    return space.nvec.reshape(-1).tolist(), space.start.reshape(-1).tolist()


def _action_spec(space: Space) -> ActionSpec:
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = space.low.reshape(-1).tolist(), space.high.reshape(-1).tolist()
        names = tuple(f"action_{index}" for index in range(len(low)))
        return ActionSpec("continuous", names, tuple(low), tuple(high))
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        sizes, start = _choices(space)
        kind = "discrete" if isinstance(space, spaces.Discrete) else "multi_discrete"
        names = ("action",) if kind == "discrete" else tuple(f"action_{index}" for index in range(len(sizes)))
        return ActionSpec(kind, names, choices=tuple(sizes), start=tuple(start) if any(start) else ())
    if isinstance(space, spaces.MultiBinary):
        size = int(np.prod(space.shape))
        return ActionSpec("multi_discrete", tuple(f"action_{index}" for index in range(size)), choices=(2,) * size)
    raise ValueError(
        f"the action space is {space}; supported are Box of floats, Discrete, MultiDiscrete and MultiBinary. "
        "Convert it with a gymnasium.ActionWrapper"
    )
