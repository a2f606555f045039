from __future__ import annotations

import copy
import os
import pickle

import pytest
import torch
from torch import nn
from worker_cast import FAST, Gate, Globals, Walker, assert_equal, descendants, shared, walk, walker

from gaitway.core.agent import Agent, Agents, TemporalAgent
from gaitway.core.workspace import Workspace
from gaitway.processes.remote import AsynchronousAgent, RemoteAgent
from gaitway.processes.workers import RemoteError


class Memory(Agent):
    """Adds 1 to its memory each row; `reset` empties it where an episode ended."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("memory", torch.zeros(2))

    def step(self, ws, t):
        self.memory += 1
        ws.put("memory", t, self.memory.clone())

    def reset(self, ws, t, mask):
        self.memory[mask] = 0


class Ends(Agent):
    """Column 1 ends its episode in row 1."""

    def step(self, ws, t):
        ws.put("env/terminated", t, torch.tensor([False, t == 1]))
        ws.put("env/truncated", t, torch.zeros(2, dtype=torch.bool))


class Normaliser(Agent):
    """Replaces a buffer by one of another shape, as few agents do and all may."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(0))

    def step(self, ws, t):
        self.seen = torch.cat((self.seen, torch.ones(1)))
        ws.put("action", t, torch.full((2, 3), float(len(self.seen))))


@pytest.fixture(scope="module")
def pool():
    """Remote agents by name; each process is started once."""
    before = descendants()
    agents = {
        "walker": RemoteAgent(walker(3), timeout_s=60, config=FAST),
        "asynchronous": AsynchronousAgent(walker(3), timeout_s=60, config=FAST),
    }
    yield agents
    for agent in agents.values():
        agent.close()
    assert not descendants() - before


@pytest.fixture
def remote(pool):
    remote = pool["walker"]
    assert not remote.is_running()
    return remote.train()


@pytest.fixture
def asynchronous(pool):
    return pool["asynchronous"]


