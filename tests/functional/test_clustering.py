"""k-means and mixtures of Gaussians on points whose clusters are known."""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from gaitway.core.seeding import stream
from gaitway.functional.clustering import GaussianMixture, k_means

MEANS = torch.tensor([[1.0, 0.0, 0.5], [-1.0, 1.0, 0.0], [0.0, -1.0, -0.5], [0.5, 1.0, -1.0]], dtype=torch.float64)
SHARES = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
STDS = torch.tensor([[0.1, 0.05, 0.2], [0.2, 0.1, 0.05], [0.05, 0.05, 0.05], [0.1, 0.1, 0.02]], dtype=torch.float64)
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")),
]


def random(seed=0):
    return stream(seed, "test")


def blobs(count=4000, seed=0, turn=0.6):
    """Points of four Gaussians with known shares, turned in the plane of the first two axes, and their true labels."""
    draws = random(seed)
    labels = torch.arange(4).repeat_interleave((SHARES * count).round().long())
    points = MEANS[labels] + STDS[labels] * torch.randn(len(labels), 3, generator=draws, dtype=torch.float64)
    rotation = torch.eye(3, dtype=torch.float64)
    rotation[:2, :2] = torch.tensor([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    order = torch.randperm(len(labels), generator=draws)
    return (points @ rotation.mT)[order], labels[order], rotation


def matched(found, true):
    """Rows of `found` in the order of the nearest rows of `true`."""
    order = torch.cdist(true, found).argmin(1)
    assert sorted(order.tolist()) == list(range(len(true)))
    return order


# k-means


@pytest.mark.parametrize("seed", range(3))
def test_k_means_finds_blobs(seed):
    points, labels, rotation = blobs(seed=seed)
    found = k_means(points, 4, random(seed))
    order = matched(found.centres, MEANS @ rotation.mT)
    assert_close(found.centres[order], MEANS @ rotation.mT, atol=0.03, rtol=0)
    assert torch.equal(found.labels, order[labels])


def test_k_means_by_hand():
    # two clusters on a line: {0, 1, 2} and {10, 12}; squares 1 + 0 + 1 and 1 + 1
    points = torch.tensor([[0.0], [1.0], [2.0], [10.0], [12.0]])
    found = k_means(points, 2, random())
    assert sorted(found.centres.flatten().tolist()) == pytest.approx([1.0, 11.0])
    assert found.inertia[-1] == pytest.approx(4.0)
    assert found.labels.tolist()[:3] == [int(found.labels[0])] * 3


@pytest.mark.parametrize("clusters", [1, 2, 7, 64, 500])
@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_inertia_never_increases(clusters, shift):
    points = torch.rand(600, 4, generator=random(), dtype=torch.float64) + shift
    found = k_means(points, clusters, random(1))
    assert len(found.centres) == clusters
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in itertools.pairwise(found.inertia))
    direct = torch.cdist(points, found.centres, compute_mode="donot_use_mm_for_euclid_dist")
    assert_close(found.inertia[-1], float(direct.amin(1).square().sum()), rtol=1e-6, atol=1e-9)
    # nothing changes any more: every centre is the mean of its points
    for number in found.labels.unique().tolist():
        assert_close(found.centres[number], points[found.labels == number].mean(0))


def test_one_cluster_is_the_mean():
    points = torch.rand(50, 3, generator=random())
    assert_close(k_means(points, 1, random()).centres, points.double().mean(0, keepdim=True))


def test_the_start_is_spread():
    # three points far apart among 3,000 in one place: drawn by squared distance they are always found
    points = torch.zeros(3003, 2)
    points[:3] = torch.tensor([[100.0, 0.0], [0.0, 100.0], [-100.0, 0.0]])
    for seed in range(5):
        assert k_means(points, 4, random(seed), steps=0).inertia[0] == 0.0


@pytest.mark.parametrize(("count", "clusters"), [(1, 5), (3, 5), (5, 5)])
def test_fewer_points_than_clusters(count, clusters):
    points = torch.rand(count, 2, generator=random())
    found = k_means(points, clusters, random())
    assert len(found.centres) == count
    assert found.inertia[-1] == pytest.approx(0.0, abs=1e-20)


def test_points_that_coincide():
    found = k_means(torch.full((20, 3), 0.1), 8, random())
    assert_close(found.centres, torch.full((1, 3), 0.1).double())
    assert set(found.labels.tolist()) == {0}
    two = torch.tensor([[0.0], [1.0]]).repeat(10, 1)
    assert sorted(k_means(two, 8, random()).centres.flatten().tolist()) == [0.0, 1.0]


# mixtures


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("turn", [0.0, 0.6])
def test_a_mixture_finds_blobs(seed, turn):
    points, _, rotation = blobs(8000, seed, turn)
    found = GaussianMixture.fit(points, 4, random(seed))
    order = matched(found.means, MEANS @ rotation.mT)
    assert_close(found.means[order], MEANS @ rotation.mT, atol=0.02, rtol=0)
    assert_close(found.weights[order], SHARES, atol=0.01, rtol=0)
    true = rotation @ torch.diag_embed(STDS.square()) @ rotation.mT
    assert_close(found.covariances[order], true, atol=0.004, rtol=0)


def test_a_diagonal_mixture_has_no_covariances():
    points, _, _ = blobs(turn=0.6)
    found = GaussianMixture.fit(points, 4, random(), covariance="diagonal")
    assert_close(found.covariances, torch.diag_embed(found.covariances.diagonal(dim1=1, dim2=2)))
    full = GaussianMixture.fit(points, 4, random())
    assert full.log_likelihood[-1] > found.log_likelihood[-1] + 0.1  # the blobs are turned


def test_one_component_by_hand():
    # mean 2, variance (4 + 0 + 4) / 3; its likelihood is that of the normal distribution
    points = torch.tensor([[0.0], [2.0], [4.0]])
    found = GaussianMixture.fit(points, 1, random())
    assert found.means.item() == pytest.approx(2.0)
    assert found.covariances.item() == pytest.approx(8 / 3)
    assert found.weights.tolist() == [1.0]
    normal = torch.distributions.Normal(2.0, math.sqrt(8 / 3))
    assert_close(found.log_density(points), normal.log_prob(points.double()).squeeze(1))
    assert found.log_likelihood[-1] == pytest.approx(normal.log_prob(points.double()).mean().item())


def test_the_density_is_that_of_torch_distributions():
    points, _, _ = blobs(1000)
    found = GaussianMixture.fit(points, 5, random())
    true = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(found.weights),
        torch.distributions.MultivariateNormal(found.means, found.covariances),
    )
    assert_close(found.log_density(points), true.log_prob(points))


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("components", [1, 3, 8, 32])
@pytest.mark.parametrize("kind", ["blobs", "uniform", "flat", "integers", "far"])
def test_the_likelihood_never_decreases(covariance, components, kind):
    if kind == "blobs":
        points = blobs(800)[0]
    elif kind == "integers":  # many points coincide: variances reach their floor
        points = torch.randint(0, 4, (500, 3), generator=random()).double()
    else:
        points = torch.rand(500, 3, generator=random(), dtype=torch.float64)
        points[:, 2] = points[:, 0] if kind == "flat" else points[:, 2]
        points = points + 100.0 if kind == "far" else points
    found = GaussianMixture.fit(points, components, random(1), covariance=covariance, tolerance=1e-9, steps=60)
    gains = torch.tensor(found.log_likelihood, dtype=torch.float64).diff()
    assert (gains >= -1e-9).all()
    assert found.log_likelihood[-1] == pytest.approx(found.log_density(points).mean().item(), abs=1e-6)
    assert found.weights.sum().item() == pytest.approx(1.0)
    assert torch.isfinite(found.covariances).all()
    assert (found.variances >= 1e-6).all()


