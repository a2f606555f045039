"""The Stein direction: how a cloud of particles moves towards a density without collapsing into one point.

Liu and Wang 2016, "Stein variational gradient descent"; for policies Liu et al. 2017, "Stein variational policy
gradient". With particles x_1 ... x_n, the gradients g_j of what each should maximise, a temperature and the kernel

    k(x, y) = exp(-|x - y|^2 / h)            h = median of |x_j - x_i|^2 over pairs / log(n + 1)

particle i moves along

    phi_i = 1/n sum_j [ k(x_j, x_i) g_j / temperature + grad_{x_j} k(x_j, x_i) ]

The first part *drives*: near particles share their gradients. The second *repels*: it is 2/h sum_j k (x_i - x_j), away
from the others. The bandwidth h counts as a constant; with this one the kernels of a particle add up to about 2,
whatever the distances (k = 1 / (n + 1) at the median).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LEAST_OF_MEAN = 1e-3
"""Lower bound of the median of squared distances, as a share of their mean: below it rounding errors would repel."""


def squared_distances(particles: Tensor) -> Tensor:
    """`|x_j - x_i|^2` of all pairs of the rows of `particles` [n, P]: [n, n], the diagonal exactly 0."""
    if particles.ndim != 2 or not particles.is_floating_point():
        raise ValueError(f"particles are {list(particles.shape)} {particles.dtype}; they must be floats, [n, P]")
    # from differences, not from products: rounding of large parameters would hide small distances
    return torch.cdist(particles, particles, compute_mode="donot_use_mm_for_euclid_dist").square()


def median_of_pairs(squared: Tensor) -> Tensor:
    """The median of `squared` [n, n] over pairs of different particles, a scalar; the mean of the middle two if even.

    0 for a single particle.
    """
    n = len(squared)
    if n == 1:
        return squared.new_zeros(())
    row, column = torch.triu_indices(n, n, 1, device=squared.device)
    ordered, last = squared[row, column].sort().values, n * (n - 1) // 2 - 1
    return (ordered[last // 2] + ordered[(last + 1) // 2]) / 2


def rbf_kernel(squared: Tensor) -> tuple[Tensor, Tensor]:
    """The kernel [n, n] of squared distances [n, n], and its bandwidth h, a scalar.

    If most particles coincide, h is a thousandth of the bandwidth that the mean would give; if all do, h is 1.
    """
    typical = torch.maximum(median_of_pairs(squared), LEAST_OF_MEAN * squared.mean())
    bandwidth = typical / math.log(len(squared) + 1)
    bandwidth = torch.where(bandwidth > 0, bandwidth, 1.0)
    return (-squared / bandwidth).exp(), bandwidth


def rbf_gradient(particles: Tensor, kernel: Tensor, bandwidth: Tensor) -> Tensor:
    """`sum_j grad_{x_j} k(x_j, x_i)` for every i: [n, P], the direction that pushes particle i away from the others."""
    centred = particles - particles.mean(0)  # keeps the differences, and their digits where all lie close together
    slope = kernel * (2.0 / bandwidth)
    return slope.sum(1, keepdim=True) * centred - slope @ centred


def stein_terms(particles: Tensor, gradients: Tensor, temperature: float | Tensor) -> tuple[Tensor, Tensor]:
    """The driving and the repelling part of the Stein direction, [n, P] each; their sum is to be added to the particles
    [n, P], whose `gradients` [n, P] point uphill."""
    if gradients.shape != particles.shape:
        raise ValueError(
            f"gradients are {list(gradients.shape)} but particles {list(particles.shape)}; both must be [n, P]"
        )
    kernel, bandwidth = rbf_kernel(squared_distances(particles))
    n = len(particles)
    return kernel @ gradients / (n * temperature), rbf_gradient(particles, kernel, bandwidth) / n


def stein_direction(particles: Tensor, gradients: Tensor, temperature: float | Tensor = 1.0) -> Tensor:
    """phi [n, P]: the direction in which every particle is to move; see the top of this file."""
    driving, repelling = stein_terms(particles, gradients, temperature)
    return driving + repelling
