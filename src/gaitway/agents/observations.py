"""Which observation groups a network reads, and how they become its input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gaitway.core.workspace import Workspace
from gaitway.envs.vec_env import EnvSpec
from gaitway.nn.normalise import RunningNorm


@dataclass(frozen=True)
class Observations:
    """Which groups each network reads, concatenated in this order; empty means the default of the environment."""

    actor: tuple[str, ...] = ()
    """Default: `policy` if there is one, else all vector groups in declared order."""
    critic: tuple[str, ...] = ()
    """Default: `critic` if there is one, else the actor's."""


def default_groups(spec: EnvSpec, which: str, chosen: Observations) -> tuple[str, ...]:
    """The groups of one network: those named in the config, else the environment's default."""
    names = tuple(getattr(chosen, which))
    if not names and which == "critic":
        names = ("critic",) if "critic" in spec.group_names else default_groups(spec, "actor", chosen)
    if not names:
        vectors = tuple(group.name for group in spec.groups if group.is_vector)
        names = ("policy",) if "policy" in spec.group_names else vectors
    for name in names:
        if name not in spec.group_names:
            raise ValueError(
                f"agent.observations.{which} names {name!r}, but {spec.id} has the groups {spec.group_names}"
            )
        if not spec.group(name).is_vector:
            raise ValueError(
                f"agent.observations.{which} names {name!r}, {spec.group(name).shape}; this policy reads vectors"
            )
    return names


def actor_and_critic_groups(spec: EnvSpec, chosen: Observations) -> dict[str, tuple[str, ...]]:
    """The groups of both networks, by `actor` and `critic`."""
    return {which: default_groups(spec, which, chosen) for which in ("actor", "critic")}


def input_size(spec: EnvSpec, groups: Iterable[str]) -> int:
    """How many numbers the concatenated groups are."""
    return sum(spec.group(name).shape[0] for name in groups)


class GroupNormalisers(nn.ModuleDict):
    """Running normalisation of the floating-point groups among `names`; others, and all with `names=()`, pass as they
    are. `clip` bounds normalised values, None or 0 for no limit."""

    def __init__(self, spec: EnvSpec, names: Iterable[str], clip: float | None) -> None:
        floating = [name for name in names if spec.group(name).torch_dtype.is_floating_point]
        super().__init__(
            {_module_name(name): RunningNorm(spec.group(name).shape, clip=clip or None) for name in floating}
        )

    def inputs(self, obs: Mapping[str, Tensor], groups: tuple[str, ...]) -> Tensor:
        """The groups as float32, normalised and concatenated: [..., D]."""
        if len(groups) == 1 and not self._modules:
            return obs[groups[0]].float()
        parts = []
        for name in groups:
            norm = self.of(name)
            parts.append((obs[name] if norm is None else norm(obs[name])).float())
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def count(self, ws: Workspace, groups: tuple[str, ...]) -> None:
        """Take the observations of a rollout into the statistics, each row once."""
        valid = ws["env/valid"] if "env/valid" in ws else None
        for name in groups:
            norm = self.of(name)
            if norm is not None:
                norm.update(ws[f"env/obs/{name}"][: ws.T], valid)

    def of(self, group: str) -> RunningNorm | None:
        """The normaliser of a group, if it has one."""
        if not self._modules:
            return None
        norm = self._modules.get(_module_name(group))
        assert norm is None or isinstance(norm, RunningNorm)
        return norm


def _module_name(group: str) -> str:
    """A name for a group's module: no dots, no clash with other groups or with attributes of nn.ModuleDict."""
    return "group:" + group.replace("%", "%25").replace(".", "%2E")
