"""How fast a run is, how long it will take and what memory it holds, said once when that is known."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping

import torch

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

from gaitway.runners.capacity import in_words

MEASURED_S = 3.0
"""Seconds of learning that a forecast stands on."""


class Forecast:
    """Watches iterations until learning has gone on for a few seconds.

    What the first iteration with an update takes does not count: memory is made in it, programs are recorded.
    """

    def __init__(self, target: int, device: torch.device, clock: Callable[[], float] = time.perf_counter) -> None:
        self.target, self.device, self.clock = target, device, clock
        self._first: tuple[int, float] | None = None
        self._is_told = False

    def line(self, steps: int, numbers: Mapping[str, float]) -> str | None:
        """What to say after an iteration that ended at `steps`, if it is time to say it."""
        if self._is_told or steps >= self.target or not any(name.startswith("loss/") for name in numbers):
            return None
        now = self.clock()
        if self._first is None:
            self._first = steps, now
            return None
        made, seconds = steps - self._first[0], now - self._first[1]
        if seconds < MEASURED_S or made <= 0:
            return None
        self._is_told = True
        rate = made / seconds
        left = self.target - steps
        parts = [f"{rate:,.0f} steps a second: {left:,} more take {duration_in_words(left / rate)}", *self._memory()]
        return "; ".join(parts)

    def _memory(self) -> list[str]:
        """The most memory held so far, on the CPU and on a GPU."""
        held = []
        if resource is not None:
            unit = 1 if sys.platform == "darwin" else 1024
            held.append(f"memory {in_words(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)}")
        if self.device.type == "cuda":
            held.append(f"memory of {self.device} {in_words(torch.cuda.max_memory_reserved(self.device))}")
        return held


def duration_in_words(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
