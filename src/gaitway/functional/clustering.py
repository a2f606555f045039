"""Where points lie: k-means and mixtures of Gaussians, in torch.

Points are [n, D] of any floating dtype and device; the arithmetic is float64 where the points are. Random numbers come
from a `torch.Generator`, so that the same points and generator give the same result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LOG_2PI = math.log(2.0 * math.pi)
COVARIANCES = ("full", "diagonal")
LEAST_SHARE = 1e-9
"""A component with fewer points than this has none."""


@dataclass(frozen=True)
class Clusters:
    """What `k_means` found."""

    centres: Tensor
    """[k, D] float64."""
    labels: Tensor
    """The nearest centre of each point, int64 [n]."""
    inertia: tuple[float, ...]
    """Sum of squared distances to the nearest centre, at the start and after every step; it never increases."""


def k_means(points: Tensor, clusters: int, generator: torch.Generator, steps: int = 100) -> Clusters:
    """Lloyd's algorithm from k-means++ centres (Arthur and Vassilvitskii 2007), until nothing changes.

    There are never more centres than distinct points. A centre that loses all its points stays where it is.
    """
    _check_count("clusters", clusters)
    points, middle = _centred(points)
    centres = _spread_rows(points, clusters, generator)
    labels, inertia = _nearest(points, centres)
    history = [inertia]
    for _ in range(steps):
        centres = _means(points, labels, centres)
        before, (labels, inertia) = labels, _nearest(points, centres)
        history.append(inertia)
        if torch.equal(labels, before):
            break
    return Clusters(centres + middle, labels, tuple(history))


@dataclass(frozen=True)
class GaussianMixture:
    """C Gaussians in D dimensions, each with its share of the points."""

    weights: Tensor
    """[C], positive or 0, with sum 1."""
    means: Tensor
    """[C, D]."""
    axes: Tensor
    """Principal axes of each component as columns, [C, D, D]."""
    variances: Tensor
    """Variance along each axis, [C, D]."""
    log_likelihood: tuple[float, ...] = ()
    """Mean log-density of the points that were fitted, at the start and after every step; it never decreases."""

    @classmethod
    def fit(
        cls,
        points: Tensor,
        components: int,
        generator: torch.Generator,
        covariance: str = "full",
        floor: float = 1e-6,
        steps: int = 100,
        tolerance: float = 1e-4,
    ) -> GaussianMixture:
        """Expectation-maximisation from the clusters of k-means, until a step gains less than `tolerance`.

        No variance along any axis falls below `floor`. That is the exact maximum under this bound, so the likelihood
        still rises in every step, and points that coincide are no trouble. There are never more components than
        distinct points.
        """
        _check_count("components", components)
        if covariance not in COVARIANCES:
            raise ValueError(f"covariance is {covariance!r}; use one of {list(COVARIANCES)}")
        if not 0 < floor < math.inf:
            raise ValueError(f"floor is {floor}; use a positive variance")
        points, middle = _centred(points)
        start = k_means(points, components, generator)
        shares = torch.nn.functional.one_hot(start.labels, len(start.centres)).to(points)
        pairs = (points.unsqueeze(2) * points.unsqueeze(1)).flatten(1)
        found = cls._maximise(points, pairs, shares, start.centres, covariance, floor)
        joint = found._joint(points)
        density = joint.logsumexp(1)
        history = [float(density.mean())]
        for _ in range(steps):
            shares = (joint - density.unsqueeze(1)).exp()
            found = cls._maximise(points, pairs, shares, found.means, covariance, floor)
            joint = found._joint(points)
            density = joint.logsumexp(1)
            history.append(float(density.mean()))
            if history[-1] - history[-2] < tolerance:
                break
        return cls(found.weights, found.means + middle, found.axes, found.variances, tuple(history))

    @property
    def covariances(self) -> Tensor:
        """[C, D, D]."""
        return (self.axes * self.variances.unsqueeze(1)) @ self.axes.mT

    def log_density(self, points: Tensor) -> Tensor:
        """The logarithm of the mixture's density at each point, [n]."""
        return self._joint(points.to(self.means)).logsumexp(1)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """`count` points of the mixture, [count, D]."""
        chosen = torch.multinomial(self.weights.to(generator.device), count, replacement=True, generator=generator)
        chosen = chosen.to(self.means.device)
        noise = torch.randn(
            (count, self.means.shape[1]), generator=generator, device=generator.device, dtype=torch.float64
        ).to(self.means.device)
        along = noise * self.variances[chosen].sqrt()
        return self.means[chosen] + (self.axes[chosen] @ along.unsqueeze(-1)).squeeze(-1)

    @classmethod
    def _maximise(
        cls, points: Tensor, pairs: Tensor, shares: Tensor, means: Tensor, covariance: str, floor: float
    ) -> GaussianMixture:
        """The M-step: components from the `shares` [n, C] that they have in the points and their products [n, D * D];
        what has no points stays where it is in `means`, with weight 0."""
        size = points.shape[1]
        counts = shares.sum(0)
        safe = counts.clamp_min(LEAST_SHARE).unsqueeze(1)
        means = torch.where((counts > LEAST_SHARE).unsqueeze(1), shares.mT @ points / safe, means)
        covariances = (shares.mT @ pairs / safe).unflatten(1, (size, size)) - means.unsqueeze(2) * means.unsqueeze(1)
        if covariance == "full":
            variances, axes = torch.linalg.eigh(covariances)
        else:
            variances = covariances.diagonal(dim1=1, dim2=2)
            axes = torch.eye(size).to(points).repeat(len(means), 1, 1)
        return cls(counts / counts.sum(), means, axes, variances.clamp_min(floor))

    def _joint(self, points: Tensor) -> Tensor:
        """Logarithm of weight times density of every component at every point, [n, C]."""
        scaled = self.axes / self.variances.sqrt().unsqueeze(1)  # [C, D, D]
        centre = (self.means.unsqueeze(1) @ scaled).flatten()
        difference = (points @ scaled.movedim(1, 0).flatten(1)).sub_(centre)  # one product for all, [n, C * D]
        squares = difference.square_().unflatten(1, self.means.shape).sum(-1)
        normaliser = self.variances.log().sum(1) + points.shape[1] * LOG_2PI
        return self.weights.log() - 0.5 * (squares + normaliser)


