"""Agents on disk: what comes back, and what is refused."""

import json
import sys

import pytest
import torch
from torch import nn

from gaitway.core import agent_files, files
from gaitway.core.agent import Agent, Agents
from gaitway.core.agent_files import class_path, load_agent, rebuildable_agents, save_agent
from gaitway.core.files import StateFileError, save_state
from gaitway.core.small_agents import CopyAgent, EpisodesDone


class Net(Agent):
    reads, writes = ("x",), ("y",)

    def __init__(self, size, bias=True):
        super().__init__()
        self.layer = nn.Linear(size, 1, bias=bias)
        self.register_buffer("count", torch.tensor(0))

    def step(self, ws, t):
        ws.put(self.out("y"), t, self.layer(ws.at("x", t)))


class Opaque(Agent):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def get_extra_state(self):
        return object()

    def set_extra_state(self, state):
        pass


def equal(one, other):
    here, there = one.state_dict(), other.state_dict()
    return here.keys() == there.keys() and all(torch.equal(here[name], there[name]) for name in here)


def test_bug_22_a_state_dict_comes_back_without_pickle(tmp_path):
    agent = Net(3).set_name("critic").with_prefix("target/")
    agent.count += 7
    save_agent(tmp_path / "net", agent, {"size": 3})
    assert sorted(path.name for path in (tmp_path / "net").iterdir()) == ["state.json", "state.safetensors"]
    for twin in (load_agent(tmp_path / "net", Net), load_agent(tmp_path / "net", classes=[Net])):
        assert equal(twin, agent)
        assert (twin.name, twin.prefix, twin.writes) == ("critic", "target/", ("target/y",))
    document = json.loads((tmp_path / "net/state.json").read_text())
    assert document["meta"]["class"] == class_path(Net)
    assert document["meta"]["format"] == agent_files.FORMAT


def test_into_an_agent_that_is_there(tmp_path):
    agent, twin = Net(3), Net(3)
    save_agent(tmp_path / "net", agent)
    assert load_agent(tmp_path / "net", into=twin) is twin
    assert equal(twin, agent)
    cast, other = Agents(Net(2), CopyAgent("y", "z")), Agents(Net(2), CopyAgent("y", "z"))
    save_agent(tmp_path / "cast", cast)
    assert equal(load_agent(tmp_path / "cast", into=other), cast)


def test_agents_that_say_how_they_are_made_need_nothing_else(tmp_path):
    for agent in (CopyAgent("a", "b", detach=True, name="copy"), EpisodesDone("env/done", "mask")):
        save_agent(tmp_path / "agent", agent)
        twin = load_agent(tmp_path / "agent")
        assert type(twin) is type(agent)
        assert (twin.name, twin.reads, twin.writes) == (agent.name, agent.reads, agent.writes)
        assert twin.constructor_arguments() == agent.constructor_arguments()
    assert class_path(CopyAgent) in rebuildable_agents()


def test_bug_22_a_class_is_never_imported_because_a_file_names_it(tmp_path):
    (tmp_path / "evil_agent.py").write_text("raise SystemExit('executed')\nclass Evil: ...\n")
    sys.path.insert(0, str(tmp_path))
    try:
        for path in ("evil_agent.Evil", "gaitway.core.agent.Agents", "os.system", "gaitway.core.small_agents.sys.exit"):
            meta = {"format": 1, "class": path, "name": None, "prefix": "", "arguments": {"command": "true"}}
            save_state(tmp_path / "state", {}, kind=agent_files.KIND, meta=meta)
            with pytest.raises(ValueError, match=f"holds a {path}, which is not looked up"):
                load_agent(tmp_path / "state")
    finally:
        sys.path.remove(str(tmp_path))
    assert "evil_agent" not in sys.modules


def test_what_does_not_fit_changes_nothing(tmp_path):
    save_agent(tmp_path / "net", Net(3))
    twin, before = Net(4), Net(4)
    before.load_state_dict(twin.state_dict())
    with pytest.raises(ValueError, match=r"layer.weight is \[1, 4\] in the agent and \[1, 3\] in the file"):
        load_agent(tmp_path / "net", into=twin)
    assert equal(twin, before)
    with pytest.raises(ValueError, match=r"layer\.bias is new to the agent"):
        load_agent(tmp_path / "net", Net, arguments={"size": 3, "bias": False})
    save_agent(tmp_path / "bare", Net(3, bias=False))
    with pytest.raises(ValueError, match=r"layer\.bias is missing in the file"):
        load_agent(tmp_path / "bare", into=Net(3))


def test_the_messages_say_what_to_pass(tmp_path):
    save_agent(tmp_path / "net", Net(3))
    with pytest.raises(ValueError, match="does not say how its Net was made"):
        load_agent(tmp_path / "net", Net)
    with pytest.raises(ValueError, match=f"holds a {class_path(Net)}, not a {class_path(CopyAgent)}"):
        load_agent(tmp_path / "net", CopyAgent)
    with pytest.raises(ValueError, match="pass the class"):
        load_agent(tmp_path / "net")
    with pytest.raises(ValueError, match="cannot be made with the arguments"):
        load_agent(tmp_path / "net", Net, arguments={"width": 3})
    with pytest.raises(StateFileError, match="holds no state"):
        load_agent(tmp_path / "elsewhere")
    with pytest.raises(TypeError, match="Opaque cannot be stored") as error:
        save_agent(tmp_path / "opaque", Opaque())
    assert isinstance(error.value.__cause__, TypeError)
    assert not (tmp_path / "opaque").exists()


def test_another_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(agent_files, "FORMAT", 2)
    save_agent(tmp_path / "net", Net(3))
    monkeypatch.undo()
    with pytest.raises(StateFileError, match="agent format 2"):
        load_agent(tmp_path / "net", into=Net(3))
    save_state(tmp_path / "run", {}, kind="checkpoint")
    with pytest.raises(files.StateFileError, match="'checkpoint' where a 'agent'"):
        load_agent(tmp_path / "run")
