"""Workspace: one interface over four storages. Numbers are small enough to check by eye."""

import ast
import importlib
import inspect
import pickle

import pytest
import torch
import torch.multiprocessing as multiprocessing
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from gaitway.core.storage import Together
from gaitway.core.workspace import Variable, Workspace


def column(*values):
    """[T, 1] from T numbers."""
    return torch.tensor(values, dtype=torch.float32)[:, None]


def counting(rows, batch, *event):
    """[rows, batch, *event] filled with 0, 1, 2, ..."""
    size = (rows, batch, *event)
    return torch.arange(torch.Size(size).numel(), dtype=torch.float32).reshape(size)


def as_kind(kind, tensors):
    """The same contents in each storage."""
    if kind == "packed":
        return Workspace.packed(tensors)
    if kind == "growing":
        ws = Workspace()
        for name, tensor in tensors.items():
            for t, row in enumerate(tensor):
                ws.put(name, t, row)
        return ws
    if kind == "dense":
        ws = Workspace.dense(
            {name: Variable(x.shape[0], x.shape[1], tuple(x.shape[2:]), x.dtype) for name, x in tensors.items()}
        )
        for name, tensor in tensors.items():
            ws[name] = tensor
        return ws
    return Workspace.packed(tensors).share_memory()


KINDS = ["growing", "packed", "dense", "shared"]


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


