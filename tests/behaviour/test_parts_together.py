"""Parts of robot learning together: memory, encoder, estimator, teacher, style, symmetry, reward groups, dataset stage.

Two runs have every pair of them but symmetry with memory, which is refused; `gaitway bench robot_learning_pairs` runs
the 28 pairs one by one, and exports them. T-RATIO: the update computes what was done, whoever did it. T-ATPPO, the part
that arithmetic decides: labels are the teacher's, and every loss is there.
"""

import importlib
import sys
from pathlib import Path

import pytest
import torch

from gaitway.agents.teacher import ACTION, Teacher
from gaitway.algorithms.algorithm import Now
from gaitway.cli.build import build_runner
from gaitway.cli.compose_run import compose_run
from gaitway.cli.main import main
from gaitway.envs.toys.controllers import follow_reference

WITHOUT_SYMMETRY = ("memory", "encoder", "estimator", "teacher", "style", "reward groups", "dataset stage")
WITHOUT_MEMORY = ("encoder", "estimator", "teacher", "style", "symmetry", "reward groups", "dataset stage")


@pytest.fixture(scope="module")
def pairs():
    """The benchmark that does the same with every pair."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
    yield importlib.import_module("robot_learning_pairs")
    sys.path.pop(0)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    place = tmp_path_factory.mktemp("recorded") / "oscillator"
    assert main(["collect", "toy/oscillator", "--steps=400", f"--out={place}", "--quiet"]) == 0
    return str(place)


@pytest.mark.parametrize("parts", [WITHOUT_SYMMETRY, WITHOUT_MEMORY], ids=["without symmetry", "without memory"])
def test_every_pair_trains_and_resumes_bit_for_bit(parts, pairs, dataset, tmp_path):
    row = pairs.carry_out(parts, tmp_path, dataset, export=False)
    assert pairs.holds(row), row
    assert row["resumed_at"] < 5 * 8 * 16  # within the dataset's stage
    assert row["iterations"] == 8


def test_together_they_are_all_pairs_but_one(pairs):
    there = {tuple(sorted(pair)) for pair in pairs.PAIRS}
    for parts in (WITHOUT_SYMMETRY, WITHOUT_MEMORY):
        there -= {tuple(sorted((one, other))) for one in parts for other in parts}
    assert there == {tuple(sorted(pairs.REFUSED))}


def test_symmetry_with_memory_is_refused_in_a_sentence(pairs, dataset, tmp_path):
    row = pairs.carry_out(pairs.REFUSED, tmp_path, dataset)
    assert pairs.holds(row)
    assert row["refused"].endswith("leave one of them out")
    assert not pairs.holds({"parts": ["memory", "style"], "refused": row["refused"]})


# --- T-RATIO and T-ATPPO: rollouts of such runs ---


def collected(pairs, parts):
    """A runner with these parts after two rollouts with fixed weights."""
    config, _ = compose_run(pairs.arguments(parts, ""))
    runner = build_runner(config, None)
    with torch.no_grad():
        runner.policy.actor.network.last.weight.mul_(100.0)  # a first policy does next to nothing anywhere
    runner._begin()
    for _ in range(2):
        runner.cast.begin(Now())
        runner.rewards.begin(Now())
        runner._collect()
        runner.iteration += 1
    return runner


def ratio(runner, change=lambda fields: {}):
    fields = dict(runner.algorithm.prepare(runner.rollout))
    fields |= change(fields)
    with torch.no_grad():
        params, _ = runner.policy.evaluate(fields)
        log_prob = runner.policy.head.log_prob(params, fields["raw"])
    return float((log_prob - fields["log_prob"]).abs().max())


TWINS = {
    "mask drawn again": lambda fields: {"replaced/speed": ~fields["replaced/speed"]},
    "state of another environment": lambda fields: {"memory/actor/memory": fields["memory/actor/memory"].roll(1, 0)},
    "not what was executed": lambda fields: {
        "raw": fields["raw"] + 0.1 * (fields["weight/policy"] == 0).unsqueeze(-1)  # where the teacher drove
    },
}


@pytest.mark.parametrize("parts", [("encoder", "estimator", "teacher", "memory"), ("encoder", "estimator", "teacher")])
def test_the_ratio_of_every_step_is_one_and_twins_are_seen(parts, pairs):
    runner = collected(pairs, parts)
    taught = runner.rollout["weight/policy"] == 0
    assert 0 < int(taught.sum()) < taught.numel()
    assert ratio(runner) < 1e-5
    for name, twin in TWINS.items():
        if name != "state of another environment" or "memory" in parts:
            assert ratio(runner, twin) > 1e-3, name


class OwnLabels(Teacher):
    """Broken: the executed action stands in the place of the label, as where two mixins wrote the same field."""

    def step(self, ws, t):
        super().step(ws, t)
        ws.put(ACTION, t, ws.at("action", t))


@pytest.mark.parametrize("honest", [True, False])
def test_labels_beside_a_discriminator_are_the_teachers(honest, pairs, monkeypatch):
    if not honest:
        monkeypatch.setattr("gaitway.agents.teacher.Teacher", OwnLabels)
    runner = collected(pairs, ("teacher", "style"))
    ws = runner.rollout
    labels = runner.algorithm.prepare(ws)[ACTION]
    seen = {name: ws[f"env/obs/{name}"][: ws.T].flatten(0, 1) for name in ("policy", "phase")}
    assert torch.equal(labels.flatten(0, 1), follow_reference(seen)) is honest
    runner.rewards.annotate(ws)
    metrics = runner.algorithm.update(ws, Now()) | runner.rewards.update(ws, Now())
    losses = {"loss/surrogate", "loss/value", "loss/entropy", "loss/imitation", "style/loss", "reward/style"}
    assert losses <= set(metrics)
