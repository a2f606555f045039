"""An actor and a critic over named features, feed-forward or with memory.

    observation groups -> normalisers -> blocks -> memory -> network -> head

The agent's `step` is the rollout side: it writes `action` and the distribution's parameters, and for policies with
memory the states as they were *before* the step. Everything the learner needs is functional: `values` and `outputs`
take tensors and return tensors; nothing is remembered on the module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gaitway.agents.actor_critic_config import ActorCriticConfig, distribution_options
from gaitway.agents.blocks import ACTOR_MEMORY, Block, make_blocks, run_blocks
from gaitway.agents.branch import Branch, MemoryConfig, SideBySide
from gaitway.agents.features import FeatureShapes
from gaitway.agents.observations import GroupNormalisers, Inputs, ObservingPolicy, StateVariable
from gaitway.agents.policy import make_network
from gaitway.core.plain import objects_given
from gaitway.core.transitions import final_rows
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.env_agent import episode_ends
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation
from gaitway.functional.sequences import episode_starts
from gaitway.nn.altered import is_altered
from gaitway.nn.dense import DenseStack
from gaitway.nn.distributions import make_distribution
from gaitway.nn.memory import Memory
from gaitway.nn.mlp import MLP


class Answer(NamedTuple):
    """What a policy says of observations."""

    params: Tensor
    """Parameters of its distribution, `[B, P]`."""
    written: dict[str, Tensor]
    """What the blocks wrote that acting needs."""
    state: Tensor | None
    """What acting remembers afterwards."""


class ActorCritic(ObservingPolicy):
    """Policy and value function of on-policy algorithms.

    `blocks` come behind those of the config. `actor` and `critic` are networks of your own, `[..., D] -> [...,
    outputs]`, in place of those that the config describes.
    """

    def __init__(
        self,
        spec: EnvSpec,
        config: ActorCriticConfig | None = None,
        generator: torch.Generator | None = None,
        blocks: Sequence[Block] = (),
        *,
        actor: nn.Module | None = None,
        critic: nn.Module | None = None,
    ) -> None:
        self.config = config = config or ActorCriticConfig()
        remembered = {ACTOR_MEMORY: (config.memory.size,)} if config.memory.kind != "none" else {}
        made = make_blocks(config.blocks, FeatureShapes(spec, remembered), generator)
        super().__init__(
            spec,
            config.observations,
            config.normalise_observations,
            config.observation_clip,
            (*made, *blocks),
            remembered,
            config.normaliser_until,
        )
        self.objects = objects_given(block=blocks, network=[each for each in (actor, critic) if each is not None])
        self.head = make_distribution(spec.action, config.distribution.kind, **distribution_options(spec, config))
        # a small last layer makes the first policy nearly the same everywhere (Andrychowicz et al. 2021)
        self.actor = self._branch("actor", config.memory, self.head.inputs, 0.01, generator, actor)
        self.critic = self._branch(
            "critic", config.critic_memory or config.memory, 1, 1.0, generator, critic, config.critics
        )
        if isinstance(self.actor.network, MLP):
            self.head.init_last_layer(self.actor.network.last)
        for which, branch in (("actor", self.actor), ("critic", self.critic)):
            if branch.memory is not None:
                self.memories[f"{which}/memory"] = StateVariable(
                    branch.memory.state_size, which == "actor", through_time=True, parts=branch.memory.state_parts
                )
        self.writes = tuple(self.variables(1, 1))

    def _branch(
        self,
        which: str,
        memory: MemoryConfig,
        outputs: int,
        last_gain: float,
        generator: torch.Generator | None,
        own: nn.Module | None,
        count: int = 1,
    ) -> Branch:
        config, size, remembers = self.config, self.input_size(which), None
        if memory.kind != "none":
            remembers = Memory(memory.kind, size, memory.size, memory.layers, generator)
            size = memory.size
        hidden, entry = getattr(config, f"{which}_hidden"), getattr(config, f"{which}_network")

        def make() -> nn.Module:
            return make_network(
                entry,
                f"agent.{which}_network",
                size,
                outputs,
                generator,
                lambda: MLP(size, hidden, outputs, config.activation, None, config.init, last_gain, generator),
            )

        network = own or (make() if count == 1 else SideBySide([make() for _ in range(count)]))
        return Branch(remembers, network, memory.sequence)

    @property
    def is_plain(self) -> bool:
        return self.is_standard and not is_altered(self)

    @property
    def is_standard(self) -> bool:
        """Whether classes and networks are those of this file, without blocks and memory."""
        return not self.memories and self.has_standard_parts

    @property
    def has_standard_parts(self) -> bool:
        """The same, with or without a memory in front of the networks."""
        if len(self.blocks) or type(self) is not ActorCritic:
            return False
        branches = (self.actor, self.critic)
        kinds = [type(branch) is Branch and type(branch.network) is MLP for branch in branches]
        kinds += [branch.memory is None or type(branch.memory) is Memory for branch in branches]
        return all(kinds) and type(self.normalisers) is GroupNormalisers

    @property
    def output_names(self) -> tuple[str, ...]:
        """What `outputs` returns."""
        return ("output", "value", *(block.writes for block in self._blocks()))

    def critic_parameters(self) -> set[str]:
        """The names of the parameters that acting does not need: the critic's, and those of blocks that it alone
        reads."""
        blocks = [block for block in self.trained_blocks("critic") if block.writes not in self._acting]
        own = {id(p) for module in (self.critic, *blocks) for p in module.parameters()}
        shared = {id(p) for p in self.actor.parameters()}
        return {name for name, parameter in self.named_parameters() if id(parameter) in own - shared}

    # Rollouts

    def variables(self, num_envs: int, rows: int) -> dict[str, Variable]:
        """The dense variables `step` writes in `rows` steps."""
        action = self.spec.action
        variables = {
            self.out("action"): Variable(rows, num_envs, action.shape, action.dtype),
            self.out("policy/params"): Variable(rows, num_envs, (self.head.num_params,), torch.float32),
        }
        if not self.head.raw_is_action:
            variables[self.out("policy/raw")] = Variable(rows, num_envs, self.head.raw_shape, self.head.raw_dtype)
        variables |= {self.out(name): Variable(rows, num_envs, (), torch.bool) for name in self.masks}
        return variables | self.memory_variables(num_envs, rows)

    def step(self, ws: Workspace, t: int, *, stochastic: bool = True, generator: torch.Generator | None = None) -> None:
        observed = self.normalised({name: ws.at(f"env/obs/{name}", t) for name in self.all_groups})
        states = self.states_before(ws, t)
        masks = self._draw_masks(ws, t, generator) if self.masks else {}
        # critics are not asked while playing, but what they remember moves on
        found = self.inputs(observed, ("actor", "critic") if states else ("actor",), states, masks=masks)
        output, actor_state = self.actor(found.networks["actor"], states.get("actor/memory"))
        params = self.head(output)
        raw = self._choose(params, stochastic, generator)
        ws.put(self.out("action"), t, self.head.action(raw))
        ws.put(self.out("policy/params"), t, params)
        if not self.head.raw_is_action:
            ws.put(self.out("policy/raw"), t, raw)
        after = dict(found.states)
        if actor_state is not None:
            after["actor/memory"] = actor_state
        if self.critic.memory is not None:
            after["critic/memory"] = self.critic.remember(found.networks["critic"], states["critic/memory"])
        for name, state in after.items():
            ws.put(self.out(name), t + 1, state)

    def _draw_masks(self, ws: Workspace, t: int, generator: torch.Generator | None) -> dict[str, Tensor]:
        first = ws.at(self.reads[0], t)
        masks = self.draw_masks(first.shape[0], first.device, generator)
        for name, mask in masks.items():
            ws.put(self.out(name), t, mask)
        return masks

    def prepared_step(self, ws: Workspace, options: Mapping[str, Any]) -> Callable[[int], Any]:
        """The same numbers as `step`, with fewer calls: for small batches on the CPU they are what a rollout costs."""
        plain = self.is_plain and not torch.is_grad_enabled()
        network = DenseStack.of(self.actor.network.layers) if plain else None  # type: ignore[arg-type]
        if network is None:
            return super().prepared_step(ws, options)
        head, groups, normalisers = self.head, self.groups["actor"], self.normalisers
        is_random = options.get("stochastic", True) and not self.config.deterministic
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

    def act(
        self, obs: Observation, state: Tensor | None, stochastic: bool, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """One action per row of `obs`, and what acting remembers after it."""
        found = self.answer(obs, state)
        return self.head.action(self._choose(found.params, stochastic, generator)), found.state

    def answer(self, obs: Observation, state: Tensor | None) -> Answer:
        """All that acting says of `obs`, of which `act` takes an action."""
        states = self.split_state(state)
        found = self.inputs(self.normalised(obs), ("actor",), states)
        output, actor_state = self.actor(found.networks["actor"], states.get("actor/memory"))
        after = found.states if actor_state is None else found.states | {"actor/memory": actor_state}
        return Answer(self.head(output), found.written, self.join_state(after))

    def _choose(self, params: Tensor, stochastic: bool, generator: torch.Generator | None) -> Tensor:
        """A raw action: drawn from `generator` (None: the agent's own, see `seed`), or the distribution's mode."""
        if not stochastic or self.config.deterministic:
            return self.head.mode(params)
        return self.head.sample(params, generator or self.generator(params.device))

    # Learning

    def raw_actions(self, ws: Workspace) -> Tensor:
        """The actions in the distribution's own coordinates, [T, B, ...]."""
        return ws[self.out("action" if self.head.raw_is_action else "policy/raw")]

    def observed(self, ws: Workspace) -> dict[str, Tensor]:
        """The groups of a rollout as blocks and networks read them, [T + 1, B, ...]: normalised once per rollout,
        because statistics rest while learning."""
        return self.normalised({name: ws[f"env/obs/{name}"] for name in self.all_groups})

    def values(self, ws: Workspace, observed: Mapping[str, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The critic at every step and at the observation that followed it, each [T, B]; see `row_values`."""
        rows, following = self.row_values(ws, observed)
        return rows[:-1], following

    def row_values(self, ws: Workspace, observed: Mapping[str, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The critic at every row, [T + 1, B], and at the observation that followed each step, [T, B], in the critic's
        own units; with several critics there is an axis of them behind.

        Where an episode ended by its time limit, the observation that followed is the final observation.
        """
        steps = ws.T
        observed = self.observed(ws) if observed is None else observed
        # rows of a memory's step are independent, so time and batch flatten into one
        states = {name: ws[self.out(name)].flatten(0, 1) for name in self.memories}
        masks = {name: _with_last_row(ws[self.out(name)][:steps]).flatten(0, 1) for name in self.masks}
        found = self.inputs({name: x.flatten(0, 1) for name, x in observed.items()}, ("critic",), states, masks=masks)
        output, critic_state = self.critic(found.networks["critic"], states.get("critic/memory"))
        value = self._value(output).unflatten(0, (steps + 1, -1))
        following = value[1:].clone()
        cut = ws["env/truncated"]
        if cut.is_cuda:
            rows = torch.arange(cut.numel(), device=cut.device)  # all rows: fixed shapes, nothing to wait for
        else:
            rows = cut.flatten().nonzero().squeeze(-1)
        if len(rows):
            final = {name: ended.flatten(0, 1)[rows] for name, ended in final_rows(ws, self.critic_groups).items()}
            after = {name: state[rows] for name, state in found.states.items()}
            last = self.inputs(self.normalised(final), ("critic",), after).networks["critic"]
            final_output, _ = self.critic(last, None if critic_state is None else critic_state[rows])
            at_end = following.flatten(0, 1).index_copy(0, rows, self._value(final_output)).view_as(following)
            following = torch.where(cut if following.ndim == cut.ndim else cut.unsqueeze(-1), at_end, following)
        return value, following

    def _value(self, output: Tensor) -> Tensor:
        """What the critic's network gave, [..., 1], as values [...]; several critics keep their axis."""
        return output.squeeze(-1) if self.config.critics == 1 else output

    def learner_inputs(self, ws: Workspace, observed: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """What `outputs` reads: `obs/<group>` [T, B, ...], and with memory `memory/<name>`, the states before each row,
        or [B, S] before row 0 of those through which gradients flow (`column_fields`), and `starts` [T, B]."""
        observed = self.observed(ws) if observed is None else observed
        found = {f"obs/{name}": value[: ws.T] for name, value in observed.items()}
        for name, memory in self.memories.items():
            rows = ws[self.out(name)]
            found[f"memory/{name}"] = rows[0] if memory.through_time else rows[: ws.T]
        found |= {name: ws[self.out(name)][: ws.T] for name in self.masks}
        if self.is_recurrent:
            found["starts"] = self.starts(ws)
        return found

    @property
    def column_fields(self) -> tuple[str, ...]:
        """The fields of `learner_inputs` that hold one row per environment."""
        return tuple(f"memory/{name}" for name, memory in self.memories.items() if memory.through_time)

    def _inputs_of(self, batch: Mapping[str, Tensor]) -> tuple[Inputs, dict[str, Tensor]]:
        observed = {name: batch[f"obs/{name}"] for name in self.all_groups}
        states = {name: batch[f"memory/{name}"] for name in self.memories}
        masks = {name: batch[name] for name in self.masks}
        return self.inputs(observed, ("actor", "critic"), states, batch.get("starts"), masks), states

    def outputs(self, batch: Mapping[str, Tensor], critic: bool = True) -> dict[str, Tensor]:
        """`output`, the head's input [N, ...], `value` [N], and what each block wrote, for a minibatch with the fields
        of `learner_inputs`; with memories that learn through time for sequences [T, N, ...]. `critic=False` leaves the
        value out."""
        found, states = self._inputs_of(batch)
        networks, written = found.networks, found.written
        if self.behind:
            recalled = self.actor.recalled(networks["actor"], states.get("actor/memory"), batch["starts"])
            output = self.actor.through(recalled)
            features = dict(found.features) | {ACTOR_MEMORY: recalled}
            written |= run_blocks(self.behind, features, {}, None, self._components)[1]
        elif self.is_recurrent:
            output = self.actor.sequence(networks["actor"], states.get("actor/memory"), batch["starts"])
        else:
            output, _ = self.actor(networks["actor"], None)
        if not critic:
            return {"output": output} | written
        if self.is_recurrent:
            value = self.critic.sequence(networks["critic"], states.get("critic/memory"), batch["starts"])
        else:
            value, _ = self.critic(networks["critic"], None)
        return {"output": output, "value": self._value(value)} | written

    @torch.no_grad()
    def states_after(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`memory/<name>` [N, S] behind the last row of sequences with the fields of `learner_inputs`, of memories that
        learn through time; those of a critic stay as they are."""
        states = {name: batch[name] for name in self.column_fields}
        rows = {name: value for name, value in batch.items() if name not in (*states, "starts")}
        for t, begins in enumerate(batch["starts"]):
            states = {name: state.masked_fill(begins.unsqueeze(-1), 0.0) for name, state in states.items()}
            found, before = self._inputs_of({name: value[t] for name, value in rows.items()} | states)
            after = dict(found.states)
            if self.actor.memory is not None:
                after["actor/memory"] = self.actor.remember(found.networks["actor"], before["actor/memory"])
            states = {name: after.get(name.removeprefix("memory/"), state) for name, state in states.items()}
        return states

    def evaluate(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Distribution parameters [N, P] and values [N] of a minibatch; see `outputs`."""
        found = self.outputs(batch)
        return self.head(found["output"]), found["value"]

    def starts(self, ws: Workspace) -> Tensor:
        """bool [T, B]: rows before which the memory was emptied (row 0 goes on from its stored state)."""
        return episode_starts(episode_ends(ws))


def _with_last_row(mask: Tensor) -> Tensor:
    """[T, B] with a row of true behind it: nothing was drawn yet for the observation after the last step."""
    return torch.cat((mask, torch.ones_like(mask[:1])))
