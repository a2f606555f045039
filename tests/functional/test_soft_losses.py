"""Soft actor-critic's losses against hand arithmetic and against formulas written differently, in float64."""

import math

import pytest
import torch
from torch.testing import assert_close

from gaitway.core.seeding import stream
from gaitway.functional.soft_losses import (
    actor_loss,
    actor_loss_discrete,
    critic_loss,
    soft_target,
    soft_target_discrete,
    squashed_action,
    temperature_gradient,
)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=stream(seed, "test"), dtype=torch.float64)


def distribution(output, low=-5.0, high=2.0):
    mean, log_std = output.chunk(2, -1)
    normal = torch.distributions.Normal(mean, log_std.clamp(low, high).exp())
    squash = torch.distributions.TanhTransform(cache_size=1)
    return torch.distributions.TransformedDistribution(normal, squash), normal


def test_a_squashed_action_has_the_density_of_the_distribution():
    output, noise = randn(50, 6), randn(50, 3, seed=1)
    action, log_prob = squashed_action(output, noise, (-5.0, 2.0))
    squashed, normal = distribution(output)
    expected = torch.tanh(normal.mean + normal.stddev * noise)
    assert_close(action, expected)
    assert_close(log_prob, squashed.log_prob(expected).sum(-1), atol=1e-8, rtol=1e-8)


def test_the_density_integrates_to_one():
    # the noise is drawn from N(0, 1), so E[f(action) / density] is the integral of f: here of 1 over (-1, 1)
    noise = torch.linspace(-8.0, 8.0, 20001, dtype=torch.float64).unsqueeze(-1)
    output = torch.tensor([[0.3, -0.7]], dtype=torch.float64).expand(len(noise), 2)
    action, log_prob = squashed_action(output, noise, (-5.0, 2.0))
    assert torch.trapezoid(log_prob.exp(), action.squeeze(-1)).item() == pytest.approx(1.0, abs=1e-6)


def test_gradients_of_action_and_density():
    output = randn(5, 4).requires_grad_()
    noise = randn(5, 2, seed=1)
    assert torch.autograd.gradcheck(lambda x: squashed_action(x, noise, (-5.0, 2.0)), (output,))
    _, normal = distribution(output)
    squashed, _ = distribution(output)
    action = torch.tanh(normal.mean + normal.stddev * noise)
    by_hand = torch.autograd.grad(squashed.log_prob(action).sum(), output)[0]
    found = torch.autograd.grad(squashed_action(output, noise, (-5.0, 2.0))[1].sum(), output)[0]
    assert_close(found, by_hand, atol=1e-7, rtol=1e-7)


def test_saturated_actions_keep_finite_densities_and_gradients():
    output = torch.tensor([[30.0, -30.0, 9.0, -9.0]], requires_grad=True)  # deviations far out of their range, too
    action, log_prob = squashed_action(output, torch.tensor([[0.5, -0.5]]), (-5.0, 2.0))
    assert action.abs().max() == 1.0
    # log N = -1/8 - log_std - log(2 pi)/2 for log_std 2 and -5, u = 30 + e^2/2 and -30 - e^-5/2; -log(1 - tanh^2 u) is
    # 2 |u| - 2 log 2 out there
    u = 30.0 + math.exp(2.0) / 2, 30.0 + math.exp(-5.0) / 2
    expected = 2 * (-0.125 - 0.5 * math.log(2 * math.pi)) - 2.0 + 5.0 + 2 * sum(u) - 4 * math.log(2.0)
    assert log_prob.item() == pytest.approx(expected, rel=1e-6)
    gradient = torch.autograd.grad(log_prob.sum(), output)[0]
    assert_close(gradient, torch.tensor([[2.0, -2.0, 0.0, 0.0]]))  # the clamp passes nothing


def test_the_target_takes_the_smallest_critic_and_stops_where_the_episode_terminated():
    # 1 + 0.9 * (min(4, 2) - 0.5 * -1) = 3.25; terminated: the reward alone; min(0, 3) - 0.5 * 2 = -1, twice discounted
    target = soft_target(
        reward=torch.tensor([1.0, 2.0, 3.0]),
        discount=torch.tensor([0.9, 0.0, 0.81]),
        next_values=torch.tensor([[4.0, 7.0, 0.0], [2.0, 8.0, 3.0]]),
        next_log_prob=torch.tensor([-1.0, -5.0, 2.0]),
        alpha=torch.tensor(0.5),
    )
    assert_close(target, torch.tensor([3.25, 2.0, 3.0 + 0.81 * -1.0]))


def test_the_discrete_target_is_the_expectation():
    # p = (1/4, 3/4), min = (1, 2): 0.25 (1 - log(1/4)) + 0.75 (2 - log(3/4)) with alpha 1
    log_probs = torch.tensor([[0.25, 0.75]]).log()
    values = torch.tensor([[[1.0, 5.0]], [[3.0, 2.0]]])
    target = soft_target_discrete(torch.tensor([1.0]), torch.tensor([0.5]), values, log_probs, alpha=torch.tensor(1.0))
    soft = 0.25 * (1 - math.log(0.25)) + 0.75 * (2 - math.log(0.75))
    assert target.item() == pytest.approx(1.0 + 0.5 * soft)


def test_the_critics_loss_is_half_the_mean_square_summed_over_critics():
    values, target = torch.tensor([[1.0, 2.0], [4.0, 0.0]]), torch.tensor([0.0, 1.0])
    assert critic_loss(values, target).item() == pytest.approx(0.5 * (1 + 1) / 2 + 0.5 * (16 + 1) / 2)
    with pytest.raises(ValueError, match=r"\[N, B\] and \[B\]"):
        critic_loss(values, target.unsqueeze(-1))


def test_the_actors_loss():
    # mean of 0.5 * -1 - 1 and 0.5 * 3 - (-2)
    values, log_prob = torch.tensor([[1.0, 5.0], [4.0, -2.0]], requires_grad=True), torch.tensor([-1.0, 3.0])
    loss = actor_loss(values, log_prob, torch.tensor(0.5))
    assert loss.item() == pytest.approx((-1.5 + 3.5) / 2)
    assert torch.autograd.grad(loss, values)[0].tolist() == [[-0.5, 0.0], [0.0, -0.5]]


def test_the_discrete_actors_loss_is_the_expectation_and_its_optimum_is_the_softmax():
    values = randn(2, 7, 4)
    alpha = torch.tensor(0.7, dtype=torch.float64)
    logits = randn(7, 4, seed=1).requires_grad_()
    probabilities = logits.softmax(-1)
    expected = (probabilities * (alpha * probabilities.log() - values.amin(0))).sum(-1).mean()
    assert_close(actor_loss_discrete(values, logits.log_softmax(-1), alpha), expected)
    best = (values.amin(0) / alpha).requires_grad_()
    gradient = torch.autograd.grad(actor_loss_discrete(values, best.log_softmax(-1), alpha), best)[0]
    assert gradient.abs().max() < 1e-12


def test_the_temperatures_gradient_is_that_of_its_loss():
    log_alpha, log_prob = torch.tensor(0.3, requires_grad=True), torch.tensor([1.0, -2.0, 4.0])
    loss = -(log_alpha * (log_prob + -2.0)).mean()
    found = temperature_gradient(-log_prob.mean(), -2.0)
    assert_close(found, torch.autograd.grad(loss, log_alpha)[0])
    assert temperature_gradient(torch.tensor(-3.0), -2.0) < 0  # too little entropy: descent raises the temperature
