"""Minibatches of a rollout: every sample exactly once per epoch, in a new order each time.

Rows are gathered once per epoch into buffers that keep their place in memory, then cut into contiguous pieces: one
gather per field and epoch, and shapes and addresses that never change.
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
    """

    def __init__(self, minibatches: int, over: str = "samples") -> None:
        if over not in ("samples", "columns"):
            raise ValueError(f"over is {over!r}; use samples or columns")
        self.minibatches, self.over = minibatches, over
        self._buffers: dict[str, Tensor] = {}

    def epoch(
        self, fields: Mapping[str, Tensor], generator: torch.Generator, columns: tuple[str, ...] = ()
    ) -> Iterator[dict[str, Tensor]]:
        steps, batch = next(field.shape[:2] for name, field in fields.items() if name not in columns)
        rows = steps * batch if self.over == "samples" else batch
        check_minibatches(rows, self.minibatches, "samples of a rollout" if self.over == "samples" else "environments")
        order = torch.randperm(rows, generator=generator, device=generator.device)
        gathered = {name: self._gather(name, field, order, name in columns) for name, field in fields.items()}
        size = rows // self.minibatches
        for start in range(0, rows, size):
            yield {
                name: value[:, start : start + size]
                if self.over == "columns" and name not in columns
                else value[start : start + size]
                for name, value in gathered.items()
            }

    def _gather(self, name: str, field: Tensor, order: Tensor, is_column: bool) -> Tensor:
        dim = 1 if self.over == "columns" and not is_column else 0
        source = field.flatten(0, 1) if self.over == "samples" else field
        buffer = self._buffers.get(name)
        if buffer is None or buffer.shape != source.shape or buffer.dtype != source.dtype:
            buffer = self._buffers[name] = torch.empty_like(source, memory_format=torch.contiguous_format)
        return torch.index_select(source, dim, order.to(source.device), out=buffer)
