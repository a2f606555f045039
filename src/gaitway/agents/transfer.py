"""Weights of one policy for another that is not quite the same: part by part, inputs matched by the names of their
components, encoders replaced by rules.

Parameters are known by names that do not depend on places: `actor.network.layers.0.weight`,
`blocks.<what it writes>.network...`, `normalisers.<group>.mean`, `head.log_std`. For every one of the target's

- the first rule that matches it decides: `source` (the one of the same name), `fresh` (as it was drawn) or
  `rename:<name>` (another one of the source; `\\1` stands for what the rule matched in brackets);
- without a rule it is taken from the source where it belongs to `parts`, and is new where the source has none.

A rule matches a whole name or its beginning up to a dot, so that `blocks.encoder` is not `blocks.encoder_critic`.

Networks, memories and encoders that read vectors have one weight per input. Where source and target read other
components, or in another order, its columns are matched by name: with `new_inputs="zero"` those of new components are
0, so that the first actions are those of the source, whatever the new components show.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gaitway.agents.blocks import Block, HistoryEncoder
from gaitway.agents.branch import Branch
from gaitway.agents.observations import ObservingPolicy
from gaitway.nn.memory import Memory
from gaitway.nn.mlp import MLP

SEEN = 10_000
"""Statistics of a group with new components count for so many rows at most: those of the new ones begin at 0 and 1."""
STATISTICS = ("mean", "var")


@dataclass(frozen=True)
class Rule:
    """What a parameter whose name `match` fits is taken from."""

    match: str
    take: str

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Rule:
        """From `{match: ..., from: source | fresh | rename:NAME}`."""
        if not isinstance(entry, Mapping) or set(entry) != {"match", "from"}:
            raise ValueError(f"a rule is {{match: ..., from: ...}}, found {entry!r}")
        match, take = str(entry["match"]), str(entry["from"])
        try:
            re.compile(match)
        except re.error as error:
            raise ValueError(f"the rule {match!r} is not a regular expression ({error})") from error
        if take not in ("source", "fresh") and not take.removeprefix("rename:") != take:
            raise ValueError(f"the rule {match!r} takes from {take!r}; use source, fresh or rename:NAME")
        return cls(match, take)

    def source_of(self, name: str) -> str | None:
        """The source's name for the target's `name`; None if it does not match, an empty one for `fresh`."""
        found = re.fullmatch(rf"(?:{self.match})(\..*)?", name)
        if found is None:
            return None
        if self.take == "source":
            return name
        if self.take == "fresh":
            return ""
        rest = found.groups()[-1] or ""  # a beginning is renamed, what comes behind it stays
        return found.expand(self.take.removeprefix("rename:")) + rest


@dataclass
class Report:
    """What became of every parameter, by name."""

    loaded: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    """As they were drawn."""
    skipped: list[str] = field(default_factory=list)
    """Of the source, used nowhere."""
    resized: dict[str, str] = field(default_factory=dict)
    """Loaded, inputs matched by name: how."""

    def lines(self) -> list[str]:
        """The table: how many tensors of each module were loaded, are new, were skipped, and each one resized."""
        rows = []
        for what in ("loaded", "new", "skipped"):
            counts: dict[str, int] = {}
            for name in getattr(self, what):
                module = ".".join(name.split(".")[:2]) if "." in name else name
                counts[module] = counts.get(module, 0) + 1
            rows += [f"{what:8} {module} ({count})" for module, count in counts.items()]
        return [*rows, *(f"resized  {name}: {how}" for name, how in self.resized.items())]


def transfer(
    source: ObservingPolicy,
    target: ObservingPolicy,
    parts: Sequence[str] = (),
    rules: Sequence[Rule] = (),
    new_inputs: str | None = None,
) -> Report:
    """Load what fits of `source` into `target`; a ValueError that names what does not. Nothing has changed then."""
    theirs, ours = _named(source), _named(target)
    _check_parts(parts, theirs, ours)
    matched = _matched_by_rules(rules, theirs, ours)
    report, found, used = Report(), dict[str, Tensor](), set[str]()
    their_inputs, our_inputs = _Inputs.of(source), _Inputs.of(target)
    for name, (_, value) in ours.items():
        chosen = matched.get(name, name if _belongs(name, parts) and name in theirs else "")
        if not chosen:
            report.new.append(name)
            continue
        used.add(chosen)
        there, before, now = theirs[chosen][1], their_inputs.columns(chosen), our_inputs.columns(name)
        if before is not None and now is not None and before != now:
            our_inputs.check_known(name)
            found[name], report.resized[name] = _aligned(name, there, value, before, now, new_inputs)
            continue
        if there.shape != value.shape:
            raise ValueError(
                f"{chosen} is {list(there.shape)} there and {name} {list(value.shape)} here; set agent as it is there, "
                f"or leave it out by a rule {{match: {name.rpartition('.')[0]}, from: fresh}}"
            )
        found[name] = there
        report.loaded.append(name)
    report.skipped = [name for name in theirs if name not in used]
    if not found:
        raise ValueError("nothing of it fits; compare the algorithms and `agent` of both")
    target.load_state_dict(
        {actual: found.get(name, value) for name, (actual, value) in ours.items()} | _extra_state(target)
    )
    return report


# Names


def _named(policy: ObservingPolicy) -> dict[str, tuple[str, Tensor]]:
    """Every tensor of a policy's state by a name that does not depend on places: its own name, and the tensor."""
    blocks = {f"blocks.{place}.": f"blocks.{block.writes}." for place, block in enumerate(policy._blocks())}
    groups = {f"normalisers.{key}.": f"normalisers.{key.partition(':')[2]}." for key in policy.normalisers}
    found = {}
    for actual, value in policy.state_dict().items():
        if not isinstance(value, Tensor):
            continue
        name = actual
        for before, after in {**blocks, **groups}.items():
            if actual.startswith(before):
                name = after + actual.removeprefix(before)
        found[name] = (actual, value)
    return found


