"""The engine's step equals textbook Adam with clipping, in an independent float64 computation."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gaitway.algorithms.engine import Engine, FlatParameters


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))


def squared_error(module):
    def loss(batch):
        error = (module(batch["x"]).squeeze(-1) - batch["y"]).square().mean()
        return error, {"error": error.detach()}

    return loss


def batches(n=4, size=8):
    generator = torch.Generator().manual_seed(1)
    return [
        {"x": torch.randn(size, 3, generator=generator), "y": torch.randn(size, generator=generator)} for _ in range(n)
    ]


def test_parameters_and_gradients_become_views_of_one_buffer():
    module = network()
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    flat = FlatParameters(module)
    for name, p in module.named_parameters():
        assert torch.equal(p, before[name])
        assert (p.data_ptr() - flat.value.data_ptr()) % 64 == 0
    flat.differentiate(module(torch.ones(1, 3)).square().sum())
    twin = network()
    twin(torch.ones(1, 3)).square().sum().backward()
    for p, other in zip(module.parameters(), twin.parameters(), strict=True):
        assert_close(p.grad, other.grad)
    assert_close(flat.gradient.sum(), sum(p.grad.sum() for p in twin.parameters()))
    with torch.no_grad():
        flat.value.zero_()
    assert all(bool((p == 0).all()) for p in module.parameters())


def test_a_target_has_the_layout_of_what_its_network_learns():
    module = network()
    first = next(module.parameters()).requires_grad_(False)
    twin = copy.deepcopy(module).requires_grad_(False)
    learnt, target = FlatParameters(module), FlatParameters(twin, target_of=module)
    assert target.names == learnt.names
    assert not target.value.requires_grad
    with torch.no_grad():
        learnt.value += 1.0
        target.value.copy_(learnt.value)
    assert all(torch.equal(p, q) for p, q in zip(module.parameters(), twin.parameters(), strict=True))
    assert not first.requires_grad


def test_steps_equal_adam_with_norm_clipping_in_float64():
    module, twin = network(), network().double()
    engine = Engine(module, squared_error(module), learning_rate=0.05, max_grad_norm=0.1, eps=1e-5)
    first = {name: torch.zeros_like(p) for name, p in twin.named_parameters()}
    second = {name: torch.zeros_like(p) for name, p in twin.named_parameters()}
    for step, batch in enumerate(batches(), start=1):
        engine.step(batch)
        twin.zero_grad()
        (twin(batch["x"].double()).squeeze(-1) - batch["y"].double()).square().mean().backward()
        norm = sum(p.grad.square().sum() for p in twin.parameters()).sqrt()
        assert norm > 0.1  # the clip is active, or the test would not see it
        with torch.no_grad():
            for name, p in twin.named_parameters():
                gradient = p.grad * (0.1 / (norm + 1e-6))
                first[name] = 0.9 * first[name] + 0.1 * gradient
                second[name] = 0.999 * second[name] + 0.001 * gradient**2
                root = (second[name] / (1 - 0.999**step)).sqrt()
                p -= 0.05 * (first[name] / (1 - 0.9**step)) / (root + 1e-5)
    for (name, p), (_, q) in zip(module.named_parameters(), twin.named_parameters(), strict=True):
        assert_close(p.double(), q, atol=2e-6, rtol=1e-5, msg=name)


def test_statistics_are_means_since_the_last_read():
    module = network()
    engine = Engine(module, squared_error(module), learning_rate=1e-3, max_grad_norm=None)
    errors = []
    for batch in batches(3):
        with torch.no_grad():
            errors.append((module(batch["x"]).squeeze(-1) - batch["y"]).square().mean())
        engine.step(batch)
    assert_close(engine.read()["error"], torch.stack(errors).mean())
    engine.step(batches(1)[0])
    assert set(engine.read()) == {"error", "gradient_norm"}


def test_the_rate_can_move_before_the_step():
    module = network()

    def freeze(statistics, rate):
        rate.fill_(0.0)

    engine = Engine(module, squared_error(module), learning_rate=1.0, max_grad_norm=None, before_step=freeze)
    before = engine.parameters.value.detach().clone()
    engine.step(batches(1)[0])
    assert torch.equal(engine.parameters.value, before)


def test_state_continues_bit_for_bit_and_refuses_another_network():
    module, twin = network(), network()
    engine = Engine(module, squared_error(module), learning_rate=0.01, max_grad_norm=1.0)
    for batch in batches(2):
        engine.step(batch)
    other = Engine(twin, squared_error(twin), learning_rate=0.5, max_grad_norm=1.0)
    twin.load_state_dict(module.state_dict())
    other.load_state_dict(engine.state_dict())
    for batch in batches(4):
        engine.step(batch)
        other.step(batch)
    assert torch.equal(engine.parameters.value, other.parameters.value)
    forgetful = Engine(network(), squared_error(twin), learning_rate=0.01, max_grad_norm=1.0)
    assert "exp_avg" in engine.state_dict()["optimiser"]
    assert not forgetful.state_dict()["optimiser"]["exp_avg"].any()
    small = nn.Linear(3, 1)
    with pytest.raises(ValueError, match="another network"):
        Engine(small, squared_error(small), learning_rate=0.1, max_grad_norm=None).load_state_dict(engine.state_dict())


def test_nothing_to_learn_is_refused():
    module = network().requires_grad_(False)
    with pytest.raises(ValueError, match="nothing to learn"):
        FlatParameters(module)
