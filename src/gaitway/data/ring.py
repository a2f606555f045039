"""Rows of mixed variables in one matrix of words, used as a ring.

All variables of a row lie side by side, so that reading n rows is a single `index_select`, however many variables
there are. `RowLayout` says where each variable lies, `PackedRing` is the memory.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gaitway.core.free_memory import free_memory
from gaitway.core.seeding import stream

WORD = torch.int64
GIB = 2**30

Variable = tuple[tuple[int, ...], torch.dtype]
"""Shape and dtype of one variable of a row."""
Fields = Mapping[str, Variable]
"""Name of each variable of a row -> its shape and dtype."""


@dataclass(frozen=True)
class Field:
    """Where one variable lies in a row, in elements of its own dtype."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    stride: tuple[int, ...]


class RowLayout:
    """The places of the variables in a row of `words` words.

    Variables named in `front` come first and fill `front_words` words; a layout of those variables alone puts them in
    the same places.
    """

    def __init__(self, fields: Fields, front: Collection[str] = ()) -> None:
        alignment = max(WORD.itemsize, *(dtype.itemsize for _, dtype in fields.values()))
        ends, offsets = [0], {}
        for part in ([name for name in fields if name in front], [name for name in fields if name not in front]):
            placed, end = _placed({name: fields[name] for name in part}, ends[-1])
            offsets.update(placed)
            ends.append(end)
        front_end, end = ends[1:]
        self.words = max(1, math.ceil(end / alignment) * alignment // WORD.itemsize)
        self.front_words = math.ceil(front_end / alignment) * alignment // WORD.itemsize
        self.fields: dict[str, Field] = {}
        for name, (shape, dtype) in fields.items():
            inner = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
            self.fields[name] = Field(tuple(shape), dtype, offsets[name], inner)

    def views(self, memory: Tensor) -> dict[str, Tensor]:
        """The variables `[*lead, *shape]` inside `memory` `[*lead, words]`, in the order they were given."""
        lead = memory.shape[:-1]
        typed = {dtype: memory.view(dtype) for dtype in {field.dtype for field in self.fields.values()}}
        views = {}
        for name, field in self.fields.items():
            base = typed[field.dtype]
            stride = (*base.stride()[:-1], *field.stride)
            views[name] = base.as_strided((*lead, *field.shape), stride, base.storage_offset() + field.offset)
        return views


class PackedRing:
    """`rows` rows for each of `streams` streams; the rows of a stream lie one after the other.

    The first `mirror` rows of a stream are repeated behind its last one, so that what follows a row by up to `mirror`
    rows lies at a fixed distance behind it, also where the ring closes.
    """

    def __init__(
        self, layout: RowLayout, rows: int, streams: int = 1, mirror: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        self.layout, self.rows, self.mirror = layout, rows, mirror
        self._place(lazy_zeros((streams, rows + mirror, layout.words), WORD, device))

    def _place(self, memory: Tensor) -> None:
        self.memory = memory
        self.columns = self.layout.views(memory)
        self.flat = memory.flatten(0, 1)

    def put(self, target: Tensor, position: int, source: Tensor) -> None:
        """Copy `source` `[streams, T, ...]` to rows `position, position + 1, ...` of the ring, T at most `rows`.

        `target` is the memory or one of the columns.
        """
        done, count = 0, source.shape[1]
        while done < count:
            length = min(count - done, self.rows - position)
            piece = source if length == count else source[:, done : done + length]
            target[:, position : position + length].copy_(piece)
            if position < self.mirror:
                repeated = min(length, self.mirror - position)
                behind = self.rows + position
                target[:, behind : behind + repeated].copy_(piece[:, :repeated])
            done, position = done + length, 0

    def take(self, index: Tensor) -> dict[str, Tensor]:
        """Rows `index` `[*n]` of `flat` as `[*n, *shape]`: views of one fresh copy, not contiguous."""
        words = self.flat.index_select(0, index.flatten())
        return self.layout.views(words.view(*index.shape, self.layout.words))

    def to(self, device: torch.device | str) -> None:
        with torch.inference_mode(False):
            self._place(self.memory.to(device))


def _placed(fields: Fields, end: int) -> tuple[dict[str, int], int]:
    """Offset of each variable, in its own elements, behind byte `end`, and the new end.

    Elements start at multiples of their size. The widest variable that needs no gap goes next.
    """
    offsets = {}
    waiting = sorted(fields, key=lambda name: -fields[name][1].itemsize)
    while waiting:
        name = next((each for each in waiting if end % fields[each][1].itemsize == 0), waiting[0])
        waiting.remove(name)
        shape, dtype = fields[name]
        offsets[name] = math.ceil(end / dtype.itemsize)
        end = (offsets[name] + math.prod(shape)) * dtype.itemsize
    return offsets, end


def lazy_zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """Zeros that cost no time on the CPU: the operating system supplies pages of zeros when they are first touched."""
    with torch.inference_mode(False):
        if torch.device(device).type != "cpu":
            return torch.zeros(size, dtype=dtype, device=device)
        return torch.from_numpy(np.zeros(math.prod(size) * dtype.itemsize, dtype=np.uint8)).view(dtype).view(size)


def replay_generator(
    seed: int | None, generator: torch.Generator | None, device: torch.device | str
) -> torch.Generator:
    """The generator passed in, or the stream `replay` of a seed, or fresh entropy."""
    if seed is not None and generator is not None:
        raise ValueError("pass a seed or a generator, not both")
    if generator is not None:
        return generator
    if seed is not None:
        return stream(seed, "replay", device)
    generator = torch.Generator(device=device)
    generator.seed()
    return generator


def moved_generator(generator: torch.Generator, device: torch.device) -> torch.Generator:
    """`generator` itself, or on another kind of device one that it seeds: states do not travel between kinds."""
    if device.type == generator.device.type:
        return generator
    word = torch.randint(2**62, (), generator=generator, device=generator.device)
    moved = torch.Generator(device=device)
    moved.manual_seed(int(word))
    return moved


def check_memory(needed: int, device: torch.device | str, what: str, each: float) -> None:
    """Refuse to allocate `needed` bytes that `device` does not have; `each` of what is stored takes that many bytes.

    `what` begins the sentence, as in "a replay of 1000000 transitions".
    """
    free = free_memory(device)
    if free is not None and needed > free:
        raise ValueError(
            f"{what} needs {needed / GIB:.2f} GiB on {device} and {free / GIB:.2f} GiB are free; a capacity of "
            f"{int(free / each)} fits ({each:.0f} bytes each)"
        )
