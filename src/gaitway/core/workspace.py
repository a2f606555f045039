"""The blackboard: named tensors `[T, B, *e]` that unfold over time.

Rollouts, replay samples, demonstrations and evaluation episodes are all Workspaces. Row t is one step: what was seen
(`env/obs/<group>`), what was done (`action`) and what came of it (`env/reward`, `env/terminated`, `env/truncated`).
Observation variables hold one row more than `T`, the observation after the last step. `env/done` is not stored: it is
read as `env/terminated | env/truncated`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor

from gaitway.core import transitions as _transitions
from gaitway.core.indexing import check_name, check_span, column_index, common_size, unknown_variable
from gaitway.core.storage import Columns, FreeRows, Preallocated, Storage, Together, Variable

__all__ = ["Variable", "Workspace"]

DONE = "env/done"


class Workspace:
    """A dictionary from variable name to a tensor `[T, B, *e]`, written row by row or as a whole.

    `Workspace()` grows and keeps gradients; `Workspace.dense` is allocated once and written in place; `share_memory`
    makes one that several processes write. Which storage backs a variable changes cost, never results.
    """

    def __init__(self, other: Workspace | None = None, *, strict: bool = False, extra_row: Iterable[str] = ()) -> None:
        """Empty, or a clone of `other` in packed storage (graph kept, memory not shared).

        `strict` refuses rows that would leave a gap, which is otherwise filled with zeros; a clone of a strict one is
        strict. `extra_row` names variables besides `env/obs/*` that may hold one row more than `T`.
        """
        self.strict: bool = strict or (other is not None and other.strict)
        self.extra_row = frozenset(extra_row)
        self._variables: dict[str, Storage] = {}
        self._is_view = False
        if other is not None:
            self.extra_row |= other.extra_row
            for name in other:
                self[name] = other[name].clone()

    @classmethod
    def dense(
        cls, variables: Mapping[str, Variable], device: torch.device | str = "cpu", *, extra_row: Iterable[str] = ()
    ) -> Workspace:
        """Preallocated zeros, written in place without gradients; `rows` of observations is T + 1."""
        ws = cls(extra_row=extra_row)
        ws._variables = {name: Preallocated.zeros(name, variable, device) for name, variable in variables.items()}
        return ws

    @classmethod
    def packed(cls, tensors: Mapping[str, Tensor], *, strict: bool = False, extra_row: Iterable[str] = ()) -> Workspace:
        """From whole variables `[T, B, *e]`, which are kept as they are, not copied."""
        ws = cls(strict=strict, extra_row=extra_row)
        for name, tensor in tensors.items():
            ws[name] = tensor
        return ws

    # One row

    def put(self, name: str, t: int, value: Tensor) -> None:
        """Write row t of variable `name`; `value` is `[B, *e]`. The first write of an unknown name fixes its rows."""
        storage = self._variables.get(name)
        if storage is None:
            self._create(name, t, value)
        else:
            storage.put(t, value)

    def copier(self, name: str) -> Callable[[int, Tensor], None]:
        """`put` of one variable, for runs over many rows and for values whose memory will be used again: storage that
        keeps what it is given gets a copy."""
        storage = self._variables.get(name)
        if isinstance(storage, Preallocated):
            return storage.copier()
        return lambda t, value: self.put(name, t, value.clone())

    def copiers(self, names: Sequence[str], shifts: Sequence[int]) -> Callable[[int, Sequence[Tensor]], None]:
        """`copier` of several variables at once, each with what is added to t for it."""
        stored = [self._variables.get(name) for name in names]
        dense = [each for each in stored if isinstance(each, Preallocated) and each.device.type == "cuda"]
        if len(dense) == len(stored) and type(self) is Workspace:  # others want to see every write
            return Together(dense, shifts)
        puts = [(self.copier(name), shift) for name, shift in zip(names, shifts, strict=True)]

        def put(t: int, values: Sequence[Tensor]) -> None:
            for (each, shift), value in zip(puts, values, strict=True):
                each(t + shift, value)

        return put

    def at(self, name: str, t: int) -> Tensor:
        """Row t of variable `name`, `[B, *e]`: the very tensor that was put (growing), else a view."""
        storage = self._variables.get(name)
        if storage is not None:
            return storage.row(t)
        if name == DONE and self._can_derive_done():
            return self.at("env/terminated", t) | self.at("env/truncated", t)
        raise unknown_variable(name, self._variables)

    # Whole variables

    @overload
    def __getitem__(self, name: str) -> Tensor: ...
    @overload
    def __getitem__(self, name: tuple[str, ...] | list[str]) -> tuple[Tensor, ...]: ...
    def __getitem__(self, name: str | tuple[str, ...] | list[str]) -> Tensor | tuple[Tensor, ...]:
        """Variable `name` as `[T, B, *e]`; several names give a tuple in that order."""
        if isinstance(name, tuple | list):
            return tuple(self[each] for each in name)
        storage = self._variables.get(name)
        if storage is not None:
            return storage.full()
        if name == DONE and self._can_derive_done():
            return self["env/terminated"] | self["env/truncated"]
        raise unknown_variable(name, self._variables)

    def __setitem__(self, name: str, value: Tensor) -> None:
        """The variable becomes `value` `[T, B, *e]`, whatever it was. Preallocated memory of that shape is kept and
        overwritten; shared memory is never replaced."""
        if not isinstance(value, Tensor):
            raise TypeError(f"variable {name!r} takes a torch.Tensor [T, B, ...], found {type(value).__name__}")
        if value.dim() < 2:
            raise ValueError(f"variable {name!r} takes a tensor [T, B, ...], found shape {list(value.shape)}")
        storage = self._variables.get(check_name(name))
        if isinstance(storage, Preallocated):
            if storage.accepts(value):
                storage.copy_(value)
                return
            if self._is_fixed:
                raise ValueError(
                    f"variable {name!r} is {storage.kind} memory {list(storage.tensor.shape)} {storage.dtype} on "
                    f"{storage.device}, found {list(value.shape)} {value.dtype} on {value.device}; both must agree"
                )
        elif isinstance(storage, Columns):
            storage.put(0, value)
        elif storage is None:
            self._check_open(f"add variable {name!r} to")
        self._variables[name] = FreeRows(name, value, self.strict)

    def __contains__(self, name: object) -> bool:
        """Whether `name` can be read."""
        return name in self._variables or (name == DONE and self._can_derive_done())

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def keys(self) -> list[str]:
        """Names of the stored variables, in order of their first write."""
        return list(self._variables)

    def clear(self, name: str | None = None) -> None:
        """Forget all variables, or one."""
        self._check_open("clear")
        if name is None:
            self._variables.clear()
        elif name in self._variables:
            del self._variables[name]
        else:
            raise unknown_variable(name, self._variables)

    def remove(self, name: str) -> None:
        """Forget one variable."""
        self.clear(name)

    # Sizes

    @property
    def T(self) -> int:  # noqa: N802
        """Number of steps: the common number of rows, not counting the extra row of observations; 0 if empty."""
        rows = {name: len(storage) for name, storage in self._variables.items()}
        steps = common_size({n: r for n, r in rows.items() if not self.may_have_extra_row(n)} or rows, "rows")
        for name, found in rows.items():
            if found not in (steps, steps + 1):
                raise ValueError(
                    f"variable {name!r} has {found} rows for {steps} steps; it takes {steps} or {steps + 1}"
                )
        return steps

    @property
    def B(self) -> int:  # noqa: N802
        """Number of columns (environments or samples), common to all variables; 0 if empty."""
        return common_size({name: storage.row_shape[0] for name, storage in self._variables.items()}, "columns")

    @property
    def nbytes(self) -> int:
        """Memory of all variables in bytes."""
        return sum(len(s) * s.row_shape.numel() * s.dtype.itemsize for s in self._variables.values())

    @property
    def is_shared(self) -> bool:
        """Whether every variable lies in memory that other processes see."""
        stored = self._variables.values()
        return bool(stored) and all(isinstance(s, Preallocated) and s.is_shared for s in stored)

    def kind(self, name: str) -> str:
        """Storage of a variable: growing, packed, dense or shared."""
        return self._stored(name).kind

    def rows(self, name: str) -> int:
        """Number of rows of one variable, its extra row included."""
        return len(self._stored(name))

    def addresses(self) -> tuple[int, ...]:
        """Where in memory every variable lies: a recording of work on them holds as long as these stay."""
        return tuple(self[name].data_ptr() for name in self)

    def may_have_extra_row(self, name: str) -> bool:
        """Whether `name` is an observation, or was declared in `extra_row`."""
        return name.startswith(_transitions.OBSERVATION) or name in self.extra_row

    # Time

    def slice(self, start: int, stop: int, *, equal: bool = True) -> Workspace:
        """Steps `start <= t < stop`, cut at `T`; an observation keeps its extra row, so the result is again step rows.

        Storage is packed and shows the rows of this workspace without copying; a shared workspace gives a shared
        one that writes through. `equal=False` allows variables of different length and cuts each by its own rows.
        """
        check_span(start, stop)
        steps = self.T if equal else None
        cut: dict[str, Storage] = {}
        for name, storage in self._variables.items():
            end = stop if steps is None or len(storage) == steps else min(stop, steps) + 1
            if isinstance(storage, Preallocated) and storage.is_shared:
                cut[name] = Preallocated(name, storage.tensor[start:end])
            else:
                cut[name] = FreeRows(name, storage.full()[start:end], self.strict)
        return self._with(cut)

    def span(self, name: str, start: int, stop: int) -> Tensor:
        """Rows `start..stop-1` of one variable, as many of them as exist (possibly none)."""
        check_span(start, stop)
        return self[name][start:stop]

    def copy_time(self, source: int, target: int, n: int, names: Sequence[str] | None = None) -> None:
        """Copy rows `source..source+n-1` to `target..target+n-1`, reading all of them first, so overlap is safe."""
        if n < 0 or source < 0 or target < 0:
            raise IndexError(f"cannot copy {n} rows from {source} to {target}; all three must be >= 0")
        if n == 0:
            return
        snapshots: dict[str, list[Tensor]] = {}
        for name in self.keys() if names is None else names:
            storage = self._stored(name)
            rows = [storage.row(t) for t in range(source, source + n)]
            storage.check_room(target, n)  # before anything is written
            snapshots[name] = [row.clone() for row in rows] if isinstance(storage, Preallocated) else rows
        for name, rows in snapshots.items():
            for offset, row in enumerate(rows):
                self.put(name, target + offset, row)

    def detach_(self) -> Workspace:
        """Detach every stored tensor; values stay."""
        for storage in self._variables.values():
            storage.detach_()
        return self

    # Columns

    def select(self, index: Tensor | Sequence[int] | Sequence[bool]) -> Workspace:
        """Column j of the result is column `index[j]`; a bool mask `[B]` keeps the true ones. Never shared."""
        columns = column_index(index, self.B)
        return self._packed(
            {name: s.full().index_select(1, columns.to(s.device)) for name, s in self._variables.items()}
        )

    def minibatches(self, size: int, generator: torch.Generator, drop_last: bool = False) -> Iterator[Workspace]:
        """Cut one random permutation of the columns into pieces of `size`: every column exactly once."""
        if size < 1:
            raise ValueError(f"the minibatch size is {size}; use a positive number of columns")
        order = torch.randperm(self.B, generator=generator, device=generator.device)
        for start in range(0, len(order), size):
            if not drop_last or start + size <= len(order):
                yield self.select(order[start : start + size])

    @staticmethod
    def cat(workspaces: Sequence[Workspace]) -> Workspace:
        """Columns side by side in list order; variables, rows, event shapes and dtypes must agree."""
        if not workspaces:
            raise ValueError("no workspaces to put side by side; pass at least one")
        first = workspaces[0]
        for number, other in enumerate(workspaces):
            difference = set(first) ^ set(other)
            if difference:
                raise ValueError(f"workspaces 0 and {number} differ in variables {sorted(difference)}; both need them")
            for name in first:
                here, there = first._variables[name].column_signature, other._variables[name].column_signature
                if here != there:
                    raise ValueError(f"variable {name!r} is {here} in workspace 0 but {there} in workspace {number}")
        return first._packed({name: torch.cat([ws[name] for ws in workspaces], dim=1) for name in first})

    # Steps as samples

    def following(self, name: str) -> Tensor:
        """Row t+1 for every step t, `[T, B, *e]`; where an episode ended, the observation really reached."""
        return _transitions.following(self, name)

    @overload
    def transitions(self, *, pairs: Literal[False] = False) -> dict[str, Tensor]: ...
    @overload
    def transitions(
        self, *, pairs: Literal[True], keep_all: bool = ..., filter_name: str = ..., with_index: bool = ...
    ) -> Workspace: ...
    def transitions(self, *, pairs: bool = False, **options: Any) -> dict[str, Tensor] | Workspace:
        """Named fields `[N, *e]`, t-major: `obs/<group>`, `action`, `reward`, `terminated`, `truncated`,
        `next_obs/<group>` and every other step variable under its own name. A plain dict, because samples have no time
        axis. Rows with `env/valid` false are dropped, so N = T * B only without that variable.

        `pairs=True` is for frame streams and gives a Workspace `[2, N, *e]` of rows t and t+1; see `core.transitions`.
        """
        if pairs:
            return self._packed(_transitions.pairs(self, **options))
        if options:
            raise TypeError(f"options {sorted(options)} belong to transitions(pairs=True)")
        return _transitions.fields(self)

    # Memory and devices

    def to(self, device: torch.device | str) -> Workspace:
        """A new workspace on `device`; shared memory stays the same shared memory on the CPU."""
        target = torch.device(device)
        return self._with({name: storage.to(target) for name, storage in self._variables.items()})

    def contiguous(self) -> Workspace:
        """Every variable packed; what is packed already is not cloned."""
        return self._packed(
            {
                name: storage.full().clone() if isinstance(storage, Preallocated) else storage.full()
                for name, storage in self._variables.items()
            }
        )

    def share_memory(self, repeat: int = 1, rows: int | None = None) -> Workspace:
        """A copy in shared CPU memory, detached, with the columns repeated; `rows` gives zeros with `T = rows`.

        The copy takes no new variable and no row beyond its end. Sending it to a process of `torch.multiprocessing`
        sends handles, not data.
        """
        if repeat < 1 or (rows is not None and rows < 0):
            raise ValueError(f"repeat is {repeat} and rows {rows}; use repeat >= 1 and rows >= 0, or None to keep them")
        steps = 0 if rows is None else self.T
        return self._with(
            {
                name: Preallocated.shared(storage, repeat, None if rows is None else rows + len(storage) - steps)
                for name, storage in self._variables.items()
            }
        )

    def batch_view(self, lo: int, hi: int) -> Workspace:
        """Columns `lo <= b < hi` as a workspace of their own: reading works for every kind, writing goes through to
        dense and shared variables and is refused for the others."""
        if not 0 <= lo < hi <= self.B:
            raise IndexError(f"columns {lo}..{hi - 1} are not all in 0..{self.B - 1}")
        columns: dict[str, Storage] = {
            name: Preallocated(name, s.tensor[:, lo:hi]) if isinstance(s, Preallocated) else Columns(s, lo, hi)
            for name, s in self._variables.items()
        }
        view = self._with(columns)
        view._is_view = True
        return view

    def __str__(self) -> str:
        width = max((len(name) for name in self), default=0)
        return "\n".join(
            f"{name:<{width}}  {[len(s), *s.row_shape]}  {s.dtype}  {s.device}  {s.kind}"
            for name, s in self._variables.items()
        )

    def __repr__(self) -> str:
        return f"Workspace({', '.join(f'{name}={[len(s), *s.row_shape]}' for name, s in self._variables.items())})"

    # Private

    @property
    def _is_fixed(self) -> bool:
        return self._is_view or self.is_shared

    def _check_open(self, action: str) -> None:
        if self._is_fixed:
            kind = "a batch view" if self._is_view else "a shared workspace"
            raise RuntimeError(
                f"cannot {action} {kind}: its variables are fixed; do it before share_memory or batch_view"
            )

    def _create(self, name: str, t: int, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"variable {name!r} takes torch.Tensor rows, found {type(value).__name__}")
        if value.dim() < 1:
            raise ValueError(f"variable {name!r} takes rows [B, ...], found a tensor without axes")
        self._check_open(f"add variable {name!r} to")
        storage = FreeRows.growing(check_name(name), value, self.strict)
        storage.put(t, value)
        self._variables[name] = storage

    def _can_derive_done(self) -> bool:
        return "env/terminated" in self._variables and "env/truncated" in self._variables

    def _stored(self, name: str) -> Storage:
        storage = self._variables.get(name)
        if storage is None:
            raise unknown_variable(name, self._variables)
        return storage

    def _with(self, variables: dict[str, Storage]) -> Workspace:
        ws = Workspace(strict=self.strict, extra_row=self.extra_row)
        ws._variables = variables
        return ws

    def _packed(self, tensors: Mapping[str, Tensor]) -> Workspace:
        return self._with({name: FreeRows(name, tensor, self.strict) for name, tensor in tensors.items()})
