"""Gradients written by hand against autograd of the reference, in float64."""

import pytest
import torch
from torch.testing import assert_close

from gaitway.functional.direct_goal_spaces import deciding_loss, proposed_goals
from gaitway.functional.goal_space_losses import hsd3_actor_loss, mean_log_density
from gaitway.functional.soft_losses import squashed_entries

B, D, G, N = 7, 3, 4, 2
MASK = torch.tensor([[1, 0, 0, 0], [0, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.float64)
RANGE = (-2.0, 0.5)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_proposals_are_those_of_the_reference():
    output = (2.0 * normal(B, D, 2 * G)).requires_grad_(True)
    noise, by_goals, by_density = normal(B, D, G, seed=1), normal(B, D, G, seed=2), normal(B, D, seed=3)
    log_std = output[..., G:]
    assert bool((log_std < RANGE[0]).any() & (log_std > RANGE[1]).any())  # the range matters
    goals, density = squashed_entries(output, noise, RANGE)
    goals, density = goals * MASK, mean_log_density(density, MASK)
    (expected,) = torch.autograd.grad((goals * by_goals).sum() + (density * by_density).sum(), output)
    ours, our_density = proposed_goals(output, noise, RANGE, MASK, MASK / MASK.sum(-1, keepdim=True))
    assert_close(ours, goals)
    assert_close(our_density, density)
    (found,) = torch.autograd.grad((ours * by_goals).sum() + (our_density * by_density).sum(), output)
    assert_close(found, expected)
    masked = found.unflatten(-1, (2, G)).transpose(2, 3)[:, MASK == 0]
    assert not masked.any()


@pytest.mark.parametrize("scale", [1.0, -2.5])
def test_the_loss_is_that_of_the_reference(scale):
    values, logits, density = normal(N, B, D), normal(B, D, seed=1), normal(B, D, seed=2)
    alpha_c, alpha_d = normal(D, seed=3).exp(), torch.tensor(0.3, dtype=torch.float64)
    given = [each.requires_grad_(True) for each in (values, logits.log_softmax(-1).detach(), density)]
    results = [function(*given, alpha_c, alpha_d) for function in (deciding_loss, hsd3_actor_loss)]
    assert_close(results[0], results[1])
    found, expected = (torch.autograd.grad(scale * result, given) for result in results)
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours, theirs)


def test_a_goal_space_that_is_never_chosen_counts_nothing_here_too():
    log_probs = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]], dtype=torch.float64).log()
    given = [each.requires_grad_(True) for each in (normal(N, 2, D), log_probs, normal(2, D, seed=1))]
    alpha_c, alpha_d = normal(D, seed=2).exp(), torch.tensor(0.3, dtype=torch.float64)
    results = [function(*given, alpha_c, alpha_d) for function in (deciding_loss, hsd3_actor_loss)]
    assert torch.isfinite(results[0])
    assert_close(results[0], results[1])
    found, expected = (torch.autograd.grad(result, given) for result in results)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.isfinite(ours).all()
        assert_close(ours, theirs)
    assert all((each[..., 0, 2] == 0).all() for each in found)
