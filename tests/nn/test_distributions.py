"""The head that an action gets, and the heads it is refused."""

import math

import pytest
import torch
from scipy import stats
from torch.testing import assert_close

from gaitway.envs.spec import ActionSpec
from gaitway.nn.distributions import (
    KINDS,
    Bernoulli,
    Beta,
    Categorical,
    Distribution,
    Gaussian,
    Head,
    MultiCategorical,
    SquashedGaussian,
    StateDependentNoise,
    kl_divergence,
    make_distribution,
)

BOX = ActionSpec("continuous", ("hip", "knee"), low=(-1.0, -2.0), high=(1.0, 4.0))
FREE = ActionSpec("continuous", ("hip", "knee"), low=(-math.inf, -2.0), high=(math.inf, 4.0))
CHOICE = ActionSpec("discrete", ("turn",), choices=(4,), start=(3,))
CHOICES = ActionSpec("multi_discrete", ("turn", "jump"), choices=(4, 2))
SWITCHES = ActionSpec("multi_discrete", ("left", "right"), choices=(2, 2), start=(0, 1))


@pytest.mark.parametrize(
    ("action", "kind", "expected"),
    [
        (BOX, "auto", "gaussian"),
        (FREE, "auto", "gaussian"),
        (CHOICE, "auto", "categorical"),
        (CHOICES, "auto", "multi_categorical"),
        (SWITCHES, "auto", "multi_categorical"),
        (SWITCHES, "bernoulli", "bernoulli"),
        (BOX, "squashed_gaussian", "squashed_gaussian"),
        (BOX, "beta", "beta"),
    ],
)
def test_the_chosen_head_gives_actions_the_environment_takes(action, kind, expected):
    head = make_distribution(action, kind)
    assert type(head) is KINDS[expected]
    generator = torch.Generator().manual_seed(0)
    raw = head.sample(head(torch.randn(50, head.inputs, generator=generator)), generator)
    given = head.action(raw)
    assert given.shape == (50, *action.shape)
    assert given.dtype == action.dtype
    if action.kind != "continuous":
        start = torch.tensor(action.start or [0] * len(action.choices))
        low, high = start, start + torch.tensor(action.choices) - 1
        values = given.view(50, -1)
        assert torch.equal(values.amin(0), low)
        assert torch.equal(values.amax(0), high)


def test_limits_come_from_the_action_or_the_options():
    assert_close(make_distribution(BOX)(torch.zeros(2)), torch.tensor([0.0, 1.0, 1.0, 3.0]))
    own = make_distribution(FREE, "beta", low=-1.0, high=(1.0, 2.0))
    assert isinstance(own, Beta)
    assert_close(own.action(torch.tensor([1.0, 1.0])), torch.tensor([1.0, 2.0]))
    gaussian = make_distribution(BOX, init_std=0.1, std_type="scalar", rescale=False)
    assert isinstance(gaussian, Gaussian)
    assert_close(gaussian(torch.zeros(2)), torch.tensor([0.0, 0.0, 0.1, 0.1]))
    squashed = make_distribution(BOX, "squashed_gaussian", state_dependent=True)
    assert isinstance(squashed, SquashedGaussian)
    assert squashed.inputs == 4
    choice = make_distribution(CHOICE)
    assert isinstance(choice, Categorical)
    assert (choice.n, choice.start) == (4, 3)


@pytest.mark.parametrize(
    ("action", "kind", "advice"),
    [
        (CHOICE, "beta", "use categorical"),
        (CHOICES, "bernoulli", "use multi_categorical"),
        (CHOICES, "categorical", "use multi_categorical"),
        (FREE, "squashed_gaussian", "use gaussian$"),
        (FREE, "beta", "use gaussian$"),
        (BOX, "categorical", "use gaussian or squashed_gaussian or beta"),
    ],
)
def test_impossible_pairs_name_what_fits(action, kind, advice):
    with pytest.raises(ValueError, match=advice):
        make_distribution(action, kind)


