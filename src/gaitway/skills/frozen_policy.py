"""A policy that learns no more, with its inputs and actions by name: what all kinds of skill files hold.

`Skills` and `ContinuousSkills` are its leaves. Each is a state folder of `core/files.py` of its own kind, in which the
network goes by its architecture, and inputs and actions by component, in their order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from gaitway.core.config import did_you_mean
from gaitway.core.files import save_state
from gaitway.envs.robots.registry import ROBOTS
from gaitway.envs.spec import EnvSpec
from gaitway.nn.trunks import Network

Inputs = dict[str, tuple[str, ...]]


class SkillFileError(ValueError):
    """A skill file does not fit; the message is one sentence that names the remedy."""


@dataclass(frozen=True)
class Architecture:
    """The shape of the network that acts: `[B, inputs] -> mean | log std [B, 2 actions]`."""

    hidden: tuple[int, ...]
    trunk: str = "d2rl"
    activation: str = "relu"
    layer_norm: bool = False

    @classmethod
    def of_config(cls, config: Any) -> Architecture:
        """That of the actor which the configuration of a soft actor-critic describes."""
        return cls(tuple(config.actor_hidden), config.trunk, config.activation, config.layer_norm)

    def build(self, inputs: int, actions: int, state: Mapping[str, Tensor]) -> Network:
        """The network with a copy of these weights; a ValueError where they are of another shape or not finite.

        It is made without memory first: neither a file that claims a giant takes any, nor a random number is drawn.
        """
        if not 0 < len(self.hidden) <= len(state) or not all(type(n) is int and n > 0 for n in self.hidden):
            raise ValueError(f"its hidden layers are {list(self.hidden)[:8]} for {len(state)} tensors")
        with torch.device("meta"):
            network = Network(
                inputs,
                self.hidden,
                2 * actions,
                layers=_Unfilled(),
                trunk=self.trunk,  # type: ignore[arg-type]
                activation=self.activation,
                layer_norm=self.layer_norm,
            )
        copies = {name: value.detach().to("cpu", torch.float32, copy=True) for name, value in state.items()}
        try:
            network.load_state_dict(copies, assign=True)
        except RuntimeError as error:
            lines = [line.strip() for line in str(error).splitlines()]
            raise ValueError(
                f"its weights are of another network ({lines[min(1, len(lines) - 1)].rstrip('.')})"
            ) from error
        for name, parameter in network.named_parameters():
            if not bool(torch.isfinite(parameter).all()):
                raise ValueError(f"its tensor {name!r} holds numbers that are not finite")
            parameter.data = parameter.data.contiguous()
        return network


class _Unfilled:
    """Layers without memory, for weights that exist already."""

    generator: torch.Generator | None = None

    def linear(self, inputs: int, outputs: int, gain: float) -> nn.Module:
        return nn.Linear(inputs, outputs, device="meta")

    def norm(self, width: int) -> nn.Module:
        return nn.LayerNorm(width, device="meta")


@dataclass(kw_only=True)
class FrozenPolicy:
    """A network that acts by its mean, in the robot's own units."""

    kind: ClassVar[str]
    """What its file is called: a state of this kind, and in a run folder a folder of this name."""
    architecture: Architecture
    network: nn.Module
    inputs: Inputs
    """What the network reads: groups in this order, with the names of their components."""
    actions: tuple[str, ...]
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    origin: dict[str, Any] = field(default_factory=dict)
    """Where it comes from: env_steps, updates, seed, command, commit."""

    def __post_init__(self) -> None:
        self.network.requires_grad_(False).eval()
        low, high = torch.tensor(self.action_low), torch.tensor(self.action_high)
        if not (len(low) == len(high) == len(self.actions)) or not bool(torch.isfinite(high - low).all()):
            raise ValueError(f"its {len(self.actions)} actions have the limits {self.action_low} to {self.action_high}")
        self._centre, self._half = (high + low) / 2, (high - low) / 2

    @torch.no_grad()
    def mean_action(self, robot: str, given: Mapping[str, Tensor]) -> Tensor:
        """The mean action [B, A] for what is `given` of each group of inputs, [B, .]; `robot` is for the complaints."""
        first = next(iter(given))
        for name, value in given.items():
            width = len(self.inputs[name])
            if value.ndim != 2 or value.shape[1] != width:
                raise SkillFileError(f"{name} is {list(value.shape)}; these skills of {robot} read [B, {width}]")
            if (
                value.shape[0] != given[first].shape[0]
            ):  # and not len(), which would fix the number of rows of an export
                raise SkillFileError(
                    f"{first} has {given[first].shape[0]} rows and {name} {value.shape[0]}; give every row a {name}"
                )
        joined = torch.cat([given[name] for name in self.inputs], -1).float()
        mean = self.network(joined).float().chunk(2, -1)[0].tanh()
        return mean * self._half + self._centre

    def to(self, device: torch.device | str) -> Self:
        self.network.to(device)
        self._centre, self._half = self._centre.to(device), self._half.to(device)
        return self

    @property
    def sha256(self) -> str:
        """Fingerprint of what it does: weights, architecture, inputs and actions, and what its kind knows besides."""
        shape = asdict(self.architecture) | {"hidden": list(self.architecture.hidden)}
        inputs = [[name, list(components)] for name, components in self.inputs.items()]
        limits = [list(self.actions), list(self.action_low), list(self.action_high)]
        found = hashlib.sha256(json.dumps([shape, inputs, limits, self.identity()], sort_keys=True).encode())
        for name, value in sorted(self.network.state_dict().items()):
            found.update(f"{name} {list(value.shape)}".encode())
            found.update(value.detach().cpu().contiguous().numpy().tobytes())
        return found.hexdigest()

    def identity(self) -> dict[str, Any]:
        """What else tells these skills from others, as plain data."""
        return {}

    def save(self, path: str | Path) -> None:
        """Write the file, by one rename."""
        raise TypeError(f"{type(self).__name__} does not implement save")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The skills at `path`."""
        raise TypeError(f"{cls.__name__} does not implement load")

    def check_components(self, observation: Sequence[str], actions: Sequence[str]) -> None:
        """Refuse an environment that does not show what the network reads, or takes other actions."""
        lacking = [name for name in self.inputs["observation"] if name not in observation]
        if lacking:
            raise SkillFileError(
                f"these skills read {lacking[0]!r}{did_you_mean(lacking[0], observation)}, which the environment does "
                "not show; use one that shows the robot's joints"
            )
        if tuple(actions) != self.actions:
            raise SkillFileError(
                f"these skills move {', '.join(self.actions)}, the environment takes {', '.join(actions)}; use one "
                "with the same actions"
            )

    # Files

    def write(self, path: str | Path, kind: str, meta: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Store it as a state of this `kind`, by one rename, with what else is to be known and the other tensors."""
        network = {name: value.detach().cpu().clone() for name, value in self.network.state_dict().items()}
        own = {
            "architecture": asdict(self.architecture) | {"hidden": list(self.architecture.hidden)},
            "inputs": [[name, list(components)] for name, components in self.inputs.items()],
            "actions": {
                "names": list(self.actions),
                "low": list(self.action_low),
                "high": list(self.action_high),
            },
            "origin": self.origin,
        }
        others = {name: value.detach().cpu().clone() for name, value in tensors.items()}
        save_state(path, {"network": network} | others, kind=kind, meta={**meta, **own})


