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


def test_buffers_keep_their_address_until_shapes_change():
    cutter, generator = Minibatches(2), stream(0, "minibatch")
    assert cutter.fill(fields(), generator)
    first = cutter.batches
    assert not cutter.fill(fields(), generator)
    assert cutter.batches is first
    assert cutter.fill(fields(steps=8), generator)
    assert cutter.batches[0]["t"].shape == (16,)
    assert cutter.fill(fields(steps=8) | {"new": torch.zeros(8, 4)}, generator)


def mixed(steps=6, envs=4):
    """Fields of every kind that say in each row which one they belong to: t * 100 + b."""
    row = 100 * torch.arange(steps).view(-1, 1) + torch.arange(envs)
    return {
        "picture": row.float().view(steps, envs, 1, 1).expand(steps, envs, 2, 3).clone(),
        "one": row.float(),
        "vector": row.float().unsqueeze(-1).repeat(1, 1, 5),
        "column of one": row.float().unsqueeze(-1),
        "two": row.float() + 0.5,
        "double": row.double(),
        "index": row.clone(),
        "flag": row % 2 == 0,
        "nothing": torch.zeros(steps, envs, 0),
    }


@pytest.mark.parametrize("over", ["samples", "columns"])
def test_all_kinds_of_fields_stay_together(over):
    data, cutter, generator = mixed(), Minibatches(2, over), stream(0, "minibatch")
    leading = (12,) if over == "samples" else (6, 2)
    cutter.pack(data)
    for _ in range(2):  # a rollout is packed once and shuffled for every pass
        cutter.shuffle(generator)
        seen = []
        for batch in cutter.batches:
            assert list(batch) == list(data)
            row = batch["index"]
            assert row.shape == leading
            seen += row.flatten().tolist()
            for name, value in batch.items():
                assert value.shape == (*leading, *data[name].shape[2:]), name
                assert value.dtype == data[name].dtype, name
                if name != "nothing" and value.dtype.is_floating_point:
                    expected = row.double() + (0.5 if name == "two" else 0.0)
                    assert (value.double() == expected.view(*leading, *(1 for _ in value.shape[len(leading) :]))).all()
            assert torch.equal(batch["flag"], row % 2 == 0)
        assert sorted(seen) == sorted(data["index"].flatten().tolist())


def test_packed_fields_begin_at_16_bytes_and_scalars_lie_in_one_piece():
    cutter = Minibatches(2)
    cutter.fill(mixed(), stream(0, "minibatch"))
    for name in ("picture", "vector", "column of one"):
        assert cutter.batches[1][name].data_ptr() % 16 == 0, name
        assert cutter.batches[1][name].stride(0) % 4 == 0, name
    assert cutter.batches[1]["one"].is_contiguous()


def test_fields_changed_in_place_are_packed_again():
    data, cutter, generator = mixed(), Minibatches(1), stream(0, "minibatch")
    cutter.fill(data, generator)
    data["one"] += 7.0
    assert not cutter.pack(data)
    cutter.shuffle(generator)
    (batch,) = cutter.batches
    assert torch.equal(batch["one"], batch["index"].float() + 7.0)


def test_a_number_that_does_not_divide_is_refused_with_one_that_does():
    with pytest.raises(ValueError, match=r"algorithm.minibatches is 5.*24 samples.*use algorithm.minibatches=4"):
        check_minibatches(24, 5, "samples")
    with pytest.raises(ValueError, match=r"use algorithm.minibatches=2"):
        check_minibatches(2, 3, "environments")
    with pytest.raises(ValueError, match=r"use algorithm.minibatches=1"):
        check_minibatches(7, 0, "environments")
    check_minibatches(24, 24, "samples")
