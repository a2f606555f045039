"""What goes into an exported policy and what comes out, in order and with units; and where two contracts differ.

The contract of an export is a JSON file beside it. Contracts of runs (`contract.json`, an `EnvSpec`) say less, of
memories nothing; they are compared in what both say.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from gaitway.core.config import from_config
from gaitway.core.files import finite
from gaitway.envs.spec import ActionSpec, Component, Drive, EnvSpec, ObservationGroup, with_infinities
from gaitway.export.acting_step import ACTION, ActingStep, MemoryPort
from gaitway.export.programs import ExportError
from gaitway.version import __version__

CONTRACT = "policy_contract.json"
RUN_CONTRACT = "contract.json"
FORMAT, FORMAT_VERSION = "gaitway export", 1
"""Both also stand in `robot_runner.py`, which imports nothing of ours."""
FACTS = ("gait", "scan")
"""What else a robot has to know, where there is such a thing: the gait that actions correct, the points of a scan."""


def contract_of(step: ActingStep, about: Mapping[str, Any]) -> dict[str, Any]:
    """The contract of an export as plain data; `about` says where it comes from."""
    spec = step.spec
    return finite(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "gaitway": __version__,
            **about,
            "control_dt": spec.control_dt,
            "rate_hz": 1.0 / spec.control_dt if spec.control_dt else None,
            "inputs": [_input(group, step.policy, step.unread(group.name)) for group in step.groups],
            "memories": [_memory(port) for port in step.memories],
            "action": {
                "name": ACTION,
                "shape": list(spec.action.shape),
                "dtype": str(spec.action.dtype).removeprefix("torch."),
                **asdict(spec.action),
                "clipped": step.is_limited,
            },
            "drive": None if spec.drive is None else asdict(spec.drive),
            **{name: spec.facts.get(name) for name in FACTS},
        }
    )


def _input(group: ObservationGroup, policy: nn.Module, unread: Sequence[str]) -> dict[str, Any]:
    starts = itertools.accumulate((component.size for component in group.components), initial=0)
    return {
        "name": f"obs/{group.name}",
        "group": group.name,
        "shape": list(group.shape),
        "dtype": group.dtype,
        "heading": group.heading,
        "components": [
            {"start": start, **asdict(component), **({"unread": True} if component.name in unread else {})}
            for start, component in zip(starts, group.components, strict=False)
        ],
        "normalisation": _normalisation(group.name, policy),
    }


def _normalisation(group: str, policy: nn.Module) -> dict[str, Any] | None:
    """What the exported program does to a group, for the reader: it is not to be done again."""
    normalisers: Any = getattr(policy, "normalisers", None)
    norm = None if normalisers is None else normalisers.of(group)
    if norm is None:
        return None
    return {
        "mean": norm.mean.flatten().tolist(),
        "std": norm.std.flatten().tolist(),
        "eps": norm.eps,
        "clip": norm.clip,
        "count": int(norm.count),
    }


def _memory(port: MemoryPort) -> dict[str, Any]:
    parts = port.parts or ((port.name, port.size),)
    starts = itertools.accumulate((size for _, size in parts), initial=0)
    return {
        "name": port.name,
        "input": port.input,
        "output": port.output,
        "size": port.size,
        "reset": port.reset[0] if len(set(port.reset)) == 1 else list(port.reset),
        "parts": [
            {"name": name, "start": start, "size": size} for start, (name, size) in zip(starts, parts, strict=False)
        ],
    }


@dataclass(frozen=True)
class Interface:
    """What a contract promises."""

    shown: str
    """The file, as a person names it."""
    inputs: tuple[ObservationGroup, ...]
    action: ActionSpec
    control_dt: float
    memories: tuple[MemoryPort, ...] | None
    """None where nothing is said of them: in the contract of an environment."""
    drive: Drive | None = None
    """What executes the actions; None where nothing is said of it."""
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Those of `FACTS` that there are, by name."""

    @property
    def is_export(self) -> bool:
        return self.memories is not None


def read_interface(path: str | Path) -> Interface:
    """The promise of an export folder, a run folder or a contract file; a ValueError that says what is wrong."""
    file = _contract_file(Path(path))
    try:
        plain = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(plain, dict):
            raise TypeError("it is no mapping")
        if plain.get("format") != FORMAT:
            spec = EnvSpec.from_dict(plain)
            return Interface(
                str(path), spec.groups, spec.action, spec.control_dt, None, spec.drive, _read_facts(spec.facts)
            )
        if int(plain["format_version"]) > FORMAT_VERSION:
            raise ValueError(f"its format version is {plain['format_version']}, this gaitway reads {FORMAT_VERSION}")
        return Interface(
            str(path),
            tuple(_read_input(entry) for entry in plain["inputs"]),
            _read_action(plain["action"]),
            float(plain["control_dt"]),
            tuple(_read_memory(entry) for entry in plain["memories"]),
            _read_drive(plain.get("drive")),
            _read_facts(plain),
        )
    except OSError as error:
        raise ExportError(f"cannot read {file}: {error.strerror or error}; check the path") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise ExportError(f"{file} is no contract ({reason}); export again, or name another file") from error


