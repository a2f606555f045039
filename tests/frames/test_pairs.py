"""Frame streams: named fields of pairs, n-step pairs, rows carried from one epoch to the next."""

import pytest
import torch
from torch.testing import assert_close

from gaitway.core.workspace import Workspace
from gaitway.frames.pairs import copy_last, n_step_pairs, pair_fields


def framed(reward, terminated, truncated):
    """A framed stream from per-row lists, one column; the observation is the row number."""
    steps = len(reward)
    return Workspace.packed(
        {
            "env/obs/policy": torch.arange(float(steps))[:, None],
            "action": torch.arange(100.0, 100 + steps)[:, None],
            "env/reward": torch.tensor(reward)[:, None],
            "env/terminated": torch.tensor(terminated, dtype=torch.bool)[:, None],
            "env/truncated": torch.tensor(truncated, dtype=torch.bool)[:, None],
        }
    )


def test_bug_14_both_reward_conventions_give_the_same_fields():
    arrival = framed([0.0, 1.0, 5.0, 0.0], [0, 0, 1, 0], [0, 0, 0, 0])
    departure = framed([1.0, 5.0, 0.0, 0.0], [0, 0, 1, 0], [0, 0, 0, 0])
    one = pair_fields(arrival.transitions(pairs=True))
    two = pair_fields(departure.transitions(pairs=True), reward_at_departure=True)
    assert one["obs/policy"].tolist() == [0, 1]
    assert one["next_obs/policy"].tolist() == [1, 2]
    assert one["action"].tolist() == [100, 101]
    assert one["reward"].tolist() == [1, 5]
    assert one["terminated"].tolist() == one["done"].tolist() == [False, True]
    assert one["truncated"].tolist() == [False, False]
    for name in one:
        assert_close(one[name], two[name])
    with pytest.raises(ValueError, match="2 rows"):
        pair_fields(arrival)


def test_actions_with_several_parts_keep_their_names():
    ws = framed([0.0, 1.0, 5.0], [0, 0, 1], [0, 0, 0])
    ws["action/arm"] = ws["action"] + 1
    ws["action/log_prob"] = -ws["action"]
    ws.remove("action")
    fields = pair_fields(ws.transitions(pairs=True))
    assert fields["action/arm"].tolist() == [101, 102]
    assert fields["action/log_prob"].tolist() == [-100, -101]
    ws.remove("action/arm")
    ws.remove("action/log_prob")
    with pytest.raises(KeyError, match="'action'"):
        pair_fields(ws.transitions(pairs=True))


