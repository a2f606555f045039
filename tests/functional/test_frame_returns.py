"""Frame streams: by hand, and equal to the step-row functions on the same steps."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from gaitway.core.workspace import Workspace
from gaitway.functional.frame_returns import (
    frame_cumulated_reward,
    frame_discounted_returns,
    frame_double_q_td,
    frame_gae,
    frame_rewards,
    frame_td,
)
from gaitway.functional.reinforce import frame_reinforce_losses
from gaitway.functional.returns import discounted_returns, gae


def column(*values: float | bool) -> Tensor:
    return torch.tensor(values).unsqueeze(1)


# two-step episodes with rewards 1 then 5, as framed rows: reset, step, final, reset, step, final
ARRIVAL = column(0.0, 1.0, 5.0, 0.0, 1.0, 5.0)
DEPARTURE = column(1.0, 5.0, 0.0, 1.0, 5.0, 0.0)
DONE = column(False, False, True, False, False, True)
BOTH = pytest.mark.parametrize(("reward", "reward_at"), [(ARRIVAL, "arrival"), (DEPARTURE, "departure")])


class TestReturns:
    @BOTH
    def test_by_hand(self, reward, reward_at):
        # gamma 0.5: G = 1 + 0.5 * 5, 5, 0 in both episodes
        found = frame_discounted_returns(reward=reward, done=DONE, gamma=0.5, reward_at=reward_at)
        assert_close(found, column(3.5, 5.0, 0.0, 3.5, 5.0, 0.0))

    @BOTH
    def test_a_stream_that_goes_on(self, reward, reward_at):
        # rows 0..4: the second episode stops one step before its end; G_4 = 8, G_3 = 1 + 0.5 * 8
        options = {"reward": reward[:5].clone(), "done": DONE[:5], "gamma": 0.5, "reward_at": reward_at}
        assert_close(frame_discounted_returns(**options), column(3.5, 5.0, 0.0, 1.0, 0.0))
        options["bootstrap"] = torch.tensor([8.0])
        assert_close(frame_discounted_returns(**options), column(3.5, 5.0, 0.0, 5.0, 8.0))

    def test_the_last_row_is_final(self):
        options = {"reward": ARRIVAL, "done": DONE, "gamma": 0.5, "bootstrap": torch.tensor([8.0])}
        assert_close(frame_discounted_returns(**options)[3:], column(3.5, 5.0, 0.0))
        # reached by a time limit: 5 + 0.5 * 8 = 9, 1 + 0.5 * 9 = 5.5
        cut = frame_discounted_returns(**options, terminated=torch.zeros_like(DONE))
        assert_close(cut[3:], column(5.5, 9.0, 8.0))
        assert_close(cut[:3], column(3.5, 5.0, 0.0))
        options["bootstrap"] = torch.tensor([torch.nan])
        assert_close(frame_discounted_returns(**options, terminated=DONE)[3:], column(3.5, 5.0, 0.0))

    def test_arguments(self):
        with pytest.raises(ValueError, match=r"use \"arrival\" .* or \"departure\""):
            frame_rewards(ARRIVAL, "at_t")
        with pytest.raises(ValueError, match="bootstrap is"):
            frame_discounted_returns(reward=ARRIVAL, done=DONE, gamma=0.5, bootstrap=torch.zeros(2))
        for rows in (0, 1):
            assert frame_discounted_returns(reward=ARRIVAL[:rows], done=DONE[:rows], gamma=0.5).shape == (rows, 1)


class TestCumulatedReward:
    def test_bug_53_departure_stops_before_the_final_row(self):
        # a frozen stream repeats its final row; some environments leave the last reward there too
        done = column(False, False, True, True)
        duplicated = column(1.0, 5.0, 5.0, 5.0)
        assert frame_cumulated_reward(reward=duplicated, done=done, reward_at="departure") == 6.0
        assert frame_cumulated_reward(reward=column(0.0, 1.0, 5.0, 0.0), done=done) == 6.0
        assert duplicated[:3].sum() == 11.0  # what the same rows as under arrival would sum to

    def test_columns(self):
        reward = torch.tensor([[0.0, 0.0], [1.0, 2.0], [5.0, 7.0], [0.0, 9.0]])
        done = torch.tensor([[0, 0], [0, 0], [1, 0], [1, 1]])
        assert frame_cumulated_reward(reward=reward, done=done, reduce=False).tolist() == [6.0, 18.0]
        assert frame_cumulated_reward(reward=reward, done=done) == 12.0
        with pytest.raises(ValueError, match=r"columns \[1\] of 2 have no end"):
            frame_cumulated_reward(reward=reward[:3], done=done[:3])
        with pytest.raises(ValueError, match="reward_at"):
            frame_cumulated_reward(reward=reward, done=done, reward_at="before")


class TestTemporalDifference:
    value = column(10.0, 20.0, 30.0, 40.0, 50.0, 60.0)

    @BOTH
    def test_by_hand(self, reward, reward_at):
        # gamma 0.5; pairs 0-1: 1 + 10 - 10, 1-2: 5 - 20 (terminated), 2-3: final, 3-4: 1 + 25 - 40, 4-5: 5 - 50
        options = {"value": self.value, "reward": reward, "terminated": DONE, "gamma": 0.5, "reward_at": reward_at}
        assert_close(frame_td(**options, done=DONE), column(1.0, -15.0, 0.0, -14.0, -45.0, 0.0))
        assert frame_td(**options).shape == (6, 1)
        assert_close(frame_td(**options | {"terminated": DONE[1:]}, done=DONE), frame_td(**options, done=DONE))

    def test_gradient_and_shapes(self):
        value = self.value.clone().requires_grad_()
        frame_td(value=value, reward=ARRIVAL, terminated=DONE, done=DONE, gamma=0.5).sum().backward()
        assert_close(value.grad, column(-1.0, -1.0, 0.0, -1.0, -1.0, 0.0))
        with pytest.raises(ValueError, match="terminated is"):
            frame_td(value=value, reward=ARRIVAL, terminated=DONE[2:], gamma=0.5)
        with pytest.raises(ValueError, match="value is"):
            frame_td(value=value[:-1], reward=ARRIVAL, terminated=DONE, gamma=0.5)

    @BOTH
    def test_double_q(self, reward, reward_at):
        generator = torch.Generator().manual_seed(0)
        q, q_target = torch.randn(2, 6, 1, 3, generator=generator, dtype=torch.float64)
        q.requires_grad_()
        action = torch.randint(3, (6, 1), generator=generator)
        options = {"reward": reward.double(), "terminated": DONE, "gamma": 0.9, "reward_at": reward_at}
        found = frame_double_q_td(q=q, q_target=q_target, action=action, done=DONE, **options)
        rewards = [1.0, 5.0, None, 1.0, 5.0]
        for t, r in enumerate(rewards):
            if r is None:
                expected = 0.0
            else:
                best = int(q[t + 1, 0].argmax())
                bootstrap = 0.0 if DONE[t + 1] else 0.9 * q_target[t + 1, 0, best].item()
                expected = r + bootstrap - q[t, 0, action[t, 0]].item()
            assert found[t, 0].item() == pytest.approx(expected, abs=1e-12)
        assert found[5, 0] == 0.0
        found.sum().backward()
        assert_close(q.grad.sum(-1), column(-1.0, -1.0, 0.0, -1.0, -1.0, 0.0).double())
        with pytest.raises(ValueError, match="q must be"):
            frame_double_q_td(q=q[:3], q_target=q_target, action=action, **options)


def streams(rows: int, columns: int, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Random step rows, and the same steps as framed rows (padded to one length with frozen repeats)."""
    generator = torch.Generator().manual_seed(seed)
    steps = {
        "reward": torch.randn(rows, columns, generator=generator, dtype=torch.float64),
        "value": torch.randn(rows, columns, generator=generator, dtype=torch.float64),
        "next_value": torch.randn(rows, columns, generator=generator, dtype=torch.float64),
        "terminated": torch.rand(rows, columns, generator=generator) < 0.2,
    }
    steps["done"] = steps["terminated"] | (torch.rand(rows, columns, generator=generator) < 0.2)
    steps["done"][-1] = True  # so that padding may repeat a final row
    framed = []
    for b in range(columns):
        rows_of_column = []
        for t in range(rows):
            if t == 0 or steps["done"][t - 1, b]:
                rows_of_column.append((0.0, steps["value"][t, b].item(), False, False))
            ended, cut = bool(steps["terminated"][t, b]), bool(steps["done"][t, b])
            if not cut:
                steps["next_value"][t, b] = steps["value"][t + 1, b]  # the row after it, as in a frame
            value = steps["next_value"][t, b].item()
            rows_of_column.append((steps["reward"][t, b].item(), value, ended, cut))
        framed.append(rows_of_column)
    longest = max(len(each) for each in framed)
    framed = [each + [(0.0, *each[-1][1:])] * (longest - len(each)) for each in framed]
    names = ("reward", "value", "terminated", "done")
    frames = {
        name: torch.tensor([[framed[b][t][i] for b in range(columns)] for t in range(longest)])
        for i, name in enumerate(names)
    }
    return steps, {name: t.double() if t.is_floating_point() else t for name, t in frames.items()}