def read_inputs(meta: Mapping[str, Any]) -> Inputs:
    """What the network of a file reads; checked before the network is made of it."""
    return {name: _names(components) for name, components in meta["inputs"]}


def read_policy(state: Mapping[str, Any], meta: Mapping[str, Any], inputs: Inputs) -> dict[str, Any]:
    """The fields of a `FrozenPolicy` that `write` stored."""
    shape, actions = meta["architecture"], meta["actions"]
    architecture = Architecture(tuple(shape["hidden"]), shape["trunk"], shape["activation"], bool(shape["layer_norm"]))
    return {
        "architecture": architecture,
        "network": architecture.build(sum(map(len, inputs.values())), len(actions["names"]), state["network"]),
        "inputs": inputs,
        "actions": _names(actions["names"]),
        "action_low": tuple(actions["low"]),
        "action_high": tuple(actions["high"]),
        "origin": dict(meta["origin"]),
    }


def _names(components: Sequence[Any]) -> tuple[str, ...]:
    wrong = [name for name in components if not isinstance(name, str)]
    if wrong or isinstance(components, str):
        raise ValueError(f"it names a component {(wrong or [components])[0]!r} where a list of texts should be")
    return tuple(components)


def export(config: Any, spec: EnvSpec, inputs: Inputs, state: Mapping[str, Tensor]) -> dict[str, Any]:
    """The same fields, of an actor that is being trained: its configuration, environment, inputs and weights."""
    architecture, action = Architecture.of_config(config), spec.action
    return {
        "architecture": architecture,
        "network": architecture.build(sum(map(len, inputs.values())), len(action.names), state),
        "inputs": inputs,
        "actions": action.names,
        "action_low": action.low,
        "action_high": action.high,
    }


def origin_of(run: Path, env_steps: int, updates: int, seed: int) -> dict[str, Any]:
    """Where what was learnt in the folder `run` by this step comes from."""
    code = json.loads((run / "code.json").read_text())
    commits = [each.get("commit") for each in code.get("repositories", ()) if each.get("commit")]
    return {
        "env_steps": env_steps,
        "updates": updates,
        "seed": seed,
        "command": " ".join(code.get("command", ())),
        "commit": commits[0] if commits else None,
    }


@contextmanager
def usable(path: str | Path) -> Iterator[None]:
    """Content that no file of ours has is one sentence about the file."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError) as error:
        reason = (str(error.args[0] if error.args else error).splitlines() or [type(error).__name__])[0]
        lacks = "it lacks " if isinstance(error, KeyError) else ""
        raise SkillFileError(
            f"{path} is not a skill file that can be used: {lacks}{reason}; export it again"
        ) from error


def robot_of(spec: EnvSpec) -> str | None:
    """The robot of the library that an environment has: by the goals it states, by the robot whose features it shows,
    or by an id `<robot>/<task>`; None where it is another one or nobody says."""
    stated = (spec.facts.get("skills", {}).get("robot"), spec.facts.get("robot"), spec.id.partition("/")[0])
    name = next(name for name in stated if isinstance(name, str))
    return name if name in ROBOTS else None


def component_names(spec: EnvSpec, group: str) -> tuple[str, ...]:
    """One name per number of a group: a component of several numbers gets an index behind its name."""
    found: list[str] = []
    for component in spec.group(group).components:
        if component.size == 1:
            found.append(component.name)
        else:
            found += [f"{component.name}[{number}]" for number in range(component.size)]
    return tuple(found)
