"""`make_env`: one call for every environment, wherever it comes from.

| id | what it is |
|---|---|
| `HalfCheetah-v5`, `walker/run`, ... (`NATIVE_TASKS`) | our tasks on MuJoCo's native batch |
| `toy/cue`, `point/skills` | batched toys on arrays |
| `gymnasium:CartPole-v1` | any registered gymnasium environment |
| `envpool:HalfCheetah-v5` | any EnvPool environment |
| `mjlab:Mjlab-Cartpole-Balance` | any task of mjlab, where that is installed |
| `package.module:Name` | a class of yours, called with the same keyword arguments |
"""

from __future__ import annotations

import difflib
import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import torch

from gaitway.core.config import ConfigError, did_you_mean, resolve_class
from gaitway.core.execution import check_device
from gaitway.core.parts import make_part
from gaitway.core.seeding import SeedFrom, check_seed
from gaitway.core.trust import judge_options
from gaitway.core.user_code import UserCode, UserCodeError, place_of
from gaitway.envs.gym.registration import NAMESPACE
from gaitway.envs.spec import EnvSpec
from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.toys.toy_env import ToyEnv
from gaitway.envs.toys.toys import TOYS
from gaitway.envs.vec_env import VecEnv
from gaitway.envs.wrappers import make_wrapper

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec as GymnasiumSpec


log = logging.getLogger("gaitway")

SIMULATORS = ("mujoco", "warp")
COMMON = ("num_envs", "seed", "num_threads", "device", "dtype", "purpose")
"""What every environment is made with."""


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
    simulator: str = "mujoco",
    **options: Any,
) -> VecEnv:
    """`num_envs` instances of environment `id`, reset with `seed`; `options` are those of the task.

    `simulator` of a native task: `mujoco`, on the threads of the CPU, or `warp`, on the GPU (extra `gpu`).
    `wrappers` are applied in order, the first one innermost. Evaluation environments take `purpose="evaluation"`, which
    draws from streams that training never sees.
    """
    if not isinstance(id, str):
        raise TypeError(f"the environment id is {id!r}; use a string such as 'walker/run' (list_envs() names them all)")
    if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
        raise ValueError(f"num_envs is {num_envs!r}; use a positive integer")
    common: dict[str, Any] = {
        "num_envs": num_envs,
        "seed": _seed(seed),
        "num_threads": num_threads,
        "device": check_device(device),
        "dtype": _dtype(dtype),
        "purpose": purpose,
    }
    judge_options(options, "env.options")
    env = _make(id, common, options, simulator)
    for wrapper in wrappers:
        env = make_wrapper(env, wrapper)
    env.recipe = partial(
        make_env, id, num_envs, seed, num_threads, device, dtype, purpose, tuple(wrappers), simulator, **options
    )
    return env


def list_envs() -> list[EnvInfo]:
    """Everything that `make_env` can name by itself; EnvPool's own list is `envpool.list_all_envs()`."""
    native = [EnvInfo(name, "native", task.description) for name, task in NATIVE_TASKS.items()]
    toys = [EnvInfo(name, "toy", " ".join((toy.__doc__ or "").split("\n\n")[0].split())) for name, toy in TOYS.items()]
    foreign = [
        EnvInfo(f"gymnasium:{name}", "gymnasium", _description(spec))
        for name, spec in gymnasium.registry.items()
        if _is_makeable(spec)
    ]
    return native + toys + foreign


def _make(id: str, common: dict[str, Any], options: dict[str, Any], simulator: str) -> VecEnv:
    prefix, _, rest = id.partition(":")
    if simulator not in SIMULATORS:
        raise ValueError(f"simulator is {simulator!r}; use one of {list(SIMULATORS)}")
    if id in NATIVE_TASKS:
        return _make_native(id, common, options, simulator)
    if simulator != "mujoco" and (id in TOYS or rest):
        raise ValueError(f"simulator={simulator} is for native tasks, and {id} brings its own; leave simulator out")
    if id in TOYS:
        return ToyEnv(make_part({**options, "name": id}, TOYS, "env.options", given={}), id=id, **common)
    if prefix == "gymnasium" and rest:
        from gaitway.envs.gym.env import GymnasiumEnv

        return GymnasiumEnv(rest, **common, **options)
    if prefix == "envpool" and rest:
        from gaitway.envs.gym.envpool_env import EnvPoolEnv

        return EnvPoolEnv(rest, **common, **options)
    if prefix == "mjlab" and rest:
        from gaitway.envs.foreign.manager_env import make_mjlab

        return make_mjlab(rest, **common, **options)
    if rest:
        return _make_own(id, common, options)
    raise ValueError(f"no environment {id!r}; {_nearest(id)}")


