"""Agents, casts and time."""

import copy
import gc
import importlib
import inspect
import pickle
import pkgutil
import types
import weakref

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import gaitway.agents
import gaitway.core
import gaitway.data
from gaitway.core.agent import Agent, Agents, TemporalAgent
from gaitway.core.workspace import Variable, Workspace


class Add(Agent):
    """y[t] = x[t] + amount."""

    reads = ("x",)
    writes = ("y",)

    def step(self, ws, t, *, amount=1.0):
        ws.put(self.out("y"), t, ws.at("x", t) + amount)


class Count(Agent):
    """x[t] = t."""

    writes = ("x",)

    def step(self, ws, t):
        ws.put("x", t, torch.full((2,), float(t)))


class Anything(Agent):
    def __init__(self):
        super().__init__()
        self.seen = []

    def step(self, ws, t, **options):
        self.seen.append(options)


class Seeded(Agent):
    def __init__(self):
        super().__init__()
        self.value = None

    def step(self, ws, t):
        pass

    def seed(self, seed):
        self.value = seed
        return self


class Memory(Agent):
    """Sums x within an episode: the state restarts where reset says so."""

    reads = ("x",)
    writes = ("sum",)

    def __init__(self):
        super().__init__()
        self.state = torch.zeros(2)
        self.calls = []

    def step(self, ws, t):
        self.state = self.state + ws.at("x", t)
        ws.put("sum", t, self.state)

    def reset(self, ws, t, mask):
        self.calls.append((t, mask.tolist()))
        self.state = torch.where(mask, torch.zeros(2), self.state)


class Flags(Agent):
    """Writes env flags from a table {row: (terminated, truncated, valid)}."""

    writes = ("env/terminated", "env/truncated")

    def __init__(self, table, with_valid=False):
        super().__init__()
        self.table, self.with_valid = table, with_valid

    def step(self, ws, t):
        terminated, truncated, valid = self.table.get(t, ([False] * 2, [False] * 2, [True] * 2))
        ws.put("env/terminated", t, torch.tensor(terminated))
        ws.put("env/truncated", t, torch.tensor(truncated))
        if self.with_valid:
            ws.put("env/valid", t, torch.tensor(valid))


class TestAgent:
    def test_call_is_step(self):
        ws = Workspace.packed({"x": torch.zeros(2, 3)})
        Add()(ws)
        Add()(ws, 1, amount=5.0)
        assert ws["y"].tolist() == [[1, 1, 1], [5, 5, 5]]

    def test_an_agent_without_step_says_so(self):
        with pytest.raises(TypeError, match="does not implement step"):
            Agent()(Workspace(), 0)

    def test_bug_18_a_failing_agent_keeps_no_workspace(self):
        class Fails(Agent):
            def step(self, ws, t):
                raise RuntimeError("no")

        cast, ws = TemporalAgent(Agents(Count(), Fails())), Workspace()
        with pytest.raises(RuntimeError, match="no"):
            cast(ws, n_steps=1)
        watcher = weakref.ref(ws)
        del ws
        gc.collect()
        assert watcher() is None
        copy.deepcopy(cast)
        assert pickle.loads(pickle.dumps(cast.agent[0])).writes == ("x",)

    def test_bug_20_names_are_fluent_and_found_in_pre_order(self):
        inner = Agents(Add().set_name("a"), Count(name="b"), name="a")
        tree = TemporalAgent(Agents(Add(name="a"), inner, name="top"), name="a")
        found = tree.get_by_name("a")
        assert found == [tree, tree.agent[0], inner, inner[0]]
        assert tree.get_by_name(None) == []
        assert tree.clone().set_name("c").name == "c"

    def test_bug_19_a_prefix_moves_the_outputs_only(self):
        ws = Workspace.packed({"x": torch.zeros(1, 2)})
        online, target = Add(), Add().with_prefix("target/")
        Agents(online, target)(ws, 0)
        assert ws.keys() == ["x", "y", "target/y"]
        assert target.writes == ("target/y",)
        assert target.reads == ("x",)
        assert target.with_prefix("old/").writes == ("old/y",)
        assert Add.writes == ("y",)
        with pytest.raises(TypeError, match="single agents"):
            Agents(online).with_prefix("p/")

    def test_bug_21_clone_leaves_the_source_untouched(self):
        class Net(Agent):
            def __init__(self):
                super().__init__(name="net")
                self.layer = nn.Linear(2, 1)
                self.generator = torch.Generator().manual_seed(3)

        agent = Net()
        agent.layer(torch.ones(2)).backward()
        gradient = agent.layer.weight.grad.clone()
        twin = agent.clone()
        assert_close(agent.layer.weight.grad, gradient)
        assert twin.layer.weight.grad is None
        assert twin.name == "net"
        assert twin.layer.weight.data_ptr() != agent.layer.weight.data_ptr()
        assert torch.equal(torch.rand(3, generator=twin.generator), torch.rand(3, generator=agent.generator))

    def test_bug_24_is_running_is_a_method_of_every_agent(self):
        assert TemporalAgent(Agents(Count())).is_running() is False
        for package in (gaitway.core, gaitway.data, gaitway.agents):
            for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
                try:
                    importlib.import_module(module.name)
                except ModuleNotFoundError as error:
                    if str(error.name).startswith("gaitway"):
                        raise  # others are extras that are not installed
        kinds = [Agent]
        for kind in kinds:  # grows while it is read
            kinds += kind.__subclasses__()
            assert inspect.isfunction(kind.is_running), kind
            assert isinstance(inspect.getattr_static(kind, "is_running"), types.FunctionType), kind
        assert {"ActorCritic", "CopyAgent", "DataLoaderAgent"} <= {kind.__name__ for kind in kinds}

    def test_bug_25_seed_returns_self_and_reaches_everyone(self):
        inner = Seeded()
        tree = TemporalAgent(Agents(Count(), Agents(inner)))
        assert tree.seed(4) is tree
        assert inner.value == 4
        for bad in (-1, True, 1.0):
            with pytest.raises(ValueError, match="an integer >= 0"):
                Count().seed(bad)


