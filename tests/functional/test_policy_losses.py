"""Policy losses against hand arithmetic, and the mistakes they must catch."""

import pytest
import torch
from torch.testing import assert_close

from gaitway.functional.policy_losses import (
    clipped_surrogate,
    explained_variance,
    standardise,
    value_error,
    weighted_mean,
)


def test_surrogate_takes_the_pessimistic_side():
    # ratios 1.5, 1.5, 0.5, 0.5 with advantages +1, -1, +1, -1 and clip 0.2:
    # max(-1.5, -1.2) = -1.2; max(1.5, 1.2) = 1.5; max(-0.5, -0.8) = -0.5; max(0.5, 0.8) = 0.8
    log_prob = torch.tensor([1.5, 1.5, 0.5, 0.5]).log()
    loss, ratio = clipped_surrogate(log_prob, torch.zeros(4), torch.tensor([1.0, -1.0, 1.0, -1.0]), clip=0.2)
    assert_close(ratio, torch.tensor([1.5, 1.5, 0.5, 0.5]))
    assert_close(loss, torch.tensor([-1.2, 1.5, -0.5, 0.8]))


def test_surrogate_gradient_is_cut_outside_the_clip_only():
    log_prob = torch.tensor([1.5, 0.5, 1.1]).log().requires_grad_()
    loss, _ = clipped_surrogate(log_prob, torch.zeros(3), torch.ones(3), clip=0.2)
    loss.sum().backward()
    assert_close(log_prob.grad, torch.tensor([0.0, -0.5, -1.1]))


def test_value_error_plain_and_clipped():
    # V = 2, V_old = 1, target 0: plain 4, clipped step V = 1.2 gives 1.44, the larger counts
    value, old, target = torch.tensor([2.0]), torch.tensor([1.0]), torch.tensor([0.0])
    assert_close(value_error(value, old, target, None), torch.tensor([4.0]))
    assert_close(value_error(value, old, target, 0.2), torch.tensor([4.0]))
    # target 3: plain 1, clipped 1.8^2 = 3.24
    assert_close(value_error(value, old, torch.tensor([3.0]), 0.2), torch.tensor([3.24]))


@pytest.mark.parametrize("shapes", [((3,), (3, 1), (3,)), ((3, 1), (3,), (3,))])
def test_shapes_that_would_broadcast_are_refused(shapes):
    with pytest.raises(ValueError, match="broadcasting"):
        clipped_surrogate(*(torch.zeros(shape) for shape in shapes), clip=0.2)
    with pytest.raises(ValueError, match="broadcasting"):
        value_error(*(torch.zeros(shape) for shape in shapes), clip=None)


def test_standardise_uses_the_unbiased_std():
    # (1, 2, 3, 4): mean 2.5, unbiased std sqrt(5/3); the biased one would give another scale
    advantage = torch.tensor([1.0, 2.0, 3.0, 4.0])
    result = standardise(advantage)
    assert_close(result, (advantage - 2.5) / (5 / 3) ** 0.5)
    assert result.std().item() == pytest.approx(1.0, abs=1e-6)
    biased = (advantage - 2.5) / advantage.std(correction=0)
    assert not torch.allclose(result, biased, atol=1e-3)


def test_standardise_with_weights_ignores_rows():
    advantage = torch.tensor([1.0, 2.0, 3.0, 4.0, 1000.0])
    weight = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0])
    assert_close(standardise(advantage, weight)[:4], standardise(advantage[:4]))


def test_weighted_mean():
    x, weight = torch.tensor([1.0, 2.0, 30.0]), torch.tensor([1.0, 1.0, 0.0])
    assert weighted_mean(x, None).item() == pytest.approx(11.0)
    assert weighted_mean(x, weight).item() == pytest.approx(1.5)
    assert weighted_mean(x, torch.zeros(3)).item() == 0.0


def test_explained_variance():
    target = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert explained_variance(target, target).item() == pytest.approx(1.0)
    assert explained_variance(torch.full((4,), 2.5), target).item() == pytest.approx(0.0)
    assert explained_variance(-target, target).item() == pytest.approx(-3.0)