def _contract_file(path: Path) -> Path:
    if path.is_file():
        return path
    for name in (CONTRACT, RUN_CONTRACT):
        if (path / name).is_file():
            return path / name
    raise ExportError(f"there is no contract in {path}; name an export folder, a run folder or a contract file")


def _read_input(entry: Mapping[str, Any]) -> ObservationGroup:
    components = [_chosen(component, Component) for component in entry["components"]]
    group = {
        "name": entry["group"],
        "heading": "",
        **_chosen(entry, ObservationGroup, "name"),
        "components": components,
    }
    return from_config(ObservationGroup, group, "inputs")


def _read_action(entry: Mapping[str, Any]) -> ActionSpec:
    return from_config(ActionSpec, with_infinities(_chosen(entry, ActionSpec)), "action")


def _read_drive(entry: Mapping[str, Any] | None) -> Drive | None:
    return None if entry is None else from_config(Drive, _chosen(entry, Drive), "drive")


def _read_facts(plain: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Gait and scan of a contract; older ones, and robots without legs, have none."""
    found = {name: plain[name] for name in FACTS if plain.get(name) is not None}
    for name, value in found.items():
        if not isinstance(value, Mapping):
            raise TypeError(f"{name} is no mapping")
    return found


def _read_memory(entry: Mapping[str, Any]) -> MemoryPort:
    parts = tuple((str(part["name"]), int(part["size"])) for part in entry["parts"])
    size, reset = int(entry["size"]), entry["reset"]
    values = tuple(map(float, reset)) if isinstance(reset, list) else (float(reset),) * size
    return MemoryPort(str(entry["name"]), size, values, parts)


def _chosen(entry: Mapping[str, Any], cls: Any, *without: str) -> dict[str, Any]:
    """The keys that a dataclass of ours has."""
    return {name: value for name, value in entry.items() if name in cls.__dataclass_fields__ and name not in without}


# Where two differ


def first_difference(one: Interface, other: Interface) -> str | None:
    """The first slice, order, unit, limit or rate in which two contracts differ, in words; None if they agree.

    An export names what its policy reads, an environment everything that it shows: of these two the former decides.
    """
    return next(_differences(one, other), None)


def _differences(one: Interface, other: Interface) -> Iterator[str]:
    names, others = ([group.name for group in each.inputs] for each in (one, other))
    first, second = one.shown, other.shown
    for name in names:
        if name not in others and (one.is_export or not other.is_export):
            yield f"{first} reads the group {name!r}, which {second} does not have (it has {', '.join(others)})"
    for name in others:
        if name not in names and (other.is_export or not one.is_export):
            yield f"{second} reads the group {name!r}, which {first} does not have (it has {', '.join(names)})"
    if one.is_export == other.is_export and names != others:
        at = next(at for at, (a, b) in enumerate(zip(names, others, strict=True)) if a != b)
        yield f"the order of inputs: number {at} is {names[at]!r} in {first} and {others[at]!r} in {second}"
    there = {group.name: group for group in other.inputs}
    for group in one.inputs:
        if group.name in there:
            yield from _of_groups(group, there[group.name], first, second)
    if one.memories is not None and other.memories is not None:
        yield from _of_memories(one.memories, other.memories, first, second)
    yield from _of_actions(one.action, other.action, first, second)
    if one.drive is not None and other.drive is not None:
        yield from _of_drives(one.drive, other.drive, first, second)
    for name in (name for name in FACTS if name in one.facts and name in other.facts):
        ours, theirs = one.facts[name], other.facts[name]
        for what in sorted({*ours, *theirs}):
            if ours.get(what) != theirs.get(what):
                mine, yours = _word(ours.get(what)), _word(theirs.get(what))
                yield f"the {what} of the {name}: {mine} in {first}, {yours} in {second}"
    if one.control_dt != other.control_dt:
        yield f"the rate: a step lasts {one.control_dt:g} s in {first} and {other.control_dt:g} s in {second}"


def _of_groups(one: ObservationGroup, other: ObservationGroup, first: str, second: str) -> Iterator[str]:
    start = 0
    for mine, yours in zip(one.components, other.components, strict=False):
        place = f"obs/{one.name}[{start}:{start + mine.size}]"
        if mine.name != yours.name:
            same = sorted(each.name for each in one.components) == sorted(each.name for each in other.components)
            what = "the order of components differs from" if same else "components differ from"
            yield f"{what} {place} on: {mine.name!r} in {first}, {yours.name!r} in {second}"
        for what in ("size", "unit", "scale", "offset", "clip", "frame", "history"):
            here, there = getattr(mine, what), getattr(yours, what)
            if here != there:
                yield f"the {what} of {mine.name!r}, {place}: {_word(here)} in {first}, {_word(there)} in {second}"
        start += mine.size
    if len(one.components) != len(other.components):
        longer, where = (one, first) if len(one.components) > len(other.components) else (other, second)
        more = longer.components[min(len(one.components), len(other.components))]
        yield f"obs/{one.name} goes on at {start} with {more.name!r} in {where} alone"
    for what in ("shape", "dtype", "heading"):
        here, there = getattr(one, what), getattr(other, what)
        if here != there:
            yield f"the {what} of obs/{one.name}: {_word(here)} in {first}, {_word(there)} in {second}"


def _of_memories(one: Sequence[MemoryPort], other: Sequence[MemoryPort], first: str, second: str) -> Iterator[str]:
    for mine, yours in zip(one, other, strict=False):
        for what in ("name", "size", "reset", "parts"):
            here, there = getattr(mine, what), getattr(yours, what)
            if here != there:
                told = "layout" if what == "parts" else "reset value" if what == "reset" else what
                yield f"the {told} of the memory {mine.name!r}: {_word(here)} in {first}, {_word(there)} in {second}"
    if len(one) != len(other):
        longer, where = (one, first) if len(one) > len(other) else (other, second)
        yield f"the memory {longer[min(len(one), len(other))].name!r} is in {where} alone"


def _of_actions(one: ActionSpec, other: ActionSpec, first: str, second: str) -> Iterator[str]:
    for at, (mine, yours) in enumerate(zip(one.names, other.names, strict=False)):
        if mine != yours:
            what = "the order of actions differs" if sorted(one.names) == sorted(other.names) else "actions differ"
            yield f"{what} from action[{at}] on: {mine!r} in {first}, {yours!r} in {second}"
    for what in ("kind", "names", "unit", "meaning"):
        here, there = getattr(one, what), getattr(other, what)
        if here != there:
            yield f"the {what} of the actions: {_word(here)} in {first}, {_word(there)} in {second}"
    ones, zeros = (1.0,) * len(one.names), (0.0,) * len(one.names)
    for what, default in (
        ("low", ()),
        ("high", ()),
        ("choices", ()),
        ("start", zeros),
        ("scale", ones),
        ("offset", zeros),
    ):
        here, there = (getattr(each, what) or default for each in (one, other))
        if tuple(here) != tuple(there):
            place = next((k for k, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
            where = "the actions" if place is None else f"action[{place}], {one.names[place]!r}"
            ours, theirs = (each if place is None else each[place] for each in (here, there))
            yield f"the {what} of {where}: {_word(ours)} in {first}, {_word(theirs)} in {second}"


def _of_drives(one: Drive, other: Drive, first: str, second: str) -> Iterator[str]:
    for at, (mine, yours) in enumerate(zip(one.joints, other.joints, strict=False)):
        if mine != yours:
            what = "the order of joints differs" if sorted(one.joints) == sorted(other.joints) else "joints differ"
            yield f"{what} from joint {at} on: {mine!r} in {first}, {yours!r} in {second}"
    for what in ("default_pose", "kp", "kd", "effort"):
        for name, mine, yours in zip(one.joints, getattr(one, what), getattr(other, what), strict=False):
            if mine != yours:
                yield f"the {what} of {name!r}: {_word(mine)} in {first}, {_word(yours)} in {second}"
    for what in ("joints", "physics_dt", "quaternion"):
        here, there = getattr(one, what), getattr(other, what)
        if here != there:
            yield f"the {what} of the drive: {_word(here)} in {first}, {_word(there)} in {second}"
    for what in ("position", "rotation"):
        here, there = (getattr(each.imu, what, None) for each in (one, other))
        if here != there:
            yield f"the {what} of the IMU: {_word(here)} in {first}, {_word(there)} in {second}"


def _word(value: Any) -> str:
    if isinstance(value, tuple):
        shown = str(list(value))
        return shown if len(shown) <= 80 else f"{shown[:77]}..."
    return f"{value:g}" if isinstance(value, float) else repr(value)