class TestRemoteAgent:
    def test_numbers_are_those_of_a_local_clone(self):
        agent = walker()
        with RemoteAgent(agent, timeout_s=60, config=FAST) as remote:
            for seed in (3, 4):  # before the start, and after it
                local = walk(agent.clone().seed(seed), n_steps=5)
                ws = shared()
                assert remote.seed(seed) is remote
                assert remote(ws, 0, n_steps=5) == 5
                assert int(ws["process"][0, 0]) == remote.worker.pid != os.getpid()
                assert_equal(ws, local)

    def test_the_agents_own_seed_is_kept(self):
        ws, again = shared(), shared()
        with RemoteAgent(walker(7, rule="first"), timeout_s=60, config=FAST) as remote:
            remote(ws, 0, n_steps=5)
            assert remote.worker.seed == 7
            with pytest.raises(RuntimeError, match="already seeded with 7"):
                remote.seed(8)
            remote(again, 0, n_steps=5)  # goes on where the stream was
        local = walker(7)
        assert_equal(ws, walk(local, n_steps=5))
        assert_equal(again, walk(local, n_steps=5))

    def test_only_shared_workspaces(self, remote):
        with pytest.raises(ValueError, match=r"pass ws\.share_memory\(\)"):
            remote(walk(walker(), n_steps=1), 0, n_steps=1)

    def test_unknown_kinds_and_agents(self):
        with pytest.raises(ValueError, match="workers is 'threads'; use one of"):
            RemoteAgent(walker(), workers="threads")
        with pytest.raises(TypeError, match="takes an agent"):
            RemoteAgent(nn.Linear(1, 1))

    def test_a_workspace_is_sent_once_and_forgotten_with_its_last_user(self, remote, monkeypatch):
        sent = []
        send = type(remote.worker)._send if remote.was_started else None
        if send is None:
            remote(shared(), 0, n_steps=1)
            send = type(remote.worker)._send

        def note(self, request, arguments, workspaces):
            sent.append((sorted(workspaces), arguments[2]))
            send(self, request, arguments, workspaces)

        monkeypatch.setattr(type(remote.worker), "_send", note)
        first, second = shared(), shared()
        remote(first, 0, n_steps=1)
        remote(second, 0, n_steps=1)
        remote(first, 1, n_steps=1)
        number = sent[0][0][0]
        assert [new for new, _ in sent] == [[number], [number + 1], []]
        del first
        remote(second, 1, n_steps=1)
        assert number in sent[2][1]
        assert number not in sent[3][1]

    def test_views_and_slices_write_through(self, remote):
        whole = walk(walker(), n_steps=1).share_memory(repeat=2, rows=6)
        remote.seed(5)
        remote(whole.batch_view(2, 4), 0, n_steps=6)
        assert bool((whole["position"][:, :2] == 0).all())
        assert_equal(whole.batch_view(2, 4), walk(walker(5), n_steps=6))

    def test_options_reach_the_agent_and_time_too(self, remote):
        ws, local = shared(), Workspace()
        agent = walker(9)
        remote.seed(9)
        for t in (0, 2):
            remote(ws, t, n_steps=2)
            with torch.no_grad():
                agent(local, t, n_steps=2)
        assert_equal(ws.slice(0, 4), local)
        with pytest.raises(RemoteError, match=r"TypeError: no agent declares the options \['stochastic'\]"):
            remote(ws, 0, n_steps=1, stochastic=True)

    def test_training_mode_is_that_of_the_parent(self, remote):
        ws = shared()
        assert remote.eval() is remote
        remote.seed(1)(ws, 0, n_steps=3)
        assert_equal(ws.slice(0, 3), walk(walker(1).eval(), n_steps=3))
        Agents(remote).train()
        remote.seed(1)(ws, 0, n_steps=3)
        assert_equal(ws.slice(0, 3), walk(walker(1), n_steps=3))

    def test_asynchronous_calls(self, remote, tmp_path):
        ws = shared()
        with pytest.raises(RuntimeError, match="no call is under way"):
            remote.wait()
        with Gate(tmp_path) as gate:
            remote.seed(2).call_async(ws, 0, n_steps=5, trouble="gate", gate=gate.path)
            assert remote.is_running()
            for forbidden in (lambda: remote.call_async(ws, 0), lambda: remote(ws, 0), lambda: remote.seed(1)):
                with pytest.raises(RuntimeError, match=r"wait\(\) for it first"):
                    forbidden()
            gate.open()
            assert remote.wait() == 5
        assert not remote.is_running()
        assert_equal(ws, walk(walker(2), n_steps=5))

    def test_a_failed_call_is_told_by_wait_only(self, remote):
        remote.call_async(shared(), 0, n_steps=5, trouble="raise")
        remote.worker.wait_any([remote.worker])
        assert not remote.is_running()
        with pytest.raises(RemoteError, match="the floor is lava"):
            remote.wait()
        assert not remote.is_running()

    def test_memory_lives_in_the_worker(self):
        cast = Agents(Memory(), Ends())
        local = walk(TemporalAgent(cast.clone()), n_steps=4)
        ws = local.share_memory(rows=4)
        # over there row by row, over here the loop: resets cross the border too
        with RemoteAgent(cast, timeout_s=60, config=FAST) as remote:
            TemporalAgent(remote)(ws, 0, n_steps=4)
        assert torch.equal(ws["memory"], local["memory"])
        assert ws["memory"].tolist() == [[1, 1], [2, 2], [3, 1], [4, 2]]

    def test_copies_start_a_worker_of_their_own(self, remote):
        twin = pickle.loads(pickle.dumps(remote.clone()))
        assert not twin.was_started
        copy.deepcopy(twin)
        with pytest.raises(RuntimeError, match="no worker was started"):
            _ = twin.worker

    def test_names_and_prefixes(self):
        remote = RemoteAgent(Walker(name="legs"), name="far", config=FAST)
        assert remote.get_by_name("legs") == [remote.agent]
        assert remote.with_prefix("b/").writes == ("b/action", "b/position")
        assert remote.parts() == (remote.agent,)


