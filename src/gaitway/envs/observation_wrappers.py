"""Wrappers that add the age of the episode to what is observed, put several groups into one vector, or hide some.

Configurations name them like all wrappers: `{name: time}`, `{name: flatten, groups: [observation, task]}`,
`{name: hidden, names: [critic, policy.lin_vel]}`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from gaitway.core.config import did_you_mean
from gaitway.envs.spec import Component, EnvSpec, ObservationGroup
from gaitway.envs.vec_env import Observation, Step, VecEnv
from gaitway.envs.wrappers import Wrapper, columns_of


class TimeObservation(Wrapper):
    """Adds the group `into` [B, 1]: how many steps of the episode have been taken, 0 in its first observation."""

    def __init__(self, env: VecEnv, into: str = "time") -> None:
        super().__init__(env)
        self.into = into
        dtype = env.spec.groups[0].dtype
        self._dtype = env.spec.groups[0].torch_dtype
        self.spec = with_group(env, ObservationGroup(into, (Component("time", 1, "steps"),), (1,), dtype))
        self._elapsed = env.elapsed

    def step(self, action: Tensor) -> Step:
        step = self.env.step(action)
        reached = self._elapsed + 1
        obs = self.shown(step.obs)
        # where nothing was reset, or where a row of its own did it, what was reached is what is seen
        ended = step.terminated | step.truncated if step.valid is None else torch.zeros_like(step.valid)
        final = torch.where(ended, reached, self._elapsed)
        return dataclasses.replace(step, obs=obs, final_obs=self._with(step.final_obs, final))

    def set_elapsed(self, steps: Tensor) -> None:
        self.env.set_elapsed(steps)
        self._elapsed = self.env.elapsed

    def shown(self, obs: Observation) -> Observation:
        self._elapsed = self.env.elapsed
        return self._with(obs, self._elapsed)

    def _with(self, obs: Observation, elapsed: Tensor) -> Observation:
        return {**obs, self.into: elapsed.to(self._dtype)[:, None]}


class FlattenObservation(Wrapper):
    """One vector group in place of several, in the order listed (None: all groups, in the environment's order).

    Components are called `group/component`. Groups that are not listed stay behind it.
    """

    def __init__(self, env: VecEnv, groups: Sequence[str] | None = None, into: str = "policy") -> None:
        super().__init__(env)
        self.into = into
        self.groups = list(env.spec.group_names if groups is None else groups)
        members = [env.spec.group(group) for group in self.groups]
        if not members or len(set(self.groups)) < len(self.groups):
            raise ValueError(f"groups are {self.groups}; name at least one of {env.spec.group_names}, each once")
        for member in members:
            if not member.is_vector or member.dtype != members[0].dtype:
                raise ValueError(
                    f"group {member.name!r} is {member.dtype} {list(member.shape)}; groups become one vector if they "
                    "are vectors of the same type, so list those in groups="
                )
        self._others = [group for group in env.spec.groups if group.name not in self.groups]
        if into in [group.name for group in self._others]:
            raise ValueError(f"{env.spec.id} keeps a group {into!r}; choose another into=")
        components = tuple(
            dataclasses.replace(part, name=f"{member.name}/{part.name}")
            for member in members
            for part in member.components
        )
        size = sum(member.shape[0] for member in members)
        headings = sorted({member.heading for member in members if member.heading})
        flat = ObservationGroup(into, components, (size,), members[0].dtype, " and ".join(headings))
        self.spec = dataclasses.replace(env.spec, groups=(flat, *self._others))

    def step(self, action: Tensor) -> Step:
        step = self.env.step(action)
        return dataclasses.replace(step, obs=self.shown(step.obs), final_obs=self.shown(step.final_obs))

    def shown(self, obs: Observation) -> Observation:
        flat = torch.cat([obs[group] for group in self.groups], dim=-1)
        return {self.into: flat, **{group.name: obs[group.name] for group in self._others}}


class HiddenObservation(Wrapper):
    """Shows NaN in groups, or in components of them (`group.component`).

    Continuous actions of who reads one of them are NaN, which environments refuse; choices may go on unnoticed.
    """

    def __init__(self, env: VecEnv, names: Sequence[str]) -> None:
        super().__init__(env)
        self.names = tuple(names)
        if not self.names:
            raise ValueError("nothing is hidden; list groups, or components as group.component, in names=")
        groups = {group.name: group for group in env.spec.groups}
        known = {
            f"{group.name}.{part.name}": (group, columns_of(group, number))
            for group in env.spec.groups
            if group.is_vector
            for number, part in enumerate(group.components)
        }
        hidden: dict[str, list[Tensor]] = {}
        for name in self.names:
            if name not in groups and name not in known:
                there = [*groups, *known]
                raise ValueError(f"no {name!r} to hide{did_you_mean(name, there)}; {env.spec.id} has {there}")
            group, columns = known[name] if name in known else (groups[name], torch.arange(groups[name].shape[-1]))
            if not group.torch_dtype.is_floating_point:
                raise ValueError(f"group {group.name!r} is {group.dtype}, which knows no NaN, and cannot be hidden")
            hidden.setdefault(group.name, []).append(columns)
        self._columns = {name: torch.cat(columns).unique().to(env.device) for name, columns in hidden.items()}

    def step(self, action: Tensor) -> Step:
        step = self.env.step(action)
        return dataclasses.replace(step, obs=self.shown(step.obs), final_obs=self.shown(step.final_obs))

    def shown(self, obs: Observation) -> Observation:
        return {
            name: value.index_fill(-1, self._columns[name], float("nan")) if name in self._columns else value
            for name, value in obs.items()
        }


def with_group(env: VecEnv, group: ObservationGroup) -> EnvSpec:
    """The spec of `env` with one group more."""
    if group.name in env.spec.group_names:
        raise ValueError(f"{env.spec.id} already has a group {group.name!r}; choose another into=")
    return dataclasses.replace(env.spec, groups=(*env.spec.groups, group))
