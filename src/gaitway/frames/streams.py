"""Frame streams and step rows, converted exactly, both ways.

    steps = to_steps(frames, "framed")           # R rows -> R - 1 steps
    frames = to_frames(steps, "compact")         # T steps -> T + 1 rows

What a transition is never changes: `steps.transitions()` equals `pair_fields(frames.transitions(pairs=True))`, in order
(compact streams: `keep_all=True`). A variable belongs to one of three kinds, and this decides where it goes:

| kind | variables | row t of a frame stream | row t of step rows |
|---|---|---|---|
| seen | `env/obs/*`, `env/raw_obs/*`, `env/rendering`, those of `extra_row` | row t | row t; T + 1 of them |
| arrived | the rest of `env/*` | row t | row t - 1: it came of that step |
| decided | everything else, and the reward written on departure | row t | row t; the last row belongs to no step |

Step rows cannot hold what arrived in row 0 (with a start at t=0: nothing) nor what was decided on the last row (never
carried out). `borders` hands both over; with them a round trip is the identity, without them row 0 is a start and the
last decision zero.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gaitway.core.transitions import FINAL, OBSERVATION, over_events
from gaitway.core.workspace import Workspace

REWARD, VALID = "env/reward", "env/valid"
FLAGS = ("env/terminated", "env/truncated")
TOTAL, COUNT = "env/cumulated_reward", "env/timestep"
SEEN = (OBSERVATION, "env/raw_obs/", "env/rendering")
MODES = ("framed", "compact", "frozen")
Rows = dict[str, Tensor]


def to_departure(frames: Workspace) -> Workspace:
    """Arrival to departure: the reward for acting on row t moves from row t+1 to row t; 0 on the last row.

    Lost is the reward of row 0, which belongs to the epoch before; 0 after a start.
    """
    reward = frames[REWARD]
    return _with(frames, {REWARD: torch.cat((reward[1:], torch.zeros_like(reward[:1])))})


def to_arrival(frames: Workspace, first: Tensor | None = None) -> Workspace:
    """Departure to arrival; row 0 gets `first` `[B]` or 0. What stood on the last row is lost: it is not known yet."""
    reward = frames[REWARD]
    start = torch.zeros_like(reward[:1]) if first is None else first[None]
    return _with(frames, {REWARD: torch.cat((start, reward[:-1]))})


def borders(frames: Workspace, reward: str = "arrival") -> tuple[Rows, Rows]:
    """What step rows cannot hold: what arrived in row 0 and what was decided on the last row, each `[B, *e]`."""
    kinds = {name: _kind(frames, name, reward) for name in frames}
    rows = len(frames[_any_observation(frames)])
    start = {name: frames.at(name, 0) for name, kind in kinds.items() if kind == "arrived"}
    last = {name: frames.at(name, rows - 1) for name, kind in kinds.items() if kind == "decided"}
    return start, last


def to_steps(frames: Workspace, mode: str, reward: str = "arrival") -> Workspace:
    """R rows of a frame stream as R - 1 step rows.

    A framed or frozen stream gives `env/valid`, false for steps from a row that was the last of an episode: their
    action was ignored. A compact stream keeps its `env/final_obs/*` and has no such rows.
    """
    _check(mode, reward)
    rows = len(frames[_any_observation(frames)])
    out: Rows = {}
    extra = set(frames.extra_row)
    for name in frames:
        values, kind = frames[name], _kind(frames, name, reward)
        out[name] = values if kind == "seen" else values[1:] if kind == "arrived" else values[: rows - 1]
        if kind == "seen" and not name.startswith(OBSERVATION):
            extra.add(name)
    if mode != "compact":
        valid = ~frames["env/done"][:-1]
        out[VALID] = valid
        for name in FLAGS:
            out[name] = out[name] & valid  # a repeated end of a frozen stream ends nothing
    return Workspace.packed(out, strict=frames.strict, extra_row=extra)


def to_frames(
    steps: Workspace,
    mode: str,
    reward: str = "arrival",
    start: Mapping[str, Tensor] | None = None,
    last: Mapping[str, Tensor] | None = None,
) -> Workspace:
    """T step rows as T + 1 rows of a frame stream.

    compact: from step rows with final observations. framed: from step rows with `env/valid`, because all columns must
    reset in rows of their own; see `framed_columns` for the others. frozen: from either; only the first episode of each
    column is left. `start` and `last` are those of `borders`. Counters that are missing are computed from `start`.
    """
    _check(mode, reward)
    start, last = dict(start or {}), dict(last or {})
    if mode == "compact" and VALID in steps:
        raise ValueError(
            "these step rows have reset rows (env/valid), which a compact stream has not; use mode='framed', or "
            "step_columns(to_frames(steps, 'framed')) and convert each column"
        )
    if mode == "framed" and VALID not in steps:
        raise ValueError(
            "these step rows have no reset rows (env/valid), so that framed columns differ in length; use "
            "framed_columns(steps), or mode='compact'"
        )
    rows = _by_kind(steps, start)
    if mode == "compact":
        for name in rows["observed"]:
            final = FINAL + name.removeprefix(OBSERVATION)
            rows["arrived"][final] = steps[final] if final in steps else steps.following(name)
            start.setdefault(final, steps.at(name, 0))
    elif mode == "frozen":
        for name in rows["observed"]:
            rows["seen"][name] = torch.cat((steps[name][:1], steps.following(name)))
    out = dict(rows["seen"])
    out |= {name: torch.cat((_row(start, name, values), values)) for name, values in rows["arrived"].items()}
    if mode == "frozen":
        out, rows["decided"] = _first_episode(steps, out, rows)
    out |= {name: torch.cat((values, _row(last, name, values))) for name, values in rows["decided"].items()}
    frames = _packed(steps, out)
    if reward == "departure":
        frames = to_departure(frames)
        if REWARD in last:
            frames.put(REWARD, steps.T, last[REWARD])
    return frames


def step_columns(frames: Workspace, reward: str = "arrival") -> list[Workspace]:
    """A framed stream as step rows without reset rows: one workspace `[T_b, 1, *e]` per column, because their lengths
    differ, with `env/final_obs/*`.

    Where a column stops on the last row of an episode, the start of the next one is not known, and the final
    observation stands for it in the extra row; `transitions()` never shows it. Actions written on final rows are lost.
    """
    steps = to_steps(frames, "framed", reward)
    columns = []
    for b in range(steps.B):
        column = steps.select([b])
        kept = column[VALID][:, 0].nonzero().squeeze(1)  # [T_b]
        # after the last step: the row it reached, or the reset row behind that one, if there is one
        after = kept[-1:] + 1 if len(kept) else kept.new_zeros(1)
        if len(kept) and bool(column["env/done"][kept[-1], 0]):
            after = (after + 1).clamp(max=steps.T)
        out: Rows = {}
        for name in column:
            if name == VALID:
                continue
            values = column[name]
            out[name] = values[torch.cat((kept, after)) if len(values) > steps.T else kept]
            if name.startswith(OBSERVATION):
                out[FINAL + name.removeprefix(OBSERVATION)] = values[kept + 1]
        columns.append(Workspace.packed(out, strict=frames.strict, extra_row=steps.extra_row))
    return columns


def framed_columns(
    steps: Workspace, reward: str = "arrival", start: Mapping[str, Tensor] | None = None
) -> list[Workspace]:
    """Step rows with final observations as framed streams: one workspace `[R_b, 1, *e]` per column, where
    `R_b = 1 + T + episodes that ended`. What was decided on a final row is zero, as on the last row."""
    _check("framed", reward)
    if VALID in steps:
        raise ValueError("these step rows have reset rows already (env/valid); use to_frames(steps, 'framed')")
    start = dict(start or {})
    rows = _by_kind(steps, start)
    if reward == "departure":
        rows["decided"][REWARD] = rows["arrived"].pop(REWARD)
    reached = {name: steps.following(name) for name in rows["observed"]}
    done, columns = steps["env/done"], []
    _refuse_unknown_ends(rows, done)
    first = torch.zeros(1, dtype=torch.int64, device=done.device)
    for b in range(steps.B):
        ends = done[:, b].long()
        arrival = 1 + torch.arange(steps.T, device=done.device) + ends.cumsum(0) - ends  # [T]: row that step t reaches
        restart = arrival[done[:, b]] + 1
        total = 1 + steps.T + int(ends.sum())
        out: Rows = {}
        for name, values in rows["seen"].items():
            after = values[1:, b]
            places = (first, values[:1, b]), (arrival, reached[name][:, b] if name in reached else after)
            out[name] = _placed(total, *places, (restart, after[done[:, b]]))
        for name, values in rows["arrived"].items():
            out[name] = _placed(total, (first, _row(start, name, values)[:, b]), (arrival, values[:, b]))
        for name, values in rows["decided"].items():
            out[name] = _placed(total, (arrival - 1, values[:, b]))
        columns.append(_packed(steps, out))
    return columns


def _placed(total: int, *places: tuple[Tensor, Tensor]) -> Tensor:
    """A column `[total, 1, *e]` of zeros with values `[n, *e]` in rows `[n]`."""
    column = places[0][1].new_zeros(total, 1, *places[0][1].shape[1:])
    for rows, values in places:
        column[rows, 0] = values
    return column


def _by_kind(steps: Workspace, start: Mapping[str, Tensor]) -> dict[str, Rows]:
    """Variables of step rows as whole tensors: `seen` `[T+1, ...]`, `arrived` with counters and `decided` `[T, ...]`;
    `observed` are those of `seen` that have final observations."""
    out: dict[str, Rows] = {"seen": {}, "arrived": {}, "decided": {}}
    for name in steps:
        if name != VALID and not name.startswith(FINAL):
            out[_kind(steps, name, "arrival")][name] = steps[name]
    out["observed"] = {name: values for name, values in out["seen"].items() if name.startswith(OBSERVATION)}
    for name, values in _counters(steps, start).items():
        out["arrived"].setdefault(name, values)
    return out


def _counters(steps: Workspace, start: Mapping[str, Tensor]) -> Rows:
    """Return and length of the episode after each step, `[T, B]`: added in the order and type of the environment
    agent, so that the numbers are the same to the last bit."""
    reward, done = steps[REWARD].float(), steps["env/done"]
    valid = steps[VALID] if VALID in steps else torch.ones_like(done)
    zero = torch.zeros_like(reward[:1]) if len(reward) else reward.new_zeros(1, steps.B)
    total, count = _row(start, TOTAL, zero)[0], _row(start, COUNT, zero.long())[0]
    ended = torch.zeros_like(zero[0], dtype=torch.bool)
    for name in FLAGS:
        ended = ended | _row(start, name, ended[None])[0]
    totals, counts = torch.zeros_like(reward), torch.zeros_like(reward, dtype=torch.int64)
    for t in range(len(reward)):
        totals[t] = total = torch.where(valid[t], torch.where(ended, 0.0, total) + reward[t], 0.0)
        counts[t] = count = torch.where(valid[t], torch.where(ended, 0, count) + 1, 0)
        ended = done[t]
    return {TOTAL: totals, COUNT: counts}


def _first_episode(steps: Workspace, out: Rows, rows: dict[str, Rows]) -> tuple[Rows, Rows]:
    """Repeat the row in which the first episode of a column ended; `out` are seen and arrived rows `[T+1, ...]`."""
    done = torch.stack([out[name] for name in FLAGS]).any(0)  # [T+1, B]
    if VALID not in steps:
        _refuse_unknown_ends(rows, done)
    number = torch.arange(len(done), device=done.device)[:, None]
    first = torch.where(done.any(0), done.long().argmax(0), len(done))  # [B]: the last row of the first episode
    shown = torch.minimum(number, first)  # [T+1, B]
    columns = torch.arange(done.shape[1], device=done.device)
    repeated = {name: values[shown, columns] for name, values in out.items()}
    repeated[REWARD] = torch.where(number > first, 0.0, repeated[REWARD])
    # what was decided in later episodes has no place here; what was decided on repeated rows has
    other = number[:-1] >= first
    other &= steps[VALID] if VALID in steps else torch.ones_like(other)
    decided = {name: values.masked_fill(over_events(other, values), 0) for name, values in rows["decided"].items()}
    return repeated, decided


def _refuse_unknown_ends(rows: dict[str, Rows], done: Tensor) -> None:
    unknown = [name for name in rows["seen"] if name not in rows["observed"]]
    if unknown and bool(done.any()):
        raise ValueError(
            f"{unknown} have no rows of the states in which episodes ended, which only observations keep "
            "(env/final_obs); remove them from the workspace first, with ws.remove(name)"
        )


def _kind(ws: Workspace, name: str, reward: str) -> str:
    if name.startswith(SEEN) or name in ws.extra_row:
        return "seen"
    if name == REWARD:
        return "arrived" if reward == "arrival" else "decided"
    return "arrived" if name.startswith("env/") else "decided"


def _row(given: Mapping[str, Tensor], name: str, like: Tensor) -> Tensor:
    """The row `given`, or zeros, as `[1, B, *e]`, like the rows of `like`."""
    return given[name][None] if name in given else like.new_zeros(1, *like.shape[1:])


def _any_observation(ws: Workspace) -> str:
    name = next((name for name in ws if name.startswith(OBSERVATION)), None)
    if name is None:
        raise ValueError(f"there is no {OBSERVATION}<group> in the workspace; it has {ws.keys()}")
    return name


def _packed(like: Workspace, tensors: Rows) -> Workspace:
    return Workspace.packed(tensors, strict=like.strict, extra_row=like.extra_row)


def _with(ws: Workspace, changed: Rows) -> Workspace:
    return _packed(ws, {name: ws[name] for name in ws} | changed)


def _check(mode: str, reward: str) -> None:
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r}; use one of {MODES}")
    if reward not in ("arrival", "departure"):
        raise ValueError(f"reward is {reward!r}; use 'arrival' or 'departure'")
