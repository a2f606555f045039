"""What a cast reads and writes, one JSON line per access: for looking at a run, off unless asked for.

    with Trace("accesses.jsonl") as trace:
        trace.cast(TemporalAgent(Agents(observe, policy, advance)))(ws, n_steps=10)

    {"time": 0.001, "agent": "policy", "class": "ActorCritic", "access": "read", "name": "env/obs/policy", "t": 0,
     "shape": [4, 3], "dtype": "float32"}

`t` is null where a whole variable is meant and `[start, stop]` for rows of it. An access that fails has the name of the
exception under `error`. The agents run as they do untraced: `Trace.cast` puts a `Traced` around each agent that does
the work, and `Traced` hands it a workspace that notes what it is asked for. What `TemporalAgent` itself looks at (flags
of ended episodes, the stop variable) is not part of the trace.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from torch import Tensor, nn

from gaitway.core.agent import Agent, Agents, Around, TemporalAgent
from gaitway.core.workspace import Workspace

AnyAgent = TypeVar("AnyAgent", bound=Agent)

SMALLEST = 1000
"""Bytes that a trace must be allowed: a few accesses and the line that says why it stopped."""


class Trace:
    """The file of a trace. It stops at `max_bytes`, says so in its last line, and the agents go on."""

    def __init__(
        self,
        path: str | Path,
        max_bytes: int = 100_000_000,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if max_bytes < SMALLEST:
            raise ValueError(f"max_bytes is {max_bytes}; a trace needs at least {SMALLEST} bytes")
        self.path, self.max_bytes = Path(path), max_bytes
        self.accesses = 0
        """Lines written so far."""
        self.is_full = False
        """Whether the limit was reached, so that later accesses are missing."""
        self._clock, self._started, self._bytes = clock, clock(), 0
        self._file = open(self.path, "w", encoding="ascii")  # noqa: SIM115

    def cast(self, agent: Agent) -> Agent:
        """The same agents in the same order, traced; the agent passed in stays as it is."""
        if isinstance(agent, Agents):
            cast = _shallow_copy(agent)
            cast.agents, cast._plans = nn.ModuleList(self.cast(part) for part in agent), {}
            return cast
        if isinstance(agent, TemporalAgent) or (isinstance(agent, Around) and agent.parts() != (agent.agent,)):
            around = _shallow_copy(agent)
            around.agent = self.cast(agent.agent)
            return around
        return Traced(agent, self)

    def note(self, agent: Agent, access: str, name: Any, t: Any, value: Any, error: BaseException | None) -> None:
        """One line; nothing once the trace is full or closed."""
        if self.is_full or self._file.closed:
            return
        line: dict[str, Any] = {
            "time": round(self._clock() - self._started, 6),
            "agent": agent.name,
            "class": type(agent).__name__,
            "access": access,
            "name": name if isinstance(name, str) else repr(name),
            "t": t if t is None or isinstance(t, int | list) else repr(t),
            "shape": list(value.shape) if isinstance(value, Tensor) else None,
            "dtype": str(value.dtype).removeprefix("torch.") if isinstance(value, Tensor) else None,
        }
        if error is not None:
            line["error"] = type(error).__name__
        text = json.dumps(line) + "\n"
        if self._bytes + len(text) + len(self._last_line(self.accesses + 1)) > self.max_bytes:
            self.is_full, text = True, self._last_line(self.accesses)
        else:
            self.accesses += 1
        self._bytes += len(text)
        self._file.write(text)
        if self.is_full or error is not None:
            self._file.flush()

    def close(self) -> None:
        """Write what is left; agents may go on, untraced. Calling it twice is fine."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _last_line(self, accesses: int) -> str:
        reason = f"the trace reached its limit of {self.max_bytes} bytes after {accesses} accesses"
        return json.dumps({"stopped": f"{reason}; what came later is missing. Raise max_bytes to see more"}) + "\n"


