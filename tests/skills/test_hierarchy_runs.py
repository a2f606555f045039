"""Runs of every agent that decides for several steps: they resume bit for bit in the midst of a decision, evaluations
agree, and exports are their policies with what is decided as explicit inputs and outputs."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from hierarchy_cases import AGENTS, EPISODE, SMALL, STEPS, in_the_midst, write_files
from hsd3_cases import make_policy
from resume_cases import differing, numbers

import gaitway
from gaitway.agents.policy import InferencePolicy
from gaitway.cli.main import main
from gaitway.core.files import load_state
from gaitway.envs.registry import make_env
from gaitway.export import proof as proof_module
from gaitway.export.acting_step import PolicyStep, limited
from gaitway.export.programs import ExportError, trace, write_onnx
from gaitway.export.proof import TOLERANCE, Proof, TorchRunner, difference
from gaitway.skills.hsd3_policy import HSD3Policy


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    return write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module", params=AGENTS)
def run(request, files, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("runs") / request.param
    options = AGENTS[request.param]
    for name, file in files.items():
        options = [each.replace(f"={name}", f"={file}") for each in options]
    assert main(["train", *SMALL, *options, f"run_dir={path}", "--quiet"]) == 0
    return path


@pytest.fixture(autouse=True)
def short_proofs(monkeypatch):
    monkeypatch.setattr(proof_module, "OBSERVATIONS", 200)
    monkeypatch.setattr(proof_module, "DRIVEN_STEPS", 60)


def last(path: Path) -> dict[str, Any]:
    return load_state(path / "checkpoints" / "last", kind="checkpoint")[0]


def test_it_resumes_exactly_in_the_midst_of_a_decision(run, tmp_path):
    state = load_state(run / "checkpoints" / str(2 * STEPS), kind="checkpoint")[0]
    assert in_the_midst(gaitway.load(run, str(2 * STEPS)).policy, state["carried"])
    twin = tmp_path / "twin"
    shutil.copytree(run, twin, symlinks=True)
    assert main(["resume", str(twin), "--checkpoint", str(2 * STEPS), "--quiet"]) == 0
    ours, theirs = (
        {
            place: value
            for place, value in numbers(last(path)).items()
            if "seconds" not in place and "logger" not in place
        }
        for path in (twin, run)
    )
    assert len(theirs) > 20
    assert not differing(ours, theirs)


def test_evaluations_agree(run):
    loaded = gaitway.load(run, "last")
    assert loaded.evaluate() == loaded.evaluate() == gaitway.load(run, "last").evaluate()


class Spoilt(PolicyStep):
    """Broken: decides anew at every step."""

    def act(self, obs, states):
        phase, rest = states[0].split([1, states[0].shape[1] - 1], -1)
        return super().act(obs, [torch.cat((phase * 0.0, rest), -1)])


def permuted(policy: HSD3Policy) -> PolicyStep:
    """Broken: the bits of another task map."""
    twin = copy.deepcopy(policy)
    twin.interface.task_bits = twin.interface.task_bits.roll(1, -1)
    return PolicyStep(twin)


@pytest.mark.parametrize("spoil", [PolicyStep, Spoilt, permuted])
def test_what_spoils_phase_or_task_map_is_not_the_policy(spoil):
    with make_env("point/duck", num_envs=4, max_episode_steps=31) as env:
        policy = make_policy(env.spec).eval()
        step = spoil(policy)
        recording = proof_module.record(env, InferencePolicy(policy), tuple(group.name for group in step.groups))
        found = proof_module.replay(recording, TorchRunner(step, step, 4))
    told = Proof(recording.observations, recording.episodes, 0, 0.0, {"replayed": found})
    if spoil is PolicyStep:
        told.check("a test")
        return
    with pytest.raises(ExportError, match="is not its policy"):
        told.check("a test")


def test_a_near_tie_of_goal_spaces_is_counted_and_not_compared():
    with make_env("point/duck", num_envs=2, max_episode_steps=31) as env:
        policy = make_policy(env.spec).eval()
        torch.nn.init.zeros_(policy.spaces.last.weight)
        torch.nn.init.zeros_(policy.spaces.last.bias)
        policy.spaces.last.bias.data[:2] = torch.tensor([1.0, 1.0 + 1e-6])
        recording = proof_module.record(env, InferencePolicy(policy), tuple(policy.actor_groups))
        assert recording.near_ties == recording.observations
        assert proof_module.replay(recording, Elsewhere(recording)) == 0.0
        policy.spaces.last.bias.data[1] = 2.0
        clear = proof_module.record(env, InferencePolicy(policy), tuple(policy.actor_groups))
        assert clear.near_ties == 0
        assert proof_module.replay(clear, Elsewhere(clear)) > 0.1


class Elsewhere:
    """Does something else everywhere."""

    def __init__(self, recording):
        self.shape = recording.rows[0].action.shape

    def __call__(self, observation):
        return np.full(self.shape, 0.9, dtype=np.float32)

    def reset(self, rows=None):
        pass


def test_a_skill_file_is_exported(files, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["export", str(files["SKILLS"]), "--out", str(out), "--format", "torch"]) == 0
    contract = json.loads((out / "policy_contract.json").read_text())
    assert [entry["group"] for entry in contract["inputs"]] == ["desired_goal", "observation", "task"]
    assert contract["task_map"] == {"0": 0, "1": 1, "2": 2, "3": 3}
    assert max(contract["proof"]["differences"].values()) <= TOLERANCE
    assert main(["export", str(files["CONTINUOUS"]), "--out", str(tmp_path / "other")]) != 0
    assert "on a continuous scale" in capsys.readouterr().err


@pytest.mark.parametrize("run", ["hsd3", "hiro"], indirect=True)
def test_its_export_is_the_policy(run, tmp_path):
    out = tmp_path / "out"
    assert main(["export", str(run), "--format", "torch", "--out", str(out)]) == 0
    contract = json.loads((out / "policy_contract.json").read_text())
    assert contract["proof"]["driven_steps"] == EPISODE
    assert max(contract["proof"]["differences"].values()) <= TOLERANCE
    (memory,) = contract["memories"]
    assert memory["input"].endswith("_in")
    assert [part["name"] for part in memory["parts"]] == PARTS[run.name]


def test_onnxruntime_goes_through_an_episode_with_a_state_of_its_own(tmp_path):
    """Actions, and all that is remembered, step by step; where two goal spaces are nearly equal, neither is compared
    up to the next decision."""
    with make_env("point/duck", num_envs=4, seed=0) as env:
        policy = make_policy(env.spec).eval()
        torch.nn.init.normal_(policy.spaces.last.weight, generator=torch.Generator().manual_seed(0))
        torch.nn.init.zeros_(policy.spaces.last.bias)  # so that the choice depends on where the robot is
        step = PolicyStep(policy)
        write_onnx(trace(step), step, tmp_path / "policy.onnx")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(tmp_path / "policy.onnx", options, providers=["CPUExecutionProvider"])
        assert [each.name for each in session.get_inputs()] == step.input_names
        ours, theirs = policy.initial_state(4, "cpu"), np.zeros((4, step.memories[0].size), dtype=np.float32)
        obs, tied = env.reset(seed=[0, 1, 2, 3]), torch.zeros(4, dtype=torch.bool)
        compared, apart, seen = 0, 0.0, set()
        for _ in range(200):
            with torch.inference_mode():
                margin = policy.choice_margin(obs, ours)
                tied = torch.where(margin.isfinite(), margin < proof_module.NEAR_TIE, tied)
                action, ours = policy.act(obs, ours, False)
            groups = [obs[group.name].numpy().copy() for group in step.groups]
            told, theirs = session.run(None, dict(zip(step.input_names, [*groups, theirs], strict=True)))
            for found, wanted in ((told, limited(action, env.spec.action)), (theirs, ours)):
                apart = max(apart, difference(found[~tied.numpy()], wanted[~tied].numpy()))
            compared += int((~tied).sum())
            seen |= {(int(phase), int(space)) for phase, space in ours[:, :2].tolist()}
            moved = env.step(action)
            ended = moved.terminated | moved.truncated
            ours, theirs, obs = ours * ~ended[:, None], theirs * ~ended[:, None].numpy(), moved.obs
    assert apart <= TOLERANCE
    assert compared > 700
    assert {phase for phase, _ in seen} == {0, 1, 2, 3, 4}
    assert len({space for _, space in seen}) > 1


PARTS = {"hsd3": ["phase", "goal_space", "subgoal", "left", "features"], "hiro": ["steps", "target"]}
