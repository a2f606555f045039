"""Trunks: what each shape computes, written out once more with plain matrices."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gaitway.core.seeding import stream
from gaitway.nn.trunks import Network, SingleLayers, make_trunk


def made(kind, hidden, layer_norm=False, activation="relu", inputs=3):
    trunk = make_trunk(kind, inputs, hidden, SingleLayers(generator=stream(0, "test")), activation, layer_norm)
    with torch.no_grad():  # normalisations start as identities: give them something to be wrong about
        for index, p in enumerate(trunk.parameters()):
            p.add_(0.1 * torch.randn(p.shape, generator=stream(index, "noise")))
    return trunk


def x_of(*shape):
    return torch.randn(*shape, generator=stream(1, "test"))


def normalised(h, norm):
    centred = h - h.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight + norm.bias


def test_mlp_is_linear_layers_and_activations():
    trunk, x = made("mlp", (5, 4)), x_of(7, 3)
    h = x
    for layer in trunk.linears:
        h = (h @ layer.weight.T + layer.bias).clamp(min=0)
    assert_close(trunk(x), h)
    assert trunk.outputs == 4


def test_d2rl_feeds_the_input_to_every_layer():
    trunk, x = made("d2rl", (5, 5, 4)), x_of(7, 3)
    assert [layer.in_features for layer in trunk.linears] == [3, 8, 8]
    h = x
    for index, layer in enumerate(trunk.linears):
        h = torch.cat((h, x), -1) if index else h  # hidden values first, then the input
        h = (h @ layer.weight.T + layer.bias).clamp(min=0)
    assert_close(trunk(x), h)


@pytest.mark.parametrize("kind", ["mlp", "d2rl"])
def test_layer_norm_stands_between_linear_layer_and_activation(kind):
    trunk, x = made(kind, (5, 4), layer_norm=True), x_of(7, 3)
    h = x
    for index, (layer, norm) in enumerate(zip(trunk.linears, trunk.norms, strict=True)):
        h = torch.cat((h, x), -1) if index and kind == "d2rl" else h
        h = normalised(h @ layer.weight.T + layer.bias, norm).clamp(min=0)
    assert_close(trunk(x), h)


def test_residual_blocks_are_normalised_first_and_added():
    trunk, x = made("residual", (6, 6)), x_of(7, 3)
    assert [layer.out_features for layer in trunk.widen] == [24, 24]
    h = x @ trunk.embedding.weight.T + trunk.embedding.bias
    for norm, widen, narrow in zip(trunk.norms, trunk.widen, trunk.narrow, strict=True):
        inner = (normalised(h, norm) @ widen.weight.T + widen.bias).clamp(min=0)
        h = h + inner @ narrow.weight.T + narrow.bias
    assert_close(trunk(x), normalised(h, trunk.last_norm))


@pytest.mark.parametrize("kind", ["mlp", "d2rl", "residual"])
def test_leading_shapes_are_free_and_the_input_stays_as_it_was(kind):
    network, x = Network(3, (6, 6), 2, trunk=kind), x_of(4, 5, 3)
    before = x.clone()
    assert_close(network(x)[2], network(x[2]))
    assert torch.equal(x, before)  # rectifiers overwrite what linear layers made, never what they were given


def test_activations_that_need_their_argument_get_their_gradient():
    network, x = Network(3, (6, 6), 1, activation="silu").double(), x_of(4, 3).double().requires_grad_()
    assert torch.autograd.gradcheck(network, (x,))


def test_networks_start_from_the_generator_alone():
    first, second, third = (
        Network(3, (4,), 2, layers=SingleLayers("orthogonal", stream(seed, "parameters"))) for seed in (0, 0, 1)
    )
    assert torch.equal(first.last.weight, second.last.weight)
    assert not torch.equal(first.last.weight, third.last.weight)
    weight = first.trunk.linears[0].weight
    assert_close(weight.T @ weight, 2.0 * torch.eye(3))  # gain sqrt(2)
    assert first.last.bias.abs().max() == 0


def test_the_sequence_of_a_plain_network():
    network, x = Network(3, (5, 4), 2), x_of(7, 3)
    assert_close(nn.Sequential(*network.sequence())(x), network(x))
    assert Network(3, (5, 4), 2, layer_norm=True).sequence() is None
    assert Network(3, (5, 4), 2, trunk="d2rl").sequence() is None
    assert Network(3, (4, 4), 2, trunk="residual").sequence() is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mpl", 3, (4,)), "no trunk 'mpl'"),
        (("mlp", 3, (4, 0)), "at least 1"),
        (("residual", 3, (4, 5)), "equal width"),
        (("residual", 3, ()), "equal width"),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_trunk(*arguments, SingleLayers())
    with pytest.raises(ValueError, match="init is"):
        SingleLayers("xavier")
