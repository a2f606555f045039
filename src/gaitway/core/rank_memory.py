"""Memory that the ranks of one machine share, by which CPU tensors travel between them.

Gloo hands a message through several threads and a socket, each of which has to be woken: 0.5 to 1.5 ms for a small
gradient, as long as the update that made it. Here each rank writes into a place of its own and looks at the others'
until theirs is written too, which takes microseconds.

A message has a number, the same at all ranks. Rank r writes message n into `parts[n % 2, r]` and then says n + 1, in
the first number of its line; when all have said so, all read. Two places are enough: a rank that writes message n + 2
has seen that everybody had begun message n + 1, and so had read message n. This needs stores that are seen in the order
in which they were made: x86-64.
"""

from __future__ import annotations

import mmap
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from gaitway.core.ranks import Ranks

PLACE = Path("/dev/shm")
CAPACITY = 1 << 20
"""Bytes of a rank's place; longer tensors travel in pieces."""
LINE = 64
"""Bytes of a rank's two numbers, how many messages it has written and whether it has left, and of the gap behind them:
two ranks never write into the same line of a cache."""
AT_ONCE_S, OFTEN_S, SELDOM_S = 0.002, 0.0001, 0.001
"""A rank looks all the time for so long; then every so many seconds, and every so many once it waited for a tenth of a
second."""
LOOK_AFTER_S = 0.2
"""How often a rank that waits sees to it that the others still run."""
PATIENCE_S = 1800.0
"""How long it waits for one that runs and says nothing; gloo's own limit."""


class RankMemory:
    """The place of each rank; `pids` are their processes."""

    def __init__(self, file: int, rank: int, pids: list[int]) -> None:
        size = len(pids)
        self.rank, self.pids = rank, pids
        self._mapped = mmap.mmap(file, bytes_of(size))
        self._said = memoryview(self._mapped)[: LINE * size].cast("q")
        whole = torch.frombuffer(self._mapped, dtype=torch.uint8, offset=LINE * size)
        self._parts = whole.view(2, size, CAPACITY)
        self._step, self._next = LINE // 8, 0

    def sum_(self, tensor: Tensor) -> None:
        """Replace a tensor by the sum over all ranks, in their order, the same to the last bit at each."""
        whole = tensor if tensor.is_contiguous() else tensor.contiguous()
        for piece in whole.view(-1).split(CAPACITY // whole.element_size()):
            parts = self._exchanged(piece)
            torch.sum(parts, 0, out=piece) if len(parts) != 2 else torch.add(parts[0], parts[1], out=piece)
        if whole is not tensor:
            tensor.copy_(whole)

    def gather(self, whole: Tensor, tensor: Tensor) -> None:
        """Write the tensors of all ranks into `whole`, contiguous [ranks, *shape of tensor]."""
        rows, values = whole.view(len(self.pids), -1), tensor.contiguous().view(-1)
        step = CAPACITY // values.element_size()
        for begin in range(0, values.numel(), step):
            rows[:, begin : begin + step] = self._exchanged(values[begin : begin + step])

    def leave(self) -> None:
        """Let those that wait for this rank know that it will say nothing more."""
        self._said[self.rank * self._step + 1] = 1

    def _exchanged(self, values: Tensor) -> Tensor:
        """What all ranks say, [ranks, numbers]; good until the next message but one."""
        size = values.numel() * values.element_size()
        parts = self._parts[self._next % 2, :, :size].view(values.dtype)
        parts[self.rank] = values
        self._next += 1
        self._said[self.rank * self._step] = self._next
        for rank in range(len(self.pids)):
            if self._said[rank * self._step] < self._next:
                self._wait(rank)
        return parts

    def _wait(self, rank: int) -> None:
        began = looked = time.monotonic()
        at = rank * self._step
        while self._said[at] < self._next:
            now = time.monotonic()
            has_left = bool(self._said[at + 1])
            if now - looked > LOOK_AFTER_S:
                looked, has_left = now, has_left or not is_running(self.pids[rank])
            if has_left and self._said[at] < self._next:  # it may have said this and left since
                raise RuntimeError(f"rank {rank} has ended")
            if now - began > PATIENCE_S:
                raise RuntimeError(f"rank {rank} has said nothing for {PATIENCE_S:.0f} s")
            if now - began < AT_ONCE_S:
                os.sched_yield()
            else:
                time.sleep(OFTEN_S if now - began < 0.1 else SELDOM_S)


def bytes_of(size: int) -> int:
    return LINE * size + 2 * size * CAPACITY


def shared_memory(ranks: Ranks) -> RankMemory | None:
    """Memory of these ranks, all of which call this; None if they are not processes of one machine that see each other,
    or the machine has none to share."""
    told = ranks.exchange([_machine(), os.getpid()])
    pids = [pid for _, pid in told]
    able = _machine() is not None and all(each[0] == told[0][0] for each in told) and all(map(is_running, pids))
    file, path = -1, None
    if able and ranks.is_first:
        file, path = _made(ranks.size)
    path = ranks.from_first(path)
    if able and path is not None and not ranks.is_first:
        try:
            file = os.open(path, os.O_RDWR)
        except OSError:
            file = -1
    together = all(ranks.exchange(file >= 0))
    if ranks.is_first and path is not None:
        os.unlink(path)  # it lives as long as somebody has it open, and no longer
    try:
        return RankMemory(file, ranks.rank, pids) if together else None
    finally:
        if file >= 0:
            os.close(file)


def _made(size: int) -> tuple[int, str | None]:
    """A new file in memory, and where it is; none if there is no room for it."""
    file = -1
    try:
        file, path = tempfile.mkstemp(prefix="gaitway_ranks_", dir=PLACE)
        os.posix_fallocate(file, 0, bytes_of(size))
        return file, path
    except OSError:
        if file >= 0:
            os.close(file)
            os.unlink(path)
        return -1, None


def _machine() -> str | None:
    """Which machine this is, since it was started; None if it cannot share memory so."""
    identity = Path("/proc/sys/kernel/random/boot_id")
    if platform.machine() not in ("x86_64", "AMD64") or not PLACE.is_dir() or not identity.exists():
        return None
    return identity.read_text().strip()


def is_running(pid: int) -> bool:
    """Whether a process of this machine has not ended; one that nobody has waited for yet has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return False
    return state not in ("Z", "X")
