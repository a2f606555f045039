"""Seeds: independent streams that do not depend on what happens around them."""

import random

import numpy as np
import pytest
import torch

from gaitway.core.seeding import (
    check_seed,
    global_state,
    instance_generator,
    instance_seeds,
    set_global_state,
    stream,
)


def test_an_integer_and_a_list_of_seeds():
    assert instance_seeds(5, 3).tolist() == [[5, 0], [5, 1], [5, 2]]
    assert instance_seeds([7, 9], 2).tolist() == [[7, 0], [9, 0]]
    with pytest.raises(ValueError, match="2 seeds for 3 instances"):
        instance_seeds([1, 2], 3)


def test_instance_streams_are_those_of_philox_and_seed_sequence():
    expected = np.random.Generator(np.random.Philox(np.random.SeedSequence([5, 2, 3]))).random(4)
    assert np.array_equal(instance_generator([5, 2], 3).random(4), expected)
    evaluation = np.random.Generator(np.random.Philox(np.random.SeedSequence([5, 2, 3], spawn_key=(1,)))).random(4)
    assert np.array_equal(instance_generator([5, 2], 3, "evaluation").random(4), evaluation)
    assert not np.array_equal(expected, evaluation)


def test_named_streams_differ():
    draws = {(seed, name): torch.rand(3, generator=stream(seed, name)).tolist() for seed in (0, 1) for name in "ab"}
    assert len({tuple(value) for value in draws.values()}) == 4
    assert torch.rand(3, generator=stream(0, "a")).tolist() == draws[0, "a"]


@pytest.mark.parametrize("seed", [-1, True, 1.5, "3"])
def test_odd_seeds_are_refused(seed):
    with pytest.raises(ValueError, match="an integer >= 0"):
        check_seed(seed)


def test_global_generators_can_be_put_back():
    state = global_state()
    first = (torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random())  # noqa: NPY002
    set_global_state(state)
    again = (torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random())  # noqa: NPY002
    assert first == again
