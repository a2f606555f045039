"""How much memory a replay takes, and whether there is room for it: stated and checked before a run begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from gaitway.data.ring import free_memory

MARGIN = 0.9
"""The part of the free memory that a replay may take; networks, simulator and everything else need some too."""
CGROUPS, OWN_GROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
"""Where Linux shows the limits of containers and jobs, and which of them this process is in."""


def check_replay(bytes_of: Callable[[int], int], replay_size: int, device: torch.device | str) -> str:
    """One line that says what a replay of `replay_size` transitions takes; a ValueError if that does not fit.

    `bytes_of` gives the bytes of a replay of so many transitions.
    """
    device = torch.device(device)
    needed, free = bytes_of(replay_size), free_bytes(device)
    if free is not None and needed > MARGIN * free:
        fitting = two_digits(int(replay_size * MARGIN * free / needed))
        while fitting > 1 and bytes_of(fitting) > MARGIN * free:
            fitting = two_digits(fitting * 9 // 10)
        raise ValueError(
            f"algorithm.replay_size is {replay_size:,} transitions, which take {in_words(needed)} on {device}, where "
            f"{in_words(free)} are free; use algorithm.replay_size={max(fitting, 1)}"
        )
    return f"replay: {replay_size:,} transitions, {in_words(needed)} on {device}"


def free_bytes(device: torch.device) -> int | None:
    """What could still be allocated on a device; None where nothing tells."""
    known = [free_memory(device), _within_group() if device.type == "cpu" else None]
    return min((found for found in known if found is not None), default=None)


def in_words(count: int) -> str:
    """A number of bytes with a decimal unit: 204 MB."""
    amount, units = float(count), ["bytes", "kB", "MB", "GB", "TB"]
    while amount >= 999.5 and len(units) > 1:
        amount /= 1000.0
        units.pop(0)
    return f"{amount:.0f} {units[0]}" if amount >= 9.95 or units[0] == "bytes" else f"{amount:.1f} {units[0]}"


def two_digits(number: int) -> int:
    """Rounded down to a number that is easy to type: 58_731 becomes 58_000."""
    scale = 10 ** max(len(str(number)) - 2, 0)
    return number // scale * scale


def _within_group() -> int | None:
    """What the control groups of this process (a container, a job) leave, the tightest of them; None without limits."""
    try:
        lines = OWN_GROUP.read_text().splitlines()
    except OSError:
        return None
    inside = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    left = []
    for group in (CGROUPS / inside, *(CGROUPS / inside).parents):
        if not group.is_relative_to(CGROUPS):
            break
        limit, used = _number(group / "memory.max"), _number(group / "memory.current")
        if limit is not None and used is not None:
            # file pages that nobody touched lately are given back on demand
            left.append(limit - used + _inactive(group / "memory.stat"))
    return max(min(left), 0) if left else None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return None


def _inactive(path: Path) -> int:
    try:
        words = [line.split() for line in path.read_text().splitlines()]
        return next(int(line[1]) for line in words if line[0] == "inactive_file")
    except (OSError, ValueError, IndexError, StopIteration):
        return 0