def test_misspelt_kinds_and_options_are_named():
    with pytest.raises(ValueError, match="did you mean 'gaussian'"):
        make_distribution(BOX, "gausian")
    with pytest.raises(ValueError, match="no option init_sd; you can set low, high, init_std"):
        make_distribution(BOX, init_sd=1.0)
    with pytest.raises(ValueError, match="no option low; you can set none"):
        make_distribution(CHOICE, low=0.0)
    with pytest.raises(ValueError, match="no option size"):  # the action decides
        make_distribution(BOX, size=3)


def test_the_interface_alone_says_what_is_missing():
    head, params = Head(), torch.zeros(2)
    for call in (
        lambda: head(params),
        lambda: head.sample(params, torch.Generator()),
        lambda: head.mode(params),
        lambda: head.log_prob(params, params),
        lambda: head.entropy(params),
        lambda: head.kl(params, params),
    ):
        with pytest.raises(TypeError, match="Head does not implement"):
            call()


# Heads as distributions


def families() -> dict[str, Head]:
    return {
        "gaussian": Gaussian(3, low=-2.0, high=2.0),
        "squashed": SquashedGaussian(3, low=(-1.0, 0.0, -5.0), high=(1.0, 4.0, 5.0), state_dependent=True),
        "beta": Beta(3, low=0.0, high=4.0),
        "state dependent noise": StateDependentNoise(3, 5, generator=stream()),
        "squashed state dependent noise": StateDependentNoise(3, 5, squash=True, init_std=0.5, generator=stream()),
        "categorical": Categorical(4, start=3),
        "multi categorical": MultiCategorical((3, 2, 4), start=(1, 0, 2)),
        "bernoulli": Bernoulli(3),
    }


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def made(name: str, leading: tuple[int, ...] = (4,), seed: int = 0) -> Distribution:
    head = families()[name].double()
    output = torch.randn(*leading, head.inputs, generator=stream(seed), dtype=torch.float64)
    with torch.no_grad():
        return Distribution(head, head(output), stream(seed + 100))


@pytest.mark.parametrize("name", families())
@pytest.mark.parametrize("leading", [(), (4,), (5, 4)])
def test_shapes_for_every_leading_shape(name, leading):
    p = made(name, leading)
    event = p.head.raw_shape
    assert p.shape == leading
    assert p.sample().shape == p.mode().shape == p.action().shape == (*leading, *event)
    many = p.sample(7)
    assert many.shape == (7, *leading, *event)
    assert p.log_prob(many).shape == (7, *leading)
    assert p.log_prob(many[0]).shape == leading
    assert_close(p.log_prob(many)[3], p.log_prob(many[3]))
    assert p.sample(0).shape == (0, *leading, *event)
    assert torch.equal(p.action(stochastic=False), p.mode())
    assert p.estimated_entropy(3).shape == leading
    first, second = p.sample(2, stream(1)), p.sample(2, stream(1))
    assert torch.equal(first, second)
    assert not torch.equal(p.sample(50, stream(1)), p.sample(50, stream(2)))
    before = torch.get_rng_state()
    p.sample(2)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", families())
def test_bug_63_one_rule_for_divergences(name):
    p, q = made(name, (2,)), made(name, (2,), seed=1)
    found = kl_divergence(p, q)
    assert found.shape == (2,)  # summed over the event, for every family
    assert_close(found, p.kl(q))
    assert_close(kl_divergence(p, p), torch.zeros(2, dtype=torch.float64), atol=1e-12, rtol=0)
    raw = p.head.sample(p.params.expand(40_000, *p.params.shape), stream(9))
    ratio = p.head.log_prob(p.params.expand(len(raw), *p.params.shape), raw)
    ratio = ratio - q.head.log_prob(q.params.expand(len(raw), *q.params.shape), raw)
    assert ((ratio.mean(0) - found).abs() < 4.5 * ratio.std(0) / math.sqrt(len(raw)) + 1e-9).all()