class TestOneRow:
    def test_first_put_creates_and_rows_append(self):
        ws = Workspace()
        ws.put("x", 0, torch.tensor([1.0, 2.0]))
        ws.put("x", 1, torch.tensor([3.0, 4.0]))
        assert ws.kind("x") == "growing"
        assert_close(ws["x"], torch.tensor([[1.0, 2.0], [3.0, 4.0]]))

    def test_growing_returns_the_very_object_until_overwritten(self):
        ws, value, other = Workspace(), torch.ones(2), torch.zeros(2)
        ws.put("x", 0, value)
        ws["x"]  # a whole read in between must not replace the rows
        assert ws.at("x", 0) is value
        ws.put("x", 0, other)
        assert ws.at("x", 0) is other

    def test_gap_is_filled_with_zeros_of_the_same_signature(self):
        ws = Workspace()
        ws.put("x", 2, torch.full((2, 3), 7, dtype=torch.int64))
        assert ws.rows("x") == 3
        assert ws.at("x", 1).dtype is torch.int64
        assert_close(ws["x"][:2], torch.zeros(2, 2, 3, dtype=torch.int64))

    def test_bug_17_strict_refuses_a_gap(self):
        ws = Workspace(strict=True)
        with pytest.raises(IndexError, match=r"rows 0\.\.1 unwritten"):
            ws.put("x", 2, torch.ones(2))
        assert "x" not in ws
        ws.put("x", 0, torch.ones(2))
        ws.put("x", 1, torch.ones(2))
        with pytest.raises(IndexError, match="strict=False"):
            ws.put("x", 3, torch.ones(2))

    def test_strict_stays_strict_in_clones_and_parts(self):
        ws = Workspace.packed({"x": counting(3, 2)}, strict=True)
        for part in (Workspace(ws), ws.slice(0, 3), ws.select([0, 1]), ws.to("cpu"), ws.contiguous()):
            with pytest.raises(IndexError, match="unwritten"):
                part.put("x", 4, torch.ones(2))

    def test_put_inside_replaces_one_row(self, kind):
        ws = as_kind(kind, {"x": counting(3, 2)})
        ws.put("x", 1, torch.tensor([-1.0, -2.0]))
        assert_close(ws["x"], torch.tensor([[0.0, 1], [-1, -2], [4, 5]]))
        assert_close(ws.at("x", 1), torch.tensor([-1.0, -2.0]))

    def test_packed_grows_by_becoming_rows(self):
        tensor = counting(2, 2).requires_grad_()
        ws = Workspace.packed({"x": tensor})
        ws.put("x", 3, torch.tensor([8.0, 9.0]))
        assert_close(ws["x"], torch.tensor([[0.0, 1], [2, 3], [0, 0], [8, 9]]))
        ws["x"].sum().backward()
        assert_close(tensor.grad, torch.ones(2, 2))

    @pytest.mark.parametrize(
        ("value", "words"),
        [
            (torch.ones(3, 4), ["[2, 4]", "[3, 4]"]),
            (torch.ones(4), ["[2, 4]", "[4]"]),  # would broadcast
            (torch.ones(2, 4, dtype=torch.float64), ["torch.float64", r".to(torch.float32)"]),
        ],
    )
    def test_another_signature_names_variable_both_signatures_and_cast(self, kind, value, words):
        ws = as_kind(kind, {"x": counting(3, 2, 4)})
        with pytest.raises(ValueError) as error:
            ws.put("x", 0, value)
        for word in ["'x'", *words]:
            assert word in str(error.value)
        assert_close(ws["x"], counting(3, 2, 4))

    def test_another_device_is_refused(self, kind):
        ws = as_kind(kind, {"x": counting(3, 2)})
        with pytest.raises((ValueError, RuntimeError), match="cpu"):
            Workspace.packed({"x": ws["x"].to("meta")}).put("x", 0, torch.ones(2))

    def test_a_value_that_is_no_tensor_is_a_type_error(self, kind):
        ws = as_kind(kind, {"x": counting(3, 2)})
        with pytest.raises(TypeError, match="list"):
            ws.put("x", 0, [1.0, 2.0])
        with pytest.raises(TypeError, match="float"):
            Workspace().put("y", 0, 1.0)
        with pytest.raises(ValueError, match="without axes"):
            Workspace().put("y", 0, torch.tensor(1.0))

    def test_bug_09_negative_time_is_an_index_error(self, kind):
        ws = as_kind(kind, {"x": counting(3, 2)})
        for act in (lambda: ws.at("x", -1), lambda: ws.put("x", -1, torch.ones(2))):
            with pytest.raises(IndexError, match="does not count from the end"):
                act()
        assert_close(ws["x"], counting(3, 2))

    def test_time_beyond_the_end_and_time_that_is_no_integer(self, kind):
        ws = as_kind(kind, {"x": counting(3, 2)})
        with pytest.raises(IndexError, match="3 rows"):
            ws.at("x", 3)
        for t in (1.0, "1", None, slice(0, 1)):
            with pytest.raises(TypeError, match="integer"):
                ws.at("x", t)
            with pytest.raises(TypeError, match="integer"):
                ws.put("x", t, torch.ones(2))

    def test_preallocated_memory_does_not_grow(self):
        for kind in ("dense", "shared"):
            ws = as_kind(kind, {"x": counting(3, 2)})
            with pytest.raises(IndexError, match=f"{kind} and has 3 rows"):
                ws.put("x", 3, torch.ones(2))

    def test_bug_05_unknown_variable_is_a_key_error_that_lists_the_known(self):
        ws = Workspace.packed({"env/reward": counting(1, 1), "action": counting(1, 1)})
        for act in (lambda: ws.at("env/rewad", 0), lambda: ws["env/rewad"], lambda: ws.remove("env/rewad")):
            with pytest.raises(KeyError) as error:
                act()
            assert "'env/reward', 'action'" in str(error.value)
            assert "Did you mean 'env/reward'?" in str(error.value)

    def test_bug_05_no_check_of_the_core_is_an_assertion(self):
        modules = "workspace storage indexing transitions sampling agent small_agents n_step epochs checks tracing"
        for name in [*(f"core.{module}" for module in modules.split()), "frames.pairs"]:
            tree = ast.parse(inspect.getsource(importlib.import_module(f"gaitway.{name}")))
            assert not [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)]

    def test_a_name_that_is_no_string_is_a_type_error(self):
        ws = Workspace()
        for act in (
            lambda: ws.put(3, 0, torch.ones(1)),
            lambda: ws.at(3, 0),
            lambda: ws[3],
            lambda: ws.__setitem__(3, counting(1, 1)),
        ):
            with pytest.raises(TypeError, match="name is a string"):
                act()


