"""Parameters from network to network and as a vector."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gaitway.nn.parameters import copy_parameters, parameters_to_vector, soft_update, vector_to_parameters


def filled(value: float) -> nn.Sequential:
    """A linear layer and a batch norm, whose buffers are one float vector and a count."""
    network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    with torch.no_grad():
        for tensor in (*network.parameters(), *network.buffers()):
            tensor.fill_(value)
    return network


def test_bug_58_the_target_comes_first_and_buffers_are_copied():
    target, source = filled(1.0), filled(5.0)
    kept = [id(tensor) for tensor in target.parameters()]
    soft_update(target, source, rho=0.25)
    for tensor in target.parameters():
        assert_close(tensor.detach(), torch.full_like(tensor, 2.0))  # 0.25 * 5 + 0.75 * 1
    for tensor in source.parameters():
        assert_close(tensor.detach(), torch.full_like(tensor, 5.0))
    assert_close(target[1].running_mean, torch.full((3,), 5.0))
    assert target[1].num_batches_tracked == 5
    assert [id(tensor) for tensor in target.parameters()] == kept
    soft_update(target=target, source=source, rho=0.0)
    assert_close(target[0].weight.detach(), torch.full((3, 2), 2.0))
    soft_update(source=source, target=target, rho=1.0)
    assert_close(target[0].weight.detach(), torch.full((3, 2), 5.0))


def test_bug_58_surplus_numbers_are_refused():
    network = filled(0.0)
    count = 3 * 2 + 3 + 3 + 3
    for length in (count - 1, count + 1):
        with pytest.raises(ValueError, match=rf"hold {count} numbers; pass \[{count}\]"):
            vector_to_parameters(torch.ones(length), network)
    with pytest.raises(ValueError, match="pass"):
        vector_to_parameters(torch.ones(1, count), network)
    assert parameters_to_vector(network).abs().sum() == 0  # nothing was written


def test_copies_share_nothing_and_keep_the_optimiser():
    target, source = filled(1.0), filled(5.0)
    optimiser = torch.optim.SGD(target.parameters(), lr=1.0)
    copy_parameters(target, source)
    with torch.no_grad():
        source[0].weight.zero_()
    assert_close(target[0].weight.detach(), torch.full((3, 2), 5.0))
    assert_close(target[1].running_var, torch.full((3,), 5.0))
    target[0].weight.grad = torch.ones(3, 2)
    optimiser.step()
    assert_close(target[0].weight.detach(), torch.full((3, 2), 4.0))


def test_vectors_there_and_back():
    generator = torch.Generator().manual_seed(0)
    network = filled(0.0)
    vector = torch.randn(15, generator=generator)
    vector_to_parameters(vector, network)
    assert_close(network[0].weight.detach(), vector[:6].view(3, 2))
    assert_close(network[0].bias.detach(), vector[6:9])
    assert network[0].weight.requires_grad
    assert torch.equal(parameters_to_vector(network).detach(), vector)
    some = [network[0].bias, network[1].bias]
    vector_to_parameters(torch.arange(6.0), some)
    assert parameters_to_vector(some).tolist() == [0, 1, 2, 3, 4, 5]
    vector.zero_()
    assert_close(network[1].bias.detach(), torch.tensor([3.0, 4.0, 5.0]))  # a copy
    parameters_to_vector(network).sum().backward()
    assert network[0].weight.grad is not None
    assert parameters_to_vector([]).shape == (0,)


def test_structures_must_match():
    with pytest.raises(ValueError, match=r"differ in \['1\.bias'"):
        soft_update(filled(0.0), nn.Sequential(nn.Linear(2, 3)), 0.5)
    wide = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4))
    with pytest.raises(ValueError, match=r"'0\.weight' is \[3, 2\] .* in the target and \[4, 2\]"):
        copy_parameters(filled(0.0), wide)
    with pytest.raises(ValueError, match=r"torch\.float64"):
        soft_update(filled(0.0), filled(0.0).double(), 0.5)
    without = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, track_running_stats=False))
    with pytest.raises(ValueError, match="running_mean"):
        copy_parameters(filled(0.0), without)
    for rho in (-0.1, 1.1):
        with pytest.raises(ValueError, match="rho is"):
            soft_update(filled(0.0), filled(0.0), rho)


def test_modules_without_parameters():
    soft_update(nn.Tanh(), nn.Tanh(), 0.5)
    vector_to_parameters(torch.zeros(0), nn.Tanh())
