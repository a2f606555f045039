"""Transitions of several steps: by hand, against a loop in float64, and at every kind of end."""

import pytest
import torch
from torch.testing import assert_close

from gaitway.core.n_step import n_step_transitions
from gaitway.core.workspace import Workspace


def stream(reward, terminated, truncated, **more):
    """One column; the observation of row t is t, the final one -(t + 1)."""
    steps = len(reward)
    return Workspace.packed(
        {
            "env/obs/policy": torch.arange(steps + 1.0)[:, None, None],
            "action": torch.arange(100, 100 + steps)[:, None],
            "env/reward": torch.tensor(reward)[:, None],
            "env/terminated": torch.tensor(terminated, dtype=torch.bool)[:, None],
            "env/truncated": torch.tensor(truncated, dtype=torch.bool)[:, None],
            "env/final_obs/policy": -torch.arange(1.0, steps + 1)[:, None, None],
            **more,
        }
    )


NO = [0, 0, 0, 0, 0]


def test_by_hand():
    # rows 0..2 are one episode, rows 3 and 4 start the next; gamma 0.5, n 2
    fields = n_step_transitions(stream([1.0, 2.0, 4.0, 8.0, 16.0], [0, 0, 1, 0, 0], NO), n=2, gamma=0.5)
    # t=0: 1 + .5*2 = 2; t=1: 2 + .5*4 = 4, ends; t=2: 4 alone, ends; t=3: 8 + .5*16 = 16; t=4: the rows end: dropped
    assert fields["n_step/return"].tolist() == [2, 4, 4, 16]
    assert fields["n_step/steps"].tolist() == [2, 2, 1, 2]
    assert fields["n_step/discount"].tolist() == [0.25, 0.25, 0.5, 0.25]
    assert fields["n_step/steps"].dtype is torch.int64
    assert fields["obs/policy"].squeeze(1).tolist() == [0, 1, 2, 3]
    assert fields["next_obs/policy"].squeeze(1).tolist() == [2, -3, -3, 5]  # row 2 ended: its final observation
    assert fields["terminated"].tolist() == [False, True, True, False]
    assert fields["action"].tolist() == [100, 101, 102, 103]  # all else is of the first step
    assert fields["reward"].tolist() == [1, 2, 4, 8]


def test_partial_keeps_what_the_window_cut():
    fields = n_step_transitions(stream([1.0, 2.0, 4.0], [0] * 3, [0] * 3), n=3, gamma=0.5, partial=True)
    # t=0: 1 + 1 + 1 = 3; t=1: 2 + 2 = 4; t=2: 4
    assert fields["n_step/return"].tolist() == [3, 4, 4]
    assert fields["n_step/steps"].tolist() == [3, 2, 1]
    assert fields["next_obs/policy"].squeeze(1).tolist() == [3, 3, 3]
    assert len(n_step_transitions(stream([1.0, 2.0, 4.0], [0] * 3, [0] * 3), n=3, gamma=0.5)["reward"]) == 1


def test_a_time_limit_keeps_its_bootstrap_and_a_fall_does_not():
    for terminated, truncated, expected in (([0, 1], [0, 0], [0, 0]), ([0, 0], [0, 1], [0.25, 0.5])):
        fields = n_step_transitions(stream([1.0, 1.0], terminated, truncated), n=5, gamma=0.5)
        assert (fields["n_step/discount"] * ~fields["terminated"]).tolist() == expected
        assert fields["next_obs/policy"].squeeze(1).tolist() == [-2, -2]  # the observation really reached
        assert fields["truncated"].tolist() == [bool(truncated[1])] * 2


def test_one_step_is_the_ordinary_transition():
    ws = stream([1.0, 2.0, 3.0, 4.0, 5.0], [0, 1, 0, 0, 0], [0, 0, 0, 1, 0], log_prob=torch.randn(5, 1))
    fields, expected = n_step_transitions(ws, 1, 0.9), ws.transitions()
    assert set(fields) == set(expected) | {"n_step/return", "n_step/steps", "n_step/discount"}
    for name, values in expected.items():
        assert_close(fields[name], values)
    assert_close(fields["n_step/return"], expected["reward"])


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("with_valid", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 30])
def test_against_a_loop_in_float64(n, partial, with_valid):
    generator = torch.Generator().manual_seed(n)
    steps, batch, gamma = 20, 3, 0.83
    reward = torch.randn(steps, batch, generator=generator)
    ends = torch.randint(8, (steps, batch), generator=generator)
    terminated, truncated, valid = ends == 0, ends == 1, torch.ones(steps, batch, dtype=torch.bool)
    if with_valid:  # the row after an end only resets
        for t in range(steps - 1):
            for b in range(batch):
                if (terminated | truncated)[t, b]:
                    terminated[t + 1, b] = truncated[t + 1, b] = valid[t + 1, b] = False
    obs = torch.randn(steps + 1, batch, 2, generator=generator)
    tensors = {"env/obs/policy": obs, "env/reward": reward, "env/terminated": terminated, "env/truncated": truncated}
    final = torch.randn(steps, batch, 2, generator=generator)
    tensors |= {"env/valid": valid} if with_valid else {"env/final_obs/policy": final}
    fields = n_step_transitions(Workspace.packed(tensors), n, gamma, partial=partial)
    done, row = terminated | truncated, 0
    for t in range(steps):
        for b in range(batch):
            k, total = 0, 0.0
            while valid[t, b] and k < n and t + k < steps:
                total += gamma**k * float(reward[t + k, b])
                k += 1
                if done[t + k - 1, b]:
                    break
            last = t + k - 1
            if k == 0 or not (partial or k == n or done[last, b]):
                continue
            assert float(fields["n_step/return"][row]) == pytest.approx(total, abs=1e-5)
            assert int(fields["n_step/steps"][row]) == k
            assert float(fields["n_step/discount"][row]) == pytest.approx(gamma**k, rel=1e-6)
            reached = final[last, b] if done[last, b] and not with_valid else obs[last + 1, b]
            assert torch.equal(fields["next_obs/policy"][row], reached)
            assert torch.equal(fields["obs/policy"][row], obs[t, b])
            assert bool(fields["terminated"][row]) == bool(terminated[last, b])
            assert bool(fields["truncated"][row]) == bool(truncated[last, b])
            row += 1
    assert row == len(fields["n_step/return"])


def test_gradients_and_arguments():
    reward = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
    ws = stream([0.0] * 3, [0] * 3, [0] * 3)
    ws["env/reward"] = reward[:, None] * 1
    n_step_transitions(ws, 2, 0.5)["n_step/return"].sum().backward()
    assert reward.grad.tolist() == [1, 1.5, 0.5]  # t=0 reads rows 0, 1; t=1 reads rows 1, 2
    with pytest.raises(ValueError, match="at least one"):
        n_step_transitions(ws, 0, 0.5)


def test_a_reward_that_is_not_reached_cannot_spoil_the_sum():
    fields = n_step_transitions(stream([1.0, float("nan")], [1, 0], [0, 0]), 2, 0.5)
    assert fields["n_step/return"].tolist() == [1]
