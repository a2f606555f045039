"""How large observations and actions are, and of which kind, for every space in one call.

| space | size |
|---|---|
| Box `(n,)`, also `()` | n, 1 |
| Box with more axes | its shape, with a warning: a network for vectors cannot take it |
| Discrete | number of choices |
| MultiDiscrete | number of choices of each dimension, a tuple |
| MultiBinary | its length, or its shape |
| Dict, Tuple | a dict, a tuple of these |

The functions take a gymnasium space, environment or vector environment, an `EnvSpec`, a `VecEnv` or a `FrameAgent`.
"""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector import VectorEnv

from gaitway.envs.spec import EnvSpec, ObservationGroup
from gaitway.envs.vec_env import VecEnv
from gaitway.frames.agent import FrameAgent
from gaitway.frames.spaces import leaves

Size = int | tuple[Any, ...] | dict[str, Any]
Sized = Space | EnvSpec | gymnasium.Env | VectorEnv | VecEnv | FrameAgent


def observation_size(source: Sized) -> Size:
    """Size of one observation; of several groups a dict by name."""
    found = _found(source, "observation_space")
    if isinstance(found, Space):
        return space_size(found)
    sizes = {group.name: _shape_size(group.shape, f"group {group.name!r}") for group in found.groups}
    return next(iter(sizes.values())) if len(sizes) == 1 else sizes


def action_size(source: Sized) -> Size:
    """Size of one action: dimensions of a continuous one, choices of a discrete one."""
    found = _found(source, "action_space")
    if isinstance(found, Space):
        return space_size(found)
    action = found.action
    return {"continuous": len(action.names), "multi_discrete": action.choices}.get(action.kind, sum(action.choices))


def is_continuous_action(source: Sized) -> bool:
    """Whether the action is a box of floats."""
    found = _found(source, "action_space")
    return _is_continuous(found) if isinstance(found, Space) else found.action.kind == "continuous"


def is_discrete_action(source: Sized) -> bool:
    """Whether the action is a choice, or several."""
    found = _found(source, "action_space")
    return _is_discrete(found) if isinstance(found, Space) else found.action.kind != "continuous"


def is_continuous_observation(source: Sized) -> bool:
    """Whether all that is seen are boxes of floats."""
    found = _found(source, "observation_space")
    return _is_continuous(found) if isinstance(found, Space) else all(_is_float(group) for group in found.groups)


def is_discrete_observation(source: Sized) -> bool:
    """Whether all that is seen are choices. An `EnvSpec` with one-hot groups counts as continuous: it shows floats."""
    found = _found(source, "observation_space")
    return _is_discrete(found) if isinstance(found, Space) else not any(_is_float(group) for group in found.groups)


def space_size(space: Space) -> Size:
    """The table above."""
    if isinstance(space, spaces.Dict):
        return {key: space_size(entry) for key, entry in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(space_size(entry) for entry in space.spaces)
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(space.nvec.reshape(-1).tolist())
    if isinstance(space, spaces.MultiBinary):
        return space.shape[0] if len(space.shape) == 1 else tuple(space.shape)
    if isinstance(space, spaces.Box):
        return _shape_size(space.shape, str(space))
    raise TypeError(f"{space} has no size here; Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple have")


def _shape_size(shape: tuple[int, ...], what: str) -> int | tuple[int, ...]:
    if len(shape) < 2:
        return shape[0] if shape else 1
    warnings.warn(f"{what} has shape {shape}; its size is given as that shape, not as one number", stacklevel=4)
    return tuple(shape)


def _found(source: Sized, name: str) -> Any:
    """The gymnasium space of that name, or an EnvSpec where there is none."""
    if isinstance(source, FrameAgent):
        space = getattr(source.source, name, None)
        return source.spec if space is None else space
    if isinstance(source, VecEnv):
        return source.spec
    if isinstance(source, VectorEnv):
        return getattr(source, f"single_{name}")
    if isinstance(source, gymnasium.Env):
        return getattr(source, name)
    if isinstance(source, Space | EnvSpec):
        return source
    raise TypeError(f"{source!r} has neither spaces nor a spec; pass a space, an environment or its spec")


def _is_continuous(space: Space) -> bool:
    return all(isinstance(leaf, spaces.Box) and np.issubdtype(leaf.dtype, np.floating) for _, leaf in leaves(space, ""))


def _is_discrete(space: Space) -> bool:
    choices = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    return all(isinstance(leaf, choices) for _, leaf in leaves(space, ""))


def _is_float(group: ObservationGroup) -> bool:
    return group.torch_dtype.is_floating_point
