"""How many threads work is spread over, by a fixed rule: nothing is timed to decide it."""

from __future__ import annotations

import os


def usable_cpus() -> int:
    """How many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose_num_threads(num_threads: int | None, num_envs: int) -> int:
    """What was asked for, else one thread per usable CPU, but no more than instances."""
    if num_threads is None:
        return min(usable_cpus(), max(1, num_envs))
    if isinstance(num_threads, bool) or not isinstance(num_threads, int) or num_threads < 1:
        raise ValueError(f"num_threads is {num_threads!r}; use a positive integer, or None for one per CPU")
    return num_threads
