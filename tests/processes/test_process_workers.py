from __future__ import annotations

import gc
import multiprocessing
import os
import select
import signal
import time

import pytest
import torch
from worker_cast import (
    FAST,
    FailsOnArrival,
    ReturnsFunction,
    Slow,
    Unpicklable,
    assert_equal,
    descendants,
    hang_with_a_worker,
    shared,
    walk,
    walker,
)

from gaitway.processes import process_workers as processes
from gaitway.processes.remote import RemoteAgent
from gaitway.processes.workers import RemoteError, WorkerConfig


@pytest.fixture(autouse=True)
def _nothing_left_running():
    before = descendants() | {child.pid for child in multiprocessing.active_children()}
    yield
    assert not descendants() - before
    assert not {child.pid for child in multiprocessing.active_children()} - before


@pytest.fixture(scope="module")
def walking():
    """A worker that several tests use; each leaves it able to walk."""
    remote = RemoteAgent(walker(3), timeout_s=60, config=FAST)
    remote(shared(), 0, n_steps=1)
    yield remote
    remote.close()


class TestHandshake:
    def test_bug_37_a_call_returns_when_its_work_is_done(self):
        ws = shared(rows=3)
        with RemoteAgent(Slow(), timeout_s=60, config=FAST) as remote:
            for t in range(3):
                remote(ws, t)
                assert bool((ws["action"][: t + 1] == 1).all())
                assert bool((ws["action"][t + 1 :] == 0).all())

    def test_each_reply_belongs_to_its_request(self):
        with RemoteAgent(walker(3), timeout_s=60, config=FAST) as remote:
            assert [remote(shared(), 0, n_steps=n) for n in (1, 4, 2)] == [1, 4, 2]

    def test_spawn_is_the_default_and_starts_without_waiting(self):
        assert WorkerConfig().start_method == "spawn"
        ws = shared()
        with RemoteAgent(walker(3), timeout_s=60) as remote:
            assert not remote.is_running()
            remote(ws, 0, n_steps=5)
            assert int(ws["process"][0, 0]) == remote.worker.pid
        assert_equal(ws, walk(walker(3), n_steps=5))

    def test_fork_gives_the_same(self):
        ws = shared()
        with RemoteAgent(walker(3), timeout_s=60, config=WorkerConfig(start_method="fork")) as remote:
            remote(ws, 0, n_steps=5)
        assert_equal(ws, walk(walker(3), n_steps=5))

    def test_an_agent_that_cannot_be_made_there_is_reported(self):
        remote = RemoteAgent(FailsOnArrival(), timeout_s=60, config=FAST)
        with pytest.raises(
            RemoteError, match="failed before it was ready: FileNotFoundError: the model is not"
        ) as info:
            remote(shared(), 0)
        assert "__setstate__" in info.value.traceback
        with pytest.raises(RemoteError, match="no worker runs any more, because worker 0"):
            remote(shared(), 0)

    def test_a_worker_that_never_starts_is_given_up(self):
        config = WorkerConfig(start_method="spawn", start_timeout_s=0.01)
        with pytest.raises(RemoteError, match=r"did not start within 0\.01 s and was ended") as info:
            RemoteAgent(walker(), config=config)(shared(), 0, n_steps=1)
        assert info.value.kind == "hung"

    def test_large_requests_wait_until_somebody_reads(self):
        ws = shared()
        with RemoteAgent(walker(3), timeout_s=60, config=FAST) as remote:
            remote(ws, 0, n_steps=1, gate="x" * 1_000_000)
        assert_equal(ws.slice(0, 1), walk(walker(3), n_steps=1))


class TestErrors:
    def test_bug_38_an_exception_of_the_worker_reaches_the_caller(self, walking):
        ws = shared()
        with pytest.raises(RemoteError) as info:
            walking(ws, 0, n_steps=5, trouble="raise")
        error = info.value
        assert str(error).startswith(f"worker 0 (pid {walking.worker.pid}, seed 3) failed in step(t=0, n_steps=5")
        assert "ValueError: the floor is lava; the last action, of row 2, was [[" in str(error)
        assert "\n" not in str(error)
        assert (error.kind, error.worker, error.seed, error.exception) == ("failed", 0, 3, "ValueError")
        assert torch.equal(error.last_action, ws["action"][2])
        assert "make_trouble" in error.traceback
        assert "(second line)" in "".join(error.__notes__)
        assert walking(ws, 0, n_steps=2) == 2  # the worker goes on

    def test_leaving_python_is_an_exception_like_others(self, walking):
        with pytest.raises(RemoteError, match="SystemExit: out of here"):
            walking(shared(), 0, n_steps=5, trouble="exit")
        assert walking(shared(), 0, n_steps=1) == 1

    def test_options_and_results_that_cannot_travel(self, walking):
        with pytest.raises(TypeError, match=r"the arguments\[4\]\['gate'\] is the function .*<lambda>"):
            walking(shared(), 0, n_steps=1, gate=lambda: 0)
        assert walking(shared(), 0, n_steps=1) == 1
        with (
            RemoteAgent(ReturnsFunction(), timeout_s=60, config=FAST) as remote,
            pytest.raises(RemoteError, match=r"TypeError: what the agent returned\.value\[0\] is the function"),
        ):
            remote(shared(), 0)

    def test_unpicklable_agents_are_refused_by_name_before_anything_starts(self, monkeypatch):
        monkeypatch.setattr(processes, "_in_shared_memory", lambda body: pytest.fail("went on to start"))
        remote = RemoteAgent(Unpicklable(), config=FAST)
        with pytest.raises(TypeError, match=r"agent\.callbacks\['reward'\]\[1\] is the function .*<lambda> and cannot"):
            remote(shared(), 0)
        assert not remote.was_started


