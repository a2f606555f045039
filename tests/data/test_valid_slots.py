"""The list of slots that are experience, against a plain list."""

import random

import torch

from gaitway.data.valid_slots import ValidSlots


def test_against_a_list():
    draw, rows, streams = random.Random(0), 6, 3
    slots, rows_of = ValidSlots(rows, streams), []
    for _ in range(40):
        count = draw.randint(1, rows)
        valid = torch.tensor([[draw.random() < 0.6 for _ in range(streams)] for _ in range(count)])
        numbers = torch.tensor([[draw.randrange(1000) for _ in range(streams)] for _ in range(count)])
        slots.append(len(rows_of), valid, numbers)
        rows_of += [numbers[t][valid[t]].tolist() for t in range(count)]
        for first in range(max(0, len(rows_of) - rows), len(rows_of) + 1):
            for stop in range(first, len(rows_of) + 1):
                held = [slot for row in rows_of[first:stop] for slot in row]
                assert slots.count(first, stop) == len(held)
                assert slots.look_up(first, torch.arange(len(held))).tolist() == held


def test_shapes_and_moving():
    slots = ValidSlots(4, 2)
    slots.append(0, torch.tensor([[True, False], [True, True]]), torch.tensor([[10, 11], [20, 21]]))
    slots.to("cpu")
    assert slots.look_up(0, torch.tensor([[0, 2], [1, 0]])).tolist() == [[10, 21], [20, 10]]
