"""The discriminator: its written-out gradient by the input is autograd's, and so is what the penalty teaches."""

import pytest
import torch
from torch.testing import assert_close

from gaitway.functional.adversarial import gradient_penalty, input_gradient
from gaitway.nn.discriminator import Discriminator

ACTIVATIONS = ["relu", "leaky_relu", "elu", "tanh"]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", [(), (8,), (16, 8, 4)])
def test_the_gradient_and_the_gradient_of_its_penalty_are_autograds(activation, hidden):
    network = Discriminator(5, hidden, activation, torch.Generator().manual_seed(0)).double()
    x = torch.randn(12, 5, dtype=torch.float64)
    score, given = network.scores(x)
    written, expected = network.gradient(given).expand(12, 5), input_gradient(network, x)
    assert score.shape == (12,)
    assert_close(written, expected)
    weights = [network.head.weight, *(layer.weight for layer in network.trunk)]
    for slope in (0.0, 1.0):
        found, wanted = (
            torch.autograd.grad(gradient_penalty(g, slope), weights, materialize_grads=True, retain_graph=True)
            for g in (written, expected)
        )
        assert_close(found, wanted)


def test_a_wrong_slope_is_seen():
    network = Discriminator(5, (8,), "tanh", torch.Generator().manual_seed(0))
    network.activation = "elu"
    x = torch.randn(12, 5)
    _, given = network.scores(x)
    network.activation = "tanh"
    assert not torch.allclose(network.gradient(given), input_gradient(network, x), atol=1e-3)


def test_decay_by_hand():
    network = Discriminator(2, (3,), generator=torch.Generator().manual_seed(0))
    trunk, head = network.trunk[0].weight.square().sum(), network.head.weight.square().sum()
    assert_close(network.decay(0.2, 4.0), 0.1 * trunk + 2.0 * head)


def test_unknown_activations_are_named():
    with pytest.raises(ValueError, match="one of relu, leaky_relu, elu, tanh"):
        Discriminator(2, (3,), "swish")
