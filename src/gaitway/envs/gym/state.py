"""The state of a gymnasium environment as plain values, so that a run resumes bit for bit without pickle.

Gymnasium has no state interface, so we look: of every object from the outermost wrapper down to `unwrapped` the
attributes are stored by value. Numbers, strings, None, numpy arrays and scalars, tuples, lists and dicts of these,
numpy generators and MuJoCo's MjData are understood. What never carries episode state (spaces, models, renderers,
functions, constructor arguments) is left out. Anything else makes the snapshot incomplete, and the caller learns its
name.
"""

from __future__ import annotations

import functools
import logging
import math
import types
from collections import deque
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec

STATELESS_NAMES = {"env", "spec", "metadata", "_cached_spec", "_saved_kwargs", "_ezpickle_args", "_ezpickle_kwargs"}
STATELESS_TYPES = (
    gymnasium.Space,
    gymnasium.Env,
    EnvSpec,
    logging.Logger,
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    functools.partial,
)
STATELESS_MODULES = ("pygame", "glfw", "OpenGL", "cv2", "gymnasium.envs.mujoco.mujoco_rendering", "mujoco.renderer")
BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
"""NumPy's; other names of its module that a file may hold are functions."""
INT64 = range(-(2**63), 2**63)
MAX_DEPTH = 16
"""Deeper nesting is taken for a cycle."""


class UnknownStateError(TypeError):
    """A value whose state cannot be stored as plain numbers."""


def snapshot(env: gymnasium.Env) -> tuple[list[dict[str, Any]], list[str]]:
    """Plain state of every layer, outermost first, and the attributes that could not be stored (`Class.name`)."""
    layers, unknown = [], []
    for layer in _layers(env):
        stored = {}
        for name, value in vars(layer).items():
            if name in STATELESS_NAMES or _is_stateless(value):
                continue
            try:
                stored[name] = _encode_physics(layer, value) if _is_mujoco(value, "MjData") else encode(value)
            except UnknownStateError:
                unknown.append(f"{type(layer).__name__}.{name}")
        layers.append(stored)
    return layers, unknown


def restore(env: gymnasium.Env, layers: list[dict[str, Any]]) -> None:
    """Bring `env`, made the same way, to a state taken by `snapshot`."""
    own = list(_layers(env))
    if len(own) != len(layers):
        raise ValueError(f"the stored environment has {len(layers)} layers of wrappers, this one {len(own)}")
    for layer, stored in zip(own, layers, strict=True):
        for name, value in stored.items():
            if name.startswith("__"):
                raise ValueError(f"the stored environment state sets {name!r}, which no episode changes")
            present = vars(layer).get(name)
            if _is_mujoco(present, "MjData"):
                from gaitway.envs.gym.mujoco_state import decode_data

                decode_data(layer, present, value)
            elif isinstance(present, np.random.Generator) and isinstance(value, Mapping) and "generator" in value:
                _set_generator(present, value)  # in place: other objects may hold the same generator
            else:
                setattr(layer, name, decode(value))


def encode(value: Any, depth: int = 0) -> Any:
    """A value as nested dicts of tensors, numbers, strings and lists; `decode` gives back an equal one, same types."""
    if depth > MAX_DEPTH:
        raise UnknownStateError("nested too deeply")
    if value is None:
        return {"none": 1}
    if isinstance(value, np.generic | np.ndarray):
        return _encode_array(value)
    if type(value) in (bool, str) or (type(value) is float and math.isfinite(value)):
        return value
    if type(value) is int:
        return value if value in INT64 else {"int": str(value)}
    if type(value) is float:
        return {"float": repr(value)}
    if type(value) is list:
        return [encode(entry, depth + 1) for entry in value]
    if type(value) in (tuple, set):
        return {type(value).__name__: [encode(entry, depth + 1) for entry in value]}
    if type(value) is deque:
        return {"deque": [-1 if value.maxlen is None else value.maxlen, [encode(entry, depth + 1) for entry in value]]}
    if type(value) is dict:
        return {"dict": [[encode(key, depth + 1), encode(entry, depth + 1)] for key, entry in value.items()]}
    if isinstance(value, np.random.Generator):
        return {"generator": encode(value.bit_generator.state, depth + 1)}
    raise UnknownStateError(type(value).__name__)


