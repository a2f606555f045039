"""One generator that is moved from stream to stream, for tasks whose episodes are short.

Making the generator of an episode (`core.seeding.instance_generator`) takes longer than a step of a small task. Most of
it goes into hashing the seed and into objects that are thrown away. The same stream begins where a Philox generator has
the key of the episode and counts from 0; and the keys of the next episodes of an instance, or of the present episodes
of many instances, can be hashed together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gaitway.core.seeding import PURPOSES, EpisodeStreams

PATIENCE, BLOCK = 8, 128
"""After so many episodes of an instance the keys of so many more are worth having."""
MANY = 4
"""From so many instances on, hashing their keys together is quicker than one after the other."""

# The constants of NumPy's SeedSequence, after M. E. O'Neill's seed_seq_fe (2015): words of 32 bits, a pool of 4.
_POOL, _BITS = 4, 0xFFFFFFFF
_START_A, _FACTOR_A = 0x43B0D7E5, 0x931E8875
_START_B, _FACTOR_B = 0x8B51F9DD, 0x58F38DED
_LEFT, _RIGHT = 0xCA01F9DD, 0x4973F715

NOTHING: tuple[int, np.ndarray] = (0, np.empty((0, 2), dtype=np.uint64))


class EpisodeGenerator:
    """The generators of `EpisodeStreams`, mostly in one object. Call `forget` when the streams got other seeds."""

    def __init__(self, streams: EpisodeStreams) -> None:
        self._streams = streams
        self._philox = np.random.Philox(0)
        self._generator = np.random.Generator(self._philox)
        self._key = np.zeros(2, dtype=np.uint64)
        self._beginning: Any = {
            "bit_generator": "Philox",
            "state": {"counter": np.zeros(4, dtype=np.uint64), "key": self._key},
            "buffer": np.zeros(4, dtype=np.uint64),
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }
        self.forget()

    def forget(self) -> None:
        self._blocks: dict[int, tuple[int, np.ndarray]] = {}  # instance -> first episode and keys [BLOCK, 2]
        self._prepared: dict[int, tuple[int, np.ndarray]] = {}  # instance -> episode and its key [1, 2]

    def prepare(self, instances: Sequence[int]) -> None:
        """Say which instances will be asked for next."""
        episodes = self._streams.episode
        young = [instance for instance in instances if episodes[instance] < PATIENCE]
        if len(young) < MANY:
            return
        keys = philox_keys(self._streams.entropy[young], episodes[young], PURPOSES[self._streams.purpose])
        self._prepared = dict(zip(young, zip(episodes[young].tolist(), keys[:, None], strict=True), strict=True))

    def at(self, instance: int) -> np.random.Generator:
        """The stream of the present episode of `instance`, from its beginning; until the next call."""
        episode = int(self._streams.episode[instance])
        first, keys = (self._prepared if episode < PATIENCE else self._blocks).get(instance, NOTHING)
        if not 0 <= episode - first < len(keys):
            if episode < PATIENCE:
                return self._streams.generator(instance)
            first, keys = self._blocks[instance] = episode, self._block(instance, episode)
        self._key[:] = keys[episode - first]
        self._philox.state = self._beginning
        return self._generator

    def _block(self, instance: int, episode: int) -> np.ndarray:
        entropy = np.tile(self._streams.entropy[instance], (BLOCK, 1))
        return philox_keys(entropy, np.arange(episode, episode + BLOCK), PURPOSES[self._streams.purpose])


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
