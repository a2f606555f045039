"""Layers for many tasks: each against its formula, written out with loops or sums in float64."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gaitway.core.seeding import stream
from gaitway.nn.ensemble import Ensemble
from gaitway.nn.multihead import (
    Bilinear,
    BilinearNetwork,
    GroupedLinear,
    SkillEmbedding,
    expand_task_subgoal,
    gaussian_heads,
    split_task_input,
)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=stream(seed, "test"), dtype=torch.float64)


def bilinear(x, weight, condition, bias):
    """y_bi = sum_jk x_bj W_ijk c_bk + b_i, one number at a time."""
    y = torch.zeros(len(x), len(bias), dtype=torch.float64)
    for b in range(len(x)):
        for i in range(len(bias)):
            y[b, i] = x[b] @ weight[i] @ condition[b] + bias[i]
    return y


def test_groups_are_layers_of_their_own():
    layer, x = GroupedLinear(6, 8, 2, generator=stream(0, "parameters")).double(), randn(5, 6)
    separate = [x[:, 3 * g : 3 * g + 3] @ layer.weight[g] + layer.bias[4 * g : 4 * g + 4] for g in range(2)]
    assert_close(layer(x), torch.cat(separate, -1), atol=1e-12, rtol=1e-12)
    masked = torch.block_diag(*layer.weight)  # one matrix with zeros between the blocks
    assert_close(layer(x), x @ masked + layer.bias, atol=1e-12, rtol=1e-12)
    assert_close(layer(x.view(1, 5, 6))[0], layer(x), atol=0, rtol=0)
    gradient = torch.autograd.functional.jacobian(layer, x[0])
    assert gradient[:4, 3:].abs().max() == 0
    assert gradient[4:, :3].abs().max() == 0


@pytest.mark.parametrize(("published", "fan_in"), [(False, 100), (True, 300)])
def test_groups_start_like_layers_of_their_own_or_like_one_masked_matrix(published, fan_in):
    layer = GroupedLinear(300, 600, 3, published, stream(0, "parameters"))
    for p in (layer.weight, layer.bias):
        assert 0.98 / math.sqrt(fan_in) < p.abs().max() <= 1 / math.sqrt(fan_in)


@pytest.mark.parametrize(("inputs", "outputs", "groups"), [(5, 4, 2), (4, 5, 2), (4, 4, 0), (0, 4, 2)])
def test_groups_must_divide(inputs, outputs, groups):
    with pytest.raises(ValueError, match="do not divide into"):
        GroupedLinear(inputs, outputs, groups)


def test_a_double_critic_is_grouped_layers_on_both_hidden_values_and_twice_the_input():
    """The form in which the double critic was published: layers of two groups on [h1, x, h2, x]."""
    critics = Ensemble(2, 5, (8, 8, 8, 8), 1, trunk="d2rl", generator=stream(0, "parameters")).double()
    trunk, last, x = critics.network.trunk, critics.network.last, randn(6, 5)
    bias = trunk.bias.squeeze(1)
    h = torch.cat([x @ trunk.input.weight[n, :, :8] + bias[n, :8] for n in range(2)], -1).clamp(min=0)
    for index in range(1, 4):
        own, columns = GroupedLinear(26, 16, 2).double(), slice(8 * index, 8 * index + 8)
        with torch.no_grad():
            own.weight.copy_(torch.cat((trunk.hidden[index - 1].weight, trunk.input.weight[..., columns]), 1))
            own.bias.copy_(bias[:, columns].flatten())
        h = own(torch.cat((h[:, :8], x, h[:, 8:], x), -1)).clamp(min=0)
    end = GroupedLinear(16, 2, 2).double()
    with torch.no_grad():
        end.weight.copy_(last.weight), end.bias.copy_(last.bias.flatten())
    assert_close(critics(x).squeeze(-1).T, end(h), atol=1e-12, rtol=1e-12)


def test_bilinear_layers():
    layer, x, c = Bilinear(4, 3, 5, stream(0, "parameters")).double(), randn(6, 4), randn(6, 3, seed=1)
    assert_close(layer(x, c), bilinear(x, layer.weight, c, layer.bias), atol=1e-12, rtol=1e-12)
    assert_close(layer(x, c), nn.functional.bilinear(x, c, layer.weight, layer.bias), atol=1e-12, rtol=1e-12)
    assert_close(layer(x.view(2, 3, 4), c.view(2, 3, 3)).flatten(0, 1), layer(x, c), atol=1e-12, rtol=1e-12)
    wide = Bilinear(100, 3, 50, stream(0, "parameters"))
    for p in (wide.weight, wide.bias):  # like nn.Bilinear
        assert 0.09 < p.abs().max() <= 0.1


def test_bilinear_networks_are_d2rl_with_a_condition_of_length_one():
    network = BilinearNetwork(4, 3, (5, 6, 5), 2, generator=stream(0, "parameters")).double()
    x, c = randn(7, 4), randn(7, 3, seed=1)
    unit = torch.stack([row / math.sqrt(sum(float(v) ** 2 for v in row)) for row in c])
    h = bilinear(x, network.layers[0].weight, unit, network.layers[0].bias).clamp(min=0)
    for layer in network.layers[1:]:
        h = bilinear(torch.cat((h, x), -1), layer.weight, unit, layer.bias).clamp(min=0)
    expected = bilinear(h, network.last.weight, unit, network.last.bias)
    assert_close(network(x, c), expected, atol=1e-12, rtol=1e-12)
    assert_close(network(x, 7.0 * c), expected, atol=1e-12, rtol=1e-12)


def test_a_condition_of_zeros_is_harmless():
    network = BilinearNetwork(4, 3, (5, 5), 2, generator=stream(0, "parameters")).double()
    x, c = randn(2, 4).requires_grad_(), torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    y = network(x, c)
    assert_close(y, network.last.bias.expand(2, 2), atol=0, rtol=0)
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(y.sum(), [x, c, *network.parameters()]))
    zero = BilinearNetwork(4, 3, (5, 5), 2, last_init="zero")
    assert torch.equal(zero(randn(2, 4).float(), randn(2, 3).float()), torch.zeros(2, 2))


def test_heads_are_gaussians_one_after_the_other():
    outputs = 3.0 * randn(4, 12)  # 3 heads of 2: six means, then six logarithms
    mean, std = gaussian_heads(outputs, (-1.0, 0.5), heads=3)
    assert mean.shape == std.shape == (4, 3, 2)
    for head in range(3):
        columns = slice(2 * head, 2 * head + 2)
        own = torch.cat((outputs[:, :6][:, columns], outputs[:, 6:][:, columns]), -1)
        assert_close(gaussian_heads(own, (-1.0, 0.5)), (mean[:, head], std[:, head]), atol=0, rtol=0)
        assert_close(mean[:, head], outputs[:, columns], atol=0, rtol=0)
    expected = [[math.exp(min(max(float(v), -1.0), 0.5)) for v in row] for row in outputs[:, 6:]]
    assert_close(std.flatten(1), torch.tensor(expected, dtype=torch.float64), atol=1e-12, rtol=1e-12)


def test_skills_are_embedded_without_bias():
    embedding, x = SkillEmbedding(4, 3, "tanh", stream(0, "parameters")).double(), randn(5, 6)
    y = embedding(x)
    assert y.shape == (5, 5)
    assert torch.equal(y[:, :2], x[:, :2])  # the rest stays where it is
    weight = embedding.linear.weight.tolist()
    expected = [[math.tanh(sum(w * v for w, v in zip(row, z[2:], strict=True))) for row in weight] for z in x.tolist()]
    assert_close(y[:, 2:], torch.tensor(expected, dtype=torch.float64), atol=1e-12, rtol=1e-12)
    assert torch.equal(embedding(torch.zeros(1, 6, dtype=torch.float64)), torch.zeros(1, 5, dtype=torch.float64))
    assert SkillEmbedding(4, 3, "none")(torch.ones(1, 4)).shape == (1, 3)  # nothing beside the skill
    wide = SkillEmbedding(100, 50, generator=stream(0, "parameters")).linear.weight
    assert 0.09 < wide.abs().max() <= 0.1
    with pytest.raises(ValueError, match="at least 1"):
        SkillEmbedding(0, 3)


def test_the_task_is_split_off():
    inputs = {"b": randn(5, 2), "task": randn(5, 3, seed=1), "a": randn(5, 4, seed=2)}
    rest, task = split_task_input(inputs)
    assert torch.equal(rest, torch.cat((inputs["b"], inputs["a"]), -1))
    assert torch.equal(task, inputs["task"])


def test_the_subgoal_lies_in_the_block_of_its_task():
    task, subgoal = torch.eye(3)[[1, 0, 2]], torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    expected = [[0, 0, 1, 2, 0, 0], [3, 4, 0, 0, 0, 0], [0, 0, 0, 0, 5, 6]]
    assert torch.equal(expand_task_subgoal(task, subgoal), torch.tensor(expected, dtype=torch.float32))
    soft, goal = randn(4, 3), randn(4, 2, seed=1)  # any weights: task d, dimension g lies at d * G + g
    expanded = expand_task_subgoal(soft, goal)
    for d in range(3):
        for g in range(2):
            assert_close(expanded[:, 2 * d + g], soft[:, d] * goal[:, g], atol=0, rtol=0)
