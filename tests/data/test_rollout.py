"""Minibatches: everything exactly once, all fields of a batch from the same rows, refusals that name a way out."""

import pytest
import torch

from gaitway.core.seeding import stream
from gaitway.data.rollout import Minibatches, check_minibatches


def fields(steps=6, envs=4):
    t = torch.arange(steps).view(-1, 1).expand(steps, envs)
    b = torch.arange(envs).view(1, -1).expand(steps, envs)
    return {"t": t.clone(), "b": b.clone(), "x": torch.stack([t, b], -1).float()}


def test_samples_come_exactly_once_and_stay_together():
    seen = []
    for batch in Minibatches(3).epoch(fields(), stream(0, "minibatch")):
        assert batch["t"].shape == (8,)
        assert batch["x"].shape == (8, 2)
        assert torch.equal(batch["x"], torch.stack([batch["t"], batch["b"]], -1).float())
        seen += list(zip(batch["t"].tolist(), batch["b"].tolist(), strict=True))
    assert sorted(seen) == [(t, b) for t in range(6) for b in range(4)]


def test_each_epoch_has_its_own_order_and_the_stream_decides_it():
    def orders(seed):
        cutter, generator = Minibatches(2), stream(seed, "minibatch")
        epochs = [list(cutter.epoch(fields(), generator)) for _ in range(1)]
        first = torch.cat([batch["t"] * 10 + batch["b"] for batch in epochs[0]]).clone()
        second = torch.cat([batch["t"] * 10 + batch["b"] for batch in cutter.epoch(fields(), generator)]).clone()
        return first, second

    first, second = orders(0)
    assert not torch.equal(first, second)
    assert all(torch.equal(a, b) for a, b in zip(orders(0), (first, second), strict=True))
    assert not torch.equal(orders(1)[0], first)


def test_columns_keep_sequences_whole_with_their_state():
    data = fields() | {"state": torch.arange(4).view(-1, 1).float()}
    seen = []
    for batch in Minibatches(2, "columns").epoch(data, stream(0, "minibatch"), columns=("state",)):
        assert batch["t"].shape == (6, 2)
        assert torch.equal(batch["t"], torch.arange(6).view(-1, 1).expand(6, 2))
        assert torch.equal(batch["state"][:, 0].long(), batch["b"][0])
        assert (batch["b"] == batch["b"][0]).all()
        seen += batch["b"][0].tolist()
    assert sorted(seen) == [0, 1, 2, 3]


def test_buffers_keep_their_address():
    cutter, generator = Minibatches(2), stream(0, "minibatch")
    first = [batch["x"].data_ptr() for batch in cutter.epoch(fields(), generator)]
    second = [batch["x"].data_ptr() for batch in cutter.epoch(fields(), generator)]
    assert first == second


def test_a_number_that_does_not_divide_is_refused_with_one_that_does():
    with pytest.raises(ValueError, match=r"algorithm.minibatches is 5.*24 samples.*use algorithm.minibatches=4"):
        check_minibatches(24, 5, "samples")
    with pytest.raises(ValueError, match=r"use algorithm.minibatches=2"):
        check_minibatches(2, 3, "environments")
    with pytest.raises(ValueError, match=r"use algorithm.minibatches=1"):
        check_minibatches(7, 0, "environments")
    check_minibatches(24, 24, "samples")
