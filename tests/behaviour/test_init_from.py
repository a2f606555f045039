"""`init_from`: weights and temperatures of a run or of a skill file, everything else as in a new run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from gaitway.cli.build import build_algorithm, build_env
from gaitway.cli.init_from import init_from
from gaitway.cli.main import main
from gaitway.cli.train_config import effective, parse
from gaitway.core.files import load_state
from gaitway.skills.skill_file import Skills

NETWORK = ["agent.actor_hidden=[6, 6]", "agent.critic_hidden=[6]", "evaluation.episodes=1", "--quiet"]
REPLAY = ["algorithm.learning_starts=20", "algorithm.iteration_steps=40", "algorithm.replay_size=1000",
          "algorithm.batch_size=8", "total_steps=120", "env.num_envs=4"]  # fmt: skip
KINDS = {
    "ppo": ["env.id=toy/cartpole", "env.num_envs=4", "algorithm.rollout_steps=8", "total_steps=64"],
    "ppo_normalised": [
        "env.id=toy/pendulum", "env.num_envs=4", "algorithm.rollout_steps=8", "total_steps=64",
        "algorithm.normalise_value=true", "agent.normalise_observations=true",
    ],
    "sac": ["algorithm=sac", "env.id=toy/pendulum", *REPLAY],
    "multitask_sac": [
        "algorithm=multitask_sac", "env.id=point/skills", "env.options={feature_dist: '0#3', max_steps: 8}", *REPLAY,
        "evaluation.trials=1", "evaluation.metric=success", "evaluation.stochastic=false", "algorithm.update_ratio=0.2",
        "algorithm.per_task_temperature=true",
        "callbacks=[{name: curriculum, interval: 40}, {name: skill_file, floors: false}]",
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A small run of each kind."""
    place = tmp_path_factory.mktemp("runs")
    for kind, arguments in KINDS.items():
        assert main(["train", *arguments, *NETWORK, f"run_dir={place / kind}"]) == 0
    return place


def train(kind, folder, source, *more):
    return main(["train", *KINDS[kind], *NETWORK, f"run_dir={folder}", f"init_from.run={source}", *more])


def algorithm_of(folder, source):
    """The algorithm of a run as it would begin with `source`, and the line that says so."""
    data = yaml.safe_load((Path(folder) / "config.yaml").read_text()) | {"init_from": {"run": str(source)}, "seed": 9}
    config = effective(parse(data))
    with build_env(config) as env:
        algorithm = build_algorithm(config, env)
        fresh = {name: value.clone() for name, value in algorithm.policy.state_dict().items()}
        return algorithm, init_from(config, algorithm), fresh


def stored(folder, which="best"):
    return load_state(Path(folder) / "checkpoints" / which, kind="checkpoint")[0]["algorithm"]


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_run_begins_with_the_weights_of_another(runs, kind):
    algorithm, line, fresh = algorithm_of(runs / kind, runs / kind)
    state = stored(runs / kind)
    assert "best checkpoint" in line
    for name, value in algorithm.policy.state_dict().items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, state["policy"][name]), name
    assert any(not torch.equal(fresh[name], value) for name, value in algorithm.policy.state_dict().items())
    now = algorithm.state_dict()
    if "temperature" in state:
        for name, value in now["temperature"].items():
            assert torch.equal(value, state["temperature"][name])
        assert float(value.flatten()[0]) != pytest.approx(0.0, abs=1e-9) or kind != "multitask_sac"
    if "value_norm" in state:
        assert all(torch.equal(value, state["value_norm"][name]) for name, value in now["value_norm"].items())


@pytest.mark.parametrize("kind", ["sac", "multitask_sac"])
def test_counters_optimisers_and_streams_are_new(runs, kind):
    algorithm, _, _ = algorithm_of(runs / kind, runs / kind)
    now, then = algorithm.state_dict(), stored(runs / kind)
    assert then["updates"] > 0
    assert now["updates"] == 0
    for name, engine in now["engines"].items():
        assert float(engine["optimiser"]["exp_avg"].abs().sum()) == 0
        assert float(then["engines"][name]["optimiser"]["exp_avg"].abs().sum()) > 0
    assert not torch.equal(now["noise_stream"], then["noise_stream"])
    if kind == "multitask_sac":
        assert float(now["counts"]["used"].sum()) == 0 < float(then["counts"]["used"].sum())


