"""Ensembles: N networks as one give what N networks give."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gaitway.core.seeding import stream
from gaitway.nn.ensemble import Ensemble, EnsembleLayerNorm, EnsembleLayers, EnsembleLinear, constant_twin
from gaitway.nn.trunks import Network

MEMBERS = 3


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=stream(seed, "test"))


def members_of(ensemble, **options):
    """The same networks one by one, with copies of the ensemble's parameters."""
    networks = []
    for member in range(ensemble.members):
        network = Network(**options).double()
        own, stacked = dict(network.named_parameters()), dict(ensemble.network.named_parameters())
        assert list(own) == list(stacked)
        with torch.no_grad():
            for name, p in own.items():
                p.copy_(of_member(stacked[name], member, network, name))
        networks.append(network)
    return networks


def of_member(stacked, member, network, name):
    """A member's part of an ensemble's parameter (weights [in, out], others [1, width]) as its `network` keeps it."""
    value = stacked[member]
    if network.get_parameter(name).ndim == 1:
        return value.squeeze(0)
    return value.T if isinstance(network.get_submodule(name.rpartition(".")[0]), nn.Linear) else value


@pytest.mark.parametrize("outputs", [1, 4])  # a single one is not a matrix product
@pytest.mark.parametrize("trunk", ["mlp", "d2rl", "residual"])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_outputs_and_gradients_are_those_of_separate_networks(trunk, layer_norm, outputs):
    options = {"inputs": 5, "hidden": (8, 8), "outputs": outputs, "trunk": trunk, "layer_norm": layer_norm}
    ensemble = Ensemble(MEMBERS, **options, generator=stream(0, "parameters")).double()
    with torch.no_grad():
        for index, p in enumerate(ensemble.parameters()):
            p.add_(0.1 * randn(*p.shape, seed=index).double())
    networks = members_of(ensemble, **options)
    x, weight = randn(6, 5).double().requires_grad_(), randn(MEMBERS, 6, outputs, seed=1).double()
    y = ensemble(x)
    expected = torch.stack([network(x) for network in networks])
    assert_close(y, expected, atol=1e-12, rtol=1e-12)
    found = torch.autograd.grad((y * weight).sum(), [x, *ensemble.parameters()])
    separate = [list(network.parameters()) for network in networks]
    flat = [p for parameters in separate for p in parameters]
    wanted = torch.autograd.grad((expected * weight).sum(), [x, *flat])
    assert_close(found[0], wanted[0], atol=1e-12, rtol=1e-10)
    names = [name for name, _ in networks[0].named_parameters()]
    for index, (name, gradient) in enumerate(zip(names, found[1:], strict=True)):
        for member in range(MEMBERS):
            own = wanted[1 + member * len(names) + index]
            assert_close(of_member(gradient, member, networks[member], name), own, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("init", ["default", "orthogonal"])
def test_d2rl_ensembles_read_the_layout_of_whole_layers(init):
    """Weights [N, hidden + input, width], drawn like the layers that each member has in the present layout."""
    ensemble = Ensemble(MEMBERS, 5, (8, 7), 1, trunk="d2rl", init=init, generator=stream(0, "parameters")).double()
    layers = EnsembleLayers(MEMBERS, init, stream(0, "parameters"))
    whole = [layers.linear(5, 8, 2**0.5).double(), layers.linear(13, 7, 2**0.5).double()]
    x = randn(6, 5).double()
    h = [(x @ whole[0].weight[n] + whole[0].bias[n]).clamp(min=0) for n in range(MEMBERS)]
    h = [(torch.cat((h[n], x), -1) @ whole[1].weight[n] + whole[1].bias[n]).clamp(min=0) for n in range(MEMBERS)]
    expected = ensemble.network.last(torch.stack(h))
    assert_close(ensemble(x), expected, atol=1e-12, rtol=1e-12)
    other = Ensemble(MEMBERS, 5, (8, 7), 1, trunk="d2rl").double()
    other.network.last.load_state_dict(ensemble.network.last.state_dict())
    state = {f"linears.{i}.{name}": value for i in (0, 1) for name, value in whole[i].state_dict().items()}
    other.network.trunk.load_state_dict(state)
    assert torch.equal(other(x), ensemble(x))


def test_columns_that_come_apart_are_the_last_ones():
    ensemble = Ensemble(2, 5, (8,), 1, generator=stream(0, "parameters"))
    x, more = randn(4, 3), randn(4, 2, seed=1)
    assert torch.equal(ensemble(x, more), ensemble(torch.cat((x, more), -1)))


def test_members_start_apart_and_like_linear_layers():
    layer = EnsembleLinear(MEMBERS, 100, 50, stream(0, "parameters"))
    assert layer.weight.shape == (MEMBERS, 100, 50)
    assert not torch.equal(layer.weight[0], layer.weight[1])
    assert layer.weight.abs().max() <= 0.1
    assert layer.weight.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.05)  # uniform within +- 1 / sqrt(inputs)
    orthogonal = EnsembleLinear(MEMBERS, 4, 9, stream(0, "parameters"), orthogonal_gain=2.0)
    for member in orthogonal.weight:
        assert_close(member @ member.T, 4.0 * torch.eye(4))
    assert orthogonal.bias.abs().max() == 0
    again = EnsembleLinear(MEMBERS, 100, 50, stream(0, "parameters"))
    assert torch.equal(layer.weight, again.weight)


