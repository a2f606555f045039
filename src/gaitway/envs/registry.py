"""`make_env`: one call for every environment, wherever it comes from.

| id | what it is |
|---|---|
| `HalfCheetah-v5`, `walker/run`, ... (`NATIVE_TASKS`) | our tasks on MuJoCo's native batch |
| `toy/cue` | batched toys on tensors |
| `gymnasium:CartPole-v1` | any registered gymnasium environment |
| `envpool:HalfCheetah-v5` | any EnvPool environment |
| `package.module:Name` | a class of yours, called with the same keyword arguments |
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.tasks.toys import TOYS
from gaitway.envs.toy_env import ToyEnv
from gaitway.envs.vec_env import VecEnv
from gaitway.envs.wrappers import make_wrapper


@dataclass(frozen=True)
class EnvInfo:
    """One line of `list_envs`."""

    id: str
    kind: str
    """"native", "toy" or "gymnasium"."""
    description: str


def make_env(
    id: str,
    num_envs: int = 1,
    seed: int | Sequence[int] = 0,
    num_threads: int | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | str = torch.float32,
    purpose: str = "train",
    wrappers: Sequence[Mapping[str, Any]] = (),
    **options: Any,
) -> VecEnv:
    """`num_envs` instances of environment `id`, reset with `seed`; `options` are those of the task.

    `wrappers` are applied in order, the first one innermost. Evaluation environments take `purpose="evaluation"`, which
    draws from streams that training never sees.
    """
    if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
        raise ValueError(f"num_envs is {num_envs!r}; use a positive integer")
    common: dict[str, Any] = {
        "num_envs": num_envs,
        "seed": seed,
        "num_threads": num_threads,
        "device": torch.device(device),
        "dtype": _dtype(dtype),
        "purpose": purpose,
    }
    env = _make(id, common, options)
    for wrapper in wrappers:
        env = make_wrapper(env, wrapper)
    return env


def list_envs() -> list[EnvInfo]:
    """Everything that `make_env` can name by itself; EnvPool's own list is `envpool.list_all_envs()`."""
    import gymnasium

    native = [EnvInfo(name, "native", f"{name} on MuJoCo's native batch") for name in NATIVE_TASKS]
    toys = [EnvInfo(name, "toy", (toy.__doc__ or "").strip().split("\n")[0]) for name, toy in TOYS.items()]
    foreign = [
        EnvInfo(f"gymnasium:{name}", "gymnasium", f"{name} through gymnasium, {spec.entry_point}")
        for name, spec in gymnasium.registry.items()
    ]
    return native + toys + foreign


def _make(id: str, common: dict[str, Any], options: dict[str, Any]) -> VecEnv:
    prefix, _, rest = id.partition(":")
    if id in NATIVE_TASKS:
        from gaitway.envs.mujoco_batch import MujocoBatchEnv

        return MujocoBatchEnv(NATIVE_TASKS[id](**options), id=id, **common)
    if id in TOYS:
        return ToyEnv(TOYS[id](**options), id=id, **common)
    if prefix == "gymnasium" and rest:
        from gaitway.envs.gymnasium_env import GymnasiumEnv

        return GymnasiumEnv(rest, **common, **options)
    if prefix == "envpool" and rest:
        from gaitway.envs.envpool_env import EnvPoolEnv

        return EnvPoolEnv(rest, **common, **options)
    if rest:
        return _user_class(prefix, rest)(**common, **options)
    raise ValueError(f"no environment {id!r}; {_nearest(id)}")


def _user_class(module: str, name: str) -> Callable[..., VecEnv]:
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise ValueError(f"no module {module!r} ({error}); write package.module:Name and make it importable") from error
    except AttributeError as error:
        raise ValueError(f"module {module!r} has no {name!r}; write package.module:Name") from error


def _nearest(id: str) -> str:
    names = [info.id for info in list_envs()]
    bare = {name.partition(":")[2] or name: name for name in names}
    close = [bare[match] for match in difflib.get_close_matches(id, list(bare), 3, 0.5)]
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there are {', '.join([*NATIVE_TASKS, *TOYS])}, gymnasium:ID, envpool:ID and package.module:Name"


def _dtype(dtype: torch.dtype | str) -> torch.dtype:
    found = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ValueError(f"dtype is {dtype!r}; use a floating point type such as 'float32'")
    return found
