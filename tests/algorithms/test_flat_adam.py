"""FlatAdam takes the steps of torch.optim.Adam."""

import pytest
import torch
from torch import nn

from gaitway.algorithms.flat_adam import FlatAdam
from gaitway.core.seeding import stream


def made(sizes=(7, 30)):
    generator = stream(0, "test")
    parameters = [nn.Parameter(torch.randn(size, generator=generator)) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    return parameters


def play(optimiser, parameters, steps, rate=None, seed=1):
    generator = stream(seed, "gradients")
    for step in range(steps):
        for parameter in parameters:
            parameter.grad.normal_(generator=generator)
        if rate is not None and step == steps // 2:
            rate.fill_(0.5)
        optimiser.step()
    return torch.cat([parameter.detach() for parameter in parameters])


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("decoupled", [False, True])
def test_steps_are_those_of_pytorch(decay, decoupled):
    results = []
    for kind in (FlatAdam, torch.optim.AdamW if decoupled else torch.optim.Adam):
        parameters, rate = made(), torch.tensor(0.01)
        options = {"decoupled_weight_decay": True} if decoupled and kind is FlatAdam else {}
        options |= {} if kind is FlatAdam else {"fused": True}
        optimiser = kind(parameters, lr=rate, eps=1e-5, weight_decay=decay, **options)
        results.append(play(optimiser, parameters, 20, rate))
        assert optimiser.state[parameters[1]]["step"].item() == 20
    assert torch.equal(*results)


def test_state_that_was_replaced_or_changed_in_place_is_noticed():
    whole = made()
    expected = play(FlatAdam(whole, lr=0.01), whole, 10)
    for in_place in (False, True):
        parameters = made()
        optimiser = FlatAdam(parameters, lr=0.01)
        play(optimiser, parameters, 3, seed=2)  # a life of its own before
        for parameter, fresh in zip(parameters, made(), strict=True):
            parameter.data.copy_(fresh.data)
            state = optimiser.state[parameter]
            for name, value in state.items():
                state[name] = value.zero_() if in_place else torch.zeros_like(value)
        assert torch.equal(play(optimiser, parameters, 10), expected)


def test_missing_gradients_are_refused():
    with pytest.raises(ValueError, match="no gradient"):
        FlatAdam([nn.Parameter(torch.zeros(3))], lr=0.01)
