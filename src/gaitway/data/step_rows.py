"""StepRows: the memory of a StepReplay, time rows of many environments that run on.

The rows of one environment (a stream) lie one after the other in a ring: time row a of environment b is slot
`b * stride + a % ring`. Its observation after n steps is that of the slot n places on, also where the ring closes,
because `PackedRing` repeats its first rows there. Only where an episode was cut off (truncated) the observation really
reached lies in a table of its own.

Variables have the names they have in a workspace. A row also holds what is worked out when its n steps are there:
`discount`, the `return` of n steps, `return/final`, the entry of the final observation or 0, and `return/truncated`,
whether there is one. For n = 1 the last three are the reward, `final` and `env/truncated` themselves.

Where actions follow from decisions that hold for up to n steps, a row also says how many steps ago the last one was
made (its `phase`), and its window ends where the next one is due: `return/steps` is its length, from 1 to n.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gaitway.core.workspace import Workspace
from gaitway.data.final_observations import FinalObservations
from gaitway.data.ring import WORD, Fields, PackedRing, RowLayout, Variable
from gaitway.data.valid_slots import ValidSlots

OBSERVATION, FINAL = "env/obs/", "env/final_obs/"
REWARD, TERMINATED, TRUNCATED, VALID = "env/reward", "env/terminated", "env/truncated", "env/valid"
STEP = ("action", REWARD, TERMINATED, TRUNCATED, VALID)
TAKEN = (OBSERVATION, FINAL, "obs/", "next_obs/")
STAGE_BYTES = 2**24

SCALAR: Variable = ((), torch.float32)
FLAG: Variable = ((), torch.bool)
PHASE: Variable = ((), torch.int64)
DERIVED: dict[str, Variable] = {
    "discount": SCALAR,
    "final": ((), WORD),
    "return": SCALAR,
    "return/final": ((), WORD),
    "return/truncated": FLAG,
    "return/steps": ((), WORD),
}

Finals = Callable[[str, Tensor], Tensor]
"""(group, int64 [K, 2] of steps and columns, on the CPU) -> the observations reached there [K, *shape]."""


class Decisions(NamedTuple):
    """How rows belong to decisions that hold for several steps."""

    phase: str
    """The extra variable, int64 [], that counts steps since the last decision: 0 where one is made."""
    only: bool = False
    """Whether windows begin at decisions alone, instead of at every step."""

    def check(self, extras: Fields) -> None:
        if extras.get(self.phase) != PHASE:
            raise ValueError(
                f"decisions are counted by {self.phase!r}, which the extras have as {extras.get(self.phase)}; store an "
                "int64 scalar under that name"
            )


def stored_fields(groups: Fields, action: Variable | None, extras: Fields, reset_rows: bool) -> dict[str, Variable]:
    """What a row takes from a workspace."""
    stored = {OBSERVATION + name: field for name, field in groups.items()}
    stored |= {} if action is None else {"action": action}
    stored |= {REWARD: SCALAR, TERMINATED: FLAG, TRUNCATED: FLAG}
    if reset_rows:
        stored[VALID] = FLAG
    for name in extras:
        if name in STEP or name in DERIVED or name in ("reward", "steps") or name.startswith(TAKEN):
            raise ValueError(f"the extra variable {name!r} has the name of something every transition has; rename it")
    return stored | dict(extras)


def row_layout(stored: Fields, n_step: int, decisions: Decisions | None = None) -> RowLayout:
    """A whole row, observations first."""
    derived = {name: field for name, field in DERIVED.items() if n_step > 1 or not name.startswith("return")}
    if decisions is None:
        derived.pop("return/steps", None)
    return RowLayout({**stored, **derived}, front=[name for name in stored if name.startswith(OBSERVATION)])


@dataclass
class _Stage:
    """A few time rows on their way into the ring, with views that are made once."""

    count: int
    """Steps, T."""
    views: dict[str, Tensor]
    """Each variable, [T + 1, B, *shape]; the row after the last step holds observations only."""
    sources: list[tuple[str, int, Tensor]]
    """Name in the workspace, how many rows are read, and where they go."""
    by_stream: Tensor
    """The words, [B, T + 1, words]."""


class StepRows:
    """`capacity` complete time rows of `num_envs` streams, the n - 1 that still wait for their n steps, and the open
    row: the observation after the newest step."""

    def __init__(
        self,
        stored: Fields,
        capacity: int,
        num_envs: int,
        n_step: int,
        gamma: float,
        finals: int,
        device: torch.device,
        decisions: Decisions | None = None,
        whole_windows: bool = False,
    ) -> None:
        self.capacity, self.num_envs, self.n_step, self.gamma = capacity, num_envs, n_step, gamma
        self.decisions, self.whole_windows = decisions, whole_windows
        self.stored = list(stored)
        self.reset_rows = VALID in stored
        observations = {name: field for name, field in stored.items() if name.startswith(OBSERVATION)}
        self.extras = [name for name in stored if name not in observations and name not in STEP]
        self.groups = [name.removeprefix(OBSERVATION) for name in observations]
        self.layout = row_layout(stored, n_step, decisions)
        self.ring = PackedRing(self.layout, capacity + n_step, num_envs, mirror=n_step, device=device)
        self.finals = FinalObservations(RowLayout(observations), finals, device)
        picked = self.reset_rows or (decisions is not None and decisions.only)
        self.valid = ValidSlots(capacity + n_step, num_envs, device) if picked else None
        self.piece = max(1, min(capacity, STAGE_BYTES // (num_envs * self.layout.words * WORD.itemsize)))
        powers = torch.tensor([gamma**steps for steps in range(n_step + 1)], dtype=torch.float64, device=device)
        self._powers, self._full_discount = powers, powers[1].float()
        self.version = 0
        self.clear()

    @property
    def stride(self) -> int:
        """Slots from one stream to the next."""
        return self.ring.rows + self.n_step

    def clear(self, first_row: int = 0) -> None:
        """Forget everything; the next row to come is time row `first_row`."""
        self.rows_added = self.oldest = self._cut_at = first_row
        self.history = object()
        self.finals.clear()
        self._stage: _Stage | None = None
        self._count()

    def _count(self) -> None:
        """Steps that can be drawn: time rows `first <= a < stop`."""
        ended = self.oldest if self.whole_windows else max(self._cut_at, self.oldest)
        self.stop = max(self.rows_added - self.n_step + 1, ended)
        self.first = max(self.stop - self.capacity, self.oldest)

    def append(
        self,
        source: Workspace | Mapping[str, Tensor],
        start: int,
        stop: int,
        finals: Finals,
        truncated: Tensor | None = None,
    ) -> None:
        """Steps `start <= t < stop` of `source`, at most `piece` of them; observations have a row more. `truncated` is
        `env/truncated` of these steps on the CPU; without it, this waits for the device on which they are."""
        count, row = stop - start, self.rows_added
        stage = self._staged(count)
        values = {}
        for name, rows, target in stage.sources:
            value = values[name] = source[name][start : start + rows]
            if value.shape != target.shape or value.dtype is not target.dtype:
                raise _refused(name, value, target)
            target.copy_(value.detach() if value.requires_grad else value)
        ends = (values[TRUNCATED].cpu() if truncated is None else truncated).nonzero()
        reached = self._reached(ends, finals) if len(ends) else None
        self.finals.release(row + count - self.ring.rows + 1)
        if reached is not None:
            self._store_finals(row, ends, reached, stage.views["final"])
        if self.n_step == 1:
            torch.add(self._full_discount, stage.views[TERMINATED], alpha=-self.gamma, out=stage.views["discount"])
        self.ring.put(self.ring.memory, row % self.ring.rows, stage.by_stream)
        if reached is not None:
            stage.views["final"].zero_()
        self.rows_added += count
        if self.valid is not None:
            self.valid.append(row, self._drawable(values), self.slots(row, count))
        if self.n_step > 1:
            self._finish(row - self.n_step + 1, count)
        self._count()

    def cut(self) -> None:
        """The streams were interrupted: the open row is where the newest step ended, as if by a time limit."""
        if self.rows_added == self.oldest:
            return
        row = self.rows_added - 1
        position = row % self.ring.rows
        columns = self.ring.columns
        truncated, entry = columns[TRUNCATED][:, position].clone(), columns["final"][:, position].clone()
        going = ~(truncated | columns[TERMINATED][:, position])
        if self.reset_rows:
            going &= columns[VALID][:, position]
        where = going[None].cpu().nonzero()
        if len(where):
            opened = self.open_observations()
            reached = self._reached(where, lambda group, at: opened[group][at[:, 1].to(going.device)])
            self._store_finals(row, where, reached, entry[None])
            self.ring.put(columns["final"], position, entry[:, None])
            self.ring.put(columns[TRUNCATED], position, (truncated | going)[:, None])
        self.end_at(self.rows_added)

    def end_at(self, row: int) -> None:
        """Every window that began before time row `row` is over there (`cut` has marked the ends)."""
        self._cut_at = row
        if self.n_step > 1:  # the first of these had its n steps, but has reached what is now a final observation
            self._finish(row - self.n_step, self.n_step)
        self._count()

    @property
    def cut_at(self) -> int:
        """The time row before which the streams were last interrupted."""
        return self._cut_at

    def read(self, start: int, stop: int) -> dict[str, Tensor]:
        """Time rows `start <= a < stop` under their workspace names [T, B, *shape]; `env/final_obs/<group>` [K, *shape]
        holds the K truncated ones, by row, then by column."""
        kept = max(self.oldest, self.rows_added - self.ring.rows + 1)
        if not kept <= start <= stop <= self.rows_added:
            raise IndexError(f"time rows {start}..{stop} are not all in {kept}..{self.rows_added}, which are stored")
        positions = torch.arange(start, stop, device=self.ring.memory.device) % self.ring.rows
        columns = self.ring.columns
        rows = {name: columns[name].index_select(1, positions).transpose(0, 1).contiguous() for name in self.stored}
        entry = columns["final"].index_select(1, positions).transpose(0, 1)[rows[TRUNCATED]]
        for group in self.groups:
            rows[FINAL + group] = self.finals.columns[OBSERVATION + group].index_select(0, entry)
        return rows

    def restore(self, rows: Mapping[str, Tensor]) -> None:
        """Append what `read` gave; the observation after the last row is still open then."""
        device, taken = self.ring.memory.device, 0

        def finals(group: str, where: Tensor) -> Tensor:
            return rows[FINAL + group][taken : taken + len(where)]

        steps = {name: rows[name].to(device) for name in self.stored}
        for group in self.groups:
            observation = steps[OBSERVATION + group]
            steps[OBSERVATION + group] = torch.cat((observation, observation[-1:]))
        count = len(rows[REWARD])
        for start in range(0, count, self.piece):
            stop = min(start + self.piece, count)
            self.append(steps, start, stop, finals)
            taken += int(rows[TRUNCATED][start:stop].sum())

    def open_observations(self) -> dict[str, Tensor]:
        """Group -> the observation after the newest step, [B, *shape]."""
        position = self.rows_added % self.ring.rows
        return {group: self.ring.columns[OBSERVATION + group][:, position].clone() for group in self.groups}

    def open_with(self, observations: Mapping[str, Tensor]) -> None:
        """Set what `open_observations` gave."""
        for group, value in observations.items():
            column = self.ring.columns[OBSERVATION + group]
            self.ring.put(column, self.rows_added % self.ring.rows, value.to(column.device)[:, None])

    def to(self, device: torch.device) -> None:
        self.ring.to(device)
        self.finals.to(device)
        if self.valid is not None:
            self.valid.to(device)
        self._powers, self._full_discount = self._powers.to(device), self._full_discount.to(device)
        self._stage = None
        self.version += 1

    def _staged(self, count: int) -> _Stage:
        """The stage for `count` rows; runs add the same number again and again."""
        if self._stage is None or self._stage.count != count:
            with torch.inference_mode(False):
                size = (count + 1, self.num_envs, self.layout.words)
                words = torch.zeros(size, dtype=WORD, device=self.ring.memory.device)
                views = self.layout.views(words)
                rows = {name: count + name.startswith(OBSERVATION) for name in self.stored}
                sources = [(name, rows[name], views[name][: rows[name]]) for name in self.stored]
                self._stage = _Stage(count, views, sources, words.transpose(0, 1))
        return self._stage

    def _drawable(self, values: Mapping[str, Tensor]) -> Tensor:
        """Which steps [T, B] may be drawn, on the CPU."""
        drawable = torch.ones(values[REWARD].shape, dtype=torch.bool)
        if self.reset_rows:
            drawable &= values[VALID].cpu()
        if self.decisions is not None and self.decisions.only:
            drawable &= values[self.decisions.phase].cpu() == 0
        return drawable

    def _reached(self, where: Tensor, finals: Finals) -> dict[str, Tensor]:
        """The observations [K, *shape] that `finals` has for `where` [K, 2], checked."""
        reached = {}
        for group in self.groups:
            value, column = finals(group, where), self.finals.columns[OBSERVATION + group]
            if value.shape[1:] != column.shape[1:] or value.dtype is not column.dtype:
                raise _refused(FINAL + group, value, column[:1].expand(len(value), *column.shape[1:]))
            reached[OBSERVATION + group] = value.detach().to(column.device)
        return reached

    def _store_finals(self, row: int, where: Tensor, reached: Mapping[str, Tensor], entries: Tensor) -> None:
        """Keep what was `reached` at `where` [K, 2], counted from time row `row`, and note it in `entries` [T, B]."""
        table = self.finals.words
        entry = self.finals.store((where[:, 0] + row).tolist(), reached)
        steps, columns = where.to(entries.device).unbind(1)
        entries[steps, columns] = entry
        self.version += table is not self.finals.words

    def slots(self, row: int, count: int) -> Tensor:
        """Slots [T, B] of `count` time rows, on the CPU."""
        return ((torch.arange(row, row + count) % self.ring.rows)[:, None]) + torch.arange(self.num_envs) * self.stride

    def _finish(self, row: int, count: int) -> None:
        """Returns of the windows that begin in time rows `row <= a < row + count`.

        Rows behind the end of a window are read and ignored, so it does not matter whether they have come yet. Rows
        from before the beginning are worked on too: nobody draws them.
        """
        while count:
            position = row % self.ring.rows
            length = min(count, self.ring.rows - position)
            self._finish_piece(position, length)
            row, count = row + length, count - length

    def _finish_piece(self, position: int, length: int) -> None:
        span = slice(position, position + length + self.n_step - 1)

        def windows(name: str) -> Tensor:  # [B, length, n]
            return self.ring.columns[name][:, span].unfold(1, self.n_step, 1)

        terminated, truncated = windows(TERMINATED), windows(TRUNCATED)
        done = (terminated | truncated).byte()
        going = done.cumsum(2) == done  # no end in an earlier step of the window
        if self.decisions is not None:
            phase = self.ring.columns[self.decisions.phase][:, position : position + length, None]
            number = torch.arange(self.n_step, device=phase.device)
            going &= (number < self.n_step - phase) | (number == 0)
        reward = torch.where(going, windows(REWARD), 0).double()
        total = reward[..., 0]
        for step in range(1, self.n_step):  # one after the other, so that the sum never depends on how many are added
            total = total + reward[..., step] * self.gamma**step
        steps = going.sum(2)
        discount = self._powers[steps].masked_fill_((terminated & going).any(2), 0)
        entry = torch.where(truncated & going, windows("final"), 0).sum(2)
        values = {"return": total, "discount": discount, "return/final": entry, "return/truncated": entry > 0}
        if self.decisions is not None:
            values["return/steps"] = steps
        for name, value in values.items():
            self.ring.columns[name][:, position : position + length] = value


def _refused(name: str, value: Tensor, expected: Tensor) -> ValueError:
    return ValueError(
        f"the replay stores {list(expected.shape[1:])} {expected.dtype} of {name!r} per step, found "
        f"{list(value.shape[1:])} {value.dtype} in {len(value)} of {len(expected)} rows; make the replay for what the "
        "workspace holds"
    )
