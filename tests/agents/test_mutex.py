"""T-MUTEX: who acts, how much, what each child reads and remembers; files that name children."""

import json
import re
from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from gaitway.agents.mutex import ChildConfig, DownConfig, Mutex, MutexConfig
from gaitway.agents.policy import InferencePolicy
from gaitway.agents.teacher import Teacher
from gaitway.cli import training
from gaitway.cli.build import load_frozen
from gaitway.cli.main import main
from gaitway.cli.players import find_player
from gaitway.core.agent import Agents
from gaitway.core.trust import Origin, TrustError, speaking
from gaitway.core.workspace import Workspace
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup
from gaitway.envs.tasks.legged.making import make_legged

BODY = (Component("command", 1, scale=2.0), Component("gyro", 1), Component("last_action", 1))
BLOCK = (Component("distance", 1), Component("kind", 2), Component("info", 2))


def spec(kinds=2, action=("a",), scale=()):
    block = (BLOCK[0], Component("kind", kinds), BLOCK[2])
    groups = (ObservationGroup("body", BODY, (3,)), ObservationGroup("block", block, (3 + kinds,)))
    ends = len(action) * (1.0,)
    limited = ActionSpec("continuous", action, tuple(-end for end in ends), ends, scale=scale)
    return EnvSpec("robot", groups, limited, 0.02, 100)


class Stub(nn.Module):
    """Always does the same, notes what it was shown, and counts its steps where it has a memory."""

    def __init__(self, value, size=0, made=None, groups=("body",)):
        super().__init__()
        self.value, self.size, self.spec, self.actor_groups, self.seen = value, size, made or spec(), groups, []

    def initial_state(self, batch, device):
        return torch.zeros(batch, self.size) if self.size else None

    def act(self, obs, state, stochastic, generator=None):
        self.seen.append({name: value.clone() for name, value in obs.items()})
        first = next(iter(obs.values()))
        return torch.full((len(first), len(self.spec.action.names)), self.value), None if state is None else state + 1


def observation(kinds, command=0.5, last=0.25, up=(), envs=1):
    body = torch.tensor([[command, 7.0, last]]).expand(envs, 3)
    tail = torch.tensor([[0.0, *up]]) if up else torch.zeros(1, 2)
    block = torch.cat((torch.ones(1, 1), torch.tensor([kinds], dtype=torch.float32), tail), -1)
    return {"body": body.clone(), "block": block.expand(envs, -1).clone()}


def mutex(*children, entries=None, kinds=2, made=None, **options):
    entries = entries or [ChildConfig("one", 0.5), ChildConfig("two", 0.25)]
    options = {"selection": "block.kind", "action_scale": 0.5} | options
    config = MutexConfig(children=tuple(entries), **options)
    return Mutex(made or spec(kinds), config, children or (Stub(1.0), Stub(-1.0))).seed(0)


