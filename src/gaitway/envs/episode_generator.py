"""One generator that is moved from stream to stream, for tasks whose episodes are short.

Making the generator of an episode (`core.seeding.instance_generator`) takes longer than a step of a small task. Most of
it goes into hashing the seed and into objects that are thrown away. The same stream begins where a Philox generator has
the key of the episode and counts from 0; and the keys of the next episodes of many instances are hashed together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gaitway.core.seeding import PURPOSES, EpisodeStreams

BLOCK = 32
"""Keys of so many episodes of an instance are hashed at once."""
UNKNOWN = -BLOCK
"""First episode of a block that is not there: no episode lies in it."""

# The constants of NumPy's SeedSequence, after M. E. O'Neill's seed_seq_fe (2015): words of 32 bits, a pool of 4.
_POOL, _BITS = 4, 0xFFFFFFFF
_START_A, _FACTOR_A = 0x43B0D7E5, 0x931E8875
_START_B, _FACTOR_B = 0x8B51F9DD, 0x58F38DED
_LEFT, _RIGHT = 0xCA01F9DD, 0x4973F715


class EpisodeGenerator:
    """The generators of `EpisodeStreams`, in one object. Call `forget` when the streams got other seeds."""

    def __init__(self, streams: EpisodeStreams) -> None:
        self._streams = streams
        self._philox = np.random.Philox(0)
        self._generator = np.random.Generator(self._philox)
        self._place: dict[str, Any] = {"counter": (0, 0, 0, 0), "key": (0, 0)}
        self._beginning: Any = {
            "bit_generator": "Philox",
            "state": self._place,
            "buffer": (0, 0, 0, 0),
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }
        self._entropy = streams.entropy.copy()
        self._first = np.full(len(streams.episode), UNKNOWN)
        self._keys = np.zeros((len(streams.episode), BLOCK, 2), dtype=np.uint64)  # of the episodes from `_first` on

    def forget(self) -> None:
        """Drop the keys of those instances whose seed is another one than before."""
        self._first[(self._streams.entropy != self._entropy).any(axis=1)] = UNKNOWN
        np.copyto(self._entropy, self._streams.entropy)

    def each(self, instances: np.ndarray) -> Iterator[np.random.Generator]:
        """For every one of `instances` the stream of its present episode, from the beginning, until the next one."""
        used = self._streams.episode - self._first
        asked = used[instances]
        if np.count_nonzero((asked < 0) | (asked >= BLOCK)):
            self._hash(np.flatnonzero((used < 0) | (used >= BLOCK // 2)))  # and of all that soon will be asked for
            asked = self._streams.episode[instances] - self._first[instances]
        place, beginning, philox = self._place, self._beginning, self._philox
        for key in self._keys[instances, asked].tolist():
            place["key"] = key
            philox.state = beginning
            yield self._generator

    def _hash(self, instances: np.ndarray) -> None:
        """Have the keys of `instances` from their present episodes on."""
        first = self._streams.episode[instances]
        episodes = first[:, None] + np.arange(BLOCK)
        entropy = np.repeat(self._entropy[instances], BLOCK, axis=0)
        keys = philox_keys(entropy, episodes.reshape(-1), PURPOSES[self._streams.purpose])
        self._keys[instances] = keys.reshape(-1, BLOCK, 2)
        self._first[instances] = first


def philox_keys(entropy: np.ndarray, episodes: np.ndarray, spawn_key: Sequence[int] = ()) -> np.ndarray:
    """uint64 `[N, k]`, integers `[N]` -> uint64 `[N, 2]`: for every row the key that
    `Philox(SeedSequence([*entropy, episode], spawn_key=spawn_key))` has.
    """
    is_long = entropy > _BITS
    if (is_long != is_long[0]).any():  # numbers of two words take other places than those of one
        keys = np.empty((len(episodes), 2), dtype=np.uint64)
        for kind in np.unique(is_long, axis=0):
            chosen = (is_long == kind).all(axis=1)
            keys[chosen] = philox_keys(entropy[chosen], episodes[chosen], spawn_key)
        return keys
    words = []
    for numbers, is_two in zip(entropy.T, is_long[0], strict=True):
        words += [numbers.astype(np.uint32), (numbers >> 32).astype(np.uint32)][: 1 + is_two]
    words.append(episodes.astype(np.uint32))
    words += [np.zeros_like(words[0])] * (_POOL - len(words))
    words += [np.full_like(words[0], word) for number in spawn_key for word in _words(number)]
    constants = _constants(_START_A, _FACTOR_A)
    pool = [_hashed(word, *next(constants)) for word in words[:_POOL]]
    for source, target in itertools.permutations(range(_POOL), 2):
        pool[target] = _mixed(pool[target], _hashed(pool[source], *next(constants)))
    for word in words[_POOL:]:
        pool = [_mixed(target, _hashed(word, *next(constants))) for target in pool]
    constants = _constants(_START_B, _FACTOR_B)
    state = np.stack([_hashed(word, *next(constants)) for word in pool], -1)
    return state[:, 0::2] | state[:, 1::2].astype(np.uint64) << 32


def _words(number: int) -> list[int]:
    """The 32-bit words of a number, lowest first; one at least."""
    words = [number & _BITS]
    while number := number >> 32:
        words.append(number & _BITS)
    return words


def _constants(start: int, factor: int) -> Iterator[tuple[int, int]]:
    """For hashes that follow each other: what is xored, and then what is multiplied with."""
    while True:
        following = start * factor & _BITS
        yield start, following
        start = following


def _hashed(word: np.ndarray, xor: int, factor: int) -> np.ndarray:
    word = (word ^ xor) * factor
    return word ^ word >> 16


def _mixed(target: np.ndarray, source: np.ndarray) -> np.ndarray:
    word = target * _LEFT - source * _RIGHT
    return word ^ word >> 16
