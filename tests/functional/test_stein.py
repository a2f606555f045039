"""The Stein direction by hand for two particles, against float64 autograd, and as a sampler."""

import math

import pytest
import torch
from torch.testing import assert_close

from gaitway.functional.stein import (
    median_of_pairs,
    rbf_gradient,
    rbf_kernel,
    squared_distances,
    stein_direction,
    stein_terms,
)


def cloud(n=6, size=5, seed=0, dtype=torch.float64):
    return torch.randn(n, size, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_two_particles_by_hand():
    # x = 0 and 2: one pair, |x|^2 = 4, h = 4 / log 3, k = exp(-log 3) = 1/3, 2 / h = log(3) / 2.
    # driving: (g_1 + g_2 / 3) / (2 T) and (g_1 / 3 + g_2) / (2 T) with g = 3, 6 and T = 0.5: 5 and 7
    # repelling: 1/2 * 2/h * k * (x_i - x_j) = 1/2 * log(3) / 2 * 1/3 * -+2 = -+ log(3) / 6
    x, g = torch.tensor([[0.0], [2.0]]), torch.tensor([[3.0], [6.0]])
    driving, repelling = stein_terms(x, g, 0.5)
    assert_close(driving, torch.tensor([[5.0], [7.0]]))
    assert_close(repelling, torch.tensor([[-math.log(3) / 6], [math.log(3) / 6]]))
    assert_close(stein_direction(x, g, 0.5), torch.tensor([[5.0 - math.log(3) / 6], [7.0 + math.log(3) / 6]]))


def test_one_particle_follows_its_gradient():
    x, g = cloud(1), cloud(1, seed=1)
    assert torch.equal(stein_direction(x, g, 1.0), g)
    assert_close(stein_direction(x, g, 0.25), 4 * g)


def test_the_median_is_over_pairs_and_halves_the_middle():
    # points 0, 1, 3 on a line: 1, 9, 4; with a fourth at 7: 1, 9, 49, 4, 36, 16
    assert median_of_pairs(squared_distances(torch.tensor([[0.0], [1.0], [3.0]]))).item() == 4.0
    assert median_of_pairs(squared_distances(torch.tensor([[0.0], [1.0], [3.0], [7.0]]))).item() == 12.5
    assert median_of_pairs(torch.zeros(1, 1)).item() == 0.0


def test_the_kernel_at_the_median_distance():
    x = cloud(5)  # ten pairs: the median lies between the fifth and the sixth
    squared = squared_distances(x)
    kernel, bandwidth = rbf_kernel(squared)
    assert_close(bandwidth, median_of_pairs(squared) / math.log(6))
    assert_close(torch.exp(-median_of_pairs(squared) / bandwidth).item(), 1 / 6)
    assert torch.equal(kernel.diag(), torch.ones(5, dtype=torch.float64))
    assert_close(kernel, kernel.T)


@pytest.mark.parametrize("temperature", [1.0, 0.03])
@pytest.mark.parametrize("n", [2, 3, 6])
def test_against_autograd_pair_by_pair(n, temperature):
    x, g = cloud(n), cloud(n, seed=1)
    pairs = [((x[i] - x[j]) ** 2).sum().item() for i in range(n) for j in range(i)]
    h = torch.tensor(pairs, dtype=torch.float64).quantile(0.5).item() / math.log(n + 1)
    expected = torch.zeros_like(x)
    for i in range(n):
        for j in range(n):
            moving = x[j].clone().requires_grad_()
            k = (-((moving - x[i]) ** 2).sum() / h).exp()
            (gradient,) = torch.autograd.grad(k, moving)
            expected[i] += (k.detach() * g[j] / temperature + gradient) / n
    assert_close(stein_direction(x, g, temperature), expected)
    assert_close(
        stein_direction(x.float(), g.float(), torch.tensor(temperature)), expected.float(), atol=1e-5, rtol=1e-4
    )


def test_near_particles_of_large_parameters_repel_exactly():
    """Distances 1e-3 at parameters of 1000: expanded squares would be all rounding."""
    offsets = cloud(4) * 1e-3
    x = (1000 + offsets).float()
    exact = x.double()
    kernel, bandwidth = rbf_kernel(squared_distances(exact))
    expected = rbf_gradient(exact, kernel, bandwidth)
    near = rbf_gradient(x, *rbf_kernel(squared_distances(x)))
    assert_close(near, expected.float(), rtol=1e-3, atol=1e-3 * expected.abs().max().item())


def test_particles_in_one_place_stay_finite():
    x = cloud(1, dtype=torch.float32).expand(6, -1).clone()
    g = cloud(6, seed=1, dtype=torch.float32)
    together = stein_direction(x, g, 1.0)
    assert_close(together, g.mean(0).expand(6, -1), atol=1e-5, rtol=1e-5)  # k = 1: all share all
    x[5] += 1.0  # ten of fifteen pairs coincide: the median is 0, the mean is not
    driving, repelling = stein_terms(x, g, 1.0)
    assert_close(driving[:5], g[:5].sum(0).expand(5, -1) / 6, atol=1e-5, rtol=1e-5)
    assert_close(driving[5], g[5] / 6, atol=1e-5, rtol=1e-5)
    assert repelling.abs().max() < 1e-3


def sampled(repels, steps=800):
    """Particles in the density N(3, 2^2): gradient (3 - x) / 4."""
    x = 0.1 * cloud(40, 1)
    for _ in range(steps):
        driving, repelling = stein_terms(x, (3 - x) / 4, 1.0)
        x = x + 0.3 * (driving + repelling if repels else driving)
    return x


def test_particles_spread_as_the_density_does_and_without_repulsion_collapse():
    x = sampled(repels=True)
    assert x.mean().item() == pytest.approx(3.0, abs=0.05)
    assert x.std().item() == pytest.approx(2.0, abs=0.25)
    assert sampled(repels=False).std().item() < 0.2


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"gradients are \[3, 5\] but particles \[6, 5\]"):
        stein_direction(cloud(6), cloud(3))
    with pytest.raises(ValueError, match=r"particles are \[5\] torch.float64; they must be floats, \[n, P\]"):
        squared_distances(cloud()[0])
    with pytest.raises(ValueError, match="they must be floats"):
        squared_distances(torch.ones(2, 2, dtype=torch.int64))