class TestWhoActs:
    def test_a_switch_by_hand(self):
        """Children +1 and -1 with scales 0.5 and 0.25 in an environment of 0.5, spread over 2 steps."""
        policy = mutex(smoothing=2)
        act = InferencePolicy(policy)
        found = [float(act(observation(kinds))) for kinds in ([1, 0], [1, 0], [0, 1], [0, 1], [0, 0], [0, 0])]
        # 1; the mean of 1 and -1 * 0.25 / 0.5; -0.5; the mean again; all zeros is child 0
        assert found == [1.0, 1.0, 0.25, -0.5, 0.25, 1.0]
        # broken twin: the first step without normalised weights would be 0.5
        act.reset(torch.tensor([True]))
        assert float(act(observation([0, 1]))) == -0.5  # the ring was cleared: nothing of child 0 is left

    def test_a_ring_that_is_not_normalised_is_seen(self):
        """T-MUTEX's twin: divided by the length of the ring and not by what is in it, a first action is too small."""
        policy = mutex(smoothing=2)
        ring = policy.act(observation([1, 0]), None, False)[1][:, :4].unflatten(-1, (2, 2))
        twin = ring.mean(1)  # of two entries, one of which is still empty
        assert float(twin[:, 0] * 1.0 + twin[:, 1] * -0.5) == 0.5
        assert float(policy.act(observation([1, 0]), None, False)[0]) == 1.0

    def test_each_instance_for_itself(self):
        policy = mutex(smoothing=2)
        act, obs = InferencePolicy(policy), observation([1, 0], envs=3)
        obs["block"][1, 1:3] = torch.tensor([0.0, 1.0])
        obs["block"][2, 1:3] = 0.0
        assert act(obs)[:, 0].tolist() == [1.0, -0.5, 1.0]
        act.reset(torch.tensor([False, True, False]))
        obs["block"][:, 1:3] = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
        assert act(obs)[:, 0].tolist() == [0.25, 1.0, 1.0]

    def test_ways_that_lead_down(self):
        made = spec(4)
        children = [Stub(value, made=made) for value in (0.1, 0.2, 0.3, 0.4, 0.5)]
        down = DownConfig("down", 0.5, up="block.info", instead_of=3)
        entries = [ChildConfig(str(number), 0.5) for number in range(4)]
        act = InferencePolicy(mutex(*children, entries=entries, made=made, down=down))
        jump = [0, 0, 0, 1]
        ways = (jump, 0.2), (jump, -0.2), (jump, 0.0), ([0, 0, 1, 0], -1.0), ([0] * 4, -1.0)
        found = [float(act(observation(kinds, up=(up,)))) for kinds, up in ways]
        assert found == pytest.approx([0.4, 0.5, 0.5, 0.3, 0.1])

    @pytest.mark.parametrize("command", [(0.7,), (0.6, 0.8), ()], ids=["number", "range", "none"])
    def test_a_track_that_leads_up_and_down(self, command):
        """One robot in front of each block of a live track: up, down, under a bar; who acts, and what it is told."""
        task = make_legged("pup12/field_lite", {"noise": 0.0, "terrain": {"obstacles": ["jump", "down", "crawl"]}})
        env = MujocoBatchEnv(task, 3, num_threads=1)
        kinds, sizes = np.array([[3.0, 6.0, 2.0]] * 3), np.array([[0.08, -0.08, 0.3]] * 3)
        env.load_scenario({"kind": kinds, "critical": sizes, "extent": np.full((3, 3), 0.2)})
        task.qpos[:, 0] = [1.5, 3.5, 5.5]
        obs = env.step(torch.zeros(3, 12)).obs
        made = env.spec
        children = [Stub(value, made=made, groups=("policy",)) for value in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)]
        entries = tuple(ChildConfig(str(number), command=(1.2,)) for number in range(5))
        down = DownConfig("down", up="policy.engaging_size", command=command)
        config = MutexConfig("policy.engaging_kind", entries, down, command="policy.commands_0")
        act = InferencePolicy(Mutex(made, config, children).seed(0))
        assert act(obs)[:, 0].tolist() == pytest.approx([0.4, 0.6, 0.3])
        said = children[-1].seen[-1]["policy"][:, 9] / 2.0  # commands are shown times 2
        low, high = {1: (0.7, 0.7), 2: (0.6, 0.8), 0: (1.2, 1.2)}[len(command)]
        assert bool(((said >= low - 1e-6) & (said <= high + 1e-6)).all())
        env.close()

    def test_scales_come_from_the_specs_where_nothing_is_said(self):
        made = spec(action=("a", "b"), scale=(0.5, 0.2))
        other = spec(action=("a", "b"), scale=(0.25, 0.4))
        entries = [ChildConfig("one"), ChildConfig("two")]
        children = Stub(1.0, made=made), Stub(1.0, made=other)
        policy = mutex(*children, entries=entries, made=made, action_scale=None)
        act = InferencePolicy(policy)
        assert act(observation([1, 0]))[0].tolist() == [1.0, 1.0]
        assert act(observation([0, 1]))[0].tolist() == [0.5, 2.0]

    def test_children_act_within_their_limits(self):
        act = InferencePolicy(mutex(Stub(3.0), Stub(-3.0)))
        assert float(act(observation([1, 0]))) == 1.0
        assert float(act(observation([0, 1]))) == -0.5


