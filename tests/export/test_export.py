"""Exports are their policies; what is not, is refused and leaves nothing behind."""

import json
import zipfile
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import torch
from torch import nn

import gaitway
from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.actor_critic_config import ActorCriticConfig
from gaitway.agents.blocks import Block
from gaitway.agents.branch import MemoryConfig
from gaitway.agents.observations import Observations
from gaitway.agents.policy import CastPolicy, InferencePolicy
from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from gaitway.cli.train_config import RECIPES
from gaitway.core.agent import Agent
from gaitway.core.files import StateFileError
from gaitway.envs.registry import make_env
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup
from gaitway.export import folder as export_folder
from gaitway.export import programs
from gaitway.export import proof as proof_module
from gaitway.export.acting_step import CastStep, PolicyStep, limited
from gaitway.export.folder import FILES, Subject, export_policy
from gaitway.export.proof import TOLERANCE, Proof, Recording, Row, difference
from gaitway.export.robot_runner import RobotRunner

PENDULUM = "toy/pendulum"
KINDS = {"bc": "toy/cartpole", "svpg": PENDULUM, "dqn": "toy/cartpole", "td3": PENDULUM, "diayn": "point/skills",
         "multitask_sac": "point/skills"}  # fmt: skip
"""An algorithm for each class of policies that no other test exports, and where it plays."""
LSTM = ActorCriticConfig(
    memory=MemoryConfig("lstm", 8, layers=2),
    blocks=({"name": "history", "reads": ["pos"], "writes": "past", "length": 3, "size": 4},),
    observations=Observations(("vel", "past"), ("pos", "vel")),
)


def spec_of(env_id):
    with make_env(env_id, num_envs=1) as env:
        return env.spec


def trained(policy):
    """As training leaves it: statistics that are not those of the start, an actor that does something."""
    generator = torch.Generator().manual_seed(0)
    one = getattr(policy, "acting", policy)
    for name in one.all_groups:
        norm = one.normalisers.of(name)
        if norm is not None:
            norm.train().update(1.0 + 3.0 * torch.randn(64, *norm.shape, generator=generator))
    for parameter in policy.parameters():
        parameter.data.mul_(1.5)
    return policy.eval()


def subject(policy, env_id=PENDULUM, step=PolicyStep):
    return Subject(
        step(policy), InferencePolicy(policy), lambda n: make_env(env_id, num_envs=n), {"run": "a test"}, "a test"
    )