def decode(stored: Any) -> Any:
    """The inverse of `encode`."""
    if isinstance(stored, list):
        return [decode(entry) for entry in stored]
    if not isinstance(stored, Mapping):
        return stored
    if "array" in stored:
        return _decode_array(stored)
    ((kind, content),) = stored.items()
    match kind:
        case "none":
            return None
        case "int" | "float":
            return {"int": int, "float": float}[kind](content)
        case "tuple" | "set":
            return {"tuple": tuple, "set": set}[kind](decode(entry) for entry in content)
        case "deque":
            limit, entries = content
            return deque(decode(entries), None if limit < 0 else limit)
        case "dict":
            return {decode(key): decode(entry) for key, entry in content}
        case "generator":
            name = decode(content)["bit_generator"]
            if name not in BIT_GENERATORS:
                raise ValueError(f"the stored environment state names the bit generator {name!r}, which NumPy has not")
            generator = np.random.Generator(getattr(np.random, name)())
            _set_generator(generator, stored)
            return generator
    raise ValueError(f"unknown kind {kind!r} in the stored environment state")


def _layers(env: gymnasium.Env) -> list[gymnasium.Env]:
    layers = [env]
    while isinstance(layers[-1], gymnasium.Wrapper):
        layers.append(layers[-1].env)
    return layers


def _is_stateless(value: Any) -> bool:
    module = type(value).__module__
    return (
        isinstance(value, STATELESS_TYPES)
        or _is_mujoco(value, "MjModel")
        or any(module == name or module.startswith(f"{name}.") for name in STATELESS_MODULES)
    )


def _encode_array(value: np.generic | np.ndarray) -> dict[str, Any]:
    """Bytes, type and shape: exact for every numpy type, also those torch does not know (text, uint32)."""
    array = np.asarray(value)
    plain = type(value) is np.ndarray or isinstance(value, np.generic)
    if array.dtype.hasobject or array.dtype.names or not plain:
        raise UnknownStateError(f"array of {array.dtype}")
    data = torch.frombuffer(bytearray(array.tobytes()), dtype=torch.uint8) if array.nbytes else torch.zeros(0)
    return {
        "array": data.to(torch.uint8),
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "scalar": int(isinstance(value, np.generic)),
    }


def _decode_array(stored: Mapping[str, Any]) -> np.ndarray | np.generic:
    flat = np.frombuffer(stored["array"].cpu().numpy().tobytes(), dtype=np.dtype(stored["dtype"]))
    array = flat.reshape(stored["shape"]).copy()
    return array[()] if stored["scalar"] else array


def _set_generator(generator: np.random.Generator, stored: Mapping[str, Any]) -> None:
    state = decode(stored["generator"])
    if state["bit_generator"] != generator.bit_generator.state["bit_generator"]:
        raise ValueError(
            f"the stored generator is a {state['bit_generator']}, this environment uses "
            f"{generator.bit_generator.state['bit_generator']}; resume with the same environment version"
        )
    generator.bit_generator.state = state


def _is_mujoco(value: Any, name: str) -> bool:
    """Whether `value` is MuJoCo's class `name`, which is not imported to find out."""
    return type(value).__name__ == name and type(value).__module__.startswith("mujoco")


def _encode_physics(owner: Any, data: Any) -> dict[str, Any]:
    from gaitway.envs.gym.mujoco_state import encode_data

    try:
        return encode_data(owner, data)
    except TypeError as error:
        raise UnknownStateError(str(error)) from error