def test_last_layers_start_for_all_or_for_each():
    """Two critics at zero and a third within +- 0.003, with its usual bias."""
    options = {"members": 3, "inputs": 5, "hidden": (64, 64), "outputs": 30, "trunk": "d2rl"}
    usual = Ensemble(**options, generator=stream(0, "parameters"))
    mixed = Ensemble(**options, last_init=("zero", "zero", "small"), generator=stream(0, "parameters"))
    values = mixed(randn(6, 5))
    assert torch.equal(values[:2], torch.zeros(2, 6, 30))
    assert 0.0028 < mixed.network.last.weight[2].abs().max() <= 0.003
    assert torch.equal(mixed.network.last.bias[2], usual.network.last.bias[2])
    assert torch.equal(mixed.network.trunk.input.weight, usual.network.trunk.input.weight)
    assert torch.equal(Ensemble(**options, last_init="zero")(randn(6, 5)), torch.zeros(3, 6, 30))
    with pytest.raises(ValueError, match="last_init has 2 entries for 3 networks"):
        Ensemble(**options, last_init=("zero", "small"))


@pytest.mark.parametrize("trunk", ["mlp", "d2rl"])
@pytest.mark.parametrize("scale", [True, (True, True, False)])
def test_the_published_scale_shrinks_later_layers(trunk, scale):
    options = {"members": 3, "inputs": 5, "hidden": (8, 8, 6), "outputs": 2, "trunk": trunk}
    usual, scaled = (
        Ensemble(**options, published_scale=each, generator=stream(0, "parameters")) for each in (False, scale)
    )
    factors = [0.5**0.5, 0.5**0.5, 0.5**0.5 if scale is True else 1.0]
    found, before = scaled.state_dict(), usual.state_dict()
    for name in before:
        for member, factor in enumerate(factors):
            expected = before[name][member] * factor
            if name in ("network.trunk.linears.0.weight", "network.trunk.linears.0.bias"):
                expected = before[name][member]
            if name in ("network.trunk.input.weight", "network.trunk.bias"):  # the first 8 columns are of layer 1
                expected = torch.cat((before[name][member][:, :8], expected[:, 8:]), -1)
            assert_close(found[name][member], expected)


def test_the_published_scale_is_that_of_uniform_starts():
    for options in ({"init": "orthogonal"}, {"trunk": "residual"}):
        with pytest.raises(ValueError, match="published_scale is for uniform starts"):
            Ensemble(2, 5, (8, 8), 1, published_scale=True, **options)
    with pytest.raises(ValueError, match="3 entries for 2 networks"):
        Ensemble(2, 5, (8, 8), 1, published_scale=(True, True, False))


def test_layer_norm_of_each_member():
    norm, x = EnsembleLayerNorm(2, 4), randn(2, 3, 4)
    with torch.no_grad():
        norm.weight.copy_(randn(2, 1, 4, seed=1))
        norm.bias.copy_(randn(2, 1, 4, seed=2))
    for member in range(2):
        own = nn.LayerNorm(4)
        with torch.no_grad():
            own.weight.copy_(norm.weight[member, 0])
            own.bias.copy_(norm.bias[member, 0])
        assert_close(norm(x)[member], own(x[member]))


def test_a_constant_twin_follows_but_learns_nothing():
    ensemble = Ensemble(2, 5, (8,), 1, generator=stream(0, "parameters"))
    twin = constant_twin(ensemble)
    x = randn(4, 5).requires_grad_()
    assert not any(p.requires_grad for p in twin.parameters())
    by_twin, by_ensemble = (torch.autograd.grad(network(x).sum(), x)[0] for network in (twin, ensemble))
    assert torch.equal(by_twin, by_ensemble)
    with torch.no_grad():
        for p in ensemble.parameters():
            p.mul_(1.5)
    assert torch.equal(twin(x), ensemble(x))
    twin(x).sum().backward()
    assert all(p.grad is None for p in ensemble.parameters())


def test_an_ensemble_of_nobody_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        Ensemble(0, 5, (8,), 1)
