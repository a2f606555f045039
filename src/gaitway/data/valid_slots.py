"""Which slots of a replay are experience, for environments that spend a row of their own on a reset."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gaitway.data.ring import lazy_zeros


class ValidSlots:
    """The slots of the valid rows in the order they came, in a ring, so that a uniform draw is one look-up.

    Holds the last `rows` time rows of at most `streams` slots each.
    """

    def __init__(self, rows: int, streams: int, device: torch.device | str = "cpu") -> None:
        self.slots = lazy_zeros((rows * streams,), torch.int64, device)
        self._before = np.zeros(rows + 1, dtype=np.int64)  # at row % (rows + 1): valid slots before that time row

    def append(self, row: int, valid: Tensor, slots: Tensor) -> None:
        """Time rows `row, row + 1, ...`: `valid` bool [T, B] on the CPU, `slots` int64 [T, B], T at most `rows`."""
        totals = valid.sum(1).cumsum(0).numpy()
        before = int(self._before[row % len(self._before)])
        self._before[(row + 1 + np.arange(len(totals))) % len(self._before)] = before + totals
        places = torch.arange(before, before + int(totals[-1])) % len(self.slots)
        self.slots[places.to(self.slots.device)] = slots[valid].to(self.slots.device)

    def count(self, first: int, stop: int) -> int:
        """How many slots of time rows `first <= row < stop` are valid."""
        return int(self._before[stop % len(self._before)] - self._before[first % len(self._before)])

    def look_up(self, first: int, number: Tensor) -> Tensor:
        """The slots with these numbers, counted from the first valid one of time row `first`."""
        start = int(self._before[first % len(self._before)])
        places = (number + start).remainder_(len(self.slots))
        return self.slots.index_select(0, places.flatten()).view(number.shape)

    def to(self, device: torch.device | str) -> None:
        with torch.inference_mode(False):
            self.slots = self.slots.to(device)
