"""The first episode of every column."""

import pytest
import torch

from gaitway.functional.episode_returns import cumulated_reward, until_first_end

REWARD = torch.tensor([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0], [8.0, 80.0]])
DONE = torch.tensor([[0, 0], [1, 0], [0, 0], [1, 1]]).bool()


def test_sums_by_hand():
    # column 0 ends in row 1: 1 + 2; column 1 in row 3: 10 + 20 + 40 + 80
    assert cumulated_reward(REWARD, DONE, reduce=False).tolist() == [3.0, 150.0]
    mean = cumulated_reward(REWARD, DONE)
    assert isinstance(mean, float)
    assert mean == 76.5


def test_the_mask():
    assert until_first_end(DONE).tolist() == [[True, True], [True, True], [False, True], [False, True]]


def test_what_lies_behind_the_end_does_not_count():
    reward = REWARD.clone()
    reward[2:, 0] = torch.nan
    assert cumulated_reward(reward, DONE.float(), reduce=False).tolist() == [3.0, 150.0]


def test_a_column_without_an_end():
    with pytest.raises(ValueError, match=r"columns \[1\] of 2 have no end in 3 rows; run until"):
        cumulated_reward(REWARD[:3], DONE[:3])
    with pytest.raises(ValueError, match=r"columns \[0, 1\]"):
        cumulated_reward(REWARD[:0], DONE[:0])