class Traced(Around):
    """An agent whose reads and writes are noted. Copies of it, in this process or another one, are not traced."""

    def __init__(self, agent: Agent, trace: Trace | None, name: str | None = None) -> None:
        super().__init__(agent, name)
        self._trace = trace

    def __call__(self, ws: Workspace, *arguments: Any, **options: Any) -> Any:
        return self.agent(self._seen(ws), *arguments, **options)

    def step(self, ws: Workspace, t: int, **options: Any) -> None:
        self.agent.step(self._seen(ws), t, **options)

    def prepared_step(self, ws: Workspace, options: Mapping[str, Any]) -> Callable[[int], Any]:
        return self.agent.prepared_step(self._seen(ws), options)

    def reset(self, ws: Workspace, t: int, mask: Tensor) -> None:
        self.agent.reset(self._seen(ws), t, mask)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_trace": None}  # an open file can be neither copied nor sent

    def _seen(self, ws: Workspace) -> Workspace:
        return ws if self._trace is None else _SeenWorkspace(ws, self.agent.parts()[0], self._trace)


def _shallow_copy(agent: AnyAgent) -> AnyAgent:
    """The same agent with a table of parts of its own, so that parts can be exchanged."""
    twin = copy.copy(agent)
    twin.__dict__["_modules"] = dict(agent._modules)
    return twin


class _SeenWorkspace(Workspace):
    """The workspace `behind` it, with a line for every access."""

    def __init__(self, behind: Workspace, agent: Agent, trace: Trace) -> None:
        super().__init__(strict=behind.strict, extra_row=behind.extra_row)
        self._behind, self._agent, self._trace = behind, agent, trace
        self._variables, self._is_view = behind._variables, behind._is_view

    def put(self, name: str, t: int, value: Tensor) -> None:
        self._noted("write", lambda: self._behind.put(name, t, value), name, t, value)

    def copier(self, name: str) -> Callable[[int, Tensor], None]:
        put = self._behind.copier(name)
        return lambda t, value: self._noted("write", lambda: put(t, value), name, t, value)

    def at(self, name: str, t: int) -> Tensor:
        return self._noted("read", lambda: self._behind.at(name, t), name, t)

    def __getitem__(self, name: Any) -> Any:
        if isinstance(name, tuple | list):
            return tuple(self[each] for each in name)
        return self._noted("read", lambda: self._behind[name], name, None)

    def __setitem__(self, name: str, value: Tensor) -> None:
        self._noted("write", lambda: self._behind.__setitem__(name, value), name, None, value)

    def span(self, name: str, start: int, stop: int) -> Tensor:
        return self._noted("read", lambda: self._behind.span(name, start, stop), name, [start, stop])

    def clear(self, name: str | None = None) -> None:
        cleared = self.keys() if name is None else [name]
        self._behind.clear(name)
        for each in cleared:
            self._trace.note(self._agent, "clear", each, None, None, None)

    def slice(self, start: int, stop: int, *, equal: bool = True) -> Workspace:
        return self._read_all(self._behind.slice(start, stop, equal=equal), [start, stop])

    def copy_time(self, source: int, target: int, n: int, names: Sequence[str] | None = None) -> None:
        self._behind.copy_time(source, target, n, names)
        for name in self.keys() if names is None else names:
            self._trace.note(self._agent, "read", name, [source, source + n], None, None)
            self._trace.note(self._agent, "write", name, [target, target + n], None, None)

    def select(self, index: Any) -> Workspace:
        return self._read_all(self._behind.select(index), None)

    def contiguous(self) -> Workspace:
        return self._read_all(self._behind.contiguous(), None)

    def to(self, device: Any) -> Workspace:
        return self._read_all(self._behind.to(device), None)

    def batch_view(self, lo: int, hi: int) -> Workspace:
        return _SeenWorkspace(self._behind.batch_view(lo, hi), self._agent, self._trace)

    def _noted(self, kind: str, access: Callable[[], Any], name: Any, t: Any, written: Any = None) -> Any:
        """What `access` returns, with a line about what was read or `written`, or about the error."""
        try:
            read = access()
        except Exception as error:
            self._trace.note(self._agent, kind, name, t, written, error)
            raise
        self._trace.note(self._agent, kind, name, t, read if kind == "read" else written, None)
        return read

    def _read_all(self, part: Workspace, t: Any) -> Workspace:
        for name in part:
            self._trace.note(self._agent, "read", name, t, part[name], None)
        return part
