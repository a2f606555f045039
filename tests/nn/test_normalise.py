"""Running statistics (T-NORM): hand arithmetic, broken twins, masks, merging, and what a checkpoint keeps."""

import copy
import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from gaitway.nn.normalise import ReturnScaler, RunningNorm, ValueNorm, batch_moments

NUMBERS = torch.arange(1.0, 11.0)


def fed(*batches: Tensor, shape=(), **options) -> RunningNorm:
    norm = RunningNorm(shape, **options)
    for batch in batches:
        norm.update(batch)
    return norm


def double(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def test_known_numbers():
    norm = fed(NUMBERS[:4], NUMBERS[4:])
    assert norm.count.item() == 10
    assert norm.count.dtype == torch.int64
    assert_close(norm.mean, double(5.5))
    assert_close(norm.var, double(8.25))
    # eps stands beside the deviation: (10 - 5.5) / (2.8722813 + 0.01)
    assert_close(norm(torch.tensor(10.0)), torch.tensor(4.5 / (math.sqrt(8.25) + 0.01)))


def test_mutations_give_other_numbers():
    norm = fed(NUMBERS[:4], NUMBERS[4:])
    mean, var, count = 0.0, 1.0, 0
    for batch in (NUMBERS[:4], NUMBERS[4:]):  # the same formulas with the unbiased variance
        count += len(batch)
        share, difference = len(batch) / count, batch.mean().item() - mean
        mean += share * difference
        var += share * (batch.var(correction=1).item() - var + difference * (batch.mean().item() - mean))
    assert abs(var - 8.25) > 0.4
    eps_inside = (10 - 5.5) / math.sqrt(8.25 + 0.01)
    assert abs(norm(torch.tensor(10.0)).item() - eps_inside) > 1e-3


def test_first_batch_replaces_the_start_and_order_of_batches_does_not_matter():
    assert_close(fed(torch.full((3,), 1e4)).var, double(0.0))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=generator) * 5 + 2
    whole = fed(x, shape=3)
    parts = fed(x[:1], x[1:7], x[7:], shape=3)
    for norm in (whole, parts):
        assert_close(norm.mean, x.double().mean(0), atol=1e-6, rtol=0)
        assert_close(norm.var, x.double().var(0, correction=0), atol=1e-5, rtol=0)
    rows = RunningNorm(3)
    rows.update(x.view(12, 5, 3))  # leading axes are free
    assert_close(rows.var, whole.var)


def test_a_large_offset_costs_no_digits():
    x = torch.randn(4000, 2, generator=torch.Generator().manual_seed(0)) + 4096.0
    norm = fed(x, shape=2)
    assert_close(norm.mean, x.double().mean(0), atol=1e-6, rtol=0)
    assert_close(norm.var, x.double().var(0, correction=0), atol=1e-6, rtol=0)


def test_until_stops_after_the_batch_that_reaches_it():
    norm = fed(NUMBERS[:4], NUMBERS[4:], until=4)
    assert norm.count.item() == 4
    assert_close(norm.mean, double(2.5))
    overshoot = fed(NUMBERS[:4], NUMBERS[4:], NUMBERS, until=5)  # checked before adding
    assert overshoot.count.item() == 10
    assert_close(overshoot.mean, double(5.5))


def test_eval_mode_and_forward_never_update():
    norm = fed(NUMBERS[:4])
    norm.eval()
    norm.update(NUMBERS)
    assert norm.count.item() == 4
    norm.train()
    norm(NUMBERS)
    assert norm.count.item() == 4
    assert_close(norm.mean, double(2.5))


def test_inverse_round_trip_and_clip():
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)) * 3 + 1
    norm = fed(x, shape=4)
    assert_close(norm.inverse(norm(x)), x, atol=1e-6, rtol=1e-6)
    assert_close(norm(x).mean(0), torch.zeros(4), atol=1e-6, rtol=0)
    clipped = fed(x, shape=4, clip=0.5)
    assert clipped(x).abs().max() == 0.5
    assert_close(clipped(x), norm(x).clamp(-0.5, 0.5))
    fresh = RunningNorm(4, eps=0.0)
    assert torch.equal(fresh(x), x)


