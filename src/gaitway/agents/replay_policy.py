"""What the policies of off-policy algorithms share: playing by rows, uniformly at first, and reading their groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import torch
from torch import Tensor, nn

from gaitway.agents.action_range import ActionRange
from gaitway.agents.blocks import Block, make_blocks
from gaitway.agents.features import FeatureShapes
from gaitway.agents.observations import Observations, ObservingPolicy
from gaitway.agents.policy import make_network
from gaitway.core.config import configuration
from gaitway.core.parts import make_part
from gaitway.core.ranges import Count, NotNegative
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation
from gaitway.nn.ensemble import Ensemble, ModuleEnsemble
from gaitway.nn.trunks import Init, LastInit, Network, SingleLayers, TrunkKind


@configuration
class NetworksConfig:
    """Networks of an actor and several critics."""

    observations: Observations = field(default_factory=Observations)
    actor_hidden: tuple[Count, ...] = (256, 256)
    critic_hidden: tuple[Count, ...] = (256, 256)
    activation: str = "relu"
    critics: Count = 2
    """How many critics; the smallest of their values counts (Fujimoto et al. 2018). DDPG has one."""
    trunk: TrunkKind = "mlp"
    """`mlp`; `d2rl`, which feeds the input to every layer; `residual`, normalised blocks of one width."""
    layer_norm: bool = False
    """Normalise behind each linear layer (`residual` does so within its blocks always)."""
    init: Init = "default"
    """`default`: PyTorch's uniform start; `orthogonal`."""
    normalise_observations: bool = False
    observation_clip: NotNegative = 10.0
    """Normalised observations are kept within +- this; 0 for no limit."""
    blocks: tuple[dict[str, Any], ...] = ()
    """Features made of features: {name: mlp | history | package.module:Class, reads: [...], writes: ...}. The critics'
    losses train those they read, the actor's those that it alone reads."""
    actor_network: dict[str, Any] | None = None
    """A network of your own, {name: package.module:Class, option: value}; null: as the keys above say."""
    critic_network: dict[str, Any] | None = None
    """The same for every critic."""