class TestKinds:
    def test_a_run_with_memory_and_normaliser(self, run, exported):
        contract = json.loads((exported / "policy_contract.json").read_text())
        proof = contract["proof"]
        assert sorted(path.name for path in exported.iterdir()) == sorted(FILES)
        assert proof["observations"] >= 1000
        assert proof["episodes"] >= 10
        assert proof["driven_steps"] == 200  # a whole episode
        assert len(proof["differences"]) == 3
        assert 0.0 < max(proof["differences"].values()) <= TOLERANCE
        norm = gaitway.load(run).policy.normalisers.of("vel")
        assert contract["inputs"][1]["normalisation"]["mean"] == norm.mean.tolist()
        assert int(norm.count) == 256

    def test_a_plain_network_with_a_trained_normaliser(self, tmp_path):
        policy = trained(ActorCritic(spec_of(PENDULUM), ActorCriticConfig(), torch.Generator().manual_seed(0)))
        assert export_policy(subject(policy), tmp_path / "out", "onnx").largest <= TOLERANCE

    def test_two_layers_of_lstm_behind_a_history(self, tmp_path):
        policy = trained(ActorCritic(spec_of(PENDULUM), LSTM))
        proof = export_policy(subject(policy), tmp_path / "out", "onnx")
        assert proof.largest <= TOLERANCE
        contract = json.loads((tmp_path / "out" / "policy_contract.json").read_text())
        assert [entry["input"] for entry in contract["memories"]] == ["past/memory_in", "actor/memory_in"]
        history, lstm = contract["memories"]
        assert [part["name"] for part in history["parts"]] == ["pos@-2", "pos@-1"]
        assert [(part["name"], part["start"]) for part in lstm["parts"]] == [
            ("hidden 0", 0), ("hidden 1", 8), ("cell 0", 16), ("cell 1", 24)
        ]  # fmt: skip

    def test_sac_with_a_trained_normaliser(self, tmp_path):
        config = SoftActorCriticConfig(normalise_observations=True, actor_hidden=(32, 32), critic_hidden=(256, 256))
        policy = trained(SoftActorCritic(spec_of(PENDULUM), config))
        proof = export_policy(subject(policy), tmp_path / "out", "onnx")
        assert proof.largest <= TOLERANCE
        size = (tmp_path / "out" / "policy.onnx").stat().st_size
        assert size < 40_000  # four critics of 70,000 parameters stay where they are

    @pytest.mark.parametrize("name", KINDS)
    def test_every_kind_of_policy(self, name, tmp_path, monkeypatch):
        monkeypatch.setattr(proof_module, "DRIVEN_STEPS", 50)
        recipe, env_id = RECIPES[name], KINDS[name]
        small = {each.name: (8,) for each in fields(recipe.agent) if each.name.endswith("hidden")}
        policy = trained(recipe.policy(spec_of(env_id), recipe.agent(**small), torch.Generator().manual_seed(0)))
        assert export_policy(subject(policy, env_id), tmp_path / "out", "torch").largest <= TOLERANCE
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["policy.pt2", "policy_contract.json"]

    def test_agents_that_act_together(self, tmp_path):
        spec = spec_of(PENDULUM)
        config = ActorCriticConfig(memory=MemoryConfig("gru", 4), observations=Observations(("pos",), ("pos", "vel")))
        policy = trained(ActorCritic(spec, config))
        agents = [policy, Smooth()]
        step = CastStep(policy, agents, spec)
        assert step.input_names == ["obs/pos", "actor/memory_in", "smooth/last_in"]  # nothing of the critic
        made = Subject(step, CastPolicy(agents), lambda n: make_env(PENDULUM, num_envs=n), {}, "a cast")
        assert export_policy(made, tmp_path / "out", "torch").largest <= TOLERANCE

    def test_an_image_and_a_block_of_ones_own(self, tmp_path):
        """Nothing here knows of pictures: they are groups like others, and stay uint8 up to their block."""
        groups = (
            ObservationGroup("camera", (Component("pixel", 48),), (3, 4, 4), "uint8"),
            ObservationGroup("body", (Component("angle", 2, "rad"),), (2,), "float64"),
        )
        free = ActionSpec("continuous", ("a", "b"), (-float("inf"), -0.01), (float("inf"), 0.01))
        spec = EnvSpec("robot", groups, free, 0.02, 100)
        policy = trained(
            ActorCritic(spec, ActorCriticConfig(observations=Observations(("seen", "body"))), blocks=[Eye()])
        )
        policy.actor.network.last.weight.data.mul_(1000.0)
        step = PolicyStep(policy)
        programs.write_onnx(programs.trace(step), step, tmp_path / "policy.onnx")
        contract = export_folder._contract(step, subject(policy), tmp_path, ["policy.onnx"])
        (tmp_path / "policy_contract.json").write_text(json.dumps(contract))
        draw = np.random.default_rng(0)
        obs = {"camera": draw.integers(0, 255, (5, 3, 4, 4), np.uint8), "body": draw.normal(size=(5, 2))}
        with torch.no_grad():
            wanted, _ = policy.act({name: torch.from_numpy(value) for name, value in obs.items()}, None, False)
        wanted = limited(wanted, free).numpy()
        found = RobotRunner(tmp_path, batch=5)(obs)
        assert found.dtype == np.float32
        assert difference(found, wanted) <= TOLERANCE
        assert np.abs(found[:, 1]).max() == np.float32(0.01)  # the limit of one action; the other has none
        assert np.abs(found[:, 0]).max() > 0.01

    def test_a_component_that_an_estimate_replaces_may_be_anything(self, tmp_path):
        """T-PRIVATE: what the actor must not see is NaN, left out or told, and the action has the same bits."""
        body = ObservationGroup("body", (Component("gyro", 2), Component("speed", 2), Component("angle", 1)), (5,))
        truth = ObservationGroup("truth", (Component("speed", 2),), (2,))
        spec = EnvSpec("robot", (body, truth), ActionSpec("continuous", ("a",), (-9.0,), (9.0,)), 0.02, 100)
        tells = {"name": "estimator", "reads": ["body.gyro"], "writes": "speed", "target": ["truth"],
                 "into": ["body.speed"], "replace": 0.5, "memory": "gru", "memory_size": 4}  # fmt: skip
        config = ActorCriticConfig(blocks=(tells,), observations=Observations(("body",), ("body", "truth")))
        policy = trained(ActorCritic(spec, config, torch.Generator().manual_seed(0)))
        policy.actor.network.last.weight.data.mul_(100.0)
        step = PolicyStep(policy)
        assert step.input_names == ["obs/body", "estimate/speed/memory_in"]
        programs.write_onnx(programs.trace(step), step, tmp_path / "policy.onnx")
        contract = export_folder._contract(step, subject(policy), tmp_path, ["policy.onnx"])
        assert [entry.get("unread", False) for entry in contract["inputs"][0]["components"]] == [False, True, False]
        (tmp_path / "policy_contract.json").write_text(json.dumps(contract))
        runner, draw, state = RobotRunner(tmp_path, batch=3), np.random.default_rng(0), policy.initial_state(3, "cpu")
        for _ in range(3):
            seen = draw.normal(size=(3, 5)).astype(np.float32)
            with torch.no_grad():
                wanted, state = policy.act({"body": torch.from_numpy(seen)}, state, False)
            told = {"gyro": seen[:, :2], "angle": seen[:, 4:]}
            spoilt = seen.copy()
            spoilt[:, 2:4] = np.nan
            before, found = runner.memory, []
            for shown in (seen, spoilt, told, told | {"speed": np.full((3, 2), np.inf)}):
                runner.memory = dict(before)
                found.append(runner({"body": shown}))
            assert all(np.array_equal(each, found[0]) for each in found)
            assert difference(found[0], limited(wanted, spec.action).numpy()) <= TOLERANCE
        with pytest.raises(ValueError, match="not finite in 'angle'"):
            runner({"body": np.where(np.arange(5) == 4, np.nan, seen).astype(np.float32)})


