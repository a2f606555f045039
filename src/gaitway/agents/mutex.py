"""Several trained policies as one: an observation selects who acts, in each instance for itself.

With the selection s [K] of the last n steps, the children's actions a_k and the scales by which actions are meant:

    w_k    = mean of s_k over those n steps, divided by the sum over all k          (a switch takes n steps)
    action = sum over k of w_k * a_k * scale_k / scale

Each child reads what it was trained to read: the last action in its own scale, and its own command where it has one.
Children are frozen, and all of them act in every step. Zhuang et al. 2023, "Robot parkour learning".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from gaitway.agents.features import Columns, FeatureShapes, columns_of
from gaitway.agents.observations import StateVariable
from gaitway.agents.policy import Policy
from gaitway.core.config import configuration
from gaitway.core.ranges import Count, Number, Positive, WholeNumber
from gaitway.core.small_agents import SeedableAgent
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.misfit import misfit_of
from gaitway.envs.spec import ActionSpec, EnvSpec
from gaitway.envs.vec_env import Observation

MEMORY = "mutex/memory"


@configuration
class ChildConfig:
    """One policy of a mutex."""

    run: str
    """The folder of its run; relative to the file that names it."""
    action_scale: Positive | None = None
    """What its actions are multiplied by where they act; null: as its own environment says."""
    command: tuple[Number, ...] = ()
    """What it reads as the command while it acts: one number, or two between which one is drawn for each episode;
    empty: the command that there is."""


@configuration
class DownConfig(ChildConfig):
    """The policy that takes the place of a climbing one where the way leads down."""

    up: str = ""
    """A component whose last number is above 0 where the way leads up."""
    instead_of: WholeNumber = 3
    """The number of the child that climbs up."""


@configuration
class MutexConfig:
    """What a mutex file says."""

    selection: str
    """A component with a number for each child, of which those above 0.5 select; where none does, child 0 acts."""
    children: tuple[ChildConfig, ...]
    down: DownConfig | None = None
    """A further child for ways that lead down, its command null: that of the child which it stands in for."""
    smoothing: Count = 1
    """Steps over which a switch from one child to another is spread."""
    reset_unselected: Literal["all", "when_skill", "never"] = "all"
    """Which memories are emptied: those of children without weight; those of others than child 0 while neither they nor
    child 0 are selected; none."""
    command: str | None = None
    """The component whose first number is the command."""
    last_action: str | None = None
    """The component that shows the last action, in the environment's scale."""
    action_scale: Positive | None = None
    """By what the environment multiplies actions; null: as its spec says."""


