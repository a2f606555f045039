"""`check_transitions`: proves that what was collected is what happened, or names the first row that is not.

    check_transitions(ws)                              # step rows, a frame stream, or pairs of one
    check_transitions(ws.transitions(), columns=ws.B)  # named fields

Nothing is assumed about the task: rewards may be any finite number. What is looked at, where the variables exist:

- flags are bool, `[T, B]`, and an episode is never terminated and truncated at once;
- rewards are finite, `[T, B]`; observations and actions hold no NaN;
- the observation reached is the observation that the next row starts from, unless an episode ended in between;
- no transition goes from the end of one episode to the start of the next.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gaitway.core.indexing import common_size
from gaitway.core.transitions import FINAL, OBSERVATION, equal_sizes, frame_flag
from gaitway.core.workspace import Workspace

FLAGS = ("terminated", "truncated", "done")


def check_transitions(
    data: Workspace | Mapping[str, Tensor], *, columns: int | None = None, tolerance: float = 0.0
) -> int:
    """Check step rows, a frame stream, pairs of one (`transitions(pairs=True, with_index=True)`) or named fields
    `[N, *e]`; returns the number of transitions in it.

    ValueError says what is wrong at the first row, and in which column. Fields of `Workspace.transitions()` are rows of
    `columns` environments one after the other; without that number nothing says which sample follows which.
    Observations must agree exactly, or within `tolerance`.
    """
    if not isinstance(data, Workspace):
        return _check_fields(data, columns, tolerance)
    if columns is not None:
        raise TypeError("columns belongs to named fields; a workspace knows its own number of columns")
    if "transition/t" in data:
        return _check_pairs(data, tolerance)
    groups = [name for name in data if name.startswith(OBSERVATION)]
    if any(data.rows(name) == data.T + 1 for name in groups):
        return _check_step_rows(data, groups, tolerance)
    return _check_frames(data, groups, tolerance)


def _check_step_rows(ws: Workspace, groups: list[str], tolerance: float) -> int:
    steps, batch = ws.T, ws.B
    _check_values({name: ws[name][:steps] for name in ws}, "env/")
    nowhere = torch.zeros(steps, batch, dtype=torch.bool, device=ws[groups[0]].device)
    done = ws["env/done"] if "env/done" in ws else nowhere
    valid = ~nowhere
    if "env/valid" in ws:
        valid = ws["env/valid"]
        _check_reset_rows(valid, done)
    for name in groups:
        final = FINAL + name.removeprefix(OBSERVATION)
        after = ws[name][1:] if final in ws else ws.following(name)  # says what is missing where an episode ended
        if final in ws:
            goes_on = valid if "env/valid" in ws else ~done
            _refuse(
                goes_on & _differs(ws[final], after, tolerance),
                f"{final!r}, the observation reached, is not the one that the next row of {name!r} starts from, though "
                "the episode goes on there",
            )
    return int(valid.sum())


def _check_reset_rows(valid: Tensor, done: Tensor) -> None:
    _refuse(~valid & done, "'env/valid' is false, so the row only resets, but it ends an episode as well")
    _refuse(~valid[1:] & ~done[:-1], "'env/valid' is false, but no episode ended in the row before", 1)
    _refuse(valid[1:] & done[:-1], "'env/valid' is true, but the row before ended an episode and this one resets", 1)


def _check_frames(ws: Workspace, groups: list[str], tolerance: float) -> int:
    steps, batch = equal_sizes(ws)
    _check_values({name: ws[name] for name in ws}, "env/")
    done = frame_flag(ws, "env/done")
    is_compact = any(FINAL + name.removeprefix(OBSERVATION) in ws for name in groups)
    for name in groups:
        final = FINAL + name.removeprefix(OBSERVATION)
        if final in ws:
            _refuse(
                ~done & _differs(ws[final], ws[name], tolerance),
                f"{final!r} differs from {name!r}, though no episode ended there",
            )
        elif not is_compact:
            _refuse(
                done[:-1] & done[1:] & _differs(ws[name][1:], ws[name][:-1], tolerance),
                f"the episode had ended and the row repeats its end, but {name!r} changed",
                1,
            )
    if "env/timestep" in ws:
        before, after = ws["env/timestep"][:-1], ws["env/timestep"][1:]
        wrong = torch.where(done[:-1], (after > 1) & (after != before), after != before + 1)
        _refuse(wrong, "'env/timestep' must count on by 1 within an episode and start anew after its end", 1)
    return max(steps - 1, 0) * batch if is_compact else int((~done[:-1]).sum())


def _check_pairs(ws: Workspace, tolerance: float) -> int:
    _check_values({name: ws[name] for name in ws}, "env/")
    (t, later), (b, other) = ws["transition/t"], ws["transition/b"]

    def refuse(wrong: Tensor, sentence: str) -> None:
        if bool(wrong.any()):
            i = int(wrong.nonzero()[0])
            raise ValueError(f"row {int(t[i])}, column {int(b[i])} (pair {i}): {sentence}")

    refuse((later != t + 1) | (other != b), "the two slots are not rows t and t+1 of one column")
    has_final = any(name.startswith(FINAL) for name in ws)
    done = frame_flag(ws, "env/done") if "env/done" in ws else None
    if done is not None and not has_final:
        refuse(done[0], "the pair starts on the end of an episode, so it arrives in another one")
    order = torch.argsort(b * (int(later.max()) + 1 if len(t) else 1) + t)
    follows = (t[order][1:] == t[order][:-1] + 1) & (b[order][1:] == b[order][:-1])
    twice = torch.zeros_like(t, dtype=torch.bool)
    twice[order[1:]] = (t[order][1:] == t[order][:-1]) & (b[order][1:] == b[order][:-1])
    refuse(twice, "the pair occurs twice")
    if done is not None:
        follows = follows & ~done[1][order][:-1]
    for name in ws:
        if name.startswith(OBSERVATION):
            values = ws[name][:, order]
            wrong = torch.zeros_like(twice)
            wrong[order[:-1]] = follows & _differs(values[1, :-1], values[0, 1:], tolerance, 1)
            refuse(wrong, f"slot 1 of {name!r} is not slot 0 of the pair that follows it")
    return len(t)


def _check_fields(fields: Mapping[str, Tensor], columns: int | None, tolerance: float) -> int:
    count = common_size({name: len(values) for name, values in fields.items()}, "samples")
    if columns is None:
        _check_values({name: values.unsqueeze(0) for name, values in fields.items()}, "", "sample")
        return count
    if columns < 1 or count % columns:
        raise ValueError(f"{count} samples are not whole rows of {columns} columns; pass the B of their workspace")
    if "n_step/steps" in fields:
        raise ValueError("samples of several steps have no neighbours to compare with; leave columns out")
    rows = {name: values.unflatten(0, (-1, columns)) for name, values in fields.items()}
    _check_values(rows, "")
    done = torch.zeros(count // columns, columns, dtype=torch.bool, device=next(iter(rows.values())).device)
    for flag in FLAGS:
        done = done | rows[flag] if flag in rows else done
    for name, values in rows.items():
        following = f"next_{name}"
        if name.startswith("obs/") and following in rows:
            _refuse(
                ~done[:-1] & _differs(rows[following][:-1], values[1:], tolerance),
                f"{following!r} is not {name!r} of the next row, though the episode goes on there",
            )
    return count


def _check_values(rows: Mapping[str, Tensor], prefix: str, unit: str = "row") -> None:
    """Flags, rewards and the absence of NaN in `[T, B, *e]`, of variables whose names start with `prefix`."""
    flags = {flag: rows[prefix + flag] for flag in FLAGS if prefix + flag in rows}
    for flag, values in flags.items():
        if values.dtype is not torch.bool or values.dim() != 2:
            raise ValueError(
                f"{prefix + flag!r} is {_described(values)}; a flag is bool, one per row and column: write x != 0 and "
                "drop a trailing axis with squeeze(-1)"
            )
    if {"terminated", "truncated"} <= flags.keys():
        both = flags["terminated"] & flags["truncated"]
        _refuse(both, "the episode is terminated and truncated at once; termination wins", 0, unit)
        if "done" in flags:
            either = flags["terminated"] | flags["truncated"]
            _refuse(flags["done"] != either, f"{prefix + 'done'!r} is not terminated or truncated", 0, unit)
    if prefix + "reward" in rows:
        reward = rows[prefix + "reward"]
        if not reward.is_floating_point() or reward.dim() != 2:
            raise ValueError(f"{prefix + 'reward'!r} is {_described(reward)}; it must be one float per row and column")
        _refuse(~reward.isfinite(), f"{prefix + 'reward'!r} is not finite", 0, unit)
    for name, values in rows.items():
        if values.is_floating_point() and name.startswith((f"{prefix}obs/", f"{prefix}next_obs/", FINAL, "action")):
            _refuse(_differs(values, values, 0.0), f"{name!r} is NaN", 0, unit)  # nothing else differs from itself


def _differs(one: Tensor, other: Tensor, tolerance: float, lead: int = 2) -> Tensor:
    """Where two tensors `[*lead, *e]` differ in any element of the event."""
    wrong = (one - other).abs() > tolerance if tolerance and one.is_floating_point() else one != other
    return wrong.flatten(lead).any(lead) if wrong.dim() > lead else wrong


def _refuse(wrong: Tensor, sentence: str, first_row: int = 0, unit: str = "row") -> None:
    """Say where `wrong` `[T, B]` is true first; its row 0 is row `first_row` of the stream."""
    if bool(wrong.any()):
        t, b = wrong.nonzero()[0].tolist()
        place = f"sample {b}" if unit == "sample" else f"row {t + first_row}, column {b}"
        raise ValueError(f"{place}: {sentence}")


def _described(values: Tensor) -> str:
    return f"{list(values.shape)} {values.dtype}"