class Smooth(Agent):
    """The mean of this action and the last one."""

    reads, writes = ("action",), ("action",)
    memories = MappingProxyType({"smooth/last": None})
    resets = True

    def step(self, ws, t):
        now = ws.at("action", t)
        if "smooth/last" not in ws:
            ws.put("smooth/last", t, torch.zeros_like(now))
        ws.put("action", t, 0.5 * (now + ws.at("smooth/last", t)))
        ws.put("smooth/last", t + 1, now)

    def reset(self, ws, t, mask):
        if "smooth/last" in ws:
            ws.put("smooth/last", t, ws.at("smooth/last", t) * ~mask.unsqueeze(-1))


class Eye(Block):
    def __init__(self):
        super().__init__(("camera",), "seen", 4)
        self.network = nn.Sequential(nn.Conv2d(3, 4, 2), nn.ELU(), nn.Flatten(), nn.Linear(36, 4))

    def forward(self, *features):
        return self.network(features[0].float() / 255.0)


# Broken twins: each is a step that differs from the policy in one thing


class WithoutNormaliser(PolicyStep):
    def act(self, obs, states):
        norms = {name: self.policy.normalisers.of(name) for name in obs}
        return super().act({name: norm.inverse(obs[name]) for name, norm in norms.items()}, states)


class MemoryStandsStill(PolicyStep):
    def act(self, obs, states):
        action, _ = super().act(obs, states)
        return action, states


class ColumnsFlipped(PolicyStep):
    def act(self, obs, states):
        return super().act(obs | {"pos": obs["pos"].flip(-1)}, states)