@pytest.mark.parametrize("name", families())
def test_entropy_is_that_of_the_action_or_none(name):
    p = made(name, (2,))
    actions, log_prob = p.sample_and_log_prob(40_000)
    error = 4.5 * log_prob.std(0) / math.sqrt(len(log_prob)) + 1e-9
    exact = p.entropy()
    assert (exact is None) == ("squashed" in name)
    if exact is not None:
        assert ((exact + log_prob.mean(0)).abs() < error).all()
        assert ((p.estimated_entropy(40_000) - exact).abs() < 2 * error).all()
    close = torch.isclose(p.log_prob(actions), log_prob, atol=1e-4, rtol=1e-4)
    assert close.double().mean() > 0.999  # an action that tanh rounded to its limit cannot be taken back exactly


def test_densities_by_scipy():
    mean, std = torch.tensor([0.3, -1.0], dtype=torch.float64), torch.tensor([0.5, 2.0], dtype=torch.float64)
    action = torch.tensor([0.1, 0.4], dtype=torch.float64)
    gaussian = Gaussian(2).double()
    p = Distribution(gaussian, gaussian.from_mean_std(mean, std))
    by_scipy = stats.norm(mean.numpy(), std.numpy())
    assert math.isclose(p.log_prob(action).item(), by_scipy.logpdf(action.numpy()).sum(), rel_tol=1e-12)
    assert math.isclose(p.entropy().item(), by_scipy.entropy().sum(), rel_tol=1e-12)
    squashed = SquashedGaussian(2).double()
    q = Distribution(squashed, squashed.from_mean_std(mean, std))
    behind = torch.atanh(action)
    expected = by_scipy.logpdf(behind.numpy()).sum() - (1 - action**2).log().sum().item()
    assert math.isclose(q.log_prob(action).item(), expected, rel_tol=1e-9)
    assert math.isclose(q.log_prob(action, raw=behind).item(), expected, rel_tol=1e-9)
    beta = Distribution(Beta(2, low=0.0, high=1.0).double(), torch.tensor([2.0, 3.0, 4.0, 1.5], dtype=torch.float64))
    by_scipy = stats.beta([2.0, 3.0], [4.0, 1.5])
    unit = torch.tensor([0.2, 0.7], dtype=torch.float64)
    assert math.isclose(beta.log_prob(unit).item(), by_scipy.logpdf(unit.numpy()).sum(), rel_tol=1e-9)
    assert math.isclose(beta.entropy().item(), by_scipy.entropy().sum(), rel_tol=1e-9)


def test_samples_of_a_saturated_policy_keep_their_exact_density():
    head = SquashedGaussian(1)
    p = Distribution(head, torch.tensor([30.0, 1.0]), stream())
    action, log_prob = p.sample_and_log_prob(100)
    assert (action == 1).all()  # in float32 the limit itself
    # log p = log N(u) + 2 u - log 4 with u near 30
    assert (log_prob > 40).all()
    assert torch.isfinite(p.log_prob(action)).all()


def test_gradients_flow_through_samples_of_continuous_heads():
    head = Gaussian(2)
    params = torch.tensor([[0.0, 1.0, 0.5, 0.5]], requires_grad=True)
    (slope,) = torch.autograd.grad(Distribution(head, params, stream()).sample(6).sum(), params)
    assert_close(slope[0, :2], torch.tensor([6.0, 6.0]))


def test_bug_63_actions_are_in_the_numbering_of_the_environment():
    p = made("categorical", (200,))
    assert set(p.sample().tolist()) == {3, 4, 5, 6}
    assert torch.equal(p.mode(), p.params.argmax(-1) + 3)
    assert_close(p.log_prob(p.mode()), p.params.amax(-1))


