"""The head that an action gets, and the heads it is refused."""

import math

import pytest
import torch
from torch.testing import assert_close

from gaitway.envs.vec_env import ActionSpec
from gaitway.nn.distributions import KINDS, Beta, Categorical, Gaussian, Head, SquashedGaussian, make_distribution

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
