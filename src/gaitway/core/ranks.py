"""Processes that train one policy together, its ranks: who they are, and the few things that they tell each other.

A process is alone unless `runners/distributed.py` joined it to others. What all instances of a run have a part in (a
gradient, moments of observations, a decision to stop) goes through `here()`. Alone nothing of this computes anything,
so that numbers are those of one process to the last bit.

Tensors travel by `mean_`, `gathered` and `broadcast_`, on a GPU by NCCL, on a CPU through memory that ranks of one
machine share (`core/rank_memory.py`), else by gloo; they may stand in a recorded program, which is cut there.
Everything else is said in JSON, between CPUs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gaitway.core.execution import outside
from gaitway.core.rank_memory import RankMemory
from gaitway.core.seeding import SharedStream, begun, stream
from gaitway.core.state_codec import decode, encode
from gaitway.core.user_code import SentenceError


class RankLostError(SentenceError):
    """Another process of the job has ended, so that this one cannot go on."""


class RefusedTogetherError(SentenceError):
    """All processes of a job refuse what it asks for, in one sentence, which the first one says."""

    told_by_first = True


class Ranks:
    """This process among `size`. `control` and `data` are process groups of torch.distributed, None if it is alone;
    `memory` is what the ranks share if they are on one machine."""

    def __init__(self, rank: int = 0, size: int = 1, control: Any = None, data: Any = None) -> None:
        self.rank, self.size, self.control, self.data = rank, size, control, data
        self.memory: RankMemory | None = None
        self.is_alone, self.is_first = control is None, rank == 0

    # Tensors, within programs too

    def mean_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its mean over all ranks."""
        if self.is_alone:
            return tensor
        if self.memory is not None and not tensor.is_cuda:
            outside(partial(self._call, self.memory.sum_, tensor))
            return tensor.div_(self.size)
        from torch import distributed

        outside(partial(self._call, distributed.all_reduce, tensor, group=self.data))
        return tensor.div_(self.size)

    def gathered(self, tensor: Tensor) -> Tensor:
        """The tensors of all ranks, [ranks, ...]."""
        whole = tensor.new_empty((self.size, *tensor.shape))
        if self.is_alone:
            return whole.copy_(tensor)
        outside(partial(self._gather, whole, tensor.contiguous(), self.data))
        return whole

    def broadcast_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by that of the first rank."""
        if not self.is_alone:
            from torch import distributed

            whole = tensor.contiguous()
            self._call(distributed.broadcast, whole, group=self.data, group_src=0)
            tensor.copy_(whole)
        return tensor

    def pooled(self, count: Tensor | int, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Count, mean and biased variance [*shape] over the rows of all ranks, from those of this one's."""
        counts = torch.full_like(mean, count) if isinstance(count, int) else count.to(mean).expand_as(mean)
        counts, means, variances = self.gathered(torch.stack((counts, mean, variance))).unbind(1)  # [ranks, *shape]
        total = counts.sum(0)
        rows = total.clamp(min=1)
        mean = (counts * means).sum(0) / rows
        variance = (counts * (variances + (means - mean).square())).sum(0) / rows
        return total.reshape(-1)[:1].sum().round().to(torch.int64), mean, variance

    # Words

    def exchange(self, said: Any) -> list[Any]:
        """What every rank says, in their order; plain data."""
        if self.is_alone:
            return [said]
        words = torch.frombuffer(bytearray(json.dumps(said).encode()), dtype=torch.uint8)
        lengths = self._told(torch.tensor([len(words)]))
        longest = int(lengths.max())
        texts = self._told(torch.cat((words, words.new_zeros(longest - len(words)))))
        return [json.loads(bytes(text[: int(n)].tolist())) for text, n in zip(texts, lengths, strict=True)]

    def from_first(self, said: Any) -> Any:
        """What the first rank says."""
        return said if self.is_alone else self.exchange(said if self.is_first else None)[0]

    def total(self, number: int) -> int:
        return number if self.is_alone else sum(self.exchange(number))

    def means(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Numbers by name: each one's mean over the ranks that have it."""
        if self.is_alone:
            return dict(numbers)
        told = self.exchange(numbers)
        found = {name: [each[name] for each in told if name in each] for each in told for name in each}
        return {name: sum(each) / len(each) for name, each in found.items()}

    def states_at_first(self, state: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The states of all ranks but the first, in their order, at the first; nothing elsewhere."""
        if self.is_alone:
            return []
        from torch import distributed

        if not self.is_first:
            tensors: dict[str, Tensor] = {}
            document = {"state": encode(state, "state", tensors)}
            document["tensors"] = [[name, str(each.dtype), list(each.shape)] for name, each in tensors.items()]
            self._send(torch.frombuffer(bytearray(json.dumps(document).encode()), dtype=torch.uint8))
            for each in tensors.values():
                if each.numel():
                    self._call(distributed.send, each.view(torch.uint8) if each.ndim else each, 0, group=self.control)
            return []
        found = []
        for rank in range(1, self.size):
            document = json.loads(bytes(self._receive(rank).tolist()))
            tensors = {}
            for name, kind, shape in document["tensors"]:
                each = torch.empty(shape, dtype=getattr(torch, kind.removeprefix("torch.")))
                if each.numel():
                    view = each.view(torch.uint8) if each.ndim else each
                    self._call(distributed.recv, view, rank, group=self.control)
                tensors[name] = each
            found.append(decode(document["state"], tensors, set()))
        return found

    @contextmanager
    def refusing_together(self) -> Iterator[None]:
        """Around what all ranks do before they train, without a word to each other: where one of them refuses, all of
        them end with its sentence."""
        problem: Exception | None = None
        try:
            yield
        except (ValueError, KeyError, TypeError, OSError, ImportError, SentenceError) as error:
            if self.is_alone:
                raise
            problem = error
        if self.is_alone:
            return
        sentence = None if problem is None else str(problem.args[0] if isinstance(problem, KeyError) else problem)
        told = self.exchange(sentence)
        if any(each is not None for each in told):
            rank, first = next((rank, each) for rank, each in enumerate(told) if each is not None)
            where = "" if all(each == first for each in told) else f"rank {rank}: "
            raise RefusedTogetherError(f"{where}{first}") from problem

    # Private

    def _told(self, tensor: Tensor) -> Tensor:
        """The CPU tensors of all ranks, [ranks, ...]."""
        whole = tensor.new_empty((self.size, *tensor.shape))
        self._gather(whole, tensor, self.control)
        return whole

    def _gather(self, whole: Tensor, tensor: Tensor, group: Any) -> None:
        """Write the tensors of all ranks into `whole` [ranks, ...], by `group` where they do not share memory."""
        if self.memory is not None and not tensor.is_cuda:
            self._call(self.memory.gather, whole, tensor)
            return
        from torch import distributed

        self._call(distributed.all_gather, list(whole.unbind()), tensor, group=group)

    def _send(self, words: Tensor) -> None:
        from torch import distributed

        self._call(distributed.send, torch.tensor([len(words)]), 0, group=self.control)
        self._call(distributed.send, words, 0, group=self.control)

    def _receive(self, rank: int) -> Tensor:
        from torch import distributed

        length = torch.zeros(1, dtype=torch.int64)
        self._call(distributed.recv, length, rank, group=self.control)
        words = torch.empty(int(length), dtype=torch.uint8)
        self._call(distributed.recv, words, rank, group=self.control)
        return words

    def _call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        try:
            function(*arguments, **options)
        except RuntimeError as error:
            reason = " ".join(str(error).split()).rpartition("] ")[2][:60]
            raise RankLostError(
                f"rank {self.rank} waited for another process of the job, which has ended or does not answer; what "
                f"that one said last tells why ({reason})"
            ) from error


_here = Ranks()


def here() -> Ranks:
    """The ranks that this process is one of."""
    return _here


@contextmanager
def being(ranks: Ranks) -> Iterator[Ranks]:
    """Within this context `here()` is `ranks`."""
    global _here
    before, _here = _here, ranks
    try:
        yield ranks
    finally:
        _here = before


def shared_stream(seed: int, name: str, device: torch.device | str = "cpu") -> torch.Generator:
    """A named generator of numbers for all instances of a run, of which each rank takes those of its own (`fill`)."""
    if _here.is_alone:
        return stream(seed, name, device)
    generator = SharedStream(device=device)
    generator.rank, generator.size = _here.rank, _here.size
    return begun(generator, seed, name)


def own_stream(seed: int, name: str, device: torch.device | str = "cpu") -> torch.Generator:
    """A named generator of numbers that concern what this rank has alone: its rows, its replay."""
    return stream(seed, name if _here.is_first else f"{name} of rank {_here.rank}", device)
