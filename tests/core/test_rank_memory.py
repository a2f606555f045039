"""Memory that ranks share: sums and gathered tensors against NumPy, in float64 where it matters, and ranks that end.

Ranks are threads here; processes share it in `tests/runners/test_distributed.py`.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from gaitway.core import rank_memory
from gaitway.core.rank_memory import CAPACITY, RankMemory, bytes_of, is_running, shared_memory
from gaitway.core.ranks import RankLostError, Ranks

pytestmark = pytest.mark.skipif(rank_memory._machine() is None, reason="this machine shares no memory so")


def memories(size, pids=None):
    with tempfile.TemporaryFile() as file:
        file.truncate(bytes_of(size))
        return [RankMemory(file.fileno(), rank, pids or [os.getpid()] * size) for rank in range(size)]


def in_ranks(size, function):
    """What `function(memory)` returns in each of the ranks."""
    found, problems = {}, []

    def work(memory):
        try:
            found[memory.rank] = function(memory)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(memory,)) for memory in memories(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not problems
    assert len(found) == size
    return [found[rank] for rank in range(size)]


def numbers(rank, message, count, kind=np.float32):
    return np.random.default_rng([rank, message]).normal(size=count).astype(kind)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_sums_are_those_of_all_ranks_and_equal_at_each(size):
    counts = [1, 7, 1000, 3, CAPACITY // 4, CAPACITY // 4 + 1, CAPACITY + 5] + [50] * 200

    def all_of_them(memory):
        sums = []
        for message, count in enumerate(counts):
            tensor = torch.from_numpy(numbers(memory.rank, message, count))
            memory.sum_(tensor)
            sums.append(tensor.numpy())
        return sums

    found = in_ranks(size, all_of_them)
    for message, count in enumerate(counts):
        exact = sum(numbers(rank, message, count, np.float64) for rank in range(size))
        np.testing.assert_allclose(found[0][message], exact, atol=2e-6)
        for other in found[1:]:
            assert_array_equal(found[0][message], other[message])


@pytest.mark.parametrize("kind", [torch.float64, torch.int64, torch.uint8, torch.bool])
def test_gathered_tensors_are_the_ranks_own_in_their_order(kind):
    shape = (CAPACITY // 4 + 3, 2) if kind == torch.float64 else (3, 5)

    def own(rank):
        return torch.arange(np.prod(shape)).reshape(shape).mul(rank + 1).remainder(97).to(kind)

    def gathered(memory):
        whole = torch.empty((3, *shape), dtype=kind)
        memory.gather(whole, own(memory.rank))
        return whole

    for whole in in_ranks(3, gathered):
        assert torch.equal(whole, torch.stack([own(rank) for rank in range(3)]))


def test_a_tensor_that_is_not_contiguous_is_summed_in_place():
    def summed(memory):
        tensor = torch.arange(12.0).reshape(3, 4) * (memory.rank + 1)
        memory.sum_(tensor.T[1:3])
        return tensor

    expected = torch.arange(12.0).reshape(3, 4)
    for rank, tensor in enumerate(in_ranks(2, summed)):
        assert torch.equal(tensor[:, 1:3], 3 * expected[:, 1:3])
        assert torch.equal(tensor[:, [0, 3]], (rank + 1) * expected[:, [0, 3]])


def test_a_rank_that_stays_behind_is_waited_for():
    def late(memory):
        tensor = torch.ones(4)
        for _ in range(3):
            time.sleep(0.05 * memory.rank)
            memory.sum_(tensor)
        return tensor

    for tensor in in_ranks(2, late):
        assert torch.equal(tensor, torch.full((4,), 8.0))


def test_who_leaves_after_the_last_message_leaves_nobody_waiting():
    def ended(memory):
        tensor = torch.ones(1)
        memory.sum_(tensor)
        memory.leave()
        return float(tensor)

    for _ in range(50):
        assert in_ranks(2, ended) == [2.0, 2.0]


def test_who_leaves_before_a_message_is_missed_at_once():
    first, second = memories(2)
    second.leave()
    ranks = Ranks(0, 2, object(), object())
    ranks.memory = first
    began = time.monotonic()
    with pytest.raises(RankLostError, match=r"rank 0 waited for another process .* \(rank 1 has ended\)"):
        ranks.mean_(torch.ones(3))
    assert time.monotonic() - began < 5


def test_a_process_that_is_killed_is_missed():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    first, _ = memories(2, [os.getpid(), process.pid])
    assert is_running(process.pid)
    timer = threading.Timer(0.5, process.kill)
    timer.start()
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="rank 1 has ended"):  # nobody has waited for the process yet
        first.sum_(torch.ones(3))
    assert time.monotonic() - began < 30
    process.wait()
    assert not is_running(process.pid)


def test_one_that_says_nothing_for_long_is_given_up(monkeypatch):
    monkeypatch.setattr(rank_memory, "PATIENCE_S", 0.3)
    with pytest.raises(RuntimeError, match="rank 1 has said nothing"):
        memories(2)[0].sum_(torch.ones(3))


class Telling(Ranks):
    """A rank of two whose other one says the same, from another machine if so wished."""

    def __init__(self, elsewhere=False):
        super().__init__(0, 2, object(), object())
        self.elsewhere = elsewhere

    def exchange(self, said):
        other = ["another machine", said[1]] if self.elsewhere and isinstance(said, list) else said
        return [said, other]


def test_ranks_of_two_machines_share_none(tmp_path, monkeypatch):
    monkeypatch.setattr(rank_memory, "PLACE", tmp_path)
    assert shared_memory(Telling(elsewhere=True)) is None
    assert isinstance(shared_memory(Telling()), RankMemory)
    assert list(tmp_path.iterdir()) == []  # nothing stays behind, whatever becomes of the ranks


def test_without_room_ranks_share_none(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rank_memory, "PLACE", tmp_path)
    monkeypatch.setattr(rank_memory.os, "posix_fallocate", full)
    assert shared_memory(Telling()) is None
    assert list(tmp_path.iterdir()) == []
