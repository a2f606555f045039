"""StepReplay: the replay buffer of off-policy algorithms. Every step is stored once and drawn uniformly.

The next observation of a step is the observation of the following row, so it is not stored again; final observations of
time limits lie in a table. `step_rows` describes the layout. A step and its next observation are contiguous in memory,
so a random draw reads one piece. n-step returns are computed once, when the n-th step is added; until then the first of
these steps cannot be drawn.

`draw` and `gather` are separate because a CUDA graph can record `gather`: its shapes are static, it does not
synchronise with the device, and the memory it reads stays in place as long as `version` does not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gaitway.core.seeding import restore_stream
from gaitway.core.workspace import Workspace
from gaitway.data.ring import (
    WORD,
    Fields,
    Variable,
    check_memory,
    moved_generator,
    replay_generator,
)
from gaitway.data.step_gather import TransitionBatch, TransitionReader
from gaitway.data.step_rows import (
    FINAL,
    OBSERVATION,
    REWARD,
    TRUNCATED,
    VALID,
    Decisions,
    StepRows,
    row_layout,
    stored_fields,
)

FORMAT = 1
USUAL_EPISODE = 1000
NONE: Fields = {}


class StepReplay:
    """The last `capacity` transitions of `num_envs` environments, as whole time rows.

    `groups`, `action` and `extras` (other step variables, by workspace name) give shape and dtype of what is stored;
    `action` None stores none, where transitions are those of decisions that lie in the extras. With `decisions` the
    window of a transition ends where the next decision is due, after 1 to n_step steps. With `whole_windows` a step can
    be drawn when all its n_step rows are there, also where `cut` ended its episode: for those who read `window`.
    `max_episode_steps` is the time limit: it determines how much memory final observations get (without it their table
    grows on demand). `reset_rows` is true for environments that write `env/valid`. All memory is allocated by the
    constructor, which raises an error if too little is free. Draws use the replay's own generator.
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        groups: Fields,
        action: Variable | None,
        *,
        device: torch.device | str = "cpu",
        seed: int | None = None,
        generator: torch.Generator | None = None,
        n_step: int = 1,
        gamma: float = 0.99,
        max_episode_steps: int | None = None,
        extras: Fields = NONE,
        reset_rows: bool = False,
        decisions: Decisions | None = None,
        whole_windows: bool = False,
    ) -> None:
        if not 1 <= num_envs <= capacity:
            raise ValueError(
                f"capacity is {capacity} for {num_envs} environments; it must hold at least one step of each"
            )
        if n_step < 1 or not 0 <= gamma <= 1:
            raise ValueError(f"n_step and gamma are {n_step} and {gamma}; use n_step >= 1 and 0 <= gamma <= 1")
        if decisions is not None:
            decisions.check(extras)
        self.device = torch.zeros(0, device=device).device
        self.generator = replay_generator(seed, generator, self.device)
        if self.generator.device.type != self.device.type:
            raise ValueError(
                f"the generator draws on {self.generator.device}, the replay lies on {self.device}; make both alike"
            )
        needed = self.bytes_needed(
            capacity,
            num_envs,
            groups,
            action,
            n_step=n_step,
            max_episode_steps=max_episode_steps,
            extras=extras,
            reset_rows=reset_rows,
            decisions=decisions,
        )
        check_memory(needed, self.device, f"a replay of {capacity} transitions", needed / capacity)
        self.capacity, self.num_envs, self.n_step, self.gamma = capacity, num_envs, n_step, gamma
        stored = stored_fields(groups, action, extras, reset_rows)
        finals = _final_entries(capacity // num_envs, num_envs, max_episode_steps)
        self._rows = StepRows(
            stored, capacity // num_envs, num_envs, n_step, gamma, finals, self.device, decisions, whole_windows
        )
        self._read = TransitionReader(self._rows)

    @staticmethod
    def bytes_needed(
        capacity: int,
        num_envs: int,
        groups: Fields,
        action: Variable | None,
        *,
        n_step: int = 1,
        max_episode_steps: int | None = None,
        extras: Fields = NONE,
        reset_rows: bool = False,
        decisions: Decisions | None = None,
    ) -> int:
        """Bytes that a replay with these arguments allocates, final observations included."""
        layout = row_layout(stored_fields(groups, action, extras, reset_rows), n_step, decisions)
        rows = capacity // num_envs
        words = (rows + 2 * n_step) * num_envs * layout.words
        words += _final_entries(rows, num_envs, max_episode_steps) * layout.front_words
        words += (rows + n_step) * num_envs if reset_rows or (decisions is not None and decisions.only) else 0
        return words * WORD.itemsize

    @property
    def rows_added(self) -> int:
        """Time rows ever added."""
        return self._rows.rows_added

    @property
    def first_row(self) -> int:
        """The oldest time row that can be drawn."""
        return self._rows.first

    @property
    def stop_row(self) -> int:
        """The time row after the newest one that can be drawn."""
        return self._rows.stop

    @property
    def num_slots(self) -> int:
        """Upper bound of the indices that `draw` returns."""
        return self.num_envs * self._rows.stride

    @property
    def variables(self) -> dict[str, Variable]:
        """Shape and dtype of every stored step variable, by workspace name."""
        fields = self._rows.layout.fields
        return {name: (fields[name].shape, fields[name].dtype) for name in self._rows.stored}

    @property
    def row_bytes(self) -> int:
        """Bytes of one time row of all environments."""
        return self.num_envs * self._rows.layout.words * WORD.itemsize

    @property
    def history(self) -> object:
        """A new object after every `clear`: row numbers from before then denote other steps."""
        return self._rows.history

    @property
    def size(self) -> int:
        """Transitions that can be drawn now."""
        rows = self._rows
        if rows.valid is not None:
            return rows.valid.count(rows.first, rows.stop)
        return (rows.stop - rows.first) * self.num_envs

    def __len__(self) -> int:
        return self.size

    @property
    def version(self) -> int:
        """Grows whenever memory was reallocated; programs captured before that must be recorded again."""
        return self._rows.version

    def add(self, ws: Workspace, start: int = 0, stop: int | None = None, truncated: Tensor | None = None) -> None:
        """Append detached copies of the steps `start <= t < stop` of a workspace of step rows [T, B].

        `truncated` [stop - start, B], `env/truncated` of these steps on the CPU, spares waiting for a device. The first
        observation must be that after the last step added before, unless `cut` was called in between.
        """
        stop = ws.T if stop is None else stop
        if not 0 <= start <= stop:
            raise IndexError(f"cannot add steps {start}..{stop}; use 0 <= start <= stop")
        if VALID in ws and not self._rows.reset_rows:
            raise ValueError(
                "the workspace has 'env/valid', so some rows only reset; make the replay with reset_rows=True"
            )
        for first in range(start, stop, self._rows.piece):
            last = min(first + self._rows.piece, stop)
            known = None if truncated is None else truncated[first - start : last - start]
            self._rows.append(ws, first, last, partial(_reached, ws, first), known)

    def cut(self) -> None:
        """Call after resetting the environments: the observation after the last row becomes a final observation."""
        self._rows.cut()

    def slots(self, start: int, stop: int, drawn: bool = True) -> Tensor:
        """The indices of the transitions of time rows `start <= row < stop`, int64 [K], by row, then by environment.

        Rows that only reset an environment have none. `drawn=False` returns the indices of all these rows, whatever is
        stored there now.
        """
        rows = self._rows
        if not drawn or rows.valid is None:
            return rows.slots(start, stop - start).flatten().to(self.device)
        number = torch.arange(rows.valid.count(start, stop), device=self.device)
        return rows.valid.look_up(start, number)

    def draw(self, shape: tuple[int, ...], out: Tensor | None = None) -> Tensor:
        """Uniform random indices of transitions with replacement, int64, for `gather`; written to `out` if given."""
        size = self.size
        if size == 0:
            raise ValueError(f"the replay has no whole transition to draw; add {self.n_step} steps or more first")
        if out is None:
            out = torch.empty(shape, dtype=torch.int64, device=self.device)
        elif out.shape != shape:
            raise ValueError(f"out is {list(out.shape)} and {list(shape)} draws are asked for; both must agree")
        rows = self._rows
        if rows.valid is None:
            return self._slots(rows.first, rows.stop - rows.first, out)
        out.random_(0, size, generator=self.generator)
        return out.copy_(rows.valid.look_up(rows.first, out))

    def draw_where(self, n: int, name: str, value: float, generator: torch.Generator) -> Tensor:
        """Uniform random indices, with replacement, of transitions whose stored scalar `name` is `value`: int64 [n], or
        [0] where there is none. Looks at every transition, so it is not for the midst of an update."""
        slots = self.slots(self.first_row, self.stop_row)
        column = self._rows.ring.columns[name].flatten()
        found = slots[column[slots] == value]
        if not len(found):
            return found
        chosen = torch.randint(len(found), (n,), generator=generator, device=generator.device)
        return found[chosen.to(self.device)]

    def batch(self, n: int) -> TransitionBatch:
        """Memory for n transitions that `gather` can reuse; valid until `to` is called."""
        with torch.inference_mode(False):
            return self._read.batch(n)

    def gather(self, index: Tensor, out: TransitionBatch | None = None) -> dict[str, Tensor]:
        """The transitions `index` [n] of a draw, as fields [n, *shape].

        `obs/<group>`, `action`, `reward` (the discounted sum of k rewards: n_step, or fewer where the episode ended),
        `discount` (gamma^k, 0 where the episode terminated), `truncated` (whether a time limit ended it within the k
        steps), `next_obs/<group>` (k steps later; the final observation after a time limit) and the extras by name;
        with `decisions` and n_step > 1 k itself too, as `steps`. Where the episode terminated, `next_obs` is finite but
        arbitrary.

        The fields are views of new memory, or of `out`, a `batch`, which is reused; clone them to keep them.
        """
        return self._read(index, out)

    def sample(self, n: int, length: int = 1) -> Workspace:
        """n windows of `length` consecutive steps of one environment, drawn uniformly, [length, n, *shape].

        Windows may contain ends of episodes: see `env/terminated` and `env/truncated`. `env/final_obs/<group>` is the
        final observation where a row is truncated, and the observation of the following row elsewhere.
        """
        rows = self._rows
        count = rows.rows_added - rows.first - length + 1
        if length < 1 or count < 1:
            raise ValueError(
                f"no window of {length} steps can be drawn from {rows.rows_added - rows.first} rows; ask for less, or "
                "add more first"
            )
        return self.window(
            self._slots(rows.first, count, torch.empty(n, dtype=torch.int64, device=self.device)), length
        )

    def window(self, index: Tensor, length: int = 1) -> Workspace:
        """The `length` steps from each of the transitions `index` [n] on, [length, n, *shape], as in `sample`."""
        rows, n = self._rows, len(index)
        ring = rows.ring.rows
        start, position = index, index % rows.stride
        steps = torch.arange(length + 1, device=self.device)[:, None]
        drawn = rows.ring.take(start - position + (position + steps) % ring)
        tensors = {name: drawn[name] if name.startswith(OBSERVATION) else drawn[name][:length] for name in rows.stored}
        finals = rows.finals.layout.views(rows.finals.words[drawn["final"][:length]])
        for group in rows.groups:
            following = tensors[OBSERVATION + group][1:]
            truncated = tensors[TRUNCATED].view(length, n, *(1 for _ in following.shape[2:]))
            tensors[FINAL + group] = torch.where(truncated, finals[OBSERVATION + group], following)
        return Workspace.packed(tensors)

    def to(self, device: torch.device | str) -> StepReplay:
        """Move the steps, and all future additions and draws, to `device`."""
        self.device = torch.zeros(0, device=device).device
        self.generator = moved_generator(self.generator, self.device)
        self._rows.to(self.device)
        self._read = TransitionReader(self._rows)
        return self

    # State

    def clear(self, first_row: int = 0) -> None:
        """Remove all steps; the next one added is time row `first_row`. The random stream continues."""
        self._rows.clear(first_row)

    def rows(self, start: int, stop: int) -> dict[str, Tensor]:
        """Time rows `start <= row < stop` [T, B, *shape] under their workspace names, with one observation per row;
        `env/final_obs/<group>` [K, *shape] of the K truncated steps, by row, then by environment."""
        return self._rows.read(start, stop)

    def column(self, name: str, start: int, stop: int) -> Tensor:
        """The stored variable `name` of time rows `start <= row < stop`, [T, B, *shape], on the device of the replay,
        which nobody waits for."""
        ring = self._rows.ring
        positions = torch.arange(start, stop, device=self.device) % ring.rows
        return ring.columns[name].index_select(1, positions).transpose(0, 1)

    def restore_rows(self, rows: Mapping[str, Tensor]) -> None:
        """Append time rows that `rows` returned; call `load_bookkeeping` after the last ones."""
        self._rows.restore(rows)

    def bookkeeping(self) -> dict[str, Any]:
        """The state without the time rows `first_row..rows_added - 2`: cursors, random state, and the newest row, which
        a `cut` can still change, with the observation after it."""
        rows = self._rows
        newest = max(rows.rows_added - 1, rows.first)
        return {
            "format": FORMAT,
            "contents": self._contents(),
            "first_row": rows.first,
            "rows_added": rows.rows_added,
            "cut_at": max(rows.cut_at, rows.first),  # what was cut before the oldest row matters no more
            "newest": rows.read(newest, rows.rows_added),
            "open": rows.open_observations(),
            "generator": self.generator.get_state(),
        }

    def check_bookkeeping(self, state: Mapping[str, Any]) -> None:
        """Refuse the state of a replay with other contents or sizes."""
        if state["format"] != FORMAT:
            raise ValueError(f"the stored replay has format {state['format']}, this version reads {FORMAT}")
        mine, stored = self._contents(), dict(state["contents"])
        for name in mine | stored:
            if mine.get(name) != stored.get(name):
                raise ValueError(
                    f"the stored replay has {name} {stored.get(name)}, this one {mine.get(name)}; make them equal"
                )

    def load_bookkeeping(self, state: Mapping[str, Any]) -> None:
        """Restore `bookkeeping()`. The older rows must have been restored before, by `clear(state["first_row"])` and
        `restore_rows`."""
        self.check_bookkeeping(state)
        rows, count = self._rows, len(state["newest"][REWARD])
        if rows.rows_added + count != state["rows_added"] or rows.oldest != state["first_row"]:
            raise ValueError(
                f"time rows {rows.oldest}..{rows.rows_added} are here and {state['first_row']}.."
                f"{state['rows_added'] - count} are needed; restore those first"
            )
        rows.restore(state["newest"])
        rows.open_with(state["open"])
        if state["cut_at"] > rows.stop:
            rows.end_at(state["cut_at"])
        restore_stream(self.generator, state["generator"])

    def state_dict(self) -> dict[str, Any]:
        """All steps and the bookkeeping; for large replays see `ReplayJournal`, which writes only new rows."""
        newest = max(self.rows_added - 1, self.first_row)
        return {"bookkeeping": self.bookkeeping(), "rows": self.rows(self.first_row, newest)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict()`: the next draws equal those that the saved replay would have made."""
        self.check_bookkeeping(state["bookkeeping"])
        self.clear(state["bookkeeping"]["first_row"])
        self.restore_rows(state["rows"])
        self.load_bookkeeping(state["bookkeeping"])

    # Private

    def _contents(self) -> dict[str, Any]:
        sizes: dict[str, Any] = {"capacity": self.capacity, "num_envs": self.num_envs}
        sizes |= {"n_step": self.n_step, "gamma": self.gamma}
        if self._rows.decisions is not None:
            sizes["decisions"] = list(self._rows.decisions)
        return sizes | {name: [list(shape), str(dtype)] for name, (shape, dtype) in self.variables.items()}

    def _slots(self, first: int, count: int, out: Tensor) -> Tensor:
        """Uniform random indices of steps in time rows `first <= row < first + count`, written to `out`."""
        ring = self._rows.ring.rows
        position = first % ring
        out.random_(position, position + count, generator=self.generator)
        if position + count > ring:
            out.remainder_(ring)
        if self.num_envs > 1:
            stream = torch.randint(self.num_envs, out.shape, generator=self.generator, device=self.device)
            out.add_(stream, alpha=self._rows.stride)
        return out


def _reached(ws: Workspace, start: int, group: str, where: Tensor) -> Tensor:
    """Final observations [K, *shape] of the steps `where` [K, 2] (row, column), rows counted from `start`."""
    name, later = FINAL + group, 0
    if name not in ws and VALID in ws:
        name, later = OBSERVATION + group, 1  # the row after an end only resets: its observation is the final one
    if name in ws:
        values = ws[name]
        steps, columns = where.to(values.device).unbind(1)
        return values[steps + start + later, columns]
    raise ValueError(
        f"the workspace has no {name!r}, the observation reached where a time limit ended an episode; let the "
        "environment agent write it (final_obs=True)"
    )


def _final_entries(rows: int, num_envs: int, max_episode_steps: int | None) -> int:
    """Entries for one final observation per episode of full length, for unfinished ones, and for the unused entry 0."""
    return 1 + num_envs * (rows // (max_episode_steps or USUAL_EPISODE) + 2)
