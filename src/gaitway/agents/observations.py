"""Which features a network reads, and the one way from observation groups to its input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gaitway.agents.blocks import (
    Block,
    acting_needs,
    blocks_behind_memory,
    blocks_for,
    check_blocks,
    joined,
    judging_needs,
    run_blocks,
)
from gaitway.agents.estimator import Estimator
from gaitway.agents.features import Columns, FeatureShapes, Shapes, columns_of, vector_size
from gaitway.core.config import configuration, did_you_mean
from gaitway.core.seeding import fill
from gaitway.core.small_agents import SeedableAgent
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.spec import EnvSpec
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
    features: Mapping[str, Tensor]
    """Groups, normalised and with what blocks put in their places, and what blocks made, as the actor reads them."""


class ObservingPolicy(SeedableAgent):
    """What all policies share on the side of observations: groups, normalisers, blocks, and their memories.

    `groups` are the features that `actor` and `critic` read; `all_groups` the observation groups that all of it needs,
    `actor_groups` those that acting needs, `critic_groups` those that a value needs.
    """

    is_recordable = True

    def __init__(
        self,
        spec: EnvSpec,
        observations: Observations,
        normalise: bool,
        clip: float | None,
        blocks: Sequence[Block] = (),
        remembered: Shapes = MappingProxyType({}),
        until: int | None = None,
    ) -> None:
        """`remembered` are further features that there are behind the memories of networks, for blocks."""
        super().__init__(rule="last")
        shapes = FeatureShapes(spec, remembered)
        check_blocks(blocks, shapes)
        self.spec = spec
        self.behind = blocks_behind_memory(blocks)
        """Blocks that read what the actor's memory puts out: heads for losses, which acting does without."""
        made = [block.writes for block in blocks if block not in self.behind]
        self.groups = {which: default_groups(spec, which, observations, made) for which in ("actor", "critic")}
        self._components = shapes.components
        self.estimators = {each.writes: each for each in blocks if isinstance(each, Estimator)}
        self.masks = {each.mask: each for each in self.estimators.values() if each.mask is not None}
        """Variables that say in which steps of a rollout an estimate took the place of what was observed."""
        for block in blocks:
            shapes[block.writes] = (block.size,)
        self.feature_shapes: Shapes = shapes
        names = [*self.groups["actor"], *self.groups["critic"], *(name for block in blocks for name in block.reads)]
        read = dict.fromkeys(columns_of(shapes, name).feature for name in names)
        self.all_groups = tuple(name for name in read if name in spec.group_names)
        acting, needed = acting_needs(blocks, self.groups["actor"], shapes)
        self.actor_groups = tuple(name for name in self.all_groups if name in needed)
        self.unread = {
            name: tuple(
                each.name
                for each in spec.group(name).components
                if spec.group(name).is_vector and needed[name].isdisjoint(range(*_place(shapes, name, each.name)))
            )
            for name in self.actor_groups
        }
        """Of each of `actor_groups` the components that acting does not look at, because estimates take their place."""
        self._check_estimators(blocks)
        vectors = [name for name in self.all_groups if spec.group(name).is_vector]
        self.normalisers = GroupNormalisers(spec, vectors if normalise else (), clip, until)
        self.blocks = nn.ModuleList(blocks)
        self._acting = frozenset(block.writes for block in acting)
        ahead = [block for block in blocks if block not in self.behind]
        self._judging, judged = judging_needs(ahead, self.groups["critic"], shapes)
        self.critic_groups = tuple(name for name in self.all_groups if name in judged)
        self._detached = tuple(each.writes for each in blocks if each.detach == "critic")
        self._is_apart = bool(self._detached) or any(block.inserts for block in blocks)
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
        masks: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> Inputs:
        """Normalised groups -> blocks in order -> what `networks` read. Rollout, evaluation and update all pass here.

        `states` are those of the blocks before the step; with `starts` the observations are sequences, see
        `blocks.run_blocks`. Asked for one network alone, only the blocks that it needs are run. `masks` [...] says
        where estimates take the place of what was observed; without one they always do. The critic reads the groups as
        they were observed.
        """
        features: Mapping[str, Tensor] = observed
        written: dict[str, Tensor] = {}
        after: dict[str, Tensor] = {}
        if len(self.blocks):
            wanted = self._blocks_of(networks)
            insert = partial(self._insert, masks=masks)
            features, written, after = run_blocks(wanted, observed, states, starts, self._components, insert)
        found: dict[str, Tensor] = {}
        for which in networks:
            read = features
            if which == "critic" and self._is_apart:
                detached = {name: features[name].detach() for name in self._detached if name in features}
                read = dict(features) | dict(observed) | detached
            same = [other for other in found if self.groups[other] == self.groups[which] and read is features]
            found[which] = found[same[0]] if same else joined([read[name] for name in self.groups[which]])
        return Inputs(found, written, after, features)

    def _blocks_of(self, networks: Sequence[str]) -> list[Block]:
        """The blocks to run for these networks: those that the one needs, for both all but the heads behind memory."""
        if tuple(networks) == ("actor",):
            needed = self._acting
        elif tuple(networks) == ("critic",):
            needed = self._judging
        else:
            return [block for block in self._blocks() if block not in self.behind]
        return [block for block in self._blocks() if block.writes in needed and block not in self.behind]

    def _insert(self, block: Block, value: Tensor, features: dict[str, Tensor], masks: Mapping[str, Tensor]) -> None:
        """Put what a block wrote into the places that it takes, normalised as these are; elsewhere nothing changes."""
        mask = masks.get(getattr(block, "mask", None) or "")
        pieces = block.insertion(value).split([columns.size for columns in block.inserts], -1)
        for columns, piece in zip(block.inserts, pieces, strict=True):
            piece, name = self.normalisers.normalise_columns(columns, piece), columns.feature
            whole = features.get(name)
            if whole is None:  # all of it is replaced, by this block or by several
                whole = piece.new_zeros(*piece.shape[:-1], *self.feature_shapes[name])
            if mask is not None:
                piece = torch.where(mask.unsqueeze(-1), piece, whole[..., columns.start : columns.stop])
            features[name] = torch.cat((whole[..., : columns.start], piece, whole[..., columns.stop :]), -1)

    def draw_masks(self, rows: int, device: torch.device, generator: torch.Generator | None) -> dict[str, Tensor]:
        """In which of `rows` an estimate takes the place of what was observed, by variable; drawn while training alone,
        because elsewhere it always does."""
        if not self.training or not self.masks:
            return {}
        generator = generator or self.generator(device)
        return {
            name: fill(torch.empty(rows, device=device), generator, "uniform_") < estimator.replace
            for name, estimator in self.masks.items()
        }

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
        valid = ws["env/valid"] if "env/valid" in ws else None
        for estimator in self.estimators.values():
            obs = {each.feature: ws[f"env/obs/{each.feature}"][: ws.T] for each in estimator.targets}
            estimator.scale.update(estimator.target_of(obs), valid)

    def _check_estimators(self, blocks: Sequence[Block]) -> None:
        """Targets are what the critic reads; estimates replace what the actor reads."""
        behind_critic = blocks_for(blocks, self.groups["critic"])
        names = (*self.groups["critic"], *(name for block in behind_critic for name in block.reads))
        judged = {columns_of(self.feature_shapes, name).feature for name in names}
        for number, block in enumerate(blocks):
            for name, columns in zip(getattr(block, "target_names", ()), getattr(block, "targets", ()), strict=True):
                if columns.feature not in judged:
                    raise ValueError(
                        f"the estimator {block.writes!r} has the target {name!r}, which the critic does not read: it "
                        f"reads {list(self.groups['critic'])}; add {columns.feature!r} to agent.observations.critic"
                    )
            read = {*self.groups["actor"], *(each for later in blocks[number + 1 :] for each in later.reads)}
            read = {columns_of(self.feature_shapes, each).feature for each in read}
            for columns in block.inserts:
                if columns.feature not in read:
                    raise ValueError(
                        f"{block.writes!r} takes the place of a part of {columns.feature!r}, which neither the actor "
                        "nor a block behind it reads; name it in agent.observations.actor, or say replace: 0"
                    )

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


