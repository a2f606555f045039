"""What the policies of off-policy algorithms share: playing by rows, uniformly at first, and reading their groups."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gaitway.agents.action_range import ActionRange
from gaitway.agents.observations import GroupNormalisers
from gaitway.core.small_agents import SeedableAgent
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.vec_env import EnvSpec, Observation


class ReplayPolicy(SeedableAgent):
    """A policy without memory that learns from a replay. Leaves make networks and write `act`.

    `groups` are what `actor` and `critic` read. Stored transitions keep observations as they were seen; they are
    normalised when they are read.
    """

    def __init__(
        self,
        spec: EnvSpec,
        groups: Mapping[str, tuple[str, ...]],
        normalise_observations: bool,
        observation_clip: float | None,
    ) -> None:
        super().__init__(rule="last")
        self.spec = spec
        self.groups = dict(groups)
        self.all_groups = tuple(dict.fromkeys(self.groups["actor"] + self.groups["critic"]))
        normalised = self.all_groups if normalise_observations else ()
        self.normalisers = GroupNormalisers(spec, normalised, observation_clip)
        self.range = ActionRange(spec.action)
        self.reads = tuple(f"env/obs/{name}" for name in self.all_groups)
        self.writes = (self.out("action"),)

    def act(
        self, obs: Observation, state: Tensor | None, stochastic: bool, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """One action per row of `obs`; `generator` None is the agent's own (see `seed`)."""
        raise TypeError(f"{type(self).__name__} does not implement act")

    def variables(self, num_envs: int, rows: int) -> dict[str, Variable]:
        """The dense variables `step` writes in `rows` steps."""
        action = self.spec.action
        return {self.out("action"): Variable(rows, num_envs, action.shape, action.dtype)}

    def step(
        self,
        ws: Workspace,
        t: int,
        *,
        stochastic: bool = True,
        generator: torch.Generator | None = None,
        uniform: bool = False,
    ) -> None:
        """Write `action[t]`: exploring, at its best (`stochastic=False`), or anything (`uniform=True`)."""
        obs = {name: ws.at(f"env/obs/{name}", t) for name in self.groups["actor"]}
        action = self.uniform_action(obs, generator) if uniform else self.act(obs, None, stochastic, generator)[0]
        ws.put(self.out("action"), t, action)

    def uniform_action(self, obs: Observation, generator: torch.Generator | None = None) -> Tensor:
        """An action per row of `obs`, each possible one as likely as any other."""
        first = obs[self.groups["actor"][0]]
        return self.range.uniform(len(first), first.device, generator or self.generator(first.device))

    def initial_state(self, batch: int, device: torch.device | str) -> None:
        """This policy remembers nothing."""
        return

    def inputs(self, obs: Mapping[str, Tensor], which: str) -> Tensor:
        """Normalised groups of one network, concatenated: [..., D]."""
        return self.normalisers.inputs(obs, self.groups[which])

    def update_normalisers(self, ws: Workspace) -> None:
        """Count the observations that were just collected, each row once."""
        self.normalisers.count(ws, self.all_groups)
