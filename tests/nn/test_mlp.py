"""Shapes, starts and names of fully connected networks."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gaitway.nn.mlp import ACTIVATIONS, MLP, activation, linear


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def linears(network: nn.Module) -> list[nn.Linear]:
    return [layer for layer in network.modules() if isinstance(layer, nn.Linear)]


def test_activations_are_fresh_and_any_case():
    for name in ACTIVATIONS:
        assert activation(name) is not activation(name)
    assert isinstance(activation("ELU"), nn.ELU)
    assert isinstance(activation("swish"), nn.SiLU)
    assert isinstance(activation("leaky_relu"), nn.LeakyReLU)
    with pytest.raises(ValueError, match="did you mean 'tanh'"):
        activation("tahn")
    with pytest.raises(ValueError, match="known: elu"):
        activation("quux")


def test_output_is_the_composition_of_its_layers():
    network = MLP(3, [5, 4], 2, activation="tanh", last_activation="sigmoid", generator=generator())
    x = torch.randn(7, 3, generator=generator(1))
    first, second, last = linears(network)
    hidden = torch.tanh(torch.tanh(x @ first.weight.t() + first.bias) @ second.weight.t() + second.bias)
    assert_close(network(x), torch.sigmoid(hidden @ last.weight.t() + last.bias))
    assert network.outputs == 2


def test_widths():
    assert [layer.out_features for layer in linears(MLP(6, [-1, 4], 2))] == [6, 4, 2]
    features = MLP(6, [5, 4], activation="relu")  # the last hidden layer, after its activation
    assert features.outputs == 4
    assert (features(torch.randn(20, 6, generator=generator())) >= 0).all()
    for hidden in ([], None):
        mapping = MLP(3, hidden, 2)
        assert [type(layer) for layer in mapping.layers] == [nn.Linear]
    assert MLP(3, 8, 2).outputs == 2
    nothing = MLP(3, None)
    x = torch.randn(2, 3, generator=generator())
    assert nothing.outputs == 3
    assert torch.equal(nothing(x), x)
    for arguments in ((0, [4], 2), (3, [0], 2), (3, [4], 0), (3, [-2], 1)):
        with pytest.raises(ValueError, match="at least 1"):
            MLP(*arguments)


def test_any_leading_shape():
    network = MLP(3, [8], 2, generator=generator())
    x = torch.randn(4, 5, 3, generator=generator(1))
    assert_close(network(x)[2, 3], network(x[2, 3]))
    assert network(x).shape == (4, 5, 2)
    assert network(x[:0]).shape == (0, 5, 2)


def test_start_comes_from_the_generator_only():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, second = (MLP(4, [8, 8], 2, generator=generator(5)) for _ in range(2))
    other = MLP(4, [8, 8], 2, generator=generator(6))
    MLP(4, [8], 2, init="orthogonal", generator=generator(6))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.layers[0].weight, second.layers[0].weight)
    assert not torch.equal(first.layers[0].weight, other.layers[0].weight)


def test_default_start_is_that_of_torch():
    torch.manual_seed(3)
    ours = linear(17, 8)
    torch.manual_seed(3)
    theirs = nn.Linear(17, 8)
    assert_close(ours.weight, theirs.weight)
    assert_close(ours.bias, theirs.bias)


def test_orthogonal_start():
    network = MLP(6, [16, 16], 3, init="orthogonal", last_gain=0.01, generator=generator())
    first, second, last = linears(network)
    assert_close(first.weight.t() @ first.weight, 2.0 * torch.eye(6), atol=1e-5, rtol=0)
    assert_close(second.weight.t() @ second.weight, 2.0 * torch.eye(16), atol=1e-5, rtol=0)
    assert_close(last.weight @ last.weight.t(), 1e-4 * torch.eye(3), atol=1e-8, rtol=0)
    assert all(not layer.bias.any() for layer in (first, second, last))
    hidden_only = linears(MLP(6, [8], init="orthogonal", last_gain=0.01))[-1]  # a hidden layer is never "last"
    assert math.isclose(hidden_only.weight.norm().item(), math.sqrt(2 * 6), rel_tol=1e-4)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="default"):
        MLP(3, [4], 2, init="xavier")
    with pytest.raises(ValueError, match="last_activation needs outputs"):
        MLP(3, [4], last_activation="tanh")
    with pytest.raises(ValueError, match="did you mean 'relu'"):
        MLP(3, [4], 2, activation="rleu")
