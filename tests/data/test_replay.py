"""Replay: a ring whose contents can be read off the slots."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from gaitway.core.workspace import Workspace
from gaitway.data.replay import Replay
from gaitway.data.ring import PackedRing


def columns(*values):
    """[2, N] of x = value and [2, N, 2] of y = 100 + value: one sample per value."""
    x = torch.tensor(values, dtype=torch.float32).expand(2, len(values))
    return Workspace.packed({"x": x, "y": (100 + x)[..., None].expand(2, len(values), 2), "flag": x > 2})


def slots(replay):
    """Value of x in every valid slot."""
    state = replay.state_dict()["variables"]
    assert_close(state["y"][:, 0, 0], 100 + state["x"][:, 0])  # variables of one slot belong together
    return state["x"][:, 0].tolist()


class TestRing:
    def test_bug_64_size_counts_samples_once(self):
        replay = Replay(10, seed=0)
        replay.add(columns(1, 2, 3, 4, 5))
        assert (replay.size, len(replay), replay.position, replay.is_full) == (5, 5, 5, False)
        assert set(replay.sample(200)["x"].flatten().tolist()) == {1, 2, 3, 4, 5}  # no zeros from empty slots

    def test_bug_65_an_addition_larger_than_the_room(self):
        replay = Replay(4, seed=0)
        replay.add(columns(1, 2, 3))
        replay.add(columns(4, 5, 6, 7, 8, 9))
        # sample j goes to slot (3 + j) mod 4: 4->3 5->0 6->1 7->2 8->3 9->0
        assert slots(replay) == [9, 6, 7, 8]
        assert (replay.position, replay.size, replay.is_full) == (1, 4, True)

    @given(sizes=st.lists(st.integers(0, 11), max_size=6), max_size=st.integers(1, 5))
    @settings(max_examples=40, deadline=None)
    def test_bug_65_any_sequence_equals_writing_one_by_one(self, sizes, max_size):
        replay, expected, position, value = Replay(max_size, seed=0), {}, 0, 0
        for size in sizes:
            values = list(range(value, value + size))
            value += size
            replay.add(columns(*values)) if values else None
            for each in values:
                expected[position] = each
                position = (position + 1) % max_size
        assert replay.size == len(expected)
        assert replay.position == position
        if expected:
            assert slots(replay) == [expected[slot] for slot in sorted(expected)]

    def test_t_replay(self, monkeypatch):
        """T-REPLAY: additions of 3, 3 and 12 into 5 places, beside a list; the twin loses what goes over the edge."""

        def contents():
            replay, values = Replay(5, seed=0), []
            for count in (3, 3, 12):
                new = list(range(len(values), len(values) + count))
                values += new
                replay.add(columns(*new))
            held = {number % 5: number for number in values}
            return slots(replay), [held[slot] for slot in range(5)], (replay.position, replay.size)

        found, expected, cursor = contents()
        assert found == expected == [15, 16, 17, 13, 14]
        assert cursor == (3, 5)
        put = PackedRing.put
        monkeypatch.setattr(
            PackedRing, "put", lambda self, target, at, source: put(self, target, at, source[:, : self.rows - at])
        )
        found, expected, _ = contents()  # what does not fit before the end of the ring is lost
        assert found != expected

    def test_nothing_added_changes_nothing(self):
        replay = Replay(4, seed=0)
        replay.add(columns())
        assert replay.size == 0
        replay.add(Workspace.packed({"other": torch.zeros(3, 1)}))  # an empty first addition fixed nothing
        assert replay.names == ["other"]

    def test_bug_66_other_variables_are_refused_and_nothing_changes(self):
        replay = Replay(4, seed=0)
        replay.add(columns(1, 2))
        missing, extra, longer, typed = columns(3), columns(3), columns(3), columns(3)
        missing.remove("y")
        extra["z"] = extra["x"]
        longer["x"] = torch.zeros(3, 1)
        typed["x"] = typed["x"].double()
        for ws, word in ((missing, "'y'"), (extra, "'z'"), (longer, r"\[2\].*\[3\]"), (typed, "float64")):
            with pytest.raises(ValueError, match=word):
                replay.add(ws)
        assert slots(replay) == [1, 2]
        assert replay.position == 2

    def test_values_are_detached_copies(self):
        x = torch.ones(2, 3, requires_grad=True)
        replay = Replay(4, seed=0)
        replay.add(Workspace.packed({"x": x}))
        with torch.no_grad():
            x.zero_()
        drawn = replay.sample(5)["x"]
        assert not drawn.requires_grad
        assert_close(drawn, torch.ones(2, 5))
        drawn.zero_()  # and the result does not alias the ring
        assert_close(replay.sample(5)["x"], torch.ones(2, 5))

    def test_clear(self):
        replay = Replay(2, seed=0)
        replay.add(columns(1, 2, 3))
        replay.clear()
        assert (replay.size, replay.position, replay.names) == (0, 0, [])
        replay.add(Workspace.packed({"other": torch.zeros(5, 1)}))
        assert replay.sample(2)["other"].shape == (5, 2)

    def test_arguments(self):
        with pytest.raises(ValueError, match="at least one"):
            Replay(0)
        with pytest.raises(ValueError, match="not both"):
            Replay(3, seed=0, generator=torch.Generator())


class TestSampling:
    def test_one_index_serves_all_variables_and_every_dtype_comes_back(self):
        replay = Replay(16, seed=0)
        count = torch.arange(10).expand(3, 10)
        replay.add(
            Workspace.packed(
                {
                    "bool": count % 2 == 0,
                    "float": count.float(),
                    "byte": count.to(torch.uint8)[..., None].expand(3, 10, 3),
                    "double": count.double()[..., None, None].expand(3, 10, 2, 2),
                    "half": count.half(),
                    "long": count,
                }
            )
        )
        ws = replay.sample(50)
        assert ws.keys() == ["bool", "float", "byte", "double", "half", "long"]
        assert (ws.T, ws.B) == (3, 50)
        value = ws["long"]
        assert_close(ws["float"], value.float())
        assert_close(ws["half"], value.half())
        assert_close(ws["byte"], value.to(torch.uint8)[..., None].expand(3, 50, 3))
        assert_close(ws["double"], value.double()[..., None, None].expand(3, 50, 2, 2))
        assert torch.equal(ws["bool"], value % 2 == 0)

    def test_an_empty_buffer_says_what_to_do(self):
        for act in (lambda r: r.sample(3), lambda r: r.sample_transitions(3)):
            with pytest.raises(ValueError, match="add samples"):
                act(Replay(4))

    def test_draws_follow_the_seed_not_the_global_state(self):
        def draw(seed):
            replay = Replay(50, seed=seed)
            replay.add(columns(*range(50)))
            return replay.sample(20)["x"]

        before = torch.get_rng_state()
        assert torch.equal(draw(1), draw(1))
        assert not torch.equal(draw(1), draw(2))
        assert not torch.equal(draw(None), draw(None))
        assert torch.equal(torch.get_rng_state(), before)

    def test_draws_are_uniform(self):
        replay = Replay(4, seed=0)
        replay.add(columns(0, 1, 2, 3))
        counts = torch.bincount(replay.sample(4000)["x"][0].long(), minlength=4)
        # 1000 expected each, standard deviation sqrt(4000 * 1/4 * 3/4) = 27
        assert (counts - 1000).abs().max() < 5 * 27


class TestWindows:
    def test_time_order_is_kept(self):
        replay = Replay(8, seed=0)
        replay.add(Workspace.packed({"x": torch.tensor([[0, 10], [1, 11], [2, 12]])}))
        drawn = replay.sample(9)["x"]
        assert_close(drawn[1:], drawn[:-1] + 1)

    def test_a_long_workspace_is_cut(self):
        time = torch.arange(6)[:, None] + torch.tensor([0, 100])
        for stride, starts in ((1, [0, 1, 2]), (2, [0, 2])):
            replay = Replay(20, seed=0)
            replay.add(Workspace.packed({"env/obs/policy": time, "action": time[:5]}), window=3, stride=stride)
            state = replay.state_dict()["variables"]
            # windows in order of their start, columns inside; observations keep their extra row
            assert state["action"].tolist() == [[s + b, s + b + 1, s + b + 2] for s in starts for b in (0, 100)]
            assert state["env/obs/policy"][:, 3].tolist() == [s + b + 3 for s in starts for b in (0, 100)]
            drawn = replay.sample(4)
            assert drawn.T == 3
            assert drawn.rows("env/obs/policy") == 4

    def test_extra_rows_survive(self):
        tensors = {"memory": torch.zeros(4, 1), "action": torch.zeros(3, 1)}
        replay = Replay(3, seed=0)
        replay.add(Workspace.packed(tensors, extra_row=["memory"]))
        assert replay.sample(2).T == 3

    def test_pairs_of_a_frame_stream(self):
        # rows 0..5 of two-step episodes; the pairs that begin in a final row are left out
        done = torch.tensor([[False], [False], [True], [False], [False], [True]])
        frames = Workspace.packed({"env/obs/policy": torch.arange(6.0)[:, None], "env/done": done})
        replay = Replay(10, seed=0)
        replay.add(frames.transitions(pairs=True))
        assert replay.state_dict()["variables"]["env/obs/policy"].tolist() == [[0, 1], [1, 2], [3, 4], [4, 5]]
        drawn = replay.sample(20)
        assert (drawn.T, drawn.B) == (2, 20)
        assert_close(drawn["env/obs/policy"][1], drawn["env/obs/policy"][0] + 1)

    def test_windows_that_do_not_fit(self):
        for window, stride in ((4, 1), (0, 1), (2, 0)):
            with pytest.raises(ValueError, match="cannot cut"):
                Replay(3).add(Workspace.packed({"x": torch.zeros(3, 1)}), window=window, stride=stride)


class TestTransitions:
    def fields(self, *values):
        x = torch.tensor(values, dtype=torch.float32)
        return {"obs/policy": x[:, None].expand(-1, 3), "reward": -x, "terminated": x > 2}

    def test_fields_come_back_together(self):
        replay = Replay(4, seed=0)
        replay.add_transitions(self.fields(1, 2, 3, 4, 5))
        drawn = replay.sample_transitions(64)
        assert list(drawn) == ["obs/policy", "reward", "terminated"]
        assert set(drawn["reward"].tolist()) == {-2, -3, -4, -5}
        assert_close(drawn["obs/policy"], -drawn["reward"][:, None].expand(64, 3))
        assert torch.equal(drawn["terminated"], drawn["reward"] < -2)

    def test_a_rollout_goes_straight_in(self):
        flags = torch.zeros(3, 2, dtype=torch.bool)
        ws = Workspace.packed(
            {
                "env/obs/policy": torch.arange(8.0).reshape(4, 2),
                "action": torch.zeros(3, 2, 1),
                "env/terminated": flags,
                "env/truncated": flags,
            }
        )
        replay = Replay(10, seed=0)
        replay.add_transitions(ws.transitions())
        drawn = replay.sample_transitions(20)
        assert_close(drawn["next_obs/policy"], drawn["obs/policy"] + 2)

    def test_windows_and_transitions_do_not_mix(self):
        replay = Replay(4, seed=0)
        replay.add_transitions(self.fields(1, 2))
        for act in (lambda: replay.sample(1), lambda: replay.add(columns(1))):
            with pytest.raises(ValueError, match="use add_transitions and sample_transitions"):
                act()
        replay.clear()
        replay.add(columns(1))
        with pytest.raises(ValueError, match="use add and sample"):
            replay.sample_transitions(1)

    def test_unequal_numbers_of_samples(self):
        with pytest.raises(ValueError, match="different numbers"):
            Replay(4).add_transitions({"a": torch.zeros(2), "b": torch.zeros(3)})


class TestState:
    @pytest.mark.parametrize("count", [0, 3, 7])
    def test_a_restored_buffer_goes_on_alike(self, count):
        first = Replay(5, seed=3)
        if count:
            first.add(columns(*range(count)))
            first.sample(4)
        second = Replay(5, seed=99)
        second.load_state_dict(first.state_dict())
        for replay in (first, second):
            replay.add(columns(50, 51))
        assert (first.position, first.size) == (second.position, second.size)
        assert slots(first) == slots(second)
        for name in ("x", "y", "flag"):
            assert torch.equal(first.sample(30)[name], second.sample(30)[name])

    def test_the_state_is_plain(self):
        def check(value):
            assert isinstance(value, torch.Tensor | int | str | list | dict), type(value)
            for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
                check(inner)

        replay = Replay(5)
        check(replay.state_dict())
        replay.add(columns(1, 2))
        state = replay.state_dict()
        check(state)
        state["variables"]["x"].zero_()
        assert slots(replay) == [1, 2]

    def test_transitions_are_restored_as_such(self):
        first, second = Replay(5, seed=0), Replay(5)
        first.add_transitions({"reward": torch.arange(3.0)})
        second.load_state_dict(first.state_dict())
        assert torch.equal(first.sample_transitions(9)["reward"], second.sample_transitions(9)["reward"])

    def test_another_size_is_refused(self):
        with pytest.raises(ValueError, match="make them equal"):
            Replay(5).load_state_dict(Replay(6).state_dict())
        with pytest.raises(ValueError, match="format"):
            Replay(5).load_state_dict({**Replay(5).state_dict(), "format": 0})

    def test_bug_67_moving_works_empty_and_filled(self):
        replay = Replay(5, seed=0)
        assert replay.to("cpu") is replay
        replay.add(columns(1, 2))
        kept = replay.generator.get_state()
        replay.to("cpu")
        assert torch.equal(replay.generator.get_state(), kept)
        replay.add(columns(3))
        assert slots(replay) == [1, 2, 3]

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    def test_bug_67_draws_and_additions_move_to_the_device(self):
        replay = Replay(5, seed=0)
        replay.add(columns(1, 2))
        replay.to("cuda")
        replay.add(columns(3))
        assert replay.sample(4)["x"].device.type == "cuda"
        assert replay.generator.device.type == "cuda"


def test_rows_that_only_reset_are_not_stored():
    ws = Workspace.packed(
        {"x": torch.arange(6.0).view(3, 2), "env/valid": torch.tensor([[1, 1], [0, 1], [1, 1]]).bool()}
    )
    whole, single = Replay(10, seed=0), Replay(10, seed=0)
    whole.add(ws)
    assert whole.size == 1  # column 1 alone
    single.add(ws, window=1)
    assert single.size == 5
    assert 2.0 not in single.sample(200)["x"]
