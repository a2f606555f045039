"""How much memory can still be allocated, as far as the system tells."""

from __future__ import annotations

import os
import re
from pathlib import Path

import torch

CGROUPS, OWN_GROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
"""Where Linux shows the limits of containers and jobs, and which of them this process is in."""


def free_memory(device: torch.device | str) -> int | None:
    """Bytes that can still be allocated on a device, limits of containers included; None where nothing tells."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    return min((found for found in (_of_the_machine(), _within_group()) if found is not None), default=None)


def _of_the_machine() -> int | None:
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
        return int(found[1]) * 1024 if found else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError):  # systems without /proc, or without sysconf
        return None


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