def _extra_state(policy: ObservingPolicy) -> dict[str, Any]:
    return {name: value for name, value in policy.state_dict().items() if not isinstance(value, Tensor)}


def _belongs(name: str, parts: Sequence[str]) -> bool:
    return not parts or any(name == part or name.startswith(f"{part}.") for part in parts)


def _check_parts(parts: Sequence[str], theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    for part in parts:
        for names, where in ((theirs, "there"), (ours, "here")):
            if not any(_belongs(name, (part,)) for name in names):
                known = sorted({name.partition(".")[0] for name in names})
                raise ValueError(f"parts names {part!r}, which is not {where}; there are {', '.join(known)}")


def _matched_by_rules(rules: Sequence[Rule], theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, str]:
    """What the rules say of each of our names: one of theirs, or nothing for fresh."""
    decided: dict[str, str] = {}
    for rule in rules:
        hits = {name: source for name in ours if (source := rule.source_of(name)) is not None}
        if not hits:
            near = ", ".join(sorted({".".join(name.split(".")[:2]) for name in ours}))
            raise ValueError(f"the rule {rule.match!r} matches nothing; there are {near}")
        for name, source in hits.items():
            if name in decided:
                continue
            if source and source not in theirs:
                raise ValueError(f"the rule {rule.match!r} takes {name} from {source}, which is not there")
            decided[name] = source
    return decided


# Inputs by the names of their components


class _Inputs:
    """Which tensors of a policy have one column per input, and the inputs by component."""

    def __init__(self) -> None:
        self.weights: dict[str, tuple[str, ...]] = {}
        """By the name of the tensor."""
        self.unknown: dict[str, tuple[str, ...]] = {}
        """By the name of a module whose tensors are not known one by one."""

    @classmethod
    def of(cls, policy: ObservingPolicy) -> _Inputs:
        found = cls()
        for which in ("actor", "critic"):
            if which in policy.groups and isinstance(getattr(policy, which, None), nn.Module):
                found._add(which, getattr(policy, which), _columns(policy, policy.groups[which]))
        for block in policy._blocks():
            labels = _columns(policy, block.reads)
            if isinstance(block, HistoryEncoder):
                past = range(block.length - 1, -1, -1)
                labels = tuple(f"{label}@-{steps}" if steps else label for steps in past for label in labels)
            found._add(f"blocks.{block.writes}", block, labels)
        for key in policy.normalisers:
            group = key.partition(":")[2]
            for each in (*STATISTICS, "count"):
                found.weights[f"normalisers.{group}.{each}"] = _columns(policy, (group,))
        return found

    def _add(self, reader: str, module: nn.Module, labels: tuple[str, ...]) -> None:
        weight = _input_weight(reader, module)
        if weight is None:
            self.unknown[reader] = labels
        else:
            self.weights[weight] = labels

    def columns(self, name: str) -> tuple[str, ...] | None:
        """The inputs of the columns of tensor `name`, or of its module where it is not known; None where no column is
        an input."""
        return self.weights.get(name) or self.unknown.get(self._module(name))

    def check_known(self, name: str) -> None:
        module = self._module(name)
        if module:
            raise ValueError(
                f"{module} reads other components than there, and which of its weights belong to them is not known; "
                f"leave it out by a rule {{match: {module}, from: fresh}}"
            )

    def _module(self, name: str) -> str:
        return next((module for module in self.unknown if name.startswith(f"{module}.")), "")


def _aligned(
    name: str, there: Tensor, here: Tensor, theirs: tuple[str, ...], ours: tuple[str, ...], new_inputs: str | None
) -> tuple[Tensor, str]:
    """The source's tensor with the target's columns, and how it was made, in words."""
    places = {label: place for place, label in enumerate(theirs)}
    new, gone = [label for label in ours if label not in places], [label for label in theirs if label not in set(ours)]
    if new and new_inputs is None:
        raise ValueError(
            f"{name.rpartition('.')[0]} reads {_few(new)} here, which is new; set init_from.new_inputs=zero to begin "
            "with weights of 0 there"
        )
    if name.endswith(".count"):
        return there.clamp(max=SEEN) if new else there.clone(), _words(new, gone)
    if there.shape[-1:] != (len(theirs),) or here.shape != (*there.shape[:-1], len(ours)):
        raise ValueError(
            f"{name} is {list(there.shape)} there and {list(here.shape)} here, which its inputs alone do not explain; "
            f"set agent as it is there, or leave it out by a rule {{match: {name.rpartition('.')[0]}, from: fresh}}"
        )
    taken = torch.tensor([places.get(label, 0) for label in ours])
    known = torch.tensor([label in places for label in ours])
    # a weight of zero for a new input; statistics of one that was never seen stay as they begin
    blank = here.cpu() if name.endswith(STATISTICS) else torch.zeros_like(here, device="cpu")
    return torch.where(known, there.cpu()[..., taken], blank), _words(new, gone)


def _words(new: Sequence[str], gone: Sequence[str]) -> str:
    said = [f"{len(new)} new: {_few(new)}"] if new else []
    said += [f"{len(gone)} gone: {_few(gone)}"] if gone else []
    return "; ".join(said) or "other order"


def _few(labels: Sequence[str]) -> str:
    return ", ".join(labels[:4]) + (f" and {len(labels) - 4} more" if len(labels) > 4 else "")


def _input_weight(path: str, module: nn.Module) -> str | None:
    """The name of the weight that multiplies the input, where nothing else does; None where that is not known."""
    if isinstance(module, Branch):
        inner = "network" if module.memory is None else "memory"
        path, module = f"{path}.{inner}", getattr(module, inner)
    elif isinstance(module, Block):
        path, module = f"{path}.network", getattr(module, "network", module)
    if isinstance(module, Memory):
        return f"{path}.network.weight_ih_l0"
    first = next((name for name, each in module.named_modules() if isinstance(each, nn.Linear)), None)
    return f"{path}.{first}.weight" if first is not None and type(module) is MLP else None


def _columns(policy: ObservingPolicy, features: Sequence[str]) -> tuple[str, ...]:
    """One label per number of the concatenated features: `group.component`, with its place where it has several."""
    labels: list[str] = []
    for name in features:
        if name in policy.spec.group_names:
            for part in policy.spec.group(name).components:
                label = f"{name}.{part.name}"
                labels += [label] if part.size == 1 else [f"{label}[{place}]" for place in range(part.size)]
        else:
            labels += [f"{name}[{place}]" for place in range(math.prod(policy.feature_shapes[name]))]
    return tuple(labels)


def check_units(source: Any, target: Any) -> None:
    """Refuse components of one name that are shown in other units or scales."""
    there = {(group.name, part.name): part for group in source.groups for part in group.components}
    for group in target.groups:
        for part in group.components:
            other = there.get((group.name, part.name))
            if other is not None and (other.unit, other.scale) != (part.unit, part.scale):
                raise ValueError(
                    f"{group.name}.{part.name} is shown in {other.unit or 'no unit'} times {other.scale:g} there and "
                    f"in {part.unit or 'no unit'} times {part.scale:g} here; show it alike, or rename it"
                )
