"""Losses with written-out derivatives: hand arithmetic, and autograd in float64 on the formulas PyTorch runs."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gaitway.functional.direct_losses import average, gaussian_kl, gaussian_surrogate, value_loss
from gaitway.functional.policy_losses import clipped_surrogate, value_error, weighted_mean
from gaitway.nn.continuous import Gaussian

N, A = 64, 3


def draw(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def double(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array).double()


def shares() -> dict[str, tuple[np.ndarray | None, torch.Tensor | None]]:
    """The weights of a mean as the two sides take them: all alike, some rows left out, all left out."""
    weight = (np.arange(N) % 3 != 0).astype(np.float32)
    nothing = np.zeros(N, dtype=np.float32)
    return {
        "all": (None, None),
        "some": (weight / weight.sum(), double(weight)),
        "none": (nothing, double(nothing)),
    }


def test_surrogate_by_hand():
    # one dimension, std 2: z = (1 - 0) / 2, (0 - 2) / 2; log_prob = -z^2 / 2 - log 2 - log(2 pi) / 2
    mean, log_std = np.float32([[0.0], [2.0]]), np.float32([math.log(2.0)])
    action, advantage = np.float32([[1.0], [0.0]]), np.float32([3.0, -1.0])
    constant = math.log(2.0) + 0.5 * math.log(2.0 * math.pi)
    old = np.float32([-0.125 - constant - math.log(1.1), -0.5 - constant - math.log(0.5)])  # ratios 1.1 and 0.5
    result = gaussian_surrogate(mean, log_std, action, old, advantage, clip=0.2)
    # sample 1: min(3.3, 3.3); sample 2: min(-0.5, -0.8), the clipped one decides and has no slope
    assert result.loss == pytest.approx(-(3.3 - 0.8) / 2, abs=1e-6)
    assert result.clip_fraction == 0.5
    # d loss / d log_prob = -3.3 / 2; times z / std = 0.25 and z^2 - 1 = -0.75
    assert_close(result.by_mean, np.float32([[-1.65 * 0.25], [0.0]]), atol=1e-6, rtol=0)
    assert_close(result.by_log_std, np.float32([1.65 * 0.75]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", shares())
def test_surrogate_equals_autograd(kind):
    share, weight = shares()[kind]
    mean, action = draw(N, A, seed=0), draw(N, A, seed=1)
    log_std, advantage = 0.3 * draw(A, seed=2), draw(N, seed=3)
    slopes = [double(mean).requires_grad_(), double(log_std).requires_grad_()]
    head = Gaussian(A).double()
    params = torch.cat((slopes[0], slopes[1].exp().expand(N, A)), -1)
    log_prob = head.log_prob(params, double(action))
    old = log_prob.detach().float().numpy() + 0.3 * draw(N, seed=4)
    loss, ratio = clipped_surrogate(log_prob, double(old), double(advantage), 0.2)
    expected = weighted_mean(loss, weight)
    by_mean, by_log_std = torch.autograd.grad(expected, slopes)

    result = gaussian_surrogate(mean, log_std, action, old, advantage, 0.2, share)
    assert result.loss == pytest.approx(expected.item(), abs=1e-5)
    clipped = weighted_mean(((ratio - 1.0).abs() > 0.2).double(), weight)
    assert result.clip_fraction == pytest.approx(clipped.item(), abs=1e-6)
    assert_close(double(result.by_mean), by_mean, atol=1e-6, rtol=1e-4)
    assert_close(double(result.by_log_std), by_log_std, atol=1e-5, rtol=1e-4)
    assert 0.05 < clipped.item() < 0.95 or kind == "none"  # both sides of the clip were seen


@pytest.mark.parametrize("kind", shares())
@pytest.mark.parametrize("clip", [None, 0.3])
def test_value_loss_equals_autograd(kind, clip):
    share, weight = shares()[kind]
    value, old, target = draw(N, seed=0), draw(N, seed=1), draw(N, seed=2)
    slope = double(value).requires_grad_()
    expected = weighted_mean(value_error(slope, double(old), double(target), clip), weight)
    (by_value,) = torch.autograd.grad(expected, slope)
    error, gradient = value_loss(value, old, target, clip, share)
    assert error == pytest.approx(expected.item(), abs=1e-5)
    assert_close(double(gradient), by_value, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("kind", shares())
def test_kl_equals_the_heads(kind):
    share, weight = shares()[kind]
    old = np.concatenate((draw(N, A, seed=0), np.exp(0.3 * draw(N, A, seed=1))), 1)
    mean, log_std = draw(N, A, seed=2), 0.3 * draw(A, seed=3)
    new = torch.cat((double(mean), double(log_std).exp().expand(N, A)), -1)
    expected = weighted_mean(Gaussian(A).double().kl(double(old), new), weight)
    assert gaussian_kl(old, mean, log_std, share) == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)


def test_arguments_stay_as_they_were():
    arrays = [draw(N, A, seed=0), draw(A, seed=1), draw(N, A, seed=2), draw(N, seed=3), draw(N, seed=4)]
    copies = [array.copy() for array in arrays]
    gaussian_surrogate(*arrays, 0.2)
    gaussian_kl(np.exp(draw(N, 2 * A, seed=5)), arrays[0], arrays[1])
    value_loss(arrays[3], arrays[4], arrays[3], 0.2)
    assert all(np.array_equal(array, copy) for array, copy in zip(arrays, copies, strict=True))


def test_average():
    assert average(np.float32([1.0, 2.0, 6.0]), None) == 3.0
    assert average(np.array([True, False, True, True]), None) == 0.75
    assert average(np.array([True, False]), np.float32([0.25, 0.75])) == 0.25
