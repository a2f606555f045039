"""Who writes what, who reads it, and whether every read has a writer: checked before the first step.

    print(check_wiring(cast, ws, given=("goal",)))

An agent may read what an earlier agent of the cast writes, what is `given`, and what it writes itself (memory, which it
starts by itself). Two agents may write the same variable only if the later one reads it too, as noise that changes an
action does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gaitway.core.agent import Agent
from gaitway.core.indexing import nearest
from gaitway.core.workspace import Workspace

DERIVED = {"env/done": ("env/terminated", "env/truncated")}


@dataclass(frozen=True)
class WiringRow:
    """One variable of the table; shape and dtype are empty where no workspace shows them."""

    variable: str
    shape: str
    dtype: str
    writers: tuple[str, ...]
    readers: tuple[str, ...]


class Mention(NamedTuple):
    """Somebody who reads and writes variables without being an agent: a loss, a reward source."""

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...] = ()

    def parts(self) -> tuple[Mention, ...]:
        return (self,)


Part = Agent | Mention


class Wiring:
    """The table of variables of a cast and the problems found in it. `print(wiring)` shows the table."""

    def __init__(self, agents: Agent | Sequence[Part], ws: Workspace | None = None, given: Iterable[str] = ()) -> None:
        """`ws` only adds shapes and dtypes: memory that exists is no proof that somebody writes it."""
        cast = [agents] if isinstance(agents, Agent) else list(agents)
        self._parts: list[Part] = [part for agent in cast for part in agent.parts()]
        self._labels = _labels(self._parts)
        self._given = tuple(given)
        self._ws = ws
        self.problems = self._find_problems()

    def check(self) -> Wiring:
        """This wiring if it has no problems; else a ValueError that lists all of them."""
        if len(self.problems) == 1:
            raise ValueError(f"the cast is not wired: {self.problems[0]}")
        if self.problems:
            raise ValueError("the cast is not wired:\n" + "\n".join(f"- {problem}" for problem in self.problems))
        return self

    def rows(self) -> list[WiringRow]:
        """One row per variable, in order of first use; what is given comes first."""
        names = list(self._given)
        for part in self._parts:
            names += [*part.reads, *part.writes]
        return [self._row(name) for name in dict.fromkeys(names)]

    def __str__(self) -> str:
        header = ("variable", "shape", "dtype", "written by", "read by")
        lines = [
            (row.variable, row.shape, row.dtype, ", ".join(row.writers) or "-", ", ".join(row.readers) or "-")
            for row in self.rows()
        ]
        widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in (header, *lines)
        )

    def _row(self, name: str) -> WiringRow:
        writers = [label for part, label in zip(self._parts, self._labels, strict=True) if name in part.writes]
        readers = [label for part, label in zip(self._parts, self._labels, strict=True) if name in part.reads]
        if not writers and name in self._given:
            writers = ["given"]
        elif not writers and name in DERIVED:
            writers = ["derived"]
        value = self._ws[name] if self._ws is not None and name in self._ws else None
        shape = "" if value is None else str(list(value.shape))
        dtype = "" if value is None else str(value.dtype).removeprefix("torch.")
        return WiringRow(name, shape, dtype, tuple(writers), tuple(readers))

    def _find_problems(self) -> list[str]:
        problems: list[str] = []
        writer_of: dict[str, str] = {}
        written = set(self._given)
        everything = {name for part in self._parts for name in part.writes} | written
        for part, label in zip(self._parts, self._labels, strict=True):
            ready = written | set(part.writes)
            ready |= {name for name, sources in DERIVED.items() if ready.issuperset(sources)}
            problems += [self._missing(name, label, everything) for name in part.reads if name not in ready]
            for name in part.writes:
                if name in writer_of and name not in part.reads:
                    problems.append(
                        f"{label} writes {name!r}, which {writer_of[name]} has written already; give one of them "
                        "another name or with_prefix, or let the later one read it too if it means to change it"
                    )
                writer_of[name] = label
            written.update(part.writes)
        return problems

    def _missing(self, name: str, reader: str, everything: set[str]) -> str:
        later = [label for part, label in zip(self._parts, self._labels, strict=True) if name in part.writes]
        if later:
            return f"{reader} reads {name!r} before {later[0]} writes it; place {later[0]} earlier, or pass it as given"
        return (
            f"{reader} reads {name!r}, which nobody writes.{nearest(name, sorted(everything))} Add the agent that "
            "writes it before this one, or pass it as given"
        )


def check_wiring(agents: Agent | Sequence[Part], ws: Workspace | None = None, given: Iterable[str] = ()) -> Wiring:
    """The wiring of a cast, after checking it; ValueError with every problem and its fix."""
    return Wiring(agents, ws, given).check()


def _labels(parts: Sequence[Part]) -> list[str]:
    """Name or class of each agent, with its position where several share one."""
    plain = [part.name or type(part).__name__ for part in parts]
    return [label if plain.count(label) == 1 else f"{label}[{index}]" for index, label in enumerate(plain)]
