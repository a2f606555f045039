"""Gymnasium spaces as variables of a frame stream: observations as they are, actions read for every kind of space.

Observations keep their numbers: a Discrete observation is int64 `[B]`, as are all scalars; floats become float32, uint8
and bool stay, other integers become int64. The space decides, never the value, so that resets and steps agree. Dict
and Tuple spaces nest by name. `one_hot=True` gives the groups of `GymnasiumEnv` instead.

Actions of Dict and Tuple spaces are read from one variable per entry, `action/<key>`; variables under that prefix that
are no entry of the space are left alone. Values are in the space's own numbering.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from gaitway.core.transitions import over_events
from gaitway.core.workspace import Workspace
from gaitway.envs.gym.spaces import ActionCodec, ObservationCodec, walk
from gaitway.envs.spec import ActionSpec, Component, ObservationGroup
from gaitway.envs.vec_env import Observation


class FrameObservations:
    """Writes raw observations into buffers `[B, *shape]` and shows them under the names of their groups."""

    def __init__(self, space: Space, one_hot: bool = False) -> None:
        self.codec = ObservationCodec(space if one_hot else _as_boxes(space))
        # the codec gives scalars an axis of length 1, for networks; here they have none
        self._scalars = set() if one_hot else {name for name, leaf in leaves(space, "policy") if leaf.shape == ()}
        self.groups = tuple(self._group(group) for group in self.codec.groups)

    def shown(self, buffers: Observation) -> Observation:
        """Views of the buffers, scalars without their axis."""
        return {name: value[:, 0] if name in self._scalars else value for name, value in buffers.items()}

    def _group(self, group: ObservationGroup) -> ObservationGroup:
        if group.name not in self._scalars:
            return group
        return dataclasses.replace(group, components=(Component(group.name),), shape=())


class FrameActions:
    """Reads the actions of a row and hands them over as an environment takes them."""

    def __init__(self, space: Space, num_envs: int, variable: str = "action", clip: bool = False) -> None:
        self.space, self.variable, self._num_envs = space, variable, num_envs
        nested = isinstance(space, spaces.Dict | spaces.Tuple)
        self._leaves = {
            f"{variable}/{name}" if nested else variable: _ActionLeaf(leaf, clip) for name, leaf in leaves(space, "")
        }
        self.spec: ActionSpec | None = None if nested else next(iter(self._leaves.values())).spec

    @property
    def names(self) -> tuple[str, ...]:
        """The variables that are read."""
        return tuple(self._leaves)

    def batched(self, ws: Workspace, t: int, ignored: Tensor | None = None) -> Any:
        """Row t as arrays `[B, *shape]`, nested like the space: what a vector environment takes.

        Where `ignored` [B] the environment does not act on them: whatever stands there, it is not looked at.
        """
        arrays = {}
        for name, leaf in self._leaves.items():
            if name not in ws:
                known = [each for each in ws if each.startswith(self.variable)]
                raise KeyError(
                    f"the environment acts on {list(self._leaves)}, but {name!r} is not in the workspace"
                    f"{f', which has {known}' if known else ''}; place the agent that writes it in the cast"
                )
            arrays[name] = leaf.array(name, ws.at(name, t), self._num_envs, ignored)
        return self._nested(self.space, self.variable, arrays)

    def singles(self, ws: Workspace, t: int, ignored: Tensor | None = None) -> list[Any]:
        """Row t as one action per environment; Discrete ones are Python integers."""
        return _split(self.space, self.batched(ws, t, ignored), self._num_envs)

    def _nested(self, space: Space, name: str, arrays: dict[str, np.ndarray]) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: self._nested(entry, f"{name}/{key}", arrays) for key, entry in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self._nested(entry, f"{name}/{at}", arrays) for at, entry in enumerate(space.spaces))
        return arrays[name]


class _ActionLeaf:
    """One entry of an action space that is no Dict or Tuple."""

    def __init__(self, space: Space, clip: bool) -> None:
        self._space, self._clip = space, clip
        self._is_box = isinstance(space, spaces.Box)
        integers = self._is_box and not np.issubdtype(space.dtype, np.floating)
        self._codec = None if integers else ActionCodec(space)
        self.spec = None if self._codec is None else self._codec.spec
        self._idle = torch.from_numpy(np.asarray(_idle_action(space)))

    def array(self, name: str, action: Tensor, num_envs: int, ignored: Tensor | None = None) -> np.ndarray:
        """`[B, *shape]` in the dtype of the space; always a copy, because environments may keep what they get."""
        shape = self._space.shape or ()
        if action.dim() < 1 or len(action) != num_envs:
            found = len(action) if action.dim() else 0
            raise ValueError(f"{name!r} has {found} rows for {num_envs} environments; write [{num_envs}, ...]")
        if action.shape[1:].numel() != int(np.prod(shape)):
            raise ValueError(f"{name!r} is {list(action.shape)}; the space {self._space} takes {[num_envs, *shape]}")
        floating = self._is_box and self._codec is not None
        if action.dtype.is_floating_point != floating:
            kind = "floating point numbers" if floating else "integers"
            raise ValueError(f"{name!r} is {action.dtype}; the space {self._space} takes {kind}")
        action = action.detach().reshape(num_envs, *shape)
        if ignored is not None and bool(ignored.any()):
            idle = self._idle.to(action.device, action.dtype)
            action = torch.where(over_events(ignored.to(action.device), action), idle, action)
        if not self._is_box:
            assert self._codec is not None  # only integer boxes have none
            return self._codec.to_numpy(action)
        values = action.cpu().numpy()
        if floating and not np.isfinite(values).all():
            row = int(np.argwhere(~np.isfinite(values))[0][0])
            raise ValueError(f"{name!r} of environment {row} is {values[row].tolist()}; {self._space} takes numbers")
        values = values.astype(self._space.dtype)
        return np.clip(values, self._space.low, self._space.high) if self._clip else values  # type: ignore[attr-defined]


def _idle_action(space: Space) -> Any:
    """An action that the space takes: 0 or what is nearest to it; of choices, the first."""
    if isinstance(space, spaces.Box):
        return np.clip(np.zeros(space.shape), space.low, space.high)
    return np.zeros(space.shape or (), np.int64) + np.asarray(getattr(space, "start", 0))


def leaves(space: Space, alone: str) -> Iterator[tuple[str, Space]]:
    """Entries that are no Dict or Tuple, named by keys and indices joined by `/`; `alone` names a space without any."""
    return (("/".join(str(key) for key in path) or alone, leaf) for path, leaf in walk(space, ()))


def _as_boxes(space: Space) -> Space:
    """The same space with numbers where it has choices, so that nothing is made one-hot."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict([(key, _as_boxes(entry)) for key, entry in space.spaces.items()])
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_as_boxes(entry) for entry in space.spaces])
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        limits = np.iinfo(np.int64)
        return spaces.Box(limits.min, limits.max, space.shape, np.int64)
    return space


def _split(space: Space, values: Any, num_envs: int) -> list[Any]:
    if isinstance(space, spaces.Dict):
        parts = {key: _split(entry, values[key], num_envs) for key, entry in space.spaces.items()}
        return [{key: part[row] for key, part in parts.items()} for row in range(num_envs)]
    if isinstance(space, spaces.Tuple):
        entries = [_split(entry, part, num_envs) for entry, part in zip(space.spaces, values, strict=True)]
        return list(zip(*entries, strict=True))
    return values.tolist() if isinstance(space, spaces.Discrete) else [np.asarray(value) for value in values]