def test_a_whole_run_says_what_it_began_with_and_keeps_it(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(runs)  # a path is written down whole
    assert train("sac", tmp_path / "new", "sac", "seed=4") == 0
    config = yaml.safe_load((tmp_path / "new" / "config.yaml").read_text())
    assert config["init_from"]["run"] == str(runs / "sac")
    assert f"begins with the weights of {runs / 'sac'}, best checkpoint" in (tmp_path / "new" / "run.log").read_text()
    lines = [json.loads(line) for line in (tmp_path / "new" / "metrics.jsonl").read_text().splitlines()]
    sizes = [line["train/replay_size"] for line in lines if "train/replay_size" in line]
    assert sizes
    assert min(sizes) <= 40 + 4


def test_resume_goes_on_with_the_runs_own_weights(runs, tmp_path):
    """Bit for bit as without a stop, although what it began with is gone."""
    source = shutil.copytree(runs / "sac", tmp_path / "source", symlinks=True)
    assert train("sac", tmp_path / "whole", source) == 0
    assert train("sac", tmp_path / "halves", source, "total_steps=60") == 0
    shutil.rmtree(source)
    assert main(["resume", str(tmp_path / "halves"), "until=120", "--quiet"]) == 0
    whole, halves = (stored(tmp_path / name, "last")["policy"] for name in ("whole", "halves"))
    assert all(torch.equal(whole[name], halves[name]) for name in whole)


@pytest.mark.parametrize("form", ["run/skills", "copy"])
def test_a_skill_file_gives_the_actor_alone(runs, tmp_path, form):
    source = runs / "multitask_sac" / "skills"
    if form == "copy":
        source = shutil.copytree(source, tmp_path / "skills")
    algorithm, line, fresh = algorithm_of(runs / "multitask_sac", source)
    skills = Skills.load(source)
    policy = algorithm.policy
    for module in (policy.actor, policy.target_actor):
        for name, value in module.state_dict().items():
            assert torch.equal(value, skills.network.state_dict()[name])
    for name, value in policy.state_dict().items():
        assert ("actor." in name) or torch.equal(value, fresh[name]), name
    assert "begins with the actor of" in line


def test_a_shipped_skill_file_by_its_name(runs):
    data = yaml.safe_load((runs / "multitask_sac" / "config.yaml").read_text())
    agent = data["agent"] | {"actor_hidden": [512] * 4}
    env = data["env"] | {"id": "walker/skills", "options": {"rank_max": 5}}
    config = effective(parse(data | {"env": env, "agent": agent, "init_from": {"run": "walker"}}))
    with build_env(config) as env:
        algorithm = build_algorithm(config, env)
        init_from(config, algorithm)
    assert torch.equal(algorithm.policy.actor.last.bias, Skills.load("walker").network.last.bias)


# What is refused


@pytest.mark.parametrize(
    ("kind", "source", "more", "said"),
    [
        ("ppo", "ppo", ["agent.actor_hidden=[8]"], ["other sizes", "[6, 4] there and [8, 4] here", "set agent"]),
        ("ppo", "ppo", ["agent.actor_hidden=[6, 6, 6]"], ["other sizes", "there and"]),
        ("ppo", "sac", [], ["does not fit toy/cartpole", "actions"]),
        ("sac", "ppo_normalised", [], ["temperature", "does not"]),
        ("ppo_normalised", "ppo_normalised", ["algorithm.normalise_value=false"], ["value_norm", "same options"]),
        ("ppo_normalised", "ppo_normalised", ["agent.normalise_observations=false"], ["other sizes", "has not"]),
        ("multitask_sac", "multitask_sac", ["algorithm.per_task_temperature=false"], ["temperature", "other sizes"]),
        ("multitask_sac", "multitask_sac", ["env.id=walker/skills", "env.options={rank_max: 5}"], ["point", "walker"]),
        ("multitask_sac", "multitask_sac", ["env.options={feature_dist: '0#2#3'}"], ["[0, 3]", "gives [0, 2, 3]"]),
        ("multitask_sac", "walker", [], ["skills of walker and the robot is point"]),
        ("multitask_sac", "multitask_sac/skills", ["agent.actor_hidden=[8]"], ["the actor of", "other sizes"]),
        ("sac", "walker", [], ["toy/pendulum has no goals", "use walker/skills"]),
        ("ppo", "wlaker", [], ["no skills 'wlaker'", "did you mean 'walker'"]),
        ("ppo", "nowhere/else", [], ["no skills 'nowhere/else'", "name the folder"]),
        ("ppo", "ppo/config.yaml", [], ["is no skill file"]),
        ("ppo", "ppo", ["algorithm=cem"], ["cem searches around", "leave init_from out"]),
        ("ppo", "''", [], ["init_from", "run is empty"]),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_no_folder(
    runs, tmp_path, monkeypatch, capsys, kind, source, more, said
):
    monkeypatch.chdir(runs)
    if "algorithm=cem" in more:
        arguments = ["algorithm=cem", "env.id=toy/cartpole"]
        code = main(["train", *arguments, "--quiet", f"run_dir={tmp_path / 'new'}", f"init_from.run={source}"])
    else:
        code = train(kind, tmp_path / "new", source, *more)
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert code == 1
    assert sentence.startswith("gaitway: ")
    for words in said:
        assert words in sentence, sentence
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_checkpoint_is_refused(runs, tmp_path, capsys):
    source = shutil.copytree(runs / "ppo", tmp_path / "source", symlinks=True)
    tensors = (source / "checkpoints" / "best").resolve() / "state.safetensors"
    content = tensors.read_bytes()
    tensors.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert train("ppo", tmp_path / "new", source) == 1
    assert "damaged" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_run_without_a_checkpoint_is_refused(runs, tmp_path, capsys):
    source = shutil.copytree(runs / "ppo", tmp_path / "source", symlinks=True)
    shutil.rmtree(source / "checkpoints")
    assert train("ppo", tmp_path / "new", source) == 1
    assert "no checkpoint" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("value", ["3", "[a]", "{run: {a: 1}}"])
def test_what_is_no_path(tmp_path, capsys, value):
    key = "init_from" if value.startswith("{") else "init_from.run"
    assert main(["train", *KINDS["ppo"], *NETWORK, f"run_dir={tmp_path / 'new'}", f"{key}={value}"]) == 1
    assert "init_from" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_strangers_run_names_no_path(runs, tmp_path, capsys):
    """Neither as a configuration nor to go on with; a name that comes with the library is no path."""
    stranger = shutil.copytree(runs / "ppo", tmp_path / "stranger", symlinks=True)
    (stranger / "fingerprint.json").unlink(missing_ok=True)
    config = yaml.safe_load((stranger / "config.yaml").read_text())
    config |= {"init_from": {"run": str(runs / "ppo")}, "run_dir": str(tmp_path / "new")}
    (stranger / "config.yaml").write_text(yaml.safe_dump(config))
    before = {path: path.stat().st_mtime_ns for path in stranger.rglob("*")}
    for arguments in (["train", f"config={stranger / 'config.yaml'}"], ["resume", str(stranger), "more=64"]):
        assert main([*arguments, "--quiet"]) == 1
        sentence = capsys.readouterr().err
        assert "init_from.run" in sentence
        assert f"--trust {runs / 'ppo'}" in sentence
    assert {path: path.stat().st_mtime_ns for path in stranger.rglob("*")} == before
    assert not (tmp_path / "new").exists()
    allowed = ["train", f"config={stranger / 'config.yaml'}", "--quiet", "--trust", str(runs / "ppo")]
    assert main(allowed) == 0
    assert "begins with the weights" in (tmp_path / "new" / "run.log").read_text()


def test_a_run_begins_with_parts_of_another(runs, tmp_path, capsys):
    """Through the command: another input, a table of what became of it, a std of its own."""
    one, two = tmp_path / "one", tmp_path / "two"
    more = ["agent.observations.actor=[pos]", "agent.observations.critic=[pos, vel]"]
    assert main(["train", *KINDS["ppo_normalised"], *NETWORK, *more, f"run_dir={one}"]) == 0
    keys = ["init_from.new_inputs=zero", "init_from.std=0.5", "init_from.rules=[{match: critic, from: fresh}]"]
    shown = [each for each in NETWORK if each != "--quiet"]
    capsys.readouterr()
    assert main(["train", *KINDS["ppo_normalised"], *shown, f"run_dir={two}", f"init_from.run={one}", *keys]) == 0
    said, log = capsys.readouterr().out, (two / "run.log").read_text()
    for text in (said, log):
        assert f"begins with the weights of {one}" in text
        assert "resized  actor.network.layers.0.weight: 1 new: vel." in text
        assert "new      critic.network (4)" in text
        assert "std      0.5" in text
    start = min(path for path in (two / "checkpoints").iterdir() if not path.is_symlink())
    first = load_state(start, kind="checkpoint")[0]["algorithm"]
    source = stored(one)
    assert torch.equal(first["policy"]["actor.network.layers.0.weight"][:, :2],
                       source["policy"]["actor.network.layers.0.weight"])  # fmt: skip
    assert float(first["policy"]["actor.network.layers.0.weight"][:, 2].abs().max()) == 0
    assert first["policy"]["head.log_std"].exp().tolist() == pytest.approx([0.5])
    assert all(torch.equal(value, source["value_norm"][name]) for name, value in first["value_norm"].items())


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["init_from.rules=[{match: blokcs, from: fresh}]"], "the rule 'blokcs' matches nothing; there are actor"),
        (["init_from.rules=[{match: actor, to: fresh}]"], "a rule is {match: ..., from: ...}"),
        (["init_from.parts=[temperature]"], "parts names 'temperature', which is not there"),
        (["init_from.parts=[legs]"], "parts names 'legs', which is not there; there are actor, critic, norm"),
        (["init_from.std=-1"], "init_from.std is -1"),
        (["init_from.std=0.5"], "std is 0.5, but Categorical has no standard deviation"),
    ],
)
def test_parts_that_are_refused(runs, tmp_path, capsys, keys, said):
    assert train("ppo", tmp_path / "new", runs / "ppo", *keys) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