class TestDeaths:
    """The three ways to go wrong that nobody answers for: each is one sentence, soon, and the parent goes on."""

    @pytest.mark.parametrize(
        ("trouble", "sentence", "exit_code"),
        [
            ("kill", "was killed (SIGKILL) in step(t=0, n_steps=5, trouble='kill'), probably by the system", -9),
            ("fault", "died of SIGSEGV in step(t=0, n_steps=5, trouble='fault')", -11),
            ("leave", "ended with exit code 3 in step(t=0, n_steps=5, trouble='leave')", 3),
        ],
    )
    def test_bug_38_a_dead_worker_is_noticed_at_once(self, trouble, sentence, exit_code):
        remote, ws = RemoteAgent(walker(3), config=FAST), shared()
        assert remote(ws, 0, n_steps=1) == 1
        started = time.monotonic()
        with pytest.raises(RemoteError) as info:
            remote(ws, 0, n_steps=5, trouble=trouble)
        assert time.monotonic() - started < 10
        assert sentence in str(info.value)
        assert "\n" not in str(info.value)
        assert info.value.exit_code == exit_code
        assert torch.equal(info.value.last_action, ws["action"][2])
        with pytest.raises(RemoteError, match=r"no worker runs any more, because worker 0 .* start\(\) begins"):
            remote(ws, 0, n_steps=1)
        assert remote.start()(ws, 0, n_steps=5) == 5
        remote.close()

    def test_a_hanging_worker_is_ended_and_says_where_it_was(self):
        remote, ws = RemoteAgent(walker(3), timeout_s=2.0, config=FAST), shared()
        started = time.monotonic()
        with pytest.raises(RemoteError) as info:
            remote(ws, 0, n_steps=5, trouble="hang")
        assert time.monotonic() - started < 30  # two seconds after the worker was ready, which may take a while
        message = str(info.value)
        assert "hung and was ended: step(t=0, n_steps=5, trouble='hang') gave no answer for 2." in message
        assert "of worker_cast.py, in make_trouble: signal.pause(); the last action, of row 2, was [[" in message
        assert "\n" not in message
        assert info.value.kind == "hung"
        assert "in step" in info.value.traceback
        assert not remote.is_running()

    def test_a_time_limit_of_one_wait(self):
        ws = shared()
        with RemoteAgent(walker(3), config=FAST) as remote:
            remote(ws, 0, n_steps=1)
            remote.call_async(ws, 0, n_steps=5, trouble="hang")
            assert remote.is_running()
            with pytest.raises(RemoteError, match=r"gave no answer for 0\.\d s"):
                remote.wait(timeout_s=0.3)

    def test_a_stopped_process_gives_no_sign_of_life(self):
        with RemoteAgent(walker(3), config=FAST) as remote:
            remote(shared(), 0, n_steps=1)
            os.kill(remote.worker.pid, signal.SIGSTOP)
            remote.call_async(shared(), 0, n_steps=1)
            with pytest.raises(RemoteError, match="an unknown place"):
                remote.wait(timeout_s=0.3)


class TestEnds:
    def test_close_twice_and_while_busy(self):
        remote, ws = RemoteAgent(walker(), config=FAST), shared()
        remote.close()
        remote(ws, 0, n_steps=1)
        remote.call_async(ws, 0, n_steps=5, trouble="hang")
        started = time.monotonic()
        remote.close()
        remote.close()
        assert time.monotonic() - started < 10
        assert not remote.is_running()
        with pytest.raises(RuntimeError, match="was closed"):
            remote(ws, 0, n_steps=1)

    def test_garbage_collection_ends_the_process(self):
        remote = RemoteAgent(walker(), config=FAST)
        remote(shared(), 0, n_steps=1)
        pid = remote.worker.pid
        assert pid in descendants()
        del remote
        gc.collect()
        assert pid not in descendants()

    def test_interrupting_a_wait_ends_the_worker(self):
        ws = shared()
        with RemoteAgent(walker(), config=FAST) as remote:
            remote(ws, 0, n_steps=1)
            with pytest.raises(KeyboardInterrupt):
                remote(ws, 0, n_steps=5, trouble="interrupt")
            with pytest.raises(RuntimeError, match=r"KeyboardInterrupt interrupted its caller|was closed"):
                remote(ws, 0, n_steps=1)

    def test_workers_do_not_see_ctrl_c(self, walking):
        assert walking(shared(), 0, n_steps=1) == 1
        os.kill(walking.worker.pid, signal.SIGINT)
        assert walking(shared(), 0, n_steps=2) == 2


@pytest.mark.parametrize(
    ("method", "end"),
    [("fork", "SIGKILL"), ("fork", "SIGTERM"), ("fork", "SIGINT"), ("fork", "crash"), ("spawn", "SIGKILL")],
)
def test_no_worker_survives_its_parent(method, end):
    context = multiprocessing.get_context("forkserver")
    here, there = context.Pipe()
    parent = context.Process(target=hang_with_a_worker, args=(there, method))
    parent.start()
    ended = os.pidfd_open(here.recv())
    if end == "crash":
        here.send("crash")
    else:
        os.kill(parent.pid, getattr(signal, end))
    waiting = select.poll()
    waiting.register(ended, select.POLLIN)
    assert waiting.poll(10_000), f"a worker outlived its parent after {end}"
    os.close(ended)
    parent.join(10)
    assert parent.exitcode != 0
    parent.close()
