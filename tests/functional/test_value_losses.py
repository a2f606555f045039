"""Targets and losses of action values, by hand."""

import pytest
import torch
from torch.testing import assert_close

from gaitway.functional.value_losses import (
    double_target,
    greedy_target,
    huber,
    least_target,
    smoothed_action,
    taken,
)

REWARD, DISCOUNT = torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.0])
TARGET = torch.tensor([[4.0, 6.0], [8.0, 2.0]])


def test_the_greedy_target_takes_the_best_action_and_stops_at_a_termination():
    assert_close(greedy_target(REWARD, DISCOUNT, TARGET), torch.tensor([1.0 + 0.5 * 6.0, 2.0]))


def test_the_double_target_values_what_the_online_network_chooses():
    online = torch.tensor([[9.0, 1.0], [0.0, 1.0]])  # chooses action 0, then action 1
    assert_close(double_target(REWARD, DISCOUNT, TARGET, online), torch.tensor([1.0 + 0.5 * 4.0, 2.0]))


def test_the_least_of_the_critics_counts():
    values = torch.tensor([[4.0, 8.0], [6.0, 2.0]])  # two critics, two transitions
    assert_close(least_target(REWARD, torch.tensor([0.5, 1.0]), values), torch.tensor([3.0, 4.0]))


def test_noise_on_target_actions_is_clipped_and_stays_within_the_range():
    action, noise = torch.tensor([[0.0, 0.9, -0.2]]), torch.tensor([[10.0, 1.0, -1.0]])
    # 0.2 * noise = 2, 0.2, -0.2; cut to 0.5, 0.2, -0.2; sums 0.5, 1.1 -> 1, -0.4
    assert_close(smoothed_action(action, noise, 0.2, 0.5), torch.tensor([[0.5, 1.0, -0.4]]))


def test_values_of_the_actions_taken():
    assert_close(taken(TARGET, torch.tensor([1, 0])), torch.tensor([6.0, 8.0]))
    with pytest.raises(ValueError, match=r"use \[B, A\] and \[B\]"):
        taken(TARGET, torch.tensor([[1], [0]]))


def test_huber_is_half_the_square_and_then_a_line_with_one_slope():
    error = torch.tensor([-3.0, -0.5, 0.0, 1.0, 4.0], dtype=torch.float64, requires_grad=True)
    # width 2: 2 * (3 - 1) = 4; 0.125; 0; 0.5; 2 * (4 - 1) = 6
    found = huber(error, 2.0)
    assert_close(found.detach(), torch.tensor([4.0, 0.125, 0.0, 0.5, 6.0], dtype=torch.float64))
    found.sum().backward()
    assert_close(error.grad, torch.tensor([-2.0, -0.5, 0.0, 1.0, 2.0], dtype=torch.float64))