def _place(shapes: FeatureShapes, group: str, component: str) -> tuple[int, int]:
    columns = shapes.components[f"{group}.{component}"]
    return columns.start, columns.stop


class GroupNormalisers(nn.ModuleDict):
    """Running normalisation of the floating-point groups among `names`; others, and all with `names=()`, pass as they
    are. `clip` bounds normalised values, None or 0 for no limit."""

    def __init__(self, spec: EnvSpec, names: Iterable[str], clip: float | None, until: int | None = None) -> None:
        floating = [name for name in names if spec.group(name).torch_dtype.is_floating_point]
        super().__init__(
            {
                _module_name(name): RunningNorm(spec.group(name).shape, clip=clip or None, until=until)
                for name in floating
            }
        )
        self.mirrors: dict[str, tuple[Tensor, Tensor]] = {}
        """Order and signs of a group's entries in a mirror; its statistics count every row and its image."""
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

    def normalise_columns(self, columns: Columns, value: Tensor) -> Tensor:
        """Some columns of a vector group alone, `[..., n]`, as `normalise` would give them."""
        norm = self.of(columns.feature)
        return value if norm is None else norm.of_columns(value, columns.start, columns.stop)

    def count(self, ws: Workspace, groups: tuple[str, ...]) -> None:
        """Take the observations of a rollout into the statistics, each row once."""
        valid = ws["env/valid"] if "env/valid" in ws else None
        for name in groups:
            norm = self.of(name)
            if norm is not None:
                norm.update(ws[f"env/obs/{name}"][: ws.T], valid)
                if name in self.mirrors:
                    order, sign = self.mirrors[name]
                    norm.update(ws[f"env/obs/{name}"][: ws.T].index_select(-1, order) * sign, valid)
                    norm.symmetrise(order, sign)

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
