"""Minibatches of a rollout: every sample exactly once per epoch, in a new order each time.

Rows are gathered once per epoch into buffers that keep their place in memory, then cut into contiguous pieces: one
gather for all float32 fields, and shapes and addresses that never change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor


def check_minibatches(rows: int, minibatches: int, what: str, key: str = "algorithm.minibatches") -> None:
    """Refuse a number of minibatches that does not divide `rows`, naming the nearest one that does."""
    if 1 <= minibatches <= rows and rows % minibatches == 0:
        return
    divisors = [d for d in range(1, rows + 1) if rows % d == 0]
    nearest = min(divisors, key=lambda d: (abs(d - minibatches), d))
    raise ValueError(f"{key} is {minibatches}, which does not divide the {rows} {what}; use {key}={nearest}")


class Minibatches:
    """Cuts fields `[T, B, ...]` into minibatches.

    `over="samples"` shuffles all `T * B` rows and yields `[T * B / M, ...]`; `over="columns"` shuffles the `B`
    environments and yields whole sequences `[T, B / M, ...]`, which is what memories need. Fields named in `columns`
    are `[B, ...]` (an initial state, say) and follow their environment.

    `pack` takes a rollout; `shuffle`, called once in each of the epochs, reorders all fields with a single gather.
    `fill` does both.
    """

    def __init__(self, minibatches: int, over: str = "samples") -> None:
        if over not in ("samples", "columns"):
            raise ValueError(f"over is {over!r}; use samples or columns")
        self.minibatches, self.over = minibatches, over
        self.batches: list[dict[str, Tensor]] = []
        """The minibatches of the last shuffle; as long as shapes stay the same, so do the addresses."""
        self.version = 0
        """Grows whenever the minibatches were made anew, elsewhere in memory."""
        self._layout: dict[str, tuple[object, ...]] = {}
        self._rows = 0
        self._packed = _PackedRows({}, ())
        self._apart: dict[str, tuple[Tensor, Tensor, int]] = {}

    def pack(self, fields: Mapping[str, Tensor], columns: tuple[str, ...] = ()) -> bool:
        """Take `fields`; returns whether the minibatches had to be made anew, elsewhere in memory.

        Fields of other types than float32 are not copied and must stay as they are until the last `shuffle`.
        """
        layout: dict[str, tuple[object, ...]] = {
            name: (field.shape, field.dtype, field.device, name in columns) for name, field in fields.items()
        }
        moved = layout != self._layout
        if moved:
            steps, batch = next(field.shape[:2] for name, field in fields.items() if name not in columns)
            self._rows = steps * batch if self.over == "samples" else batch
            what = "samples of a rollout" if self.over == "samples" else "environments"
            check_minibatches(self._rows, self.minibatches, what)
            self._allocate(fields, columns, (steps * batch,) if self.over == "samples" else (steps, batch))
            self._layout = layout
            self.version += 1
        self._packed.take(fields)
        for name, (_, gathered, dim) in self._apart.items():
            field = fields[name]
            self._apart[name] = (field.flatten(0, 1) if self.over == "samples" else field, gathered, dim)
        return moved

    def shuffle(self, generator: torch.Generator) -> None:
        """Fill `batches` in a new order."""
        order = torch.randperm(self._rows, generator=generator, device=generator.device)
        self._packed.gather(order, 0 if self.over == "samples" else 1)
        for source, gathered, dim in self._apart.values():
            torch.index_select(source, dim, order.to(source.device), out=gathered)

    def fill(self, fields: Mapping[str, Tensor], generator: torch.Generator, columns: tuple[str, ...] = ()) -> bool:
        """`pack` and `shuffle`."""
        moved = self.pack(fields, columns)
        self.shuffle(generator)
        return moved

    def epoch(
        self, fields: Mapping[str, Tensor], generator: torch.Generator, columns: tuple[str, ...] = ()
    ) -> Iterator[dict[str, Tensor]]:
        """The minibatches of one epoch, in a new random order."""
        self.fill(fields, generator, columns)
        yield from self.batches

    def _allocate(self, fields: Mapping[str, Tensor], columns: tuple[str, ...], leading: tuple[int, ...]) -> None:
        floats = {n: f for n, f in fields.items() if n not in columns and f.dtype is torch.float32 and f.numel()}
        self._packed = _PackedRows(floats, leading)
        self._apart = {}
        for name in fields.keys() - floats.keys():
            source = fields[name].flatten(0, 1) if self.over == "samples" else fields[name]
            gathered = torch.empty_like(source, memory_format=torch.contiguous_format)
            self._apart[name] = (source, gathered, 1 if self.over == "columns" and name not in columns else 0)
        found = self._packed.results | {name: gathered for name, (_, gathered, _) in self._apart.items()}
        size = self._rows // self.minibatches
        self.batches = [
            {
                name: found[name][:, start : start + size]
                if self.over == "columns" and name not in columns
                else found[name][start : start + size]
                for name in fields
            }
            for start in range(0, self._rows, size)
        ]


class _PackedRows:
    """float32 fields `[T, B, *e]` side by side in one matrix `[*leading, R]`, gathered at once.

    Every field begins at a multiple of 16 bytes, which matrix products like. Fields of one number per row stand at the
    end and are copied out of the gathered matrix, so that each lies in one piece.
    """

    def __init__(self, fields: Mapping[str, Tensor], leading: tuple[int, ...]) -> None:
        wide = {name: field.shape[2:] for name, field in fields.items() if field.ndim > 2}
        thin = [name for name, field in fields.items() if field.ndim == 2]
        starts, width = {}, 0
        for name, shape in wide.items():
            starts[name] = width
            width += _rounded_up(shape.numel())
        self._thin = slice(width, width + len(thin))
        width = _rounded_up(width + len(thin))
        device = next(iter(fields.values())).device if fields else None
        self._source = torch.zeros(*leading, width, device=device)
        self._gathered = torch.zeros_like(self._source)
        self._planes = torch.zeros(len(thin), *leading, device=device)

        def views(matrix: Tensor) -> dict[str, Tensor]:
            return {
                name: matrix[..., starts[name] : starts[name] + shape.numel()].unflatten(-1, shape)
                for name, shape in wide.items()
            }

        self.results = views(self._gathered) | dict(zip(thin, self._planes, strict=True))
        """The fields as they come out of `gather`."""
        self._places: dict[str, Tensor] = {}
        if fields:
            source = self._source.view(*next(iter(fields.values())).shape[:2], width)
            self._places = views(source) | dict(zip(thin, source[..., self._thin].unbind(-1), strict=True))

    def take(self, fields: Mapping[str, Tensor]) -> None:
        for name, place in self._places.items():
            place.copy_(fields[name])

    def gather(self, order: Tensor, dim: int) -> None:
        if self._places:
            torch.index_select(self._source, dim, order.to(self._source.device), out=self._gathered)
            self._planes.copy_(self._gathered[..., self._thin].movedim(-1, 0))


def _rounded_up(numbers: int) -> int:
    """To a multiple of four float32, 16 bytes."""
    return -(-numbers // 4) * 4
