from __future__ import annotations

import copy
import os
import threading

import pytest
import torch
from worker_cast import Walker, walk, walker

from gaitway.core.workspace import Variable, Workspace
from gaitway.processes.kinds import worker_class
from gaitway.processes.packing import pack, unpack
from gaitway.processes.remote import RemoteAgent
from gaitway.processes.worker_host import Failure, Host, PlainCell, WatchedWorkspace, answer, where_is
from gaitway.processes.workers import (
    Call,
    LocalWorker,
    RemoteError,
    Worker,
    WorkerConfig,
    describe_call,
    torch_threads,
)


class TestConfig:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"start_method": "thread"}, "start_method is 'thread'"),
            ({"threads": 0}, "threads is 0"),
            ({"start_timeout_s": 0.0}, r"start_timeout_s is 0; use a number > 0"),
        ],
    )
    def test_settings_are_checked(self, settings, message):
        with pytest.raises(ValueError, match=message):
            WorkerConfig(**settings)

    def test_kinds(self):
        assert worker_class("local") is LocalWorker
        assert issubclass(worker_class("processes"), Worker)
        with pytest.raises(ValueError, match="use one of"):
            worker_class("cluster")


class TestSentences:
    def test_calls_are_shown_as_they_are_written(self):
        options = {"n_steps": 5, "ended": torch.tensor([True, False]), "note": "x" * 1000}
        text = describe_call("step", 3, options)
        assert text.startswith("step(t=3, n_steps=5, ended=[True, False], note='xxx")
        assert len(text) < 200

    def test_long_actions_are_cut(self):
        worker = LocalWorker(4, None, WorkerConfig(), None)
        worker.seed = 9
        error = worker.error("it failed", "failed", torch.full((8, 2), 0.123456789), row=7)
        ending = "0.12346, 0.12346, 0.12346, 0.12346, 0.12346, 0.12346, ...] of shape [8, 2]"
        assert str(error) == f"it failed; the last action, of row 7, was [{ending}"
        assert (error.worker, error.seed, error.last_action.shape) == (4, 9, (8, 2))

    def test_errors_can_be_copied(self):
        error = LocalWorker(0, None, WorkerConfig(), None).error_of(Failure("ValueError", "", "trace"))
        assert str(error) == f"worker 0 (pid {os.getpid()}) failed before it was ready: ValueError"
        twin = copy.deepcopy(error)
        assert (str(twin), twin.traceback) == (str(error), "trace")


class TestWatchedWorkspace:
    @pytest.mark.parametrize("kind", ["growing", "dense", "shared"])
    def test_every_way_to_write_an_action_is_seen(self, kind):
        behind = Workspace() if kind == "growing" else Workspace.dense({"action": Variable(5, 2), "x": Variable(5, 2)})
        if kind == "shared":
            behind = behind.share_memory()
        cell = PlainCell()
        ws = WatchedWorkspace(cell, behind)
        assert ws.last_action() is None
        ws.put("action", 0, torch.tensor([1.0, 2.0]))
        assert (cell.value, ws.last_action().tolist()) == (0, [1, 2])
        ws.copier("action")(1, torch.tensor([3.0, 4.0]))
        assert (cell.value, ws.last_action().tolist()) == (1, [3, 4])
        ws.put("x", 4, torch.zeros(2))
        assert cell.value == 1
        ws["action"] = torch.arange(10.0).view(5, 2)
        assert (cell.value, ws.last_action().tolist()) == (4, [8, 9])
        assert torch.equal(behind["action"], ws["action"])


class TestHost:
    def test_failures_are_answers(self):
        host = Host(walker(1))
        body = answer(host, "fresh", pack((0, {"n_steps": 5, "trouble": "raise"}, None)), {})
        failure = unpack(body).failure
        assert (failure.exception, failure.row, failure.last_action.shape) == ("ValueError", 2, (2, 3))
        assert unpack(answer(host, "fresh", b"no pickle", {})).failure is not None
        assert "without an agent" in unpack(answer(Host(), "fresh", pack((0, {}, None)), {})).failure.message
        reply = unpack(answer(host, "fresh", pack((0, {"n_steps": 2}, None)), {}))
        assert reply.value[0] == 2

    def test_gradients_are_off(self):
        reply = Host(walker(1)).handle("fresh", (0, {"n_steps": 2}, None), {})
        assert not reply.value[2].tensors["action"].requires_grad

    def test_where_a_thread_is(self):
        place, stack = where_is(threading.get_ident())
        assert "worker_host.py, in where_is" in place
        assert "test_where_a_thread_is" in stack


class TestLocalWorker:
    def test_threads_are_those_of_a_worker(self):
        before = torch.get_num_threads()
        with torch_threads(3):
            assert torch.get_num_threads() == 3
        assert torch.get_num_threads() == before

    def test_one_request_at_a_time(self):
        worker = LocalWorker(0, Walker(1), WorkerConfig(), None)
        with pytest.raises(RuntimeError, match="was asked nothing"):
            worker.result()
        worker.request("fresh", (0, {}, None), Call("step", None), {})
        with pytest.raises(RuntimeError, match="still busy with step"):
            worker.request("fresh", (0, {}, None), Call("step", None), {})
        value, changed, sheet = worker.result()
        assert (value, changed) == (None, {})
        assert torch.equal(sheet.workspace()["action"], walk(Walker(1))["action"])
        worker.close()
        with pytest.raises(RemoteError, match="was closed"):
            worker.request("fresh", (0, {}, None), Call("step", None), {})

    def test_a_worker_starts_no_workers(self, monkeypatch):
        class Daemon:
            daemon = True

        monkeypatch.setattr("gaitway.processes.process_workers.current_process", Daemon)
        with pytest.raises(RuntimeError, match="cannot start workers of its own"):
            RemoteAgent(walker()).start()
