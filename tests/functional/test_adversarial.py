"""T-AMP-D and T-AMP-GP: what a discriminator learns and what its penalty is, by arithmetic and beside broken twins."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gaitway.functional.adversarial import (
    FORMS,
    gradient_penalty,
    hinge_loss,
    input_gradient,
    least_squares_loss,
    saturation,
    style_reward,
    wasserstein_loss,
)

EXPERT, POLICY = torch.tensor([2.0, 0.5]), torch.tensor([-1.5, 0.0, 0.5])


def test_losses_by_hand():
    # (1 + 0.25) / 2 / 2;  (0.25 + 1 + 2.25) / 3 / 2
    assert_close(torch.stack(least_squares_loss(EXPERT, POLICY)), torch.tensor([0.3125, 3.5 / 6]))
    # max(0, -1), 0.5;  0, 1, 1.5
    assert_close(torch.stack(hinge_loss(EXPERT, POLICY)), torch.tensor([0.25, 2.5 / 3]))
    assert_close(torch.stack(wasserstein_loss(EXPERT, POLICY)), torch.tensor([-1.25, -1.0 / 3]))


def test_rewards_by_hand():
    scores = torch.tensor([-3.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0])
    expected = torch.tensor([0.0, 0.0, 0.75, 0.9375, 1.0, 0.75, 0.0])
    for form in ("least_squares", "hinge"):
        assert_close(FORMS[form].reward(scores), expected)
    found = FORMS["wasserstein"].reward(scores)
    assert_close(found, (scores - scores.mean()) / scores.std(), atol=1e-6, rtol=1e-6)
    assert_close(saturation(style_reward(scores)), torch.tensor(4 / 7))


# --- T-AMP-D: at the optimum D is (p_expert - p_policy) / (p_expert + p_policy) ---


def fitted(form_loss, expert_mean, policy_mean, steps=400):
    """A discriminator of one number, fitted to samples of two normal distributions with deviation 1."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(steps):
        expert, policy = expert_mean + torch.randn(512, 1), policy_mean + torch.randn(512, 1)
        loss = sum(form_loss(network(expert), network(policy)))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return network


def largest_error(network):
    """From tanh(x), on which D of N(1, 1) against N(-1, 1) settles."""
    x = torch.linspace(-2.0, 2.0, 41)[:, None]
    with torch.no_grad():
        return (network(x) - x.tanh()).abs().max().item()


def test_amp_d_is_tanh():
    assert largest_error(fitted(least_squares_loss, 1.0, -1.0)) < 0.1


@pytest.mark.parametrize(
    "broken",
    [
        lambda expert, policy: least_squares_loss(policy, expert),
        lambda expert, policy: (0.5 * (expert - 1.0).square().mean(), 0.5 * policy.square().mean()),
    ],
    ids=["labels swapped", "targets 0 and 1"],
)
def test_amp_d_sees_broken_twins(broken):
    assert largest_error(fitted(broken, 1.0, -1.0, 300)) > 0.3


def test_amp_d_of_equal_distributions():
    network = fitted(least_squares_loss, 0.0, 0.0)
    with torch.no_grad():
        score = network(torch.randn(4096, 1))
    assert score.abs().mean() < 0.1
    assert style_reward(score).mean().item() == pytest.approx(0.75, abs=0.05)


# --- T-AMP-GP: the penalty of a linear D is lambda |w|^2, and its gradient 2 lambda w ---


def test_amp_gp_of_a_linear_discriminator():
    weight = torch.tensor([[0.5, -2.0, 1.0]], requires_grad=True)
    x = torch.randn(7, 3)
    penalty = 3.0 * gradient_penalty(input_gradient(lambda rows: rows @ weight.T, x))
    assert_close(penalty, torch.tensor(3.0 * 5.25))
    (gradient,) = torch.autograd.grad(penalty, weight)
    assert_close(gradient, 2 * 3.0 * weight.detach())


def test_amp_gp_sees_broken_twins():
    weight = torch.tensor([[0.5, -2.0, 1.0]], requires_grad=True)
    x, scale = torch.randn(7, 3), torch.tensor([3.0, 1.0, 0.5])

    def network(rows):
        return rows @ weight.T

    leaf = x.clone().requires_grad_()
    without_graph = torch.autograd.grad(network(leaf).sum(), leaf)[0]
    assert not gradient_penalty(without_graph).requires_grad  # nothing would be learnt from it
    not_squared = input_gradient(network, x).norm(dim=-1).mean()
    assert abs(not_squared.item() - 5.25) > 1
    on_raw = gradient_penalty(input_gradient(lambda rows: network(rows * scale), x))  # D reads rows * scale
    assert abs(on_raw.item() - 5.25) > 1


def test_a_slope_of_one_is_free_and_others_are_not():
    rows = torch.tensor([[0.6, 0.8], [3.0, 4.0], [0.0, 0.0]])
    assert_close(gradient_penalty(rows, 1.0), torch.tensor((0.0 + 16.0 + 1.0) / 3))
    flat = torch.zeros(1, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(gradient_penalty(flat, 1.0), flat)
    assert torch.isfinite(gradient).all()  # a root at 0 has no slope; this one is kept from it