class TestWhatChildrenRead:
    def test_their_own_command_and_last_action_and_the_caller_keeps_its_tensors(self):
        entries = [ChildConfig("one", 0.5), ChildConfig("two", 0.25, command=(0.8,))]
        children = Stub(1.0), Stub(-1.0)
        policy = mutex(*children, entries=entries, command="body.command", last_action="body.last_action", smoothing=3)
        obs = observation([1, 0])
        before = {name: value.clone() for name, value in obs.items()}
        state = None
        for kinds in ([1, 0], [0, 1], [0, 1]):
            obs["block"][:, 1:3] = before["block"][:, 1:3] = torch.tensor(kinds, dtype=torch.float32)
            _, state = policy.act(obs, state, False)
            assert all(torch.equal(obs[name], before[name]) for name in obs)
        for step in range(3):  # each reads its own in every step, the fading one too
            assert children[0].seen[step]["body"].tolist() == [[0.5, 7.0, 0.25]]
            # 0.8 times the component's scale; 0.25 in units of 0.5 is 0.5 in units of 0.25
            assert children[1].seen[step]["body"].tolist() == [[pytest.approx(1.6), 7.0, 0.5]]
        assert set(children[0].seen[0]) == {"body"}
        assert policy.actor_groups == ("body", "block")

    def test_writing_into_the_callers_tensors_is_seen(self, monkeypatch):
        """T-MUTEX's twin: through a view the first child's command stands in what the second one and the caller see."""

        def in_place(obs, columns, value):
            obs[columns.feature][..., columns.start : columns.stop] = value

        monkeypatch.setattr("gaitway.agents.mutex._put", in_place)
        entries = [ChildConfig("one", 0.5, command=(0.8,)), ChildConfig("two", 0.25)]
        children, obs = (Stub(1.0), Stub(-1.0)), observation([1, 0])
        mutex(*children, entries=entries, command="body.command").act(obs, None, False)
        assert float(obs["body"][0, 0]) == float(children[1].seen[0]["body"][0, 0]) == pytest.approx(1.6)

    def test_ranges_are_drawn_for_each_instance_and_episode(self):
        entries = [ChildConfig("one", 0.5, command=(-1.0, 1.0)), ChildConfig("two", 0.25)]
        child = Stub(1.0)
        act = InferencePolicy(mutex(child, Stub(-1.0), entries=entries, command="body.command"))
        obs = observation([1, 0], envs=400)
        for ends in (False, True, False):
            act(obs)
            act.reset(torch.arange(400) % 2 == 0) if ends else None
        said = [each["body"][:, 0] / 2.0 for each in child.seen]  # in the quantity's own unit
        assert said[0].unique().numel() > 390
        assert -1.0 <= float(said[0].min()) < -0.95
        assert 0.95 < float(said[0].max()) <= 1.0
        assert torch.equal(said[0], said[1])  # the same for a whole episode
        assert torch.equal(said[1][1::2], said[2][1::2])
        assert not bool((said[1][::2] == said[2][::2]).any())

    def test_jumping_down_has_the_command_of_jumping_up_unless_it_has_its_own(self):
        made = spec(2)
        for own, said in (((), 1.2), ((0.3,), 0.6)):
            children = [Stub(0.0, made=made) for _ in range(3)]
            entries = [ChildConfig("walk"), ChildConfig("jump", command=(0.6,))]
            down = DownConfig("down", command=own, up="block.info", instead_of=1)
            policy = mutex(*children, entries=entries, made=made, down=down, command="body.command")
            policy.act(observation([0, 1]), None, False)
            assert float(children[2].seen[0]["body"][0, 0]) == pytest.approx(said)


