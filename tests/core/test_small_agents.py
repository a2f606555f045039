"""Small agents that any cast may use."""

import gc
import io
import weakref
import zlib

import numpy as np
import pytest
import torch

from gaitway.core.agent import Agent, Agents, TemporalAgent
from gaitway.core.small_agents import CopyAgent, EpisodesDone, PrintAgent, SeedableAgent, WithOptions
from gaitway.core.workspace import Workspace


class Draw(SeedableAgent):
    writes = ("x",)

    def step(self, ws, t, *, scale=1.0):
        ws.put("x", t, scale * torch.rand(4, generator=self.generator()))


class TestSeeds:
    @pytest.mark.parametrize(("rule", "result"), [("last", 2), ("sum", 13), ("mean", 4)])
    def test_bug_26_the_constructor_seed_counts(self, rule, result):
        agent = Draw(seed=10, rule=rule)
        assert agent.current_seed == 10
        assert agent.seed(1).seed(2) is agent
        assert agent.current_seed == result  # 10, 1, 2: sum 13, mean 13 // 3 = 4

    def test_first_refuses_a_second_seed_and_keeps_the_first(self):
        agent = Draw()
        assert agent.current_seed is None
        agent.seed(3)
        with pytest.raises(RuntimeError, match="already seeded with 3"):
            agent.seed(4)
        assert agent.current_seed == 3
        with pytest.raises(ValueError, match="rule"):
            Draw(rule="median")

    def test_same_seed_same_draws_other_name_other_draws(self):
        def draw(agent):
            ws = Workspace()
            agent(ws, 0)
            return ws["x"]

        assert torch.equal(draw(Draw(seed=1)), draw(Draw(seed=1)))
        assert not torch.equal(draw(Draw(seed=1)), draw(Draw(name="other", seed=1)))
        assert not torch.equal(draw(Draw()), draw(Draw()))

    def test_bug_26_no_global_random_number_is_drawn(self):
        before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
        Draw(seed=1)(Workspace(), 0)
        Draw()(Workspace(), 0)
        Draw().numpy_generator().random()
        assert torch.equal(torch.get_rng_state(), before)
        assert np.random.get_state()[1].tolist() == numpy_before  # noqa: NPY002

    def test_the_numpy_stream_follows_seed_and_name_too(self):
        def draw(agent):
            return agent.numpy_generator().integers(1 << 60)

        expected = np.random.default_rng(np.random.SeedSequence(1, spawn_key=(zlib.crc32(b"Draw"),)))
        assert draw(Draw(seed=1)) == expected.integers(1 << 60)
        assert draw(Draw(seed=1)) != draw(Draw(name="other", seed=1))
        assert draw(Draw()) != draw(Draw())
        agent = Draw(rule="last", seed=1)
        first, second = draw(agent), draw(agent)
        assert first != second
        assert draw(agent.seed(1)) == first


class TestWithOptions:
    def test_bug_29_fixed_options_win_also_inside_containers(self):
        free, fixed = Workspace(), Workspace()
        Draw(seed=1)(free, 0)
        WithOptions(TemporalAgent(Agents(Draw(seed=1))), n_steps=1, scale=3.0)(fixed, 0, scale=5.0)
        assert torch.equal(fixed["x"], 3 * free["x"])
        bound = Workspace()
        TemporalAgent(WithOptions(Agents(Draw(seed=1)), scale=3.0))(bound, n_steps=1, scale=5.0)
        assert torch.equal(bound["x"], 3 * free["x"])

    def test_bug_29_an_error_inside_leaves_nothing_behind(self):
        class Fails(Draw):
            def step(self, ws, t, *, scale=1.0):
                raise RuntimeError("no")

        wrapper, ws = WithOptions(Agents(Fails()), scale=2.0), Workspace()
        with pytest.raises(RuntimeError, match="no"):
            wrapper(ws, 0)
        watcher = weakref.ref(ws)
        del ws
        gc.collect()
        assert watcher() is None

    def test_it_returns_what_the_agent_returns_and_may_fix_the_row(self):
        assert WithOptions(TemporalAgent(Draw(seed=1)), n_steps=3)(Workspace()) == 3
        ws = Workspace.packed({"x": torch.tensor([[1.0], [2.0]])})
        WithOptions(CopyAgent("x", "whole"))(ws)  # called without a row, like the agent itself
        WithOptions(CopyAgent("x", "row"), t=1)(ws, 0)
        assert ws["whole"].tolist() == [[1], [2]]
        assert ws.at("row", 1).tolist() == [2]

    def test_an_option_that_the_agent_does_not_have_is_refused_at_once(self):
        with pytest.raises(TypeError, match=r"\['scael'\]; declared are \['scale'\]"):
            WithOptions(Agents(Draw()), scael=2.0)

    def test_it_is_transparent(self):
        inner = Draw(rule="last")
        wrapper = WithOptions(inner, scale=2.0).with_prefix("p/").seed(8)
        assert wrapper.writes == ("p/x",)
        assert wrapper.parts() == (inner,)
        assert inner.current_seed == 8
        assert not wrapper.resets
        with pytest.raises(TypeError, match="unknown"):
            Agents(wrapper)(Workspace(), 0, unknown=1)


