from __future__ import annotations

import os
import pickle
import time

import pytest
import torch
from torch import nn
from worker_cast import FAST, Gate, Globals, Unpicklable, Walker, assert_equal, descendants, walk, walker

from gaitway.core.agent import Agents, TemporalAgent
from gaitway.core.seeding import global_state
from gaitway.core.workspace import Workspace
from gaitway.envs.env_agent import EnvAgent
from gaitway.envs.registry import make_env
from gaitway.processes.n_remote import NRemoteAgent
from gaitway.processes.workers import RemoteError

BATCH, N = 2, 2


@pytest.fixture(scope="module")
def trio():
    """The agent, its copies in two processes, and their workspace of six rows."""
    before, agent = descendants(), walker()
    agents, ws = NRemoteAgent.create(agent, N, rows=6, n_steps=2, timeout_s=60, config=FAST)
    yield agent, agents, ws
    agents.close()
    assert not descendants() - before


def expected(seed: int, increment: int = 1, scale: float = 1.0) -> Workspace:
    """Local runs of six rows, side by side."""
    runs = []
    for k in range(N):
        agent = walker(seed + k * increment)
        with torch.no_grad():
            agent.agent.scale.fill_(scale)
        runs.append(walk(agent, n_steps=6))
    return Workspace.cat(runs)


class TestCreate:
    def test_bug_40_the_argument_stays_as_it_is(self):
        torch.manual_seed(5)
        agent = Agents(Walker(7, rule="first"), Globals())
        before, random = walk(agent.clone()), global_state()
        agents, ws = NRemoteAgent.create(agent, 2)
        assert torch.equal(torch.get_rng_state(), random["torch"])
        assert torch.equal(global_state()["numpy"][1], random["numpy"][1])
        assert int(agent[0].count) == 0
        assert agent[0]._seeds == [7]
        assert torch.equal(walk(agent.clone())["position"], before["position"])
        assert not ws["position"].any()  # nothing of the trial run is left
        with pytest.raises(RuntimeError, match="already seeded with 7"):
            agents.seed(0)  # only when asked to

    def test_shapes(self):
        for count, rows, shape in ((0, None, (4, 2, 3)), (1, None, (4, 2, 3)), (3, None, (4, 6, 3)), (3, 9, (9, 6, 3))):
            agents, ws = NRemoteAgent.create(walker(), count, rows, n_steps=4)
            assert ws["position"].shape == shape
            assert ws.is_shared
            assert len(agents.agents) == max(count, 1)
        with pytest.raises(ValueError, match="num_processes is -1"):
            NRemoteAgent.create(walker(), -1, n_steps=1)
        with pytest.raises(ValueError, match=r"NRemoteAgent\.create"):
            NRemoteAgent([])

    def test_unpicklable_agents_are_refused_before_anything_starts(self):
        agents, ws = NRemoteAgent.create(Agents(Walker(), Globals(), HasCallback()), 2, config=FAST)
        before = descendants()
        with pytest.raises(TypeError, match=r"agent\.agents\[2\]\.callbacks\['reward'\]\[1\] is the function"):
            agents(ws, 0)
        assert descendants() == before


class HasCallback(Unpicklable):
    def step(self, ws, t):
        pass


