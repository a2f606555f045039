"""How much memory a run takes, and whether there is room for it: stated and checked before it is taken."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gaitway.core.free_memory import free_memory
from gaitway.core.storage import Variable

MARGIN = 0.9
"""The part of the free memory that one thing may take; everything else needs some too."""
COPIES = 2
"""Rows are collected once, and once more packed for learning."""
PER_PARAMETER = 4
"""Numbers per parameter that learning keeps: itself, its gradient and the two moments of Adam."""


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


def check_instances(bytes_each: int, num_envs: int, device: torch.device | str = "cpu", where: str = "") -> None:
    """Refuse more instances of an environment than fit into the memory of this machine, or of a device."""
    needed, free = bytes_each * num_envs, free_memory(device)
    if free is not None and needed > MARGIN * free:
        raise ValueError(
            f"env.num_envs is {num_envs:,}; so many instances take {in_words(needed)}{where}, where {in_words(free)} "
            f"are free; use env.num_envs={max(two_digits(int(MARGIN * free / bytes_each)), 1)} or less"
        )


def rows_bytes(variables: Iterable[Variable]) -> int:
    """What rows of these variables take, with their copy for learning."""
    return COPIES * sum(each.rows * each.batch * math.prod(each.shape) * each.dtype.itemsize for each in variables)


def check_rows(variables: Iterable[Variable], num_envs: int, rows: int, device: torch.device | str) -> None:
    """Refuse a rollout of `rows` steps of `num_envs` instances that does not fit beside its copy for learning."""
    needed, free = rows_bytes(variables), free_memory(device)
    if free is not None and needed > MARGIN * free:
        steps = max(two_digits(int(rows * num_envs * MARGIN * free / needed)), 1)
        raise ValueError(
            f"a rollout of {rows:,} steps (algorithm.rollout_steps, iteration_steps) of {num_envs:,} instances "
            f"(env.num_envs) takes {in_words(needed)} on {device}, where {in_words(free)} are free; use fewer, "
            f"together {steps:,} steps at most"
        )


def check_learning(parameters: int, device: torch.device | str) -> None:
    """Refuse networks whose gradients and moments do not fit beside them."""
    needed, free = parameters * PER_PARAMETER * 4, free_memory(device)
    if free is not None and needed > MARGIN * free:
        raise ValueError(
            f"the networks have {parameters:,} parameters; learning them takes {in_words(needed)} on {device}, where "
            f"{in_words(free)} are free; use smaller layers in agent (actor_hidden, critic_hidden, ...)"
        )


class Need(NamedTuple):
    """What a part of a run will take."""

    what: str
    bytes: int
    key: str
    """The keys that make it smaller."""


def check_together(needs: Sequence[Need], free: int | None, where: str) -> int:
    """The bytes of all `needs`; a ValueError that names the largest of them if they do not fit beside each other."""
    needed = sum(need.bytes for need in needs)
    if free is not None and needed > MARGIN * free:
        largest = max(needs, key=lambda need: need.bytes)
        raise ValueError(
            f"the run takes {in_words(needed)} {where}, where {in_words(free)} are free; the largest part is "
            f"{largest.what} with {in_words(largest.bytes)}: lower {largest.key}"
        )
    return needed


def stored_bytes(state: Any) -> int:
    """What the tensors of a nested state take."""
    if isinstance(state, torch.Tensor):
        return state.numel() * state.element_size()
    parts = state.values() if isinstance(state, Mapping) else state if isinstance(state, list | tuple) else ()
    return sum(stored_bytes(part) for part in parts)


class LimitedTensors(TorchDispatchMode):
    """Within it, a tensor that would not fit into the free memory is refused before it is made.

    `whose` says in the sentence what asks for it, `key` which numbers to lower.
    """

    def __init__(self, whose: str, key: str) -> None:
        super().__init__()
        self.whose, self.key, self.free = whose, key, free_memory("cpu")

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        size = args[0] if args and isinstance(args[0], list | tuple) else ()
        if size and self.free is not None and all(isinstance(side, int) for side in size):
            needed = math.prod(size) * 4 * PER_PARAMETER
            if needed > MARGIN * self.free:
                shape = " x ".join(f"{side:,}" for side in size)
                raise ValueError(
                    f"{self.whose} has a tensor of {shape} numbers; with its gradient and moments it takes "
                    f"{in_words(needed)}, where {in_words(self.free)} are free; use smaller numbers in {self.key}"
                )
        return function(*args, **(kwargs or {}))


def in_words(count: int) -> str:
    """A number of bytes with a decimal unit: 204 MB."""
    amount, units = float(count), ["bytes", "kB", "MB", "GB", "TB", "PB", "EB"]
    while amount >= 999.5 and len(units) > 1:
        amount /= 1000.0
        units.pop(0)
    return f"{amount:.0f} {units[0]}" if amount >= 9.95 or units[0] == "bytes" else f"{amount:.1f} {units[0]}"


def two_digits(number: int) -> int:
    """Rounded down to a number that is easy to type: 58_731 becomes 58_000."""
    scale = 10 ** max(len(str(number)) - 2, 0)
    return number // scale * scale