def _centred(points: Tensor) -> tuple[Tensor, Tensor]:
    """Points in float64 about their mean, and the mean [D]: squares of differences keep their digits far from 0."""
    if points.ndim != 2 or not len(points) or not points.shape[1]:
        raise ValueError(f"points are {list(points.shape)}; use [n, D] with at least one point and one dimension")
    points = points.detach().double()
    if not bool(points.isfinite().all()):
        raise ValueError("points hold NaN or infinite numbers; leave those rows out")
    middle = points.mean(0)
    return points - middle, middle


def _spread_rows(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Up to `count` distinct rows, each drawn with a probability proportional to its squared distance from the nearest
    one before it, [k, D].

    The largest of weight / (exponential draw) is such a draw, on every device without a sum over the rows.
    """
    weights = points.new_ones(len(points))
    nearest = points.new_full((len(points),), math.inf)
    rows: list[Tensor] = []
    while len(rows) < count:
        draws = torch.empty(len(points), dtype=torch.float64, device=generator.device)
        row = points[(weights / draws.exponential_(generator=generator).to(points.device)).argmax()]
        rows.append(row)
        nearest = torch.minimum(nearest, (points - row).square().sum(1))
        weights = nearest
        if not bool(weights.any()):
            break
    return torch.stack(rows)


def _nearest(points: Tensor, centres: Tensor) -> tuple[Tensor, float]:
    """The nearest centre of each point [n], and the sum of squared distances to them."""
    labels = (centres.square().sum(1) - 2.0 * points @ centres.mT).argmin(1)
    return labels, float((points - centres[labels]).square().sum())


def _means(points: Tensor, labels: Tensor, centres: Tensor) -> Tensor:
    """The mean of each cluster [k, D]; an empty one keeps its centre."""
    order = labels.argsort(stable=True)  # sums of sorted segments do not depend on the order of threads
    counts = torch.bincount(labels, minlength=len(centres))
    sums = torch.segment_reduce(points[order], "sum", lengths=counts, axis=0, initial=0.0)
    return torch.where(counts.unsqueeze(1) > 0, sums / counts.clamp_min(1).unsqueeze(1), centres)


def _check_count(name: str, count: int) -> None:
    if count < 1:
        raise ValueError(f"{name} is {count}; use at least 1")
