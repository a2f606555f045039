"""Gymnasium environments as sources of frame streams: one after the other in this process, or as a vector environment.

Both give the same rows for the same environments, seeds and actions: environment k is reset with the same integer, and
automatic resets pass no seed, so that its own generator goes on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import Space
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from torch import Tensor

from gaitway.core.workspace import Workspace
from gaitway.envs.gym.spaces import StepBuffers, resized
from gaitway.envs.gym.state import restore, snapshot
from gaitway.envs.gym.vector import EnvFactory, autoreset_mode, facts_of, make_registered, nearest
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation, Step, VecEnv
from gaitway.frames.sources import MODES, FrameSource, VecEnvFrames, ignored_rows
from gaitway.frames.spaces import FrameActions, FrameObservations

WrapperFunction = Callable[[gymnasium.Env], gymnasium.Env]
Source = str | gymnasium.Env | EnvFactory | Sequence[EnvFactory] | Sequence[gymnasium.Env] | VectorEnv | VecEnv


def make_source(source: Source, num_envs: int | None, variable: str, clip: bool, one_hot: bool) -> FrameSource:
    """The frame source behind a `FrameAgent`; `variable` is where its actions are read."""
    if num_envs is not None and num_envs < 1:
        raise ValueError(f"num_envs is {num_envs}; use at least 1")
    factory = functools.partial(make_single, source) if isinstance(source, str) else source
    made: Any = source
    if callable(factory):
        made = factory()
        if isinstance(made, gymnasium.Env):
            made = [made, *(factory() for _ in range((num_envs or 1) - 1))]
    elif isinstance(made, gymnasium.Env):
        made = [made]
    if isinstance(made, VecEnv | VectorEnv):
        if num_envs is not None and num_envs != made.num_envs:
            raise ValueError(f"num_envs is {num_envs}, but the environment has {made.num_envs}; leave num_envs out")
        if isinstance(made, VecEnv):
            return VecEnvFrames(made, variable, clip)
        return VectorFrames(made, variable, clip, one_hot)
    if not isinstance(made, Sequence):
        raise TypeError(
            f"the source is {source!r}; use a gymnasium id, an environment, a factory, a list of either, a gymnasium "
            "VectorEnv or a VecEnv"
        )
    envs = [env if isinstance(env, gymnasium.Env) else env() for env in made]
    if num_envs is not None and num_envs != len(envs):
        raise ValueError(f"num_envs is {num_envs}, but there are {len(envs)} environments; leave num_envs out")
    return SingleEnvs(envs, variable, clip, one_hot)


def make_single(
    id: str, *, wrappers: Iterable[WrapperFunction] = (), autoreset: bool = False, **options: Any
) -> gymnasium.Env:
    """`Autoreset(Wn(...W1(gymnasium.make(id, **options))))`: the first wrapper is innermost, `Autoreset` outermost."""
    try:
        # gymnasium's checker costs time in every step; check_env looks closer
        env = make_registered(id, **{"disable_env_checker": True, **options})
    except gymnasium.error.UnregisteredEnv as error:
        raise ValueError(f"gymnasium has no environment {id!r}; {nearest(id)}") from error
    for wrapper in wrappers:
        env = wrapper(env)
    return gymnasium.wrappers.Autoreset(env) if autoreset else env


class GymnasiumFrames(FrameSource):
    """What environments with gymnasium spaces have in common."""

    observation_space: Space
    action_space: Space

    def _make_codecs(self, variable: str, clip: bool, one_hot: bool, control_dt: float, limit: int) -> None:
        """Make what reads actions and shows observations, for `num_envs` environments with the spaces of this one."""
        self._observations = FrameObservations(self.observation_space, one_hot)
        self._actions = FrameActions(self.action_space, self.num_envs, variable, clip)
        self.groups = self._observations.groups
        action = self._actions.spec
        self.spec = None
        if action is not None:
            self.spec = EnvSpec(f"gymnasium:{self.id}", self.groups, action, control_dt, limit)
        self._buffers = StepBuffers(self._observations.codec, self.num_envs, (), torch.float32)

    def _step(self, final: Observation) -> Step:
        """What the buffers hold."""
        buffers, shown = self._buffers, self._observations.shown
        return Step(shown(buffers.obs), buffers.reward, buffers.terminated, buffers.truncated, shown(final), {})


class SingleEnvs(GymnasiumFrames):
    """Gymnasium environments stepped one after the other in this process.

    Resets are made here, by `reset()`, which an `Autoreset` wrapper in the stack understands too: its presence changes
    the default mode, never the stream.
    """

    remedy = f"use one of {MODES}"

    def __init__(self, envs: Sequence[gymnasium.Env], variable: str, clip: bool, one_hot: bool) -> None:
        if not envs:
            raise ValueError("there are no environments; use num_envs >= 1")
        self.envs = list(envs)
        first = self.envs[0]
        for name in ("observation_space", "action_space"):
            for index, env in enumerate(self.envs):
                if getattr(env, name) != getattr(first, name):
                    raise ValueError(
                        f"{name} of environment {index} is {getattr(env, name)}, of environment 0 "
                        f"{getattr(first, name)}; one agent steps environments of one kind"
                    )
        self.num_envs = len(self.envs)
        self.id = first.spec.id if first.spec is not None else type(first.unwrapped).__name__
        self.observation_space, self.action_space = first.observation_space, first.action_space
        limit = getattr(first.spec, "max_episode_steps", None) or 0
        self._make_codecs(variable, clip, one_hot, 0.0, limit)
        self.modes = MODES if has_autoreset(first) else ("frozen", "framed", "compact")

    def reset(self, seeds: list[int]) -> Observation:
        for row, (env, seed) in enumerate(zip(self.envs, seeds, strict=True)):
            self._write(env.reset(seed=seed)[0], self._buffers.obs, row)
        return self._observations.shown(self._buffers.obs)

    def step(self, ws: Workspace, t: int, ended: Tensor, mode: str) -> Step:
        actions, resting = self._actions.singles(ws, t, ignored_rows(ended, mode)), ended.tolist()
        buffers = self._buffers
        reward, terminated, truncated = (np.zeros(self.num_envs, kind) for kind in (np.float64, bool, bool))
        for row, env in enumerate(self.envs):
            if resting[row] and mode != "compact":
                if mode == "framed":
                    self._write(env.reset()[0], buffers.obs, row)
                continue
            raw, reward[row], fallen, late, _ = env.step(actions[row])
            terminated[row], truncated[row] = fallen, late and not fallen  # termination wins
            self._write(raw, buffers.obs, row)
            if mode == "compact" and (fallen or late):
                self._write(raw, buffers.final_obs, row)
                self._write(env.reset()[0], buffers.obs, row)
        buffers.fill(reward, terminated, truncated, np.ones(self.num_envs, bool))
        final = buffers.obs
        done = terminated | truncated
        if mode == "compact" and done.any():
            final = buffers.final_obs
            for name, value in buffers.obs.items():
                final[name].numpy()[~done] = value.numpy()[~done]
        return self._step(final)

    def state_dict(self) -> dict[str, Any]:
        return _states_of(self.envs)

    def load_state_dict(self, state: Mapping[str, Any], ended: Tensor) -> None:
        _load_states(self.envs, state)

    def render(self, index: int, width: int, height: int) -> np.ndarray:
        return resized(self.picture(index), width, height)

    def picture(self, index: int) -> np.ndarray:
        """What the environment draws, in its own size, uint8 `[H, W, 3]`."""
        return _picture(self.envs[index], self.id)

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _write(self, raw: Any, into: Observation, row: int) -> None:
        self._observations.codec.write_row(raw, into, row)


class VectorFrames(GymnasiumFrames):
    """A gymnasium VectorEnv, in this process or in many; it resets by itself, so its mode is given by how it does."""

    def __init__(self, vector: VectorEnv, variable: str, clip: bool, one_hot: bool) -> None:
        self.vector = vector
        self.num_envs = int(vector.num_envs)
        facts = facts_of(vector)
        self.id = facts.id
        reset_mode = autoreset_mode(vector)
        if reset_mode is AutoresetMode.DISABLED:
            raise ValueError(
                f"{self.id} does not reset by itself; make the vector environment with autoreset_mode="
                "AutoresetMode.NEXT_STEP for a framed stream or SAME_STEP for a compact one"
            )
        self.resets_at_once = reset_mode is AutoresetMode.SAME_STEP
        self.modes = ("compact", "frozen") if self.resets_at_once else ("framed", "frozen")
        other = "NEXT_STEP" if self.resets_at_once else "SAME_STEP"
        self.remedy = (
            f"this vector environment resets in the {'same' if self.resets_at_once else 'next'} step; make it with "
            f"autoreset_mode=AutoresetMode.{other}, or use mode={self.modes[0]!r}"
        )
        self.observation_space = vector.single_observation_space
        self.action_space = vector.single_action_space
        self._make_codecs(variable, clip, one_hot, facts.control_dt, facts.max_episode_steps)

    def reset(self, seeds: list[int]) -> Observation:
        # a vector environment of its own kind has one generator for all
        per_env = isinstance(self.vector.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        raw, _ = self.vector.reset(seed=seeds if per_env else seeds[0])  # type: ignore[arg-type]
        self._observations.codec.write(raw, self._buffers.obs)
        return self._observations.shown(self._buffers.obs)

    def step(self, ws: Workspace, t: int, ended: Tensor, mode: str) -> Step:
        raw, reward, terminated, truncated, infos = self.vector.step(
            self._actions.batched(ws, t, ignored_rows(ended, mode))
        )
        buffers = self._buffers
        fallen = np.asarray(terminated, dtype=bool)
        late = np.asarray(truncated, dtype=bool) & ~fallen  # termination wins
        buffers.fill(reward, fallen, late, np.ones(self.num_envs, bool))
        self._observations.codec.write(raw, buffers.obs)
        final, done = buffers.obs, fallen | late
        if self.resets_at_once and done.any():
            final = buffers.take_final(self._observations.codec, infos, done, self.id)
        return self._step(final)

    def state_dict(self) -> dict[str, Any]:
        return _states_of(self.vector.envs) if isinstance(self.vector, SyncVectorEnv) else {}

    def load_state_dict(self, state: Mapping[str, Any], ended: Tensor) -> None:
        if not isinstance(self.vector, SyncVectorEnv):
            raise ValueError(f"{self.id} runs in other processes or behind wrappers and cannot be restored")
        _load_states(self.vector.envs, state)
        self.vector._autoreset_envs = ended.cpu().numpy().copy()

    def render(self, index: int, width: int, height: int) -> np.ndarray:
        if isinstance(self.vector, SyncVectorEnv):
            return resized(_picture(self.vector.envs[index], self.id), width, height)
        pictures = self.vector.render()
        if pictures is None:
            raise ValueError(f"{self.id} was made without pictures; make it with render_mode='rgb_array'")
        return resized(np.asarray(pictures[index], dtype=np.uint8), width, height)

    def close(self) -> None:
        self.vector.close()


def has_autoreset(env: gymnasium.Env) -> bool:
    """Whether an `Autoreset` wrapper stands anywhere in the stack."""
    layer = env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, gymnasium.wrappers.Autoreset):
            return True
        layer = layer.env
    return False


def _picture(env: gymnasium.Env, id: str) -> np.ndarray:
    if env.render_mode != "rgb_array":
        raise ValueError(f"{id} was made without pictures; make it with render_mode='rgb_array'")
    return np.asarray(env.render(), dtype=np.uint8)


def _states_of(envs: Sequence[gymnasium.Env]) -> dict[str, Any]:
    pairs = [snapshot(env) for env in envs]
    return {} if any(unknown for _, unknown in pairs) else {"instances": [layers for layers, _ in pairs]}


def _load_states(envs: Sequence[gymnasium.Env], state: Mapping[str, Any]) -> None:
    for env, stored in zip(envs, state["instances"], strict=True):
        restore(env, stored)