class SlightlyOff(PolicyStep):
    def act(self, obs, states):
        action, states = super().act(obs, states)
        return action + 5e-5, states


class Steep:
    def __call__(self, observation):
        assert observation["picture"].tolist() == [[1], [1]]
        return 1000.0 * (observation["x"] - 1.0)

    def reset(self, rows=None):
        """It remembers nothing."""


class WithoutLimits(PolicyStep):
    def __init__(self, policy):
        super().__init__(policy)
        self.is_limited = False


@pytest.fixture(scope="module")
def policy():
    config = ActorCriticConfig(memory=MemoryConfig("gru", 8), actor_hidden=(8,))
    policy = trained(ActorCritic(spec_of(PENDULUM), config, torch.Generator().manual_seed(0)))
    policy.actor.network.last.weight.data.mul_(60.0)  # beyond the limits now and then
    return policy


class TestTwins:
    @pytest.mark.parametrize(
        "twin",
        [WithoutNormaliser, MemoryStandsStill, ColumnsFlipped, WithoutLimits],
    )
    def test_a_spoilt_step_is_refused(self, policy, twin, tmp_path):
        with pytest.raises(
            ValueError, match=r"is not its policy: replayed through policy.pt2 the actions differ by .*e-05"
        ):
            export_policy(subject(policy, step=twin), tmp_path / "deep" / "out", "torch")
        assert list(tmp_path.iterdir()) == []

    def test_what_differs_by_little_is_taken_where_that_is_asked_for(self, policy, tmp_path):
        made = subject(policy, step=SlightlyOff)
        with pytest.raises(ValueError, match=r"more than 1e-05.*among its memories"):
            export_policy(made, tmp_path / "out", "torch")
        assert TOLERANCE < export_policy(made, tmp_path / "out", "torch", tolerance=1e-4).largest <= 1e-4
        with pytest.raises(ValueError, match="tolerance is 0; use a number above 0"):
            export_policy(made, tmp_path / "out", "torch", tolerance=0.0)

    @pytest.mark.parametrize(
        ("moved", "words"),
        [(1.1e-4, r"rounding does as much.*by --tolerance 2e-04"), (9e-5, "its memories"), (1.0, "its memories")],
    )
    def test_what_rounding_does_is_called_so(self, moved, words):
        proof = Proof(1000, 10, 50, 0.0, {"one": 1e-6, "other": 1e-4})
        proof.check("a test", 1e-4, moved)
        with pytest.raises(ValueError, match=words):
            proof.check("a test", 1e-5, moved)

    def test_what_rounding_does_is_what_the_next_float_does(self):
        """The float behind 1 is 1 + 2^-23, so that 1000 (x - 1) goes from 0 to 1000 * 2^-23, about 1.2e-4."""
        steep = Steep()
        seen, compared = (
            {"x": np.ones((2, 1), np.float32), "picture": np.ones((2, 1), np.uint8)},
            np.array([True, False]),
        )
        row = Row(seen, np.zeros(2, bool), np.zeros((2, 1), np.float32), compared)
        recording = Recording(spec_of(PENDULUM), [row, row], 4, 2)
        assert proof_module.moved_by_rounding(recording, steep, steep) == pytest.approx(1000 * 2**-23)

    def test_the_step_itself_is_not(self, policy, tmp_path):
        proof = export_policy(subject(policy), tmp_path / "out", "torch")
        assert proof.largest <= TOLERANCE
        assert 0.05 < proof.share_at_limits < 0.5

    @pytest.mark.parametrize("spoilt", ["order", "reset", "other networks"])
    def test_a_spoilt_onnx_or_contract_is_refused(self, run, exported, spoilt, tmp_path, monkeypatch):
        """The proof runs the files that go to the robot: here the contract of the run, or its ONNX, is wrong."""
        made = export_folder.contract_of

        def contract_of(*arguments):
            contract = made(*arguments)
            if spoilt == "order":
                contract["inputs"][0]["components"].reverse()
            elif spoilt == "reset":
                contract["memories"][0]["reset"] = 0.1
            return contract

        def write(program, step, path):
            content = (exported / "policy.onnx").read_bytes()
            if spoilt == "other networks":
                content = content.replace(bias, (np.frombuffer(bias, np.float32) + 0.01).tobytes())
                assert content != (exported / "policy.onnx").read_bytes()
            path.write_bytes(content)

        bias = gaitway.load(run).policy.actor.network.last.bias.detach().numpy().tobytes()
        monkeypatch.setattr(export_folder, "contract_of", contract_of)
        monkeypatch.setattr(export_folder, "write_onnx", write)
        with pytest.raises(ValueError, match=r"is not its policy: .*policy.onnx the actions differ"):
            gaitway.load(run).export(tmp_path / "out", format="onnx")
        assert list(tmp_path.iterdir()) == []

    def test_nan_is_a_difference(self):
        assert difference(np.float32([np.nan, 0.0]), np.float32([0.0, 0.0])) != 0.0
        assert not difference(np.float32([np.nan]), np.float32([np.nan])) <= TOLERANCE
        assert not difference(np.zeros((2, 1)), np.zeros(2)) <= TOLERANCE
        assert difference(np.int64([1, 0]), np.int64([1, 1])) == 1.0
        assert difference(np.float32([200.001]), np.float32([200.0])) == pytest.approx(5e-6, rel=0.05)