def test_bug_30_copy_a_row_or_the_whole_variable_detached_or_not():
    for detach in (False, True):
        ws = Workspace.packed({"x": torch.ones(3, 2, requires_grad=True) * 2})
        CopyAgent("x", "whole", detach)(ws)
        CopyAgent("x", "row", detach)(ws, 1)
        assert ws["whole"].tolist() == [[2, 2]] * 3
        assert ws["row"].tolist() == [[0, 0], [2, 2]]
        assert ws["whole"].requires_grad == ws.at("row", 1).requires_grad == (not detach)


def test_bug_31_print_names_of_this_call():
    file = io.StringIO()
    everything = PrintAgent(file=file)
    everything(Workspace.packed({"a": torch.ones(1, 1)}), 0)
    everything(Workspace.packed({"b": torch.zeros(1, 1)}), 0)
    assert file.getvalue() == "a = tensor([1.])\nb = tensor([0.])\n"
    with pytest.raises(KeyError, match="it has"):
        PrintAgent("c")(Workspace.packed({"a": torch.ones(1, 1)}), 0)
    file.truncate(file.seek(0))
    everything(Workspace.packed({"short": torch.ones(1, 1), "long": torch.ones(2, 1)}), 1)  # short has no row 1
    assert file.getvalue() == "long = tensor([1.])\n"


def test_bug_32_episodes_done_is_a_running_or_that_recovers():
    done = torch.tensor([[0, 0], [1, 0], [0, 0], [0, 1]])
    ws = Workspace.packed({"env/done": done})
    TemporalAgent(EpisodesDone())(ws, n_steps=4)
    expected = [[False, False], [True, False], [True, False], [True, True]]
    assert ws["episode/done"].tolist() == expected
    fresh = Workspace.packed({"env/done": done, "episode/done": ws["episode/done"][:2]})
    EpisodesDone()(fresh, 2)  # another instance goes on from row 1
    assert fresh["episode/done"].tolist() == expected[:3]
    EpisodesDone()(fresh, 0)
    assert fresh.at("episode/done", 0).tolist() == [False, False]


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_bug_32_episodes_done_may_overwrite_flags_of_any_type(dtype):
    ws = Workspace.packed({"env/done": torch.tensor([[1], [0]]).to(dtype)})
    TemporalAgent(EpisodesDone(target="env/done"))(ws, n_steps=2)
    assert ws["env/done"].dtype is torch.bool
    assert ws["env/done"].tolist() == [[True], [True]]


def test_bug_32_the_first_call_may_come_late():
    done = torch.tensor([[0, 1], [1, 0], [0, 0]])
    ws = Workspace.packed({"env/done": done})
    EpisodesDone()(ws, 2)  # no row of the output is there yet
    assert ws.at("episode/done", 2).tolist() == [True, True]


def test_episodes_done_may_replace_the_derived_flag():
    ws = Workspace()
    mask = EpisodesDone(target="env/done")
    for t, (terminated, truncated) in enumerate([(False, False), (True, False), (False, False), (False, True)]):
        ws.put("env/terminated", t, torch.tensor([terminated]))
        ws.put("env/truncated", t, torch.tensor([truncated]))
        mask(ws, t)
    assert ws["env/done"].tolist() == [[False], [True], [True], [True]]


def test_bug_19_small_agents_honour_a_prefix():
    ws = Workspace.packed({"env/done": torch.zeros(2, 1, dtype=torch.bool)})
    for agent in (CopyAgent("env/done", "copy"), EpisodesDone()):
        agent.with_prefix("target/")
        TemporalAgent(agent)(ws, n_steps=2)
        assert agent.reads == ("env/done",)
        assert all(name in ws for name in agent.writes)
    assert ws.keys() == ["env/done", "target/copy", "target/episode/done"]


def test_small_agents_are_agents():
    assert all(issubclass(kind, Agent) for kind in (CopyAgent, PrintAgent, EpisodesDone, WithOptions, SeedableAgent))
