"""T-QUEUE: a rollout that keeps the rows of earlier ones, all variables alike and nothing that was not written."""

import pytest
import torch

from gaitway.core.workspace import Workspace
from gaitway.data.rolling_rollout import RollingRollout


def rollout(start, steps=4, columns=3):
    """Rows that carry their number; observations and memory with the row behind the last."""
    rows = torch.arange(start, start + steps + 1, dtype=torch.float32)
    column = torch.arange(columns) * 1000.0
    long = rows[:, None] + column
    return Workspace.packed(
        {
            "env/obs/policy": long[..., None].expand(-1, -1, 2).clone(),
            "env/final_obs/policy": long[1:, :, None].expand(-1, -1, 2) + 0.5,
            "action": long[:-1, :, None].clone(),
            "env/reward": long[:-1].clone(),
            "env/terminated": (rows[:-1] % 7 == 6)[:, None].expand(-1, columns).clone(),
            "env/truncated": torch.zeros(steps, columns, dtype=torch.bool),
            "teacher/action": long[:-1, :, None] + 0.25,
            "actor/memory": long[..., None].expand(-1, -1, 5).clone(),
        },
        extra_row=("actor/memory",),
    )


def test_lengths_and_content():
    rolling = RollingRollout(2.5)
    seen = []
    for start in range(0, 20, 4):
        ws = rolling.add(rollout(start))
        first = max(0, start + 4 - 10)
        assert ws["env/reward"][:, 0].tolist() == list(range(first, start + 4))
        seen.append(ws.T)
    assert seen == [4, 8, 10, 10, 10]
    # every variable, every column, every row: as one rollout of the rows 10..19 would be
    expected = rollout(10, 10)
    assert sorted(ws) == sorted(expected)
    for name in expected:
        assert torch.equal(ws[name], expected[name]), name
    assert ws.extra_row == expected.extra_row


def test_what_follows_is_never_a_row_that_was_not_written():
    rolling = RollingRollout(3)
    for start in (0, 4):
        ws = rolling.add(rollout(start))
    following = ws.following("env/obs/policy")[:, 0, 0]
    # the end at row 6 has its final observation; the last row is followed by the extra row
    assert following.tolist() == [1, 2, 3, 4, 5, 6, 7.5, 8]
    assert ws.following("actor/memory")[:, 0, 0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_sequences_are_cut_in_time_and_by_column():
    rolling = RollingRollout(2)
    for start in (0, 4, 8):
        ws = rolling.add(rollout(start))
    part = ws.select([2, 0]).slice(1, 5)
    assert part["actor/memory"][0, :, 0].tolist() == [2005, 5]
    assert part.following("env/obs/policy")[..., 0].tolist() == [[2006, 6], [2007.5, 7.5], [2008, 8], [2009, 9]]


def test_memory_stays_in_place_once_it_is_full():
    """So that recorded updates stay valid."""
    rolling = RollingRollout(2)
    places = [rolling.add(rollout(start)).addresses() for start in range(0, 20, 4)]
    assert len(set(places[1:])) == 1


def test_without_dilation_it_is_the_rollout_itself():
    ws = rollout(0)
    assert RollingRollout(1.0).add(ws) is ws


def test_resuming_is_exact():
    one, other = RollingRollout(2.5), RollingRollout(2.5)
    for start in (0, 4, 8):
        one.add(rollout(start))
    other.load_state_dict(one.state_dict())
    found, expected = other.add(rollout(12)), one.add(rollout(12))
    assert (found.T, other.rows) == (10, 10)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_rollout_of_another_kind_needs_a_clear_memory():
    rolling = RollingRollout(2)
    rolling.add(rollout(0))
    with pytest.raises(ValueError, match="rollouts differ in 'action'"):
        rolling.add(rollout(0, columns=2))
    rolling.clear()
    assert rolling.add(rollout(0, columns=2)).T == 4
    with pytest.raises(ValueError, match=r"dilation is 0\.5; use 1"):
        RollingRollout(0.5)


def test_the_twin_that_rotates_fields_differently_is_found():
    """A ring whose labels are not turned with the observations would pair a state with the label of another."""
    rolling = RollingRollout(2)
    for start in (0, 4, 8):
        ws = rolling.add(rollout(start))
    pairs = ws["teacher/action"] - ws["env/obs/policy"][: ws.T, :, :1]
    assert torch.equal(pairs, torch.full_like(pairs, 0.25))
    broken = ws["teacher/action"].roll(4, 0) - ws["env/obs/policy"][: ws.T, :, :1]
    assert not torch.equal(broken, torch.full_like(broken, 0.25))
