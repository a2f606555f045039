"""Signals that end a run kindly: the iteration under way finishes, a checkpoint is written, the exit code tells why."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

EXIT_REQUEUE = 75
"""Exit code after SIGTERM or SIGUSR1: not finished, resume me (EX_TEMPFAIL of sysexits.h)."""
EXIT_INTERRUPT = 130
"""Exit code after Ctrl-C, as shells use it."""
EXIT_CODES = {"SIGTERM": EXIT_REQUEUE, "SIGUSR1": EXIT_REQUEUE, "SIGINT": EXIT_INTERRUPT}
"""By the name of the signal that ended a run."""


class GracefulStop:
    """Within this context SIGTERM, SIGUSR1 and a first Ctrl-C set `requested`; a second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self.requested: str | None = None
        self._previous: dict[int, Any] = {}

    @property
    def exit_code(self) -> int:
        return 0 if self.requested is None else EXIT_CODES[self.requested]

    def __enter__(self) -> GracefulStop:
        if threading.current_thread() is threading.main_thread():
            for name in EXIT_CODES:
                number = signal.Signals[name]
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.requested == "SIGINT":
            raise KeyboardInterrupt
        self.requested = signal.Signals(number).name
        again = "; Ctrl-C again stops at once" if number == signal.SIGINT else ""
        os.write(2, f"\n{self.requested}: finishing this iteration, then saving{again}\n".encode())
