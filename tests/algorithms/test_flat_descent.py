"""SGD and RMSprop on flat tensors: PyTorch's numbers, and a state that goes on."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gaitway.algorithms.engine import Engine

CASES = {
    "sgd": ({"optimiser": "sgd"}, lambda p: torch.optim.SGD(p, 0.05)),
    "momentum": ({"optimiser": "sgd", "momentum": 0.9}, lambda p: torch.optim.SGD(p, 0.05, momentum=0.9)),
    "decay": ({"optimiser": "sgd", "weight_decay": 0.1}, lambda p: torch.optim.SGD(p, 0.05, weight_decay=0.1)),
    "rmsprop": ({"optimiser": "rmsprop", "eps": 1e-5}, lambda p: torch.optim.RMSprop(p, 0.05, eps=1e-5)),
}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))


def loss_of(module):
    return lambda batch: ((module(batch["x"]) - batch["y"]).square().mean(), {})


def batches(count=6):
    torch.manual_seed(1)
    return [{"x": torch.randn(16, 3), "y": torch.randn(16, 1)} for _ in range(count)]


@pytest.mark.parametrize("case", CASES)
def test_numbers_are_pytorchs(case):
    options, make = CASES[case]
    ours, theirs = network(), network()
    engine = Engine(ours, loss_of(ours), learning_rate=0.05, max_grad_norm=None, **options)
    optimiser = make(theirs.parameters())
    for batch in batches():
        engine.step(batch)
        optimiser.zero_grad()
        loss_of(theirs)(batch)[0].backward()
        optimiser.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_close(one, other, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("case", ["momentum", "rmsprop"])
def test_state_goes_on(case):
    options, _ = CASES[case]
    ours, twin = network(), network()
    first, second = (Engine(m, loss_of(m), learning_rate=0.05, max_grad_norm=None, **options) for m in (ours, twin))
    for batch in batches(3):
        first.step(batch)
    twin.load_state_dict(ours.state_dict())
    second.load_state_dict(first.state_dict())
    for engine in (first, second):
        engine.step(batches(4)[3])
    assert torch.equal(first.parameters.value, second.parameters.value)


def test_parts_are_clipped_apart():
    module = nn.ModuleDict({"actor": nn.Linear(2, 1, bias=False), "critic": nn.Linear(2, 1, bias=False)})
    with torch.no_grad():
        for each in module.values():
            each.weight.zero_()

    def loss(batch):
        return module["actor"].weight.sum() * 0.3 + module["critic"].weight.sum() * 40.0, {}

    def moved(**options):
        engine = Engine(module, loss, learning_rate=1.0, max_grad_norm=1.0, optimiser="sgd", **options)
        engine.parameters.value.data.zero_()
        engine.step({})
        return [-each.weight.detach().clone() for each in module.values()], engine.read()

    (actor, critic), norms = moved(clip_apart=("critic.",))
    assert_close(actor, torch.full((1, 2), 0.3))  # 0.3 sqrt(2) is below the limit
    assert_close(critic, torch.full((1, 2), 0.5**0.5))
    assert norms["gradient_norm/critic"].item() == pytest.approx(40 * 2**0.5)
    assert norms["gradient_norm/rest"].item() == pytest.approx(0.3 * 2**0.5)
    (actor, critic), norms = moved()  # the twin: one norm for both
    assert_close(actor, torch.full((1, 2), 0.3 / (40**2 + 0.3**2) ** 0.5 / 2**0.5))
    assert "gradient_norm/critic" not in norms
