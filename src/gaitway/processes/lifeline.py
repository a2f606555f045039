"""What a worker process owes its parent: it leaves signals to it, and ends with it.

Ctrl-C and the signals of a cluster reach every process of a job. The parent alone decides what they mean: it finishes,
saves and ends its workers, which is why they must still be there.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing import util
from typing import Any

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP") if hasattr(signal, name))
"""What workers leave to their parent."""
KILLED = -getattr(signal, "SIGKILL", 9)
"""Exit code of a process that was killed; Windows has no such signal."""
PR_SET_PDEATHSIG = 1


@contextlib.contextmanager
def without_signals() -> Iterator[None]:
    """A process started inside sees none of the signals before it calls `leave_signals_to_parent`; here they come a
    moment later."""
    if not hasattr(signal, "pthread_sigmask"):  # not on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_signals_to_parent() -> None:
    """In the worker, first of all. Handlers that do nothing, because programs it starts inherit what is ignored."""
    for number in SIGNALS:
        signal.signal(number, _do_nothing)
        signal.siginterrupt(number, False)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def tie(start_method: str) -> int | None:
    """What the worker has to know to end with this process: see `end_with_parent`."""
    if start_method == "forkserver":
        return 0  # the server's child, which ends when the server does, which ends with this process
    # the system means the thread that has started the worker, and others than the main one may end earlier
    return os.getpid() if threading.current_thread() is threading.main_thread() else None


def end_with_parent(parent: int | None) -> None:
    """In the worker: the system kills it when its parent ends, whatever it is doing. Linux alone can do that.

    `parent` is the process id, 0 where that is not known, None not to be tied.
    """
    if parent is None or not sys.platform.startswith("linux"):
        return
    # a C library without prctl: the pipe tells of the parent's end
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent and os.getppid() != parent:
        os._exit(1)  # it ended before the system was told


def end_before_exit(owner: object, end: Any) -> None:
    """Call `end` before Python, when it exits, waits for daemons that it has sent a SIGTERM, which they ignore."""
    util.Finalize(owner, end, exitpriority=100)


def how_it_ended(code: int | None) -> str:
    """What the exit code of a process says, in words."""
    if code is None:
        return "closed its pipe"
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was killed ({name})" if code == KILLED else f"died of {name}"


def _do_nothing(number: int, frame: Any) -> None:
    """The parent decides."""
