"""Makes gymnasium vector environments and finds out what they promise: time limit, clock, auto-reset mode."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import inspect
import multiprocessing
import os
import queue
import re
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.async_vector_env import AsyncState
from gymnasium.vector.utils import concatenate, iterate

from gaitway.core.config import configuration
from gaitway.core.ranges import Positive
from gaitway.core.trust import judge, judge_options, present_folder
from gaitway.core.user_code import UserCodeError, blamed
from gaitway.envs.gym.async_workers import PATIENCE_S, Team, WatchedPipe, end_processes, serve
from gaitway.processes.lifeline import end_before_exit, tie, without_signals

EnvFactory = Callable[[], gymnasium.Env]


EXPECTED = {
    "step": "returns (observation, reward, terminated, truncated, info), the reward a number and the observation of "
    "observation_space",
    "reset": "takes seed= and options= and returns (observation, info), the observation of observation_space",
    "__init__": "sets observation_space and action_space, and takes render_mode=None if there are pictures",
}
"""What gymnasium's API says of the methods of an environment."""


@configuration
class AsyncOptions:
    """How processes run one environment each (`vectorization="async"`)."""

    context: str | None = None
    """Start method of the processes: fork, spawn, forkserver; None for Python's default."""
    shared_memory: bool = True
    """Observations travel through shared memory; turn it off for spaces that gymnasium cannot share."""
    copy: bool = False
    """Let gymnasium copy observations once more; the adapter copies them anyway."""
    daemon: bool = True
    """Processes die with this one, but may not start processes of their own."""
    worker: Callable[..., None] | None = None
    """A function that replaces gymnasium's worker loop."""
    step_timeout_s: Positive | None = None
    """Longest wait for one step of all instances; None waits for ever."""
    reset_timeout_s: Positive | None = None
    """Longest wait for one reset of all instances."""

    @classmethod
    def of(cls, given: AsyncOptions | Mapping[str, Any] | None) -> AsyncOptions:
        if isinstance(given, AsyncOptions):
            return given
        known = [field.name for field in dataclasses.fields(cls)]
        for name in given or {}:
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                raise ValueError(
                    f"no async option {name!r}; " + (f"did you mean {close[0]!r}?" if close else f"{known}")
                )
        return cls(**(given or {}))


@dataclasses.dataclass(frozen=True)
class Facts:
    """What the instances of a vector environment have in common."""

    id: str
    max_episode_steps: int = 0
    control_dt: float = 0.0
    has_time_limit: bool = False
    """A gymnasium TimeLimit counts the steps, so that episode ages can be set."""


class _LeanInfos:
    """Keeps of the infos only what the adapter reads; gathering all of them costs more than many environments do."""

    kept_metrics: tuple[str, ...] = ()

    def _add_info(self, vector_infos: dict[str, Any], env_info: dict[str, Any], env_num: int) -> dict[str, Any]:
        lean = {name: float(env_info[name]) for name in self.kept_metrics if name in env_info}
        lean |= {name: env_info[name] for name in ("final_obs", "final_info") if name in env_info}
        return super()._add_info(vector_infos, lean, env_num) if lean else vector_infos  # type: ignore[misc]


class _LeanSync(_LeanInfos, SyncVectorEnv):
    """Steps the environments of this process and resets in the same step. What it returns is its own memory."""

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """As gymnasium's, which takes half as long again as small environments do: it handles every auto-reset mode,
        gathers infos that nobody reads, copies, and stacks observations in Python."""
        infos: dict[str, Any] = {}
        rewards, terminations, truncations = self._rewards, self._terminations, self._truncations
        for index, (env, action) in enumerate(zip(self.envs, iterate(self.action_space, actions), strict=True)):
            said = env.step(action)
            try:
                obs, rewards[index], terminated, truncated, info = said
            except (TypeError, ValueError) as error:
                raise UserCodeError(blamed(env.unwrapped, "step", f"returned {_described(said)}", EXPECTED)) from error
            terminations[index], truncations[index] = terminated, truncated
            if terminated or truncated:
                infos.setdefault("final_obs", np.full(self.num_envs, None, dtype=object))[index] = obs
                if self.kept_metrics:
                    infos = self._add_info(infos, {"final_info": info}, index)
                obs, info = env.reset()
            self._env_obs[index] = obs
            if self.kept_metrics:
                infos = self._add_info(infos, info, index)
        return self._stacked(), rewards, terminations, truncations, infos

    def _stacked(self) -> Any:
        """The observations of all instances; for those of one array each in one call."""
        space, batch = self.single_observation_space, self._observations
        if isinstance(space, spaces.Box) and space.shape:
            np.concatenate(self._env_obs, out=batch.reshape(-1, *space.shape[1:]))  # type: ignore[arg-type]
            return batch
        return concatenate(space, self._env_obs, batch)


