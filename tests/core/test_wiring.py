"""Every read has a writer."""

import pytest
import torch

from gaitway.core.agent import Agent, Agents, TemporalAgent
from gaitway.core.wiring import Wiring, check_wiring
from gaitway.core.workspace import Workspace


class Part(Agent):
    def __init__(self, name, reads="", writes=""):
        super().__init__(name)
        self.reads, self.writes = tuple(reads.split()), tuple(writes.split())

    def step(self, ws, t):
        for name in self.writes:
            ws.put(name, t, torch.zeros(2, 3))


observe = Part("observe", "", "env/obs/policy")
policy = Part("policy", "env/obs/policy", "action log_prob")
advance = Part("advance", "action", "env/reward env/terminated env/truncated")


def test_a_wired_cast_passes_in_any_nesting():
    for cast in (
        [observe, policy, advance],
        Agents(observe, Agents(policy, advance)),
        TemporalAgent(Agents(observe, policy)),
    ):
        assert check_wiring(cast).problems == []


def test_a_read_nobody_writes_names_the_nearest_variable():
    reader = Part("critic", "env/obs/polcy")
    with pytest.raises(
        ValueError, match=r"critic reads 'env/obs/polcy', which nobody writes. Did you mean 'env/obs/policy'"
    ):
        check_wiring([observe, reader])
    check_wiring([observe, reader], given=["env/obs/polcy"])


def test_a_read_before_its_writer_says_whom_to_move():
    with pytest.raises(
        ValueError, match="policy reads 'env/obs/policy' before observe writes it; place observe earlier"
    ):
        check_wiring([policy, observe])


def test_two_writers_are_reported_unless_the_later_reads():
    with pytest.raises(ValueError, match="other writes 'action', which policy has written already"):
        check_wiring([observe, policy, Part("other", "", "action")])
    check_wiring([observe, policy, Part("noise", "action", "action")])


def test_all_problems_come_at_once():
    wiring = Wiring([policy, Part("a", "missing", "action")])
    assert len(wiring.problems) == 3
    with pytest.raises(ValueError) as error:
        wiring.check()
    assert all(problem in str(error.value) for problem in wiring.problems)


def test_memory_that_an_agent_starts_itself_needs_no_other_writer():
    check_wiring([Part("memory", "state", "state")])


def test_done_is_there_when_both_flags_are():
    reader = Part("counter", "env/done")
    check_wiring([observe, policy, advance, reader])
    with pytest.raises(ValueError, match="'env/done'"):
        check_wiring([Part("half", "", "env/terminated"), reader])


def test_memory_that_exists_is_no_proof_of_a_writer():
    ws = Workspace.packed({"env/obs/policy": torch.zeros(1, 2)})
    with pytest.raises(ValueError, match="nobody writes"):
        check_wiring([policy], ws)


def test_table_as_data_and_as_text():
    ws = Workspace()
    Agents(observe, policy)(ws, 0)
    wiring = check_wiring([observe, policy, Part("critic", "env/obs/policy goal", "value")], ws, given=["goal"])
    rows = {row.variable: row for row in wiring.rows()}
    assert list(rows) == ["goal", "env/obs/policy", "action", "log_prob", "value"]
    assert rows["env/obs/policy"].readers == ("policy", "critic")
    assert (rows["action"].shape, rows["action"].dtype) == ("[1, 2, 3]", "float32")
    assert rows["goal"].writers == ("given",)
    assert rows["value"].shape == ""
    lines = str(wiring).splitlines()
    assert lines[0].split() == ["variable", "shape", "dtype", "written", "by", "read", "by"]
    assert lines[2].split() == ["env/obs/policy", "[1,", "2,", "3]", "float32", "observe", "policy,", "critic"]


def test_agents_of_the_same_name_are_told_apart():
    with pytest.raises(ValueError, match=r"Add\[1\] writes 'x', which Add\[0\]"):
        check_wiring([Part("Add", "", "x"), Part("Add", "", "x")])