def _make_native(id: str, common: dict[str, Any], options: dict[str, Any], simulator: str) -> VecEnv:
    from gaitway.envs.batch_task import BatchTask
    from gaitway.envs.mujoco_batch import MujocoBatchEnv
    from gaitway.envs.warp_worlds import capacity_of

    room = capacity_of(options.get("capacity"))
    task = NATIVE_TASKS[id](**{name: value for name, value in options.items() if name != "capacity"})
    if simulator == "warp":
        from gaitway.envs.mujoco_warp import WarpEnv

        return WarpEnv(task, id=id, capacity=room, **common)
    has_tensors = type(task).on_tensors is not BatchTask.on_tensors
    if common["device"].type == "cuda" and has_tensors and common["purpose"] == "train":
        from gaitway.envs.warp_worlds import missing

        need = "" if missing() is None else " (pip install 'gaitway[gpu]')"
        log.info("physics of %s runs on the CPU; env.simulator=warp%s runs it on the GPU, many times faster", id, need)
    return MujocoBatchEnv(task, id=id, **common)


OWN = {"__init__": f"takes {', '.join(COMMON)} and its options; write **common for those that it does not need"}


def _make_own(id: str, common: Mapping[str, Any], options: Mapping[str, Any]) -> VecEnv:
    """An environment of the user's; what is no `VecEnv` is refused."""
    from gaitway.envs.batch_task import BatchTask  # knows MuJoCo, which not every run needs

    try:
        made = resolve_class(id, "env.id", VecEnv)
    except ConfigError as error:
        if hint := did_you_mean(id, [name for name in NATIVE_TASKS if ":" in name]):
            raise ConfigError(f"no environment {id!r}{hint}, and {error}", "env.id") from error
        raise
    if isinstance(made, type) and not issubclass(made, VecEnv):
        advice = "derive it from gaitway.VecEnv"
        if issubclass(made, gymnasium.Env):
            advice = "register it with gymnasium and use gymnasium:ID"
        elif issubclass(made, BatchTask):
            advice = "name a class or function that returns MujocoBatchEnv(task, num_envs, ...)"
        raise UserCodeError(f"env.id: {place_of(made)} is no VecEnv; {advice}")
    if not callable(made):
        raise UserCodeError(f"env.id: {id!r} is {made!r}; name a class or a function that returns a VecEnv")
    try:
        inspect.signature(made).bind(**common, **options)
    except TypeError as error:
        name = place_of(made) if isinstance(made, type) else id
        raise UserCodeError(f"env.id: {name}: {error}; its constructor {OWN['__init__']}") from error
    with UserCode(OWN):
        env = made(**common, **options)
    if not isinstance(env, VecEnv):
        raise UserCodeError(f"env.id: {id!r} made a {type(env).__name__}; it should make a gaitway.VecEnv")
    for name, kind in (("spec", EnvSpec), ("num_envs", int), ("device", torch.device)):
        if not isinstance(getattr(env, name, None), kind):
            raise UserCodeError(f"env.id: {place_of(env)} does not set self.{name}; set it to a {kind.__name__}")
    if env.num_envs != common["num_envs"]:
        raise UserCodeError(
            f"env.id: {place_of(env)} has num_envs {env.num_envs}, and {common['num_envs']} were asked for"
        )
    return env


def _is_makeable(spec: GymnasiumSpec) -> bool:
    """False where gymnasium keeps an id only to say that it moved elsewhere (MuJoCo v2 and v3, GymV21, GymV26), and for
    our own tasks, which are listed as native ones."""
    is_moved = getattr(spec.entry_point, "__name__", "").startswith("_raise_")
    return spec.entry_point is not None and not is_moved and spec.namespace != NAMESPACE


def _description(spec: GymnasiumSpec) -> str:
    entry = spec.entry_point
    if isinstance(entry, str):
        module, _, name = entry.partition(":")
    else:
        module, name = getattr(entry, "__module__", ""), getattr(entry, "__qualname__", type(entry).__name__)
        name = name.replace("<lambda>", "lambda").replace("<locals>.", "")
    return f"{name} of {module}, through gymnasium"


def _nearest(id: str) -> str:
    bare: dict[str, str] = {}
    for info in list_envs():  # native tasks come first and keep the ids that gymnasium also has
        bare.setdefault(info.id.removeprefix("gymnasium:"), info.id)
    close = [bare[match] for match in difflib.get_close_matches(id, list(bare), 3, 0.5)]
    if close:
        return f"did you mean {' or '.join(close)}?"
    return "`gaitway list envs` names ours; others are gymnasium:ID, envpool:ID, mjlab:ID and package.module:Name"


def _seed(seed: int | Sequence[int]) -> int | Sequence[int]:
    """One integer, checked here, or several, which the environment counts and checks."""
    is_list = isinstance(seed, Sequence | np.ndarray) and not isinstance(seed, str)
    return seed if is_list or isinstance(seed, SeedFrom) else check_seed(seed)  # type: ignore[arg-type]


def _dtype(dtype: torch.dtype | str) -> torch.dtype:
    found = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ValueError(f"dtype is {dtype!r}; use a floating point type such as 'float32'")
    return found
