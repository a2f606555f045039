"""A stopwatch that answers: seconds for the program, words for the reader."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Elapsed(NamedTuple):
    """A duration as a number and as a text like `1h 2mn 3s 4ms`."""

    seconds: float
    text: str


class Chrono:
    """Runs from its construction; `stop` says how long and lets it run on.

    seconds, text = chrono.stop()
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.restart()

    def restart(self) -> None:
        """Count from now."""
        self._started = self._clock()

    def stop(self) -> Elapsed:
        """The time since construction or the last `restart`."""
        seconds = self._clock() - self._started
        return Elapsed(seconds, duration_text(seconds))


def duration_text(seconds: float) -> str:
    """`1h 2mn 3s 4ms`: whole milliseconds, leading parts that are zero left out."""
    if seconds < 0:
        raise ValueError(f"a duration is {seconds} s; it must not be negative")
    whole, milliseconds = divmod(round(seconds * 1000), 1000)
    minutes, whole = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "mn"), (whole, "s"), (milliseconds, "ms")]
    while len(parts) > 1 and parts[0][0] == 0:
        parts.pop(0)
    return " ".join(f"{count}{unit}" for count, unit in parts)
