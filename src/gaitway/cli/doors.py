"""What the lists of a configuration may name, and the options of each part: `gaitway list callbacks env_schedule`."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gaitway.core.config import ConfigError, did_you_mean
from gaitway.core.parts import find_part

RUN = frozenset(("spec", "action", "policy", "num_envs", "device", "seed", "execution"))
"""What parts get from their run by the names of parameters, see `cli/build.py`: no options."""


@dataclass(frozen=True)
class Door:
    """A list of a configuration."""

    key: str
    names: str
    """The table of names, as `module:TABLE`."""
    given: frozenset[str] = RUN
    leading: int = 0
    """How many parameters are no options, whatever their names."""

    @property
    def known(self) -> Mapping[str, Callable[..., Any] | str]:
        module, _, table = self.names.partition(":")
        return getattr(importlib.import_module(module), table)

    def part(self, name: str) -> Callable[..., Any]:
        if name not in self.known:
            there = ", ".join(sorted(self.known))
            raise ConfigError(f"{self.key} knows no {name!r}{did_you_mean(name, self.known)}; it knows {there}")
        return find_part({"name": name}, self.known, self.key)[1]


DOORS = {
    "blocks": Door("agent.blocks", "gaitway.agents.blocks:BLOCKS", frozenset(("shapes", "generator"))),
    "terms": Door("algorithm.terms", "gaitway.algorithms.terms:TERMS"),
    "rewards": Door("rewards", "gaitway.rewards:SOURCES"),
    "cast": Door("cast", "gaitway.runners.cast:AGENTS"),
    "callbacks": Door(
        "callbacks", "gaitway.runners.callbacks:CALLBACKS", frozenset(("algorithm", "evaluation_interval"))
    ),
    "wrappers": Door("env.wrappers", "gaitway.envs.wrappers:WRAPPERS", frozenset(), leading=1),
    "bandits": Door("agent.bandit", "gaitway.skills.bandits:BANDITS", frozenset(("space", "seed"))),
}


def motions() -> list[dict[str, str]]:
    """The clips that come with the library."""
    from gaitway.envs.motions.library import MotionLibrary, shipped_motions

    rows = []
    for name in shipped_motions():
        clips = MotionLibrary.load(name).clips
        robots = dict.fromkeys(str(clip.meta["robot"]) for clip in clips if "robot" in clip.meta)
        length = f"{max(clip.duration for clip in clips):.3g} s"
        what = f"a clip of {length}, {clips[0].source}" if len(clips) == 1 else f"{len(clips)} clips of up to {length}"
        rows.append({"id": name, "robot": ", ".join(robots), "description": what})
    return rows


def parts_of(what: str) -> list[dict[str, str]]:
    """The names that a list knows, in its own order."""
    door = DOORS[what]
    return [{"name": name, "key": door.key, "description": first_sentence(door.part(name))} for name in door.known]


def options_of(what: str, name: str) -> list[dict[str, str]]:
    """The options of a part: what it may be given in its entry, with type and default."""
    door = DOORS[what]
    make = door.part(name)
    parameters = list(inspect.signature(make).parameters.values())[door.leading :]
    hidden = {*door.given, "name"}
    return [
        {"option": each.name, "type": _type(each), "default": _default(each)}
        for each in parameters
        if each.name not in hidden
        and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        and not (callable(each.default) and each.default is not each.empty)  # functions are for programs
    ]


def first_sentence(part: Any) -> str:
    """Of its documentation; of a dataclass without one, nothing."""
    text = "" if dataclasses.is_dataclass(part) and "__doc__" not in vars(part) else inspect.getdoc(part) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return paragraph.split(". ")[0].removesuffix(".")


def _type(parameter: inspect.Parameter) -> str:
    hint = parameter.annotation
    if hint is parameter.empty:
        return ""
    return hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint))


def _default(parameter: inspect.Parameter) -> str:
    value = parameter.default
    if value is parameter.empty:
        return "needed"
    return value if isinstance(value, str) else json.dumps(value)
