"""Random numbers that are a function of their place: a key and a position give a number, whoever asks, wherever.

SplitMix64 (Steele, Lea and Flood 2014, with Stafford's mixing constants "variant 13") in int64 tensors: additions and
products wrap modulo 2^64 and shifts are made logical by masks, so that CPU and GPU give the same bits. There is no
state, and nothing is computed row by row. Keys may be arrays of NumPy as well, with the same numbers as arrays in half
the time on the CPU.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
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


Words = TypeVar("Words", Tensor, np.ndarray)
"""int64 [...], not a scalar."""


def mix(word: Words) -> Words:
    """int64 [...] -> int64 [...]: a bijection after which every bit depends on every bit."""
    word = (word ^ _shifted(word, 30)) * signed(FIRST)
    word = (word ^ _shifted(word, 27)) * signed(SECOND)
    return word ^ _shifted(word, 31)


def fold(key: Words, word: Words | int) -> Words:
    """A new key [...] of a key and one more word: another instance, episode, step or name of a stream."""
    return mix(mix(key ^ word) + signed(GOLDEN))


def random_bits(key: Words, count: int) -> Words:
    """int64 [n] -> int64 [n, count], `count` words of 64 bits for each key."""
    return mix(key[:, None] + _steps(count, key))


def uniform(key: Words, count: int, dtype: torch.dtype = torch.float64) -> Words:
    """int64 [n] -> [n, count] in [0, 1): multiples of 2^-24, the same in every floating point type."""
    words = _shifted(random_bits(key, count), 64 - BITS)
    if isinstance(words, Tensor):
        return words.to(dtype).mul_(2.0**-BITS)
    numbers: np.ndarray = words.astype(np.float32 if dtype == torch.float32 else np.float64)
    return numbers * 2.0**-BITS


def normal_of(numbers: torch.Tensor) -> torch.Tensor:
    """Uniform numbers as standard normal ones, all of them finite."""
    # from -1 to 1 they are multiples of 2^(1 - BITS); half of one keeps them off both ends, and float32 has room for it
    # there. Added to the uniform numbers themselves it would be rounded up to the end, one time in 2^BITS.
    return math.sqrt(2.0) * torch.erfinv((2.0 * numbers - 1.0) + 2.0**-BITS)


def _shifted(word: Words, bits: int) -> Words:
    return (word >> bits) & ((1 << (64 - bits)) - 1)


_tables: dict[tuple[int, str], Tensor] = {}  # compilers must find them made: their own products of integers do not wrap


def _steps(count: int, like: Words) -> Words:
    """GOLDEN times 1, 2, ..., count, as a tensor beside `like` or as an array."""
    if not isinstance(like, Tensor):
        return np.arange(1, count + 1) * signed(GOLDEN)
    place = count, str(like.device)
    if place not in _tables:
        with torch.inference_mode(False):
            _tables[place] = torch.arange(1, count + 1, device=like.device) * signed(GOLDEN)
    return _tables[place]