def _described(said: Any) -> str:
    if isinstance(said, tuple | list):
        kinds = ", ".join(type(each).__name__ for each in said)
        return f"{len(said)} values ({kinds})"
    return "nothing (None)" if said is None else f"a {type(said).__name__}"


class _LeanAsync(_LeanInfos, AsyncVectorEnv):
    """One process per environment, each watched; `name` is what the environment is called in messages."""

    _team: Team | None = None

    def __init__(self, factories: Sequence[EnvFactory], name: str, **arguments: Any) -> None:
        method = arguments.get("context") or multiprocessing.get_start_method()
        # a server of forks is also the parent of others' processes: it must stay as it is, and none is tied to it
        is_served = method == "forkserver"
        parent = None if is_served else tie(method)
        arguments["worker"] = functools.partial(serve, parent, arguments.get("worker"))
        self._name, self._masked = name, contextlib.ExitStack()
        end_before_exit(self, functools.partial(_end_workers, weakref.ref(self)))
        first = factories[0] if is_served else _First(factories[0], self._masked)
        try:
            with self._masked:
                super().__init__([first, *factories[1:]], **arguments)
        except BaseException:
            _end_workers(weakref.ref(self))
            raise

    def _check_spaces(self) -> None:
        """The first thing gymnasium does when all processes are started."""
        self._team = Team(self, self._name)
        self._masked.close()
        super()._check_spaces()

    def _assert_is_running(self) -> None:
        super()._assert_is_running()
        if self._team is not None:
            self._team.assert_is_running()

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        failed = [index for index, success in enumerate(successes) if not success]
        if not failed or self._team is None:
            return
        self._state = AsyncState.DEFAULT
        try:
            index, kind, value, trace = self.error_queue.get(timeout=PATIENCE_S)
        except queue.Empty:  # it was killed while it was saying more
            index, kind, value, trace = failed[0], RuntimeError, "", ""
        raise self._team.failure_of(index, kind, value, trace)

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        if self._team is not None:
            self._team.end(0.0 if terminate else PATIENCE_S if timeout is None else timeout)


class _First:
    """The factory that gymnasium calls before it starts the processes, which then are to see no signals; see
    `without_signals`. To the processes it is the factory alone."""

    def __init__(self, factory: EnvFactory, masked: contextlib.ExitStack) -> None:
        self._factory, self._masked = factory, masked
        self._owner: int | None = os.getpid()

    def __call__(self) -> gymnasium.Env:
        env = self._factory()
        if self._owner == os.getpid():
            self._owner = None
            self._masked.enter_context(without_signals())
        return env

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial, (self._factory,)


def _end_workers(reference: weakref.ref[_LeanAsync]) -> None:
    vector = reference()
    if vector is not None:
        end_processes(getattr(vector, "processes", ()))


