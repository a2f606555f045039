"""How much memory a replay takes, and whether there is room for it: stated and checked before a run begins."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gaitway.core.free_memory import free_memory

MARGIN = 0.9
"""The part of the free memory that a replay may take; networks, simulator and everything else need some too."""


def check_replay(bytes_of: Callable[[int], int], replay_size: int, device: torch.device | str) -> str:
    """One line that says what a replay of `replay_size` transitions takes; a ValueError if that does not fit.

    `bytes_of` gives the bytes of a replay of so many transitions.
    """
    device = torch.device(device)
    needed, free = bytes_of(replay_size), free_memory(device)
    if free is not None and needed > MARGIN * free:
        fitting = two_digits(int(replay_size * MARGIN * free / needed))
        while fitting > 1 and bytes_of(fitting) > MARGIN * free:
            fitting = two_digits(fitting * 9 // 10)
        raise ValueError(
            f"algorithm.replay_size is {replay_size:,} transitions, which take {in_words(needed)} on {device}, where "
            f"{in_words(free)} are free; use algorithm.replay_size={max(fitting, 1)}"
        )
    return f"replay: {replay_size:,} transitions, {in_words(needed)} on {device}"


def in_words(count: int) -> str:
    """A number of bytes with a decimal unit: 204 MB."""
    amount, units = float(count), ["bytes", "kB", "MB", "GB", "TB"]
    while amount >= 999.5 and len(units) > 1:
        amount /= 1000.0
        units.pop(0)
    return f"{amount:.0f} {units[0]}" if amount >= 9.95 or units[0] == "bytes" else f"{amount:.1f} {units[0]}"


def two_digits(number: int) -> int:
    """Rounded down to a number that is easy to type: 58_731 becomes 58_000."""
    scale = 10 ** max(len(str(number)) - 2, 0)
    return number // scale * scale
