"""On a local instance of Ray with two workers."""

from __future__ import annotations

import os
import select
import signal
import time

import pytest
import torch
from worker_cast import (
    FailsOnArrival,
    Gate,
    Unpicklable,
    assert_equal,
    fail_at_three,
    kill_at_three,
    set_scale,
    shared,
    walk,
    walker,
)

from gaitway.core.workspace import Workspace
from gaitway.processes.n_remote import NRemoteAgent
from gaitway.processes.population import AgentPopulation, ParamPopulation
from gaitway.processes.remote import AsynchronousAgent, RemoteAgent
from gaitway.processes.workers import RemoteError, WorkerConfig

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow

SCALES = [0.5, 1.0, 2.0, 3.0, 4.0]
SMALL = WorkerConfig(ray_options={"num_cpus": 0.25})  # a few of them live at the same time


@pytest.fixture(scope="module", autouse=True)
def _cluster():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", os.path.dirname(__file__))
        before = signal.getsignal(signal.SIGTERM)
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
        signal.signal(signal.SIGTERM, before)  # Ray puts its own there
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def population():
    with ParamPopulation(walker(), 2, workers="ray", timeout_s=60, config=SMALL) as population:
        yield population


@pytest.fixture(scope="module")
def remote():
    with RemoteAgent(walker(3), workers="ray", timeout_s=60, config=SMALL) as remote:
        yield remote


class TestPopulation:
    def test_one_word_changes_and_no_number(self, population):
        local = ParamPopulation(walker())(SCALES, set_scale, n_steps=3)
        for _ in range(2):
            found = population(SCALES, set_scale, n_steps=3)
            for mine, theirs in zip(local, found, strict=True):
                assert_equal(theirs, mine)
        pids = {int(ws["process"][0, 0]) for ws in found}
        assert os.getpid() not in pids
        assert pids <= {worker.pid for worker in population._workers}

    def test_errors(self, population):
        with pytest.raises(
            RemoteError, match=r"individual 3 in worker \d \(pid \d+, seed 3\) failed .*no such"
        ) as info:
            population(SCALES, fail_at_three, n_steps=3)
        assert "fail_at_three" in info.value.traceback
        assert [ws is None for ws in population.get_workspaces()] == [False, False, False, True, False]

    def test_a_killed_worker_is_replaced(self, population):
        started = time.monotonic()
        with pytest.raises(RemoteError, match=r"individual 3 .* died .*: its process crashed or was killed") as info:
            population([1.0, 2.0, 4.0, 3.0], kill_at_three, n_steps=3)
        assert time.monotonic() - started < 60
        assert "\n" not in str(info.value)
        assert info.value.kind == "died"
        assert len(population(SCALES, set_scale, n_steps=1)) == 5

    def test_agents(self):
        with AgentPopulation(1, workers="ray", config=SMALL) as population:
            found = population([walker(), walker()], [{"n_steps": 2}, {"n_steps": 3}])
        assert_equal(found[0], walk(walker(0), n_steps=2))
        assert_equal(found[1], walk(walker(1), n_steps=3))


class TestRemote:
    def test_results_are_copied_into_the_shared_workspace(self, remote):
        ws = shared()
        address = ws["position"].data_ptr()
        assert remote.seed(4)(ws, 0, n_steps=5) == 5
        assert_equal(ws, walk(walker(4), n_steps=5))
        assert ws["position"].data_ptr() == address
        assert int(ws["process"][0, 0]) == remote.worker.pid != os.getpid()

    def test_weights_buffers_and_modes(self, remote):
        ws, agent = shared(), walker(5)
        set_scale(remote.agent, 3.0)
        set_scale(agent, 3.0)
        before = int(remote.agent.agent.count)
        remote.seed(5)(ws, 0, n_steps=5)
        assert_equal(ws, walk(agent, n_steps=5))
        assert int(remote.agent.agent.count) == before + 5
        remote.eval()
        remote(ws, 0, n_steps=5)
        assert_equal(ws, walk(agent.eval(), n_steps=5))
        remote.train()

    def test_errors_leave_the_worker_alive(self, remote):
        ws = shared()
        with pytest.raises(RemoteError, match="the floor is lava; the last action, of row 2"):
            remote(ws, 0, n_steps=5, trouble="raise")
        assert remote(ws, 0, n_steps=2) == 2

    def test_columns_are_gathered(self):
        agents, ws = NRemoteAgent.create(walker(), 2, workers="ray", n_steps=5, timeout_s=60, config=SMALL)
        with agents.seed(7):
            assert agents(ws, 0, n_steps=5) == [5, 5]
        assert_equal(ws, Workspace.cat([walk(walker(7 + k), n_steps=5) for k in range(2)]))

    def test_asynchronous_runs_keep_their_weights(self, tmp_path):
        with (
            AsynchronousAgent(walker(3), workers="ray", timeout_s=60, config=SMALL) as agent,
            Gate(tmp_path) as gate,
        ):
            agent(n_steps=4, trouble="gate", gate=gate.path)
            assert agent.is_running()
            set_scale(agent.agent, 9.0)
            gate.open()
            assert_equal(agent.wait(), walk(walker(3), n_steps=4))

    def test_a_hanging_worker_is_ended_and_says_where_it_was(self):
        remote = RemoteAgent(walker(3), workers="ray", config=SMALL)
        remote(shared(), 0, n_steps=1)
        ended = os.pidfd_open(remote.worker.pid)
        remote.call_async(shared(), 0, n_steps=5, trouble="hang")
        with pytest.raises(RemoteError, match=r"hung and was ended: .* in make_trouble: signal\.pause\(\)"):
            remote.wait(timeout_s=1.0)
        waiting = select.poll()
        waiting.register(ended, select.POLLIN)
        assert waiting.poll(10_000)
        os.close(ended)
        remote.close()

    def test_refusals(self):
        with pytest.raises(TypeError, match=r"agent\.callbacks\['reward'\]\[1\]"):
            RemoteAgent(Unpicklable(), workers="ray").start()
        with pytest.raises(RemoteError, match="failed before it was ready: FileNotFoundError"):
            RemoteAgent(FailsOnArrival(), workers="ray", config=SMALL)(shared(), 0)
        config = WorkerConfig(ray_options={"num_cpus": 64}, start_timeout_s=0.5)
        with pytest.raises(RemoteError, match=r"the cluster may have no room for \{'num_cpus': 64\}"):
            RemoteAgent(walker(), workers="ray", config=config)(shared(), 0, n_steps=1)


def test_numbers_survive_the_journey():
    value = torch.randn(3, generator=torch.Generator().manual_seed(0))
    ws = shared()
    with RemoteAgent(walker(3), workers="ray", timeout_s=60, config=SMALL) as remote:
        remote.agent.agent.scale.data.copy_(value)
        remote(ws, 0, n_steps=1)
    agent = walker(3)
    set_scale(agent, value)
    assert torch.equal(ws["action"][0], walk(agent, n_steps=1)["action"][0])