class ReplayPolicy(ObservingPolicy):
    """A policy that learns from single steps of a replay. Leaves make networks and write `choose`.

    Stored transitions keep observations as they were seen; they are normalised when they are read. A block may remember
    what parameters have no part in (a history); gradients through time need whole rollouts.
    """

    def __init__(
        self,
        spec: EnvSpec,
        observations: Observations,
        normalise_observations: bool,
        observation_clip: float | None,
        blocks: Sequence[Block | Mapping[str, Any]],
        generator: torch.Generator | None,
    ) -> None:
        shapes = FeatureShapes(spec)
        entries = [block for block in blocks if not isinstance(block, Block)]
        made = [*make_blocks(entries, shapes, generator), *(block for block in blocks if isinstance(block, Block))]
        super().__init__(spec, observations, normalise_observations, observation_clip, made)
        if self.is_recurrent:
            raise ValueError("gradients through time need whole rollouts; use algorithm=ppo or a2c, or a history block")
        if self.estimators:
            raise ValueError(
                f"{next(iter(self.estimators))!r} learns by a loss term of its own, which there is on-policy alone; "
                "use algorithm=ppo, a2c or reinforce"
            )
        if self._detached:
            raise ValueError(
                f"the block {self._detached[0]!r} has detach: critic, but here critics alone train blocks; leave it out"
            )
        self.range = ActionRange(spec.action)
        self.writes = tuple(self.variables(1, 1))

    def choose(self, inputs: Tensor, stochastic: bool, generator: torch.Generator | None) -> Tensor:
        """An action per row of what the actor reads, [B, D]; `generator` None is the agent's own (see `seed`)."""
        raise TypeError(f"{type(self).__name__} does not implement choose")

    def act(
        self, obs: Observation, state: Tensor | None, stochastic: bool, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """One action per row of `obs`, and what acting remembers after it."""
        found = self.inputs(self.normalised(obs), ("actor",), self.split_state(state))
        return self.choose(found.networks["actor"], stochastic, generator), self.join_state(found.states)

    def variables(self, num_envs: int, rows: int) -> dict[str, Variable]:
        """The dense variables `step` writes in `rows` steps."""
        action = self.spec.action
        own = {self.out("action"): Variable(rows, num_envs, action.shape, action.dtype)}
        return own | self.memory_variables(num_envs, rows)

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
        states = self.states_before(ws, t) if self.memories else {}
        if not uniform:
            obs = {name: ws.at(f"env/obs/{name}", t) for name in self.actor_groups}
            action, _ = self.act(obs, self.join_state(states), stochastic, generator)
        else:
            action = self.uniform_action({self.all_groups[0]: ws.at(self.reads[0], t)}, generator)
        ws.put(self.out("action"), t, action)
        if states:
            observed = self.normalised({name: ws.at(f"env/obs/{name}", t) for name in self.all_groups})
            for name, state in self.inputs(observed, ("actor", "critic"), states).states.items():
                ws.put(self.out(name), t + 1, state)

    def uniform_action(self, obs: Observation, generator: torch.Generator | None = None) -> Tensor:
        """An action per row of `obs`, each possible one as likely as any other."""
        first = next(iter(obs.values()))
        return self.range.uniform(len(first), first.device, generator or self.generator(first.device))


class StatefulPolicy(ReplayPolicy):
    """A policy that plays by one state [B, S], the only one of its `memories`. Leaves write `act`, which takes it and
    returns the next one, and `told`, what is learnt from besides the action."""

    def act(
        self,
        obs: Observation,
        state: Tensor | None,
        stochastic: bool,
        generator: torch.Generator | None = None,
        uniform: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """One action per row of `obs`, and what is remembered after it; `uniform` does anything."""
        raise TypeError(f"{type(self).__name__} does not implement act")

    def told(self, obs: Observation, before: Tensor, after: Tensor) -> dict[str, Tensor]:
        """Name -> what a step from the state `before` to the state `after` writes besides its action, [B, ...]."""
        return {}

    def step(
        self,
        ws: Workspace,
        t: int,
        *,
        stochastic: bool = True,
        generator: torch.Generator | None = None,
        uniform: bool = False,
    ) -> None:
        """Write `action[t]` and what is `told` of it: exploring, at its best (`stochastic=False`), or anything
        (`uniform=True`)."""
        ((name, before),) = self.states_before(ws, t).items()
        obs = {group: ws.at(f"env/obs/{group}", t) for group in self.actor_groups}
        action, after = self.act(obs, before, stochastic, generator, uniform)
        assert after is not None
        for key, value in {"action": action, **self.told(obs, before, after)}.items():
            ws.put(self.out(key), t, value)
        ws.put(self.out(name), t + 1, after)


def make_actor(config: NetworksConfig, inputs: int, outputs: int, generator: torch.Generator | None) -> nn.Module:
    """The actor of the config: a `Network`, or the user's own."""
    return make_network(
        config.actor_network,
        "agent.actor_network",
        inputs,
        outputs,
        generator,
        lambda: Network(
            inputs,
            config.actor_hidden,
            outputs,
            layers=SingleLayers(config.init, generator),
            trunk=config.trunk,
            activation=config.activation,
            layer_norm=config.layer_norm,
        ),
    )


def make_critics(
    config: NetworksConfig,
    inputs: int,
    outputs: int,
    generator: torch.Generator | None,
    last_init: Sequence[LastInit] | None = None,
    published_scale: bool | Sequence[bool] = False,
) -> nn.Module:
    """The critics of the config: an `Ensemble`, or as many of the user's own. `last_init` says how the last layer of
    each starts, where that differs, and how many there are; `published_scale` whose later layers start smaller."""
    entry, key = config.critic_network, "agent.critic_network"
    members = config.critics if last_init is None else len(last_init)
    if entry is not None:
        if any(published_scale) if isinstance(published_scale, Sequence) else published_scale:
            raise ValueError(
                f"agent.published_scale scales critics of agent.critic_hidden, and {key} names other ones; leave one "
                "of the two out"
            )
        own = {"inputs": inputs, "outputs": outputs, "generator": generator}
        return ModuleEnsemble([make_part(entry, {}, key, given=own, kind=nn.Module) for _ in range(members)])
    return Ensemble(
        members,
        inputs,
        config.critic_hidden,
        outputs,
        trunk=config.trunk,
        activation=config.activation,
        layer_norm=config.layer_norm,
        init=config.init,
        last_init="default" if last_init is None else last_init,
        published_scale=published_scale,
        generator=generator,
    )
