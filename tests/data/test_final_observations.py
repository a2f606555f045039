"""The table of final observations: entries are given, come back and never move."""

import torch

from gaitway.data.final_observations import FinalObservations
from gaitway.data.ring import RowLayout

LAYOUT = RowLayout({"x": ((2,), torch.float32)})


def values(*numbers):
    return {"x": torch.tensor([[number, -number] for number in numbers], dtype=torch.float32)}


def test_entries_are_kept_until_their_row_is_gone():
    table = FinalObservations(LAYOUT, 4)
    early = table.store([3, 3], values(1, 2))
    late = table.store([5], values(3))
    assert len({0, *early.tolist(), *late.tolist()}) == 4  # nobody gets entry 0
    assert table.columns["x"][early].tolist() == [[1, -1], [2, -2]]
    words = table.words
    table.release(4)
    assert len(table) == 1
    again = table.store([6, 6], values(7, 8))
    assert table.words is words
    assert set(again.tolist()) == set(early.tolist())
    assert table.columns["x"][late].tolist() == [[3, -3]]


def test_growing_keeps_every_entry_where_it_is():
    table = FinalObservations(LAYOUT, 2)
    stored = {}
    for row in range(20):
        (entry,) = table.store([row], values(row)).tolist()
        assert entry not in (0, *stored)
        stored[entry] = row
    assert len(table) == 20
    for entry, row in stored.items():
        assert table.columns["x"][entry].tolist() == [row, -row]
    assert table.columns["x"][0].tolist() == [0, 0]


def test_clearing_and_moving():
    table = FinalObservations(LAYOUT, 3)
    table.store([0, 1], values(1, 2))
    words = table.words
    table.to("cpu")
    table.clear()
    assert len(table) == 0
    table.store([0, 1], values(3, 4))
    assert table.words.shape == words.shape
