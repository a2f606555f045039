"""Several modules by one backward pass, and vectors of which only the entries met are stepped."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gaitway.algorithms.engine import Engine, JointEngine
from gaitway.algorithms.replay_algorithm import Draw, unset_loss


class Vector(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.linspace(-1.0, 1.0, size))


def test_two_modules_learn_from_one_loss_each_at_its_rate_and_limit():
    one, other = Vector(3), Vector(2)
    first = Engine(one, unset_loss, learning_rate=0.1, max_grad_norm=None)
    second = Engine(other, unset_loss, learning_rate=0.01, max_grad_norm=0.5)

    def loss(batch):
        total = (one.value * batch["x"]).square().sum() + 3.0 * other.value.sum() * one.value.detach().sum()
        return total, {"loss": total.detach()}

    joint = JointEngine((first, second), loss)
    twins = [torch.linspace(-1.0, 1.0, size).double().requires_grad_() for size in (3, 2)]
    optimisers = [torch.optim.Adam([twin], lr=rate) for twin, rate in zip(twins, (0.1, 0.01), strict=True)]
    for step in range(4):
        x = torch.arange(3.0) + step
        joint.step({"x": x})
        total = (twins[0] * x.double()).square().sum() + 3.0 * twins[1].sum() * twins[0].detach().sum()
        for optimiser in optimisers:
            optimiser.zero_grad()
        total.backward()
        torch.nn.utils.clip_grad_norm_([twins[1]], 0.5)
        for optimiser in optimisers:
            optimiser.step()
    assert_close(one.value.detach().double(), twins[0].detach(), atol=1e-5, rtol=1e-5)
    assert_close(other.value.detach().double(), twins[1].detach(), atol=1e-5, rtol=1e-5)
    assert set(first.read()) == {"loss", "gradient_norm"}
    assert set(second.read()) == {"gradient_norm"}


def test_entries_that_no_batch_meets_stand_still_with_their_moments():
    vector = Vector(5)
    engine = Engine(vector, lambda batch: ((vector.value * batch["w"]).square().sum(), {}), learning_rate=0.1,
                    max_grad_norm=None, entrywise=True)  # fmt: skip
    twins = [
        torch.tensor(start, dtype=torch.float64, requires_grad=True) for start in torch.linspace(-1, 1, 5).tolist()
    ]
    optimisers = [torch.optim.Adam([twin], lr=0.1) for twin in twins]
    for met in ([0, 1], [1], [1, 4], [0], [4]):
        weights = torch.zeros(5)
        weights[met] = torch.tensor([float(2 + entry) for entry in met])
        engine.step({"w": weights})
        for entry in met:
            optimisers[entry].zero_grad()
            (twins[entry] * (2 + entry)).square().backward()
            optimisers[entry].step()
    assert_close(vector.value.detach().double(), torch.stack(twins).detach(), atol=1e-5, rtol=1e-5)
    assert vector.value[2] == torch.linspace(-1, 1, 5)[2]
    assert vector.value[3] == torch.linspace(-1, 1, 5)[3]


def test_an_entrywise_engine_goes_on_from_its_state():
    def made():
        vector = Vector(4)
        loss = lambda batch: ((vector.value * batch["w"]).square().sum(), {})  # noqa: E731
        return vector, Engine(vector, loss, learning_rate=0.1, max_grad_norm=None, entrywise=True)

    batches = [{"w": torch.tensor(row)} for row in ([1.0, 0, 0, 2], [0.0, 3, 0, 1], [1.0, 1, 0, 0])]
    (whole, engine), (part, resumed) = made(), made()
    for batch in batches:
        engine.step(batch)
    (first, halfway) = made()
    halfway.step(batches[0])
    part.load_state_dict(first.state_dict())
    resumed.load_state_dict(halfway.state_dict())
    for batch in batches[1:]:
        resumed.step(batch)
    assert torch.equal(whole.value, part.value)


@pytest.mark.parametrize(("distribution", "low", "mean"), [("normal", -4.0, 0.0), ("uniform", 0.0, 0.5)])
def test_draws_have_their_distribution(distribution, low, mean):
    out = torch.empty(20_000)
    Draw((20_000,), distribution).fill(out, torch.Generator().manual_seed(0))
    assert out.min() >= low - 1.0
    assert abs(float(out.mean()) - mean) < 0.03
    assert (out.min() < 0) == (distribution == "normal")
