"""Step rows to named fields, and frame rows to pairs."""

import pytest
import torch
from torch.testing import assert_close

from gaitway.core.workspace import Workspace


def flags(*rows):
    return torch.tensor(rows, dtype=torch.bool)


def step_rows(terminated, truncated, final=True, **more):
    """T steps of B columns; the observation at row t of column b is 10 * t + b, the final one is negative."""
    steps, batch = terminated.shape
    obs = torch.arange(steps + 1.0)[:, None] * 10 + torch.arange(float(batch))
    tensors = {
        "env/obs/policy": obs[..., None].expand(steps + 1, batch, 2),
        "action": torch.arange(float(steps * batch)).reshape(steps, batch),
        "env/reward": torch.ones(steps, batch),
        "env/terminated": terminated,
        "env/truncated": truncated,
        **more,
    }
    if final:
        tensors["env/final_obs/policy"] = -tensors["env/obs/policy"][1:]
    return Workspace.packed(tensors)


NONE = flags([False, False], [False, False])


class TestFollowing:
    def test_ended_rows_come_from_the_final_observation(self):
        ws = step_rows(flags([True, False], [False, False]), flags([False, False], [False, True]))
        # rows 1 and 2 are 10, 11 and 20, 21; column 0 ended at step 0, column 1 at step 1
        expected = torch.tensor([[-10.0, 11.0], [20.0, -21.0]])[..., None].expand(2, 2, 2)
        assert_close(ws.following("env/obs/policy"), expected)

    def test_without_an_end_no_final_observation_is_needed(self):
        ws = step_rows(NONE, NONE, final=False)
        assert_close(ws.following("env/obs/policy"), ws["env/obs/policy"][1:])

    def test_an_end_without_final_observation_names_the_fix(self):
        ws = step_rows(NONE, flags([False, False], [False, True]), final=False)
        with pytest.raises(ValueError, match=r"column 1 ended at step 1.*name 'env/final_obs/policy' in the reads"):
            ws.following("env/obs/policy")

    def test_with_reset_rows_the_next_row_is_the_state_reached(self):
        valid = flags([True, True], [True, False])
        ws = step_rows(flags([False, True], [False, False]), NONE, final=False, **{"env/valid": valid})
        assert_close(ws.following("env/obs/policy"), ws["env/obs/policy"][1:])

    def test_a_variable_without_extra_row_has_nothing_after_the_last_step(self):
        with pytest.raises(ValueError, match="2 rows for 2 steps"):
            step_rows(NONE, NONE).following("action")

    def test_declared_extra_rows_are_shifted(self):
        ws = Workspace.packed({"memory": torch.arange(3.0)[:, None], "action": torch.zeros(2, 1)}, extra_row=["memory"])
        assert ws.following("memory").tolist() == [[1], [2]]

    def test_slices_follow_like_the_whole(self):
        ws = step_rows(flags([True, False], [False, True]), NONE)
        assert_close(ws.slice(1, 2).following("env/obs/policy"), ws.following("env/obs/policy")[1:2])


class TestFields:
    def test_named_fields_are_t_major(self):
        ws = step_rows(flags([True, False], [False, False]), NONE, **{"log_prob": torch.zeros(2, 2)})
        fields = ws.transitions()
        assert set(fields) == {
            "obs/policy",
            "next_obs/policy",
            "action",
            "reward",
            "terminated",
            "truncated",
            "log_prob",
        }
        assert fields["obs/policy"][:, 0].tolist() == [0, 1, 10, 11]
        assert fields["next_obs/policy"][:, 0].tolist() == [-10, 11, 20, 21]
        assert fields["action"].tolist() == [0, 1, 2, 3]
        assert fields["terminated"].tolist() == [True, False, False, False]

    def test_bug_14_every_field_says_by_its_name_which_row_it_is_of(self):
        # rewards 1, 2 belong to the actions of their own rows, so nobody asks which slot holds them
        ws = step_rows(NONE, NONE, **{"env/reward": torch.tensor([[1.0, 1.0], [2.0, 2.0]])})
        fields = ws.transitions()
        assert fields["reward"].tolist() == [1, 1, 2, 2]
        assert fields["obs/policy"][:, 0].tolist() == [0, 1, 10, 11]
        assert fields["next_obs/policy"][:, 0].tolist() == [10, 11, 20, 21]

    def test_rows_that_only_reset_are_dropped(self):
        valid = flags([True, True], [True, False])
        fields = step_rows(flags([False, True], [False, False]), NONE, False, **{"env/valid": valid}).transitions()
        assert fields["action"].tolist() == [0, 1, 2]
        assert fields["obs/policy"].shape == (3, 2)
        assert "env/valid" not in fields

    def test_unequal_rows_are_refused(self):
        ws = step_rows(NONE, NONE)
        ws["late"] = torch.zeros(1, 2)
        with pytest.raises(ValueError, match="'late'"):
            ws.transitions()

    def test_gradients_survive(self):
        leaf = torch.ones(2, 2, requires_grad=True)
        step_rows(NONE, NONE, **{"value": leaf * 2}).transitions()["value"].sum().backward()
        assert_close(leaf.grad, torch.full((2, 2), 2.0))


