"""One process at a time: a file that its holder has locked, for as long as the process lives."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO


def lock_file(path: Path) -> TextIO:
    """The open file, held; BlockingIOError if another process has it. File systems without locks go unprotected."""
    lock = open(path, "a")  # noqa: SIM115
    try:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise
    except (ImportError, OSError):  # Windows, and file systems without locks
        pass
    return lock