class TestGradients:
    def test_growing_keeps_the_graph_of_every_row(self):
        weight = torch.tensor(2.0, requires_grad=True)
        ws = Workspace()
        for t in range(3):
            ws.put("x", t, weight * torch.tensor([float(t), 1.0]))
        ws["x"].sum().backward()
        assert weight.grad == 0 + 1 + 2 + 3

    def test_bug_15_whole_read_is_cached_until_the_next_write(self):
        ws = Workspace()
        ws.put("x", 0, torch.ones(2))
        first = ws["x"]
        assert ws["x"] is first
        ws.put("x", 1, torch.ones(2))
        assert ws["x"] is not first
        assert len(ws["x"]) == 2

    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
    def test_a_read_without_gradients_does_not_rob_a_later_reader(self, mode):
        weight = torch.ones(2, requires_grad=True)
        ws = Workspace()
        ws.put("x", 0, weight * 3)
        with mode():
            ws["x"]
        ws["x"].sum().backward()
        assert_close(weight.grad, torch.full((2,), 3.0))

    def test_bug_07_the_tensor_of_the_caller_is_never_modified(self):
        tensor = counting(3, 2)
        ws = Workspace.packed({"x": tensor})
        ws.put("x", 0, torch.full((2,), 9.0))
        ws.copy_time(0, 1, 2)
        assert_close(tensor, counting(3, 2))

    @pytest.mark.parametrize("kind", ["dense", "shared"])
    def test_preallocated_values_are_detached_copies(self, kind):
        ws = as_kind(kind, {"x": torch.zeros(2, 2)})
        value = torch.ones(2, requires_grad=True)
        ws.put("x", 0, value * 2)
        ws["x"] = torch.stack((value, value))
        assert not ws._variables["x"].tensor.requires_grad  # what is read is an alias and would not show it
        assert not ws["x"].requires_grad
        assert not ws.at("x", 0).requires_grad
        with torch.no_grad():
            value.zero_()
        assert_close(ws["x"], torch.ones(2, 2))

    def test_dense_is_written_in_inference_mode_and_read_in_a_graph(self):
        with torch.inference_mode():
            ws = Workspace.dense({"x": Variable(2, 3)})
            ws.put("x", 1, torch.ones(3))
            row = ws.at("x", 1)
        weight = torch.ones(3, requires_grad=True)
        (weight * ws["x"] * row).sum().backward()
        assert_close(weight.grad, torch.ones(3))
        ws.put("x", 0, torch.ones(3))  # and written in normal mode again

    def test_asking_a_dense_row_for_gradients_leaves_the_storage_alone(self):
        ws = Workspace.dense({"x": Variable(2, 3)})
        ws.at("x", 0).requires_grad_()
        ws["x"].requires_grad_()
        ws.put("x", 0, torch.ones(3))
        assert not ws["x"].requires_grad

    def test_detach_keeps_values_and_drops_the_graph(self, kind):
        values = {"x": (torch.ones(2, 2, requires_grad=True) * 3)}
        ws = as_kind(kind, values)
        identity = ws.at("x", 0) if kind == "growing" else None
        assert ws["x"].requires_grad == (kind in ("growing", "packed"))  # the stack of rows is cached from here on
        assert ws.detach_() is ws
        assert not ws["x"].requires_grad
        assert not ws.at("x", 0).requires_grad
        assert_close(ws["x"], torch.full((2, 2), 3.0))
        assert identity is None or identity.requires_grad  # in place on the workspace, not on the tensors


class TestWholeVariable:
    def test_bug_06_assignment_replaces_everything(self):
        for kind in ("growing", "packed", "dense"):
            ws = as_kind(kind, {"x": counting(3, 2)})
            ws["x"] = torch.ones(2, 5, 4, dtype=torch.int64)
            assert ws["x"].shape == (2, 5, 4)
            assert ws["x"].dtype is torch.int64
            assert (ws.T, ws.B) == (2, 5)
            ws.put("x", 0, torch.zeros(5, 4, dtype=torch.int64))

    def test_dense_memory_of_the_same_shape_is_kept(self):
        ws = Workspace.dense({"x": Variable(3, 2)})
        address = ws["x"].data_ptr()
        ws["x"] = counting(3, 2)
        assert ws["x"].data_ptr() == address
        assert ws.kind("x") == "dense"
        assert_close(ws["x"], counting(3, 2))

    def test_bug_10_shared_memory_is_overwritten_never_replaced(self):
        ws = as_kind("shared", {"x": counting(3, 2)})
        address = ws["x"].data_ptr()
        ws["x"] = -counting(3, 2)
        assert ws["x"].data_ptr() == address
        assert ws.is_shared
        for wrong in (counting(2, 2), counting(3, 2).double()):
            with pytest.raises(ValueError, match="'x' is shared memory"):
                ws["x"] = wrong

    def test_bug_08_several_names_give_a_tuple_in_order(self):
        ws = Workspace.packed({"a": column(1), "b": column(2), "c": column(3)})
        result = ws["c", "a"]
        assert isinstance(result, tuple)
        assert [float(x) for x in result] == [3, 1]
        assert [float(x) for x in result] == [3, 1]  # can be read twice
        assert [float(x) for x in ws[["b", "a"]]] == [2, 1]

    def test_insertion_order_len_and_membership(self):
        ws = Workspace()
        for name in ("z", "a", "m"):
            ws.put(name, 0, torch.ones(1))
        ws["z"] = column(5)
        assert list(ws) == ws.keys() == ["z", "a", "m"]
        assert len(ws) == 3
        assert "a" in ws
        assert "b" not in ws

    def test_clear_and_remove(self):
        ws = Workspace.packed({"a": column(1), "b": column(2), "c": column(3)})
        ws.remove("a")
        ws.clear("b")
        assert ws.keys() == ["c"]
        ws.clear()
        assert len(ws) == 0

    def test_a_whole_variable_has_time_and_batch(self):
        with pytest.raises(ValueError, match=r"\[T, B"):
            Workspace()["x"] = torch.ones(3)
        with pytest.raises(TypeError, match="list"):
            Workspace()["x"] = [[1.0]]

    def test_copy_constructor_clones_and_keeps_the_graph(self, kind):
        leaf = counting(3, 2).requires_grad_()
        source = as_kind(kind, {"x": leaf * 1})
        twin = Workspace(source)
        assert twin.kind("x") == "packed"
        assert not twin.is_shared
        assert twin["x"].requires_grad == (kind in ("growing", "packed"))
        source.put("x", 0, torch.full((2,), 9.0))
        assert_close(twin["x"].detach(), counting(3, 2))

    def test_contiguous_packs_without_cloning_what_is_packed(self, kind):
        ws = as_kind(kind, {"x": counting(3, 2)})
        packed = ws.contiguous()
        assert packed.kind("x") == "packed"
        assert_close(packed["x"], ws["x"])
        assert (packed["x"].data_ptr() == ws["x"].data_ptr()) == (kind in ("growing", "packed"))


