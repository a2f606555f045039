"""Environments around environments: hide components, scale the reward, remember the past.

A wrapper is a `VecEnv` that changes what passes through it and forwards the rest. Configurations name them:
`wrappers: [{name: select_components, keep: {policy: [0, 2]}}]`. There is no action repeat and no shorter time limit
here: both would have to stop or restart single instances between two steps of the environment below. Time limits are
options of the environments (`max_episode_steps`).
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaitway.core.config import ConfigError
from gaitway.core.parts import find_part, make_part
from gaitway.core.ranges import Count, Number
from gaitway.envs.spec import EnvSpec, ObservationGroup
from gaitway.envs.vec_env import Observation, Step, VecEnv


class Wrapper(VecEnv):
    """Forwards everything; a subclass overrides what it changes. Observations outside of steps pass through `shown`."""

    def __init__(self, env: VecEnv) -> None:
        self.env = env
        self.spec = env.spec
        self.num_envs = env.num_envs
        self.device, self.is_on_device = env.device, env.is_on_device

    def reset(self, seed: int | Sequence[int] | None = None) -> Observation:
        return self.shown(self.env.reset(seed))

    def shown(self, obs: Observation) -> Observation:
        """What is shown where the environment below shows `obs`: at the start of episodes, in a restored state."""
        return obs

    def step(self, action: Tensor) -> Step:
        return self.env.step(action)

    def state_dict(self) -> dict[str, Any]:
        return self.env.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> Observation:
        return self.shown(self.env.load_state_dict(state))

    def scenario(self) -> dict[str, Tensor]:
        return self.env.scenario()

    def load_scenario(self, scenario: Mapping[str, Any]) -> Observation:
        return self.shown(self.env.load_scenario(scenario))

    @property
    def elapsed(self) -> Tensor:
        return self.env.elapsed

    def set_elapsed(self, steps: Tensor) -> None:
        self.env.set_elapsed(steps)

    def check_workers(self) -> None:
        self.env.check_workers()

    def counted(self) -> dict[str, float]:
        return self.env.counted()

    def device_bytes(self) -> int:
        return self.env.device_bytes()

    def render(self, index: int = 0, width: int = 640, height: int = 480) -> np.ndarray:
        return self.env.render(index, width, height)

    def on_end(self, callback: Callable[[], None] | None) -> bool:
        return self.env.on_end(callback)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self.env.call(name, *args, **kwargs)

    def close(self) -> None:
        self.env.close()


def innermost(env: VecEnv) -> VecEnv:
    """What is inside of all wrappers."""
    while isinstance(env, Wrapper):
        env = env.env
    return env


class SelectComponents(Wrapper):
    """Keep or drop components of vector groups, by name or by position among the components.

    `keep={"policy": ["angle", 0]}` keeps them in the order of the group, not of the list; `drop` keeps the others.
    Hiding velocities makes a task that needs memory.
    """

    def __init__(
        self,
        env: VecEnv,
        keep: Mapping[str, Sequence[str | int]] | None = None,
        drop: Mapping[str, Sequence[str | int]] | None = None,
    ) -> None:
        super().__init__(env)
        self._columns: dict[str, Tensor] = {}
        groups = {group.name: group for group in env.spec.groups}
        for name, wanted, chosen in _selections(env.spec, keep or {}, drop or {}):
            components = groups[name].components
            columns = [columns_of(groups[name], at) for at in range(len(components)) if (at in chosen) == wanted]
            if not columns:
                raise ValueError(f"no component of group {name!r} is left; it has {_names(groups[name])}")
            kept = tuple(component for at, component in enumerate(components) if (at in chosen) == wanted)
            self._columns[name] = torch.cat(columns).to(env.device)
            groups[name] = dataclasses.replace(groups[name], components=kept, shape=(len(self._columns[name]),))
        self.spec = dataclasses.replace(env.spec, groups=tuple(groups.values()))

    def step(self, action: Tensor) -> Step:
        step = self.env.step(action)
        return dataclasses.replace(step, obs=self.shown(step.obs), final_obs=self.shown(step.final_obs))

    def shown(self, obs: Observation) -> Observation:
        return {
            name: value.index_select(-1, self._columns[name]) if name in self._columns else value
            for name, value in obs.items()
        }


class ScaleReward(Wrapper):
    """Multiplies the reward; returns that are reported become returns in the new unit."""

    def __init__(self, env: VecEnv, scale: Number) -> None:
        super().__init__(env)
        if not np.isfinite(scale) or scale == 0:
            raise ValueError(f"scale is {scale}; use a finite number other than 0")
        self.scale = float(scale)

    def step(self, action: Tensor) -> Step:
        step = self.env.step(action)
        return dataclasses.replace(step, reward=step.reward * self.scale)


class History(Wrapper):
    """Adds a group with the last `length` observations of `group`, oldest first, `[B, length * D]`.

    An episode starts with its first observation in every place. The present observation is the last of them.
    """

    def __init__(self, env: VecEnv, group: str = "policy", length: Count = 4, name: str | None = None) -> None:
        super().__init__(env)
        source = env.spec.group(group)
        self.group, self.length, self.name = group, length, name or f"{group}_history"
        if length < 1:
            raise ValueError(f"length is {length}; use at least 1")
        if not source.is_vector:
            raise ValueError(f"group {group!r} has shape {source.shape}; a history needs a vector group")
        if self.name in env.spec.group_names:
            raise ValueError(f"{env.spec.id} already has a group {self.name!r}; choose another name=")
        components = tuple(
            dataclasses.replace(part, name=f"{part.name}@{at - length + 1}", steps_ago=part.steps_ago + length - 1 - at)
            for at in range(length)
            for part in source.components
        )
        added = ObservationGroup(self.name, components, (length * source.shape[0],), source.dtype, source.heading)
        self.spec = dataclasses.replace(env.spec, groups=(*env.spec.groups, added))
        # the present observation, without moving the environment where that is possible
        first = env.load_state_dict(env.state_dict()) if env.spec.keeps_episodes else env.reset()
        self._past = self._repeated(first[group])  # [B, length, D]

    def step(self, action: Tensor) -> Step:
        step = self.env.step(action)
        reached = torch.cat([self._past[:, 1:], step.final_obs[self.group][:, None]], 1)
        restarted = step.terminated | step.truncated if step.valid is None else ~step.valid
        self._past = torch.where(restarted[:, None, None], self._repeated(step.obs[self.group]), reached)
        # a reset row ends nothing: what it reached is the start of the new episode
        final = reached if step.valid is None else self._past
        return dataclasses.replace(
            step, obs=self._with(step.obs, self._past), final_obs=self._with(step.final_obs, final)
        )

    def state_dict(self) -> dict[str, Any]:
        return {"env": self.env.state_dict(), "past": self._past.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> Observation:
        obs = self.env.load_state_dict(state["env"])
        if not self.spec.keeps_episodes:
            return self.shown(obs)
        self._past = state["past"].clone().to(self.device)
        return self._with(obs, self._past)

    def shown(self, obs: Observation) -> Observation:
        self._past = self._repeated(obs[self.group])
        return self._with(obs, self._past)

    def _repeated(self, first: Tensor) -> Tensor:
        return first[:, None].expand(-1, self.length, -1).clone()

    def _with(self, obs: Observation, past: Tensor) -> Observation:
        return {**obs, self.name: past.flatten(1)}


WRAPPERS: dict[str, Callable[..., VecEnv] | str] = {
    "select_components": SelectComponents,
    "scale_reward": ScaleReward,
    "history": History,
    "time": "gaitway.envs.observation_wrappers:TimeObservation",
    "frame_counter": "gaitway.envs.observation_wrappers:TimeObservation",
    "flatten": "gaitway.envs.observation_wrappers:FlattenObservation",
    "hidden": "gaitway.envs.observation_wrappers:HiddenObservation",
    "features": "gaitway.envs.feature_observation:FeatureObservation",
    "starts": "gaitway.envs.motions.starts:ClipStarts",
}
"""Those given by their path are imported when they are used."""


def make_wrapper(env: VecEnv, options: Mapping[str, Any], key: str = "env.wrappers") -> VecEnv:
    """Wrap `env` as `{"name": ..., **options}` says; a name of `WRAPPERS` or `package.module:Class`.

    The environment is the first argument of a wrapper, whatever its name; `key` is where the entry stands, for errors.
    """
    name, wrapper, _ = find_part(options, WRAPPERS, key, VecEnv)
    if inspect.isbuiltin(wrapper) or not issubclass(wrapper if inspect.isclass(wrapper) else VecEnv, VecEnv):
        what = "name a class derived from gaitway.envs.wrappers.Wrapper, or a function"
        raise ConfigError(f"{key}: {name!r} cannot be used here, it wraps no environment; {what}", key)
    return make_part(options, {name: partial(wrapper, env)}, key, given={})


def columns_of(group: ObservationGroup, at: int) -> Tensor:
    """Columns of component number `at` on the last axis."""
    start = sum(component.size for component in group.components[:at])
    return torch.arange(start, start + group.components[at].size)


def _selections(
    spec: EnvSpec, keep: Mapping[str, Sequence[str | int]], drop: Mapping[str, Sequence[str | int]]
) -> list[tuple[str, bool, set[int]]]:
    """(group, whether the chosen stay, chosen component numbers) for every group named."""
    if not keep and not drop:
        raise ValueError("select_components selects nothing; pass keep={group: [...]} or drop={group: [...]}")
    both = set(keep) & set(drop)
    if both:
        raise ValueError(f"groups {sorted(both)} are in keep and in drop; name each group once")
    result = []
    for wanted, mapping in ((True, keep), (False, drop)):
        for name, entries in mapping.items():
            group = spec.group(name)
            if not group.is_vector:
                raise ValueError(
                    f"group {name!r} has shape {group.shape}; only vector groups have components to select"
                )
            result.append((name, wanted, {_component(group, entry) for entry in entries}))
    return result


def _component(group: ObservationGroup, entry: str | int) -> int:
    names = _names(group)
    if isinstance(entry, int) and -len(names) <= entry < len(names):
        return entry % len(names)
    if isinstance(entry, str) and entry in names:
        return names.index(entry)
    raise KeyError(f"no component {entry!r} in group {group.name!r}; it has {names}")


def _names(group: ObservationGroup) -> list[str]:
    return [component.name for component in group.components]