def make_vector(
    source: str | EnvFactory | Sequence[EnvFactory] | VectorEnv,
    num_envs: int,
    vectorization: str,
    async_options: AsyncOptions,
    metrics: tuple[str, ...],
    options: Mapping[str, Any],
) -> VectorEnv:
    """A ready vector environment as it is, everything else vectorised with same-step resets."""
    if isinstance(source, VectorEnv):
        if isinstance(source.unwrapped, AsyncVectorEnv) and not isinstance(source.unwrapped, _LeanAsync):
            Team(source.unwrapped, str(source))
        return source
    if num_envs < 1:
        raise ValueError(f"num_envs is {num_envs}; use at least 1")
    factories: Sequence[EnvFactory]
    if isinstance(source, str):
        # check_env looks closer than gymnasium's checker, which costs time in every step
        judge_options(options, "env.options")
        factories = [functools.partial(make_registered, source, disable_env_checker=True, **options)] * num_envs
    else:
        factories = [source] * num_envs if callable(source) else list(source)
    try:
        if vectorization == "sync":
            vector: VectorEnv = _LeanSync(factories, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
        elif vectorization == "async":
            arguments = dataclasses.asdict(async_options)
            del arguments["step_timeout_s"], arguments["reset_timeout_s"]
            name = source if isinstance(source, str) else getattr(factories[0], "__name__", type(factories[0]).__name__)
            vector = _LeanAsync(factories, name, autoreset_mode=AutoresetMode.SAME_STEP, **arguments)
        else:
            raise ValueError(f"vectorization is {vectorization!r}; use 'sync' or 'async'")
    except (TypeError, AttributeError) as error:
        _check_spaces(factories[0], error)
        raise
    except gymnasium.error.UnregisteredEnv as error:
        raise ValueError(f"gymnasium has no environment {source!r}; {nearest(str(source))}") from error
    vector.kept_metrics = metrics  # type: ignore[attr-defined]
    return vector


def make_registered(id: str, **options: Any) -> gymnasium.Env:
    """`gymnasium.make`, which imports `module` for an id `module:Env-v0`: as far as whoever names it may."""
    if ":" in id:
        judge(id, "env.id")
    try:
        with present_folder() if ":" in id else contextlib.nullcontext():
            return gymnasium.make(id, **options)
    except TypeError as error:
        unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if unknown is None or unknown[1] not in options:
            raise
        raise ValueError(f"gymnasium:{id} has no option {unknown[1]!r}; remove it from env.options") from error


def check_workers(vector: VectorEnv) -> None:
    """Raise if a process of an asynchronous vector environment has ended."""
    base = vector.unwrapped
    if isinstance(base, AsyncVectorEnv) and not base.closed:
        for pipe in base.parent_pipes:
            if isinstance(pipe, WatchedPipe):
                pipe.team.check()
                return


def _check_spaces(factory: EnvFactory, error: Exception) -> None:
    """Whether an environment that no vector could be made of lacks its spaces."""
    with factory() as env:
        for name in ("observation_space", "action_space"):
            if not isinstance(getattr(env, name, None), spaces.Space):
                deed = f"sets {name} to {getattr(env, name, None)!r}, which is no space of gymnasium"
                raise UserCodeError(blamed(env.unwrapped, "", deed)) from error


def draws_pictures(id: str) -> bool:
    """Whether an environment says that it can be made with `render_mode="rgb_array"`; others are not filmed."""
    try:
        entry = gymnasium.spec(id).entry_point
        made = load_env_creator(entry) if isinstance(entry, str) else entry
    except (gymnasium.error.Error, ImportError, AttributeError):  # who makes it says what is wrong
        return False
    modes = getattr(made, "metadata", {}).get("render_modes", ())
    try:
        parameters = inspect.signature(made).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "rgb_array" in modes
    takes = any(each.name == "render_mode" or each.kind is each.VAR_KEYWORD for each in parameters)
    return takes and ("rgb_array" in modes or not isinstance(made, type))


def nearest(id: str) -> str:
    """Names the registered gymnasium ids that look most like `id`."""
    close = difflib.get_close_matches(id, list(gymnasium.registry), 3, 0.5)
    return f"did you mean {' or '.join(close)}?" if close else "see gymnasium.pprint_registry()"


def autoreset_mode(vector: VectorEnv) -> AutoresetMode:
    """How `vector` resets; a wrong guess would mix up episodes, so it has to say."""
    mode = vector.metadata.get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise ValueError(
            f"{vector} does not say how it resets; set metadata['autoreset_mode'] to a gymnasium.vector.AutoresetMode"
        )
    return mode


def facts_of(vector: VectorEnv) -> Facts:
    """Look at one instance: of this process, or a fresh one where they live in other processes."""
    base = vector.unwrapped
    if isinstance(base, SyncVectorEnv):
        return _facts_of_single(base.envs[0])
    if isinstance(base, AsyncVectorEnv):
        probe = base.env_fns[0]()
        try:
            return _facts_of_single(probe)
        finally:
            probe.close()
    spec = vector.spec
    name = getattr(spec, "id", None) or type(base).__name__
    limit = getattr(spec, "max_episode_steps", None) or getattr(base, "max_episode_steps", None) or 0
    return Facts(name, int(limit))


def _facts_of_single(env: gymnasium.Env) -> Facts:
    limits, layer = [], env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, gymnasium.wrappers.TimeLimit):
            limits.append(layer._max_episode_steps)
        layer = layer.env
    name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    registered = getattr(env.spec, "max_episode_steps", None) or 0
    dt = getattr(env.unwrapped, "dt", 0.0)
    control_dt = float(dt) if isinstance(dt, int | float) else 0.0
    return Facts(name, int(min(limits, default=registered)), control_dt, bool(limits))
