"""Traces: every access of a cast as a JSON line, and nothing else changes."""

import json

import pytest
import torch

from gaitway.core.agent import Agent, Agents, TemporalAgent
from gaitway.core.small_agents import CopyAgent, WithOptions
from gaitway.core.tracing import SMALLEST, Trace, Traced
from gaitway.core.wiring import check_wiring
from gaitway.core.workspace import Variable, Workspace


class Count(Agent):
    writes = ("x",)

    def step(self, ws, t, *, by=1.0):
        ws.put("x", t, torch.full((2,), t * by))


class Bound(Agent):
    """Writes through what it looked up once."""

    reads, writes = ("x",), ("y",)

    def prepared_step(self, ws, options):
        put = ws.copier("y")
        return lambda t: put(t, ws.at("x", t))


class Memory(Agent):
    reads = ("x",)

    def step(self, ws, t):
        ws.at("x", t)

    def reset(self, ws, t, mask):
        ws.put("reset", t, mask)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def accesses(path):
    return [(line["class"], line["access"], line["name"], line["t"]) for line in lines(path)]


def test_bug_23_one_json_line_per_access(tmp_path):
    path, now = tmp_path / "trace.jsonl", iter([5.0, 5.25])
    with Trace(path, clock=lambda: next(now)) as trace:
        trace.cast(Agents(Count(name="counter")))(Workspace(), 0)
    assert lines(path) == [
        {
            "time": 0.25,
            "agent": "counter",
            "class": "Count",
            "access": "write",
            "name": "x",
            "t": 0,
            "shape": [2],
            "dtype": "float32",
        }
    ]


def test_a_whole_cast_over_time_in_the_order_of_its_accesses(tmp_path):
    path, ws, plain = tmp_path / "trace.jsonl", Workspace(), Workspace()
    cast = TemporalAgent(Agents(Count(), Agents(Bound(), WithOptions(CopyAgent("y", "z")))))
    cast(plain, n_steps=2, by=3.0)
    with Trace(path) as trace:
        assert trace.cast(cast)(ws, n_steps=2, by=3.0) == 2
        assert trace.accesses == 10
    row = [("Count", "write", "x"), ("Bound", "read", "x"), ("Bound", "write", "y")]
    row += [("CopyAgent", "read", "y"), ("CopyAgent", "write", "z")]
    assert accesses(path) == [(*access, t) for t in (0, 1) for access in row]
    assert all(torch.equal(ws[name], plain[name]) for name in plain)
    assert ws.keys() == plain.keys()
    assert not any(isinstance(part, Traced) for part in cast.modules())  # the cast itself is as it was


def test_resets_whole_variables_and_rows_are_noted(tmp_path):
    class Reads(Agent):
        def step(self, ws, t):
            ws["x"], ws["x", "y"]
            ws.span("x", 0, 2)
            ws["sum"] = ws["x"] + 1
            ws.slice(0, 1), ws.select([0]), ws.batch_view(0, 1).at("y", 0)
            ws.copy_time(0, 1, 1, ["y"])
            ws.clear("sum")

    path = tmp_path / "trace.jsonl"
    ws = Workspace.packed({"x": torch.zeros(2, 2), "y": torch.zeros(2, 2)})
    with Trace(path) as trace:
        trace.cast(Reads())(ws)
        trace.cast(Agents(Memory())).reset(ws, 1, torch.tensor([True, False]))
    found = [access[1:] for access in accesses(path)]
    assert found == [
        ("read", "x", None),
        ("read", "x", None),
        ("read", "y", None),
        ("read", "x", [0, 2]),
        ("read", "x", None),
        ("write", "sum", None),
        ("read", "x", [0, 1]),
        ("read", "y", [0, 1]),
        ("read", "sum", [0, 1]),
        ("read", "x", None),
        ("read", "y", None),
        ("read", "sum", None),
        ("read", "y", 0),
        ("read", "y", [0, 1]),
        ("write", "y", [1, 2]),
        ("clear", "sum", None),
        ("write", "reset", 1),
    ]
    assert ws.keys() == ["x", "y", "reset"]


def test_an_access_that_fails_is_the_last_line_and_on_disk_at_once(tmp_path):
    path = tmp_path / "trace.jsonl"
    trace = Trace(path)
    with pytest.raises(KeyError):
        trace.cast(CopyAgent("missing", "z"))(Workspace(), 3)
    assert lines(path)[-1]["error"] == "KeyError"
    assert lines(path)[-1]["name"] == "missing"
    assert lines(path)[-1]["t"] == 3
    dense = Workspace.dense({"x": Variable(1, 2)})
    with pytest.raises(IndexError):
        trace.cast(Count())(dense, 1)
    assert (lines(path)[-1]["access"], lines(path)[-1]["error"]) == ("write", "IndexError")
    trace.close()


def test_the_limit_stops_the_trace_and_not_the_agents(tmp_path):
    path, ws = tmp_path / "trace.jsonl", Workspace()
    with Trace(path, max_bytes=SMALLEST) as trace:
        trace.cast(TemporalAgent(Count()))(ws, n_steps=50)
        assert trace.is_full
        written = trace.accesses
    assert path.stat().st_size <= SMALLEST
    *kept, last = lines(path)
    assert 0 < len(kept) == written < 50
    assert last["stopped"].startswith(f"the trace reached its limit of {SMALLEST} bytes after {written} accesses")
    assert ws.T == 50
    with pytest.raises(ValueError, match="max_bytes"):
        Trace(path, max_bytes=10)


def test_closed_copied_and_wired(tmp_path):
    path, ws = tmp_path / "trace.jsonl", Workspace()
    trace = Trace(path)
    cast = trace.cast(TemporalAgent(Agents(Count(), CopyAgent("x", "z"))))
    check_wiring(cast)
    assert cast.writes == ("x", "z")
    cast.clone()(ws, n_steps=1)  # a copy is not traced
    trace.close()
    trace.close()
    cast(ws, n_steps=1)  # and after closing nobody is
    assert path.read_text() == ""
    assert ws["z"].tolist() == [[0, 0]]
