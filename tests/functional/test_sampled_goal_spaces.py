"""Expectations over goal spaces that are drawn; that they are unbiased is in `tests/skills/test_hsd3.py`."""

import math

import pytest
import torch
from torch.testing import assert_close

from gaitway.functional.sampled_goal_spaces import sampled_actor_loss, sampled_target


def one_hot(*spaces):
    """Draws [1, k, 3] of one row."""
    return torch.nn.functional.one_hot(torch.tensor([spaces]), 3).float()


def test_by_hand():
    # p = (1/2, 1/4, 1/4), H = 1.5 log 2; draws 0 and 2 of value 4 and 1 cost 0.5 * 2 - 4 = -3 and 2 * 3 - 1 = 5
    log_probs = torch.tensor([[0.5, 0.25, 0.25]]).log().requires_grad_()
    values = torch.tensor([[[4.0, 1.0]], [[5.0, 7.0]]])
    density, alpha_c = torch.tensor([[2.0, 9.0, 3.0]]), torch.tensor([0.5, 1.0, 2.0])
    bonus = 0.1 * (1.5 * math.log(2) - math.log(3))
    given = (values, log_probs, density, one_hot(0, 2), alpha_c, 0.1)
    target = sampled_target(torch.ones(1), torch.full((1,), 0.9), *given)
    assert_close(target, torch.tensor([1.0 + 0.9 * (bonus - 1.0)]))
    loss = sampled_actor_loss(*given)
    assert_close(loss, torch.tensor(1.0 - bonus))
    (gradient,) = torch.autograd.grad(loss, log_probs)
    # the baseline of a draw is the other one's cost: (-3 - 5) / 2 and (5 + 3) / 2; entropy adds 0.1 p (log p + 1)
    score = torch.tensor([[-4.0, 0.0, 4.0]])
    assert_close(gradient, score + 0.1 * log_probs.detach().exp() * (log_probs.detach() + 1.0))


def test_a_goal_space_that_is_never_chosen_counts_nothing():
    # p = (1/2, 1/2, 0): draws 0 and 1 of value 1 and 3, H = log 2
    log_probs = torch.tensor([[0.5, 0.5, 0.0]]).log().requires_grad_()
    given = (torch.tensor([[[1.0, 3.0]]]), log_probs, torch.zeros(1, 3), one_hot(0, 1), torch.ones(3), 2.0)
    value = 2.0 + 2.0 * (math.log(2) - math.log(3))
    assert_close(sampled_target(torch.ones(1), torch.full((1,), 0.9), *given), torch.tensor([1.0 + 0.9 * value]))
    loss = sampled_actor_loss(*given)
    assert_close(loss, torch.tensor(-value))
    (gradient,) = torch.autograd.grad(loss, log_probs)
    assert torch.isfinite(gradient).all()
    assert gradient[0, 2] == 0


def test_shapes_that_do_not_belong_together_are_refused():
    with pytest.raises(ValueError, match=r"use \[B, k\], \[B, D\] and \[B, k, D\]"):
        sampled_target(
            torch.ones(1),
            torch.ones(1),
            torch.ones(2, 1, 3),
            torch.zeros(1, 3),
            torch.zeros(1, 3),
            one_hot(0, 1),
            torch.ones(3),
            1.0,
        )
