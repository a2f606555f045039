"""One step of what acts, as a function of tensors alone: what is exported.

    observations and memories before the step -> action and memories after it

Everything between is what evaluations run, without noise: normalisers, blocks, memory, network, head, other agents of
the cast, and the limits of the actions. A block or a memory that a policy has is therefore part of it, without a line
here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gaitway.agents.policy import Policy
from gaitway.core.agent import Agent, Agents
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import ActionSpec, EnvSpec
from gaitway.envs.vec_env import Observation

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
    """`[B, ...]` per observation group and memory -> the action, within its limits, and the memories after it.

    `policy` is the one whose normalisers the contract tells of. Leaves write `act`.
    """

    low: Tensor
    high: Tensor

    def __init__(self, policy: Any, spec: EnvSpec, groups: Sequence[str], memories: Sequence[MemoryPort]) -> None:
        super().__init__()
        self.policy, self.spec, self.memories = policy, spec, tuple(memories)
        self.groups = tuple(spec.group(name) for name in groups)
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

    def unread(self, group: str) -> tuple[str, ...]:
        """Components of a group that no action depends on."""
        return ()

    def example(self, batch: int) -> tuple[Tensor, ...]:
        """Inputs of zeros, in order."""
        groups = [torch.zeros(batch, *group.shape, dtype=group.torch_dtype) for group in self.groups]
        return (*groups, *(torch.zeros(batch, memory.size) for memory in self.memories))

    def act(self, obs: Observation, states: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor]]:
        """The action of every row and the memories `[B, size]` after it, of those before it."""
        raise TypeError(f"{type(self).__name__} does not implement act")

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        obs: Observation = {group.name: value for group, value in zip(self.groups, tensors, strict=False)}
        action, after = self.act(obs, tensors[len(self.groups) :])
        if self.is_limited:
            action = torch.minimum(torch.maximum(action, self.low), self.high)
        return action, *after


class PolicyStep(ActingStep):
    """A policy that acts alone."""

    def __init__(self, policy: Policy) -> None:
        acting = getattr(policy, "acting", policy)  # of several particles, the one that acts
        super().__init__(acting, policy.spec, policy.actor_groups, memory_ports(policy))

    def unread(self, group: str) -> tuple[str, ...]:
        return getattr(self.policy, "unread", {}).get(group, ())

    def act(self, obs: Observation, states: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor]]:
        state = torch.cat(list(states), -1) if len(states) > 1 else states[0] if states else None
        action, after = self.policy.act(obs, state, False)
        return action, () if after is None else after.split([memory.size for memory in self.memories], -1)


class CastStep(ActingStep):
    """Several agents that act together: a workspace of one row, as `CastPolicy` keeps it.

    What a critic alone reads and remembers is zeros here, because no action depends on it.
    """

    def __init__(self, policy: Any, agents: Sequence[Agent], spec: EnvSpec) -> None:
        names = [name for agent in agents for name in _groups_of(agent)]
        groups = [name for name in spec.group_names if name in names]
        super().__init__(policy, spec, groups, ())
        self.agents = Agents(*agents)
        declared, noiseless = self.agents.declared_options(), {"stochastic": False, "generator": None}
        self.options = {name: value for name, value in noiseless.items() if declared is None or name in declared}
        read = {name.removeprefix("env/obs/") for agent in agents for name in agent.reads}
        self._unseen = tuple(group for group in spec.groups if group.name in read and group.name not in names)
        self._forms: list[tuple[tuple[int, ...], torch.dtype]] = []
        self.memories = self._find_memories(agents)

    def act(self, obs: Observation, states: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor]]:
        ws = self._workspace(obs, [each.name for each in self.memories])
        for memory, value, (shape, dtype) in zip(self.memories, states, self._forms, strict=True):
            ws.put(memory.name, 0, value.reshape(-1, *shape).to(dtype))
        self.agents(ws, 0, **self.options)
        return ws.at("action", 0), [ws.at(memory.name, 1).flatten(1).float() for memory in self.memories]

    def _workspace(self, obs: Observation, memories: Sequence[str]) -> Workspace:
        ws, first = Workspace(extra_row=list(memories)), next(iter(obs.values()))
        for group in self._unseen:
            zeros = torch.zeros(first.shape[0], *group.shape, dtype=group.torch_dtype, device=first.device)
            ws.put(f"env/obs/{group.name}", 0, zeros)
        for name, value in obs.items():
            ws.put(f"env/obs/{name}", 0, value)
        return ws

    @torch.no_grad()
    def _find_memories(self, agents: Sequence[Agent]) -> tuple[MemoryPort, ...]:
        """What is remembered of a first step, and what is left of that where an episode ends."""
        known = {agent.out(name): each for agent in agents for name, each in agent.memories.items()}
        names = [name for name, each in known.items() if getattr(each, "acts", True)]
        device = next((each.device for each in self.agents.parameters()), torch.device("cpu"))
        obs = {group.name: value.to(device) for group, value in zip(self.groups, self.example(1), strict=False)}
        ws = self._workspace(obs, list(known))
        self.agents(ws, 0, **self.options)
        for name in known:
            ws.put(name, 0, ws.at(name, 1))
        self.agents.reset(ws, 0, torch.ones(1, dtype=torch.bool, device=device))
        found = []
        for name in names:
            value = ws.at(name, 0)[0]
            self._forms.append((tuple(value.shape), value.dtype))
            reset = tuple((value.flatten().float() + 0.0).tolist())  # -0 is 0
            found.append(MemoryPort(name, value.numel(), reset, getattr(known[name], "parts", ())))
        return tuple(found)


def acting_step(policy: Any, agents: Sequence[Agent], spec: EnvSpec) -> ActingStep:
    """The step of those agents that `action` depends on, the policy among them."""
    return PolicyStep(policy) if list(agents) == [policy] else CastStep(policy, agents, spec)


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


def _groups_of(agent: Any) -> list[str]:
    """The observation groups that an agent's part in the action depends on."""
    if isinstance(agent, Policy):
        return list(agent.actor_groups)
    return [name.removeprefix("env/obs/") for name in agent.reads if name.startswith("env/obs/")]
