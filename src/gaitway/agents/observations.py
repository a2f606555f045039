"""Which features a network reads, and the one way from observation groups to its input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gaitway.agents.blocks import Block, blocks_for, check_blocks, joined, run_blocks, vector_size
from gaitway.core.config import configuration, did_you_mean
from gaitway.core.small_agents import SeedableAgent
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.vec_env import EnvSpec
from gaitway.nn.normalise import RunningNorm


@configuration
class Observations:
    """What each network reads, groups of the environment or features that blocks write, concatenated in this order;
    empty means the default of the environment."""

    actor: tuple[str, ...] = ()
    """Default: `policy` if there is one, else all vector groups in declared order."""
    critic: tuple[str, ...] = ()
    """Default: `critic` if there is one, else the actor's."""


def default_groups(spec: EnvSpec, which: str, chosen: Observations, made: Iterable[str] = ()) -> tuple[str, ...]:
    """What one network reads: groups of the environment and features `made` by blocks, as the config names them, else
    the default of the environment."""
    names, made = tuple(getattr(chosen, which)), tuple(made)
    if not names and which == "critic":
        names = ("critic",) if "critic" in spec.group_names else default_groups(spec, "actor", chosen, made)
    if not names:
        vectors = tuple(group.name for group in spec.groups if group.is_vector)
        names = ("policy",) if "policy" in spec.group_names else vectors
    for name in names:
        if name in made:
            continue
        if name not in spec.group_names:
            hint, blocks = did_you_mean(name, (*spec.group_names, *made)), f" and blocks make {made}" if made else ""
            raise ValueError(
                f"agent.observations.{which} names {name!r}{hint}, but {spec.id} has the groups "
                f"{spec.group_names}{blocks}"
            )
        if not spec.group(name).is_vector:
            raise ValueError(
                f"agent.observations.{which} names {name!r}, {spec.group(name).shape}; networks read vectors, so let a "
                "block of agent.blocks read it, and name what that block writes"
            )
    return names


def input_size(spec: EnvSpec, groups: Iterable[str]) -> int:
    """How many numbers the concatenated groups are."""
    return sum(spec.group(name).shape[0] for name in groups)


class StateVariable(NamedTuple):
    """What a policy remembers under one name from step to step, `[B, size]`; zeros begin an episode."""

    size: int
    acts: bool
    """Whether acting needs it; a critic's memory is for learning alone."""
    through_time: bool
    """Whether gradients flow through it, so that whole sequences are learnt from."""
    parts: tuple[tuple[str, int], ...] = ()
    """What lies in it one after another, by name and size; empty: nothing that has names."""


class Inputs(NamedTuple):
    """What `ObservingPolicy.inputs` makes of observations."""

    networks: dict[str, Tensor]
    """`actor`, `critic`: what each network reads, `[..., D]`."""
    written: dict[str, Tensor]
    """What each block wrote, with its gradient."""
    states: dict[str, Tensor]
    """The blocks' states after the step, by the names of their variables."""


