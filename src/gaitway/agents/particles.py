"""Several policies in one cast: the columns of a batch are split among them.

With n particles and B instances, instance b is played by particle `b // (B / n)`. Every particle is an ordinary
`ActorCritic` in `members`; a rollout and an update run all of them at once, by batched products over their stacked
weights. What learns sees one policy over `[T, B]`, each column of which depends on the parameters of its particle only.

Outside training one particle acts: `best`. Statistics of observations are shared, so that the parameters of all
particles mean the same thing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.actor_critic_config import ActorCriticConfig
from gaitway.agents.branch import Branch
from gaitway.agents.policy import is_overridden
from gaitway.core.config import configuration
from gaitway.core.ranges import Count
from gaitway.core.small_agents import SeedableAgent
from gaitway.core.transitions import final_rows
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation
from gaitway.nn.altered import is_altered
from gaitway.nn.head import Head
from gaitway.nn.mlp import MLP


@configuration
class ParticlesConfig(ActorCriticConfig):
    """n actors and critics of one shape."""

    particles: Count = 8
    """How many policies learn side by side; env.num_envs must be a multiple of it."""

    def __post_init__(self) -> None:
        if self.memory.kind != "none" or self.critic_memory is not None:
            raise ValueError(f"memory.kind is {self.memory.kind}; particles have no memory, use none (or a2c, ppo)")
        if self.blocks or self.actor_network or self.critic_network:
            raise ValueError(
                "particles are stacked layer by layer; leave blocks and own networks out (or use a2c, ppo)"
            )


class Particles(SeedableAgent):
    """n policies with critics, each with columns of its own; `members[i]` is particle i, a policy like any other."""

    best: Tensor

    def __init__(
        self, spec: EnvSpec, config: ParticlesConfig | None = None, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(rule="last")
        self.config = config = config or ParticlesConfig()
        members = [ActorCritic(spec, config, generator) for _ in range(config.particles)]
        first = members[0]
        for member in members:
            member.normalisers = first.normalisers
        self.members = nn.ModuleList(members)
        self.register_buffer("best", torch.zeros((), dtype=torch.int64))
        self.head = ColumnHead([member.head for member in members])
        self.spec, self.groups, self.reads = spec, first.groups, first.reads
        self.all_groups, self.actor_groups = first.all_groups, first.actor_groups
        self.critic_groups = first.critic_groups
        self.writes = tuple(self.variables(1, 1))

    is_recurrent = False
    is_recordable = True
    column_fields: tuple[str, ...] = ()
    output_names = ("output", "value")

    @property
    def is_plain(self) -> bool:
        return self._are_standard() and not is_overridden(self, Particles)

    @property
    def acting(self) -> ActorCritic:
        """The particle that acts outside training."""
        return self._member(int(self.best))

    @property
    def critic(self) -> Branch:
        """The critic of the particle that acts outside training."""
        return self.acting.critic

    def share(self, num_envs: int) -> int:
        """Instances per particle."""
        n = len(self.members)
        if num_envs % n:
            raise ValueError(
                f"{num_envs} instances cannot be split among {n} particles; set env.num_envs to a multiple of {n}, "
                f"such as {max(num_envs // n, 1) * n}"
            )
        return num_envs // n

    # Rollouts

    def variables(self, num_envs: int, rows: int) -> dict[str, Variable]:
        """The dense variables `step` writes in `rows` steps."""
        return {self.out(name): value for name, value in self._member(0).variables(num_envs, rows).items()}

    def step(self, ws: Workspace, t: int, *, stochastic: bool = True, generator: torch.Generator | None = None) -> None:
        observed = self._member(0).normalised({name: ws.at(f"env/obs/{name}", t) for name in self.groups["actor"]})
        self.share(ws.B)
        self._write(ws, t, self.head(self._said("actor")(observed)), stochastic, generator)

    def prepared_step(self, ws: Workspace, options: Mapping[str, Any]) -> Callable[[int], Any]:
        """`step` with the weights stacked once."""
        if torch.is_grad_enabled() or not self.is_plain:  # the parameters may move between rows
            return super().prepared_step(ws, options)
        actors, head = self._stacked("actor"), self.head.frozen()
        names = [(name, f"env/obs/{name}") for name in self.groups["actor"]]
        stochastic, generator = options.get("stochastic", True), options.get("generator")
        self.share(ws.B)

        def step(t: int) -> None:
            obs = {name: ws.at(variable, t) for name, variable in names}
            self._write(ws, t, head(actors(self.network_input(obs, "actor"))), stochastic, generator)

        return step

    def _write(
        self, ws: Workspace, t: int, params: Tensor, stochastic: bool, generator: torch.Generator | None
    ) -> None:
        """Row t: an action and what it was drawn from."""
        if stochastic:
            raw = self.head.sample(params, generator or self.generator(params.device))
        else:
            raw = self.head.mode(params)
        ws.put(self.out("action"), t, self.head.action(raw))
        ws.put(self.out("policy/params"), t, params)
        if not self.head.raw_is_action:
            ws.put(self.out("policy/raw"), t, raw)

    # One particle, outside training

    def initial_state(self, batch: int, device: torch.device | str) -> Tensor | None:
        return None

    def act(
        self, obs: Observation, state: Tensor | None, stochastic: bool, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """One action of the best particle per row of `obs`."""
        if stochastic and generator is None:
            generator = self.generator(self.best.device)
        return self.acting.act(obs, state, stochastic, generator)

    # For the learner: rows and columns as in a rollout

    def network_input(self, obs: Mapping[str, Tensor], which: str) -> Tensor:
        """What one network reads of observations: [..., D]."""
        return self._member(0).network_input(obs, which)

    def learner_inputs(self, ws: Workspace) -> dict[str, Tensor]:
        """What `outputs` reads, [T, B, ...] each."""
        return self._member(0).learner_inputs(ws)

    def raw_actions(self, ws: Workspace) -> Tensor:
        """The actions in the distribution's own coordinates, [T, B, ...]."""
        return ws[self.out("action" if self.head.raw_is_action else "policy/raw")]

    def values(self, ws: Workspace) -> tuple[Tensor, Tensor]:
        """Each column's critic at every step and at the state that followed it, [T, B] each.

        Where an episode ended by its time limit, the state that followed is the final observation.
        """
        member, groups = self._member(0), self.groups["critic"]
        observed = member.normalised({name: ws[f"env/obs/{name}"] for name in groups})
        critics = self._said("critic")
        value = critics(observed).squeeze(-1)
        following, cut = value[1:], ws["env/truncated"]
        if cut.is_cuda or bool(cut.any()):  # on a GPU always: nothing to wait for
            final = member.normalised(final_rows(ws, groups))
            following = torch.where(cut, critics(final).squeeze(-1), following)
        return value[: ws.T], following

    def outputs(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`output`, the head's input [T, B, ...], and `value` [T, B] for the fields of `learner_inputs`."""
        observed = {name: batch[f"obs/{name}"] for name in self.all_groups}
        return {"output": self._said("actor")(observed), "value": self._said("critic")(observed).squeeze(-1)}

    def update_normalisers(self, ws: Workspace) -> None:
        """Count this rollout's observations, those of all particles together."""
        self._member(0).update_normalisers(ws)

    def _member(self, index: int) -> ActorCritic:
        member = self.members[index]
        assert isinstance(member, ActorCritic)
        return member

    def _are_standard(self) -> bool:
        return all(self._member(i).is_standard for i in range(len(self.members)))

    def _said(self, which: str) -> Callable[[Mapping[str, Tensor]], Tensor]:
        """What the networks say of normalised groups [..., B, D], each of its own columns: [..., B, outputs].

        One product serves all particles that are as they were made; others run one by one.
        """
        if self._are_standard() and not is_altered(self.members):
            networks = self._stacked(which)
            return lambda observed: networks(self._member(0).inputs(observed, (which,)).networks[which])
        return lambda observed: self._said_by_each(which, observed)

    def _said_by_each(self, which: str, observed: Mapping[str, Tensor]) -> Tensor:
        said, count = [], len(self.members)
        for number in range(count):
            member = self._member(number)
            own = {name: value.chunk(count, -2)[number] for name, value in observed.items()}
            said.append(getattr(member, which)(member.inputs(own, (which,)).networks[which], None)[0])
        return torch.cat(said, -2)

    def _stacked(self, which: str) -> StackedNetworks:
        return StackedNetworks([getattr(member, which).network for member in self.members])


class StackedNetworks:
    """n networks of one shape, each for its own columns: [..., B, D] -> [..., B, outputs].

    Holds their weights as they are when it is made, stacked; gradients flow back to the networks.
    """

    def __init__(self, networks: Sequence[MLP]) -> None:
        self.count = len(networks)
        self.layers = [_stacked_layer(layers) for layers in zip(*(network.layers for network in networks), strict=True)]

    def __call__(self, x: Tensor) -> Tensor:
        leading = x.shape[:-2]
        by_particle = x.unflatten(-2, (self.count, -1)).movedim(-3, 0)  # [n, ..., B / n, D]
        h = by_particle.flatten(1, -2)
        for layer in self.layers:
            h = layer(h)
        return h.float().unflatten(1, (*leading, -1)).movedim(0, -3).flatten(-3, -2)


def _stacked_layer(layers: Sequence[nn.Module]) -> Callable[[Tensor], Tensor]:
    """The same layer of n networks on [n, N, inputs]; what has no weights is the same for all."""
    first = layers[0]
    if not isinstance(first, nn.Linear):
        return first
    linears = [layer for layer in layers if isinstance(layer, nn.Linear)]
    weight = torch.stack([layer.weight for layer in linears])  # [n, outputs, inputs]
    bias = torch.stack([layer.bias for layer in linears]).unsqueeze(1)
    if weight.is_cpu and weight.shape[1] == 1:  # a batched product of one column is slower than this
        return lambda x: (x * weight).sum(-1, keepdim=True) + bias
    return lambda x: torch.baddbmm(bias, x, weight.mT)


class ColumnHead(Head):
    """One head whose own parameters, such as a deviation, differ by column as the particles do.

    params are those of the heads it is made of, so all but `forward` is theirs. The heads' parameters must broadcast:
    [n, 1, A] over the columns of each particle.
    """

    def __init__(self, heads: Sequence[Head]) -> None:
        super().__init__()
        first = heads[0]
        self._heads = tuple(heads)  # not as modules: they belong to the particles
        self.inputs, self.num_params, self.raw_shape = first.inputs, first.num_params, first.raw_shape
        self.raw_dtype, self.raw_is_action = first.raw_dtype, first.raw_is_action
        self.entropy_is_exact = first.entropy_is_exact

    def forward(self, output: Tensor) -> Tensor:
        """[..., B, inputs] -> [..., B, P]."""
        return self.frozen()(output)

    def frozen(self) -> Callable[[Tensor], Tensor]:
        """`forward` with the parameters as they are now."""
        first, n = self._heads[0], len(self._heads)
        names = [name for name, _ in first.named_parameters()]
        if not names:
            return first
        own = [dict(head.named_parameters()) for head in self._heads]
        stacked = {name: torch.stack([parameters[name] for parameters in own]).unsqueeze(1) for name in names}

        def forward(output: Tensor) -> Tensor:
            return functional_call(first, stacked, output.unflatten(-2, (n, -1))).flatten(-3, -2)

        return forward

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        return self._heads[0].sample(params, generator)

    def mode(self, params: Tensor) -> Tensor:
        return self._heads[0].mode(params)

    def log_prob(self, params: Tensor, raw: Tensor) -> Tensor:
        return self._heads[0].log_prob(params, raw)

    def entropy(self, params: Tensor) -> Tensor:
        return self._heads[0].entropy(params)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        return self._heads[0].kl(old, new)

    def support(self) -> tuple[object, ...]:
        return self._heads[0].support()

    def action(self, raw: Tensor) -> Tensor:
        return self._heads[0].action(raw)

    def raw(self, action: Tensor) -> Tensor:
        return self._heads[0].raw(action)

    def std(self, params: Tensor) -> Tensor | None:
        return self._heads[0].std(params)

    def at_bound(self, params: Tensor) -> Tensor:
        return self._heads[0].at_bound(params)