class TestMemories:
    @pytest.mark.parametrize(
        ("mode", "expected"),
        [
            # selections 0, 1, 1, 0 with smoothing 2; the memories count the steps of children 0, 1 and 2
            ("all", [[1, 0, 0], [2, 1, 0], [0, 2, 0], [1, 3, 0]]),
            ("when_skill", [[1, 1, 1], [2, 2, 0], [3, 3, 0], [4, 4, 1]]),
            ("never", [[1, 1, 1], [2, 2, 2], [3, 3, 3], [4, 4, 4]]),
        ],
    )
    def test_those_of_the_unselected(self, mode, expected):
        made = spec(3)
        children = [Stub(0.0, size=1, made=made) for _ in range(3)]
        entries = [ChildConfig(str(number)) for number in range(3)]
        policy = mutex(*children, entries=entries, made=made, reset_unselected=mode, smoothing=2)
        state, found = None, []
        for chosen in (0, 1, 1, 0):
            _, state = policy.act(observation([float(chosen == each) for each in range(3)]), state, False)
            found.append(state[0, -3:].tolist())
        assert found == expected

    def test_names_of_what_is_remembered(self):
        entries = [ChildConfig("one", command=(0.0, 1.0)), ChildConfig("two")]
        policy = mutex(Stub(1.0, 4), Stub(1.0), entries=entries, command="body.command", smoothing=2)
        (memory,) = policy.memories.values()
        assert memory.parts == (("selection -2", 2), ("selection -1", 2), ("commands", 2), ("child 0", 4))
        assert policy.initial_state(3, "cpu").shape == (3, 10)

    def test_in_a_workspace_it_acts_as_alone(self):
        policy = mutex(Stub(1.0, 2), Stub(-1.0), smoothing=2)
        ws, act = Workspace(extra_row=tuple(policy.memories)), InferencePolicy(policy)
        agents = Agents(policy)
        for t, kinds in enumerate(([1, 0], [0, 1], [0, 1], [1, 0])):
            obs = observation(kinds)
            for name, value in obs.items():
                ws.put(f"env/obs/{name}", t, value)
            if t == 2:
                agents.reset(ws, t, torch.tensor([True]))
                act.reset(torch.tensor([True]))
            agents(ws, t, stochastic=False)
            assert torch.equal(ws.at("action", t), act(obs))

    def test_a_teacher(self):
        policy = mutex(smoothing=2)
        student = SimpleNamespace(
            spec=spec(), writes=("action",), out=lambda name: name, parameters=lambda: iter([torch.zeros(1)])
        )
        teacher = Teacher(spec(), student, 1, (policy,))
        ws = Workspace(extra_row=tuple(teacher.memories))
        for t, kinds in enumerate(([1, 0], [0, 1], [0, 1])):
            for name, value in observation(kinds).items():
                ws.put(f"env/obs/{name}", t, value)
            teacher.step(ws, t)
        assert ws["teacher/action"].flatten().tolist() == [1.0, 0.25, -0.5]


