"""Makes gymnasium vector environments and finds out what they promise: time limit, clock, auto-reset mode."""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, iterate

from gaitway.core.trust import judge, judge_options, present_folder

EnvFactory = Callable[[], gymnasium.Env]


@dataclasses.dataclass(frozen=True)
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
    step_timeout_s: float | None = None
    """Longest wait for one step of all instances; None waits for ever."""
    reset_timeout_s: float | None = None
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
            obs, rewards[index], terminated, truncated, info = env.step(action)
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


class _LeanAsync(_LeanInfos, AsyncVectorEnv):
    pass


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
            vector = _LeanAsync(factories, autoreset_mode=AutoresetMode.SAME_STEP, **arguments)
        else:
            raise ValueError(f"vectorization is {vectorization!r}; use 'sync' or 'async'")
    except gymnasium.error.UnregisteredEnv as error:
        raise ValueError(f"gymnasium has no environment {source!r}; {nearest(str(source))}") from error
    vector.kept_metrics = metrics  # type: ignore[attr-defined]
    return vector


def make_registered(id: str, **options: Any) -> gymnasium.Env:
    """`gymnasium.make`, which imports `module` for an id `module:Env-v0`: as far as whoever names it may."""
    if ":" not in id:
        return gymnasium.make(id, **options)
    judge(id, "env.id")
    with present_folder():
        return gymnasium.make(id, **options)


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