def test_a_twin_whose_floor_is_added_loses_likelihood():
    # the usual remedy, variance + floor, is not a maximum: with a coarse floor the likelihood falls in some step
    points = blobs(800)[0]
    joint_of, maximise = GaussianMixture._joint, GaussianMixture._maximise.__func__
    worst = 0.0
    for seed in range(3):
        start = k_means(points, 8, random(seed))
        pairs = (points.unsqueeze(2) * points.unsqueeze(1)).flatten(1)
        shares = torch.nn.functional.one_hot(start.labels, 8).double()
        history, means = [], start.centres
        for _ in range(40):
            plain = maximise(GaussianMixture, points, pairs, shares, means, "full", 1e-12)
            twin = GaussianMixture(plain.weights, plain.means, plain.axes, plain.variances + 0.02)
            joint = joint_of(twin, points)
            history.append(joint.logsumexp(1).mean().item())
            shares, means = torch.softmax(joint, 1), twin.means
        worst = min(worst, torch.tensor(history, dtype=torch.float64).diff().min().item())
    assert worst < -1e-6
    found = GaussianMixture.fit(points, 8, random(), floor=0.02, tolerance=-1.0, steps=40)
    assert torch.tensor(found.log_likelihood, dtype=torch.float64).diff().min().item() >= -1e-9


