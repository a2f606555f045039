"""Random numbers of every step of every instance, on all instances at once.

A number depends on the seed, the instance, the purpose, the episode, the name of a stream, the step, and its place in
the draw: row i of a batch equals a batch of one with the same seed, whatever other rows do, on any device. Streams have
names (noise, push, command), because consumers that shared one would get the same numbers.

All but the last three are hashed into one word per episode, which scenarios and stored states hold: whoever has it can
play the same episode again.
"""

from __future__ import annotations

import zlib

import numpy as np
import torch
from torch import Tensor

from gaitway.core.seeding import PURPOSES
from gaitway.functional.counter_random import fold, signed, uniform

ALL = slice(None)
Index = slice | Tensor
EPISODE = -1
"""The step of what is drawn once per episode."""
MOST_PLACES = 2**24
"""So many whole numbers a float32 tells apart."""
WORDS = 2**53 - 1
"""The largest word of an episode."""


class EpisodeNumbers:
    """Streams of B instances; `entropy` [B, 2], `episode` and `elapsed` [B] are int64 tensors that others count in."""

    def __init__(
        self,
        entropy: Tensor,
        episode: Tensor,
        elapsed: Tensor,
        purpose: str,
        dtype: torch.dtype = torch.float64,
        looks: bool | None = None,
    ) -> None:
        """`dtype` is that of the numbers; `looks`: may look at values to save work, and compute them by NumPy, which is
        quicker; None: on the CPU."""
        self._entropy, self._episode, self.elapsed = entropy, episode, elapsed
        self._purpose = list(PURPOSES).index(purpose)
        self._key = torch.zeros_like(episode)
        self._dtype = dtype
        self._looks = entropy.device.type == "cpu" if looks is None else looks
        self._last: tuple[tuple[str, int], Index, Tensor] | None = None
        """What an episode's numbers were asked for last, and what they were."""
        self._instances: tuple[Tensor, Tensor] | None = None
        """The seeds of the instances, and what they are hashed to: the same until somebody reseeds."""
        self._noted = self._hashed()

    @property
    def trains(self) -> bool:
        """False in environments for evaluation."""
        return list(PURPOSES)[self._purpose] == "train"

    def places(self, rows: Index = ALL) -> Tensor:
        """Seed plus instance [n], a whole number: instances of one seed, and neighbouring seeds, count on."""
        return torch.remainder(self._entropy[rows, 0] + self._entropy[rows, 1], MOST_PLACES).to(self._dtype)

    def begin(self) -> Tensor:
        """Take the words of the present episodes, and return them: whole numbers [B] that a float64 holds."""
        if not self._looks:
            return self.follow((fold(self._noted, self._episode) & WORDS).double())
        if self._instances is None or not torch.equal(self._instances[0], self._entropy):
            self._instances = self._entropy.clone(), self._hashed()
        words = fold(self._instances[1].numpy(), self._episode.numpy()) & WORDS
        return self.follow(torch.from_numpy(words.astype(np.float64)))

    def note_seeds(self) -> None:
        """Seeds were written: to be called where nobody may look whether they were."""
        self._noted.copy_(self._hashed())

    def _hashed(self) -> Tensor:
        """Purpose and seeds of the instances in one word each [B]."""
        key = fold(torch.zeros_like(self._key), self._purpose)
        for word in self._entropy.unbind(1):
            key = fold(key, word)
        return key

    def follow(self, words: Tensor) -> Tensor:
        """Give the numbers of the episodes that had these words [B]."""
        self._last = self._last if self._looks and torch.equal(self._key, words.long()) else None
        self._key.copy_(words)
        return words

    def of_step(self, stream: str, count: int, rows: Index = ALL, step: Tensor | None = None) -> Tensor:
        """[n, count] in [0, 1) for `rows`, other ones in every step of the episode: in `step` [n], None: as counted by
        `elapsed`, which somebody may set."""
        return self._drawn(stream, count, rows, self.elapsed[rows] if step is None else step)

    def of_episode(self, stream: str, count: int, rows: Index = ALL) -> Tensor:
        """[n, count] in [0, 1) for `rows`, the same as long as the episode lasts: who asks again gets them at once."""
        asked = (stream, count)
        if self._last is not None and self._last[0] == asked and _same(self._last[1], rows):
            return self._last[2]
        drawn = self._drawn(stream, count, rows, EPISODE)
        self._last = (asked, rows, drawn) if self._looks else None
        return drawn

    def _drawn(self, stream: str, count: int, rows: Index, step: Tensor | int) -> Tensor:
        key = self._key[rows]
        if not self._looks:
            return uniform(fold(key ^ _name(stream), step), count, self._dtype)
        place = step.numpy() if isinstance(step, Tensor) else step
        return torch.from_numpy(uniform(fold(key.numpy() ^ _name(stream), place), count, self._dtype))


def _same(one: Index, other: Index) -> bool:
    if isinstance(one, slice) or isinstance(other, slice):
        return one is other
    return one.shape == other.shape and torch.equal(one, other)


_names: dict[str, int] = {}  # a table, which compilers read: they cannot compute what stands in it


def _name(stream: str) -> int:
    """A word of 64 bits for a name."""
    if stream not in _names:
        data = stream.encode()
        _names[stream] = signed(zlib.crc32(data) << 32 | zlib.crc32(data[::-1], 0x5EED))
    return _names[stream]