def test_merging_equals_one_stream():
    x = torch.randn(90, 3, generator=torch.Generator().manual_seed(0)) * 2 - 1
    ranks = [fed(x[:20], shape=3), fed(x[20:25], shape=3), fed(x[25:], shape=3)]
    merged = RunningNorm(3)
    for rank in ranks:
        merged.merge(*rank.moments())
    one = fed(x, shape=3)
    assert merged.count.item() == 90
    assert_close(merged.mean, one.mean, atol=1e-7, rtol=0)
    assert_close(merged.var, one.var, atol=1e-6, rtol=0)
    assert_close(merged(x), one(x), atol=1e-6, rtol=0)
    merged.merge(0, torch.full((3,), 7.0), torch.ones(3))  # nothing seen elsewhere changes nothing
    assert_close(merged.mean, one.mean, atol=1e-7, rtol=0)
    count, mean, _ = ranks[0].moments()
    ranks[0].update(x)
    assert (count.item(), ranks[0].count.item()) == (20, 110)  # copies, not views
    assert not torch.equal(mean, ranks[0].mean)


def test_masked_rows_are_left_out_whatever_they_hold():
    x = torch.randn(8, 5, 3, generator=torch.Generator().manual_seed(0))
    mask = torch.rand(8, 5, generator=torch.Generator().manual_seed(1)) < 0.6
    expected = fed(x[mask], shape=3)
    x[~mask] = torch.nan
    norm = RunningNorm(3)
    norm.update(x, mask)
    assert norm.count.item() == int(mask.sum())
    assert_close(norm.mean, expected.mean, atol=1e-7, rtol=0)
    assert_close(norm.var, expected.var, atol=1e-6, rtol=0)
    norm.update(x, torch.zeros_like(mask))
    assert_close(norm.mean, expected.mean, atol=1e-7, rtol=0)
    empty = RunningNorm(3)
    empty.update(x, torch.zeros_like(mask))
    empty.update(x[:0])
    assert torch.equal(empty.var, torch.ones(3, dtype=torch.float64))
    assert empty.count.item() == 0


