"""How a policy is run in a rollout: in the precision of its updates, and on a GPU as one recorded launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from gaitway.core.agent import Agent, Around
from gaitway.core.execution import Execution, Program
from gaitway.core.workspace import Variable, Workspace


def rollout_agent(agent: Agent, execution: Execution) -> Agent:
    """The agent as a cast should run it: in the precision of `execution`, and recorded where that captures."""
    if execution.captures and agent.is_recordable:
        return Captured(agent, execution)
    return agent if execution.precision == "fp32" else Precise(agent, execution)


class Precise(Around):
    """Acts in the precision it is learnt in, so that the policy that is learnt from is the one that acted."""

    def __init__(self, agent: Agent, execution: Execution, name: str | None = None) -> None:
        super().__init__(agent, name)
        self.execution = execution

    def step(self, ws: Workspace, t: int, **options: Any) -> None:
        with self.execution.numerics():
            self.agent.step(ws, t, **options)


class Captured(Around):
    """Runs `agent.step` on a workspace of one row that never moves, and copies what it reads and writes.

    The step may read and write row t only, besides variables with an extra row (memories), which it reads at t and
    writes at t + 1. Options other than `generator` become part of the recording; there is one for each set of them.
    """

    def __init__(self, agent: Agent, execution: Execution, name: str | None = None) -> None:
        super().__init__(agent, name)
        self.execution = execution
        self._stages: dict[tuple[Any, ...], _Stage] = {}

    def step(self, ws: Workspace, t: int, **options: Any) -> None:
        self.prepared_step(ws, options)(t)

    def prepared_step(self, ws: Workspace, options: Mapping[str, Any]) -> Callable[[int], None]:
        run: Callable[[int], None] | None = None

        def step(t: int) -> None:
            nonlocal run
            if run is None:  # only now there is something to read
                run = self._stage(ws, options).prepared(ws)
            run(t)

        return step

    def _stage(self, ws: Workspace, options: Mapping[str, Any]) -> _Stage:
        key = (ws.B, *sorted((name, str(value)) for name, value in options.items() if name != "generator"))
        stage = self._stages.get(key)
        if stage is None:
            stage = self._stages[key] = _Stage(self.agent, self.execution, ws, options)
        return stage


class _Stage:
    """One row of the workspace at a fixed address, and the program that plays on it."""

    def __init__(self, agent: Agent, execution: Execution, ws: Workspace, options: Mapping[str, Any]) -> None:
        self.carried = tuple(name for name in agent.writes if ws.may_have_extra_row(name))
        self.reads = (*agent.reads, *self.carried)
        self.writes = tuple(name for name in agent.writes if name not in self.carried)
        variables = {}
        for name in (*self.reads, *self.writes):
            value = ws.at(name, 0)
            rows = 2 if name in self.carried else 1
            variables[name] = Variable(rows, ws.B, tuple(value.shape[1:]), value.dtype)
        with torch.inference_mode(False):
            self.row = Workspace.dense(variables, execution.device, extra_row=self.carried)
        generators = [options["generator"]] if options.get("generator") is not None else []
        self.program: Program = execution.program(
            lambda: agent.step(self.row, 0, **options), f"the step of {type(agent).__name__}", generators
        )

    def prepared(self, ws: Workspace) -> Callable[[int], None]:
        """A function of t: take the row in, play, write what came of it."""
        written = (*self.writes, *self.carried)
        shifts = [int(name in self.carried) for name in written]
        take, put = self.row.copiers(self.reads, [0] * len(self.reads)), ws.copiers(written, shifts)
        found = [self.row.at(name, shift) for name, shift in zip(written, shifts, strict=True)]

        def run(t: int) -> None:
            take(0, [ws.at(name, t) for name in self.reads])
            self.program()
            put(t, found)

        return run
