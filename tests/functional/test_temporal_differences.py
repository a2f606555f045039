"""Temporal differences by hand, against float64 loops, and against the frame streams' pairs."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from gaitway.core.workspace import Workspace
from gaitway.frames.pairs import n_step_pairs
from gaitway.functional.returns import gae
from gaitway.functional.temporal_differences import (
    action_value,
    discounts,
    double_q_td,
    double_q_value,
    lambda_returns,
    n_step_returns,
    n_step_targets,
    td,
    td_target,
)


def column(*values: float | bool) -> Tensor:
    return torch.tensor(values).unsqueeze(1)


NEVER = column(False, False, False, False)


def random_stream(rows: int, columns: int, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    reward, value, next_value = torch.randn(3, rows, columns, generator=generator, dtype=torch.float64)
    terminated = torch.rand(rows, columns, generator=generator) < 0.15
    done = terminated | (torch.rand(rows, columns, generator=generator) < 0.15)
    return {"reward": reward, "value": value, "next_value": next_value, "terminated": terminated, "done": done}


class TestOneStep:
    def test_by_hand(self):
        # gamma 0.9: 1 + 0.9 * 20 - 10; 2 - 20 (terminated); 3 + 0.9 * 40 - 30
        value, next_value = column(10.0, 20.0, 30.0), column(20.0, torch.nan, 40.0)
        delta = td(column(1.0, 2.0, 3.0), value, next_value, column(False, True, False), gamma=0.9)
        assert_close(delta, column(9.0, -18.0, 9.0))
        assert_close(td_target(column(1.0), column(0.25), column(8.0)), column(3.0))  # a window of n steps: gamma^n

    def test_any_shape_and_numbers_as_flags(self):
        stream = random_stream(5, 3)
        del stream["done"]
        rows = td(**stream, gamma=0.9)
        flat = td(**{name: tensor.flatten() for name, tensor in stream.items()}, gamma=0.9)
        assert_close(flat, rows.flatten())
        assert_close(td(**stream | {"terminated": stream["terminated"].float()}, gamma=0.9), rows)

    def test_the_target_is_constant(self):
        stream = {name: t.requires_grad_() if t.is_floating_point() else t for name, t in random_stream(4, 2).items()}
        del stream["done"]
        td(**stream, gamma=0.9).sum().backward()
        assert_close(stream["value"].grad, -torch.ones(4, 2, dtype=torch.float64))
        assert stream["reward"].grad is None
        assert stream["next_value"].grad is None

    def test_friction_10_a_trailing_axis_is_refused(self):
        with pytest.raises(ValueError, match=r"value is \[4, 1\] but reward is \[4\].*squeeze"):
            td(torch.zeros(4), torch.zeros(4, 1), torch.zeros(4), torch.zeros(4), 0.9)
        with pytest.raises(ValueError, match="terminated is"):
            td(torch.zeros(4), torch.zeros(4), torch.zeros(4), torch.zeros(4, 1), 0.9)

    def test_discounts(self):
        assert_close(discounts(torch.tensor([True, False]), 0.9, torch.zeros(2)), torch.tensor([0.0, 0.9]))


class TestDoubleQ:
    q = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    next_q = torch.tensor([[5.0, 1.0], [0.0, 2.0]])
    next_q_target = torch.tensor([[10.0, 100.0], [100.0, 20.0]])

    def test_one_network_chooses_and_the_other_judges(self):
        # best by next_q: 0 and 1, judged 10 and 20; 1 + 0.5 * 10 - 2 = 4 and 2 + 0.5 * 20 - 3 = 9
        action = torch.tensor([1, 0])
        delta = double_q_td(
            torch.tensor([1.0, 2.0]), self.q, action, self.next_q, self.next_q_target, torch.tensor([0, 0]), gamma=0.5
        )
        assert_close(delta.detach(), torch.tensor([4.0, 9.0]))
        delta.sum().backward()
        assert_close(self.q.grad, torch.tensor([[0.0, -1.0], [-1.0, 0.0]]))
        # the twin that takes the largest judged value
        assert self.next_q_target.amax(-1).tolist() == [100.0, 100.0]
        assert double_q_value(self.next_q, self.next_q_target).tolist() == [10.0, 20.0]

    def test_shapes(self):
        with pytest.raises(ValueError, match=r"q is \[2, 2\] and action \[2, 1\]"):
            action_value(self.q, torch.zeros(2, 1, dtype=torch.int64))
        with pytest.raises(ValueError, match=r"torch\.float32"):
            action_value(self.q, torch.zeros(2))
        with pytest.raises(ValueError, match="next_q_target is"):
            double_q_value(self.next_q, self.next_q_target[:1])


class TestNSteps:
    reward = column(1.0, 2.0, 4.0, 8.0)

    def test_by_hand(self):
        # gamma 0.5, n 2, the episode is cut after row 1: 1 + .5*2, 2 alone, 4 + .5*8, 8 and no more rows
        found = n_step_returns(self.reward, NEVER, column(False, True, False, False), gamma=0.5, n=2)
        assert_close(found.total, column(2.0, 2.0, 8.0, 8.0))
        assert_close(found.steps, column(2, 1, 2, 1))
        assert_close(found.discount, column(0.25, 0.5, 0.25, 0.5))
        assert_close(found.last, column(1, 1, 3, 3))
        assert_close(found.whole, column(True, True, True, False))
        ended = n_step_returns(self.reward, column(False, True, False, False), NEVER, gamma=0.5, n=2)
        assert_close(ended.discount, column(0.0, 0.0, 0.25, 0.5))  # a termination has no future
        assert_close(ended.total, found.total)

    def test_targets_by_hand(self):
        # rows 0 and 1 bootstrap from what row 1 reached: 2 + .25*100, 2 + .5*100; row 2: 8 + .25*1000; row 3: 8 + 500
        next_value = column(7.0, 100.0, 7.0, 1000.0)
        cut = column(False, True, False, False)
        expected = column(27.0, 52.0, 258.0, 508.0)
        assert_close(n_step_targets(self.reward, next_value, NEVER, cut, gamma=0.5, n=2), expected)
        next_value[1] = torch.nan
        expected = column(2.0, 2.0, 258.0, 508.0)
        assert_close(n_step_targets(self.reward, next_value, cut, cut, gamma=0.5, n=2), expected)

    @pytest.mark.parametrize("n", [1, 2, 5, 40])
    def test_equals_the_loop(self, n):
        stream = random_stream(17, 6, seed=n)
        del stream["value"]
        found = n_step_targets(**stream, gamma=0.9, n=n)
        for b in range(6):
            for t in range(17):
                total, weight = 0.0, 1.0
                for row in range(t, min(t + n, 17)):
                    total += weight * stream["reward"][row, b].item()
                    weight *= 0.9
                    last = row
                    if stream["done"][row, b]:
                        break
                if not stream["terminated"][last, b]:
                    total += weight * stream["next_value"][last, b].item()
                assert found[t, b].item() == pytest.approx(total, abs=1e-12)

    def test_one_step_is_the_temporal_difference(self):
        stream = random_stream(9, 3)
        value = stream.pop("value")
        targets = n_step_targets(**stream, gamma=0.9, n=1)
        del stream["done"]
        assert_close(targets - value, td(**stream, value=value, gamma=0.9))

    def test_equals_the_pairs_of_the_frame_stream(self):
        # the same steps as frames, one column: row 0 is a reset; a final row is followed by a reset row
        reward = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
        terminated = [False, False, False, False, True, False]
        truncated = [False, True, False, False, False, False]
        frames = {"env/reward": [0.0], "env/terminated": [False], "env/truncated": [False]}
        for r, ends, cuts in zip(reward, terminated, truncated, strict=True):
            for name, value in (("env/reward", r), ("env/terminated", ends), ("env/truncated", cuts)):
                frames[name].append(value)
            if ends or cuts:
                for name, value in (("env/reward", 0.0), ("env/terminated", False), ("env/truncated", False)):
                    frames[name].append(value)
        pairs = n_step_pairs(Workspace.packed({name: column(*rows) for name, rows in frames.items()}), 3, 0.5)
        done = column(*terminated) | column(*truncated)
        found = n_step_returns(column(*reward), column(*terminated), done, gamma=0.5, n=3)
        kept = found.whole[:, 0]
        assert_close(found.total[kept, 0], pairs["n_step/return"][0])
        assert_close(found.steps[kept, 0], pairs["n_step/steps"][0])
        bootstrap = pairs["n_step/discount"][0] * ~pairs.at("env/terminated", 1)
        assert_close(found.discount[kept, 0], bootstrap)

    def test_what_lies_behind_an_end_does_not_count_and_arguments(self):
        broken = column(1.0, 2.0, torch.nan, torch.nan)
        found = n_step_returns(broken, NEVER, column(False, True, False, False), 0.5, 4)
        assert_close(found.total[:2], column(2.0, 2.0))
        with pytest.raises(ValueError, match="at least one step"):
            n_step_returns(self.reward, NEVER, NEVER, 0.5, 0)
        with pytest.raises(ValueError, match=r"\[T, B\]"):
            n_step_returns(torch.zeros(3), torch.zeros(3), torch.zeros(3), 0.5, 1)
        empty = torch.zeros(0, 2)
        assert n_step_targets(empty, empty, empty, empty, 0.5, 3).shape == (0, 2)
        reward = self.reward.clone().requires_grad_()
        assert not n_step_targets(reward, reward, NEVER, NEVER, 0.5, 2).requires_grad


class TestLambdaReturns:
    def test_by_hand(self):
        # gamma 0.5, lam 0.5, row 1 is cut: G_3 = 8 + .5*40 = 28; G_2 = 4 + .5*(.5*30 + .5*28) = 18.5
        # G_1 = 2 + .5*20 = 12; G_0 = 1 + .5*(.5*10 + .5*12) = 6.5
        reward, next_value = column(1.0, 2.0, 4.0, 8.0), column(10.0, 20.0, 30.0, 40.0)
        cut = column(False, True, False, False)
        assert_close(lambda_returns(reward, next_value, NEVER, cut, 0.5, 0.5), column(6.5, 12.0, 18.5, 28.0))
        # terminated: G_1 = 2, G_0 = 1 + .5*(.5*10 + .5*2) = 4
        next_value[1] = torch.nan
        assert_close(lambda_returns(reward, next_value, cut, cut, 0.5, 0.5), column(4.0, 2.0, 18.5, 28.0))

    def test_is_the_weighted_mean_of_n_step_targets(self):
        stream, lam, rows = random_stream(12, 4, seed=3), 0.7, 12
        del stream["value"]
        expected = torch.zeros(rows, 4, dtype=torch.float64)
        targets = [n_step_targets(**stream, gamma=0.9, n=n) for n in range(1, rows + 1)]
        for n in range(1, rows):
            expected += (1 - lam) * lam ** (n - 1) * targets[n - 1]
        expected += lam ** (rows - 1) * targets[-1]  # what is left; targets no longer change behind an end
        assert_close(lambda_returns(**stream, gamma=0.9, lam=lam), expected)

    @pytest.mark.parametrize("rows", [1, 7, 60])
    def test_equals_gae_where_values_agree(self, rows):
        stream = random_stream(rows, 5, seed=rows)
        following = torch.cat((stream["value"][1:], stream["next_value"][-1:]))
        stream["next_value"] = torch.where(stream["done"], stream["next_value"], following)
        advantage = gae(**stream, gamma=0.95, lam=0.8)
        value = stream.pop("value")
        assert_close(lambda_returns(**stream, gamma=0.95, lam=0.8), advantage + value)

    def test_lam_zero_is_one_step_and_lam_one_is_all_of_them(self):
        stream = random_stream(9, 3, seed=5)
        del stream["value"]
        for lam, n in ((0.0, 1), (1.0, 9)):
            assert_close(lambda_returns(**stream, gamma=0.9, lam=lam), n_step_targets(**stream, gamma=0.9, n=n))
        assert lambda_returns(*(torch.zeros(0, 2),) * 4, 0.9, 0.8).shape == (0, 2)
