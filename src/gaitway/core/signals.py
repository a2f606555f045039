"""Signals that end a run kindly: the iteration under way finishes, a checkpoint is written, the exit code tells why.

Before training there is nothing to save: a command that starts leaves at once, and undoes what it has begun.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, NoReturn

EXIT_REQUEUE = 75
"""Exit code after SIGTERM, SIGUSR1 or SIGHUP: not finished, resume me (EX_TEMPFAIL of sysexits.h)."""
EXIT_INTERRUPT = 130
"""Exit code after Ctrl-C, as shells use it."""
EXIT_CODES = {"SIGTERM": EXIT_REQUEUE, "SIGUSR1": EXIT_REQUEUE, "SIGHUP": EXIT_REQUEUE, "SIGINT": EXIT_INTERRUPT}
"""By the name of the signal that ended a run."""

_first: str | None = None

Handler = Callable[[int, FrameType | None], Any]


def first_signal() -> str | None:
    """The name of the first signal that asked this process to end, None if none has. Whoever cancels a job may send
    more of them, and a time limit sends one to save and another one later: the first says what was meant."""
    return _first


class Interrupted(KeyboardInterrupt):
    """A signal came where there is nothing to save."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.exit_code = EXIT_CODES[name]


@contextlib.contextmanager
def handling(names: Iterable[str], handler: Handler) -> Iterator[None]:
    """Within this context the signals go to `handler`; in a thread other than the main one nothing changes.

    A SIGHUP that is ignored stays so: that is what `nohup` asks for.
    """
    previous: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for name in names:
            number = getattr(signal, name, None)  # Windows has but a few
            if number is not None and not (name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN):
                previous[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, handler_before in previous.items():
            signal.signal(number, handler_before)


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """A handler that raises: what was begun is undone on the way out."""
    raise Interrupted(_noted(number))


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """A handler that ends the process: nothing was begun, and an import takes no exception well."""
    _say(f"gaitway: {said(signal.Signals(number).name)}")
    os._exit(EXIT_CODES[signal.Signals(number).name])


def said(name: str) -> str:
    """What is said about a signal."""
    return "interrupted" if name == "SIGINT" else f"stopped by {name}"


def leave_on_interrupt() -> None:
    """For a `gaitway` command whose modules are still being imported: Ctrl-C ends it without a traceback."""
    command = os.path.basename(sys.argv[0]) if sys.argv else ""
    workers = sys.modules.get("multiprocessing.process")  # they are started with the arguments of their parent
    is_worker = workers is not None and workers.parent_process() is not None
    is_main = threading.current_thread() is threading.main_thread()
    if command in ("gaitway", "-m") and is_main and not is_worker:
        signal.signal(signal.SIGINT, leave)


class GracefulStop:
    """Within this context SIGTERM, SIGUSR1, SIGHUP and a first Ctrl-C set `requested`; a second Ctrl-C interrupts at
    once."""

    def __init__(self) -> None:
        self.requested: str | None = None
        self._stack = contextlib.ExitStack()

    @property
    def exit_code(self) -> int:
        return 0 if self.requested is None else EXIT_CODES[self.requested]

    def __enter__(self) -> GracefulStop:
        self._stack.enter_context(handling(EXIT_CODES, self._handle))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.requested == "SIGINT":
            raise KeyboardInterrupt
        self.requested = _noted(number)
        again = "; Ctrl-C again stops at once" if number == signal.SIGINT else ""
        _say(f"\n{self.requested}: finishing this iteration, then saving{again}")


def _noted(number: int) -> str:
    """The name of a signal that has come."""
    global _first
    name = signal.Signals(number).name
    _first = _first or name
    return name


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal may be what has gone
        os.write(2, f"{text}\n".encode())
