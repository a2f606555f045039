"""Policies, critics and agents as plain functions of observations `[N, D]`, which is what maps are drawn of.

A loaded policy is one of those that `gaitway train` makes; agents of the blackboard work too. Whatever is a function
already passes through unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gaitway.core.agent import Agent
from gaitway.core.workspace import Workspace

Function = Callable[..., Any]


def agent_function(
    agent: Agent, writes: str | None = None, reads: str | Sequence[str] | None = None, **options: Any
) -> Callable[..., Tensor]:
    """An agent of the blackboard as a function: its variables `reads` `[N, ...]` in this order, to `writes` `[N, ...]`.

    Without names: all that it reads, and the first that it writes. `options` go to its `step`; an agent that knows
    `stochastic` does not explore unless they say so.
    """
    inputs = agent.reads if reads is None else (reads,) if isinstance(reads, str) else tuple(reads)
    output = agent.writes[0] if writes is None else writes
    declared = agent.declared_options()
    if declared is not None and "stochastic" in declared:
        options = {"stochastic": False} | options

    def function(*values: Tensor) -> Tensor:
        if len(values) != len(inputs):
            raise TypeError(f"{len(values)} tensors for the variables {inputs}; pass one for each")
        ws = Workspace()
        for name, value in zip(inputs, values, strict=True):
            ws.put(name, 0, value)
        agent(ws, 0, **options)
        return ws.at(output, 0)

    return function


def policy_function(policy: Any) -> Function:
    """What a loaded policy does without exploring; with memory, at the start of an episode."""
    network = _network(policy)
    if network is None:
        return agent_function(policy) if isinstance(policy, Agent) else policy

    def act(observations: Tensor) -> Tensor:
        obs = _groups(network, "actor", observations)
        first = next(iter(obs.values()))
        return network.act(obs, network.initial_state(len(first), first.device), False)[0]

    return act


def critic_function(policy: Any) -> Function:
    """The critic of a loaded policy: V(s), Q(s, a) or, for a choice, Q(s, .) of all actions; of several the lowest.

    Values are in the units that the critic was trained in.
    """
    network = _network(policy)
    if network is None:
        return agent_function(policy) if isinstance(policy, Agent) else policy
    critic: Any = getattr(network, "critic", None)

    def inputs(observations: Tensor) -> Tensor:
        return network.network_input(_groups(network, "critic", observations), "critic")

    def value(observations: Tensor) -> Tensor:
        read = inputs(observations)
        state = None if critic.memory is None else critic.memory.initial(len(read), read.device)
        return critic(read, state)[0].squeeze(-1)

    def value_of_action(observations: Tensor, action: Tensor) -> Tensor:
        read = inputs(observations)
        return network.values(critic, read, network.range.unit(action.to(read.device))).min(0).values

    def values_of_all_actions(observations: Tensor) -> Tensor:
        read = inputs(observations)
        return network.values(read) if critic is None else network.values(critic, read).min(0).values

    if critic is not None and hasattr(critic, "memory"):  # on-policy: a value of states
        return value
    return values_of_all_actions if network.spec.action.kind == "discrete" else value_of_action


def action_names(policy: Any) -> list[str]:
    """Names of the action's dimensions with their unit, where a loaded policy knows them; none for a single choice."""
    network = _network(policy)
    if network is None or network.spec.action.kind == "discrete":
        return []
    unit = f" [{network.spec.action.unit}]" if network.spec.action.unit else ""
    return [name + unit for name in network.spec.action.names]


def _network(policy: Any) -> Any:
    """The loaded policy itself, also from within an `InferencePolicy`, whose memory of now stays out of it."""
    for found in (policy, getattr(policy, "policy", None)):
        if all(hasattr(found, name) for name in ("act", "groups", "spec", "initial_state")):
            return found
    return None


def _groups(network: Any, which: str, observations: Tensor) -> dict[str, Tensor]:
    """Observations `[N, D]` as the groups that one network of the policy reads, in that order."""
    names = network.groups[which]
    sizes = [network.spec.group(name).shape[0] for name in names]
    if sum(sizes) != observations.shape[-1]:
        raise ValueError(
            f"observations have {observations.shape[-1]} numbers, the {which} reads {sum(sizes)} from {list(names)}; "
            "make the plane of the environment that the policy was trained in, or by Plane.of(size, ...)"
        )
    device: torch.device = next(iter(network.parameters())).device
    return dict(zip(names, observations.to(device).split(sizes, -1), strict=True))