def frames(done, batch_values=None):
    """A frame stream whose variable `x` is 10 * t + b."""
    done = torch.as_tensor(done)
    steps, batch = done.shape
    x = torch.arange(float(steps))[:, None] * 10 + torch.arange(float(batch))
    return Workspace.packed({"x": x, "env/done": done})


class TestPairs:
    def test_pairs_are_ordered_by_time_then_column_and_done_rows_start_none(self):
        pairs = frames([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]).transitions(pairs=True)
        assert pairs["x"].tolist() == [[0, 10, 11], [10, 20, 21]]
        assert pairs.kind("x") == "packed"

    @pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8, torch.float32])
    def test_bug_11_any_dtype_of_flag_gives_the_same_pairs(self, dtype):
        done = torch.tensor([[0, 1], [1, 0], [0, 0]]).to(dtype)
        assert frames(done).transitions(pairs=True)["x"].tolist() == [[0, 11], [10, 21]]

    def test_bug_11_non_contiguous_variables_unfiltered(self):
        ws = Workspace.packed({"x": torch.arange(6.0).reshape(2, 3).T})  # [3, 2], strides (1, 3)
        assert ws.transitions(pairs=True, keep_all=True)["x"].tolist() == [[0, 3, 1, 4], [1, 4, 2, 5]]

    def test_frozen_repeats_are_dropped(self):
        pairs = frames([[0.0], [0.0], [1.0], [1.0], [1.0]]).transitions(pairs=True)
        assert pairs["x"].tolist() == [[0, 10], [10, 20]]

    def test_another_filter_and_a_missing_one(self):
        ws = Workspace.packed({"x": torch.arange(3.0)[:, None], "cut": torch.tensor([[1], [0], [0]])})
        assert ws.transitions(pairs=True, filter_name="cut")["x"].tolist() == [[1], [2]]
        with pytest.raises(KeyError):
            ws.transitions(pairs=True)
        assert ws.transitions(pairs=True, keep_all=True).B == 2

    def test_the_index_lies_with_the_data(self):
        ws = Workspace.packed({"x": torch.zeros(3, 2, device="meta")})
        pairs = ws.transitions(pairs=True, keep_all=True, with_index=True)
        assert {pairs[name].device.type for name in pairs} == {"meta"}
        assert pairs["x"].shape == pairs["transition/t"].shape == (2, 4)

    def test_fewer_than_two_rows_give_no_pair(self):
        assert frames([[0.0, 0.0]]).transitions(pairs=True)["x"].shape == (2, 0)

    def test_unequal_sizes_are_listed(self):
        ws = step_rows(NONE, NONE)
        with pytest.raises(ValueError, match=r"action \[2, 2\].*use transitions\(\)"):
            ws.transitions(pairs=True)

    def test_the_index_scatters_row_quantities_to_pairs(self):
        done = torch.tensor([[False, True], [True, False], [False, False]])
        pairs = frames(done).transitions(pairs=True, with_index=True)
        advantage = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
        t, b = pairs["transition/t"], pairs["transition/b"]
        assert t.dtype is torch.int64
        assert_close(t[1], t[0] + 1)
        assert_close(b[1], b[0])
        assert_close(advantage[t[0], b[0]], advantage[:-1][~done[:-1]])

    def test_bug_33_compact_streams_arrive_at_the_final_observation(self):
        # two-step episodes in one column: the row that ends an episode shows the start of the next
        ws = Workspace.packed(
            {
                "env/obs/policy": torch.tensor([[0.0], [0.1], [1.0], [1.1]]),
                "env/final_obs/policy": torch.tensor([[0.0], [0.1], [0.2], [1.1]]),
            }
        )
        pairs = ws.transitions(pairs=True, keep_all=True)
        assert_close(pairs["env/obs/policy"], torch.tensor([[0.0, 0.1, 1.0], [0.1, 0.2, 1.1]]))

    def test_gradients_survive(self):
        leaf = torch.ones(3, 1, requires_grad=True)
        ws = Workspace.packed({"x": leaf * 1, "env/done": torch.zeros(3, 1)})
        ws.transitions(pairs=True)["x"].sum().backward()
        assert_close(leaf.grad, torch.tensor([[1.0], [2.0], [1.0]]))

    def test_options_of_pairs_need_pairs(self):
        with pytest.raises(TypeError, match="pairs=True"):
            step_rows(NONE, NONE).transitions(keep_all=True)
