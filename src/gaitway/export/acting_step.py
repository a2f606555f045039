"""One step of what acts, as a function of tensors alone: what is exported.

    observations and memories before the step -> action and memories after it

Everything between is the policy's own `act` without noise, as in evaluations: normalisers, blocks, memory, network,
head, and the limits of the actions. A block or a memory that a policy has is therefore part of it, without a line here.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gaitway.agents.policy import Policy
from gaitway.envs.vec_env import ActionSpec, EnvSpec, Observation

ACTION = "action"


class MemoryPort(NamedTuple):
    """One memory: an input, and the output that is the same input of the next step."""

    name: str
    size: int
    reset: tuple[float, ...]
    """The values that begin an episode."""
    parts: tuple[tuple[str, int], ...]
    """What lies in it one after another, by name and size; empty: nothing that has names."""

    @property
    def input(self) -> str:
        return f"{self.name}_in"

    @property
    def output(self) -> str:
        return f"{self.name}_out"


class ActingStep(nn.Module):
    """`[B, ...]` per observation group and memory -> the action, within its limits, and the memories after it."""

    low: Tensor
    high: Tensor

    def __init__(self, policy: Policy, spec: EnvSpec) -> None:
        super().__init__()
        chosen: Any = getattr(policy, "acting", policy)  # of several particles, the one that acts
        self.policy, self.spec = chosen, spec
        self.groups = tuple(spec.group(name) for name in policy.actor_groups)
        self.memories = memory_ports(policy)
        limits = action_limits(spec.action)
        self.is_limited = limits is not None
        if limits is not None:
            self.register_buffer("low", limits[0], persistent=False)
            self.register_buffer("high", limits[1], persistent=False)

    @property
    def input_names(self) -> list[str]:
        return [f"obs/{group.name}" for group in self.groups] + [memory.input for memory in self.memories]

    @property
    def output_names(self) -> list[str]:
        return [ACTION] + [memory.output for memory in self.memories]

    def example(self, batch: int) -> tuple[Tensor, ...]:
        """Inputs of zeros, in order."""
        groups = [torch.zeros(batch, *group.shape, dtype=group.torch_dtype) for group in self.groups]
        return (*groups, *(torch.zeros(batch, memory.size) for memory in self.memories))

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        obs: Observation = {group.name: value for group, value in zip(self.groups, tensors, strict=False)}
        states = tensors[len(self.groups) :]
        state = torch.cat(states, -1) if len(states) > 1 else states[0] if states else None
        action, after = self.policy.act(obs, state, False)
        if self.is_limited:
            action = torch.minimum(torch.maximum(action, self.low), self.high)
        return (action, *([] if after is None else after.split([memory.size for memory in self.memories], -1)))


def memory_ports(policy: Policy) -> tuple[MemoryPort, ...]:
    """The memories that acting needs, in the order in which they lie in the flat state of `act`."""
    acting = {name: memory for name, memory in policy.memories.items() if memory.acts}
    first = policy.initial_state(1, "cpu")
    values = [] if first is None else first[0].tolist()
    ends = list(itertools.accumulate(memory.size for memory in acting.values()))
    if len(values) != sum(memory.size for memory in acting.values()):
        raise ValueError(
            f"the policy begins with {len(values)} remembered numbers, but its memories {list(acting)} have "
            f"{ends[-1] if ends else 0}; list all that acting remembers in `memories`"
        )
    return tuple(
        MemoryPort(name, memory.size, tuple(values[end - memory.size : end]), memory.parts)
        for end, (name, memory) in zip(ends, acting.items(), strict=True)
    )


def action_limits(action: ActionSpec) -> tuple[Tensor, Tensor] | None:
    """The lowest and the highest continuous action; None where there are no limits."""
    if action.kind != "continuous" or not any(map(math.isfinite, (*action.low, *action.high))):
        return None
    low, high = (torch.tensor(limit, dtype=torch.float32) for limit in (action.low, action.high))
    return low, high


def limited(action: Tensor, spec: ActionSpec) -> Tensor:
    """An action as the robot gets it."""
    limits = action_limits(spec)
    return action if limits is None else action.clamp(*(limit.to(action.device) for limit in limits))
