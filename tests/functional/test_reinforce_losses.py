"""REINFORCE: every number by hand."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from gaitway.functional.reinforce import frame_reinforce_losses, probability_terms, reinforce_losses


def rows(*values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


# column 0 ends in row 1, column 1 in row 2; what stands behind an end is rubbish
REWARD = rows((1.0, 1.0), (2.0, 0.0), (1e9, 4.0))
DONE = torch.tensor([[False, False], [True, False], [False, True]])
LOG_PROB = rows((-0.1, -0.2), (-0.3, -0.4), (torch.nan, -0.5))
BASELINE = rows((1.0, 0.0), (1.0, 1.0), (torch.nan, 2.0))
ENTROPY = rows((0.5, 0.6), (0.7, 0.8), (torch.nan, 0.9))
# gamma 0.5: column 0: G = 1 + .5*2 = 2, 2; column 1: G_2 = 4, G_1 = 2, G_0 = 2. Five steps count.


def test_by_hand():
    losses = reinforce_losses(
        reward=REWARD, done=DONE, log_prob=LOG_PROB, baseline=BASELINE, entropy=ENTROPY, gamma=0.5
    )
    # G - b: (1, 1), (2, 1, 2); sum log p (G - b) = -.1 - .3 - .4 - .4 - 1.0 = -2.2
    assert_close(losses.policy, torch.tensor(2.2 / 5))
    assert_close(losses.baseline, torch.tensor((1 + 1 + 4 + 1 + 4) / 5))
    assert_close(losses.entropy, torch.tensor(-(0.5 + 0.7 + 0.6 + 0.8 + 0.9) / 5))


def test_without_a_baseline():
    losses = reinforce_losses(reward=REWARD, done=DONE, log_prob=LOG_PROB, gamma=0.5)
    # sum log p G = -.2 - .6 - .4 - .8 - 2.0 = -4
    assert_close(losses.policy, torch.tensor(0.8))
    assert losses.baseline == losses.entropy == 0.0


def test_bug_57_discount_multiplies_masked_rows_do_not_count_and_losses_are_minimised():
    log_prob, baseline, entropy = (t.clone().requires_grad_() for t in (LOG_PROB, BASELINE, ENTROPY))
    losses = reinforce_losses(
        reward=REWARD, done=DONE, log_prob=log_prob, baseline=baseline, entropy=entropy, gamma=0.5
    )
    sum(losses).backward()
    # a good action (G > b) becomes likelier when the loss is minimised; nothing behind an end is trained
    assert_close(log_prob.grad, -rows((1.0, 2.0), (1.0, 1.0), (0.0, 2.0)) / 5)
    assert_close(entropy.grad, -rows((1.0, 1.0), (1.0, 1.0), (0.0, 1.0)) / 5)
    # the baseline learns from its own loss alone: -2 (G - b) / 5
    assert_close(baseline.grad, -2 * rows((1.0, 2.0), (1.0, 1.0), (0.0, 2.0)) / 5)
    # the mean over all six entries, and the discount added instead of multiplied (1 + .5 + 2), are other numbers
    assert losses.policy.item() != pytest.approx(2.2 / 6)
    first = reinforce_losses(reward=REWARD[:2, :1], done=DONE[:2, :1], log_prob=LOG_PROB[:2, :1], gamma=0.5)
    assert first.policy.item() == pytest.approx((0.1 * 2.0 + 0.3 * 2.0) / 2)
    assert first.policy.item() != pytest.approx((0.1 * 3.5 + 0.3 * 2.0) / 2)


@pytest.mark.parametrize("reward_at", ["arrival", "departure"])
def test_frames_give_the_same(reward_at):
    # the same steps as a frozen stream: row 0 resets, a final row repeats
    done = torch.tensor([[False, False], [False, False], [True, False], [True, True]])
    arrival = rows((0.0, 0.0), (1.0, 1.0), (2.0, 0.0), (0.0, 4.0))
    reward = arrival if reward_at == "arrival" else rows((1.0, 1.0), (2.0, 0.0), (0.0, 4.0), (0.0, 0.0))
    final = rows((7.0, 7.0))
    framed = {
        name: torch.cat((tensor, final))
        for name, tensor in (("log_prob", LOG_PROB), ("baseline", BASELINE), ("entropy", ENTROPY))
    }
    found = frame_reinforce_losses(reward=reward, done=done, gamma=0.5, reward_at=reward_at, **framed)
    expected = reinforce_losses(
        reward=REWARD, done=DONE, log_prob=LOG_PROB, baseline=BASELINE, entropy=ENTROPY, gamma=0.5
    )
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)


def test_an_episode_without_an_end_is_refused():
    with pytest.raises(ValueError, match=r"columns \[1\] of 2 have no end"):
        reinforce_losses(reward=REWARD[:2], done=DONE[:2], log_prob=LOG_PROB[:2], gamma=0.5)
    with pytest.raises(ValueError, match="log_prob is"):
        reinforce_losses(reward=REWARD, done=DONE, log_prob=LOG_PROB.unsqueeze(-1), gamma=0.5)


class TestProbabilities:
    def test_by_hand(self):
        probabilities = torch.tensor([[[0.25, 0.75]], [[0.5, 0.5]]])
        log_prob, entropy = probability_terms(probabilities, torch.tensor([[1], [0]]))
        assert_close(log_prob, torch.tensor([[math.log(0.75)], [math.log(0.5)]]))
        uneven = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
        assert_close(entropy, torch.tensor([[uneven], [math.log(2.0)]]))

    def test_a_certain_policy_has_finite_gradients(self):
        logits = torch.tensor([[200.0, -200.0]], requires_grad=True)
        log_prob, entropy = probability_terms(logits.softmax(-1), torch.tensor([0]))
        (log_prob + entropy).sum().backward()
        assert log_prob == 0
        assert entropy == 0
        assert torch.isfinite(logits.grad).all()

    def test_shapes(self):
        with pytest.raises(ValueError, match="use"):
            probability_terms(torch.ones(3, 2) / 2, torch.zeros(3, 1, dtype=torch.int64))