class Looks(Block):
    def __init__(self):
        super().__init__(("pos",), "seen", 2)

    def forward(self, *features):
        return features[0] * 2.0 if features[0].sum() > 0 else features[0]


class Counts(Looks):
    def forward(self, *features):
        return features[0] + torch.zeros(len(features[0]), 2)


class TestRefusals:
    @pytest.mark.parametrize(("block", "words"), [(Looks, "look at values of tensors"), (Counts, "write x.shape")])
    def test_a_block_that_cannot_be_traced(self, block, words, tmp_path):
        policy = ActorCritic(
            spec_of(PENDULUM), ActorCriticConfig(observations=Observations(("seen",))), blocks=[block()]
        )
        with pytest.raises(ValueError, match=words) as caught:
            export_policy(subject(policy.eval()), tmp_path / "out", "torch")
        assert "\n" not in str(caught.value)
        assert list(tmp_path.iterdir()) == []

    def test_folders_of_others_stay(self, run, exported, tmp_path):
        (tmp_path / "notes.txt").write_text("mine")
        with pytest.raises(StateFileError, match="is not an export"):
            gaitway.load(run).export(tmp_path, format="torch")
        with pytest.raises(StateFileError, match="is not an export"):
            gaitway.load(run).export(run, format="torch")
        assert (tmp_path / "notes.txt").read_text() == "mine"
        assert (run / "config.yaml").is_file()
        with pytest.raises(ValueError, match="use one of onnx, torch, both"):
            gaitway.load(run).export(tmp_path / "new", format="jit")

    def test_an_export_is_replaced_by_the_next_one_alone(self, run, tmp_path):
        out = tmp_path / "out"
        gaitway.load(run).export(out, format="torch")
        before = out.stat().st_ino
        gaitway.load(run).export(out, format="torch")
        assert out.stat().st_ino != before
        assert [path.name for path in tmp_path.iterdir()] == ["out"]
        (out / "notes.txt").write_text("mine")
        with pytest.raises(ValueError, match=r"'notes.txt', which is no part of an export"):
            gaitway.load(run).export(out, format="torch")
        assert (out / "policy.pt2").is_file()


def test_files_say_nothing_of_this_machine_and_pickle_no_weights(exported):
    here = str(Path(gaitway.__file__).parent).encode()
    assert not any(here in (exported / name).read_bytes() for name in FILES if name != "policy.pt2")
    with zipfile.ZipFile(exported / "policy.pt2") as archive:
        weights = [name for name in archive.namelist() if "/data/weights/weight_" in name]
        assert weights
        assert not any(here in archive.read(name) for name in archive.namelist())
        assert all(not archive.read(name).startswith(b"\x80") and archive.read(name)[:2] != b"PK" for name in weights)