class TestSizes:
    def test_bug_09_an_empty_workspace_has_size_zero(self):
        assert (Workspace().T, Workspace().B, len(Workspace())) == (0, 0, 0)

    def test_unequal_rows_are_legal_until_a_common_size_is_needed(self):
        ws = Workspace.packed({"a": counting(3, 2), "b": counting(2, 2)})
        assert (ws.rows("a"), ws.rows("b")) == (3, 2)
        with pytest.raises(ValueError, match="'a' has 3 rows but 'b' has 2"):
            ws.T  # noqa: B018
        ws = Workspace.packed({"a": counting(3, 2), "b": counting(3, 4)})
        with pytest.raises(ValueError, match="'a' has 2 columns but 'b' has 4"):
            ws.B  # noqa: B018

    def test_an_observation_holds_one_row_more(self):
        ws = Workspace.packed({"env/obs/policy": counting(4, 2, 5), "action": counting(3, 2)})
        assert ws.T == 3
        assert ws.rows("env/obs/policy") == 4
        assert Workspace.packed({"env/obs/policy": counting(3, 2), "action": counting(3, 2)}).T == 3  # frame stream
        assert Workspace.packed({"env/obs/policy": counting(4, 2)}).T == 4  # nothing says which row is the extra one

    def test_other_variables_may_be_declared_to_have_the_extra_row(self):
        tensors = {"memory": counting(4, 2), "action": counting(3, 2)}
        with pytest.raises(ValueError):
            Workspace.packed(tensors).T  # noqa: B018
        assert Workspace.packed(tensors, extra_row=["memory"]).T == 3
        assert Workspace.packed(tensors, extra_row=["memory"]).slice(0, 2).rows("memory") == 3

    def test_two_extra_rows_are_too_many(self):
        ws = Workspace.packed({"action": counting(3, 2), "env/obs/policy": counting(5, 2)})
        with pytest.raises(ValueError, match="5 rows for 3 steps"):
            ws.T  # noqa: B018

    def test_nbytes(self, kind):
        ws = as_kind(kind, {"a": counting(3, 2, 5), "b": torch.zeros(3, 2, dtype=torch.bool)})
        assert ws.nbytes == 3 * 2 * 5 * 4 + 3 * 2