class TestWeights:
    def test_bug_39_changes_in_the_parent_reach_the_worker(self, remote):
        agent, ws = remote.agent.agent, shared()
        optimiser = torch.optim.SGD([agent.scale], lr=1.0)
        for change in ("in place", "optimiser", "load_state_dict", "another tensor"):
            if change == "in place":
                with torch.no_grad():
                    agent.scale.fill_(2.0)
            elif change == "optimiser":
                agent.scale.grad = torch.tensor([1.0, 2.0, 3.0])
                optimiser.step()
            elif change == "load_state_dict":
                remote.agent.load_state_dict({"agent.scale": torch.full((3,), 5.0), "agent.count": torch.tensor(0)})
            else:
                agent.scale.data = torch.full((3,), -1.0)
            remote.seed(1)(ws, 0, n_steps=3)
            local = walker(1)
            with torch.no_grad():
                local.agent.scale.copy_(agent.scale)
            assert_equal(ws.slice(0, 3), walk(local, n_steps=3))

    def test_memory_of_the_parent_stays_where_it_is(self):
        agent = walker(1)
        view = agent.agent.scale.detach().numpy()  # as the updates written out for NumPy hold it
        ws = shared()
        with RemoteAgent(agent, timeout_s=60, config=FAST) as remote:
            remote(ws, 0, n_steps=1)
            view[:] = 0.0
            remote(ws, 0, n_steps=1)
        assert agent.agent.scale.tolist() == [0, 0, 0]
        assert bool((ws["action"][0] == 0).all())

    def test_push_parameters_of_a_separate_learner(self, remote):
        learner, ws = walker().double(), shared()
        with torch.no_grad():
            learner.agent.scale.fill_(3.0)
            learner.agent.count.fill_(70)
        assert remote.push_parameters(learner) is remote
        remote.seed(4)(ws, 0, n_steps=2)
        local = walker(4)
        with torch.no_grad():
            local.agent.scale.fill_(3.0)
        assert_equal(ws.slice(0, 2), walk(local, n_steps=2))
        assert int(remote.agent.agent.count) == 72
        with pytest.raises(ValueError, match="differ in"):
            remote.push_parameters(nn.Linear(3, 3))
        with pytest.raises(KeyError, match="no agent inside is called 'arms'"):
            remote.push_parameters(learner, "arms")

    def test_buffers_come_back(self, remote):
        counter, ws = remote.agent.agent, shared()
        before = int(counter.count)
        remote(ws, 0, n_steps=3)
        assert int(counter.count) == before + 3
        with torch.no_grad():
            counter.count.fill_(100)
        remote(ws, 0, n_steps=2)
        assert int(counter.count) == 102
        with pytest.raises(RemoteError):
            remote(ws, 0, n_steps=5, trouble="raise")  # counts three rows before it fails
        remote(ws, 0, n_steps=1)
        assert int(counter.count) == 106

    def test_buffers_may_change_their_shape(self):
        ws = shared()
        with RemoteAgent(Normaliser(), timeout_s=60, config=FAST) as remote:
            remote(ws, 0)
            remote(ws, 1)
            assert remote.agent.seen.tolist() == [1, 1]
        assert ws["action"][:2, 0, 0].tolist() == [1, 2]

    def test_unsent_changes_are_not_lost(self, remote):
        ws = shared()
        with torch.no_grad():
            remote.agent.agent.count.fill_(40)
            remote.agent.agent.scale.fill_(0.0)
        with pytest.raises(TypeError, match="cannot be sent"):
            remote(ws, 0, n_steps=1, gate=lambda: 0)
        remote(ws, 0, n_steps=1)
        assert int(remote.agent.agent.count) == 41
        assert bool((ws["action"][0] == 0).all())

    def test_networks_that_change_are_noticed(self, remote):
        other = RemoteAgent(walker(), timeout_s=60, config=FAST)
        other(shared(), 0, n_steps=1)
        other.agent.agent.scale = nn.Parameter(torch.ones(5))
        with pytest.raises(RuntimeError, match=r"'agent\.scale' \[5\] is not what it was when the worker started"):
            other(shared(), 0, n_steps=1)
        other.close()