class TestAgents:
    def test_order_length_iteration_and_registration(self):
        cast = Agents(Count(), Add())
        ws = Workspace()
        cast(ws, 0)
        assert ws.keys() == ["x", "y"]
        assert len(cast) == 2
        assert [type(agent) for agent in cast] == [Count, Add]
        assert isinstance(cast[1], Add)
        assert sum(isinstance(m, Agent) for m in cast.modules()) == 3
        with pytest.raises(TypeError, match="Linear"):
            Agents(nn.Linear(1, 1))

    def test_bug_27_options_go_to_those_who_declare_them(self):
        anything = Anything()
        ws = Workspace()
        Agents(Count(), Agents(Add()), anything)(ws, 0, amount=2.0)
        assert ws["y"].tolist() == [[2, 2]]
        assert anything.seen == [{"amount": 2.0}]

    def test_a_step_of_any_arguments_gets_every_option(self):
        class Passing(Add):
            def step(self, *args, **options):
                super().step(*args, **options)

        ws = Workspace()
        Agents(Count(), Passing())(ws, 0, amount=2.0)
        assert ws["y"].tolist() == [[2, 2]]

    def test_an_option_nobody_declares_is_a_type_error(self):
        with pytest.raises(TypeError, match=r"\['stochastic'\]; declared are \['amount'\]"):
            Agents(Count(), Agents(Add()))(Workspace(), 0, stochastic=True)
        with pytest.raises(TypeError, match="amonut"):
            TemporalAgent(Agents(Count(), Add()))(Workspace(), n_steps=1, amonut=1.0)
        with pytest.raises(TypeError, match="amount"):
            TemporalAgent(Count())(Workspace(), n_steps=1, amount=1.0)

    def test_signatures_are_read_once(self, monkeypatch):
        cast, ws = Agents(Count(), Add()), Workspace()
        cast(ws, 0, amount=2.0)
        for agent in cast:
            monkeypatch.setattr(agent, "declared_options", lambda: pytest.fail("read again"))
        cast(ws, 1, amount=3.0)
        assert ws["y"].tolist() == [[2, 2], [4, 4]]

    def test_a_cast_reads_what_it_does_not_write_first(self):
        assert Agents(Count(), Add()).reads == ()
        assert Agents(Add(), Count()).reads == ("x",)
        assert Agents(Count(), Add()).writes == ("x", "y")

    def test_train_eval_and_to_reach_the_inner_agents(self):
        inner = Count()
        cast = TemporalAgent(Agents(inner))
        cast.eval()
        assert not inner.training