@pytest.mark.parametrize(
    ("children", "options", "message"),
    [
        ((Stub(1.0), Stub(1.0, made=spec(action=("hip",)))), {},
         "children[1], two, does not fit robot: it was trained with the actions hip, here they are a"),
        ((Stub(1.0), Stub(1.0, made=spec(3), groups=("block",))), {}, "children[1], two, does not fit robot"),
        ((), {"selection": "block.kid"}, "selection: no feature 'block.kid' (did you mean 'block.kind'?)"),
        ((), {"selection": "block.distance"}, "selection is 'block.distance', 1 numbers, but there are 2 children"),
        ((), {"entries": [ChildConfig("one"), ChildConfig("two", command=(1.0,))]}, "name its component by `command`"),
        ((), {"entries": [ChildConfig("one"), ChildConfig("two", command=(1.0, 0.0))], "command": "body.command"},
         "children[1].command is [1.0, 0.0]; give one number, or the lowest and highest"),
        ((Stub(1.0),), {}, "there are 1 policies for 2 children"),
        ((Stub(1.0), Stub(1.0), Stub(1.0)), {"down": DownConfig("down", up="block.info")},
         "down.instead_of is 3; name one of the children 1 to 1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(children, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        mutex(*children, **options)


SMALL = ["env.id=toy/pendulum", "env.num_envs=4", "algorithm.rollout_steps=16", "algorithm.minibatches=1",
         "total_steps=64", "evaluation.episodes=1", "evaluation.max_steps=10", "agent.actor_hidden=[8]",
         "agent.critic_hidden=[8]"]  # fmt: skip
FILE = """
selection: pos          # cos and sin of the angle: upright is child 0, aside child 1
children:
  - {run: one}
  - {run: two, action_scale: 0.5}
smoothing: 2
"""


class TestFiles:
    @pytest.fixture(scope="class")
    @classmethod
    def place(cls, tmp_path_factory):
        folder = tmp_path_factory.mktemp("mutex")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(training, "plot_run", lambda path: [])
            for name, more in (("one", []), ("two", ["agent.memory.kind=gru", "agent.memory.size=4", "seed=1"])):
                assert main(["train", *SMALL, *more, f"run_dir={folder / name}", "--quiet"]) == 0
        (folder / "both.yaml").write_text(FILE)
        return folder

    def test_eval_play_collect_and_teachers_take_it_like_a_run(self, place, tmp_path, capsys, monkeypatch):
        file = str(place / "both.yaml")
        monkeypatch.setattr(training, "plot_run", lambda path: [])
        assert main(["eval", "toy/pendulum", "--policy", file, "--episodes", "2", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["checkpoint"], found["episodes"], found["length"]) == ("mutex", 2, 200.0)
        assert main(["eval", "toy/pendulum", "--policy", str(place / "one"), "--episodes", "2", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["return"] != found["return"]
        recorded = ["--steps", "200", "--out", str(tmp_path / "data"), "--policy", file, "--quiet"]
        assert main(["collect", "toy/pendulum", *recorded]) == 0
        assert "the mutex" in capsys.readouterr().out
        watched = Namespace(run="toy/pendulum", policy=file, settings=[], seed=0, skill=None, checkpoint="best")
        with find_player(watched) as player:
            assert "the mutex" in player.what
            assert player.act(player.env.reset()).shape == (1, 1)
        taught = [f"cast=[policy, {{name: teacher, teachers: ['{file}']}}]", f"run_dir={tmp_path / 'taught'}"]
        assert main(["train", *SMALL, *taught, "--quiet"]) == 0

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (FILE.replace("run: two", "run: three"), "three"),
            (FILE.replace("smoothing", "smothing"), "smothing"),
            (FILE.replace("{run: two,", "{run: os:getcwd,"), "getcwd"),
            (FILE + "reset_unselected: some\n", "reset_unselected is 'some'"),
            (FILE.replace("selection: pos", "selection: vel"), "selection is 'vel', 1 numbers, but there are 2"),
            ("- 1", "both.yaml"),
        ],
    )
    def test_mistakes_are_told(self, place, text, message, capsys):
        file = place / "broken both.yaml"
        file.write_text(text)
        assert main(["eval", "toy/pendulum", "--policy", str(file), "--episodes", "1"]) != 0
        told = " ".join(capsys.readouterr().err.split())
        assert message in told
        assert "Traceback" not in told

    def test_another_robot_is_refused(self, place, capsys):
        assert main(["eval", "toy/oscillator", "--policy", str(place / "both.yaml"), "--episodes", "1"]) != 0
        assert "does not fit toy/oscillator" in capsys.readouterr().err.replace("\n", " ")

    def test_runs_from_elsewhere_may_not_lead_to_files(self, place):
        stranger = Origin(folder="/elsewhere", reason="it was copied")
        with speaking(stranger), pytest.raises(TrustError, match=r"both\.yaml"):
            load_frozen(str(place / "both.yaml"), "cast[0].teachers[0]", spec(), "cpu")
        allowed = stranger.trusting(str(place / "both.yaml"))
        with speaking(allowed), pytest.raises(TrustError, match=r"mutex\d*/one"):  # and nothing besides
            load_frozen(str(place / "both.yaml"), "cast[0].teachers[0]", spec(), "cpu")
