"""The learning target of reachability, by hand and on a chain whose reachability is known."""

import pytest
import torch
from torch.testing import assert_close

from gaitway.functional.reachability import reachability_loss, reachability_target

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")),
]


def row(*numbers):
    return torch.tensor(numbers, dtype=torch.float32)


@pytest.mark.parametrize("device", DEVICES)
def test_the_target_by_hand(device):
    # goes on: 0 + 1 * 0.25; reached in its last step: 1; given up in its last step: 0; reached and goes on (full
    # episodes): 1 + 0.5; an unclipped value stays as it is: 0 + 1 * -0.5
    target = reachability_target(
        row(0, 1, 0, 1, 0).to(device), row(0, 1, 1, 0, 0).to(device), row(0.25, 0.75, 0.75, 0.5, -0.5).to(device)
    )
    assert target.dtype == torch.float32
    assert target.device.type == device
    assert target.tolist() == [0.25, 1.0, 0.0, 1.5, -0.5]


def test_numbers_between_0_and_1_follow_the_formula():
    # 0.5 + (1 - 0.25) * 0.8
    assert_close(reachability_target(row(0.5), row(0.25), row(0.8)), row(1.1))


@pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.float32])
def test_flags_of_any_kind(kind):
    target = reachability_target(row(0, 1, 0).to(kind), row(0, 1, 1).to(kind), row(0.25, 0.75, 0.75))
    assert target.dtype == torch.float32
    assert target.tolist() == [0.25, 1.0, 0.0]


def test_a_next_value_after_the_last_step_is_never_used():
    assert reachability_target(row(1, 0), row(1, 1), row(float("nan"), float("inf"))).tolist() == [1.0, 0.0]
    assert reachability_target(row(0), row(0), row(float("nan"))).isnan().all()


def test_the_target_carries_no_gradient():
    value = row(0.5).requires_grad_()
    assert not reachability_target(row(0), row(0), value).requires_grad


def test_the_loss_has_no_half_and_its_gradient_is_that_of_the_value():
    # ((0.5 - 1)^2 + (0.25 - 0)^2) / 2 = (0.25 + 0.0625) / 2; gradient 2 (v - t) / 2
    value = row(0.5, 0.25).requires_grad_()
    loss = reachability_loss(value, row(1, 0))
    assert loss.item() == 0.15625
    assert torch.autograd.grad(loss, value)[0].tolist() == [-0.5, 0.25]


@pytest.mark.parametrize("culprit", ["reached", "last"])
def test_a_trailing_axis_is_refused_instead_of_broadcast(culprit):
    given = {"reached": row(0, 1), "last": row(0, 1), "next_value": row(0.5, 0.5)}
    given[culprit] = given[culprit].unsqueeze(-1)
    with pytest.raises(ValueError, match=rf"{culprit} is \[2, 1\].*squeeze"):
        reachability_target(**given)


def test_other_precisions_and_whole_numbers_are_refused():
    with pytest.raises(ValueError, match=r"reached is torch\.float64"):
        reachability_target(row(0).double(), row(0), row(0))
    with pytest.raises(ValueError, match=r"next_value is torch\.int64"):
        reachability_target(row(0), row(0), torch.tensor([1]))
    with pytest.raises(ValueError, match="target is"):
        reachability_loss(row(0, 1), row(0, 1).unsqueeze(-1))


def iterate(target, sweeps=60):
    """Reachability [steps left, place] of a walk that moves on with probability 1/2 and has reached place 2 of 0..2."""
    horizon, values = 4, torch.zeros(5, 3, dtype=torch.float64)
    for _ in range(sweeps):
        for left in range(1, horizon + 1):
            for place in (0, 1):
                total = 0.0
                for after in (place, place + 1):
                    reached, last = float(after == 2), float(after == 2 or left == 1)
                    rows = [torch.tensor([x], dtype=torch.float64) for x in (reached, last, values[left - 1, after])]
                    total += 0.5 * float(target(*rows))
                values[left, place] = total
    return values


def test_fixed_point_is_the_probability_of_reaching():
    # two moves of probability 1/2 within 4 steps: 1 - (1 + 4) / 16 = 11/16; one move: 1 - 1/16 = 15/16
    values = iterate(reachability_target)
    assert values[4, 0].item() == pytest.approx(11 / 16, abs=1e-12)
    assert values[4, 1].item() == pytest.approx(15 / 16, abs=1e-12)


def test_a_twin_that_does_not_stop_at_the_last_step_is_wrong():
    def endless(reached, last, next_value):
        return reached + (1 - reached) * next_value  # time that is over does not count

    def chained(reached, last, next_value):
        return reachability_target(reached, torch.zeros_like(last), next_value)

    # with the value of another goal, 0.9, where time is over
    shifted = lambda twin: lambda r, last, v: twin(r, last, torch.where(last == 1, torch.full_like(v, 0.9), v))  # noqa: E731
    for twin in (endless, chained):
        assert iterate(shifted(twin))[4, 0].item() > 11 / 16 + 0.1
    assert iterate(shifted(reachability_target))[4, 0].item() == pytest.approx(11 / 16, abs=1e-12)
