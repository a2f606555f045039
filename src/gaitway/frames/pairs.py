"""Frame streams: rows that open with the arrival of the environment, so that a transition is a pair of rows.

`Workspace.transitions(pairs=True)` makes the pairs `[2, N, *e]`; the functions here name their fields, so that nobody
indexes a slot by hand, look n steps ahead, and carry rows from one epoch to the next.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gaitway.core.indexing import common_size
from gaitway.core.transitions import FINAL, OBSERVATION, equal_sizes, frame_flag, gather_pairs
from gaitway.core.workspace import Workspace


def pair_fields(pairs: Workspace, reward_at_departure: bool = False) -> dict[str, Tensor]:
    """Named fields `[N, *e]` of pairs: `obs/<group>`, `action` (also `action/<key>`) of slot 0; `next_obs/<group>`,
    `terminated`, `truncated` and `done` of slot 1; `reward` of slot 1 (written on arrival) or slot 0 (written on
    departure); what `n_step_pairs` adds."""
    if pairs.T != 2:
        raise ValueError(f"pairs have 2 rows, found {pairs.T}; call transitions(pairs=True) first")
    out: dict[str, Tensor] = {}
    for name in pairs:
        if name.startswith(OBSERVATION):
            group = name.removeprefix(OBSERVATION)
            out[f"obs/{group}"], out[f"next_obs/{group}"] = pairs[name].unbind(0)
        elif name == "action" or name.startswith(("action/", "n_step/")):
            out[name] = pairs.at(name, 0)
    if not any(name.startswith("action") for name in out):
        pairs.at("action", 0)  # says what there is instead
    out["reward"] = pairs.at("env/reward", 0 if reward_at_departure else 1)
    for flag in ("terminated", "truncated", "done"):
        out[flag] = pairs.at(f"env/{flag}", 1)
    return out


def n_step_pairs(
    ws: Workspace, n: int, gamma: float, reward_at_departure: bool = False, partial: bool = False
) -> Workspace:
    """Pairs `[2, N, *e]` of rows t and t+k, `k = min(n, steps to the first done row after t)`, by t, then by column.

    Adds, equal in both slots, `n_step/return` (sum of `gamma^i` times the i-th reward on the way), `n_step/steps` (k)
    and `n_step/discount` (`gamma^k`). Where the stream ends first the pair is dropped, or kept with the shorter k if
    `partial`. Needs a stream with final rows, framed or frozen.
    """
    if n < 1:
        raise ValueError(f"n is {n}; look at least one step ahead")
    final = next((name for name in ws if name.startswith(FINAL)), None)
    if final is not None:
        raise ValueError(
            f"a stream with {final!r} is compact: the row that ends an episode already opens the next one. Convert it "
            "with frames.streams.to_steps(ws, 'compact') and use core.n_step.n_step_transitions"
        )
    steps, batch = equal_sizes(ws)
    reward, done = ws["env/reward"], frame_flag(ws, "env/done")
    ahead = torch.zeros(steps, batch, dtype=torch.int64, device=done.device)
    total = torch.zeros_like(reward)
    alive = ~done
    for i in range(min(n, steps - 1)):
        rows = steps - 1 - i  # rows 0..rows-1 have a row i + 1 later
        arrived = alive[:rows].clone()
        reward_row = reward[i : i + rows] if reward_at_departure else reward[i + 1 :]
        total = torch.cat((total[:rows] + gamma**i * reward_row * arrived, total[rows:]))
        ahead[:rows] += arrived
        alive[:rows] = arrived & ~done[i + 1 :]
    # Still alive with fewer than n steps: the stream ended before the episode did.
    keep = (ahead > 0) & (partial | ~alive | (ahead == n))
    first = keep.flatten().nonzero().squeeze(1)
    k = ahead.flatten()[first]
    out = gather_pairs(ws, first, first + k * batch)
    extra = {"return": total.flatten()[first], "steps": k, "discount": (gamma ** k.to(reward.dtype)).to(reward.dtype)}
    for name, values in extra.items():
        out[f"n_step/{name}"] = torch.stack((values, values))
    return Workspace.packed(out, extra_row=ws.extra_row)


def copy_last(ws: Workspace, n: int, names: Sequence[str] | None = None) -> None:
    """Copy the last n rows to the front, of the named variables only; their numbers of rows must agree."""
    chosen = ws.keys() if names is None else list(names)
    rows = common_size({name: ws.rows(name) for name in chosen}, "rows")
    if not 1 <= n <= rows:
        raise ValueError(f"cannot copy the last {n} of {rows} rows; n must be in 1..{rows}")
    ws.copy_time(rows - n, 0, n, chosen)
