"""Steps as samples: what follows a row, named fields of step rows, and pairs of frame rows.

*Step rows* are the house stream: row t holds what was seen, done and what came of it. In a *frame stream* row t opens
with the arrival of the environment, so a transition needs two rows; see `frames.pairs` for more on those.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from gaitway.core.workspace import Workspace

OBSERVATION = "env/obs/"
FINAL = "env/final_obs/"
ENDS = ("env/terminated", "env/truncated")
SHORT_NAMES = {"env/reward": "reward", "env/terminated": "terminated", "env/truncated": "truncated"}


def final_observations(groups: Iterable[str]) -> tuple[str, ...]:
    """What whoever reads `following` of these observation groups names in its `reads`, besides their rows."""
    return tuple(FINAL + group for group in groups)


def final_rows(ws: Workspace, groups: Iterable[str]) -> dict[str, Tensor]:
    """The final observations `[T, B, *e]` of these groups, which a value at a time limit is that of."""
    found = {}
    for group in groups:
        if FINAL + group not in ws:
            raise ValueError(
                f"a time limit may end an episode, and the critic's final observation {FINAL + group!r} is not stored; "
                "name it in the reads of the algorithm, or let EnvAgent write it by final_obs"
            )
        found[group] = ws[FINAL + group]
    return found


def following(ws: Workspace, name: str) -> Tensor:
    """Row t+1 for every step t, `[T, B, *e]`; ended rows of an observation come from `env/final_obs/<group>`.

    With `env/valid` (an environment that resets in a row of its own) row t+1 of an ended step already is the state
    reached, so nothing needs replacing.
    """
    steps, values = ws.T, ws[name]
    if len(values) != steps + 1:
        raise ValueError(
            f"variable {name!r} has {len(values)} rows for {steps} steps, so nothing follows the last one; write "
            f"its row {steps} too and name it in Workspace(extra_row=...); frame streams use transitions(pairs=True)"
        )
    after = values[1:]
    if not name.startswith(OBSERVATION) or "env/done" not in ws:
        return after
    done, final = ws["env/done"], FINAL + name.removeprefix(OBSERVATION)
    if final in ws:
        return torch.where(over_events(done, after), ws[final], after)
    if "env/valid" not in ws and bool(done.any()):
        t, b = done.nonzero()[0].tolist()
        raise ValueError(
            f"the episode of column {b} ended at step {t}, so row {t + 1} of {name!r} is the start of another one; "
            f"name {final!r} in the reads of whoever needs it (reads_after of an agent), so that it is stored"
        )
    return after


def fields(ws: Workspace) -> dict[str, Tensor]:
    """Every step variable as `[N, *e]`, t-major, with the names of `Workspace.transitions`."""
    keep = ws["env/valid"].flatten().nonzero().squeeze(1) if "env/valid" in ws else None
    return fields_at(ws, keep, keep)


def fields_at(ws: Workspace, first: Tensor | None, last: Tensor | None) -> dict[str, Tensor]:
    """Fields of transitions from step `first` to step `last`, int64 `[N]` indices `t * B + b`; None is every step.

    The next observation and the flags of an end belong to the last step, everything else to the first.
    """
    steps = ws.T

    def samples(values: Tensor, index: Tensor | None) -> Tensor:
        flat = values.flatten(0, 1)
        return flat if index is None else flat.index_select(0, index.to(flat.device))

    out: dict[str, Tensor] = {}
    for name in ws:
        if name.startswith(OBSERVATION):
            group = name.removeprefix(OBSERVATION)
            out[f"obs/{group}"] = samples(ws[name][:steps], first)
            out[f"next_obs/{group}"] = samples(following(ws, name), last)
        elif name != "env/valid" and not name.startswith(FINAL):
            out[SHORT_NAMES.get(name, name)] = samples(ws[name][:steps], last if name in ENDS else first)
    return out


def pairs(
    ws: Workspace, filter_name: str = "env/done", keep_all: bool = False, with_index: bool = False
) -> dict[str, Tensor]:
    """Pairs `[2, N, *e]` of a frame stream: slot 0 is row t, slot 1 row t+1 of the same column; by t, then by column.

    A pair is kept where the filter variable is zero at row t. `keep_all` keeps every pair, for streams without final
    rows: slot 1 of an observation is then its `env/final_obs/<group>` twin, where there is one. `with_index` adds
    `transition/t` and `transition/b`, int64 `[2, N]`.
    """
    steps, batch = equal_sizes(ws)
    if keep_all or steps < 2:
        device = next((ws[name].device for name in ws), None)
        first = torch.arange(max(steps - 1, 0) * batch, device=device)
    else:
        first = (frame_flag(ws, filter_name)[:-1] == 0).flatten().nonzero().squeeze(1)
    out = gather_pairs(ws, first, first + batch)
    if keep_all:
        for name in ws:
            final = FINAL + name.removeprefix(OBSERVATION)
            if name.startswith(OBSERVATION) and final in ws:
                out[name] = torch.stack((out[name][0], out[final][1]))
    if with_index:
        divisor = max(batch, 1)
        out["transition/t"] = torch.stack((first // divisor, first // divisor + 1))
        out["transition/b"] = torch.stack((first % divisor, first % divisor))
    return out


def gather_pairs(ws: Workspace, first: Tensor, second: Tensor) -> dict[str, Tensor]:
    """Rows `first` and `second`, int64 `[N]` indices `t * B + b`, of every variable as `[2, N, *e]`."""
    out = {}
    for name in ws:
        flat = ws[name].flatten(0, 1)
        out[name] = torch.stack([flat.index_select(0, index.to(flat.device)) for index in (first, second)])
    return out


def equal_sizes(ws: Workspace) -> tuple[int, int]:
    """T and B when all variables agree in both, as frame streams must."""
    sizes = {name: (ws[name].shape[0], ws[name].shape[1]) for name in ws}
    first, expected = next(iter(sizes.items()), ("", (0, 0)))
    different = [f"{name} {list(size)}" for name, size in sizes.items() if size != expected]
    if different:
        raise ValueError(
            f"pairs need variables of equal [T, B]; {first!r} is {list(expected)} but {', '.join(different)}; "
            "use transitions() for step rows, whose observations have an extra row"
        )
    return expected


def frame_flag(ws: Workspace, name: str) -> Tensor:
    """A flag `[T, B]` of any dtype, as bool: true where it is not zero."""
    flag = ws[name]
    if flag.dim() > 2 and flag.shape[2:].numel() != 1:
        raise ValueError(f"{name!r} is {list(flag.shape)}; a flag must have one element per row and column, [T, B]")
    return flag.flatten(2).squeeze(2) != 0 if flag.dim() > 2 else flag != 0


def over_events(flag: Tensor, values: Tensor) -> Tensor:
    """`flag` `[T, B]`, or `[B]`, with as many trailing axes as `values` `[T, B, *e]`, or `[B, *e]`, has event axes."""
    return flag.reshape(*flag.shape, *(1 for _ in values.shape[flag.dim() :]))
