"""Continuous heads against torch.distributions in float64, sampling, limits, starts and mistakes."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch import distributions as reference
from torch.testing import assert_close

from gaitway.nn.continuous import Beta, Gaussian, SquashedGaussian
from gaitway.nn.head import Head

A = 3
LEADING = [(), (4,), (5, 4)]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def heads() -> dict[str, Head]:
    low, high = (-1.0, -2.0, 0.5), (1.0, 4.0, 0.75)
    return {
        "gaussian": Gaussian(A, init_std=0.7),
        "rescaled": Gaussian(A, low, high, init_std=0.7, std_type="scalar"),
        "state dependent": Gaussian(A, low, high, state_dependent=True),
        "state dependent scalar": Gaussian(A, state_dependent=True, std_type="scalar", std_range=(0.05, 2.0)),
        "squashed": SquashedGaussian(A, low, high, init_std=0.7),
        "beta": Beta(A, low, high),
    }


def twin(head: Head, params: Tensor) -> reference.Distribution:
    """The distribution of the action, by torch."""
    first, second = params.chunk(2, -1)
    if isinstance(head, Gaussian):
        return reference.Independent(reference.Normal(first, second), 1)
    if isinstance(head, Beta):
        base, transforms = reference.Beta(first, second), []
        scale = reference.AffineTransform(head._low.double(), head._range.double())
    else:
        base, transforms = reference.Normal(first, second), [reference.TanhTransform()]
        scale = reference.AffineTransform(head.centre.double(), head.half_range.double())
    return reference.TransformedDistribution(reference.Independent(base, 1), [*transforms, scale])


def params_of(head: Head, leading: tuple[int, ...], seed: int = 0) -> Tensor:
    output = torch.randn(*leading, head.inputs, generator=generator(seed), dtype=torch.float64)
    return head.double()(output).detach()


@pytest.mark.parametrize("name", heads())
@pytest.mark.parametrize("leading", LEADING)
def test_log_prob_is_the_density_of_the_action(name, leading):
    head = heads()[name]
    params = params_of(head, leading)
    raw = head.sample(params, generator(1))
    assert raw.shape == (*leading, *head.raw_shape)
    assert params.shape == (*leading, head.num_params)
    log_prob = head.log_prob(params, raw)
    assert log_prob.shape == leading  # the event is summed once, the batch never
    assert_close(log_prob, twin(head, params).log_prob(head.action(raw)), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", heads())
@pytest.mark.parametrize("leading", LEADING)
def test_entropy_and_kl(name, leading):
    head = heads()[name]
    old, new = params_of(head, leading), params_of(head, leading, seed=1)
    if isinstance(head, Beta):
        expected = reference.Independent(reference.Beta(*old.chunk(2, -1)), 1)
        other = reference.Independent(reference.Beta(*new.chunk(2, -1)), 1)
    else:
        expected = reference.Independent(reference.Normal(*old.chunk(2, -1)), 1)
        other = reference.Independent(reference.Normal(*new.chunk(2, -1)), 1)
    assert_close(head.entropy(old), expected.entropy())
    assert_close(head.kl(old, new), reference.kl_divergence(expected, other))
    assert_close(head.kl(old, old), torch.zeros(leading, dtype=torch.float64), atol=1e-12, rtol=0)
    assert head.entropy_is_exact == isinstance(head, Gaussian)


@pytest.mark.parametrize("name", heads())
def test_monte_carlo(name):
    head = heads()[name]
    old, new = params_of(head, ()), params_of(head, (), seed=1)
    many = old.expand(40_000, -1)
    raw = head.sample(many, generator(2))
    log_prob = head.log_prob(many, raw)
    difference = log_prob - head.log_prob(new.expand_as(many), raw)
    assert abs(difference.mean() - head.kl(old, new)) < 5 * difference.std() / math.sqrt(len(raw))
    entropy = -log_prob
    if isinstance(head, Beta):
        entropy = entropy - head._log_range  # of the unit variable
    if isinstance(head, SquashedGaussian):
        entropy = -head.gaussian.log_prob(many, raw)  # of the value before tanh
    assert abs(entropy.mean() - head.entropy(old)) < 5 * entropy.std() / math.sqrt(len(raw))
    if isinstance(head, Gaussian | Beta):
        assert_close(head.std(old), head.action(raw).std(0), atol=0, rtol=0.02)


@pytest.mark.parametrize("name", heads())
def test_sampling_uses_the_given_generator_only(name):
    head = heads()[name]
    params = head(torch.randn(6, head.inputs, generator=generator()))
    before = torch.get_rng_state()
    first, second, other = (head.sample(params, generator(seed)) for seed in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert first.dtype == head.raw_dtype
    layout = params.detach().t().contiguous().t()  # numbers do not depend on strides
    assert torch.equal(head.sample(layout, generator(5)), first)


@pytest.mark.parametrize("name", heads())
def test_raw_and_action_are_inverse(name):
    head = heads()[name]
    params = params_of(head, (7,))
    raw = head.sample(params, generator(3))
    assert_close(head.raw(head.action(raw)), raw, atol=1e-6, rtol=1e-6)
    assert head.raw_is_action == (head.action(raw) is raw)
    if not head.raw_is_action:
        low, high = torch.tensor([-1.0, -2.0, 0.5]).double(), torch.tensor([1.0, 4.0, 0.75]).double()
        assert ((head.action(raw) > low) & (head.action(raw) < high)).all()
        assert torch.isfinite(head.raw(high.expand(2, A))).all()
        assert torch.isfinite(head.raw(low.float().expand(2, A))).all()


@pytest.mark.parametrize("name", heads())
def test_gradients_are_finite_in_extreme_places(name):
    head = heads()[name]
    for scale in (1.0, 30.0):
        output = (scale * torch.randn(64, head.inputs, generator=generator())).requires_grad_()
        params = head(output)
        raw = head.sample(params, generator(1)).detach()
        total = head.log_prob(params, raw) + head.entropy(params) + head.kl(params.detach(), params)
        total.sum().backward()
        assert torch.isfinite(output.grad).all()
    reparametrised = head.sample(head(output), generator(1))
    assert reparametrised.requires_grad


def test_mode():
    gaussian = Gaussian(2)
    assert torch.equal(gaussian.mode(gaussian(torch.tensor([0.3, -2.0]))), torch.tensor([0.3, -2.0]))
    squashed = SquashedGaussian(2, low=0.0, high=10.0)
    action = squashed.action(squashed.mode(squashed(torch.tensor([0.0, 0.5]))))
    assert_close(action, torch.tensor([5.0, 5.0 + 5.0 * math.tanh(0.5)]))
    beta = Beta(1, low=0.0, high=1.0)  # alpha 3, beta 2: mode (3 - 1) / (3 + 2 - 2)
    params = torch.tensor([3.0, 2.0])
    assert_close(beta.mode(params), torch.tensor([2 / 3]), atol=1e-6, rtol=0)
    grid = torch.linspace(0.01, 0.99, 99).unsqueeze(-1)
    assert abs(grid[beta.log_prob(params, grid).argmax()].item() - 2 / 3) < 0.01
    assert_close(beta.mode(torch.ones(2)), torch.tensor([0.5]))  # flat: the centre


def test_fix_61_squashed_density_is_exact_far_out():
    head = SquashedGaussian(1).double()
    params = torch.tensor([8.0, 1.0], dtype=torch.float64)
    raw = torch.tensor([8.0], dtype=torch.float64)
    exact = -0.5 * math.log(2 * math.pi) - math.log(1 - math.tanh(8.0) ** 2)
    assert abs(head.log_prob(params, raw).item() - exact) < 1e-6
    with_epsilon = -0.5 * math.log(2 * math.pi) - math.log(1 - math.tanh(8.0) ** 2 + 1e-6)
    assert abs(with_epsilon - exact) > 1.0
    assert math.isfinite(head.float().log_prob(params.float() * 5, raw.float() * 5).item())


def test_gaussian_speaks_in_units_of_the_action_range():
    head = Gaussian(3, low=(-2.0, 0.0, -math.inf), high=(2.0, 10.0, 1.0), init_std=0.5)
    params = head(torch.tensor([1.0, -1.0, 7.0]))
    assert_close(params, torch.tensor([2.0, 0.0, 7.0, 1.0, 2.5, 0.5]))  # no full range: own unit
    plain = Gaussian(3, low=(-2.0, 0.0, -1.0), high=(2.0, 10.0, 1.0), init_std=0.5, rescale=False)
    assert_close(plain(torch.tensor([1.0, -1.0, 7.0])), torch.tensor([1.0, -1.0, 7.0, 0.5, 0.5, 0.5]))
    assert_close(head.std(params), torch.tensor([1.0, 2.5, 0.5]))


@pytest.mark.parametrize("std_type", ["log", "scalar"])
def test_deviation_is_positive_and_bounded_whatever_the_parameter(std_type):
    head = Gaussian(4, low=-3.0, high=3.0, std_type=std_type, std_range=(0.1, 2.0), init_std=1.0)
    (parameter,) = head.parameters()
    assert_close(head.std(head(torch.zeros(4))), torch.full((4,), 3.0))
    with torch.no_grad():
        parameter.copy_(torch.tensor([-50.0, -0.01, 0.01, 50.0]))
    params = head(torch.zeros(7, 4))
    std = head.std(params) / 3
    assert ((std >= 0.0999) & (std <= 2.001)).all()
    expected = {"log": 2, "scalar": 4}[std_type]  # log: exp(+-0.01) lies inside
    assert head.at_bound(params).item() == 7 * expected
    assert head.at_bound(Gaussian(4)(torch.zeros(4))).item() == 0


def test_std_type_and_learn_std():
    assert set(Gaussian(2).state_dict()) == {"log_std"}
    assert set(Gaussian(2, std_type="scalar").state_dict()) == {"linear_std"}
    fixed = Gaussian(2, learn_std=False, init_std=0.2)
    assert not list(fixed.parameters())
    assert set(fixed.state_dict()) == {"log_std"}
    assert_close(fixed.std(fixed(torch.zeros(2))), torch.full((2,), 0.2))
    assert_close(Gaussian(1, init_std=0.3).log_std.exp(), torch.tensor([0.3]))
    assert Gaussian(2, state_dependent=True).inputs == 4


@pytest.mark.parametrize("std_type", ["log", "scalar"])
def test_state_dependent_deviation_starts_at_init_std(std_type):
    for head in (
        Gaussian(2, init_std=0.3, std_type=std_type, state_dependent=True),
        SquashedGaussian(2, init_std=0.3, std_type=std_type, state_dependent=True),
    ):
        layer = nn.Linear(5, 4)
        mean_rows = layer.weight[:2].clone()
        head.init_last_layer(layer)
        params = head(layer(torch.randn(6, 5, generator=generator())))
        assert_close(head.std(params), torch.full((6, 2), 0.3))
        assert torch.equal(layer.weight[:2], mean_rows)
        with pytest.raises(ValueError, match="no bias"):
            head.init_last_layer(nn.Linear(5, 4, bias=False))
    with pytest.raises(ValueError, match="reads 3"):
        Gaussian(3).init_last_layer(nn.Linear(5, 4))


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="1e-6 or above"):
        Gaussian(2, std_range=(1e-9, 1.0))
    with pytest.raises(ValueError, match="must lie in std_range"):
        Gaussian(2, init_std=0.0)
    with pytest.raises(ValueError, match="'log' or 'scalar'"):
        Gaussian(2, std_type="softplus")
    with pytest.raises(ValueError, match="state_dependent"):
        Gaussian(2, learn_std=False, state_dependent=True)
    with pytest.raises(ValueError, match="below high"):
        Gaussian(2, low=1.0, high=1.0)
    with pytest.raises(ValueError, match="one per dimension"):
        Gaussian(2, low=(0.0, 0.0, 0.0), high=1.0)
    with pytest.raises(ValueError, match="at least one dimension"):
        Gaussian(0)
    for kind in (SquashedGaussian, Beta):
        with pytest.raises(ValueError, match="needs finite limits"):
            kind(2, low=-1.0, high=(1.0, math.inf))


@pytest.mark.parametrize("name", heads())
@pytest.mark.parametrize("leading", LEADING)
def test_score_is_params_log_prob_and_entropy(name, leading):
    head = heads()[name].double()
    output = torch.randn(*leading, head.inputs, generator=generator(), dtype=torch.float64, requires_grad=True)
    raw = head.sample(head(output).detach(), generator(1))
    weights = torch.randn(2, *leading, generator=generator(2), dtype=torch.float64)
    learnt = [output, *head.parameters()]

    def slopes(log_prob: Tensor, entropy: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad((weights[0] * log_prob + weights[1] * entropy).sum(), learnt)

    params, log_prob, entropy = head.score(output, raw)
    assert_close(params, head(output))
    assert_close(log_prob, head.log_prob(params, raw))
    assert_close(entropy, head.entropy(params))
    expected = slopes(head.log_prob(head(output), raw), head.entropy(head(output)))
    assert_close(slopes(log_prob, entropy), expected)


@pytest.mark.parametrize("name", heads())
@pytest.mark.parametrize("is_random", [True, False])
def test_a_sampler_draws_what_sample_draws(name, is_random):
    head = heads()[name]
    with torch.no_grad():
        draw = head.sampler(generator(3) if is_random else None)
        stream = generator(3)
        for seed in range(2):
            output = torch.randn(4, head.inputs, generator=generator(seed))
            params, raw = draw(output)
            assert torch.equal(params, head(output))
            expected = head.sample(params, stream) if is_random else head.mode(params)
            assert torch.equal(raw, expected)
            kept = raw.clone()
            output.zero_()  # networks use the memory of their outputs again
            assert torch.equal(raw, kept)


@pytest.mark.parametrize("name", heads())
def test_bug_59_the_event_is_the_last_axis_and_summed_once(name):
    head = heads()[name]
    params = params_of(head, (5, 4))
    raw = head.sample(params, generator(1))
    for found in (head.log_prob(params, raw), head.entropy(params), head.kl(params, params)):
        assert found.shape == (5, 4)  # over axis 1 it would be [5, 3]
    alone = head.log_prob(params[2, 3], raw[2, 3])
    assert alone.shape == ()
    assert_close(alone, head.log_prob(params, raw)[2, 3])


def test_bug_60_gaussians_are_complete_on_their_own():
    for kind in (Gaussian, SquashedGaussian):
        head = kind(2, init_std=0.5)
        params = head(torch.tensor([[0.2, -0.1]]))
        assert_close(params, torch.tensor([[0.2, -0.1, 0.5, 0.5]]))
        raw = head.sample(params, generator())
        for found in (head.log_prob(params, raw), head.entropy(params), head.kl(params, params)):
            assert found.shape == (1,)
        assert head.action(head.mode(params)).shape == (1, 2)
        mean, std = torch.zeros(3, 2), torch.tensor([0.5, 2.0])
        joined = head.from_mean_std(mean, std)  # one deviation for all rows
        assert_close(joined, torch.tensor([[0.0, 0.0, 0.5, 2.0]]).expand(3, 4))
        assert_close(head.std(joined), std.expand(3, 2))


def test_bug_61_squashed_gaussian_is_exact_and_its_entropy_unknown():
    head = SquashedGaussian(2, low=(-1.0, 0.0), high=(1.0, 10.0))
    for u in (0.0, 3.0, 8.0, 40.0, -40.0):
        params, raw = torch.tensor([u, u, 1.0, 1.0]), torch.tensor([u, u])
        slope = math.log(4) - 2 * abs(u) - 2 * math.log1p(math.exp(-2 * abs(u)))  # log(1 - tanh^2)
        expected = 2 * (-0.5 * math.log(2 * math.pi) - slope) - math.log(5.0)  # half ranges 1 and 5
        assert abs(head.log_prob(params, raw).item() - expected) < 1e-4
    assert head.action_entropy(params) is None
    assert Gaussian(2).action_entropy(params).item() == Gaussian(2).entropy(params).item()


def test_entropy_of_a_stretched_beta_by_integration():
    head = Beta(1, low=-1.0, high=4.0).double()
    params = torch.tensor([2.0, 3.5], dtype=torch.float64)
    unit = torch.linspace(1e-6, 1 - 1e-6, 100_001, dtype=torch.float64).unsqueeze(-1)
    log_prob = head.log_prob(params, unit)
    expected = -torch.trapezoid(log_prob.exp() * log_prob, head.action(unit).squeeze(-1))
    assert_close(head.action_entropy(params), expected, atol=1e-6, rtol=0)