class TestNStep:
    stream = (0.0, 1.0, 2.0, 4.0, 0.0, 8.0, 16.0), (0, 0, 0, 1, 0, 0, 0), (0, 0, 0, 0, 0, 0, 0)

    def test_by_hand(self):
        # rows 0..3 are one episode, row 4 opens the next; gamma 0.5, n 2
        pairs = n_step_pairs(framed(*self.stream), n=2, gamma=0.5)
        # t=0: 1 + .5*2 = 2, k=2; t=1: 2 + .5*4 = 4, k=2; t=2: 4, k=1 (ended); t=4: 8 + .5*16 = 16, k=2; t=5: cut off
        assert pairs["env/obs/policy"].tolist() == [[0, 1, 2, 4], [2, 3, 3, 6]]
        assert pairs["n_step/return"].tolist() == [[2, 4, 4, 16]] * 2
        assert pairs["n_step/steps"].tolist() == [[2, 2, 1, 2]] * 2
        assert pairs["n_step/discount"].tolist() == [[0.25, 0.25, 0.5, 0.25]] * 2
        assert pairs["n_step/steps"].dtype is torch.int64

    def test_fields_have_what_a_target_needs(self):
        fields = pair_fields(n_step_pairs(framed(*self.stream), n=2, gamma=0.5))
        value = 10 + fields["next_obs/policy"]
        target = fields["n_step/return"] + fields["n_step/discount"] * ~fields["terminated"] * value
        # t=0: 2 + .25*12; t=1 and t=2 reach the terminal row 3; t=4: 16 + .25*16
        assert target.tolist() == [5, 4, 4, 20]
        assert fields["n_step/steps"].tolist() == [2, 2, 1, 2]

    def test_compact_streams_are_refused(self):
        ws = framed(*self.stream)
        ws["env/final_obs/policy"] = ws["env/obs/policy"]
        with pytest.raises(ValueError, match="n_step_transitions"):
            n_step_pairs(ws, 2, 0.5)

    def test_partial_keeps_what_the_window_cut(self):
        pairs = n_step_pairs(framed(*self.stream), n=2, gamma=0.5, partial=True)
        assert pairs["env/obs/policy"].tolist() == [[0, 1, 2, 4, 5], [2, 3, 3, 6, 6]]
        assert pairs["n_step/return"][0, -1] == 16
        assert pairs["n_step/steps"][0, -1] == 1

    def test_departure_rewards_give_the_same(self):
        departure = framed([1.0, 2.0, 4.0, 0.0, 8.0, 16.0, 0.0], *self.stream[1:])
        one, two = n_step_pairs(framed(*self.stream), 3, 0.9), n_step_pairs(departure, 3, 0.9, reward_at_departure=True)
        assert_close(one["n_step/return"], two["n_step/return"])
        assert_close(one["env/obs/policy"], two["env/obs/policy"])

    def test_one_step_equals_pairs(self):
        ws = framed((0.0, 1.0, 2.0, 0.0, 3.0), (0, 0, 0, 0, 0), (0, 0, 1, 0, 0))
        one, pairs = n_step_pairs(ws, 1, 0.9), ws.transitions(pairs=True)
        for name in pairs:
            assert_close(one[name], pairs[name])
        assert_close(one["n_step/return"], pairs["env/reward"][1:].expand(2, -1))

    def test_a_truncated_end_keeps_its_bootstrap(self):
        pairs = n_step_pairs(framed((0.0, 1.0, 2.0), (0, 0, 0), (0, 0, 1)), 5, 0.5)
        bootstrap = pairs["n_step/discount"][0] * ~pairs.at("env/terminated", 1)
        assert bootstrap.tolist() == [0.25, 0.5]

    def test_columns_do_not_mix(self):
        a, b = framed(*self.stream), framed((0.0, 3.0, 0.0, 5.0, 6.0, 0.0, 7.0), (0, 1, 0, 0, 1, 0, 0), self.stream[2])
        both = n_step_pairs(Workspace.cat([a, b]), 2, 0.5, partial=True)
        alone = [n_step_pairs(ws, 2, 0.5, partial=True)["n_step/return"][0].tolist() for ws in (a, b)]
        assert sorted(both["n_step/return"][0].tolist()) == sorted(alone[0] + alone[1])

    def test_gradients_and_arguments(self):
        ws = framed(*self.stream)
        reward = ws["env/reward"].requires_grad_()
        ws["env/reward"] = reward * 1
        n_step_pairs(ws, 2, 0.5)["n_step/return"][0].sum().backward()
        # row 2 is read by t=0 (0.5) and t=1 (1); row 3 by t=1 (0.5) and t=2 (1)
        assert reward.grad[:, 0].tolist() == [0, 1, 1.5, 1.5, 0, 1, 0.5]
        with pytest.raises(ValueError, match="at least one"):
            n_step_pairs(ws, 0, 0.5)


class TestCopyLast:
    def test_bug_04_one_copy_of_exactly_the_selected_variables(self):
        for names, other in ((None, [1, 2, 2]), (["x"], [0, 1, 2])):
            ws = Workspace.packed({"x": torch.arange(3.0)[:, None], "y": torch.arange(3.0)[:, None]})
            copy_last(ws, 2, names)
            assert ws["x"][:, 0].tolist() == [1, 2, 2]
            assert ws["y"][:, 0].tolist() == other

    def test_limits(self):
        ws = Workspace.packed({"x": torch.arange(3.0)[:, None], "y": torch.arange(2.0)[:, None]})
        with pytest.raises(ValueError, match="'x' has 3 rows but 'y' has 2"):
            copy_last(ws, 1)
        for n in (0, 4):
            with pytest.raises(ValueError, match=r"1\.\.3"):
                copy_last(ws, n, ["x"])
        with pytest.raises(KeyError):
            copy_last(ws, 1, ["z"])