class TestAdvantage:
    def test_known_numbers(self):
        # gamma 0.9, lam 0.8; row 2 is reached by a time limit and row 3 opens anew:
        # delta = 1 + .9*20 - 10 = 9; 1 + .9*99 - 20 = 70.1; 1 + .9*40 - 30 = 7; A_0 = 9 + .72*70.1
        value = column(10.0, 20.0, 99.0, 30.0, 40.0)
        reward, done = column(0.0, 1.0, 1.0, 0.0, 1.0), column(False, False, True, False, False)
        never = torch.zeros_like(done)
        advantage, valid = frame_gae(value=value, reward=reward, terminated=never, done=done, gamma=0.9, lam=0.8)
        assert_close(advantage, column(59.472, 70.1, 0.0, 7.0))
        assert_close(valid, column(True, True, False, True))

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("reward_at", ["arrival", "departure"])
    def test_bug_56_equals_the_step_rows_by_keyword(self, seed, reward_at):
        steps, frames = streams(9, 4, seed)
        expected = gae(**steps, gamma=0.9, lam=0.8)
        if reward_at == "departure":
            frames["reward"] = torch.cat((frames["reward"][1:], torch.zeros_like(frames["reward"][:1])))
        advantage, valid = frame_gae(**frames, gamma=0.9, lam=0.8, reward_at=reward_at)
        for b in range(4):
            assert_close(advantage[valid[:, b], b], expected[:, b])
        assert (advantage[~valid] == 0).all()
        with pytest.raises(TypeError):
            frame_gae(frames["value"], frames["reward"], frames["terminated"], frames["done"], 0.9, 0.8)
        # the ancestor's trace asked row t, not row t+1
        shifted = gae(**steps | {"done": steps["done"].roll(1, 0)}, gamma=0.9, lam=0.8)
        assert (shifted - expected).abs().max() > 0.01

    def test_valid_ones_are_in_the_order_of_pairs(self):
        _, frames = streams(7, 3, 0)
        advantage, valid = frame_gae(**frames, gamma=0.9, lam=0.8)
        ws = Workspace.packed({"env/done": frames["done"], "value": frames["value"]})
        pairs = ws.transitions(pairs=True, with_index=True)
        t, b = pairs["transition/t"][0], pairs["transition/b"][0]
        assert_close(advantage[t, b], advantage[valid])

    def test_bug_82_critic_loss_entropy_and_counters_take_valid_rows(self):
        # two two-step episodes, each with a final row on which nothing is done
        value = column(0.5, 0.25, 9.0, 0.5, 0.25, 9.0).requires_grad_()
        advantage, valid = frame_gae(value=value, reward=ARRIVAL, terminated=DONE, done=DONE, gamma=0.5, lam=0.5)
        assert int(valid.sum()) == 4  # environment steps; T * B is 6
        # delta = 1 + .125 - .5 = .625 and 5 - .25 = 4.75; A = .625 + .25 * 4.75 = 1.8125 and 4.75
        assert_close(advantage[valid].detach(), torch.tensor([1.8125, 4.75, 1.8125, 4.75]))
        advantage[valid].square().mean().backward()
        # d/dV mean (G - V)^2 with the return G = A + V held fixed: -2 A / 4
        assert_close(value.grad, column(-0.90625, -2.375, 0.0, -0.90625, -2.375, 0.0))
        # the critic trained on (A - V)^2 would pull V to the advantage
        wrong = 2 * (0.5 - 1.8125) / 4
        assert abs(wrong - value.grad[0, 0].item()) > 0.1
        entropy = column(1.0, 3.0, 100.0)
        losses = frame_reinforce_losses(
            reward=ARRIVAL[:3], done=DONE[:3], log_prob=torch.zeros(3, 1), entropy=entropy, gamma=1.0
        )
        assert losses.entropy == -2.0  # the final row's entropy is not an action's


def test_returns_equal_those_of_step_rows():
    steps, frames = streams(11, 5, 7)
    expected = discounted_returns(steps["reward"], steps["done"], 0.9)
    found = frame_discounted_returns(reward=frames["reward"], done=frames["done"], gamma=0.9)
    for b in range(5):
        assert_close(found[~frames["done"][:, b], b], expected[:, b])
