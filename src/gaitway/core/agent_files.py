"""An agent on disk: its state dict, which class it is and how it was made, without pickle.

    save_agent("critic", critic)
    load_agent("critic", into=Critic(spec))                        # the caller has made one
    load_agent("critic", Critic, arguments={"hidden": [64, 64]})   # the caller says how
    load_agent("mask", EpisodesDone)                               # the caller says what, the file says how
    load_agent("mask")                                             # the class is looked up
    load_agent("noise", classes=[MyNoise])

The folder is written by `core.files`: tensors, numbers and text, complete or absent, checked byte by byte before it is
used. Loading never runs code that the file names: nothing is imported or called because of it. Its class path is only
compared, with the classes that the caller passes and with those agents of this library that say of themselves that
plain values are enough to make them (`Agent.constructor_arguments`). Whatever else a file claims to be is refused, and
the constructor arguments in it are plain values, never objects.

Not stored: what an agent holds besides parameters and buffers (environments, loaders, random streams), and gradients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gaitway.core import small_agents
from gaitway.core.agent import Agent
from gaitway.core.files import StateFileError, load_state, save_state

FORMAT = 1
KIND = "agent"
LIBRARY = small_agents.__name__.partition(".")[0]


def save_agent(path: str | Path, agent: Agent, arguments: Mapping[str, Any] | None = None) -> None:
    """Store `agent` in the folder `path`, replacing an agent that is there.

    `arguments` are the keyword arguments it was made with, plain values; by default what the agent says of itself.
    """
    meta = {
        "format": FORMAT,
        "class": class_path(type(agent)),
        "name": agent.name,
        "prefix": agent.prefix,
        "arguments": agent.constructor_arguments() if arguments is None else dict(arguments),
    }
    try:
        save_state(path, agent.state_dict(), kind=KIND, meta=meta)
    except TypeError as error:
        raise TypeError(f"{class_path(type(agent))} cannot be stored: {error}") from error


def load_agent(
    path: str | Path,
    kind: type[Agent] | None = None,
    *,
    into: Agent | None = None,
    arguments: Mapping[str, Any] | None = None,
    classes: Iterable[type[Agent]] = (),
) -> Agent:
    """The agent stored in `path`: a new one on the CPU, or `into`, which must be of the same class and is changed only
    if everything fits.

    `kind` is its class; without it the stored class path is looked up among `classes` and the agents of this library
    that can be made from plain values. `arguments` replace the stored ones.
    """
    state, meta = load_state(path, kind=KIND)
    if meta.get("format") != FORMAT:
        raise StateFileError(
            f"{path} has agent format {meta.get('format')!r} and this version reads {FORMAT}; upgrade gaitway"
        )
    if into is not None or kind is not None:
        found = type(into) if into is not None else kind
        if class_path(found) != meta["class"]:  # type: ignore[arg-type]
            raise ValueError(
                f"{path} holds a {meta['class']}, not a {class_path(found)}; "  # type: ignore[arg-type]
                "pass the class or the agent it was saved from"
            )
    if into is None:
        kind = kind or _look_up(path, meta["class"], classes)
        into = _make(path, kind, meta["arguments"] if arguments is None else dict(arguments))
        into.set_name(meta["name"])
        if meta["prefix"]:
            into.with_prefix(meta["prefix"])
    _fill(path, into, state)
    return into


def class_path(kind: type) -> str:
    """`package.module.Class`, as it stands in a file."""
    return f"{kind.__module__}.{kind.__qualname__}"


def rebuildable_agents() -> dict[str, type[Agent]]:
    """The agents of this library, as far as imported, that a file alone can bring back, by class path."""
    return {
        class_path(kind): kind
        for kind in _subclasses(Agent)
        if kind.__module__.partition(".")[0] == LIBRARY
        and kind.constructor_arguments is not Agent.constructor_arguments
    }


def _subclasses(kind: type[Agent]) -> Iterator[type[Agent]]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)


def _look_up(path: str | Path, stored: str, classes: Iterable[type[Agent]]) -> type[Agent]:
    known = rebuildable_agents() | {class_path(kind): kind for kind in classes}
    if stored not in known:
        raise ValueError(
            f"{path} holds a {stored}, which is not looked up by its name alone; pass the class, "
            f"load_agent(path, {stored.rpartition('.')[2]}), or an agent made already, load_agent(path, into=agent)"
        )
    return known[stored]


def _make(path: str | Path, kind: type[Agent], arguments: dict[str, Any] | None) -> Agent:
    if arguments is None:
        raise ValueError(
            f"{path} does not say how its {kind.__name__} was made; make one and pass it as into=agent, or pass "
            "arguments={...}"
        )
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ValueError(
            f"{kind.__name__} cannot be made with the arguments {sorted(arguments)} of {path} ({error}); pass "
            "arguments={...} that fit this version"
        ) from error


def _fill(path: str | Path, agent: Agent, state: Mapping[str, Any]) -> None:
    """Load `state` after looking at all of it: torch would copy what fits before it complains about the rest."""
    own = agent.state_dict()
    problems = [f"{name} is missing in the file" for name in own if name not in state]
    problems += [f"{name} is new to the agent" for name in state if name not in own]
    for name in own.keys() & state.keys():
        here, there = own[name], state[name]
        if isinstance(here, Tensor) and (not isinstance(there, Tensor) or here.shape != there.shape):
            shape = list(there.shape) if isinstance(there, Tensor) else type(there).__name__
            problems.append(f"{name} is {list(here.shape)} in the agent and {shape} in the file")
    if problems:
        raise ValueError(
            f"{path} does not fit this {type(agent).__name__}: {'; '.join(sorted(problems)[:5])}. "
            "Make the agent with the arguments it was saved with"
        )
    with torch.no_grad():
        agent.load_state_dict(state)
