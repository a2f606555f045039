"""Small agents that any cast may use: seeds, fixed options, copies, printing, single-episode masks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Self, TextIO

import numpy as np
import torch
from torch import Tensor

from gaitway.core.agent import Agent, Around, check_declared
from gaitway.core.ranks import shared_stream
from gaitway.core.seeding import check_seed, named_sequence, restore_stream
from gaitway.core.workspace import DONE, Workspace

SEED_RULES = ("first", "last", "sum", "mean")


class SeedableAgent(Agent):
    """An agent with private random streams, derived from its seed and its name: one of numpy, one of torch per device.

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
        self._numpy_generator: np.random.Generator | None = None
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
        self._numpy_generator = None
        return self

    def generator(self, device: torch.device | str = "cpu") -> torch.Generator:
        """The private stream of this agent on `device`; two agents with the same seed differ by name or class."""
        device = torch.device(device)
        if device not in self._generators:
            if self.current_seed is None:
                generator = torch.Generator(device=device)
                generator.seed()
            else:
                generator = shared_stream(self.current_seed, self._stream_name, device)
            self._generators[device] = generator
        return self._generators[device]

    def numpy_generator(self) -> np.random.Generator:
        """The private stream of this agent for code that draws with numpy."""
        if self._numpy_generator is None:
            seed = self.current_seed
            self._numpy_generator = np.random.default_rng(
                None if seed is None else named_sequence(seed, self._stream_name)
            )
        return self._numpy_generator

    def stream_states(self) -> dict[str, Any]:
        """Where the streams that were used stand."""
        states: dict[str, Any] = {str(device): each.get_state() for device, each in self._generators.items()}
        return (
            states if self._numpy_generator is None else states | {"numpy": self._numpy_generator.bit_generator.state}
        )

    def load_stream_states(self, states: Mapping[str, Any]) -> None:
        """Go on drawing as the agent that gave `states`; streams that it had not used begin at the seed."""
        for device in [device for device in self._generators if str(device) not in states]:
            del self._generators[device]
        if "numpy" not in states:
            self._numpy_generator = None
        for name, state in states.items():
            if name == "numpy":
                self.numpy_generator().bit_generator.state = state
            else:
                here = torch.device(name).type == "cpu" or torch.cuda.is_available()
                restore_stream(self.generator(name if here else "cpu"), state)

    @property
    def _stream_name(self) -> str:
        return self.name or type(self).__name__


class WithOptions(Around):
    """Calls an agent, or a cast, with some options fixed; the fixed ones win. `t` may be one of them."""

    def __init__(self, agent: Agent, name: str | None = None, **fixed: Any) -> None:
        super().__init__(agent, name)
        check_declared(agent, tuple(option for option in fixed if option != "t"))
        self.fixed = fixed

    def __call__(self, ws: Workspace, t: int | None = None, **options: Any) -> Any:
        given = options if t is None else {"t": t, **options}
        return self.agent(ws, **{**given, **self.fixed})

    def step(self, ws: Workspace, t: int, **options: Any) -> None:
        self(ws, t, **options)

    def prepared_step(self, ws: Workspace, options: Mapping[str, Any]) -> Callable[[int], Any]:
        if "t" in self.fixed:
            return super().prepared_step(ws, options)
        return self.agent.prepared_step(ws, {**options, **self.fixed})


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

    def constructor_arguments(self) -> dict[str, Any]:
        return {"source": self.source, "target": self.target, "detach": self.detach}

    def _value(self, value: Tensor) -> Tensor:
        return value.detach() if self.detach else value


class PrintAgent(Agent):
    """Prints `name = value` of row t: of the named variables, or of all that have a row t in the workspace of this
    call."""

    def __init__(self, *names: str, file: TextIO | None = None, name: str | None = None) -> None:
        super().__init__(name)
        self.reads = names
        self._file = file

    def step(self, ws: Workspace, t: int) -> None:
        for name in self.reads or [each for each in ws if t < ws.rows(each)]:
            print(f"{name} = {ws.at(name, t)}", file=self._file or sys.stdout)


class EpisodesDone(Agent):
    """`out[t]` = OR of `in[0..t]`, bool `[B]`: a stream of many episodes seen as its first one only.

    The past is read from row t-1 of the output, so that a run may start at any row that follows a written one; where
    that row is missing, from the input. The output may overwrite the input, also a derived `env/done` and flags that
    are numbers: they become bool.
    """

    def __init__(self, source: str = DONE, target: str = "episode/done", name: str | None = None) -> None:
        super().__init__(name)
        self.source, self.target = source, target
        self.reads, self.writes = (source,), (target,)

    def step(self, ws: Workspace, t: int) -> None:
        done, target = self._flag(ws, t), self.out(self.target)
        written = ws.rows(target) if target in ws.keys() else 0
        if written and ws.at(target, 0).dtype is not torch.bool:
            ws[target] = ws[target] != 0
        if t > 0:
            past = [ws.at(target, t - 1)] if written >= t else [self._flag(ws, row) for row in range(t)]
            done = torch.stack((*past, done)).any(0)
        ws.put(target, t, done)

    def constructor_arguments(self) -> dict[str, Any]:
        return {"source": self.source, "target": self.target}

    def _flag(self, ws: Workspace, t: int) -> Tensor:
        """Row t of the input; a derived one from its two flags, because this agent may have written over it."""
        if self.source == DONE and "env/terminated" in ws and "env/truncated" in ws:
            return ws.at("env/terminated", t) | ws.at("env/truncated", t)
        return ws.at(self.source, t) != 0
