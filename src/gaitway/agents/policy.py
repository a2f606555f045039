"""What a policy is to runners, evaluations and algorithms: one protocol for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn

from gaitway.agents.observations import StateVariable
from gaitway.core.agent import Agent, Agents
from gaitway.core.parts import make_part
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation
from gaitway.nn.altered import is_altered


@runtime_checkable
class Policy(Protocol):
    """An agent that acts, learns and is stored; `ActorCritic`, `SoftActorCritic`, `ValuePolicy` and their kin are.

    Its `step` writes `action` in a rollout; `act` is the same as a function. What it remembers is one flat state
    `[B, S]` there, None if nothing, and the state variables `memories` in a workspace.
    """

    spec: EnvSpec
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    groups: dict[str, tuple[str, ...]]
    """The features that `actor` and `critic` read."""
    all_groups: tuple[str, ...]
    """The observation groups that learning needs."""
    actor_groups: tuple[str, ...]
    """The observation groups that acting needs."""

    @property
    def memories(self) -> Mapping[str, StateVariable]:
        """The state variables by their names in a workspace, without prefix."""
        ...

    @property
    def is_plain(self) -> bool:
        """Whether this is the class as it stands, with its own networks, without blocks and memory, nothing overridden:
        the one condition under which a path written by hand may stand in for its methods."""
        ...

    def variables(self, num_envs: int, rows: int) -> dict[str, Variable]:
        """The dense variables `step` writes in `rows` steps."""
        ...

    def step(self, ws: Workspace, t: int) -> None: ...

    def initial_state(self, batch: int, device: torch.device | str) -> Tensor | None: ...

    def act(
        self, obs: Observation, state: Tensor | None, stochastic: bool, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """One action per row of `obs`, and the state after it; `generator` None is the policy's own."""
        ...

    def update_normalisers(self, ws: Workspace) -> None: ...

    def out(self, local_name: str) -> str: ...

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any], /) -> Any: ...

    def train(self, mode: bool = True) -> Self: ...

    def eval(self) -> Self: ...


class InferencePolicy:
    """A trained policy as a function: observation in, action out, with its normaliser and its memory."""

    def __init__(self, policy: Policy, stochastic: bool = False, generator: torch.Generator | None = None) -> None:
        self.policy, self.stochastic, self.generator = policy, stochastic, generator
        self._state: Tensor | None = None

    @torch.inference_mode()
    def __call__(self, obs: Observation) -> Tensor:
        """Actions [B, ...] for observations `{group: [B, ...]}`."""
        if self._state is None:
            first = obs[self.policy.actor_groups[0]]
            self._state = self.policy.initial_state(len(first), first.device)
        action, self._state = self.policy.act(obs, self._state, self.stochastic, self.generator)
        return action

    @torch.inference_mode()
    def choice_margin(self, obs: Observation) -> Tensor | None:
        """By how much the best choice of the next step is ahead of the second, [B], infinite where none is due; None of
        a policy that makes no choices which it then pursues."""
        margin = getattr(self.policy, "choice_margin", None)
        found: Tensor | None = None if margin is None else margin(obs, self._state)
        return found

    def lines(self) -> list[str]:
        """What the first instance is about, for its picture; nothing of policies that decide step by step."""
        told = getattr(self.policy, "state_lines", None)
        return [] if told is None or self._state is None else list(told(self._state[0]))

    def reset(self, mask: Tensor | None = None) -> None:
        """Forget the past: of all instances, or of those where `mask` [B] is true."""
        if mask is None or self._state is None:
            self._state = None
        else:
            self._state = self._state * (~mask.bool()).unsqueeze(-1)


