"""Blocks: features made of features, between the observation groups and the networks of a policy.

    observation groups -> normalisers -> blocks, in order -> memory -> network -> head

A block reads features (groups, or what blocks before it wrote) and writes one more, under a name that
`agent.observations.actor|critic`, later blocks and loss terms (`new/<name>`) may use. Encoders and estimators are
blocks:

    agent.blocks: [{name: history, reads: [policy], writes: latent, length: 8, size: 16}]
    agent.observations.actor: [policy, latent]

A block with a memory keeps it as one flat state `[B, S]` outside the module, a variable of the workspace, stored as it
was before each step; zeros are the state at the start of an episode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gaitway.agents.features import Columns, Features, Shapes, columns_of, vector_size
from gaitway.core.config import ConfigError, did_you_mean
from gaitway.core.parts import make_part
from gaitway.core.ranges import Count
from gaitway.nn.memory import Memory
from gaitway.nn.mlp import MLP

ACTOR_MEMORY = "actor/memory"
"""What the actor's memory puts out, as a feature: blocks that read it come behind the memory, as further heads."""
Insert = Callable[["Block", Tensor, dict[str, Tensor]], None]
"""Puts what a block wrote into the places of the features that it takes (`Block.inserts`)."""


class Block(nn.Module):
    """Reads the features `reads`, writes the vector `writes` of `size` numbers. A subclass writes `forward`.

    `detach` cuts the gradient of the networks that read it: then only loss terms on `new/<writes>` train the block.
    "critic" cuts that of the critic alone.
    """

    state_size = 0
    """Numbers per instance that the block remembers from step to step, 0 for none; then it writes `advance` too."""
    through_time = False
    """Whether gradients flow through the state from step to step. Such a block writes `sequence` too, and its policy
    learns from whole sequences; otherwise a step is learnt from with the state that was stored before it."""

    inserts: tuple[Columns, ...] = ()
    """Components of groups that the actor and the blocks behind read from this block instead, in the order of what it
    writes; then `insertion` gives them in the units of the environment."""

    def __init__(
        self, reads: Sequence[str], writes: str, size: Count, detach: bool | Literal["critic"] = False
    ) -> None:
        super().__init__()
        if not reads or isinstance(reads, str):
            raise ValueError(f"reads is {reads!r}; list the features that the block reads, such as [policy]")
        if not writes or size < 1:
            raise ValueError(f"writes is {writes!r} and size {size}; a block needs a name and at least 1 number")
        self.reads, self.writes, self.size, self.detach = tuple(reads), writes, size, detach

    @property
    def memory(self) -> str | None:
        """The name of the state variable, None without one."""
        return f"{self.writes}/memory" if self.state_size else None

    @property
    def state_parts(self) -> tuple[tuple[str, int], ...]:
        """What lies in the state one after another, by name and size, for those who read a contract; may be empty."""
        return ()

    def forward(self, *features: Tensor) -> Tensor:
        """Without memory: the features in the order of `reads`, `[..., *shape]` each -> `[..., size]`."""
        raise TypeError(f"{type(self).__name__} does not implement forward")

    def advance(self, features: Sequence[Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
        """One step with memory: features `[..., *shape]` and the state before `[..., S]` -> the result and the state
        after."""
        raise TypeError(f"{type(self).__name__} has a state and does not implement advance")

    def sequence(self, features: Sequence[Tensor], state: Tensor, starts: Tensor) -> Tensor:
        """Features `[T, N, *shape]` from the state before row 0 `[N, S]`, zeroed before the rows where `starts` `[T,
        N]` is true -> `[T, N, size]`; only asked `through_time`."""
        raise TypeError(f"{type(self).__name__} learns through time and does not implement sequence")

    def insertion(self, value: Tensor) -> Tensor:
        """What stands in the places `inserts`, in the units of the environment: `[..., size]`."""
        return value


class MLPEncoder(Block):
    """A multilayer perceptron over the concatenated features, which must be vectors."""

    def __init__(
        self,
        shapes: Shapes,
        reads: tuple[str, ...],
        writes: str,
        size: Count = 32,
        hidden: tuple[Count, ...] = (64,),
        activation: str = "elu",
        detach: bool | Literal["critic"] = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(reads, writes, size, detach)
        self.network = MLP(vector_size(shapes, reads), hidden, size, activation, generator=generator)

    def forward(self, *features: Tensor) -> Tensor:
        return self.network(joined(features))


class HistoryEncoder(Block):
    """A multilayer perceptron over the last `length` values of the features, oldest first, zeros before the episode.

    What a single observation hides (velocities, the load of a motor) shows in several. The past lies in the block's own
    state, so that environment, export and robot need no history of their own (Lee et al. 2020, "Learning quadrupedal
    locomotion over challenging terrain").
    """

    def __init__(
        self,
        shapes: Shapes,
        reads: tuple[str, ...],
        writes: str,
        length: Count = 8,
        size: Count = 32,
        hidden: tuple[Count, ...] = (64,),
        activation: str = "elu",
        detach: bool | Literal["critic"] = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(reads, writes, size, detach)
        if length < 1:
            raise ValueError(f"length is {length}; a history holds at least 1 step, the present one")
        width = vector_size(shapes, reads)
        self.length, self.state_size = length, (length - 1) * width
        self.network = MLP(length * width, hidden, size, activation, generator=generator)

    @property
    def state_parts(self) -> tuple[tuple[str, int], ...]:
        past = self.length - 1
        return tuple((f"{' '.join(self.reads)}@{at - past}", self.state_size // past) for at in range(past))

    def forward(self, *features: Tensor) -> Tensor:
        """A history of one step."""
        return self.network(joined(features))

    def advance(self, features: Sequence[Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
        past = torch.cat((state, joined(features)), -1)
        return self.network(past), past[..., past.shape[-1] - self.state_size :]


class RecurrentEncoder(Block):
    """A GRU or LSTM over the features: its last hidden layer is what it writes. Gradients flow through time."""

    through_time = True

    def __init__(
        self,
        shapes: Shapes,
        reads: tuple[str, ...],
        writes: str,
        kind: str = "gru",
        size: Count = 64,
        layers: Count = 1,
        detach: bool | Literal["critic"] = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(reads, writes, size, detach)
        self.network = Memory(kind, vector_size(shapes, reads), size, layers, generator)
        self.state_size = self.network.state_size

    @property
    def state_parts(self) -> tuple[tuple[str, int], ...]:
        return self.network.state_parts

    def advance(self, features: Sequence[Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
        return self.network.step(joined(features), state)

    def sequence(self, features: Sequence[Tensor], state: Tensor, starts: Tensor) -> Tensor:
        x = joined(features)
        return self.network.sequence(x, state, starts, "stepwise" if x.is_cuda else "padded")


BLOCKS: dict[str, type[Block] | str] = {
    "mlp": MLPEncoder,
    "history": HistoryEncoder,
    "recurrent": RecurrentEncoder,
    "conv1d": "gaitway.agents.conv_encoder:Conv1dEncoder",
    "conv2d": "gaitway.agents.conv_encoder:Conv2dEncoder",
    "estimator": "gaitway.agents.estimator:Estimator",
}
"""Blocks by the names that `agent.blocks` uses."""


def make_blocks(
    entries: Sequence[Mapping[str, Any]], shapes: Shapes, generator: torch.Generator | None = None
) -> list[Block]:
    """The blocks of `agent.blocks`; `shapes` are those of the environment's groups."""
    known, blocks = copy(shapes) if isinstance(shapes, dict) else dict(shapes), []
    for number, entry in enumerate(entries):
        key = f"agent.blocks[{number}]"
        later = {str(other.get("writes")): at for at, other in enumerate(entries) if at >= number}
        for name in entry.get("reads", ()):
            if name not in known and name in later:
                maker = f"agent.blocks[{later[name]}] makes later; place its maker before it"
                maker = "it writes itself; name what is there before it" if later[name] == number else maker
                raise ConfigError(f"{key} reads {name!r}, which {maker}", key)
        block = make_part(entry, BLOCKS, key, given={"shapes": known, "generator": generator}, kind=Block)
        if not isinstance(block, Block):
            raise ConfigError(f"{key} is a {type(block).__name__}; derive it from gaitway.agents.blocks.Block", key)
        blocks.append(block)
        known[block.writes] = (block.size,)
    return blocks


def check_blocks(blocks: Sequence[Block], shapes: Shapes) -> None:
    """Refuse blocks that read what is not there yet, and names that are taken."""
    known = set(shapes)
    for block in blocks:
        for name in block.reads:
            if name == ACTOR_MEMORY and name not in known:
                raise ValueError(
                    f"the block {block.writes!r} reads the actor's memory, but there is none; set agent.memory.kind, "
                    "or give the block a memory of its own"
                )
            if name not in known and name not in shapes:
                later = [other for other in blocks if other.writes == name]
                if later:
                    raise ValueError(f"the block {block.writes!r} reads {name!r}, which is made later; place it behind")
                raise ValueError(
                    f"the block {block.writes!r} reads {name!r}{did_you_mean(name, known)}; there are {sorted(known)}"
                )
        if block.writes in known:
            what = "a group of the environment" if block.writes in shapes else "the name of another block"
            raise ValueError(f"a block writes {block.writes!r}, which is {what}; give it a name of its own")
        known.add(block.writes)


def blocks_for(blocks: Sequence[Block], features: Sequence[str]) -> list[Block]:
    """Those of `blocks` that `features` are made by, in their order."""
    wanted, found = set(features), []
    for block in reversed(blocks):
        if block.writes in wanted:
            found.append(block)
            wanted.update(block.reads)
    return found[::-1]


def acting_needs(
    blocks: Sequence[Block], features: Sequence[str], shapes: Shapes
) -> tuple[list[Block], dict[str, set[int]]]:
    """The blocks that `features` are made by or replaced by, in their order, and the features of `shapes` that are
    still needed then, with the numbers of those that are: what is replaced is not."""
    wanted: dict[str, set[int]] = {}

    def want(names: Sequence[str]) -> None:
        for columns in (columns_of(shapes, name) for name in names):
            wanted.setdefault(columns.feature, set()).update(range(columns.start, columns.stop))

    want(features)
    found = []
    for block in reversed(blocks):
        taken = [wanted.get(each.feature, set()) & {*range(each.start, each.stop)} for each in block.inserts]
        if block.writes in wanted or any(taken):
            found.append(block)
            for columns, numbers in zip(block.inserts, taken, strict=True):
                if numbers:
                    wanted[columns.feature] -= numbers
            want(block.reads)
    return found[::-1], {name: numbers for name, numbers in wanted.items() if numbers}


def judging_needs(
    blocks: Sequence[Block], features: Sequence[str], shapes: Shapes
) -> tuple[frozenset[str], frozenset[str]]:
    """What a critic of these features needs: blocks, by what they write, and features. It reads groups as they were
    observed, but its blocks read them with what estimates took the place of."""
    wanted, read, found = {columns_of(shapes, name).feature for name in features}, set[str](), set[str]()
    for block in reversed(blocks):
        if block.writes in wanted or any(each.feature in read for each in block.inserts):
            found.add(block.writes)
            read |= {columns_of(shapes, name).feature for name in block.reads}
            wanted |= read
    return frozenset(found), frozenset(wanted)


def blocks_behind_memory(blocks: Sequence[Block]) -> list[Block]:
    """Those that read what the actor's memory puts out, or what such blocks write; they remember nothing."""
    known, found = {ACTOR_MEMORY}, []
    for block in blocks:
        if known.intersection(block.reads):
            if block.state_size:
                raise ValueError(
                    f"the block {block.writes!r} reads the actor's memory and has one of its own; drop one of them"
                )
            found.append(block)
            known.add(block.writes)
    return found


def run_blocks(
    blocks: Sequence[Block],
    groups: Mapping[str, Tensor],
    states: Mapping[str, Tensor],
    starts: Tensor | None = None,
    components: Mapping[str, Columns] = MappingProxyType({}),
    insert: Insert | None = None,
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """Features as the actor reads them, what each block wrote (with its gradient), and the states after.

    `states` are those before the step, by the name of their variable; with `starts` those of blocks that learn through
    time are the ones before row 0 of a sequence, and none comes back.
    """
    features, written, after = Features(groups, components), {}, {}
    for block in blocks:
        read = [features[name] for name in block.reads]
        if block.memory is None:
            value = block(*read)
        elif block.through_time and starts is not None:
            value = block.sequence(read, states[block.memory], starts)
        else:
            value, state = block.advance(read, states[block.memory])
            after[block.memory] = state.float()
        written[block.writes] = value = value.float()
        features[block.writes] = value.detach() if block.detach is True else value
        if block.inserts and insert is not None:
            insert(block, value.detach(), features)
    return features, written, after


def joined(features: Sequence[Tensor]) -> Tensor:
    """The features side by side as float32, `[..., D]`."""
    return features[0].float() if len(features) == 1 else torch.cat([feature.float() for feature in features], -1)
