"""Counter-based numbers: every bit against whole numbers of Python, and what a generator owes."""

from __future__ import annotations

import math

import pytest
import torch

from gaitway.functional.counter_random import FIRST, GOLDEN, SECOND, WORD, fold, mix, random_bits, signed, uniform


def mixed(word: int) -> int:
    """`mix` on whole numbers, modulo 2^64."""
    word = (word ^ word >> 30) * FIRST % WORD
    word = (word ^ word >> 27) * SECOND % WORD
    return word ^ word >> 31


WORDS = [0, 1, 2**63 - 1, 2**63, WORD - 1, 0x0123456789ABCDEF, 42]


def test_every_bit_is_that_of_whole_numbers() -> None:
    key = torch.tensor([signed(word) for word in WORDS])
    assert mix(key).tolist() == [signed(mixed(word)) for word in WORDS]
    assert key.tolist() == [signed(word) for word in WORDS]  # left alone
    expected = [[signed(mixed((word + GOLDEN * step) % WORD)) for step in range(1, 6)] for word in WORDS]
    assert random_bits(key, 5).tolist() == expected
    folded = [signed(mixed((mixed(word ^ 7) + GOLDEN) % WORD)) for word in WORDS]
    assert fold(key, 7).tolist() == folded
    numbers = [[((value % WORD) >> 40) / 2**24 for value in row] for row in expected]
    assert uniform(key, 5).tolist() == numbers
    assert uniform(key, 5, torch.float32).tolist() == numbers  # 24 bits: no rounding, and never 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_arrays_have_the_numbers_of_tensors(dtype: torch.dtype) -> None:
    key = torch.tensor([signed(word) for word in WORDS])
    step = torch.arange(len(WORDS)) * 977
    assert mix(key.numpy()).tolist() == mix(key).tolist()
    assert fold(key.numpy(), step.numpy()).tolist() == fold(key, step).tolist()
    assert fold(key.numpy(), -1).tolist() == fold(key, -1).tolist()
    found = torch.from_numpy(uniform(fold(key.numpy(), step.numpy()), 300, dtype))
    assert found.dtype == dtype
    assert torch.equal(found, uniform(fold(key, step), 300, dtype))


def test_splitmix_begins_as_published() -> None:
    # the reference generator with state 0 gives these words first
    assert [word % WORD for word in random_bits(torch.tensor([0]), 3)[0].tolist()] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


def chi_square(numbers: torch.Tensor, bins: int) -> float:
    """In standard deviations from what uniform numbers give."""
    counts = torch.histc(numbers.double(), bins, 0.0, 1.0)
    expected = numbers.numel() / bins
    return (float(((counts - expected) ** 2 / expected).sum()) - (bins - 1)) / math.sqrt(2 * (bins - 1))


def keys_of(instances: int, steps: int) -> torch.Tensor:
    """As an environment makes them: neighbouring instances, neighbouring steps."""
    instance, step = torch.meshgrid(torch.arange(instances), torch.arange(steps), indexing="ij")
    return fold(fold(torch.zeros_like(instance), instance), step).flatten()


@pytest.mark.parametrize("twin", [False, True])
def test_numbers_are_uniform_and_neighbours_are_independent(twin: bool) -> None:
    """400 instances in 50 steps with 10 numbers each; the twin takes keys that were not mixed."""
    if twin:
        raw = torch.arange(400 * 50)
        numbers = ((raw[:, None] * 5 + torch.arange(10)) % 2**24).double() / 2**24
    else:
        numbers = uniform(keys_of(400, 50), 10)
    numbers = numbers.view(400, 50, 10)
    worst = abs(chi_square(numbers.flatten(), 256))
    for first, second in (
        (numbers[:-1], numbers[1:]),  # instances
        (numbers[:, :-1], numbers[:, 1:]),  # steps
        (numbers[..., :-1], numbers[..., 1:]),  # places
    ):
        pairs = torch.stack((first.flatten(), second.flatten()))
        correlation = float(torch.corrcoef(pairs)[0, 1]) * math.sqrt(pairs.shape[1])
        cells = (pairs * 16).floor()
        together = abs(chi_square((cells[0] * 16 + cells[1] + 0.5) / 256, 256))
        worst = max(worst, abs(correlation), together)
    assert (worst > 6.0) == twin
