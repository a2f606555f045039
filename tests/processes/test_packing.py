from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from gaitway.core.workspace import Workspace
from gaitway.processes.packing import Sheet, pack, unpack


class TestByValue:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64, torch.complex64])
    def test_every_kind_of_number(self, dtype):
        value = torch.arange(6).view(3, 2).to(dtype)
        found = unpack(pack(value))
        assert found.dtype is dtype
        assert torch.equal(found, value)

    @pytest.mark.parametrize("value", [torch.zeros(0, 3), torch.tensor(4.0), torch.arange(12).view(3, 4).t()])
    def test_every_kind_of_shape(self, value):
        found = unpack(pack(value))
        assert found.shape == value.shape
        assert torch.equal(found, value)

    def test_neither_side_touches_the_other(self):
        value = torch.zeros(3)
        view, address = value.numpy(), value.data_ptr()
        body = pack({"value": value})
        found = unpack(body)
        found["value"] += 1
        assert value.data_ptr() == address  # a pipe of torch.multiprocessing would have moved it
        assert not value.is_shared()
        view[0] = 5
        assert value.tolist() == [5, 0, 0]
        assert unpack(body)["value"].tolist() == [0, 0, 0]

    def test_parameters_come_without_gradients_and_hooks(self):
        linear = nn.Linear(2, 1)
        linear(torch.ones(1, 2)).sum().backward()
        found = unpack(pack(linear, compact=False))
        assert isinstance(found.weight, nn.Parameter)
        assert found.weight.requires_grad
        assert found.weight.grad is None
        assert torch.equal(found.weight, linear.weight)

    def test_buffers_and_attributes(self):
        module = nn.Module()
        module.register_buffer("plain", torch.ones(2))
        module.temporary = nn.Buffer(torch.ones(1), persistent=False)
        module.plain.unit = "m/s"
        found = unpack(pack(module, compact=False))
        assert set(dict(found.named_buffers())) == {"plain", "temporary"}
        assert set(found.state_dict()) == {"plain"}
        assert found.plain.unit == "m/s"

    def test_a_graph_stays_behind(self):
        value = torch.ones(2, requires_grad=True) * 2
        assert not unpack(pack(value)).requires_grad


class TestMemory:
    def test_tensors_that_overlap_still_do(self):
        flat = torch.arange(10.0)
        body = pack({"flat": flat, "parameter": nn.Parameter(flat[2:4]), "square": flat[4:8].view(2, 2)}, compact=False)
        found = unpack(body)
        found["flat"].zero_()
        assert found["parameter"].tolist() == [0, 0]
        assert found["square"].tolist() == [[0, 0], [0, 0]]
        assert len(body) < 10 * 4 + 1000  # the memory travels once

    def test_compact_sends_what_a_view_shows(self):
        table = torch.arange(1_000_000.0).view(1000, 1000)
        body = pack([table[3], table[:, 2]])
        assert len(body) < 2 * 4 * 1000 + 1500
        row, column = unpack(body)
        assert torch.equal(row, table[3])
        assert torch.equal(column, table[:, 2])


class TestRefusals:
    def test_the_culprit_is_named(self):
        module = nn.Sequential(nn.Linear(1, 1), nn.ModuleList([nn.Tanh()]))
        module[1][0].watchers = {"end": [3, threading.Lock()]}
        with pytest.raises(TypeError, match=r"agent\.1\[0\]\.watchers\['end'\]\[1\] is a lock and cannot be sent"):
            pack(module, "agent")

    def test_functions_without_a_name(self):
        with pytest.raises(TypeError, match=r"value\[0\] is the function .*<lambda> .*functools\.partial"):
            pack([lambda: 0])

    def test_circles_end(self):
        circle: list = [lambda: 0]
        circle.insert(0, circle)
        with pytest.raises(TypeError, match="cannot be sent"):
            pack(circle)


def test_sheets_carry_a_workspace_by_value():
    ws = Workspace(strict=True, extra_row=("memory",))
    with torch.enable_grad():
        ws["action"] = torch.ones(2, 3, requires_grad=True) * 2
    ws["memory"] = torch.zeros(3, 3)
    found = unpack(pack(Sheet(ws))).workspace()
    assert found.strict
    assert found.extra_row == {"memory"}
    assert (found.T, found.B) == (2, 3)
    assert found.kind("action") == "packed"
    assert not found["action"].requires_grad
    assert torch.equal(found["action"], torch.full((2, 3), 2.0))
    shared = ws.share_memory(repeat=100)
    assert len(pack(Sheet(shared.batch_view(0, 3)))) < 1500
