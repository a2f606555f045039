"""The fast tangent and the stack run by hand, against PyTorch's own layers and autograd."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gaitway.nn.dense import DenseStack, Tanh
from gaitway.nn.mlp import MLP


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_tanh_is_exact_to_the_last_digits():
    x = torch.cat((torch.linspace(-12.0, 12.0, 20001), torch.logspace(-38, 0, 2000), torch.tensor([0.0, -0.0])))
    for y in (Tanh()(x), Tanh()(x.requires_grad_())):
        assert (y.detach().double() - x.detach().double().tanh()).abs().max() < 1e-7
    limits = Tanh()(torch.tensor([math.inf, -math.inf, math.nan]))
    assert limits[:2].tolist() == [1.0, -1.0]
    assert limits[2].isnan()


def test_tanh_keeps_shapes_strides_and_its_argument():
    x = torch.randn(6, 4, generator=generator())
    before = x.clone()
    assert_close(Tanh()(x.t()), x.t().tanh())
    assert_close(Tanh()(x[:, ::2]), x[:, ::2].tanh())
    assert Tanh()(x[:0]).shape == (0, 4)
    assert torch.equal(x, before)
    with torch.inference_mode():
        assert_close(Tanh()(x), x.tanh())


def test_first_and_second_derivatives_of_tanh():
    x = torch.randn(7, generator=generator(), requires_grad=True)
    (slope,) = torch.autograd.grad(Tanh()(x).sum(), x, create_graph=True)
    y = x.detach().tanh()
    assert_close(slope.detach(), 1.0 - y * y)
    (curvature,) = torch.autograd.grad(slope.sum(), x)
    assert_close(curvature, -2.0 * y * (1.0 - y * y))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_tanh_takes_torchs_own_way_where_only_that_works():
    x = torch.randn(5, 3, generator=generator())
    assert torch.equal(Tanh()(x.double()), x.double().tanh())
    assert_close(torch.func.vmap(Tanh())(x), x.tanh())
    assert_close(torch.func.grad(lambda z: Tanh()(z).sum())(x), 1.0 - x.tanh() ** 2)
    assert_close(torch.jit.trace(Tanh(), x)(2.0 * x), (2.0 * x).tanh())
    graph = torch.export.export(Tanh(), (x,)).graph
    assert any(node.target is torch.ops.aten.tanh.default for node in graph.nodes)
    assert isinstance(Tanh(), nn.Tanh)


def with_gradients(network: MLP) -> MLP:
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, torch.nan)  # poisoned: everything must be overwritten
    return network


@pytest.mark.parametrize(("activation", "last"), [("tanh", None), ("relu", None), ("elu", None), ("tanh", "tanh")])
@pytest.mark.parametrize("hidden", [(), (8,), (8, 5)])
def test_a_stack_equals_autograd(activation, last, hidden):
    network = with_gradients(MLP(4, hidden, 3, activation, last, generator=generator()))
    stack = DenseStack.of(network.layers)
    for rows in (6, 2, 6):  # memory follows the number of rows
        x = torch.randn(rows, 4, generator=generator(rows))
        gradient = torch.randn(rows, 3, generator=generator(9))
        expected = network(x)
        assert_close(stack.forward(x), expected.detach(), atol=1e-6, rtol=1e-6)
        slopes = torch.autograd.grad(expected, list(network.parameters()), gradient)
        stack.backward(gradient.clone())
        for parameter, slope in zip(network.parameters(), slopes, strict=True):
            assert_close(parameter.grad, slope, atol=1e-5, rtol=1e-5)


def test_a_stack_follows_parameters_that_change_in_place_and_uses_its_memory_again():
    network = with_gradients(MLP(4, (8,), 3, "tanh", generator=generator()))
    stack, x = DenseStack.of(network.layers), torch.randn(6, 4, generator=generator(1))
    with torch.inference_mode():
        place = stack.forward(x).data_ptr()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(2.0)
        assert_close(stack.forward(x), network(x))
    assert stack.forward(x).data_ptr() == place


def test_what_is_no_plain_stack_is_left_to_torch():
    assert DenseStack.of(nn.Sequential()) is None
    assert DenseStack.of(MLP(4, (8,), 3, "gelu").layers) is None
    assert DenseStack.of(MLP(4, (8,), 3, "tanh").double().layers) is None
    assert DenseStack.of(nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), Tanh())) is None
    assert DenseStack.of(nn.Sequential(nn.Linear(4, 8, bias=False))) is None
    assert DenseStack.of(nn.Sequential(Tanh(), nn.Linear(4, 8))) is None
    watched = MLP(4, (8,), 3, "tanh")
    watched.layers[1].register_forward_hook(lambda module, inputs, output: None)
    assert DenseStack.of(watched.layers) is None
    assert DenseStack.of(nn.Sequential(nn.Linear(4, 8), nn.ELU(alpha=0.5))) is None
