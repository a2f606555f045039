"""`gaitway skills show` and `view`, and the file that a training writes beside its checkpoints."""

from __future__ import annotations

import json
import math
import shutil
import time

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gaitway import make_env
from gaitway.cli.main import main
from gaitway.core.files import load_state, save_state
from gaitway.envs.pictures.render import rendering_problem
from gaitway.envs.pictures.scene import Scene, native_task
from gaitway.envs.tasks.bisk.features import twist_and_swing
from gaitway.envs.tasks.skills.marks import DISC, FEET, FORWARD, POST, UPWARD, swung
from gaitway.envs.tasks.skills.task import SkillTask
from gaitway.skills.frozen_policy import SkillFileError
from gaitway.skills.places import SHIPPED
from gaitway.skills.skill_file import KIND, Skills
from gaitway.skills.sweep import Sweep, dimensions, make_skill_env

TINY = [
    "algorithm=multitask_sac", "env.id=point/skills", "env.num_envs=4",
    "env.options={feature_dist: '0#3', max_steps: 8}", "total_steps=400", "algorithm.learning_starts=40",
    "algorithm.iteration_steps=100", "algorithm.replay_size=1000", "algorithm.batch_size=8",
    "agent.actor_hidden=[8, 8]", "agent.critic_hidden=[8, 8]", "evaluation.interval=200", "evaluation.trials=4",
    "evaluation.stochastic=false", "evaluation.metric=success", "checkpoints.interval=200",
    "callbacks=[{name: curriculum, interval: 100}, {name: skill_file, trials: 3}]", "--quiet",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("skills") / "run"
    assert main(["train", *TINY, f"run_dir={folder}"]) == 0
    return folder


def said(capsys, arguments, code=0):
    begun = time.perf_counter()
    assert main(arguments) == code
    assert time.perf_counter() - begun < 10
    captured = capsys.readouterr()
    if code:
        assert captured.err.startswith("gaitway: ")
        assert captured.err.count("\n") == 1
        assert captured.out == ""
    return captured.err if code else captured.out


# Written beside checkpoints


def test_a_lost_file_is_written_again(capsys, run, tmp_path):
    kept = Skills.load(run)
    copy = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(copy / KIND)
    assert "skills write" in said(capsys, ["skills", "show", str(copy)], 1)
    assert "step 400" in said(capsys, ["skills", "write", str(copy)])
    found = Skills.load(copy)
    assert found.sha256 == kept.sha256
    assert (found.success, found.floors, found.origin) == (kept.success, kept.floors, kept.origin)
    assert found.figures["running"] == kept.figures["running"]
    said(capsys, ["skills", "write", str(copy), "--checkpoint", "200", "--out", str(tmp_path / "early")])
    early = Skills.load(tmp_path / "early")
    assert early.origin["env_steps"] == 200
    assert early.sha256 != kept.sha256


def test_a_training_writes_its_skills_beside_each_checkpoint(run):
    skills = Skills.load(run)
    assert skills.facts.robot == "point"
    assert skills.subsets == ["0", "3", "0,3"]
    state, _ = load_state(run / "checkpoints" / "last", kind="checkpoint")
    stored = {
        name.removeprefix("actor."): v for name, v in state["algorithm"]["policy"].items() if name.startswith("actor.")
    }
    for name, value in skills.network.state_dict().items():
        assert torch.equal(value, stored[name]), name
    for found in (skills.figures["success"], skills.figures["r"], skills.figures["q"], *skills.floors.values()):
        assert set(found) == {"0", "3", "0,3"}
        assert all(0 <= p <= 1 for p in found.values())
    assert set(skills.floors) == {"random", "zero"}
    assert set(skills.figures["running"]) <= {"0", "3", "0,3"}
    assert skills.figures["running"]
    origin = skills.origin
    assert origin["env_steps"] == 400
    assert origin["seed"] == 0
    assert origin["updates"] > 0
    assert origin["command"] == " ".join(json.loads((run / "code.json").read_text())["command"])
    assert origin["commit"] is None or len(origin["commit"]) == 40


def test_floors_and_figures_are_logged(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    names = {name for line in lines for name in line}
    for name in ("floor/random/0,3", "floor/zero/0", "eval/success/0,3", "eval/success_rank/2", "env/success/0",
                 "curriculum/r/0", "curriculum/q/3", "curriculum/weight/0,3", "samples/0", "td_error/0"):  # fmt: skip
        assert any(known.endswith(name) for known in names), (name, sorted(names))


# show


def test_show_lists_every_task_beside_its_floors(capsys, run):
    text = said(capsys, ["skills", "show", str(run)])
    head, tables = text[: text.index("\n\n")], text.split("\n\n")
    for words in (
        "skills of point, features body: ",  # a point has no feet to turn
        "8 steps",
        "within 0.1",
        "400 steps",
        "seed 0",
        "MB",
        "commit",
    ):
        assert words in head.replace("\n", " "), words
    assert "delta" in tables[1]
    assert "-1 m" in tables[1]
    rows = [line.split() for line in tables[2].splitlines()]
    assert [row[1] for row in rows[1:]] == ["0", "3", "0,3"]
    assert [row[0] for row in rows[1:]] == ["1", "1", "2"]
    assert "floor: random" in tables[2]
    assert "floor: zero" in tables[2]
    assert "reachability" in tables[2]
    assert "success by rank  1:" in tables[3]


def test_show_tells_how_feet_are_turned(capsys):
    assert "features bodyfeet, corrected heading: " in said(capsys, ["skills", "show", "humanoidpc"])


def test_show_as_json(capsys):
    found = json.loads(said(capsys, ["skills", "show", "walker", "--json"]))
    assert found["robot"] == "walker"
    assert found["horizon"] == 72
    assert found["precision"] == 0.1
    assert found["features"] == "bodyfeet"
    assert found["heading"] == "corrected"
    assert found["bytes"] < 10_000_000
    assert found["steps"] > 0
    assert found["seed"] is not None
    assert found["command"]
    assert found["commit"]
    assert [each["name"] for each in found["goal_space"]][:2] == ["rootz:p", "rootx:p"]
    assert found["goal_space"][1]["delta"]
    assert not found["goal_space"][0]["delta"]
    tasks = {each["task"]: each for each in found["tasks"]}
    assert len(tasks) == 31
    assert [each["rank"] for each in found["tasks"]] == sorted(e["rank"] for e in found["tasks"])
    assert tasks["0,3+4"]["features"] == ["rootz:p", "left_foot:px", "left_foot:pz"]
    for name in ("success", "r", "q", "running", "random", "zero"):
        assert all(0 <= each[name] <= 1 for each in found["tasks"])
    assert set(found["success_by_rank"]) == {"1", "2", "3", "4", "5"}


def test_show_without_figures(capsys, tmp_path):
    skills = Skills.load("walker")
    skills.figures, skills.floors, skills.origin = {}, {}, {}
    skills.save(tmp_path / "bare")
    text = said(capsys, ["skills", "show", str(tmp_path / "bare")])
    assert "trained for unknown steps" in text
    assert "0,1,2,3+4,5+6" in text
    assert "unknown command" in text
    assert json.loads(said(capsys, ["skills", "show", str(tmp_path / "bare"), "--json"]))["tasks"][0]["success"] is None


def test_names_cannot_colour_the_terminal(capsys, tmp_path):
    skills = Skills.load("walker")
    skills.origin = {"command": "[red]bad[/red]", "env_steps": 1}
    skills.save(tmp_path / "named")
    assert "[red]bad[/red]" in said(capsys, ["skills", "show", str(tmp_path / "named")])


@pytest.mark.parametrize("action", ["show", "view"])
def test_what_is_no_skill_file(capsys, tmp_path, monkeypatch, action, run):
    monkeypatch.chdir(tmp_path)
    assert "did you mean 'walker'" in said(capsys, ["skills", action, "wlaker"], 1)
    (tmp_path / "text").write_text("x")
    assert "is no skill file" in said(capsys, ["skills", action, "text"], 1)
    assert "'checkpoint' where a 'skills'" in said(capsys, ["skills", action, str(run / "checkpoints" / "last")], 1)
    (tmp_path / "empty").mkdir()
    assert "empty holds no skills; name the folder" in said(capsys, ["skills", action, "empty"], 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "text"]


@pytest.mark.parametrize("arguments", [["skills"], ["skills", "sow", "walker"], ["skills", "show"],
                                       ["skills", "view", "walker", "--size", "big"],
                                       ["skills", "view", "walker", "--length", "0"]])  # fmt: skip
def test_wrong_use(arguments):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


# view


needs_pictures = pytest.mark.skipif(rendering_problem() is not None, reason=str(rendering_problem()))


@needs_pictures
def test_view_films_each_feature_of_a_group(capsys, tmp_path):
    film = tmp_path / "films" / "foot.gif"
    arguments = ["skills", "view", "walker", "--group", "3+4", "--length", "9", "--size", "64x48", "--out", str(film)]
    text = said(capsys, arguments)
    assert "3+4: left_foot:px" in text
    assert "3+4: left_foot:pz" in text
    assert "rootz" not in text
    assert "19 frames, 18 steps" in text
    assert film.stat().st_size > 1000
    assert [path.name for path in film.parent.iterdir()] == ["foot.gif"]


def test_view_refuses_before_it_films(capsys, tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    assert "no group '3+5'" in said(capsys, ["skills", "view", "walker", "--group", "3+5"], 1)
    assert ".mp4 or .gif" in said(capsys, ["skills", "view", "walker", "--out", "film.avi"], 1)
    undrawn = said(capsys, ["skills", "view", str(run), "--out", "point.gif"], 1)
    assert f"cannot be drawn; `gaitway skills show {run}` says" in undrawn  # it has no option --no-video
    assert "seed" in said(capsys, ["skills", "view", "walker", "--seed", "-1"], 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("robot", ["evil_door:anything", "../walker", "dog"])
def test_a_file_names_no_module_to_import(tmp_path, robot):
    state, meta = load_state(SHIPPED / "walker", kind=KIND)
    meta["facts"]["robot"] = robot
    save_state(tmp_path / "named", state, kind=KIND, meta=meta)
    with pytest.raises(SkillFileError, match="has no skill environment"):
        make_skill_env(Skills.load(tmp_path / "named"), num_envs=1)


def test_a_sweep_goes_from_end_to_end_and_tells_the_environment():
    skills = Skills.load("walker")
    assert [(d.group, d.feature) for d in dimensions(skills)] == [
        ("0", 0), ("1", 1), ("2", 2), ("3+4", 3), ("3+4", 4), ("5+6", 5), ("5+6", 6),
    ]  # fmt: skip
    with make_skill_env(skills, num_envs=1, seed=1, full_episodes=True, hard_reset_interval=0) as env:
        act = Sweep(env, skills, dimensions(skills, ["1", "2"]), 21)
        assert act.total == 42
        task = native_task(env)
        assert isinstance(task, SkillTask)
        obs, goals = env.reset(1), []
        start = float(obs["gs_observation"][0, 1])
        for step in range(act.total):
            action = act(obs)
            goals.append(task.memory["target"][0].copy())
            # what the environment shows of this goal after the step is what the skill was given before it
            mask, features = task.memory["mask"][0], obs["gs_observation"][0].double().numpy()
            left = torch.from_numpy(((goals[-1] - features) * mask)[None]).float()
            assert_close(action, skills.act(obs["observation"], left, torch.from_numpy(mask[None]).float()))
            if step == 20:
                assert_close(goals[0][1], start - 3.0, atol=1e-5, rtol=0)
                assert_close(goals[20][1], start + 3.0, atol=1e-5, rtol=0)
            obs = env.step(action).obs
    pitch = np.array(goals[21:])[:, 2]
    assert_close([pitch[0], pitch[5], pitch[10], pitch[-1]], [-1.3, -1.3, 0.0, 1.3], atol=1e-6, rtol=0)
    assert (np.diff(pitch) >= -1e-12).all()
    result = act.results[1]
    assert result.steps == 21
    assert math.isfinite(result.high)
    assert "rooty:p: goal 1.30 rad" in act.caption()


# The goal in the picture


def test_angles_are_put_together_as_they_are_taken_apart():
    angles = np.random.default_rng(0).uniform([-3.1, -1.5, -1.0], [3.1, 1.5, 1.0], (200, 3))
    assert_close(np.stack(twist_and_swing(swung(*angles.T)), 1), angles, rtol=0, atol=1e-12)


@pytest.mark.parametrize("robot", ["walker", "humanoid"])
def test_marks_stand_where_the_goal_is(robot):
    """A robot that is its own goal has its marks on its own body."""
    with make_env(f"{robot}/skills", num_envs=2, rank_min=5, rank_max=5, seed=5) as env:
        for _ in range(6):
            env.step(torch.rand(2, env.spec.action.shape[0]) * 2 - 1)
        task = native_task(env)
        scene = Scene(task)
        memory = task.memory
        keys = memory["task_key"][1:].copy()
        env.call("place_goals", np.array([1]), keys, task.space.project(memory["features"][1:]))
        scene.update(1)
        body = {name: scene.data.body(name).xpos for name in (task.robot.torso, *FEET)}
        site = {
            name: scene.data.site(name).xpos for name in (POST, DISC, UPWARD, FORWARD, *(f"goal_{f}" for f in FEET))
        }
        torso = body[task.robot.torso]
        axes = scene.data.body(task.robot.torso).xmat.reshape(3, 3)
        assert_close(site[POST][:2], torso[:2], rtol=0, atol=1e-6)
        assert_close(site[DISC], torso, rtol=0, atol=1e-6)
        assert_close(site[UPWARD], torso + 0.35 * axes[:, 2], rtol=0, atol=1e-6)
        if robot == "humanoid":
            assert_close(site[FORWARD], torso + 0.35 * axes[:, 0], rtol=0, atol=1e-6)
        for foot in FEET:
            assert_close(site[f"goal_{foot}"], body[foot], rtol=0, atol=1e-6)
        env.call("place_goals", np.array([1]), np.array([1]), task.space.project(memory["features"][1:]) + 0.5)
        scene.update(1)  # the first feature alone: the other marks are parked
        parked = [name for name in (POST, DISC, UPWARD, FORWARD) if scene.data.site(name).xpos[2] < -5]
        assert parked == ([POST, UPWARD, FORWARD] if robot == "walker" else [DISC, UPWARD, FORWARD])


def test_the_simulated_model_has_no_marks():
    with make_env("walker/skills", num_envs=1) as env:
        model = native_task(env).model
        assert not any("goal" in model.site(number).name for number in range(model.nsite))
