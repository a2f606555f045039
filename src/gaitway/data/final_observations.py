"""Final observations of truncated episodes, for a replay that stores every other observation only once."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gaitway.data.ring import WORD, RowLayout, lazy_zeros


class FinalObservations:
    """A table of observations; entry 0 is unused, so that a row without a final observation may point at it.

    Entries are given to time rows and come back when the ring overwrites those rows. An entry never moves; the table
    doubles when all are taken, and then lies elsewhere.
    """

    def __init__(self, layout: RowLayout, size: int, device: torch.device | str = "cpu") -> None:
        self.layout = layout
        self._place(lazy_zeros((max(size, 2), layout.words), WORD, device))
        self.clear()

    def _place(self, words: Tensor) -> None:
        self.words = words
        self.columns = self.layout.views(words)

    def clear(self) -> None:
        """Take all entries back."""
        self._free = list(range(len(self.words) - 1, 0, -1))
        self._held: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        """How many entries are given away."""
        return len(self._held)

    def store(self, rows: Sequence[int], values: Mapping[str, Tensor]) -> Tensor:
        """Keep `values` `[K, *shape]`, one for each of the time rows `rows`, ascending; the entries, int64 [K]."""
        while len(self._free) < len(rows):
            self._grow()
        entries = [self._free.pop() for _ in rows]
        self._held.extend(zip(rows, entries, strict=True))
        index = torch.tensor(entries, device=self.words.device)
        for name, column in self.columns.items():
            column[index] = values[name]
        return index

    def release(self, before: int) -> None:
        """Take back the entries of time rows older than `before`."""
        while self._held and self._held[0][0] < before:
            self._free.append(self._held.popleft()[1])

    def to(self, device: torch.device | str) -> None:
        with torch.inference_mode(False):
            self._place(self.words.to(device))

    def _grow(self) -> None:
        size = len(self.words)
        words = lazy_zeros((2 * size, self.layout.words), WORD, self.words.device)
        words[:size] = self.words
        self._place(words)
        self._free.extend(range(2 * size - 1, size - 1, -1))
