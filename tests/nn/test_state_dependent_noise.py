"""gSDE: density against float64, exploration matrices, and use as a head."""

import math
import warnings

import pytest
import torch
from torch import distributions as reference
from torch.testing import assert_close

from gaitway.nn.distributions import Distribution, kl_divergence
from gaitway.nn.state_dependent_noise import StateDependentNoise

A, L = 2, 5
LEADING = [(), (4,), (3, 4)]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(**options) -> StateDependentNoise:
    head = StateDependentNoise(A, L, generator=generator(), **options).double()
    with torch.no_grad():
        head.log_std.copy_(0.5 * torch.randn(head.log_std.shape, generator=generator(1), dtype=torch.float64) - 0.5)
        head.mean.weight.normal_(generator=generator(2))
    return head


def latent_of(leading: tuple[int, ...], seed: int = 3) -> torch.Tensor:
    return torch.randn(*leading, L, generator=generator(seed), dtype=torch.float64)


OPTIONS = {
    "plain": {},
    "one deviation for all dimensions": {"full_std": False},
    "expln": {"expln": True},
    "limits": {"low": (-1.0, 0.0), "high": (3.0, 10.0)},
    "squashed": {"squash": True, "low": (-1.0, 0.0), "high": (3.0, 10.0)},
}


def by_hand(head: StateDependentNoise, latent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and deviation of raw, entry by entry."""
    mean = latent @ head.mean.weight.T + head.mean.bias
    variance = torch.zeros_like(mean) + head.epsilon
    for row in range(L):
        for column in range(A):
            x = head.log_std[row, column if head.full_std else 0]
            std = (math.log1p(x) + 1 if x > 0 else math.exp(x)) if head.expln else math.exp(x)
            variance[..., column] += (latent[..., row] * std) ** 2
    if head.squash:
        return mean, variance.sqrt()
    return head.density.centre + mean * head.density.half_range, variance.sqrt() * head.density.half_range


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("leading", LEADING)
@torch.no_grad()
def test_density_of_one_step(name, leading):
    head, latent = make(**OPTIONS[name]), latent_of(leading)
    params = head(latent)
    mean, std = by_hand(head, latent)
    assert_close(params, torch.cat((mean, std), -1))
    raw = head.sample(params, generator(5))
    base = reference.Independent(reference.Normal(mean, std), 1)
    expected = base.log_prob(raw)
    if head.squash:
        scale = reference.AffineTransform(torch.tensor([1.0, 5.0]).double(), torch.tensor([2.0, 5.0]).double())
        twin = reference.TransformedDistribution(base, [reference.TanhTransform(), scale])
        expected = twin.log_prob(head.action(raw))
    assert_close(head.log_prob(params, raw), expected, atol=1e-6, rtol=1e-6)
    assert head.log_prob(params, raw).shape == leading
    assert_close(head.entropy(params), base.entropy())
    other = head(latent_of(leading, seed=9))
    other_base = reference.Independent(reference.Normal(*other.chunk(2, -1)), 1)
    assert_close(head.kl(params, other), reference.kl_divergence(base, other_base))
    assert_close(head.std(params), std)
    assert torch.equal(head.mode(params), params[..., :A])


@pytest.mark.parametrize("name", OPTIONS)
@torch.no_grad()
def test_noise_over_many_matrices_has_that_density(name):
    head, latent = make(**OPTIONS[name]), latent_of(())
    params = head(latent)
    draws = 40_000
    weights = head.sample_weights(generator(4), draws)
    raw = head.mode(params) + head.noise(latent.expand(draws, L), weights)
    std = head.std(params)
    assert ((raw.mean(0) - head.mode(params)).abs() < 4.5 * std / math.sqrt(draws)).all()
    assert_close(raw.std(0), std, rtol=0.02, atol=0)
    covariance = torch.cov(raw.T)[0, 1] / (std[0] * std[1])  # dimensions are independent, as the density says
    assert abs(covariance) < 4.5 / math.sqrt(draws)


@torch.no_grad()
def test_noise_is_the_same_function_of_the_state_until_weights_are_drawn_again():
    head, latent = make(), latent_of((4,))
    stream = generator(6)
    weights = head.sample_weights(stream, 4)
    first, again = head.noise(latent, weights), head.noise(latent, weights)
    assert torch.equal(first, again)
    assert_close(head.noise(2 * latent, weights), 2 * first)  # linear in the features
    assert not torch.equal(head.noise(latent, head.sample_weights(stream, 4)), first)
    same = head.sample_weights(generator(6), 4)
    assert torch.equal(same.each, weights.each)
    assert torch.equal(same.single, weights.single)


@torch.no_grad()
def test_each_row_has_its_own_matrix_and_the_single_one_is_reported():
    head, latent = make(), latent_of((4,))
    weights = head.sample_weights(generator(6), 4)
    by_rows = torch.stack([row @ matrix for row, matrix in zip(latent, weights.each, strict=True)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_close(head.noise(latent, weights), by_rows)
        in_time = head.noise(latent.expand(3, 4, L), weights)  # [T, B, L]: the batch is the axis before the last
        assert_close(in_time, by_rows.expand(3, 4, A))
        alone = head.sample_weights(generator(6))
        assert alone.each is None
        assert_close(head.noise(latent, alone), latent @ alone.single)
    with pytest.warns(UserWarning, match=r"drawn for 4 rows but the features are \[2, 5\]"):
        assert_close(head.noise(latent[:2], weights), latent[:2] @ weights.single)
    fresh = head.sample_weights(generator(7), 4)
    mixed = weights.where(torch.tensor([True, False, False, True]), fresh)
    assert torch.equal(mixed.each[[0, 3]], fresh.each[[0, 3]])
    assert torch.equal(mixed.each[1:3], weights.each[1:3])
    with pytest.raises(ValueError, match="batch_size"):
        alone.where(torch.ones(4, dtype=torch.bool), fresh)


@torch.no_grad()
def test_a_sampler_keeps_its_matrices_over_a_rollout():
    head = make(squash=True)
    draw = head.sampler(generator(8))
    weights = head.sample_weights(generator(8), 4)
    for seed in range(3):
        latent = latent_of((4,), seed)
        params, raw = draw(latent)
        assert torch.equal(params, head(latent))
        assert_close(raw, head.mode(params) + head.noise(latent, weights))
    assert draw(latent_of((6,)))[1].shape == (6, A)  # another batch: new matrices
    assert torch.equal(head.sampler(None)(latent)[1], head.mode(head(latent)))


def test_features_are_learnt_from_the_mean_only_unless_asked():
    for learn in (False, True):
        head = make(learn_features=learn)
        latent = latent_of((4,)).requires_grad_()
        spread = head.std(head(latent)).sum()
        assert spread.requires_grad  # by log_std
        gradients = torch.autograd.grad(spread, [latent, head.log_std], allow_unused=True)
        assert gradients[1].abs().min() > 0
        assert (gradients[0] is not None and bool(gradients[0].abs().sum() > 0)) == learn
        (by_mean,) = torch.autograd.grad(head.mode(head(latent)).sum(), latent)
        assert_close(by_mean, head.mean.weight.sum(0).expand(4, L))
        noise = head.noise(latent, head.sample_weights(generator(), 4))
        assert (torch.autograd.grad(noise.sum(), latent, allow_unused=True)[0] is not None) == learn


def test_stored_params_score_a_rollout_and_a_minibatch_learns():
    head = make(squash=True)
    with torch.no_grad():
        draw = head.sampler(generator(8))
        rollout = [(latent, *draw(latent)) for latent in (latent_of((4,), seed) for seed in range(3))]
    latent, params, raw = (torch.stack(each) for each in zip(*rollout, strict=True))  # [T, B, ...]
    old = head.log_prob(params, raw)
    rows = torch.tensor([5, 0, 11])
    flat = latent.flatten(0, 1)[rows]
    new_params, new, entropy = head.score(flat, raw.flatten(0, 1)[rows])
    assert_close(new, old.flatten()[rows])  # before an update the ratio is 1
    assert new.shape == entropy.shape == (3,)
    (-new.mean() - 0.01 * entropy.mean() + head.kl(params.flatten(0, 1)[rows], new_params).mean()).backward()
    for parameter in head.parameters():
        assert torch.isfinite(parameter.grad).all()
        assert parameter.grad.abs().sum() > 0


def test_expln_is_smooth_and_grows_slowly():
    head = StateDependentNoise(1, 4, expln=True)
    with torch.no_grad():
        head.log_std.copy_(torch.tensor([[-2.0], [0.0], [3.0], [1e30]]))
    std = head.weight_std()
    expected = [math.exp(-2), 1.0, math.log(4) + 1, math.log(1e30) + 1]
    assert_close(std.detach().flatten(), torch.tensor(expected))
    (slope,) = torch.autograd.grad(std.sum(), head.log_std)
    assert_close(slope.flatten(), torch.tensor([math.exp(-2), 1.0, 0.25, 1e-30]))


@pytest.mark.parametrize("expln", [False, True])
@pytest.mark.parametrize("init_std", [0.1, 1.0, 2.5])
def test_deviations_start_at_init_std(init_std, expln):
    head = StateDependentNoise(A, L, init_std=init_std, expln=expln)
    assert_close(head.weight_std(), torch.full((L, A), init_std))
    assert set(head.state_dict()) == {"log_std", "mean.weight", "mean.bias"}
    assert StateDependentNoise(A, L, full_std=False).log_std.shape == (L, 1)


@torch.no_grad()
def test_squashed_entropy_is_unknown_and_kl_is_that_of_the_gaussians():
    squashed, plain = make(squash=True), make()
    latent, other = latent_of((4,)), latent_of((4,), seed=9)
    p, q = Distribution(squashed, squashed(latent)), Distribution(squashed, squashed(other))
    assert p.entropy() is None
    assert_close(kl_divergence(p, q), plain.kl(plain(latent), plain(other)))
    assert Distribution(plain, plain(latent)).entropy().shape == (4,)
    with pytest.raises(ValueError, match="different actions"):
        kl_divergence(p, Distribution(plain, plain(latent)))
    action, log_prob = p.sample_and_log_prob(2000, generator())
    assert action.abs().max() <= 1
    by_estimate = p.estimated_entropy(2000, generator())
    assert_close(by_estimate, -log_prob.mean(0))


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="number of features"):
        StateDependentNoise(2, 0)
    with pytest.raises(ValueError, match="must be positive"):
        StateDependentNoise(2, 3, init_std=0.0)
    with pytest.raises(ValueError, match="needs finite limits"):
        StateDependentNoise(2, 3, squash=True, low=-math.inf)
