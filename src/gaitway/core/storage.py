"""How a Workspace keeps one variable: free rows that carry gradients, or preallocated memory written in place.

| kind    | class        | grows | written in place | gradients |
|---------|--------------|-------|------------------|-----------|
| growing | `FreeRows`   | yes   | never            | kept, row by row |
| packed  | `FreeRows`   | yes, by becoming growing | never | kept |
| dense   | `Preallocated` | no  | always           | none, values are detached |
| shared  | `Preallocated` | no  | always           | none, values are detached |

The kinds differ in cost, never in results. `Columns` shows some columns of free rows, for reading only.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

REMEMBERED = 2
"""How many tensors a copier remembers: environments take turns with two sets of results."""


@dataclass(frozen=True)
class Variable:
    """What `Workspace.dense` allocates for one name: zeros `[rows, batch, *shape]`."""

    rows: int
    batch: int
    shape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32


class Storage:
    """One variable `[rows, B, *e]`. `name` serves the error messages only."""

    name: str
    kind: str
    row_shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    def __len__(self) -> int:
        raise TypeError(f"{type(self).__name__} does not say how many rows it has")

    def row(self, t: int) -> Tensor:
        """Row t, `[B, *e]`."""
        raise TypeError(f"{type(self).__name__} has no rows to read")

    def full(self) -> Tensor:
        """All rows, `[rows, B, *e]`."""
        raise TypeError(f"{type(self).__name__} cannot be read as a whole")

    def put(self, t: int, value: Tensor) -> None:
        """Replace row t by `value` `[B, *e]`."""
        raise TypeError(f"{type(self).__name__} cannot be written")

    def check_room(self, t: int, n: int) -> None:
        """Refuse rows `t..t+n-1` if not all of them can be written one after the other."""

    def to(self, device: torch.device) -> Storage:
        raise TypeError(f"{type(self).__name__} cannot be moved")

    def detach_(self) -> None:
        """Drop the graph of every stored tensor."""

    @property
    def column_signature(self) -> str:
        """What a variable must have in common with another to stand beside it."""
        event = "".join(f", {size}" for size in self.row_shape[1:])
        return f"[{len(self)}, B{event}] {self.dtype} on {self.device}"

    def differs(self, value: Any) -> bool:
        """Whether `value` cannot be a row of this variable."""
        return not (
            isinstance(value, Tensor)
            and value.shape == self.row_shape
            and value.dtype is self.dtype
            and value.device == self.device
        )

    def refuse(self, value: Any) -> Exception:
        """The exception that says in what `value` differs from the rows of this variable."""
        if not isinstance(value, Tensor):
            return TypeError(
                f"variable {self.name!r} takes torch.Tensor rows, found {type(value).__name__}; "
                "convert it with torch.as_tensor(value)"
            )
        expected = f"{list(self.row_shape)} {self.dtype} on {self.device}"
        found = f"{list(value.shape)} {value.dtype} on {value.device}"
        if value.shape != self.row_shape:
            fix = "rows are [B, *event] and the first write fixes them"
        elif value.dtype is not self.dtype:
            fix = f"cast the value with .to({self.dtype})"
        else:
            fix = f"move the value with .to({str(self.device)!r})"
        return ValueError(f"variable {self.name!r} has rows {expected}, found {found}; {fix}")

    def refuse_time(self, t: Any) -> Exception:
        """The exception that says why `t` is no row of this variable."""
        try:
            index = operator.index(t)
        except TypeError:
            return TypeError(f"time of variable {self.name!r} must be an integer, found {t!r}")
        end = len(self)
        hint = "time does not count from the end" if index < 0 else f"the variable is {self.kind} and has {end} rows"
        return IndexError(f"row {index} of variable {self.name!r} is outside 0..{end - 1}; {hint}")


class FreeRows(Storage):
    """Growing and packed storage: either a list of rows, or one tensor, or both when the list has been read as a whole.

    Nothing is ever written in place, so tensors handed in stay as they were and gradients flow through every row.
    """

    def __init__(self, name: str, full: Tensor, strict: bool = False) -> None:
        """Packed from `full` `[rows, B, *e]`; `strict` refuses a row that would leave a gap."""
        self.name = name
        self.row_shape = full.shape[1:]
        self.dtype = full.dtype
        self.device = full.device
        self.strict = strict
        self._rows: list[Tensor] | None = None
        self._full: Tensor | None = full

    @classmethod
    def growing(cls, name: str, like: Tensor, strict: bool = False) -> FreeRows:
        """No row yet; rows will have the shape, dtype and device of `like` `[B, *e]`."""
        storage = cls(name, like.detach()[None][:0], strict)
        storage._split()
        return storage

    @property
    def kind(self) -> str:  # type: ignore[override]
        return "packed" if self._rows is None else "growing"

    def __len__(self) -> int:
        return len(self.full() if self._rows is None else self._rows)

    def row(self, t: int) -> Tensor:
        try:
            index = operator.index(t)
            if index >= 0:
                return self.full()[index] if self._rows is None else self._rows[index]
        except (IndexError, TypeError):
            pass
        raise self.refuse_time(t)

    def full(self) -> Tensor:
        if self._full is None or self._is_stale(self._full):
            # The stack is kept until the next write: reading a growing variable twice costs one stack.
            self._full = torch.stack(self._split())
        return self._full

    def _is_stale(self, full: Tensor) -> bool:
        """A stack made without gradients (no_grad, inference_mode) must not serve a reader who needs them."""
        if not self._rows or full.requires_grad:
            return False
        if full.is_inference():
            return not torch.is_inference_mode_enabled()
        return torch.is_grad_enabled() and any(row.requires_grad for row in self._rows)

    def _split(self) -> list[Tensor]:
        if self._rows is None:
            self._rows = list(self.full().unbind(0))
        return self._rows

    def put(self, t: int, value: Tensor) -> None:
        if self.differs(value):
            raise self.refuse(value)
        try:
            index = operator.index(t)
        except TypeError:
            raise self.refuse_time(t) from None
        if index < 0:
            raise self.refuse_time(t)
        if self.strict:
            self.check_room(index, 1)
        rows = self._split()
        self._full = None
        while len(rows) < index:
            rows.append(torch.zeros_like(value))
        if index == len(rows):
            rows.append(value)
        else:
            rows[index] = value

    def check_room(self, t: int, n: int) -> None:
        if self.strict and t > len(self):
            raise IndexError(
                f"row {t} of variable {self.name!r} would leave rows {len(self)}..{t - 1} unwritten; write "
                "them first, or use Workspace(strict=False) to have them filled with zeros"
            )

    def to(self, device: torch.device) -> FreeRows:
        if not self._rows:
            return FreeRows(self.name, self.full().to(device), self.strict)
        rows = [row.to(device) for row in self._rows]
        moved = FreeRows.growing(self.name, rows[0], self.strict)
        moved._rows, moved._full = rows, None
        return moved

    def detach_(self) -> None:
        if not self._rows:
            self._full = self.full().detach()
        else:
            self._rows = [row.detach() if row.requires_grad else row for row in self._rows]
            self._full = None


class Preallocated(Storage):
    """Dense and shared storage: one tensor for the life of the variable, written in place, never part of a graph."""

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.name = name
        self.tensor = tensor
        self.row_shape = tensor.shape[1:]
        self.dtype = tensor.dtype
        self.device = tensor.device
        # CUDA tensors always call themselves shared; only CPU memory is what processes see without a copy.
        self.is_shared = tensor.device.type == "cpu" and tensor.is_shared()
        self.kind = "shared" if self.is_shared else "dense"
        self._device_index = tensor.get_device()
        # Row views are made once: selecting a row costs as much as copying into it. Outside inference mode, because the
        # rows are read later in a graph.
        with torch.inference_mode(False):
            self._rows = [tensor[t] for t in range(len(tensor))]

    @classmethod
    def zeros(cls, name: str, variable: Variable, device: torch.device | str) -> Preallocated:
        with torch.inference_mode(False):
            size = (variable.rows, variable.batch, *variable.shape)
            return cls(name, torch.zeros(size, dtype=variable.dtype, device=device))

    @classmethod
    def shared(cls, source: Storage, repeat: int, rows: int | None) -> Preallocated:
        """A copy of `source` in shared CPU memory, columns repeated; with `rows`, that many rows of zeros instead."""
        batch, *event = source.row_shape
        with torch.inference_mode(False):
            if rows is None:
                tensor = source.full().detach().cpu().repeat(1, repeat, *(1 for _ in event))
            else:
                tensor = torch.zeros(rows, batch * repeat, *event, dtype=source.dtype)
            return cls(source.name, tensor.share_memory_())

    def __len__(self) -> int:
        return len(self._rows)

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "tensor": self.tensor}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["name"], state["tensor"])  # type: ignore[misc]

    def row(self, t: int) -> Tensor:
        try:
            if t >= 0:
                return self._rows[t].detach()  # an alias: requires_grad_() on it leaves the storage alone
        except (IndexError, TypeError):
            pass
        raise self.refuse_time(t)

    def full(self) -> Tensor:
        return self.tensor.detach()

    def put(self, t: int, value: Tensor) -> None:
        self.room(t, value).copy_(value.detach() if value.requires_grad else value)

    def room(self, t: int, value: Tensor) -> Tensor:
        """Row t, into which `value` fits."""
        # `differs` spelt out, cheapest form: this runs for every variable of every step.
        if value.__class__ is not Tensor and not isinstance(value, Tensor):
            raise self.refuse(value)
        if value.shape != self.row_shape or value.dtype is not self.dtype or value.get_device() != self._device_index:
            raise self.refuse(value)
        try:
            return self._rows[t if t >= 0 else len(self._rows)]
        except (IndexError, TypeError):
            raise self.refuse_time(t) from None

    def copier(self) -> Callable[[int, Tensor], None]:
        """`put` for runs over many rows."""
        # NumPy has no such numbers
        return self.put if self.device.type != "cpu" or self.dtype is torch.bfloat16 else _Copier(self)

    def check_room(self, t: int, n: int) -> None:
        if t + n > len(self._rows):
            raise self.refuse_time(t + n - 1)

    def accepts(self, value: Tensor) -> bool:
        """Whether `value` `[rows, B, *e]` fits the memory as it is."""
        return value.shape == self.tensor.shape and value.dtype is self.dtype and value.device == self.device

    def copy_(self, value: Tensor) -> None:
        """Overwrite all rows with `value`, which `accepts` has approved."""
        self.tensor.copy_(value.detach())

    def to(self, device: torch.device) -> Storage:
        if self.is_shared:
            return self if device.type == "cpu" else FreeRows(self.name, self.tensor.to(device))
        with torch.inference_mode(False):
            return Preallocated(self.name, self.tensor.to(device, copy=True))


class _Copier:
    """Writes rows on the CPU from tensors of which the same few come again and again, with other numbers in them.

    The second time a tensor comes it has proven to fit; from then on it is copied as a NumPy array, in a third of the
    time.
    """

    def __init__(self, storage: Preallocated) -> None:
        self._put, self._rows = storage.put, storage.tensor.numpy()
        self._seen: dict[int, Tensor] = {}  # kept, because no other tensor has this id while it lives
        self._arrays: dict[int, np.ndarray] = {}

    def __call__(self, t: int, value: Tensor) -> None:
        array = self._arrays.get(id(value))
        if array is not None and 0 <= t < len(self._rows):
            self._rows[t] = array
            return
        self._put(t, value)
        if id(value) in self._seen:
            if not value.requires_grad:
                self._arrays[id(value)] = value.numpy()
        elif len(self._seen) < REMEMBERED:
            self._seen[id(value)] = value


class Together:
    """Writes one row of each of several variables on a GPU, with one launch for all of a type instead of one for each:
    a row is a few kilobytes, and starting its copy takes longer than the copy. `shifts` are added to t."""

    def __init__(self, storages: Sequence[Preallocated], shifts: Sequence[int]) -> None:
        self._places = list(zip(storages, shifts, strict=True))
        kinds: dict[torch.dtype, list[int]] = {}
        for number, storage in enumerate(storages):
            kinds.setdefault(storage.dtype, []).append(number)
        self._kinds = list(kinds.values())

    def __call__(self, t: int, values: Sequence[Tensor]) -> None:
        rows = [place.room(t + shift, value) for (place, shift), value in zip(self._places, values, strict=True)]
        found = [value.detach() if value.requires_grad else value for value in values]
        for numbers in self._kinds:
            torch._foreach_copy_([rows[number] for number in numbers], [found[number] for number in numbers])


class Columns(Storage):
    """Columns `lo <= b < hi` of free rows; follows the rows it was made from and refuses writes."""

    def __init__(self, source: Storage, lo: int, hi: int) -> None:
        self._source = source
        self._columns = slice(lo, hi)
        self.name = source.name
        self.kind = f"view of {source.kind}"
        self.row_shape = torch.Size((hi - lo, *source.row_shape[1:]))
        self.dtype = source.dtype
        self.device = source.device

    def __len__(self) -> int:
        return len(self._source)

    def row(self, t: int) -> Tensor:
        return self._source.row(t)[self._columns]

    def full(self) -> Tensor:
        return self._source.full()[:, self._columns]

    def put(self, t: int, value: Tensor) -> None:
        self.check_room(t, 1)

    def check_room(self, t: int, n: int) -> None:
        raise ValueError(
            f"columns of the {self._source.kind} variable {self.name!r} cannot be written through a view; call "
            "share_memory() or use Workspace.dense(...) before batch_view"
        )

    def to(self, device: torch.device) -> Storage:
        return FreeRows(self.name, self.full().to(device))

    def detach_(self) -> None:
        self._source.detach_()