def test_divergences_of_different_kinds_are_refused():
    p = made("gaussian")
    for name in families():
        if name != "gaussian":
            with pytest.raises(TypeError, match="one kind"):
                kl_divergence(p, made(name))
    for first, second in (
        (Categorical(4), Categorical(4, start=1)),
        (MultiCategorical((2, 3)), MultiCategorical((3, 3))),
        (Bernoulli(2, as_int=True), Bernoulli(2, start=(1, 1), as_int=True)),
        (SquashedGaussian(2), SquashedGaussian(2, high=2.0)),
        (Beta(2), Beta(2, low=-2.0)),
    ):
        pair = [Distribution(head, head(torch.zeros(1, head.inputs))) for head in (first, second)]
        with pytest.raises(ValueError, match="different actions"):
            kl_divergence(*pair)
    wide = Gaussian(3, low=-1.0, high=1.0).double()  # limits do not matter: parameters are in the action's own units
    q = Distribution(wide, p.params)
    assert_close(kl_divergence(p, q), torch.zeros(4, dtype=torch.float64))


def test_wrong_shapes_and_missing_streams_are_named():
    head = Gaussian(1)
    p = Distribution(head, head(torch.zeros(4, 1)))
    with pytest.raises(ValueError, match=r"the actions are \[4\]; one per element is \[4, 1\]"):
        p.log_prob(torch.zeros(4))  # would broadcast to [4, 4]
    with pytest.raises(ValueError, match=r"one per element is \[4\]"):
        Distribution(Categorical(3), torch.zeros(4, 3)).log_prob(torch.zeros(4, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="pass generator="):
        p.sample()
    with pytest.raises(ValueError, match="0 or more samples"):
        p.sample(-1, stream())
    with pytest.raises(ValueError, match="has 2 per action"):
        Distribution(head, torch.zeros(4, 3))
    with pytest.raises(TypeError, match="distribution_for"):
        make_distribution((2, 3))


def test_state_dependent_noise_for_an_action():
    head = make_distribution(BOX, "state_dependent_noise", latent=6, squash=True)
    assert isinstance(head, StateDependentNoise)
    assert_close(head.action(torch.tensor([100.0, -100.0])), torch.tensor([1.0, -2.0]))
    assert make_distribution(FREE, "state_dependent_noise", latent=6).inputs == 6
    with pytest.raises(ValueError, match="needs the option latent"):
        make_distribution(BOX, "state_dependent_noise")


@pytest.mark.parametrize("std_type", ["log", "scalar"])
def test_each_action_has_its_floor(std_type):
    head = Gaussian(3, init_std=0.5, std_type=std_type, std_floor=(0.1, 0.2, 0.3))
    with torch.no_grad():
        head.spread.copy_(torch.tensor([0.15, 0.15, 0.15]).log() if std_type == "log" else torch.full((3,), 0.15))
    output = torch.zeros(2, 3)
    params, log_prob, _ = head.score(output, torch.ones(2, 3))
    expected = torch.tensor([0.15, 0.2, 0.3])
    torch.testing.assert_close(head.std(params)[0], expected)
    torch.testing.assert_close(head.std(head(output))[1], expected)
    torch.testing.assert_close(log_prob, torch.distributions.Normal(0.0, expected).log_prob(torch.ones(2, 3)).sum(-1))
    (gradient,) = torch.autograd.grad(log_prob.sum(), head.spread)
    assert [bool(each) for each in gradient] == [True, False, False]
    assert head.at_bound(params) == 4
    with pytest.raises(ValueError, match="one number for each of the 3 actions"):
        Gaussian(3, std_floor=(0.1,))
    with pytest.raises(ValueError, match="between 1e-06 and init_std"):
        Gaussian(1, init_std=0.5, std_floor=(0.6,))
    with pytest.raises(ValueError, match="below std_floor"):
        head.set_std(0.25)


def test_a_bounded_mean_stays_within_the_limits():
    head = Gaussian(2, (-1.0, 0.0), (1.0, 4.0), mean_activation="tanh")
    output = torch.tensor([[0.5, -100.0], [100.0, 0.0]])
    expected = torch.tensor([[math.tanh(0.5), 0.0], [1.0, 2.0]])
    torch.testing.assert_close(head.mode(head(output)), expected)
    torch.testing.assert_close(head.mode(head.score(output, output)[0]), expected)
    torch.testing.assert_close(head.sampler(None)(output)[1], expected)
    with pytest.raises(ValueError, match="a squashed Gaussian has its tanh"):
        SquashedGaussian(2, mean_activation="tanh")
