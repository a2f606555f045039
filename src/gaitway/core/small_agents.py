"""Small agents that any cast may use: seeds, fixed options, copies, printing, single-episode masks."""

from __future__ import annotations

import sys
from typing import Any, Self, TextIO

import torch
from torch import Tensor

from gaitway.core.agent import Agent, Around
from gaitway.core.seeding import check_seed, stream
from gaitway.core.workspace import Workspace

SEED_RULES = ("first", "last", "sum", "mean")


class SeedableAgent(Agent):
    """An agent with private random streams, one per device, derived from its seed and its name.

    `rule` says what repeated seeding means, a constructor seed counting as the first: "first" refuses a second one,
    "last" replaces, "sum" adds, "mean" averages (rounded down). Without a seed the streams start from fresh entropy.
    """

    def __init__(self, name: str | None = None, seed: int | None = None, rule: str = "first") -> None:
        super().__init__(name)
        if rule not in SEED_RULES:
            raise ValueError(f"the seed rule is {rule!r}; use one of {SEED_RULES}")
        self.rule = rule
        self._seeds: list[int] = []
        self._generators: dict[torch.device, torch.Generator] = {}
        if seed is not None:
            self.seed(seed)

    @property
    def current_seed(self) -> int | None:
        """The seed that all values so far amount to."""
        if not self._seeds:
            return None
        if self.rule in ("first", "last"):
            return self._seeds[-1]
        return sum(self._seeds) // (len(self._seeds) if self.rule == "mean" else 1)

    def seed(self, seed: int) -> Self:
        check_seed(seed)
        if self._seeds and self.rule == "first":
            raise RuntimeError(f"the agent is already seeded with {self._seeds[0]}; use another rule to seed again")
        self._seeds.append(int(seed))
        self._generators.clear()
        return self

    def generator(self, device: torch.device | str = "cpu") -> torch.Generator:
        """The private stream of this agent on `device`; two agents with the same seed differ by name or class."""
        device = torch.device(device)
        if device not in self._generators:
            if self.current_seed is None:
                generator = torch.Generator(device=device)
                generator.seed()
            else:
                generator = stream(self.current_seed, self.name or type(self).__name__, device)
            self._generators[device] = generator
        return self._generators[device]


class WithOptions(Around):
    """Calls an agent, or a cast, with some options fixed; the fixed ones win."""

    def __init__(self, agent: Agent, name: str | None = None, **fixed: Any) -> None:
        super().__init__(agent, name)
        self.fixed = fixed

    def step(self, ws: Workspace, t: int, **options: Any) -> None:
        self.agent(ws, t, **{**options, **self.fixed})


class CopyAgent(Agent):
    """Copies a variable to another name: one row with t, the whole variable when called without."""

    def __init__(self, source: str, target: str, detach: bool = False, name: str | None = None) -> None:
        super().__init__(name)
        self.source, self.target, self.detach = source, target, detach
        self.reads, self.writes = (source,), (target,)

    def __call__(self, ws: Workspace, t: int | None = None, **options: Any) -> None:
        if t is not None:
            self.step(ws, t, **options)
        else:
            ws[self.out(self.target)] = self._value(ws[self.source])

    def step(self, ws: Workspace, t: int) -> None:
        ws.put(self.out(self.target), t, self._value(ws.at(self.source, t)))

    def _value(self, value: Tensor) -> Tensor:
        return value.detach() if self.detach else value


class PrintAgent(Agent):
    """Prints `name = value` of row t, of the named variables or of all that the workspace has at this call."""

    def __init__(self, *names: str, file: TextIO | None = None, name: str | None = None) -> None:
        super().__init__(name)
        self.reads = names
        self._file = file

    def step(self, ws: Workspace, t: int) -> None:
        for name in self.reads or ws.keys():
            print(f"{name} = {ws.at(name, t)}", file=self._file or sys.stdout)


class EpisodesDone(Agent):
    """`out[t]` = OR of `in[0..t]`, bool `[B]`: a stream of many episodes seen as its first one only.

    The past is read from row t-1 of the output, so that a run may start at any row that follows a written one.
    """

    def __init__(self, source: str = "env/done", target: str = "episode/done", name: str | None = None) -> None:
        super().__init__(name)
        self.source, self.target = source, target
        self.reads, self.writes = (source,), (target,)

    def step(self, ws: Workspace, t: int) -> None:
        done = ws.at(self.source, t) != 0
        target = self.out(self.target)
        ws.put(target, t, done if t == 0 else ws.at(target, t - 1) | done)
