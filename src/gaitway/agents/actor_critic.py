"""An actor and a critic over named observation groups, feed-forward or with memory.

The agent's `step` is the rollout side: it writes `action` and the distribution's parameters, and for policies with
memory the states as they were *before* the step. Everything the learner needs is functional: `values`, `outputs` and
`evaluate` take tensors and return tensors; nothing is remembered on the module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from gaitway.agents.observations import GroupNormalisers, Observations, actor_and_critic_groups, input_size
from gaitway.core.small_agents import SeedableAgent
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.env_agent import episode_ends
from gaitway.envs.vec_env import EnvSpec, Observation
from gaitway.functional.sequences import episode_starts
from gaitway.nn.dense import DenseStack
from gaitway.nn.distributions import make_distribution
from gaitway.nn.memory import Memory
from gaitway.nn.mlp import MLP


@dataclass(frozen=True)
class MemoryConfig:
    """A recurrent layer in front of the actor and another in front of the critic."""

    kind: Literal["none", "gru", "lstm"] = "none"
    size: int = 64
    layers: int = 1
    sequence: Literal["auto", "padded", "stepwise"] = "auto"
    """How sequences run: `padded` cuts at resets, `stepwise` keeps shapes fixed; equal to 1e-5. `auto`: padded on the
    CPU, stepwise on a GPU."""


@dataclass(frozen=True)
class DistributionConfig:
    """How the actor's output becomes an action."""

    kind: Literal["auto", "gaussian", "squashed_gaussian", "beta", "categorical", "multi_categorical"] = "auto"
    """`auto`: Gaussian for continuous actions, (multi-)categorical for discrete ones."""
    init_std: float = 1.0
    """Initial standard deviation, in units of half the action range where there are limits."""
    std_range: tuple[float, float] = (1e-6, 1e6)
    std_type: Literal["log", "scalar"] = "log"
    learn_std: bool = True
    state_dependent: bool = False
    """The network emits the standard deviation too."""


@dataclass(frozen=True)
class ActorCriticConfig:
    """Networks of actor and critic."""

    observations: Observations = field(default_factory=Observations)
    actor_hidden: tuple[int, ...] = (64, 64)
    critic_hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    init: Literal["default", "orthogonal"] = "orthogonal"
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    distribution: DistributionConfig = field(default_factory=DistributionConfig)
    normalise_observations: bool = True
    observation_clip: float = 10.0
    """Normalised observations are kept within +- this; 0 for no limit."""


