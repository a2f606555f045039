"""Convolutions: sizes by arithmetic, numbers beside torch's own layers, starts from a generator."""

import pytest
import torch
from torch import nn

from gaitway.core.seeding import stream
from gaitway.nn.conv import Conv, conv_output_size


def test_a_size_by_hand():
    assert conv_output_size(64, 3, 2, 1) == 32  # (64 + 2 - 2 - 1) // 2 + 1
    assert conv_output_size(10, 3, 1, 0, dilation=2) == 6  # a kernel of 3 with holes covers 5
    assert conv_output_size(2, 3) == 0


CASES = [
    {"shape": (3, 17, 23), "channels": (4, 5), "kernels": (5, 3), "strides": (2, 1), "paddings": (1, 0)},
    {"shape": (1, 12, 12), "channels": (4,), "strides": (2,), "paddings": (1,), "max_pool": True},
    {"shape": (2, 30), "channels": (3, 4, 5), "dilations": (1, 2, 4), "norm": "layer"},
    {"shape": (2, 9), "channels": (6,), "pool": "max", "paddings": (1,), "padding_mode": "reflect"},
    {"shape": (2, 9, 8), "channels": (6,), "pool": "mean", "activation": "tanh"},
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("leading", [(), (7,), (2, 3)])
def test_sizes_without_a_forward_pass_are_those_of_one(case, leading):
    network = Conv(**case, generator=stream(0, "parameters"))
    x = torch.randn(*leading, *network.shape, generator=stream(0, "test"))
    assert network(x).shape == (*leading, network.outputs)
    flat = x.reshape(-1, *network.shape)
    for layer in network.layers:
        flat = layer(flat)
    assert flat.shape[1:] == network.shapes[-1]


def test_a_layer_is_that_of_torch():
    network = Conv((2, 9, 8), (3,), (3,), (2,), (1,), activation="tanh", generator=stream(0, "parameters"))
    twin = nn.Conv2d(2, 3, 3, stride=2, padding=1)
    twin.load_state_dict(network.layers[0].state_dict())
    x = torch.randn(5, 2, 9, 8, generator=stream(0, "test"))
    torch.testing.assert_close(network(x), twin(x).tanh().flatten(1))


def test_starts_come_from_the_generator_within_torchs_bound():
    made = [Conv((2, 40, 40), (16,), generator=stream(seed, "parameters")) for seed in (0, 0, 1)]
    weights = [network.layers[0].weight for network in made]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    bound = 1 / (2 * 9) ** 0.5
    assert 0.95 * bound < weights[0].abs().max() <= bound


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": (3,), "channels": (4,)}, r"convolutions read \(channels, length\)"),
        ({"shape": (1, 4, 4), "channels": (4, 4), "kernels": (3, 3, 3)}, "kernels has 3 numbers for 2 layers"),
        ({"shape": (64, 64, 3), "channels": (4,), "kernels": (8,)}, "does not fit.*channels_last"),
        ({"shape": (1, 4, 4), "channels": (4,), "norm": "batch"}, "norm is 'batch'.*'layer'"),
        ({"shape": (1, 4, 4), "channels": (4,), "activation": "elo"}, "did you mean 'elu'"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Conv(**options)
