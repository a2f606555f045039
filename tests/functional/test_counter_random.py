"""Counter-based numbers: every bit against whole numbers of Python, and what a generator owes."""

from __future__ import annotations

import math

import pytest
import torch

from gaitway.functional.counter_random import (
    BITS,
    FIRST,
    GOLDEN,
    SECOND,
    WORD,
    fold,
    mix,
    normal_of,
    random_bits,
    signed,
    uniform,
)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal_numbers_are_finite_at_both_ends_and_symmetric(dtype: torch.dtype) -> None:
    places = torch.tensor([0, 1, 2 ** (BITS - 2), 2 ** (BITS - 1) - 1], dtype=dtype)
    low = normal_of(places * 2.0**-BITS)
    high = normal_of((2**BITS - 1 - places) * 2.0**-BITS)
    assert torch.isfinite(high).all()
    torch.testing.assert_close(low, -high, rtol=0, atol=0)
    assert float(high[0]) == pytest.approx(
        5.42, abs=0.005
    )  # below it lie all but 2^-25 = 3e-8 of a normal distribution
    assert high[0] > high[1]


def test_normal_numbers_have_the_quantiles_of_a_normal_distribution() -> None:
    numbers = normal_of(uniform(torch.arange(20_000), 10, torch.float32)).flatten().double()
    assert abs(numbers.mean()) < 4 / math.sqrt(len(numbers))
    assert abs(numbers.square().mean() - 1) < 4 * math.sqrt(2 / len(numbers))
    for limit, share in ((-1.96, 0.025), (-1.0, 0.158655), (0.5, 0.691462), (2.326, 0.98999)):
        found = float((numbers < limit).double().mean())
        assert abs(found - share) < 4 * math.sqrt(share * (1 - share) / len(numbers)), limit