class TestTime:
    @pytest.mark.parametrize(("copy", "expected"), [((1, 0, 3), (1, 2, 3, 3)), ((0, 1, 3), (0, 0, 1, 2))])
    def test_bug_07_overlapping_copies_read_first(self, kind, copy, expected):
        ws = as_kind(kind, {"x": column(0, 1, 2, 3)})
        ws.copy_time(*copy)
        assert_close(ws["x"], column(*expected))

    def test_copy_only_the_named_variables(self, kind):
        ws = as_kind(kind, {"x": column(0, 1, 2), "y": column(0, 1, 2)})
        ws.copy_time(2, 0, 1, ["y"])
        assert_close(ws["x"], column(0, 1, 2))
        assert_close(ws["y"], column(2, 1, 2))

    def test_copy_may_extend_what_grows_and_nothing_else(self, kind):
        ws = as_kind(kind, {"x": column(0, 1, 2), "y": column(3, 4, 5)})
        if kind in ("growing", "packed"):
            ws.copy_time(1, 2, 2)
            assert_close(ws["x"], column(0, 1, 1, 2))
        else:
            with pytest.raises(IndexError):
                ws.copy_time(1, 2, 2)
            assert_close(ws["x"], column(0, 1, 2))

    def test_a_copy_that_is_refused_writes_nothing(self):
        ws = Workspace.packed({"x": column(0, 1, 2), "y": column(0, 1)}, strict=True)
        with pytest.raises(IndexError, match=r"'y' would leave rows 2\.\.2"):
            ws.copy_time(0, 3, 1)  # x has room, y would have a gap
        assert ws.rows("x") == 3
        view = Workspace.packed({"x": counting(3, 2)}).batch_view(0, 1)
        with pytest.raises(ValueError, match="share_memory"):
            view.copy_time(0, 1, 1)

    def test_copy_source_out_of_range_and_no_rows(self, kind):
        ws = as_kind(kind, {"x": column(0, 1, 2)})
        for arguments in ((2, 0, 2), (-1, 0, 1), (0, -1, 1), (0, 0, -1)):
            with pytest.raises(IndexError):
                ws.copy_time(*arguments)
        ws.copy_time(7, 7, 0)
        assert_close(ws["x"], column(0, 1, 2))

    def test_bug_09_slice_cuts_at_the_end_and_is_empty_beyond(self, kind):
        ws = as_kind(kind, {"x": counting(4, 2), "y": counting(4, 2, 3)})
        assert_close(ws.slice(1, 3)["x"], counting(4, 2)[1:3])
        assert ws.slice(2, 9).T == 2
        beyond = ws.slice(7, 9)
        assert beyond["y"].shape == (0, 2, 3)
        assert ws.span("y", 9, 10).shape == (0, 2, 3)
        assert_close(ws.span("x", 2, 9), counting(4, 2)[2:])

    def test_slice_refuses_negative_and_empty_spans(self, kind):
        ws = as_kind(kind, {"x": counting(4, 2)})
        with pytest.raises(IndexError):
            ws.slice(-1, 2)
        for start, stop in ((2, 2), (3, 1)):
            with pytest.raises(ValueError):
                ws.slice(start, stop)

    def test_slice_demands_equal_rows_unless_told(self):
        ws = Workspace.packed({"a": counting(4, 2), "b": counting(2, 2)})
        with pytest.raises(ValueError):
            ws.slice(0, 3)
        cut = ws.slice(1, 3, equal=False)
        assert (cut.rows("a"), cut.rows("b")) == (2, 1)

    def test_slice_of_step_rows_is_step_rows(self, kind):
        ws = as_kind(kind, {"env/obs/policy": counting(5, 2), "action": counting(4, 2)})
        for start, stop in ((0, 4), (1, 3), (3, 9)):
            cut = ws.slice(start, stop)
            assert min(stop, 4) - start == cut.T
            assert_close(cut["env/obs/policy"], counting(5, 2)[start : min(stop, 4) + 1])
        assert ws.slice(4, 6).T == 0
        assert ws.slice(4, 6).rows("env/obs/policy") == 1

    def test_bug_10_slice_of_shared_memory_writes_through(self):
        ws = as_kind("shared", {"x": column(0, 1, 2)})
        cut = ws.slice(1, 3)
        assert cut.is_shared
        cut.put("x", 0, torch.tensor([7.0]))
        assert_close(ws["x"], column(0, 7, 2))

    def test_slice_of_other_kinds_does_not(self):
        for kind in ("growing", "packed", "dense"):
            ws = as_kind(kind, {"x": column(0, 1, 2)})
            ws.slice(1, 3).put("x", 0, torch.tensor([7.0]))
            assert_close(ws["x"], column(0, 1, 2))

    def test_slice_keeps_the_graph(self):
        leaf = torch.ones(3, 2, requires_grad=True)
        Workspace.packed({"x": leaf}).slice(1, 2)["x"].sum().backward()
        assert_close(leaf.grad, torch.tensor([[0.0, 0], [1, 1], [0, 0]]))