def test_samples_have_the_moments_of_the_mixture():
    points, _, _ = blobs(4000)
    found = GaussianMixture.fit(points, 4, random())
    drawn = found.sample(20000, random(3))
    assert drawn.dtype == torch.float64
    assert_close(drawn.mean(0), points.mean(0), atol=0.03, rtol=0)
    assert_close(drawn.mT.cov(), points.mT.cov(), atol=0.03, rtol=0)
    assert found.log_density(drawn).mean().item() == pytest.approx(found.log_likelihood[-1], abs=0.05)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_degenerate_points(covariance):
    same = GaussianMixture.fit(torch.full((30, 4), 0.3), 32, random(), covariance=covariance)
    assert_close(same.means, torch.full((1, 4), 0.3).double())
    assert_close(same.variances, torch.full((1, 4), 1e-6).double())
    assert_close(same.sample(100, random()), torch.full((100, 4), 0.3).double(), atol=0.01, rtol=0)
    few = GaussianMixture.fit(torch.rand(5, 4, generator=random()), 32, random(), covariance=covariance)
    assert len(few.means) == 5
    assert torch.isfinite(few.sample(50, random())).all()
    single = GaussianMixture.fit(torch.rand(1, 4, generator=random()), 32, random(), covariance=covariance)
    assert len(single.means) == 1


# both


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_generator_gives_the_same_result(device, dtype):
    points = blobs(500)[0].to(device, dtype)
    for fit in (lambda g: k_means(points, 9, g).centres, lambda g: GaussianMixture.fit(points, 9, g).means):
        one, other = fit(random(1)), fit(random(1))
        assert torch.equal(one, other)
        assert one.dtype == torch.float64
        assert one.device.type == device
        assert not torch.equal(one, fit(random(2)))


def test_points_are_left_alone_and_carry_no_gradient():
    points = torch.rand(20, 2, generator=random()).requires_grad_()
    before = points.detach().clone()
    assert not k_means(points, 3, random()).centres.requires_grad
    assert not GaussianMixture.fit(points, 3, random()).means.requires_grad
    assert torch.equal(points, before)


@pytest.mark.parametrize(
    ("points", "count", "said"),
    [
        (torch.zeros(0, 2), 3, r"points are \[0, 2\]"),
        (torch.zeros(5), 3, r"points are \[5\]; use \[n, D\]"),
        (torch.zeros(5, 0), 3, r"points are \[5, 0\]"),
        (torch.tensor([[0.0], [math.nan]]), 3, "NaN or infinite"),
        (torch.tensor([[0.0], [math.inf]]), 3, "NaN or infinite"),
        (torch.zeros(5, 2), 0, "is 0; use at least 1"),
    ],
)
def test_bad_points(points, count, said):
    for fit in (k_means, GaussianMixture.fit):
        with pytest.raises(ValueError, match=said):
            fit(points, count, random())


def test_bad_options_of_a_mixture():
    with pytest.raises(ValueError, match="covariance is 'spherical'; use one of"):
        GaussianMixture.fit(torch.zeros(5, 2), 1, random(), covariance="spherical")
    with pytest.raises(ValueError, match="floor is 0"):
        GaussianMixture.fit(torch.zeros(5, 2), 1, random(), floor=0)
