"""T-SPLIT: cutting rollouts into episodes and putting them back, bit for bit."""

import pytest
import torch
from torch.testing import assert_close

from gaitway.functional.sequences import (
    chained_layout,
    episode_layout,
    episode_starts,
    join_episodes,
    split_at_resets,
)


def flags(*columns: str) -> torch.Tensor:
    """One string per environment, one character per row: x for true."""
    return torch.tensor([[mark == "x" for mark in column] for column in columns]).t().contiguous()


def test_an_episode_starts_after_the_row_that_ended_one():
    done = flags("..x.x", "x...x")
    assert torch.equal(episode_starts(done), flags("...x.", ".x..."))
    assert torch.equal(episode_starts(done, first=torch.tensor([False, True])), flags("...x.", "xx..."))
    assert torch.equal(episode_starts(done.float()), flags("...x.", ".x..."))
    with pytest.raises(ValueError, match="one flag per column"):
        episode_starts(done, first=torch.tensor([True]))
    with pytest.raises(ValueError, match="trailing axis"):
        episode_starts(done.unsqueeze(-1))


def test_worked_example():
    # a1 a2 a3 a4|a5 a6 and b1 b2|b3 b4 b5|b6: five pieces of lengths 4, 2, 2, 3, 1
    x = torch.tensor([[1, 2, 3, 4, 5, 6], [11, 12, 13, 14, 15, 16]]).t()
    done = flags("...x..", ".x..x.")
    padded, mask = split_at_resets(x, done)
    expected = [
        [1, 2, 3, 4, 0, 0],
        [5, 6, 0, 0, 0, 0],
        [11, 12, 0, 0, 0, 0],
        [13, 14, 15, 0, 0, 0],
        [16, 0, 0, 0, 0, 0],
    ]
    assert padded.t().tolist() == expected
    assert mask.sum(0).tolist() == [4, 2, 2, 3, 1]
    assert torch.equal(join_episodes(padded, mask), x)


def test_layout_counts_without_padding_to_the_rollout():
    layout = episode_layout(episode_starts(flags("...x..", ".x..x.")))
    assert (layout.num_episodes, layout.longest) == (5, 4)
    assert layout.column.t().tolist() == [[0, 0, 0, 0, 1, 1], [2, 2, 3, 3, 3, 4]]
    assert layout.row.t().tolist() == [[0, 1, 2, 3, 0, 1], [0, 1, 0, 1, 2, 0]]
    with pytest.raises(ValueError, match="at least one row"):
        episode_layout(torch.zeros(0, 3, dtype=torch.bool))


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.4, 1.0])
@pytest.mark.parametrize("rows", [1, 2, 24])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((), torch.float32), ((7,), torch.float32), ((3, 5, 4), torch.uint8), ((2,), torch.bool), ((1,), torch.int64)],
)
def test_round_trip_is_bitwise(rate, rows, shape, dtype):
    generator = torch.Generator().manual_seed(rows)
    x = torch.randint(1, 256, (rows, 6, *shape), generator=generator).to(dtype)  # no zeros: they mark the padding
    if dtype == torch.float32:
        x = torch.randn(x.shape, generator=generator)
        x[0, 0] = torch.nan
    done = torch.rand(rows, 6, generator=generator) < rate
    padded, mask = split_at_resets(x, done)
    assert padded.dtype == dtype
    assert padded.shape == (rows, 6 + int(done[:-1].sum()), *shape)
    assert not padded[~mask].any()
    joined = join_episodes(padded, mask)
    assert joined.dtype == dtype
    assert joined.is_contiguous()
    assert joined.numpy().tobytes() == x.numpy().tobytes()


def test_mutations_fail():
    x = torch.randint(1, 256, (6, 2, 2, 2), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    done = flags("...x..", ".x..x.")
    padded, mask = split_at_resets(x, done)
    trimmed = join_episodes(padded[:4], mask[:4])  # padded to the longest piece only: T is not restored
    assert trimmed.shape != x.shape
    time_major = padded[mask].unflatten(0, (6, 2))  # rows in the order of memory, not environment by environment
    assert not torch.equal(time_major, x)
    reordered = torch.arange(4, -1, -1)  # columns in another order
    assert not torch.equal(join_episodes(padded[:, reordered], mask[:, reordered]), x)
    _, late = split_at_resets(x, done.roll(1, 0))  # cut one row late
    assert late.sum(0).tolist() != mask.sum(0).tolist()


def test_gradient_passes_through_the_round_trip():
    x = torch.randn(6, 3, 2, generator=torch.Generator().manual_seed(0), requires_grad=True)
    done = flags("..x...", "x.x.x.", "......")
    padded, mask = split_at_resets(x, done)
    weight = torch.arange(x.numel()).view_as(x).float()
    (join_episodes(padded, mask) * weight).sum().backward()
    assert_close(x.grad, weight)


def test_wrong_shapes_are_named():
    done = flags("..x.", "....")
    with pytest.raises(ValueError, match=r"x is \[3, 2\] but done is \[4, 2\]"):
        split_at_resets(torch.zeros(3, 2), done)
    padded, mask = split_at_resets(torch.zeros(4, 2), done)
    with pytest.raises(ValueError, match="expected"):
        join_episodes(padded, mask.float())
    with pytest.raises(ValueError, match="all episodes of each environment"):
        join_episodes(padded[:, :1], mask[:, :1])


class TestChained:
    def test_an_empty_row_in_front_of_every_later_piece(self):
        layout, empty = chained_layout(flags("......", "..x...", ".x..x."))
        x = torch.arange(1.0, 19.0).view(6, 3, 1)
        padded = layout.split(x, layout.longest)
        assert padded[:, 2, 0].tolist() == [3.0, 0.0, 6.0, 9.0, 12.0, 0.0, 15.0, 18.0]
        assert sorted(empty.tolist()) == [1 * 3 + 2, 2 * 3 + 1, 5 * 3 + 2]
        assert torch.equal(layout.join(padded), x)

    def test_many_short_pieces_are_better_off_in_columns_of_their_own(self):
        assert chained_layout(torch.ones(12, 5, dtype=torch.bool)) is None