class Mutex(SeedableAgent):
    """A policy that acts and does not learn: `children`, one for each entry of the config and one for `down`."""

    is_plain = False
    resets = True
    _scale: Tensor
    _low: Tensor
    _high: Tensor

    def __init__(self, spec: EnvSpec, config: MutexConfig, children: Sequence[Policy]) -> None:
        super().__init__(rule="last")
        self.spec, self.config = spec, config
        entries = [*config.children, *([config.down] if config.down else [])]
        if len(children) != len(entries) or len(children) < 2:
            raise ValueError(
                f"there are {len(children)} policies for {len(entries)} children; a mutex has at least two"
            )
        self.policies = nn.ModuleList(children)  # type: ignore[arg-type]
        self.requires_grad_(False).eval()
        shapes = FeatureShapes(spec)
        for number, child in enumerate(children):
            _check_child(number, entries[number].run, child, spec)
        self._selection = self._columns(shapes, "selection", config.selection)
        if self._selection.size != len(config.children):
            raise ValueError(
                f"selection is {config.selection!r}, {self._selection.size} numbers, but there are "
                f"{len(config.children)} children; it needs a number for each"
            )
        self._up = self._columns(shapes, "down.up", config.down.up) if config.down else None
        if config.down and not 0 < config.down.instead_of < len(config.children):
            raise ValueError(
                f"down.instead_of is {config.down.instead_of}; name one of the children 1 to {len(config.children) - 1}"
            )
        self._commands = [each.command for each in entries]
        if config.down and not config.down.command:
            self._commands[-1] = self._commands[config.down.instead_of]
        self._check_commands(shapes)
        self._last_action = (
            self._columns(shapes, "last_action", config.last_action) if config.last_action is not None else None
        )
        self._register(entries)
        named = (self._selection, self._up, self._command, self._last_action)
        own = {columns.feature for columns in named if columns is not None}
        read = own.union(*(child.actor_groups for child in children))
        self.all_groups = self.actor_groups = tuple(name for name in spec.group_names if name in read)
        self.groups = {"actor": self.actor_groups, "critic": ()}
        self._sizes = [0 if (s := each.initial_state(1, "cpu")) is None else s.shape[-1] for each in children]
        count = len(children)
        parts = [(f"selection {t - config.smoothing}", count) for t in range(config.smoothing)]
        parts += [("commands", count)] if self._draws else []
        parts += [(f"child {number}", size) for number, size in enumerate(self._sizes) if size]
        self.memories = {MEMORY: StateVariable(sum(size for _, size in parts), True, False, tuple(parts))}
        self.reads = tuple(f"env/obs/{name}" for name in self.actor_groups)
        self.writes = tuple(self.variables(1, 1))

    # Acting

    def act(
        self, obs: Observation, state: Tensor | None, stochastic: bool, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """One action per row of `obs`, which stays as it is, and what is remembered after it."""
        first = obs[self.actor_groups[0]]
        if state is None:
            state = self.initial_state(first.shape[0], first.device)
        count = len(self.policies)
        sizes = [count * self.config.smoothing, count if self._draws else 0, *self._sizes]
        ring, commands, *memories = state.split(sizes, -1)
        if self._draws:
            begins = ring.sum(-1, keepdim=True) == 0  # some child is selected in every step
            commands = torch.where(begins, self._drawn(first, generator), commands)
        selected = self._selected(obs)
        ring = torch.cat((ring[:, count:], selected), -1)
        total = ring.unflatten(-1, (self.config.smoothing, count)).sum(1)
        weight = self._weights(total)
        action, after = torch.zeros((), device=first.device), [ring, commands]
        for number, child in enumerate(self.policies):
            shown = self._shown(obs, number, commands)
            memory = memories[number] if self._sizes[number] else None
            chosen, memory = child.act(shown, memory, stochastic, generator)  # type: ignore[operator]
            action = action + self._limited(chosen) * self._scale[number] * weight[:, number : number + 1]
            if memory is not None:
                after.append(memory * self._keeps(number, selected, total))
        return action, torch.cat(after, -1)

    def _selected(self, obs: Observation) -> Tensor:
        """Who is selected, `[B, K]` of 0 and 1."""
        hot = (self._selection.of(obs) > 0.5).float()
        nobody = (hot.sum(-1, keepdim=True) == 0).float()
        hot = torch.cat((torch.maximum(hot[:, :1], nobody), hot[:, 1:]), -1)
        if self._up is None or self.config.down is None:
            return hot
        down = (self._up.of(obs)[:, -1:] <= 0).float()
        at = self.config.down.instead_of
        climbs = hot[:, at : at + 1]
        return torch.cat((hot[:, :at], climbs * (1 - down), hot[:, at + 1 :], climbs * down), -1)

    def _weights(self, total: Tensor) -> Tensor:
        """The share of each child in the action, which add up to 1, of how often it was selected lately, `[B, K]`."""
        return total / total.sum(-1, keepdim=True)

    def _shown(self, obs: Observation, number: int, commands: Tensor) -> Observation:
        """What a child reads: the groups it acts by, with its own command and the last action in its own scale."""
        shown = {name: obs[name] for name in self.policies[number].actor_groups}  # type: ignore[union-attr]
        if self._last_action is not None and self._last_action.feature in shown:
            _put(shown, self._last_action, self._last_action.of(shown) / self._scale[number])
        if self._command is not None and self._command.feature in shown and self._commands[number]:
            said = commands[:, number : number + 1] if self._draws else _constant(shown, self._commands[number][0])
            column = self._command._replace(stop=self._command.start + 1)
            _put(shown, column, said * self._command_scale)
        return shown

    def _limited(self, action: Tensor) -> Tensor:
        """Within the limits, as the environment took it when the child was trained."""
        return torch.minimum(torch.maximum(action, self._low), self._high)

    def _keeps(self, number: int, selected: Tensor, total: Tensor) -> Tensor:
        """1 where a child goes on remembering, `[B, 1]`."""
        if self.config.reset_unselected == "all":
            return (total[:, number : number + 1] > 0).float()
        if self.config.reset_unselected == "when_skill" and number > 0:
            return torch.maximum(selected[:, number : number + 1], selected[:, :1])
        return torch.ones_like(selected[:, :1])

    def _drawn(self, first: Tensor, generator: torch.Generator | None) -> Tensor:
        """A command of each child for each instance, `[B, K]`."""
        drawn = torch.rand(
            first.shape[0],
            len(self._commands),
            device=first.device,
            generator=generator or self.generator(first.device),
        )
        low, high = (
            torch.tensor([each[at] if each else 0.0 for each in self._commands], device=first.device) for at in (0, -1)
        )
        return low + (high - low) * drawn

    def initial_state(self, batch: int, device: torch.device | str) -> Tensor:
        return torch.zeros(batch, self.memories[MEMORY].size, device=device)

    # In a rollout

    def variables(self, num_envs: int, rows: int) -> dict[str, Variable]:
        action = self.spec.action
        return {
            self.out("action"): Variable(rows, num_envs, action.shape, action.dtype),
            self.out(MEMORY): Variable(rows + 1, num_envs, (self.memories[MEMORY].size,)),
        }

    def step(self, ws: Workspace, t: int, *, stochastic: bool = True, generator: torch.Generator | None = None) -> None:
        obs, memory = {name: ws.at(f"env/obs/{name}", t) for name in self.actor_groups}, self.out(MEMORY)
        action, after = self.act(obs, ws.at(memory, t) if memory in ws else None, stochastic, generator)
        if memory not in ws:
            ws.put(memory, t, torch.zeros_like(after))
        ws.put(self.out("action"), t, action)
        ws.put(memory, t + 1, after)

    def reset(self, ws: Workspace, t: int, mask: Tensor) -> None:
        """A new episode: nobody was selected, children remember nothing, commands are drawn anew."""
        memory = self.out(MEMORY)
        if memory in ws:
            ws.put(memory, t, ws.at(memory, t) * (~mask).unsqueeze(-1))

    def update_normalisers(self, ws: Workspace) -> None:
        """Nothing of it learns."""

    # Checks

    def _columns(self, shapes: FeatureShapes, key: str, name: str) -> Columns:
        try:
            return columns_of(shapes, name)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from error

    def _check_commands(self, shapes: FeatureShapes) -> None:
        for number, each in enumerate(self._commands):
            if len(each) > 2 or (len(each) == 2 and each[0] > each[1]):
                raise ValueError(
                    f"children[{number}].command is {list(each)}; give one number, or the lowest and highest"
                )
        self._draws = any(len(each) == 2 for each in self._commands)
        self._command = None
        self._command_scale = 1.0
        if any(self._commands) and self.config.command is None:
            raise ValueError("a child has a command, but nothing says where it stands; name its component by `command`")
        if self.config.command is not None:
            self._command = self._columns(shapes, "command", self.config.command)
            group = self.spec.group(self._command.feature)
            found = [each for each in group.components if f"{group.name}.{each.name}" == self.config.command]
            self._command_scale = found[0].scale if found else 1.0

    def _register(self, entries: Sequence[ChildConfig]) -> None:
        """The limits of actions, and scale_k / scale, `[K, A]`."""
        action = self.spec.action
        own = _per_action(self.config.action_scale, action)
        scales = [
            _per_action(entry.action_scale, child.spec.action) / own  # type: ignore[union-attr, arg-type]
            for entry, child in zip(entries, self.policies, strict=True)
        ]
        limits = {"_low": torch.tensor(action.low), "_high": torch.tensor(action.high)}
        for name, value in ({"_scale": torch.stack(scales)} | limits).items():
            self.register_buffer(name, value.float(), persistent=False)


def _check_child(number: int, run: str, child: Policy, spec: EnvSpec) -> None:
    """Refuse a child that reads or does what there is not here; actions may be meant in another scale."""
    if spec.action.kind != "continuous":
        raise ValueError(
            f"{spec.id} has {spec.action.kind} actions, which cannot be mixed; a mutex needs continuous ones"
        )
    alike = replace(child.spec, action=replace(child.spec.action, scale=spec.action.scale))
    misfit = misfit_of(alike, spec, tuple(f"env/obs/{name}" for name in child.actor_groups))
    if misfit is not None:
        raise ValueError(f"children[{number}], {run}, does not fit {spec.id}: {misfit}")


def _per_action(scale: float | None, action: ActionSpec) -> Tensor:
    """What actions are multiplied by, `[A]`: what is said, else what the spec of the environment says, else 1."""
    return torch.full((len(action.names),), scale) if scale else torch.tensor(action.scale or [1.0] * len(action.names))


def _put(obs: Observation, columns: Columns, value: Tensor) -> None:
    """Other numbers in the place of a component; the caller's tensor is left alone."""
    whole = obs[columns.feature]
    value = value.to(whole.dtype)
    obs[columns.feature] = torch.cat((whole[..., : columns.start], value, whole[..., columns.stop :]), -1)


def _constant(obs: Observation, value: float) -> Tensor:
    first = next(iter(obs.values()))
    return torch.full((first.shape[0], 1), value, device=first.device)
