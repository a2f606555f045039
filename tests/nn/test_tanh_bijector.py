"""tanh as a change of variables, against float64 and by numerical integration."""

import math

import pytest
import torch
from torch.testing import assert_close

from gaitway.nn.tanh_bijector import TanhBijector


def test_forward_and_inverse():
    u = torch.linspace(-6, 6, 101, dtype=torch.float64)
    a = TanhBijector.forward(u)
    assert_close(a, torch.tensor([math.tanh(x) for x in u.tolist()], dtype=torch.float64))
    assert_close(TanhBijector.inverse(a), u, atol=1e-9, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inverse_stops_one_rounding_before_the_limit(dtype):
    eps = torch.finfo(dtype).eps
    edge = TanhBijector.inverse(torch.tensor([1.0, 1.5, -1.0, -math.inf], dtype=dtype))
    expected = 0.5 * math.log((2 - eps) / eps)  # atanh(1 - eps)
    assert_close(edge, torch.tensor([expected, expected, -expected, -expected], dtype=dtype), rtol=1e-4, atol=0)
    inside = torch.tensor([1 - 2 * eps], dtype=dtype)
    assert TanhBijector.inverse(inside) < edge[0]  # what can be told from the limit is
    assert_close(TanhBijector.inverse(torch.ones(1, dtype=dtype), 0.1), torch.tensor([math.atanh(0.9)], dtype=dtype))


def test_correction_is_the_logarithm_of_the_slope():
    u = torch.linspace(-3, 3, 61, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(TanhBijector.forward(u).sum(), u)
    assert_close(TanhBijector.log_prob_correction(u), slope.log())
    as_written = 2 * (math.log(2) - u - torch.nn.functional.softplus(-2 * u))
    assert_close(TanhBijector.log_prob_correction(u), as_written)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bug_61_correction_is_exact_far_out(dtype):
    u = torch.tensor([-500.0, -40.0, -8.0, 0.0, 8.0, 40.0, 500.0], dtype=dtype, requires_grad=True)
    # log(1 - tanh^2) = log 4 - 2|u| - 2 log(1 + exp(-2|u|))
    expected = [math.log(4) - 2 * abs(x) - 2 * math.log1p(math.exp(-2 * abs(x))) for x in u.tolist()]
    found = TanhBijector.log_prob_correction(u)
    assert_close(found, torch.tensor(expected, dtype=dtype))
    with_epsilon = math.log(1 - math.tanh(8.0) ** 2 + 1e-6)
    assert abs(with_epsilon - found[4].item()) > 1  # what an epsilon inside the logarithm would give
    (slope,) = torch.autograd.grad(found.sum(), u)
    assert_close(slope, -2 * u.detach().tanh())  # d/du log(1 - tanh^2 u)


def test_the_density_of_a_squashed_value_integrates_to_one():
    u = torch.linspace(-10, 10, 20_001, dtype=torch.float64)
    base = torch.distributions.Normal(0.4, 1.3)
    density = (base.log_prob(u) - TanhBijector.log_prob_correction(u)).exp()
    assert_close(torch.trapezoid(density, TanhBijector.forward(u)).item(), 1.0, atol=1e-4, rtol=0)