class Branch(nn.Module):
    """Normalised observation -> memory (perhaps) -> MLP."""

    def __init__(
        self,
        inputs: int,
        hidden: tuple[int, ...],
        outputs: int,
        config: ActorCriticConfig,
        last_gain: float,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        self.mode = config.memory.sequence
        self.memory: Memory | None = None
        if config.memory.kind != "none":
            self.memory = Memory(config.memory.kind, inputs, config.memory.size, config.memory.layers, generator)
            inputs = config.memory.size
        self.network = MLP(inputs, hidden, outputs, config.activation, None, config.init, last_gain, generator)

    @property
    def last_layer(self) -> nn.Linear:
        layer = self.network.layers[-1]
        assert isinstance(layer, nn.Linear)
        return layer

    def forward(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """One step: [B, D] and the state before it -> outputs [B, ...] and the state after it."""
        if self.memory is not None:
            assert state is not None
            x, state = self.memory.step(x, state)
            state = state.float()
        return self.network(x).float(), state

    def remember(self, x: Tensor, state: Tensor | None) -> Tensor:
        """The state after one step, without what the network makes of it."""
        assert self.memory is not None
        assert state is not None
        return self.memory.step(x, state)[1].float()

    def sequence(self, x: Tensor, state: Tensor | None, starts: Tensor | None) -> Tensor:
        """[T, B, D] from the state before row 0; `starts` [T, B] marks rows whose state is zeroed first."""
        if self.memory is not None:
            assert state is not None
            assert starts is not None
            mode = self.mode if self.mode != "auto" else "stepwise" if x.is_cuda else "padded"
            x = self.memory.sequence(x, state, starts, mode)
        return self.network(x).float()


class ActorCritic(SeedableAgent):
    """Policy and value function of on-policy algorithms."""

    def __init__(
        self, spec: EnvSpec, config: ActorCriticConfig | None = None, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(rule="last")
        self.config = config = config or ActorCriticConfig()
        self.groups = actor_and_critic_groups(spec, config.observations)
        self.spec = spec
        self.all_groups = tuple(dict.fromkeys(self.groups["actor"] + self.groups["critic"]))
        normalised = self.all_groups if config.normalise_observations else ()
        self.normalisers = GroupNormalisers(spec, normalised, config.observation_clip)
        self.head = make_distribution(spec.action, config.distribution.kind, **distribution_options(spec, config))
        actor_size, critic_size = (input_size(spec, self.groups[which]) for which in ("actor", "critic"))
        # a small last layer makes the first policy nearly the same everywhere (Andrychowicz et al. 2021)
        self.actor = Branch(actor_size, config.actor_hidden, self.head.inputs, config, 0.01, generator)
        self.critic = Branch(critic_size, config.critic_hidden, 1, config, 1.0, generator)
        self.head.init_last_layer(self.actor.last_layer)
        self.reads = tuple(f"env/obs/{name}" for name in self.all_groups)
        self.writes = tuple(self.variables(1, 1))

    @property
    def is_recurrent(self) -> bool:
        return self.actor.memory is not None

    @property
    def resets(self) -> bool:
        return self.is_recurrent

    def variables(self, num_envs: int, rows: int) -> dict[str, Variable]:
        """The dense variables `step` writes in `rows` steps."""
        action = self.spec.action
        variables = {
            self.out("action"): Variable(rows, num_envs, action.shape, action.dtype),
            self.out("policy/params"): Variable(rows, num_envs, (self.head.num_params,), torch.float32),
        }
        if not self.head.raw_is_action:
            variables[self.out("policy/raw")] = Variable(rows, num_envs, self.head.raw_shape, self.head.raw_dtype)
        if self.is_recurrent:
            for name, branch in (("actor", self.actor), ("critic", self.critic)):
                assert branch.memory is not None
                size = branch.memory.state_size
                variables[self.out(f"{name}/memory")] = Variable(rows + 1, num_envs, (size,), torch.float32)
        return variables

    def step(self, ws: Workspace, t: int, *, stochastic: bool = True, generator: torch.Generator | None = None) -> None:
        obs = {name: ws.at(variable, t) for name, variable in zip(self.all_groups, self.reads, strict=True)}
        actor_state = self._state_before(ws, t, "actor", obs)
        output, actor_state = self.actor(self.inputs(obs, "actor"), actor_state)
        head = self.head
        params = head(output)
        raw = self._choose(params, stochastic, generator)
        ws.put(self.out("action"), t, head.action(raw))
        ws.put(self.out("policy/params"), t, params)
        if not head.raw_is_action:
            ws.put(self.out("policy/raw"), t, raw)
        if actor_state is not None:
            critic_state = self.critic.remember(self.inputs(obs, "critic"), self._state_before(ws, t, "critic", obs))
            ws.put(self.out("actor/memory"), t + 1, actor_state)
            ws.put(self.out("critic/memory"), t + 1, critic_state)

    def prepared_step(self, ws: Workspace, options: Mapping[str, Any]) -> Callable[[int], Any]:
        """The same numbers as `step`, with fewer calls: for small batches on the CPU they are what a rollout costs."""
        network = None if self.is_recurrent or torch.is_grad_enabled() else DenseStack.of(self.actor.network.layers)
        if network is None:
            return super().prepared_step(ws, options)
        head, groups, normalisers = self.head, self.groups["actor"], self.normalisers
        is_random = options.get("stochastic", True)
        draw = head.sampler((options.get("generator") or self.generator("cpu")) if is_random else None)
        names = [(name, f"env/obs/{name}") for name in groups]
        # copies, because the parameters may stand in the network's own memory, which is used again
        put_action, put_params, put_raw = (ws.copier(self.out(n)) for n in ("action", "policy/params", "policy/raw"))

        def step(t: int) -> None:
            obs = {name: ws.at(variable, t) for name, variable in names}
            params, raw = draw(network.forward(normalisers.inputs(obs, groups)))
            put_action(t, head.action(raw))
            put_params(t, params)
            if not head.raw_is_action:
                put_raw(t, raw)

        return step

    def reset(self, ws: Workspace, t: int, mask: Tensor) -> None:
        """Forget what was remembered of the episodes that ended before row t."""
        if self.is_recurrent:
            keep = (~mask).unsqueeze(-1)
            for name in (self.out("actor/memory"), self.out("critic/memory")):
                if name in ws:
                    ws.put(name, t, ws.at(name, t) * keep)

    def _state_before(self, ws: Workspace, t: int, which: str, obs: Observation) -> Tensor | None:
        """The state that row t starts from: the one in the workspace, or an empty one at the very beginning."""
        memory = getattr(self, which).memory
        if memory is None:
            return None
        name = self.out(f"{which}/memory")
        if name not in ws:
            first = next(iter(obs.values()))
            ws.put(name, t, memory.initial(len(first), first.device))
        return ws.at(name, t)

    def inputs(self, obs: Mapping[str, Tensor], which: str) -> Tensor:
        """Normalised groups of one network, concatenated: [..., D]."""
        return self.normalisers.inputs(obs, self.groups[which])

    def initial_state(self, batch: int, device: torch.device | str) -> Tensor | None:
        """What the actor remembers before its first step; None without memory."""
        return None if self.actor.memory is None else self.actor.memory.initial(batch, torch.device(device))

    def act(
        self, obs: Observation, state: Tensor | None, stochastic: bool, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """One action per row of `obs`, and the actor's state after it."""
        output, state = self.actor(self.inputs(obs, "actor"), state)
        params = self.head(output)
        raw = self._choose(params, stochastic, generator)
        return self.head.action(raw), state

    def _choose(self, params: Tensor, stochastic: bool, generator: torch.Generator | None) -> Tensor:
        """A raw action: drawn from `generator` (None: the agent's own, see `seed`), or the distribution's mode."""
        if not stochastic:
            return self.head.mode(params)
        return self.head.sample(params, generator or self.generator(params.device))

    def raw_actions(self, ws: Workspace) -> Tensor:
        """The actions in the distribution's own coordinates, [T, B, ...]."""
        return ws[self.out("action" if self.head.raw_is_action else "policy/raw")]

    def critic_inputs(self, ws: Workspace) -> Tensor:
        """What the critic reads in every row, the one after the last step included: [T + 1, B, D]."""
        return self.inputs({name: ws[f"env/obs/{name}"] for name in self.groups["critic"]}, "critic")

    def values(self, ws: Workspace, critic_inputs: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The critic at every step and at the state that followed it, each [T, B] in the critic's own units.

        Where an episode ended by its time limit, the state that followed is the final observation.
        """
        steps = ws.T
        groups = self.groups["critic"]
        inputs = self.critic_inputs(ws) if critic_inputs is None else critic_inputs
        state = ws[self.out("critic/memory")] if self.is_recurrent else None
        # rows of a memory's step are independent, so time and batch flatten into one
        flat_state = None if state is None else state.flatten(0, 1)
        output, after = self.critic(inputs.flatten(0, 1), flat_state)
        value = output.squeeze(-1).unflatten(0, (steps + 1, -1))
        following = value[1:].clone()
        cut = ws["env/truncated"]
        if cut.is_cuda:
            rows = torch.arange(cut.numel(), device=cut.device)  # all rows: fixed shapes, nothing to wait for
        else:
            rows = cut.flatten().nonzero().squeeze(-1)
        if len(rows):
            final = {name: ws[f"env/final_obs/{name}"].flatten(0, 1)[rows] for name in groups}
            final_output, _ = self.critic(self.inputs(final, "critic"), None if after is None else after[rows])
            at_end = following.flatten().index_copy(0, rows, final_output.squeeze(-1)).view_as(following)
            following = torch.where(cut, at_end, following)
        return value[:steps], following

    def learner_inputs(self, ws: Workspace) -> dict[str, Tensor]:
        """What `evaluate` reads, [T, B, D] each: normalised once per rollout, because statistics rest while learning.

        Actor and critic share `inputs/actor` where they read the same groups.
        """
        obs = {name: ws[f"env/obs/{name}"][: ws.T] for name in self.all_groups}
        found = {"inputs/actor": self.inputs(obs, "actor")}
        if self.groups["critic"] != self.groups["actor"]:
            found["inputs/critic"] = self.inputs(obs, "critic")
        return found

    def outputs(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The head's input [N, ...] and values [N] for a minibatch with the fields of `learner_inputs`.

        With memory for sequences [T, N, ...] that start from `memory/actor` and `memory/critic` [N, S].
        """
        actor_inputs, critic_inputs = _inputs_of(batch)
        if self.is_recurrent:
            output = self.actor.sequence(actor_inputs, batch["memory/actor"], batch["starts"])
            value = self.critic.sequence(critic_inputs, batch["memory/critic"], batch["starts"])
        else:
            output, _ = self.actor(actor_inputs, None)
            value, _ = self.critic(critic_inputs, None)
        return output, value.squeeze(-1)

    def evaluate(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Distribution parameters [N, P] and values [N] of a minibatch; see `outputs`."""
        output, value = self.outputs(batch)
        return self.head(output), value

    def starts(self, ws: Workspace) -> Tensor:
        """bool [T, B]: rows before which the memory was emptied (row 0 goes on from its stored state)."""
        return episode_starts(episode_ends(ws))

    def update_normalisers(self, ws: Workspace) -> None:
        """Count this rollout's observations, each row once. Between updates, so that the policy that is learnt from is
        the one that acted."""
        self.normalisers.count(ws, self.all_groups)


class ActingPolicy(Protocol):
    """What can be used without a learner: `state` is whatever the policy remembers, None if nothing."""

    groups: dict[str, tuple[str, ...]]

    def initial_state(self, batch: int, device: torch.device | str) -> Tensor | None: ...

    def act(
        self, obs: Observation, state: Tensor | None, stochastic: bool, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None]: ...


class InferencePolicy:
    """A trained policy as a function: observation in, action out, with its normaliser and its memory."""

    def __init__(
        self, policy: ActingPolicy, stochastic: bool = False, generator: torch.Generator | None = None
    ) -> None:
        self.policy, self.stochastic, self.generator = policy, stochastic, generator
        self._state: Tensor | None = None

    @torch.inference_mode()
    def __call__(self, obs: Observation) -> Tensor:
        """Actions [B, ...] for observations `{group: [B, ...]}`."""
        if self._state is None:
            first = obs[self.policy.groups["actor"][0]]
            self._state = self.policy.initial_state(len(first), first.device)
        action, self._state = self.policy.act(obs, self._state, self.stochastic, self.generator)
        return action

    def reset(self, mask: Tensor | None = None) -> None:
        """Forget the past: of all instances, or of those where `mask` [B] is true."""
        if mask is None or self._state is None:
            self._state = None
        else:
            self._state = self._state * (~mask.bool()).unsqueeze(-1)


def _inputs_of(batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    actor_inputs = batch["inputs/actor"]
    return actor_inputs, batch.get("inputs/critic", actor_inputs)


def distribution_options(spec: EnvSpec, config: ActorCriticConfig) -> dict[str, Any]:
    """The options of the config that the chosen kind of distribution has: only Gaussians have a standard deviation."""
    chosen = config.distribution
    if spec.action.kind != "continuous" or chosen.kind not in ("auto", "gaussian", "squashed_gaussian"):
        return {}
    return {f.name: getattr(chosen, f.name) for f in fields(chosen) if f.name != "kind"}


def learnt_parameters(modules: Mapping[str, Any]) -> dict[str, Tensor]:
    """All parameters of named modules, by full name in name order."""
    found = {
        f"{prefix}.{name}": parameter.detach()
        for prefix, module in modules.items()
        for name, parameter in module.named_parameters()
    }
    return dict(sorted(found.items()))