class TestColumns:
    def test_select_keeps_order_and_duplicates(self, kind):
        ws = as_kind(kind, {"x": counting(2, 3), "env/obs/policy": counting(3, 3, 2)})
        for index in (torch.tensor([2, 0, 2]), [2, 0, 2]):
            chosen = ws.select(index)
            assert_close(chosen["x"], counting(2, 3)[:, [2, 0, 2]])
            assert_close(chosen["env/obs/policy"], counting(3, 3, 2)[:, [2, 0, 2]])
            assert not chosen.is_shared

    def test_select_by_mask_and_nothing(self, kind):
        ws = as_kind(kind, {"x": counting(2, 3)})
        for mask in (torch.tensor([True, False, True]), [True, False, True]):
            assert_close(ws.select(mask)["x"], counting(2, 3)[:, [0, 2]])
        assert ws.select([])["x"].shape == (2, 0)

    def test_select_out_of_range(self, kind):
        ws = as_kind(kind, {"x": counting(2, 3)})
        for index in ([3], [-1]):
            with pytest.raises(IndexError, match=r"0\.\.2"):
                ws.select(index)
        with pytest.raises(ValueError, match="mask"):
            ws.select(torch.tensor([True]))
        with pytest.raises(TypeError, match="float"):
            ws.select(torch.tensor([1.0]))

    def test_select_keeps_the_graph(self):
        leaf = torch.ones(1, 3, requires_grad=True)
        Workspace.packed({"x": leaf}).select([1, 1])["x"].sum().backward()
        assert_close(leaf.grad, torch.tensor([[0.0, 2, 0]]))

    def test_bug_02_cat_is_static_and_keeps_the_order_of_the_list(self, kind):
        first = as_kind(kind, {"x": column(0, 1), "y": column(2, 3)})
        second = Workspace.packed({"y": column(6, 7), "x": column(4, 5)})
        both = Workspace.cat([first, second, first])
        assert both.keys() == ["x", "y"]
        assert_close(both["x"], torch.tensor([[0.0, 4, 0], [1, 5, 1]]))
        assert_close(both["y"], torch.tensor([[2.0, 6, 2], [3, 7, 3]]))

    def test_bug_02_cat_names_the_difference(self):
        one = Workspace.packed({"x": column(0, 1)})
        with pytest.raises(ValueError, match="'y'"):
            Workspace.cat([one, Workspace.packed({"x": column(0, 1), "y": column(0, 1)})])
        with pytest.raises(ValueError, match=r"\[2, B\].*\[3, B\]"):
            Workspace.cat([one, Workspace.packed({"x": column(0, 1, 2)})])
        with pytest.raises(ValueError, match="float64"):
            Workspace.cat([one, Workspace.packed({"x": column(0, 1).double()})])
        with pytest.raises(ValueError, match="at least one"):
            Workspace.cat([])

    @given(batch=st.integers(1, 12), size=st.integers(1, 13), drop_last=st.booleans())
    @settings(max_examples=30, deadline=None)
    def test_minibatches_hold_every_column_once(self, batch, size, drop_last):
        ws = Workspace.packed({"x": torch.arange(batch)[None]})
        pieces = list(ws.minibatches(size, torch.Generator().manual_seed(0), drop_last))
        seen = [int(v) for piece in pieces for v in piece["x"][0]]
        assert len(set(seen)) == len(seen)
        assert len(seen) == (batch // size * size if drop_last else batch)
        assert all(size == piece.B for piece in pieces[:-1])

    def test_minibatches_follow_the_generator(self):
        ws = Workspace.packed({"x": torch.arange(20)[None]})
        first, again, other = (
            torch.cat([p["x"][0] for p in ws.minibatches(6, torch.Generator().manual_seed(s))]) for s in (1, 1, 2)
        )
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        with pytest.raises(ValueError, match="minibatch size"):
            list(ws.minibatches(0, torch.Generator()))


class TestDone:
    def test_done_is_derived_and_not_stored(self, kind):
        flags = {
            "env/terminated": torch.tensor([[True, False], [False, False]]),
            "env/truncated": torch.tensor([[False, False], [False, True]]),
        }
        ws = as_kind(kind, flags)
        assert "env/done" in ws
        assert ws.keys() == list(flags)
        assert ws["env/done"].tolist() == [[True, False], [False, True]]
        assert ws.at("env/done", 1).tolist() == [False, True]

    def test_without_both_flags_there_is_no_done(self):
        ws = Workspace.packed({"env/terminated": torch.ones(1, 1, dtype=torch.bool)})
        assert "env/done" not in ws
        with pytest.raises(KeyError):
            ws["env/done"]


class TestDevices:
    def test_bug_01_to_works_for_every_kind(self, kind):
        ws = as_kind(kind, {"x": counting(3, 2), "y": counting(4, 2)})
        twin = ws.to("cpu")
        assert twin is not ws
        assert {name: twin.kind(name) for name in twin} == {name: ws.kind(name) for name in ws}
        assert_close(twin["x"], ws["x"])
        assert twin["y"].shape == (4, 2)

    def test_to_the_cpu_keeps_sharing_and_copies_dense(self):
        shared, dense = (as_kind(kind, {"x": column(0, 1)}) for kind in ("shared", "dense"))
        moved_shared, moved_dense = shared.to("cpu"), dense.to("cpu")
        for ws in (shared, dense):
            ws.put("x", 0, torch.tensor([5.0]))
        assert moved_shared.is_shared
        assert_close(moved_shared["x"], column(5, 1))
        assert_close(moved_dense["x"], column(0, 1))

    def test_to_another_device_gives_an_ordinary_workspace(self, kind):
        moved = as_kind(kind, {"x": counting(3, 2)}).to("meta")
        assert moved["x"].device.type == "meta"
        assert not moved.is_shared
        assert moved.kind("x") != "shared"

    def test_text_has_a_line_per_variable(self):
        ws = Workspace.dense(
            {"env/obs/policy": Variable(5, 2, (3,)), "env/done_count": Variable(4, 2, (), torch.int64)}
        )
        ws.put("action", 0, torch.ones(2))
        assert str(ws).splitlines() == [
            "env/obs/policy  [5, 2, 3]  torch.float32  cpu  dense",
            "env/done_count  [4, 2]  torch.int64  cpu  dense",
            "action          [1, 2]  torch.float32  cpu  growing",
        ]
        assert "action=[1, 2]" in repr(ws)


def _add_one_and_write_row(ws, view):
    view["x"] = view["x"] + 1
    ws.put("y", 1, torch.tensor([8.0, 9.0]))


class TestSharedMemory:
    def test_repeat_tiles_the_columns_detached(self):
        ws = Workspace.packed({"x": torch.tensor([[1.0, 2.0]], requires_grad=True), "y": counting(1, 2, 3)})
        shared = ws.share_memory(repeat=2)
        assert shared.is_shared
        assert not ws.is_shared
        assert_close(shared["x"], torch.tensor([[1.0, 2, 1, 2]]))
        assert shared["y"].shape == (1, 4, 3)
        for wrong in ({"repeat": 0}, {"rows": -1}):
            with pytest.raises(ValueError, match="repeat"):
                ws.share_memory(**wrong)

    def test_rows_gives_zeros_and_observations_one_more(self):
        ws = Workspace.packed({"env/obs/policy": counting(2, 1, 3) + 1, "action": counting(1, 1) + 1})
        shared = ws.share_memory(rows=5)
        assert shared.T == 5
        assert shared["env/obs/policy"].shape == (6, 1, 3)
        assert not shared["action"].any()

    def test_no_variable_comes_or_goes(self):
        ws = as_kind("shared", {"x": counting(3, 2)})
        for act in (lambda: ws.put("y", 0, torch.ones(2)), lambda: ws.__setitem__("y", counting(3, 2))):
            with pytest.raises(RuntimeError, match="shared workspace"):
                act()
        for act in (ws.clear, lambda: ws.clear("x"), lambda: ws.remove("x")):
            with pytest.raises(RuntimeError, match="clear"):
                act()

    def test_bug_12_a_batch_view_reads_like_a_workspace(self, kind):
        tensors = {"x": counting(3, 4), "env/obs/policy": counting(4, 4, 2)}
        ws = as_kind(kind, tensors)
        view = ws.batch_view(1, 3)
        assert view.keys() == ws.keys()
        assert (view.T, view.B, len(view)) == (3, 2, 2)
        assert "x" in view
        assert_close(view["x"], tensors["x"][:, 1:3])
        assert_close(view.at("env/obs/policy", 3), tensors["env/obs/policy"][3, 1:3])
        assert_close(view.span("x", 1, 9), tensors["x"][1:, 1:3])
        assert_close(view.slice(0, 2)["env/obs/policy"], tensors["env/obs/policy"][:3, 1:3])
        assert_close(view.select([1])["x"], tensors["x"][:, 2:3])
        assert view.is_shared == (kind == "shared")

    def test_a_batch_view_writes_its_columns_only(self, kind):
        ws = as_kind(kind, {"x": torch.zeros(2, 4)})
        view = ws.batch_view(1, 3)
        if kind in ("growing", "packed"):
            for act in (lambda: view.put("x", 0, torch.ones(2)), lambda: view.__setitem__("x", torch.ones(2, 2))):
                with pytest.raises(ValueError, match="share_memory"):
                    act()
        else:
            view.put("x", 0, torch.ones(2))
            view["x"] = view["x"] + torch.tensor([[0.0, 0], [5, 6]])
            assert_close(ws["x"], torch.tensor([[0.0, 1, 1, 0], [0, 5, 6, 0]]))
        with pytest.raises(RuntimeError, match="batch view"):
            view.put("new", 0, torch.ones(2))

    def test_a_batch_view_follows_growing_rows(self):
        ws = Workspace()
        ws.put("x", 0, torch.tensor([1.0, 2.0]))
        view = ws.batch_view(1, 2)
        ws.put("x", 1, torch.tensor([3.0, 4.0]))
        assert_close(view["x"], column(2, 4))

    def test_a_batch_view_stays_inside(self):
        ws = as_kind("shared", {"x": torch.zeros(2, 4)})
        for lo, hi in ((-1, 2), (2, 2), (0, 5)):
            with pytest.raises(IndexError):
                ws.batch_view(lo, hi)

    def test_another_process_writes_the_same_memory(self):
        ws = Workspace.packed({"x": torch.zeros(2, 4)}).share_memory()
        other = Workspace.packed({"y": torch.zeros(2, 2)}).share_memory()
        process = multiprocessing.get_context("spawn").Process(
            target=_add_one_and_write_row, args=(other, ws.batch_view(1, 3))
        )
        process.start()
        process.join(60)
        assert process.exitcode == 0
        assert_close(ws["x"], torch.tensor([[0.0, 1, 1, 0], [0, 1, 1, 0]]))
        assert_close(other["y"], torch.tensor([[0.0, 0], [8, 9]]))

    def test_plain_pickle_copies_and_says_so(self):
        ws = as_kind("shared", {"x": column(0, 1)})
        twin = pickle.loads(pickle.dumps(ws))
        twin.put("x", 0, torch.tensor([5.0]))
        assert_close(ws["x"], column(0, 1))
        assert not twin.is_shared
        assert twin.kind("x") == "dense"


@given(
    writes=st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5)), max_size=8),
    span=st.tuples(st.integers(0, 3), st.integers(1, 4)),
)
@settings(max_examples=25, deadline=None)
def test_the_kind_never_changes_results(writes, span):
    results = []
    for kind in KINDS:
        ws = as_kind(kind, {"x": counting(4, 3), "env/obs/policy": counting(5, 3, 2)})
        for t, value in writes:
            ws.put("x", t, torch.full((3,), float(value)))
            ws.put("env/obs/policy", t + 1, ws.at("env/obs/policy", t) * value)
        ws.copy_time(0, 1, 3)
        cut = ws.slice(span[0], span[0] + span[1])
        results.append((ws["x"], ws["env/obs/policy"], cut["env/obs/policy"], ws.select([2, 0])["x"], cut.T))
    for result in results[1:]:
        for value, expected in zip(result, results[0], strict=True):
            assert_close(value, expected)


