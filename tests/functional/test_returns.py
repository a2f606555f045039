"""Arithmetic of returns and advantages (T-GAE): hand-computed numbers, broken twins, float64 recomputation."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from gaitway.functional.returns import accumulate, discounted_returns, gae


def column(*values: float | bool) -> Tensor:
    return torch.tensor(values).unsqueeze(1)


def textbook_gae(reward, value, next_value, terminated, done, gamma, lam) -> Tensor:
    """Row by row, entry by entry, in float64."""
    result = torch.zeros(reward.shape, dtype=torch.float64)
    rows, columns = reward.shape
    for b in range(columns):
        later = 0.0
        for t in reversed(range(rows)):
            bootstrap = 0.0 if terminated[t, b] else gamma * next_value[t, b].item()
            delta = reward[t, b].item() + bootstrap - value[t, b].item()
            later = delta + (0.0 if done[t, b] else gamma * lam * later)
            result[t, b] = later
    return result


REWARD, VALUE = column(1.0, 0.0, 2.0), column(0.5, 0.2, 1.0)
NEXT_VALUE = column(0.2, 1.0, 2.0)
DONE = column(False, True, False)
EXPECTED = column(0.536, -0.2, 2.8)


def test_known_numbers():
    # gamma 0.9, lam 0.8: delta = (1 + 0.18 - 0.5, 0 - 0.2, 2 + 1.8 - 1); A_0 = 0.68 + 0.72 * -0.2
    advantage = gae(REWARD, VALUE, NEXT_VALUE, terminated=DONE, done=DONE, gamma=0.9, lam=0.8)
    assert_close(advantage, EXPECTED, atol=1e-6, rtol=0)
    assert_close(advantage + VALUE, column(1.036, 0.0, 3.8), atol=1e-6, rtol=0)


def test_mutations_give_other_numbers():
    never = torch.zeros_like(DONE)
    shifted = DONE.roll(1, 0)
    mutations = {
        "done one row late": (shifted, shifted),
        "done one row early": (DONE.roll(-1, 0), DONE.roll(-1, 0)),
        "bootstrap through done": (never, DONE),
        "trace through done": (DONE, never),
        "done ignored": (never, never),
    }
    for name, (terminated, done) in mutations.items():
        advantage = gae(REWARD, VALUE, NEXT_VALUE, terminated, done, gamma=0.9, lam=0.8)
        assert (advantage - EXPECTED).abs().max() > 0.01, name


def test_bug_54_a_time_limit_bootstraps_but_stops_the_trace():
    # delta = 1 + 0.9 * (20, 99, 40) - (10, 20, 30) = (9, 70.1, 7); A_0 = 9 + 0.72 * 70.1
    reward, value, next_value = column(1.0, 1.0, 1.0), column(10.0, 20.0, 30.0), column(20.0, 99.0, 40.0)
    never, cut = column(False, False, False), column(False, True, False)
    assert_close(gae(reward, value, next_value, never, cut, gamma=0.9, lam=0.8), column(59.472, 70.1, 7.0))
    one_mask = gae(reward, value, next_value, never, never, gamma=0.9, lam=0.8)
    assert_close(one_mask, column(63.1008, 75.14, 7.0))  # what one mask for both gives


def test_bug_55_gradient_stays_in_its_own_row():
    value = column(10.0, 20.0, 30.0).requires_grad_()
    never = column(False, False, False)
    next_value = torch.cat((value[1:], column(40.0)))  # the critic's own values, as a training loop would pass them
    reward = column(1.0, 1.0, 1.0).requires_grad_()
    advantage = gae(reward, value, next_value, never, never, gamma=0.9, lam=0.8)
    advantage.sum().backward()
    assert_close(value.grad, column(-1.0, -1.0, -1.0))
    assert reward.grad is None
    assert torch.equal(advantage.detach(), gae(reward, value.detach(), next_value.detach(), never, never, 0.9, 0.8))

    through_time = VALUE.clone().requires_grad_()  # the twin whose gradient runs through later values
    carry, total = torch.zeros(1), torch.zeros(1)
    for t in (2, 1, 0):
        carry = -through_time[t] + 0.72 * carry
        total = total + carry
    total.sum().backward()
    assert_close(through_time.grad, column(-1.0, -1.72, -2.2384))


def test_no_gradient_unless_the_value_asks():
    never = torch.zeros(3, 1, dtype=torch.bool)
    next_value = NEXT_VALUE.clone().requires_grad_()
    assert not gae(REWARD, VALUE, next_value, never, never, 0.9, 0.8).requires_grad
    with torch.no_grad():
        assert not gae(REWARD, VALUE.clone().requires_grad_(), NEXT_VALUE, never, never, 0.9, 0.8).requires_grad


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (24, 5), (64, 16), (64, 257), (100, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_textbook_loop(shape, dtype):
    generator = torch.Generator().manual_seed(shape[0])
    reward, value, next_value = torch.randn(3, *shape, generator=generator, dtype=dtype)
    terminated = torch.rand(shape, generator=generator) < 0.1
    done = terminated | (torch.rand(shape, generator=generator) < 0.1)
    inputs = [tensor.clone() for tensor in (reward, value, next_value, terminated, done)]
    advantage = gae(reward, value, next_value, terminated, done, 0.97, 0.9)
    assert advantage.dtype == dtype
    expected = textbook_gae(reward, value, next_value, terminated, done, 0.97, 0.9)
    assert_close(advantage.double(), expected, atol=1e-5 if dtype == torch.float32 else 1e-12, rtol=0)
    for before, after in zip(inputs, (reward, value, next_value, terminated, done), strict=True):
        assert torch.equal(before, after)  # pure
    numbers = gae(reward, value, next_value, terminated.float(), done.to(torch.int64), 0.97, 0.9)
    assert torch.equal(numbers, advantage)
    transposed = gae(reward.t().contiguous().t(), value, next_value, terminated, done, 0.97, 0.9)
    assert torch.equal(transposed, advantage)


def test_lam_zero_is_the_temporal_difference_and_nothing_gives_nothing():
    never = torch.zeros(3, 1, dtype=torch.bool)
    assert_close(gae(REWARD, VALUE, NEXT_VALUE, never, never, 0.9, 0.0), REWARD + 0.9 * NEXT_VALUE - VALUE)
    empty = torch.zeros(0, 4)
    assert gae(empty, empty, empty, empty.bool(), empty.bool(), 0.9, 0.8).shape == (0, 4)


def test_what_lies_beyond_termination_is_never_used():
    broken = NEXT_VALUE.clone()
    broken[1] = torch.nan
    assert_close(gae(REWARD, VALUE, broken, DONE, DONE, 0.9, 0.8), EXPECTED)


def test_wrong_shapes_and_dtypes_are_named():
    flag = torch.zeros(3, 1, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"value is \[3, 1, 1\] but reward is \[3, 1\].*squeeze"):
        gae(REWARD, VALUE.unsqueeze(-1), NEXT_VALUE, flag, flag, 0.9, 0.8)
    with pytest.raises(ValueError, match=r"reward is \[3\]; it must be \[T, B\]"):
        gae(REWARD[:, 0], VALUE[:, 0], NEXT_VALUE[:, 0], flag[:, 0], flag[:, 0], 0.9, 0.8)
    with pytest.raises(ValueError, match="done is"):
        gae(REWARD, VALUE, NEXT_VALUE, flag, flag[:2], 0.9, 0.8)
    with pytest.raises(ValueError, match=r"next_value is torch\.float64"):
        gae(REWARD, VALUE, NEXT_VALUE.double(), flag, flag, 0.9, 0.8)
    with pytest.raises(ValueError, match="floating point"):
        discounted_returns(torch.ones(3, 1, dtype=torch.int64), flag, 0.9)
    with pytest.raises(ValueError, match="bootstrap"):
        discounted_returns(REWARD, flag, 0.9, bootstrap=torch.ones(2))


def test_discounted_returns():
    # gamma 0.5, the episode ends at row 1: G_1 = 2; G_0 = 1 + 0.5 * 2; G_3 = 4 (+ 0.5 * 10); G_2 = 3 + 0.5 G_3
    reward, done = column(1.0, 2.0, 3.0, 4.0), column(False, True, False, False)
    assert_close(discounted_returns(reward, done, 0.5), column(2.0, 2.0, 5.0, 4.0))
    assert_close(discounted_returns(reward, done, 0.5, torch.tensor([10.0])), column(2.0, 2.0, 7.5, 9.0))
    ended = column(False, True, False, True)
    assert_close(discounted_returns(reward, ended, 0.5, torch.tensor([torch.nan])), column(2.0, 2.0, 5.0, 4.0))
    assert_close(reward, column(1.0, 2.0, 3.0, 4.0))


def test_returns_and_lam_one_advantages_agree():
    generator = torch.Generator().manual_seed(0)
    reward, value = torch.randn(2, 12, 5, generator=generator)
    last = torch.randn(5, generator=generator)
    done = torch.rand(12, 5, generator=generator) < 0.2
    next_value = torch.cat((value[1:], last.unsqueeze(0)))
    advantage = gae(reward, value, next_value, done, done, 0.9, 1.0)
    assert_close(advantage + value, discounted_returns(reward, done, 0.9, last))


@pytest.mark.parametrize("columns", [1, 256, 257])
@pytest.mark.parametrize("rows", [1, 2, 47, 48, 49, 64, 127])
def test_accumulate_by_rows_and_by_doubling_spans(rows, columns):
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, columns, generator=generator)
    weight = torch.rand(rows, columns, generator=generator) * (torch.rand(rows, columns, generator=generator) > 0.1)
    expected = x.double().clone()
    for t in reversed(range(rows - 1)):
        expected[t] += weight[t].double() * expected[t + 1]
    weight[-1] = torch.nan  # there is no row after the last one
    assert_close(accumulate(x.clone(), weight).double(), expected, atol=1e-5, rtol=1e-5)


def test_nothing_leaks_across_an_end_in_long_rollouts():
    reward, done = torch.zeros(128, 2), torch.zeros(128, 2, dtype=torch.bool)
    reward[100], done[60, 0] = 1e30, True
    returns = discounted_returns(reward, done, 1.0)
    assert (returns[:61, 0] == 0.0).all()
    assert (returns[:101, 1] == 1e30).all()
    assert (returns[61:101, 0] == 1e30).all()
    value = torch.zeros(128, 2)
    next_value = torch.full((128, 2), torch.nan)
    ended = torch.ones(128, 2, dtype=torch.bool)
    assert torch.equal(gae(reward, value, next_value, ended, ended, 0.99, 0.95), reward)


def test_half_precision_flags_and_negative_zero():
    reward = torch.ones(3, 2, dtype=torch.bfloat16)
    never = torch.zeros(3, 2, dtype=torch.bool)
    advantage = gae(reward, reward, -reward, never, never, 0.5, 0.5)
    assert advantage.dtype == torch.bfloat16
    assert_close(advantage[:, 0].float(), torch.tensor([-0.65625, -0.625, -0.5]))  # delta -0.5, decay 0.25