class TestTemporalAgent:
    def test_n_steps_from_t(self):
        ws = Workspace()
        assert TemporalAgent(Count())(ws, t=1, n_steps=3) == 3
        assert ws["x"][:, 0].tolist() == [0, 1, 2, 3]

    def test_bug_28_zero_rows_run_nothing(self):
        ws = Workspace()
        assert TemporalAgent(Count())(ws, n_steps=0) == 0
        assert len(ws) == 0
        with pytest.raises(ValueError, match="-1"):
            TemporalAgent(Count())(ws, n_steps=-1)
        with pytest.raises(ValueError, match="n_steps, stop_variable"):
            TemporalAgent(Count())(ws)
        with pytest.raises(TypeError, match="float"):
            TemporalAgent(Count())(ws, n_steps=1.5)

    def test_the_stopping_row_is_written_and_all_elements_must_agree(self):
        table = {1: ([True, False], [False, False], None), 3: ([True, False], [False, True], None)}
        ws = Workspace()
        cast = TemporalAgent(Agents(Count(), Flags(table)))
        assert cast(ws, stop_variable="env/done") == 4
        assert ws.T == 4
        assert cast(Workspace(), n_steps=2, stop_variable="env/done") == 2
        assert cast.run(Workspace(), n_steps=9, stop_variable="env/done") == 4

    def test_options_reach_the_agents(self):
        ws = Workspace()
        TemporalAgent(Agents(Count(), Add()))(ws, n_steps=2, amount=10.0)
        assert ws["y"][:, 0].tolist() == [10, 11]

    def test_memory_restarts_after_an_end(self):
        table = {1: ([True, False], [False, False], None), 2: ([False, False], [False, True], None)}
        memory = Memory()
        ws = Workspace()
        TemporalAgent(Agents(Count(), memory, Flags(table)))(ws, n_steps=4)
        assert memory.calls == [(1, [False, False]), (2, [True, False]), (3, [False, True])]
        # x = 0 1 2 3; column 0 restarts at row 2, column 1 at row 3
        assert ws["sum"].tolist() == [[0, 0], [1, 1], [2, 3], [5, 3]]

    def test_a_row_that_only_reset_restarts_memory_again(self):
        valid = {0: ([True, False], [False, False], [True, True]), 1: ([False] * 2, [False] * 2, [False, True])}
        memory = Memory()
        TemporalAgent(Agents(Count(), memory, Flags(valid, with_valid=True)))(Workspace(), n_steps=3)
        assert memory.calls == [(1, [True, False]), (2, [True, False])]

    def test_the_first_row_of_the_next_rollout_is_told_who_ended(self):
        memory = Memory()
        names = ("env/terminated", "env/truncated")
        ws = Workspace.dense({name: Variable(2, 2, (), torch.bool) for name in names} | {"x": Variable(2, 2)})
        cast = TemporalAgent(Agents(Count(), memory, Flags({1: ([True, False], [False, False], None)})))
        cast(ws, n_steps=2)
        cast(ws, n_steps=2, ended=ws.at("env/done", 1))
        assert memory.calls == [(1, [False, False]), (0, [True, False]), (1, [False, False])]
        cast(ws, n_steps=1)
        assert len(memory.calls) == 3  # nothing is said about row 0 unless someone knows

    def test_starting_behind_a_written_row_reads_it(self):
        memory, ws = Memory(), Workspace()
        cast = TemporalAgent(Agents(Count(), memory, Flags({0: ([True, False], [False, False], None)})))
        cast(ws, n_steps=1)
        cast(ws, t=1, n_steps=1)
        assert memory.calls == [(1, [True, False])]
        cast(ws, t=5, n_steps=1)  # row 4 was never written
        assert memory.calls == [(1, [True, False])]

    def test_without_memory_nobody_computes_masks(self):
        class Forbidden(Workspace):
            def at(self, name, t):
                if name == "env/done":
                    pytest.fail("nobody needs the mask")
                return super().at(name, t)

        TemporalAgent(Agents(Count(), Flags({})))(Forbidden(), n_steps=3)

    def test_nested_casts_reset_only_those_with_memory(self):
        memory = Memory()
        cast = Agents(Count(), Agents(memory))
        assert cast.resets
        assert not Agents(Count()).resets
        cast.reset(Workspace(), 3, torch.tensor([True, False]))
        assert memory.calls == [(3, [True, False])]

    def test_it_takes_an_agent(self):
        with pytest.raises(TypeError, match="Linear"):
            TemporalAgent(nn.Linear(1, 1))

    def test_a_run_binds_each_agent_once(self):
        class Bound(Add):
            bindings = 0

            def prepared_step(self, ws, options):
                self.bindings += 1
                return super().prepared_step(ws, options)

        agent, ws = Bound(), Workspace()
        cast = TemporalAgent(Agents(Count(), Agents(agent)))
        cast(ws, n_steps=3, amount=10.0)
        cast(ws, t=3, n_steps=2)
        assert agent.bindings == 2
        assert_close(ws["y"][:, 0], torch.tensor([10.0, 11.0, 12.0, 4.0, 5.0]))
        step = Agents(Count(), agent).prepared_step(Workspace(), {})
        with pytest.raises(TypeError, match="no agent declares"):
            Agents(Count(), agent).prepared_step(ws, {"amonut": 1.0})
        step(0)
