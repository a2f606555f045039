"""Collecting epoch after epoch, without a seam: nothing is lost, repeated or counted twice between two of them.

    for epoch in step_windows(Agents(world.observe, policy, world.advance), n_steps=128, total_steps=100_000):
        learn(epoch.workspace)

| stream | fixed windows | whole episodes |
|---|---|---|
| step rows | `step_windows` | `step_episodes` |
| frames | `frame_windows` | `frame_episodes` |

Every window holds `n_steps` steps of each column: `n_steps` step rows and the observation after them, or `n_steps + 1`
frames, the first of which is the last one of the window before. Frames count for more than steps (reset rows, rows that
repeat an end), so `Epoch` says how many steps there really are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gaitway.core.agent import Agent, Agents, TemporalAgent, ended_before
from gaitway.core.small_agents import EpisodesDone
from gaitway.core.transitions import FINAL, frame_flag
from gaitway.core.workspace import Workspace

EPISODE_DONE, EPISODE_MASK = "episode/done", "episode/mask"


@dataclass(frozen=True)
class Epoch:
    """What was collected, and how much it is."""

    workspace: Workspace
    number: int
    """0 for the first."""
    steps: int
    """Transitions in the workspace that are there to learn from."""
    env_steps: int
    """Steps that environments took for it: more than `steps` where columns ran on after their episode."""
    total_env_steps: int
    """Steps that environments took for this epoch and all before it."""


Counts = Callable[[Workspace], tuple[int, int]]
"""(workspace) -> `steps` and `env_steps`."""


def step_windows(
    cast: Agent,
    n_steps: int,
    *,
    epochs: int | None = None,
    total_steps: int | None = None,
    workspace: Workspace | None = None,
    **options: Any,
) -> Iterator[Epoch]:
    """Windows of `n_steps` step rows; episodes go on from one to the next, memories with them.

    Ends after `epochs` windows, or after the one that reaches `total_steps` environment steps; without either it never
    does. Every window is a new workspace, unless one is passed (`Workspace.dense`), which is then written again and
    again. `options` go to the cast.
    """
    _check_limits(n_steps=n_steps, epochs=epochs, total_steps=total_steps)
    _check_rows(workspace, n_steps)
    return _step_windows(TemporalAgent(_inner(cast)), n_steps, _Plan(epochs, total_steps), workspace, options)


def step_episodes(
    cast: Agent,
    *,
    epochs: int | None = None,
    total_steps: int | None = None,
    max_rows: int | None = None,
    **options: Any,
) -> Iterator[Epoch]:
    """The first whole episode of every column, from a reset on, in step rows.

    Columns that end early run on until the last one has ended; `episode/mask` `[T, B]` is true in the rows that belong
    to the first episodes. A column without an end after `max_rows` rows is a RuntimeError. The other arguments are
    those of `step_windows`.
    """
    _check_limits(max_rows=max_rows, epochs=epochs, total_steps=total_steps)
    runner = TemporalAgent(Agents(_inner(cast), EpisodesDone()))
    return _episodes(runner, _first_steps, _Plan(epochs, total_steps), max_rows, {**options, "reset": True})


def frame_windows(
    cast: Agent,
    n_steps: int,
    *,
    epochs: int | None = None,
    total_steps: int | None = None,
    workspace: Workspace | None = None,
    **options: Any,
) -> Iterator[Epoch]:
    """Windows of `n_steps + 1` frames, so `n_steps` pairs of rows per column; arguments as in `step_windows`.

    The cast starts at row 0 once, which resets the environment; afterwards row 0 is the last row of the window before
    and the cast goes on at row 1, so that no pair is lost at the seam.
    """
    _check_limits(n_steps=n_steps, epochs=epochs, total_steps=total_steps)
    _check_rows(workspace, n_steps + 1)
    return _frame_windows(TemporalAgent(_inner(cast)), n_steps, _Plan(epochs, total_steps), workspace, options)


def frame_episodes(
    cast: Agent,
    *,
    epochs: int | None = None,
    total_steps: int | None = None,
    max_rows: int | None = None,
    **options: Any,
) -> Iterator[Epoch]:
    """The first whole episode of every column in frames, from row 0 on, which resets the environment.

    Works for streams that freeze at an end and for those that reset; `transitions(pairs=True,
    filter_name="episode/done")` gives the pairs of the first episodes. Arguments as in `step_episodes`.
    """
    _check_limits(max_rows=max_rows, epochs=epochs, total_steps=total_steps)
    runner = TemporalAgent(Agents(_inner(cast), EpisodesDone()))
    return _episodes(runner, _first_pairs, _Plan(epochs, total_steps), max_rows, options)


class _Plan:
    """How long to go on, and the counting of it."""

    def __init__(self, epochs: int | None, total_steps: int | None) -> None:
        self.epochs, self.total_steps = epochs, total_steps
        self.number = self.total = 0

    def goes_on(self) -> bool:
        return (self.epochs is None or self.number < self.epochs) and (
            self.total_steps is None or self.total < self.total_steps
        )

    def epoch(self, ws: Workspace, counts: tuple[int, int]) -> Epoch:
        steps, env_steps = counts
        self.total += env_steps
        self.number += 1
        return Epoch(ws, self.number - 1, steps, env_steps, self.total)


def _step_windows(
    runner: TemporalAgent, n_steps: int, plan: _Plan, workspace: Workspace | None, options: dict[str, Any]
) -> Iterator[Epoch]:
    carried: dict[str, list[Tensor]] = {}
    ended: Tensor | None = None
    while plan.goes_on():
        ws = _begin(workspace, carried)
        runner.run(ws, 0, n_steps, ended=ended, **options)
        ended, carried = ended_before(ws, n_steps), _rows_from(ws, n_steps)
        ws.extra_row |= frozenset(carried)
        steps = int(ws["env/valid"][:n_steps].sum()) if "env/valid" in ws else n_steps * ws.B
        yield plan.epoch(ws, (steps, steps))


def _frame_windows(
    runner: TemporalAgent, n_steps: int, plan: _Plan, workspace: Workspace | None, options: dict[str, Any]
) -> Iterator[Epoch]:
    carried: dict[str, list[Tensor]] = {}
    pairs = 1
    while plan.goes_on():
        ws = _begin(workspace, carried)
        first = 1 if carried else 0
        runner.run(ws, first, n_steps + 1 - first, **options)
        carried = _rows_from(ws, n_steps)
        before, pairs = pairs, _pairs(ws, n_steps)
        if pairs == before == 0:  # once is possible: a short window of nothing but resets
            raise RuntimeError(
                "no environment took a step in two windows, because all episodes have ended and the stream is frozen; "
                "use frame_episodes, or an environment agent that resets"
            )
        yield plan.epoch(ws, (pairs, pairs))


def _episodes(
    runner: TemporalAgent, counts: Counts, plan: _Plan, max_rows: int | None, options: dict[str, Any]
) -> Iterator[Epoch]:
    while plan.goes_on():
        ws = Workspace()
        rows = runner.run(ws, 0, max_rows, EPISODE_DONE, **options)
        done = ws[EPISODE_DONE]
        if not bool(done[-1].all()):
            column = int((~done[-1]).nonzero()[0])
            raise RuntimeError(f"column {column} has no end after {rows} rows; raise max_rows or use windows")
        ws[EPISODE_MASK] = torch.cat((torch.ones_like(done[:1]), ~done[:-1]))
        yield plan.epoch(ws, counts(ws))


def _first_steps(ws: Workspace) -> tuple[int, int]:
    mask = ws[EPISODE_MASK]
    return int(mask.sum()), int(ws["env/valid"].sum()) if "env/valid" in ws else mask.numel()


def _first_pairs(ws: Workspace) -> tuple[int, int]:
    return int((~ws[EPISODE_DONE][:-1]).sum()), _pairs(ws, len(ws[EPISODE_DONE]) - 1)


def _pairs(ws: Workspace, n_steps: int) -> int:
    """Steps that environments took between `n_steps + 1` frames: all of them where the stream has no final rows."""
    if any(name.startswith(FINAL) for name in ws):
        return n_steps * ws.B
    return int((~frame_flag(ws, "env/done")[:n_steps]).sum())


def _begin(workspace: Workspace | None, carried: dict[str, list[Tensor]]) -> Workspace:
    ws = Workspace() if workspace is None else workspace
    for name, rows in carried.items():
        for t, row in enumerate(rows):
            ws.put(name, t, row)
    return ws


def _rows_from(ws: Workspace, t: int) -> dict[str, list[Tensor]]:
    """Rows t and later of every variable that has them: what the next window starts from. Copies, without a graph."""
    return {
        name: [ws.at(name, row).detach().clone() for row in range(t, ws.rows(name))] for name in ws if ws.rows(name) > t
    }


def _inner(cast: Agent) -> Agent:
    return cast.agent if isinstance(cast, TemporalAgent) else cast


def _check_limits(**limits: int | None) -> None:
    for name, limit in limits.items():
        if limit is not None and limit < (1 if name in ("n_steps", "max_rows") else 0):
            raise ValueError(f"{name} is {limit}; use a positive number")


def _check_rows(workspace: Workspace | None, rows: int) -> None:
    if workspace is not None and workspace.T not in (0, rows):
        raise ValueError(
            f"the workspace has {workspace.T} rows where a window has {rows}; allocate it with {rows} rows"
        )
