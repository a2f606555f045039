"""Runs of HSD-3: the folder is enough to play and to go on, wherever the skill file has gone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from hsd3_cases import point_skills
from resume_cases import differing, numbers

import gaitway
from gaitway.cli.main import main
from gaitway.runners.checkpoint import Checkpoints
from gaitway.skills.skill_file import Skills

SMALL = [
    "algorithm=hsd3",
    "env.id=point/duck",
    "env.num_envs=4",
    "env.options={max_episode_steps: 23}",
    "agent.actor_hidden=[8, 8]",
    "agent.critic_hidden=[8, 8]",
    "agent.subsets='0#2'",
    "algorithm.batch_size=16",
    "algorithm.replay_size=600",
    "algorithm.learning_starts=60",
    "algorithm.iteration_steps=92",
    "algorithm.update_ratio=0.2",
    "evaluation={interval: 184, episodes: 3, metric: score, stochastic: false}",
    "checkpoints={interval: 92, keep_all: true}",
    "logging.code=none",
    "torch_threads=1",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run over a skill file that is gone since."""
    place = tmp_path_factory.mktemp("hsd3")
    skills = point_skills()
    skills.save(place / "file")
    code = main(["train", *SMALL, f"agent.skills={place / 'file'}", f"run_dir={place / 'run'}", "total_steps=368"])
    assert code == 0
    shutil.rmtree(place / "file")
    return place / "run"


def stored(path: Path) -> dict:
    run_id = json.loads((path / "code.json").read_text())["run_id"]
    return Checkpoints(path / "checkpoints", run_id).load("last")[0]


def test_the_folder_holds_the_skills_and_checkpoints_their_fingerprint(run):
    copy = Skills.load(run)
    assert copy.sha256 == point_skills().sha256
    policy = stored(run)["algorithm"]["policy"]
    assert policy["_extra_state"] == {"skills_sha256": copy.sha256}
    tensors = [value for value in policy.values() if isinstance(value, torch.Tensor)]
    learnt = sum(value.numel() for value in gaitway.load(run).policy.parameters())
    assert sum(value.numel() for value in tensors) == learnt


def test_a_run_plays_without_the_file_it_was_made_from(run, tmp_path):
    moved = tmp_path / "elsewhere"
    shutil.copytree(run, moved, symlinks=True)
    first, second = gaitway.load(run).evaluate(), gaitway.load(moved).evaluate()
    assert first["score"] == second["score"]
    assert first == gaitway.load(run).evaluate()
    loaded = gaitway.load(moved, "last")
    obs = {"policy": torch.zeros(2, 13), "goal_space": torch.zeros(2, 4)}
    assert loaded.act(obs).shape == (2, 4)


def test_a_run_goes_on_without_it_exactly(run, tmp_path, capsys):
    twin = tmp_path / "twin"
    shutil.copytree(run, twin, symlinks=True)
    assert main(["resume", str(twin), "--checkpoint", "184"]) == 0
    ours, theirs = (numbers(stored(path)["algorithm"]) for path in (twin, run))
    assert len(theirs) > 20
    assert not differing(ours, theirs)


def test_skills_that_have_changed_are_refused(run, tmp_path, capsys):
    twin = tmp_path / "twin"
    shutil.copytree(run, twin, symlinks=True)
    shutil.rmtree(twin / "skills")
    point_skills(9).save(twin / "skills")
    assert main(["eval", str(twin)]) != 0
    told = capsys.readouterr().err
    assert "put that skill file back" in told
    assert "Traceback" not in told
    shutil.rmtree(twin / "skills")
    assert main(["eval", str(twin)]) != 0
    assert "there are no skills" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "sentences"),
    [
        (["agent.skills=null"], ["agent.skills names no skill file"]),
        (["agent.skills=walker"], ["know goals of 'rootz:p'", "use the skills of its robot"]),
        (["env.id=toy/pendulum", "env.options={}", "agent.skills=walker"], ["shows no goal features"]),
        (["agent.interval=0"], ["agent.interval", "0"]),
        (["agent.skills=nowhere"], ["there are no skills 'nowhere'"]),
    ],
)
def test_bad_input_leaves_no_folder(options, sentences, tmp_path, capsys):
    point_skills().save(tmp_path / "file")
    place = tmp_path / "run"
    given = [*SMALL, f"agent.skills={tmp_path / 'file'}", *options, f"run_dir={place}", "total_steps=92"]
    assert main(["train", *given]) != 0
    told = capsys.readouterr().err
    for sentence in sentences:
        assert sentence in told
    assert "Traceback" not in told
    assert not place.exists()
