"""The losses of soft actor-critic with written derivatives are those of `soft_losses` with autograd."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gaitway.core.seeding import stream
from gaitway.functional import direct_soft_losses as direct
from gaitway.functional import soft_losses as general

RANGE = (-5.0, 2.0)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=stream(seed, "test"))


def columns(tensor):
    return np.ascontiguousarray(tensor.numpy().T)


@pytest.mark.parametrize("scale", [1.0, 8.0])  # 8: saturated actions and clamped deviations
def test_squashed_actions_and_their_gradient(scale):
    output, noise = (scale * randn(64, 6)).requires_grad_(), randn(64, 3, seed=1)
    action, log_prob = general.squashed_action(output, noise, RANGE)
    drawn = direct.squashed_action(columns(output.detach()), columns(noise), RANGE)
    assert_close(torch.from_numpy(drawn.action.T), action, atol=1e-6, rtol=1e-5)
    assert_close(torch.from_numpy(drawn.log_prob), log_prob, atol=2e-5, rtol=1e-5)
    by_action, by_log_prob = randn(64, 3, seed=2), 0.7
    expected = torch.autograd.grad((action * by_action).sum() + by_log_prob * log_prob.sum(), output)[0]
    found = direct.squashed_gradient(drawn, columns(by_action), by_log_prob)
    assert found.dtype == np.float32
    assert_close(torch.from_numpy(found.T), expected, atol=1e-5, rtol=1e-4)


def test_targets():
    reward, discount, log_prob, values = randn(9), randn(9, seed=1).abs(), randn(9, seed=2), randn(3, 9, seed=3)
    before = values.clone()
    expected = general.soft_target(reward, discount, values, log_prob, torch.tensor(0.3))
    found = direct.soft_target(*(x.numpy() for x in (reward, discount, values, log_prob)), 0.3)
    assert_close(torch.from_numpy(found), expected)
    assert torch.equal(values, before)


@pytest.mark.parametrize("critics", [1, 2, 5])
def test_losses_and_their_gradients(critics):
    values, target, log_prob = randn(critics, 9).requires_grad_(), randn(9, seed=1), randn(9, seed=2)
    for expected, (loss, gradient) in (
        (general.critic_loss(values, target), direct.critic_loss(values.detach().numpy(), target.numpy())),
        (
            general.actor_loss(values, log_prob, torch.tensor(0.3)),
            direct.actor_loss(values.detach().numpy(), log_prob.numpy(), 0.3),
        ),
    ):
        assert loss == pytest.approx(expected.item(), rel=1e-5)
        assert_close(torch.from_numpy(gradient), torch.autograd.grad(expected, values)[0])
