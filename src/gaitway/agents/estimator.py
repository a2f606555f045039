"""Blocks that estimate what the robot cannot measure: velocities, friction, what a privileged group knows.

With e = f(features) in units of the target's running mean m and standard deviation s:

    loss           mean over rows of the sum over features of loss(e, (target - m) / s)
    replacement    the actor reads m + s e, without gradient, in the place of a component

The loss is `algorithms/estimation.py`. While training the replacement happens in a share of the steps, drawn for each
and stored; in evaluations and exports it always does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from gaitway.agents.blocks import ACTOR_MEMORY, Block, joined
from gaitway.agents.features import Shapes, columns_of, vector_size
from gaitway.core.ranges import Count, Share
from gaitway.nn.memory import Memory
from gaitway.nn.mlp import MLP
from gaitway.nn.normalise import RunningNorm


class Estimator(Block):
    """Estimates the components `target` of groups that the critic reads; an adaptor of privileged states is one too.

    Writes `estimate/<writes>`, in units of the target's standard deviation. `into` are the components that the actor
    reads the estimate in the place of (default: the targets), in a share `replace` of the training steps.
    """

    def __init__(
        self,
        shapes: Shapes,
        reads: tuple[str, ...],
        writes: str,
        target: tuple[str, ...],
        memory: Literal["none", "gru", "lstm"] = "none",
        memory_size: Count = 64,
        layers: Count = 1,
        hidden: tuple[Count, ...] = (64,),
        activation: str = "elu",
        replace: Share = 0.0,
        into: tuple[str, ...] = (),
        generator: torch.Generator | None = None,
    ) -> None:
        if not target:
            raise ValueError("target is empty; name what is estimated, such as [critic.velocity] or a whole group")
        vector_size(shapes, (*target, *into))
        self.targets = tuple(columns_of(shapes, name) for name in target)
        super().__init__(reads, f"estimate/{writes}", sum(each.size for each in self.targets), detach=True)
        self.target_names, self.replace = target, replace
        self._check(memory, replace, into)
        self.inserts = tuple(columns_of(shapes, name) for name in into or target) if replace else ()
        for name, wanted, found in zip(into, self.targets, self.inserts, strict=False):
            if wanted.size != found.size:
                raise ValueError(f"into has {name!r}, {found.size} numbers, in the place of {wanted.size}")
        if into and len(into) != len(target):
            raise ValueError(f"into names {len(into)} components and target {len(target)}; name one for each")
        inputs = vector_size(shapes, reads)
        self.recurrence: Memory | None = None
        if memory != "none":
            self.recurrence = Memory(memory, inputs, memory_size, layers, generator)
            self.state_size, self.through_time, inputs = self.recurrence.state_size, True, memory_size
        self.network = MLP(inputs, hidden, self.size, activation, generator=generator)
        self.scale = RunningNorm(self.size)
        """Statistics of the targets, in the environment's units."""

    def _check(self, memory: str, replace: float, into: tuple[str, ...]) -> None:
        if ACTOR_MEMORY in self.reads and replace:
            raise ValueError(
                f"{self.writes!r} reads the actor's memory and has replace: {replace}, but that memory has read what "
                "would be replaced; give the estimator one of its own (memory: gru), or replace: 0"
            )
        if ACTOR_MEMORY in self.reads and memory != "none":
            raise ValueError(f"{self.writes!r} reads the actor's memory and has one of its own; use memory: none")
        if into and not replace:
            raise ValueError(f"into is {list(into)}, but replace is 0; say how often the estimate takes its place")

    @property
    def mask(self) -> str | None:
        """The variable that says where the estimate took the place; None where it always does, or never."""
        return f"replaced/{self.writes.removeprefix('estimate/')}" if 0.0 < self.replace < 1.0 else None

    @property
    def state_parts(self) -> tuple[tuple[str, int], ...]:
        return self.recurrence.state_parts if self.recurrence is not None else ()

    def forward(self, *features: Tensor) -> Tensor:
        return self.network(joined(features))

    def advance(self, features: Sequence[Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
        assert self.recurrence is not None
        x, state = self.recurrence.step(joined(features), state)
        return self.network(x), state

    def sequence(self, features: Sequence[Tensor], state: Tensor, starts: Tensor) -> Tensor:
        assert self.recurrence is not None
        x = joined(features)
        return self.network(self.recurrence.sequence(x, state, starts, "stepwise" if x.is_cuda else "padded"))

    def insertion(self, value: Tensor) -> Tensor:
        """The estimate in the units of the environment, `[..., size]`."""
        return self.scale.inverse(value)

    def target_of(self, obs: Mapping[str, Tensor]) -> Tensor:
        """The targets in raw observations, in the environment's units: `[..., size]`."""
        return torch.cat([columns.of(obs).float() for columns in self.targets], -1)