class CastPolicy:
    """The acting part of a cast as a function: observation in, action out, with what its agents remember."""

    def __init__(
        self, agents: Sequence[Agent], stochastic: bool = False, generator: torch.Generator | None = None
    ) -> None:
        self.agents, self.options = Agents(*agents), {"stochastic": stochastic, "generator": generator}
        declared = self.agents.declared_options()
        self.options = {name: value for name, value in self.options.items() if declared is None or name in declared}
        self.memories = [agent.out(name) for agent in agents for name in agent.memories]
        self._ws = Workspace(extra_row=self.memories)
        self._ended: Tensor | None = None

    @torch.inference_mode()
    def __call__(self, obs: Observation) -> Tensor:
        """Actions [B, ...] for observations `{group: [B, ...]}`."""
        ws = self._ws
        for name, value in obs.items():
            ws.put(f"env/obs/{name}", 0, value)
        if self._ended is not None and self.agents.resets:
            self.agents.reset(ws, 0, self._ended)
        self._ended = None
        self.agents(ws, 0, **self.options)
        for name in self.memories:
            ws.put(name, 0, ws.at(name, 1))
        return ws.at("action", 0)

    def reset(self, mask: Tensor | None = None) -> None:
        """Forget the past: of all instances, or of those where `mask` [B] is true."""
        if mask is None:
            self._ws, self._ended = Workspace(extra_row=self.memories), None
        else:
            self._ended = mask.bool() if self._ended is None else self._ended | mask.bool()


class FunctionPolicy:
    """A function as a policy that acts and does not learn: `{group: [B, ...]} -> action [B, ...]`, asked with all
    groups of the environment."""

    memories: Mapping[str, StateVariable] = MappingProxyType({})

    def __init__(self, function: Callable[[Observation], Any], spec: EnvSpec, name: str = "the function") -> None:
        self.function, self.spec, self.name, self.actor_groups = function, spec, name, tuple(spec.group_names)

    def initial_state(self, batch: int, device: torch.device | str) -> None:
        return None

    def act(
        self, obs: Observation, state: Tensor | None, stochastic: bool, generator: torch.Generator | None = None
    ) -> tuple[Tensor, None]:
        """What the function returns; it never draws."""
        action, first = self.function(obs), obs[self.actor_groups[0]]
        shape = (len(first), *self.spec.action.shape)
        if not isinstance(action, Tensor) or action.shape != shape:
            found = list(action.shape) if isinstance(action, Tensor) else type(action).__name__
            raise ValueError(
                f"{self.name} returned {found}; it should return a tensor {list(shape)}, an action per row"
            )
        return action.to(first.device, self.spec.action.dtype), None


def acting_part(agents: Sequence[Agent]) -> list[Agent]:
    """Those agents that `action` depends on, in order: the one that writes it last, and whoever it reads; without those
    that say that they do not play."""
    wanted, found = {"action"}, []
    for agent in reversed(agents):
        if agent.plays and wanted.intersection(agent.writes):
            found.append(agent)
            wanted.update(agent.reads)
    return found[::-1]


def is_overridden(module: nn.Module, exact: type) -> bool:
    """Whether `module` is another class than `exact`, or it or a module inside it has methods put over those of its
    class or is watched by hooks."""
    return type(module) is not exact or is_altered(module)


def make_network(
    entry: Mapping[str, Any] | None,
    key: str,
    inputs: int,
    outputs: int,
    generator: torch.Generator | None,
    default: Callable[[], nn.Module],
) -> nn.Module:
    """The network that `{name: package.module:Class, option: value}` describes, made of (inputs, outputs, generator) as
    far as its constructor asks for them; without an entry the `default`."""
    if entry is None:
        return default()
    return make_part(
        entry, {}, key, given={"inputs": inputs, "outputs": outputs, "generator": generator}, kind=nn.Module
    )


def learnt_parameters(modules: Mapping[str, Any]) -> dict[str, Tensor]:
    """All parameters of named modules, by full name in name order."""
    found = {
        f"{prefix}.{name}": parameter.detach()
        for prefix, module in modules.items()
        for name, parameter in module.named_parameters()
    }
    return dict(sorted(found.items()))