class TestCall:
    @pytest.mark.parametrize(("seed", "increment"), [(5, 1), (0, 10)])
    def test_columns_are_those_of_local_clones(self, trio, seed, increment):
        _, agents, ws = trio
        assert agents.seed(seed, increment) is agents
        assert agents(ws, 0, n_steps=6) == [6, 6]
        assert_equal(ws, expected(seed, increment))
        owners = ws["process"][0].tolist()
        assert owners[0] == owners[1] != owners[2] == owners[3]
        assert os.getpid() not in owners

    def test_in_this_process(self):
        agents, ws = NRemoteAgent.create(walker(), 0, n_steps=6)
        with agents.seed(5):
            assert agents(ws, 0, n_steps=6) == [6]
            assert not agents.is_running()
        assert_equal(ws, walk(walker(5), n_steps=6))

    def test_bug_41_after_a_call_nothing_runs_and_views_are_sent_once(self, trio, monkeypatch):
        agent, agents, ws = trio
        agents.seed(1)(ws, 0, n_steps=1)
        assert not agents.is_running()
        sent = []
        kind = type(agents.agents[0].worker)
        send = kind._send

        def note(self, request, arguments, workspaces):
            sent.append(len(workspaces))
            send(self, request, arguments, workspaces)

        monkeypatch.setattr(kind, "_send", note)
        agents(ws, 0, n_steps=1)
        assert sent == [0, 0]
        assert [id(p) for p in agents.parameters()] == [id(agent.agent.scale)]
        assert len(list(agents.buffers())) == N
        assert isinstance(agents.agents, nn.ModuleList)
        assert agents.to("cpu") is agents

    def test_calls_overlap_and_refuse_a_second_one(self, trio, tmp_path):
        _, agents, ws = trio
        with pytest.raises(RuntimeError, match="no call is under way"):
            agents.wait()
        with Gate(tmp_path) as gate:
            agents.seed(3).call_async(ws, 0, n_steps=6, trouble="gate", gate=gate.path)
            assert agents.is_running()
            with pytest.raises(RuntimeError, match="still busy"):
                agents(ws, 0, n_steps=1)
            gate.open(N)
            assert agents.wait() == [6, 6]
        assert_equal(ws, expected(3))

    def test_weights_are_shared_by_all(self, trio):
        agent, agents, ws = trio
        with torch.no_grad():
            agent.agent.scale.fill_(4.0)
        agents.seed(8)(ws, 0, n_steps=6)
        assert_equal(ws, expected(8, scale=4.0))
        learner = walker()
        learner.agent.count.fill_(50)
        agents.push_parameters(learner).seed(8)
        agents(ws, 0, n_steps=6)
        assert_equal(ws, expected(8))
        assert [int(count) for count in agents.buffers()] == [56, 56]
        assert agent.agent.scale.tolist() == [1, 1, 1]

    def test_training_mode(self, trio):
        _, agents, ws = trio
        agents.eval().seed(2)
        agents(ws, 0, n_steps=6)
        assert_equal(ws, Workspace.cat([walk(walker(2 + k).eval(), n_steps=6) for k in range(N)]))
        agents.train()

    def test_columns_must_be_shared_out_evenly(self, trio):
        _, agents, _ = trio
        odd = walk(walker(), n_steps=1).batch_view(0, 1).share_memory(repeat=3)
        with pytest.raises(ValueError, match="3 columns cannot be shared by 2 processes"):
            agents(odd, 0, n_steps=1)

    def test_in_a_cast(self, trio):
        agent, agents, _ = trio
        assert (agents.reads, agents.writes) == (agent.reads, agent.writes)
        assert agents.declared_options() == agent.declared_options()
        assert not agents.resets
        assert len(agents.parts()) == 1
        twin = pickle.loads(pickle.dumps(agents.clone()))
        assert not twin.agents[0].was_started

    @pytest.mark.parametrize("id", ["gymnasium:CartPole-v1", "toy/cartpole"])
    def test_bug_12_environments_run_in_the_workers(self, id):
        def cast() -> TemporalAgent:
            world = EnvAgent(make_env(id, num_envs=3, seed=4))
            return TemporalAgent(Agents(world.observe, Push(), world.advance))

        agents, ws = NRemoteAgent.create(cast(), 2, n_steps=30, config=FAST, timeout_s=60)
        with agents:
            agents(ws, 0, n_steps=30)
        local = walk(cast(), n_steps=30)
        assert bool(ws["env/done"].any())
        assert_equal(ws, Workspace.cat([local, local]))


class Push(Walker):
    """Pushes the cart to the right."""

    def step(self, ws, t):
        ws.put("action", t, torch.ones(3, dtype=torch.int64))


class TestTrouble:
    def test_one_that_fails_does_not_cost_the_others(self, trio):
        _, agents, ws = trio
        with pytest.raises(RemoteError, match=r"worker [01] .* the floor is lava"):
            agents(ws, 0, n_steps=6, trouble="raise")
        assert not agents.is_running()
        agents.seed(5)(ws, 0, n_steps=6)
        assert_equal(ws, expected(5))

    def test_one_that_dies_while_others_hang_is_told_within_a_second(self):
        before = descendants()
        agents, ws = NRemoteAgent.create(walker(), 2, rows=6, n_steps=1, config=FAST)
        agents(ws, 0, n_steps=1)
        agents.agents[0].call_async(agents._views_of(ws)[0], 0, n_steps=6, trouble="kill")
        agents.agents[1].call_async(agents._views_of(ws)[1], 0, n_steps=6, trouble="hang")
        started = time.monotonic()
        with pytest.raises(RemoteError, match=r"worker 0 .* was killed \(SIGKILL\)"):
            agents.wait()
        assert time.monotonic() - started < 1
        assert not agents.is_running()
        assert descendants() == before
        agents.start().seed(5)
        agents(ws, 0, n_steps=6)
        assert_equal(ws, expected(5))
        agents.close()
        agents.close()