class TestLocal:
    def test_the_same_in_this_process(self):
        ws = shared()
        with RemoteAgent(walker(3), workers="local") as remote:
            assert remote(ws, 0, n_steps=5) == 5
            assert not remote.is_running()
            assert_equal(ws, walk(walker(3), n_steps=5))
            assert int(ws["process"][0, 0]) == os.getpid()
            with pytest.raises(RemoteError, match="the floor is lava") as info:
                remote(ws, 0, n_steps=5, trouble="raise")
            assert isinstance(info.value.__cause__, ValueError)
            remote.seed(4)(ws, 0, n_steps=5)
            assert_equal(ws, walk(walker(4), n_steps=5))


class TestAsynchronousAgent:
    def test_runs_while_the_caller_goes_on(self, tmp_path):
        asynchronous = AsynchronousAgent(walker(3), timeout_s=60, config=FAST)
        assert not asynchronous.is_running()
        assert asynchronous.get_workspace() is None
        with pytest.raises(RuntimeError, match="no run was begun"):
            asynchronous.wait()
        with Gate(tmp_path) as gate:
            asynchronous(n_steps=4, trouble="gate", gate=gate.path)
            assert asynchronous.is_running()
            assert asynchronous.get_workspace() is None
            with pytest.raises(RuntimeError, match="a run is under way"):
                asynchronous(n_steps=1)
            asynchronous.agent.agent.scale.data.fill_(9.0)  # training goes on; this run keeps its weights
            gate.open()
            ws = asynchronous.wait()
        assert asynchronous.get_workspace() is ws
        assert ws.kind("action") == "packed"
        assert not ws["action"].requires_grad
        assert_equal(ws, walk(walker(3), n_steps=4))
        asynchronous.seed(3)(n_steps=4)  # the next one has the new weights
        local = walker(3)
        with torch.no_grad():
            local.agent.scale.fill_(9.0)
        assert_equal(asynchronous.wait(), walk(local, n_steps=4))
        asynchronous.close()

    @pytest.mark.parametrize("look", ["is_running", "get_workspace", "wait"])
    def test_bug_38_errors_are_told_by_every_look(self, asynchronous, look):
        asynchronous(n_steps=4, trouble="raise")
        if look != "wait":
            asynchronous.worker.wait_any([asynchronous.worker])
        for _ in range(2):
            with pytest.raises(RemoteError, match="the floor is lava; the last action, of row 2") as info:
                getattr(asynchronous, look)()
        assert info.value.last_action.shape == (2, 3)
        asynchronous(n_steps=2)
        assert asynchronous.wait().T == 2

    def test_an_error_nobody_saw_is_raised_by_the_next_run(self, asynchronous):
        asynchronous(n_steps=4, trouble="raise")
        asynchronous.worker.wait_any([asynchronous.worker])
        with pytest.raises(RemoteError, match="the floor is lava"):
            asynchronous(n_steps=1)
        asynchronous(n_steps=1)
        assert asynchronous.wait().T == 1

    def test_a_killed_run_is_told_and_may_start_anew(self):
        with AsynchronousAgent(walker(3), config=FAST) as agent:
            agent(n_steps=5, trouble="kill")
            with pytest.raises(RemoteError, match=r"was killed \(SIGKILL\)"):
                agent.wait()
            with pytest.raises(RemoteError, match="no worker runs any more"):
                agent(n_steps=1)
            agent.start()(n_steps=5)
            assert_equal(agent.wait(), walk(walker(3), n_steps=5))

    def test_it_has_no_place_in_a_cast(self, asynchronous):
        with pytest.raises(TypeError, match="use RemoteAgent"):
            Agents(asynchronous).agents[0].step(Workspace(), 0)

    def test_its_global_random_numbers_are_not_ours(self):
        torch.manual_seed(0)
        expected = torch.rand(1)
        torch.manual_seed(0)
        with AsynchronousAgent(Globals(), timeout_s=60, config=FAST) as agent:
            agent()
            agent.wait()
        assert torch.equal(torch.rand(1), expected)