class ObservingPolicy(SeedableAgent):
    """What all policies share on the side of observations: groups, normalisers, blocks, and their memories.

    `groups` are the features that `actor` and `critic` read; `all_groups` the observation groups that all of it needs,
    `actor_groups` those that acting needs.
    """

    is_recordable = True

    def __init__(
        self,
        spec: EnvSpec,
        observations: Observations,
        normalise: bool,
        clip: float | None,
        blocks: Sequence[Block] = (),
    ) -> None:
        super().__init__(rule="last")
        shapes = {group.name: group.shape for group in spec.groups}
        check_blocks(blocks, shapes)
        self.spec = spec
        made = [block.writes for block in blocks]
        self.groups = {which: default_groups(spec, which, observations, made) for which in ("actor", "critic")}
        self.feature_shapes = shapes | {block.writes: (block.size,) for block in blocks}
        networks = self.groups["actor"] + self.groups["critic"]
        read = dict.fromkeys((*networks, *(name for block in blocks for name in block.reads)))
        self.all_groups = tuple(name for name in read if name in shapes)
        acting = blocks_for(blocks, self.groups["actor"])
        needed = {*self.groups["actor"], *(name for block in acting for name in block.reads)}
        self.actor_groups = tuple(name for name in self.all_groups if name in needed)
        vectors = [name for name in self.all_groups if spec.group(name).is_vector]
        self.normalisers = GroupNormalisers(spec, vectors if normalise else (), clip)
        self.blocks = nn.ModuleList(blocks)
        self._acting = frozenset(block.writes for block in acting)
        self.memories: dict[str, StateVariable] = {
            block.memory: StateVariable(
                block.state_size, block.writes in self._acting, block.through_time, block.state_parts
            )
            for block in blocks
            if block.memory is not None
        }
        """Every state variable by its name in the workspace, without prefix."""
        self.reads = tuple(f"env/obs/{name}" for name in self.all_groups)

    def input_size(self, which: str) -> int:
        """How many numbers a network reads."""
        return vector_size(self.feature_shapes, self.groups[which])

    # Observations -> inputs of the networks

    def normalised(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The groups of `obs` that this policy reads: vectors as float32, normalised; images as they are."""
        return {name: self.normalisers.normalise(name, obs[name]) for name in self.all_groups if name in obs}

    def inputs(
        self,
        observed: Mapping[str, Tensor],
        networks: Sequence[str] = ("actor", "critic"),
        states: Mapping[str, Tensor] = MappingProxyType({}),
        starts: Tensor | None = None,
    ) -> Inputs:
        """Normalised groups -> blocks in order -> what `networks` read. Rollout, evaluation and update all pass here.

        `states` are those of the blocks before the step; with `starts` the observations are sequences, see
        `blocks.run_blocks`. Asked for the actor alone, only the blocks that acting needs are run.
        """
        features: Mapping[str, Tensor] = observed
        written: dict[str, Tensor] = {}
        after: dict[str, Tensor] = {}
        if len(self.blocks):
            wanted = [b for b in self._blocks() if "critic" in networks or b.writes in self._acting]
            features, written, after = run_blocks(wanted, observed, states, starts)
        found: dict[str, Tensor] = {}
        for which in networks:
            same = [other for other in found if self.groups[other] == self.groups[which]]
            found[which] = found[same[0]] if same else joined([features[name] for name in self.groups[which]])
        return Inputs(found, written, after)

    def network_input(self, obs: Mapping[str, Tensor], which: str) -> Tensor:
        """What one network reads of observations at the beginning of an episode: [..., D]."""
        observed = self.normalised(obs)
        name, first = next(iter(observed.items()))
        leading = first.shape[: first.ndim - len(self.feature_shapes[name])]
        states = {name: first.new_zeros(*leading, memory.size) for name, memory in self.memories.items()}
        return self.inputs(observed, (which,), states).networks[which]

    def update_normalisers(self, ws: Workspace) -> None:
        """Count the observations that were just collected, each row once. Between updates, so that the policy that
        learns is the one that acted."""
        self.normalisers.count(ws, self.all_groups)

    # Learning from single steps of a replay

    def trained_blocks(self, by: str) -> list[Block]:
        """The blocks that the loss of one network trains: critics train those they read, an actor those that it alone
        reads; `all` are those of both."""
        critic, actor = (blocks_for(self._blocks(), self.groups[which]) for which in ("critic", "actor"))
        alone = [block for block in actor if block not in critic]
        return {"critic": critic, "actor": alone, "all": [*critic, *alone]}[by]

    def learner(self, network: nn.Module, by: str) -> nn.Module:
        """What a gradient step of `network` moves: itself, and the blocks that its loss trains."""
        blocks = self.trained_blocks(by)
        return nn.ModuleDict({"network": network, "blocks": nn.ModuleList(blocks)}) if blocks else network

    def read(self, drawn: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What networks read of drawn transitions: `actor`, `critic`, and `next/...` of the next observations, [n, D].

        With blocks `observed/<group>` and `memory/<name>` too, from which `inputs_again` makes the inputs with their
        gradient.
        """
        batch: dict[str, Tensor] = {}
        states = {name: drawn[self.out(name)] for name in self.memories}
        for source, prefix in (("obs", ""), ("next_obs", "next/")):
            observed = self.normalised({name: drawn[f"{source}/{name}"] for name in self.all_groups})
            found = self.inputs(observed, ("actor", "critic"), states)
            batch |= {f"{prefix}{which}": value for which, value in found.networks.items()}
            if len(self.blocks) and not prefix:
                batch |= {f"observed/{name}": value for name, value in observed.items()}
                batch |= {f"memory/{name}": value for name, value in states.items()}
            states = found.states
        return batch

    def inputs_again(self, batch: Mapping[str, Tensor], which: str, by: str | None = None) -> Tensor:
        """What a network reads of a batch of `read`; made again, with its gradient, where the loss of network `by`
        (None: the same) trains blocks."""
        if not self.trained_blocks(by or which):
            return batch[which]
        observed = {name: batch[f"observed/{name}"] for name in self.all_groups}
        states = {name: batch[f"memory/{name}"] for name in self.memories}
        return self.inputs(observed, ("actor", "critic"), states).networks[which]

    # What is remembered from step to step

    def _blocks(self) -> list[Block]:
        return list(self.blocks)  # type: ignore[arg-type]

    @property
    def is_recurrent(self) -> bool:
        """Whether learning needs whole sequences."""
        return any(memory.through_time for memory in self.memories.values())

    @property
    def resets(self) -> bool:
        return bool(self.memories)

    def memory_variables(self, num_envs: int, rows: int) -> dict[str, Variable]:
        return {
            self.out(name): Variable(rows + 1, num_envs, (memory.size,), torch.float32)
            for name, memory in self.memories.items()
        }

    def states_before(self, ws: Workspace, t: int) -> dict[str, Tensor]:
        """The states that row t starts from: those in the workspace, or empty ones at the very beginning."""
        for name, memory in self.memories.items():
            if self.out(name) not in ws:
                first = ws.at(self.reads[0], t)
                # the shape and not len(), which would fix the number of rows of an export
                ws.put(self.out(name), t, torch.zeros(first.shape[0], memory.size, device=first.device))
        return {name: ws.at(self.out(name), t) for name in self.memories}

    def reset(self, ws: Workspace, t: int, mask: Tensor) -> None:
        """Forget what was remembered of the episodes that ended before row t."""
        keep = (~mask).unsqueeze(-1)
        for name in map(self.out, self.memories):
            if name in ws:
                ws.put(name, t, ws.at(name, t) * keep)

    def initial_state(self, batch: int, device: torch.device | str) -> Tensor | None:
        """What acting remembers before its first step, zeros `[batch, S]`; None without memory."""
        size = sum(memory.size for memory in self.memories.values() if memory.acts)
        return torch.zeros(batch, size, device=device) if size else None

    def split_state(self, state: Tensor | None) -> dict[str, Tensor]:
        """The named slices of the flat state `[B, S]` that `act` takes and returns."""
        acting = {name: memory.size for name, memory in self.memories.items() if memory.acts}
        return {} if state is None else dict(zip(acting, state.split(list(acting.values()), -1), strict=True))

    def join_state(self, states: Mapping[str, Tensor]) -> Tensor | None:
        """The flat state of the named ones that acting needs; None without memory."""
        parts = [states[name] for name, memory in self.memories.items() if memory.acts]
        return torch.cat(parts, -1) if len(parts) > 1 else parts[0] if parts else None


class GroupNormalisers(nn.ModuleDict):
    """Running normalisation of the floating-point groups among `names`; others, and all with `names=()`, pass as they
    are. `clip` bounds normalised values, None or 0 for no limit."""

    def __init__(self, spec: EnvSpec, names: Iterable[str], clip: float | None) -> None:
        floating = [name for name in names if spec.group(name).torch_dtype.is_floating_point]
        super().__init__(
            {_module_name(name): RunningNorm(spec.group(name).shape, clip=clip or None) for name in floating}
        )
        self._images = frozenset(group.name for group in spec.groups if not group.is_vector)

    def inputs(self, obs: Mapping[str, Tensor], groups: tuple[str, ...]) -> Tensor:
        """The groups as float32, normalised and concatenated: [..., D]."""
        if len(groups) == 1 and not self._modules:
            return obs[groups[0]].float()
        parts = [self.normalise(name, obs[name]) for name in groups]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def normalise(self, group: str, value: Tensor) -> Tensor:
        """One group `[..., *shape]`: vectors as float32, normalised if the group is; images as they are."""
        norm = self.of(group)
        if norm is not None:
            value = norm(value)
        return value if group in self._images else value.float()

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