def test_images_and_integers():
    x = torch.randint(0, 256, (6, 2, 4, 4), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    norm = fed(x, shape=(2, 4, 4))
    assert_close(norm.mean, x.double().mean(0))
    assert norm(x).dtype == torch.float32


def test_state_dict_restores_what_forward_uses_and_addresses_stay():
    norm = fed(NUMBERS)
    addresses = [buffer.data_ptr() for buffer in norm.buffers()]
    norm.update(NUMBERS * 3)
    other = RunningNorm(())
    other.load_state_dict(norm.state_dict())
    assert set(norm.state_dict()) == {"mean", "var", "count"}
    assert torch.equal(other(NUMBERS), norm(NUMBERS))
    assert torch.equal(other.inverse(NUMBERS), norm.inverse(NUMBERS))
    assert [buffer.data_ptr() for buffer in norm.buffers()] == addresses
    parent = torch.nn.ModuleDict({"norm": RunningNorm(())})
    parent.load_state_dict({f"norm.{key}": value for key, value in norm.state_dict().items()})
    assert torch.equal(parent["norm"](NUMBERS), norm(NUMBERS))


def test_gradient_reaches_the_input():
    norm = fed(NUMBERS)
    x = NUMBERS.clone().requires_grad_()
    norm.update(x)
    assert not norm.mean.requires_grad
    norm(x).sum().backward()
    assert_close(x.grad, torch.full((10,), 1 / (math.sqrt(8.25) + 0.01)))


def test_mistakes_are_named():
    norm = RunningNorm((3,))
    with pytest.raises(ValueError, match=r"takes \[\.\.\., 3\]"):
        norm.update(torch.zeros(5, 4))
    with pytest.raises(ValueError, match="expected a bool"):
        norm.update(torch.zeros(5, 3), torch.ones(5))
    with pytest.raises(ValueError, match="clip"):
        RunningNorm(3, clip=0.0)
    with pytest.raises(ValueError, match="eps"):
        RunningNorm(3, eps=-1.0)
    with pytest.raises(ValueError, match="B = 4"):
        ReturnScaler(4, 0.9).scale(torch.zeros(3, 2))
    with pytest.raises(ValueError, match="bool"):
        ReturnScaler(2, 0.9).scale(torch.zeros(3, 2), torch.zeros(3, 2))
    with pytest.raises(ValueError, match="gamma"):
        ReturnScaler(2, 1.5)


def test_batch_moments_of_a_scalar():
    count, mean, var = batch_moments(NUMBERS.view(2, 5))
    assert (count, mean.item(), var.item()) == (10, 5.5, 8.25)


def test_value_norm():
    returns = torch.randn(16, 8, generator=torch.Generator().manual_seed(0)) * 20 + 100
    norm = ValueNorm()
    norm.update(returns)
    target = norm.normalise(returns)
    assert abs(target.mean().item()) < 1e-4
    assert abs(target.std().item() - 1) < 0.01
    assert_close(norm.denormalise(target), returns)
    norm.eval()
    norm.update(returns * 9)
    assert_close(norm.denormalise(target), returns)


def test_return_scaler_by_hand():
    # gamma 0.5. Environment 0 ends at row 1: R = 1, 2.5 | 3, 5.5. Environment 1 runs on: R = 2, 1, 0.5, 4.25
    reward = torch.tensor([[1.0, 2.0], [2.0, 0.0], [3.0, 0.0], [4.0, 4.0]])
    done = torch.tensor([[False, False], [True, False], [False, False], [False, True]])
    recorded = torch.tensor([1, 2.5, 3, 5.5, 2, 1, 0.5, 4.25])
    scaler = ReturnScaler(2, 0.5)
    scaled = scaler.scale(reward, done)
    assert_close(scaled, reward / recorded.std(correction=0))
    assert_close(scaler.running, torch.tensor([5.5, 0.0]))  # the second environment ended in the last row
    for name, wrong in {"not reset": None, "late": done.roll(1, 0)}.items():
        other = ReturnScaler(2, 0.5).scale(reward, wrong)
        assert (other - scaled).abs().max() > 1e-3, name


def test_return_scaler_is_one_stream_over_rollouts():
    generator = torch.Generator().manual_seed(0)
    reward = torch.randn(20, 3, generator=generator) + 1
    done = torch.rand(20, 3, generator=generator) < 0.2
    whole, parts = ReturnScaler(3, 0.9), ReturnScaler(3, 0.9)
    expected = whole.scale(reward, done)
    parts.scale(reward[:7], done[:7])
    resumed = ReturnScaler(3, 0.9)
    resumed.load_state_dict(copy.deepcopy(parts.state_dict()))
    for scaler in (parts, resumed):
        assert_close(scaler.scale(reward[7:], done[7:]), expected[7:])
        assert_close(scaler.running, whole.running)
    assert expected.dtype == torch.float32
    frozen = whole.eval().running.clone()
    assert_close(whole.scale(reward, done), expected)
    assert torch.equal(whole.running, frozen)


def test_return_scaler_passes_rewards_while_the_deviation_is_zero():
    scaler = ReturnScaler(2, 0.9)
    reward = torch.zeros(3, 2)
    assert torch.equal(scaler.scale(reward), reward)
    constant = torch.ones(1, 2)
    assert torch.equal(ReturnScaler(2, 0.9).scale(constant), constant)
    masked = ReturnScaler(2, 0.0)
    valid = torch.tensor([[True, True], [False, True], [True, True]])
    scaled = masked.scale(
        torch.tensor([[1.0, 2.0], [0.0, 3.0], [4.0, 5.0]]), torch.zeros(3, 2, dtype=torch.bool), valid
    )
    assert_close(scaled[0, 0], 1 / torch.tensor([1.0, 2, 3, 4, 5]).std(correction=0))


@pytest.mark.parametrize("with_done", [True, False])
def test_return_scaler_over_long_rollouts_equals_a_loop(with_done):
    scaler, generator = ReturnScaler(3, gamma=0.9), torch.Generator().manual_seed(0)
    carried, recorded = torch.zeros(3, dtype=torch.float64), []
    for _ in range(3):
        reward = torch.randn(50, 3, generator=generator)
        done = torch.rand(50, 3, generator=generator) < 0.1 if with_done else None
        scaled = scaler.scale(reward, done)
        for t in range(50):
            carried = 0.9 * carried + reward[t].double()
            recorded.append(carried)
            if done is not None:
                carried = torch.where(done[t], 0.0, carried)
        std = torch.cat(recorded).std(correction=0)
        assert_close(scaled.double(), reward.double() / std, atol=1e-5, rtol=1e-5)
        assert_close(scaler.running.double(), carried, atol=1e-5, rtol=1e-5)