def test_copiers_keep_nothing_of_what_they_are_given():
    for ws in (Workspace(), Workspace.dense({"x": Variable(3, 2)})):
        put, value = ws.copier("x"), torch.zeros(2)
        for t in range(3):
            value.fill_(float(t))
            put(t, value)
        assert ws["x"].tolist() == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
        with pytest.raises(ValueError, match="variable 'x' has rows"):
            put(0, torch.zeros(3))


def test_several_variables_are_written_at_once_as_one_by_one():
    variables = {"a": Variable(4, 3, (2,), torch.float32), "b": Variable(4, 3, (), torch.bool)}
    variables |= {"c": Variable(5, 3, (), torch.float32)}
    one, other, grown = Workspace.dense(variables), Workspace.dense(variables), Workspace()
    names, shifts = list(variables), [0, 0, 1]
    together = Together([other._variables[name] for name in names], shifts)  # what a GPU gets
    put, grow = one.copiers(names, shifts), grown.copiers(names[:2], shifts[:2])
    generator = torch.Generator().manual_seed(0)
    values = [torch.empty(3, 2), torch.empty(3, dtype=torch.bool), torch.empty(3)]
    for t in range(4):
        values[0].normal_(generator=generator), values[2].normal_(generator=generator)
        values[1].random_(0, 2, generator=generator)
        put(t, values), together(t, [values[0].requires_grad_(t == 2), *values[1:]])
        values[0].requires_grad_(False)
        grow(t, values[:2])
        assert all(torch.equal(one.at(n, t + s), v) for n, s, v in zip(names, shifts, values, strict=True))
    assert all(torch.equal(one[name], other[name]) for name in names)
    assert all(torch.equal(one[name], grown[name]) for name in names[:2])
    for write in (put, together):
        with pytest.raises(ValueError, match="'b'"):
            write(0, [values[0], values[2], values[2]])
        with pytest.raises(IndexError, match="'a'"):
            write(4, values)
