"""Random columns and windows of a workspace."""

import pytest
import torch
from torch.testing import assert_close

from gaitway.core.sampling import minibatches_of, sample_windows, select_random, select_windows
from gaitway.core.workspace import Workspace


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def counting(rows, batch):
    """[rows, batch] with 10 * t + b."""
    return torch.arange(rows)[:, None] * 10 + torch.arange(batch)


def test_columns_with_and_without_replacement(generator):
    ws = Workspace.packed({"x": counting(2, 5)})
    drawn = select_random(ws, 100, generator)
    assert set(drawn["x"][0].tolist()) == {0, 1, 2, 3, 4}
    assert sorted(select_random(ws, 5, generator, replace=False)["x"][0].tolist()) == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="6 of 5"):
        select_random(ws, 6, generator, replace=False)
    with pytest.raises(ValueError, match="-1 columns"):
        select_random(ws, -1, generator)


def test_bug_16_draws_come_from_the_generator_only():
    ws = Workspace.packed({"x": counting(6, 5)})
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, again = (sample_windows(ws, 3, 2, 2, torch.Generator().manual_seed(7))["x"] for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(torch.get_rng_state(), before)


def test_windows_start_where_told():
    ws = Workspace.packed({"x": counting(5, 3), "env/obs/policy": counting(6, 3)})
    out = select_windows(ws, torch.tensor([3, 0, 1]), 2)
    assert out["x"].tolist() == [[30, 1, 12], [40, 11, 22]]
    assert out["env/obs/policy"].tolist() == [[30, 1, 12], [40, 11, 22], [50, 21, 32]]
    assert out.T == 2


def test_windows_stay_inside():
    ws = Workspace.packed({"x": counting(5, 2)})
    for start in ([4, 0], [-1, 0]):
        with pytest.raises(IndexError, match=r"0\.\.3"):
            select_windows(ws, torch.tensor(start), 2)
    for start in (torch.tensor([0]), torch.tensor([0.0, 1.0]), torch.tensor([True, False])):
        with pytest.raises(ValueError, match="one integer per column"):
            select_windows(ws, start, 2)


def test_bug_03_every_start_is_drawn_and_time_is_consecutive(generator):
    ws = Workspace.packed({"x": counting(5, 3)})
    out = sample_windows(ws, 200, 2, 3, generator)["x"]
    assert out.shape == (3, 400)
    assert set((out[0] // 10).tolist()) == {0, 1, 2}  # T - n_steps = 2 is possible
    assert_close(out[1:], out[:-1] + 10)
    columns = (out[0] % 10).reshape(200, 2)
    assert (columns[:, 0] != columns[:, 1]).all()
    with pytest.raises(ValueError, match="cannot draw"):
        sample_windows(ws, 1, 4, 3, generator)
    with pytest.raises(ValueError, match="cannot draw"):
        sample_windows(ws, 1, 2, 6, generator)


def test_minibatches_of_samples_hold_each_one_once_in_all_fields(generator):
    fields = {"a": torch.arange(7), "b": 10.0 * torch.arange(7)[:, None].expand(7, 2)}
    for drop_last, sizes in ((False, [3, 3, 1]), (True, [3, 3])):
        pieces = list(minibatches_of(fields, 3, generator, drop_last))
        assert [len(piece["a"]) for piece in pieces] == sizes
        seen = torch.cat([piece["a"] for piece in pieces])
        assert len(seen.unique()) == len(seen)
        assert_close(torch.cat([piece["b"] for piece in pieces]), 10.0 * seen[:, None].expand(-1, 2))
    first, again = (
        torch.cat([p["a"] for p in minibatches_of(fields, 2, torch.Generator().manual_seed(3))]) for _ in "12"
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, torch.arange(7))
    assert list(minibatches_of({}, 3, generator)) == []
    with pytest.raises(ValueError, match="'a' has 7 samples but 'b' has 6"):
        next(minibatches_of(fields | {"b": fields["b"][1:]}, 3, generator))
    with pytest.raises(ValueError, match="minibatch size"):
        next(minibatches_of(fields, 0, generator))
