"""A policy is measured while groups that it does not need are NaN; one that it reads stops it."""

import json

import pytest

from gaitway.cli.main import main

TINY = [
    "env.id=toy/oscillator",
    "env.num_envs=2",
    "env.options.max_episode_steps=6",
    "total_steps=32",
    "preflight=false",
]
TINY += ["algorithm.rollout_steps=8", "algorithm.minibatches=2", "agent.actor_hidden=[4]", "agent.critic_hidden=[4]"]
TINY += ["agent.observations={actor: [policy], critic: [policy, phase]}", "evaluation.episodes=2", "torch_threads=1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("hidden") / "run"
    assert main(["train", *TINY, f"run_dir={place}", "logging.code=none", "--quiet"]) == 0
    return str(place)


def evaluated(capsys, *arguments):
    capsys.readouterr()
    assert main(["eval", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_what_the_actor_does_not_read_may_be_hidden(run, capsys):
    plain = evaluated(capsys, run)
    for others in ([], ["--policy", run]):
        found = evaluated(capsys, run, *others, "--hide", "phase")
        assert found.pop("hidden") == ["phase"]
        assert found == plain
    assert main(["eval", run, "--hide", "phase"]) == 0
    assert "hidden: phase" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["policy", "policy.velocity"])
def test_what_it_reads_stops_it(run, capsys, name):
    capsys.readouterr()
    assert main(["eval", run, "--hide", name]) != 0
    assert "the action of instance 0 is nan" in capsys.readouterr().err


def test_a_name_that_is_not_there_is_refused(run, capsys):
    assert main(["eval", run, "--hide", "phse"]) != 0
    assert "no 'phse' to hide" in capsys.readouterr().err


def test_choices_would_not_notice(run, capsys):
    assert main(["eval", "toy/cartpole", "--policy", run, "--hide", "policy"]) != 0
    assert "takes choices" in capsys.readouterr().err


ESTIMATED = (
    "agent.blocks=[{name: estimator, reads: [phase], writes: felt, target: [policy], replace: 1.0, hidden: [4]}]"
)


def test_without_estimates_the_actor_reads_what_they_replace(run, tmp_path, capsys):
    place = str(tmp_path / "run")
    assert main(["train", *TINY, ESTIMATED, f"run_dir={place}", "logging.code=none", "--quiet"]) == 0
    by_estimates = evaluated(capsys, place, "--hide", "policy")
    assert by_estimates["return"] == evaluated(capsys, place)["return"]  # what is replaced is not read
    measured = evaluated(capsys, place, "--without-estimates")
    assert measured["estimates"] is False
    assert measured["return"] != by_estimates["return"]
    capsys.readouterr()
    assert main(["eval", place, "--without-estimates", "--hide", "policy"]) != 0
    assert "the action of instance 0 is nan" in capsys.readouterr().err


def test_without_estimates_needs_some(run, capsys):
    assert main(["eval", run, "--without-estimates"]) != 0
    assert "no estimator of" in capsys.readouterr().err
    assert main(["eval", run, "--policy", run, "--without-estimates"]) != 0
    assert "leave out --policy" in capsys.readouterr().err
