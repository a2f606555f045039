"""Random numbers that are a function of their place: a key and a position give a number, whoever asks, wherever.

SplitMix64 (Steele, Lea and Flood 2014, with Stafford's mixing constants "variant 13") in int64 tensors: additions and
products wrap modulo 2^64 and shifts are made logical by masks, so that CPU and GPU give the same bits. There is no
state, and nothing is computed row by row.
"""

from __future__ import annotations

import torch
from torch import Tensor

WORD = 2**64
GOLDEN = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio: what SplitMix64 adds from number to number."""
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
BITS = 24
"""Bits of a uniform number: all of them fit into a float32, so that it is below 1 in every type."""


def signed(word: int) -> int:
    """The int64 with the bits of an unsigned word."""
    word %= WORD
    return word - WORD if word >= WORD // 2 else word


def mix(word: Tensor) -> Tensor:
    """int64 [...] -> int64 [...]: a bijection after which every bit depends on every bit."""
    word = (word ^ _shifted(word, 30)).mul_(signed(FIRST))
    word = (word ^ _shifted(word, 27)).mul_(signed(SECOND))
    return word ^ _shifted(word, 31)


def fold(key: Tensor, word: Tensor | int) -> Tensor:
    """A new key [...] of a key and one more word: another instance, episode, step or name of a stream."""
    return mix(mix(key ^ word) + signed(GOLDEN))


def random_bits(key: Tensor, count: int) -> Tensor:
    """int64 [n] -> int64 [n, count], `count` words of 64 bits for each key."""
    return mix(key[:, None] + _steps(count, key.device))


def uniform(key: Tensor, count: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """int64 [n] -> [n, count] in [0, 1): multiples of 2^-24, the same in every floating point type."""
    words = random_bits(key, count)
    return _shifted(words, 64 - BITS).to(dtype).mul_(2.0**-BITS)


def _shifted(word: Tensor, bits: int) -> Tensor:
    return (word >> bits).bitwise_and_((1 << (64 - bits)) - 1)


_tables: dict[tuple[int, str], Tensor] = {}  # compilers must find them made: their own products of integers do not wrap


def _steps(count: int, device: torch.device) -> Tensor:
    """GOLDEN times 1, 2, ..., count."""
    place = count, str(device)
    if place not in _tables:
        with torch.inference_mode(False):
            _tables[place] = torch.arange(1, count + 1, device=device) * signed(GOLDEN)
    return _tables[place]
