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


def whole_layers(trunk):
    """A D2RL trunk's layers on [hidden, input], each a weight [hidden + inputs, width] and a bias, cut out by hand."""
    first, layers = 0, []
    for index, width in enumerate(trunk.widths):
        columns = slice(first, first + width)
        own = trunk.input.weight[..., columns]
        weight = torch.cat((trunk.hidden[index - 1].weight, own), -2) if index else own
        layers.append((weight, trunk.bias[..., columns]))
        first += width
    return layers


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("shape", [(7, 3), (3,), (2, 7, 3)])
def test_d2rl_is_layers_on_the_hidden_values_and_the_input(shape, layer_norm):
    trunk, x = made("d2rl", (5, 6, 4), layer_norm).double(), x_of(*shape).double().requires_grad_()
    assert [list(weight.shape) for weight, _ in whole_layers(trunk)] == [[3, 5], [8, 6], [9, 4]]
    h = x
    for index, (weight, bias) in enumerate(whole_layers(trunk)):
        h = (torch.cat((h, x), -1) if index else h) @ weight + bias  # hidden values first, then the input
        h = (normalised(h, trunk.norms[index]) if layer_norm else h).clamp(min=0)
    found, learnt = trunk(x), [x, *trunk.parameters()]
    assert_close(found, h, atol=1e-12, rtol=1e-12)
    factor = torch.randn(h.shape, generator=stream(2, "test")).double()
    gradients = [torch.autograd.grad((y * factor).sum(), learnt) for y in (found, h)]
    assert_close(gradients[0], gradients[1], atol=1e-12, rtol=1e-12)
    assert all(gradient.abs().max() > 0 for gradient in gradients[0])


def test_d2rl_starts_like_layers_on_the_hidden_values_and_the_input():
    trunk = make_trunk("d2rl", 50, (200, 200, 200), SingleLayers(generator=stream(0, "parameters")))
    for (weight, bias), fan_in in zip(whole_layers(trunk), (50, 250, 250), strict=True):
        bound = fan_in**-0.5
        parts = [bias, weight[-50:]] + ([weight[:-50]] if fan_in > 50 else [])
        for part in parts:  # biases, the input's columns and the hidden values' alike
            assert 0.95 * bound < part.abs().max() <= bound
            assert part.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
    drawn = SingleLayers(generator=stream(0, "parameters"))
    for (weight, bias), (inputs, outputs) in zip(
        whole_layers(trunk), [(50, 200), (250, 200), (250, 200)], strict=True
    ):  # one layer after the other, its weight and then its bias
        layer = drawn.linear(inputs, outputs, 1.0)
        assert torch.equal(weight, layer.weight.T)
        assert torch.equal(bias, layer.bias)


def test_orthogonal_d2rl_layers_are_orthogonal_as_a_whole():
    trunk = make_trunk("d2rl", 3, (4, 5), SingleLayers("orthogonal", stream(0, "parameters")))
    first, second = (weight for weight, _ in whole_layers(trunk))
    assert_close(first @ first.T, 2.0 * torch.eye(3))  # gain sqrt(2)
    assert_close(second.T @ second, 2.0 * torch.eye(5))  # [4 hidden + 3 inputs, 5]
    assert trunk.bias.abs().max() == 0


def old_state(trunk):
    """A D2RL trunk's state in the layout of whole layers."""
    state = {f"norms.{name}": value for name, value in (trunk.norms or nn.Module()).state_dict().items()}
    for index, (weight, bias) in enumerate(whole_layers(trunk)):
        state |= {f"linears.{index}.weight": weight.mT if weight.ndim == 2 else weight, f"linears.{index}.bias": bias}
    return {name: value.detach() for name, value in state.items()}


@pytest.mark.parametrize("layer_norm", [False, True])
def test_d2rl_reads_the_layout_of_whole_layers(layer_norm):
    trunk, x = made("d2rl", (5, 6, 4), layer_norm), x_of(7, 3)
    state = old_state(trunk)
    whole = {name: value.clone() for name, value in state.items()}
    network = Network(3, (5, 6, 4), 2, trunk="d2rl", layer_norm=layer_norm)
    other = {f"trunk.{name}": value for name, value in state.items()}
    network.load_state_dict(other | {f"last.{name}": value for name, value in network.last.state_dict().items()})
    assert torch.equal(network.trunk(x), trunk(x))
    assert state.keys() == whole.keys()  # what was given stays as it was
    h = x
    for index in range(3):
        h = torch.cat((h, x), -1) if index else h
        h = h @ whole[f"linears.{index}.weight"].T + whole[f"linears.{index}.bias"]
        h = (normalised(h, trunk.norms[index]) if layer_norm else h).clamp(min=0)
    assert_close(network.trunk(x), h)
    del state["linears.2.bias"]
    with pytest.raises(RuntimeError, match="linears"):  # what is not whole is not read
        trunk.load_state_dict(state)
    with pytest.raises(RuntimeError, match="size mismatch"):
        made("d2rl", (5, 6, 4), layer_norm, inputs=4).load_state_dict(old_state(trunk))


def test_a_deep_network_without_layers_has_nothing_to_skip():
    network, x = Network(3, (), 2, trunk="d2rl"), x_of(7, 3)
    assert_close(network(x), x @ network.last.weight.T + network.last.bias)


def test_mlp_layer_norm_stands_between_linear_layer_and_activation():
    trunk, x = made("mlp", (5, 4), layer_norm=True), x_of(7, 3)
    h = x
    for layer, norm in zip(trunk.linears, trunk.norms, strict=True):
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


@pytest.mark.parametrize("trunk", ["mlp", "d2rl", "residual"])
def test_starts_of_the_last_layer(trunk):
    def last(last_init):
        layers = SingleLayers(generator=stream(0, "parameters"))
        network = Network(3, (400, 400), 50, layers=layers, trunk=trunk, last_init=last_init)
        return network, network.last.weight, network.last.bias

    bound, x = 400**-0.5, x_of(4, 3)
    usual, weight, bias = last("default")
    assert 0.9 * bound < bias.abs().max() <= bound
    network, weight, bias = last("zero")
    assert torch.equal(network(x), torch.zeros(4, 50))
    network, weight, bias = last("small")
    assert 0.0029 < weight.abs().max() <= 0.003
    assert weight.std().item() == pytest.approx(0.003 / 3**0.5, rel=0.05)
    assert torch.equal(bias, usual.last.bias)  # as usual
    network, weight, bias = last("small_bias")
    assert 0.0029 < weight.abs().max() <= 0.003
    assert 0.0025 < bias.abs().max() <= 0.003
    for own, other in zip(network.trunk.parameters(), usual.trunk.parameters(), strict=True):
        assert torch.equal(own, other)
    assert torch.equal(last("small")[1], last("small")[1])  # from the generator alone
    with pytest.raises(ValueError, match="last_init is 'tiny'; use one of default, zero, small, small_bias"):
        last("tiny")
    with pytest.raises(ValueError, match="2 entries for 1 networks"):
        last(("zero", "small"))


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
