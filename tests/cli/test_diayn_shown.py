"""Skills of DIAYN on show: `gaitway play` shows one after the other, `gaitway skills show` describes their file."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import imageio.v3 as iio
import pytest
import torch

from gaitway.agents.diayn_policy import DIAYNPolicy, DIAYNPolicyConfig
from gaitway.cli.main import main
from gaitway.cli.players import SkillsInTurn, find_player
from gaitway.envs.pictures.render import rendering_problem
from gaitway.envs.registry import make_env
from gaitway.skills.continuous_skills import ContinuousSkills

EPISODE, SKILLS = 5, 3
SMALL = [
    "algorithm=diayn", "env.num_envs=4", "agent.n_skills=3", "agent.actor_hidden=[8]", "agent.critic_hidden=[8]",
    "agent.discriminator_hidden=[8]", "algorithm.learning_starts=20", "algorithm.iteration_steps=20",
    "algorithm.batch_size=8", "algorithm.replay_size=100", "evaluation.interval=0", "evaluation.trials=1",
    "evaluation.stochastic=false", "video.interval=0", "total_steps=40", "torch_threads=1", "env.num_threads=1",
    "env.options={full_episodes: true, implicit_soft_resets: false, max_steps: 5}", "--quiet",
]  # fmt: skip
KINDS = {
    "plain": ["env.id=walker/skills"],
    "scale": ["env.id=point/skills", "agent.n_embed=2", "callbacks=[{name: diayn_skills, episodes: 1}]"],
}
needs_pictures = pytest.mark.skipif(rendering_problem() is not None, reason=str(rendering_problem()))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("diayn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gaitway.cli.training.plot_run", lambda *given: [])  # nobody looks at the curves
        for kind, arguments in KINDS.items():
            assert main(["train", *SMALL, *arguments, f"run_dir={place / kind}"]) == 0
    return place


def said(capsys, arguments, code=0):
    capsys.readouterr()
    assert main([str(each) for each in arguments]) == code
    captured = capsys.readouterr()
    if code:
        assert captured.err.startswith("gaitway: ")
        assert captured.err.count("\n") == 1
        assert captured.out == ""
    return captured.err if code else captured.out


# play


def test_skills_take_turns_of_equal_length():
    with make_env("point/skills", full_episodes=True, implicit_soft_resets=False) as env:
        policy = DIAYNPolicy(env.spec, DIAYNPolicyConfig(n_skills=4, actor_hidden=(8,), critic_hidden=(8,))).eval()
        obs = {name: value.clone() for name, value in env.reset(0).items()}
    act, seen = SkillsInTurn(policy, range(4), 12), []
    act.reset()
    for step in range(15):
        action = act(obs)
        seen.append(act.skill)
        expected, _ = policy.act(obs, policy.holding(torch.tensor([act.skill])), False)
        assert torch.equal(action, expected)
        if step == 4:
            act.reset(torch.tensor([True]))  # a fall changes nothing
    assert seen == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 0, 0, 0]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "skills 0 to 2 in turn, 15 steps"),  # an episode of each
        (["--steps", "7"], "skills 0 to 2 in turn, 7 steps"),
        (["--length", "4"], "skills 0 to 2 in turn, 4 steps"),
        (["--skill", "1"], "skill 1, 5 steps"),
        (["--skill", "2", "--length", "3"], "skill 2, 3 steps"),
        (["--skill", "0", "--steps", "12"], "skill 0, 12 steps"),
        (["--policy", "zero"], "zero actions, seed 0, 5 steps"),
    ],
)
def test_play_says_which_skills_it_showed(runs, capsys, arguments, told):
    assert told in said(capsys, ["play", runs / "plain", "--no-video", *arguments]).replace("\n", " ")


def test_a_skill_that_is_chosen_is_the_one_that_acts(runs):
    totals = []
    for skill in range(SKILLS):
        options = SimpleNamespace(
            run=str(runs / "plain"), policy=None, settings=[], seed=0, skill=skill, steps=None, length=None,
            checkpoint="last",
        )  # fmt: skip
        with find_player(options) as player:
            obs = player.env.reset(seed=[0])
            totals.append(player.act(obs).flatten().tolist())
            assert player.show is None
            assert player.caption()[-1] == f"skill {skill}"
    assert len({tuple(each) for each in totals}) == SKILLS


def test_the_policy_of_a_diayn_run_plays_in_another_environment(runs, capsys):
    text = said(capsys, ["play", "point/skills", "--policy", runs / "scale", "--no-video", "--length", "6"])
    assert "skills 0 to 2 in turn, 6 steps" in text.replace("\n", " ")


@needs_pictures
def test_a_film_shows_them_all(runs, tmp_path, capsys):
    film = tmp_path / "all.gif"
    text = said(capsys, ["play", runs / "plain", "--video", film, "--size", "96x64"]).replace("\n", " ")
    assert "skills 0 to 2 in turn" in text
    assert "15 steps" in text
    assert len(iio.imread(film)) == 16 + 3  # a step each, and where an episode ended its last state and the next


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["plain", "--skill", "3"], "--skill is 3; "),
        (["plain", "--skill", "-1"], "has the skills 0 to 2"),
        (["plain", "--skill", "0", "--policy", "random"], "random actions have none; leave it out"),
        (["toy/pendulum", "--skill", "0"], "random actions have none; leave it out"),
    ],
)
def test_a_skill_that_is_not_there(runs, capsys, monkeypatch, arguments, told):
    monkeypatch.chdir(runs)
    assert told in said(capsys, ["play", *arguments, "--no-video"], 1)


def test_a_run_without_skills_by_number(tmp_path, capsys):
    small = ["env.id=toy/cartpole", "env.num_envs=2", "algorithm.rollout_steps=4", "total_steps=8", "--quiet"]
    assert main(["train", *small, f"run_dir={tmp_path / 'ppo'}"]) == 0
    assert "is none; leave it out" in said(capsys, ["play", tmp_path / "ppo", "--no-video", "--skill", "0"], 1)


# skills show


@pytest.mark.parametrize("path", ["", "continuous_skills", "continuous_skills/state.json"])
def test_show_describes_a_continuous_scale(runs, capsys, path):
    text = said(capsys, ["skills", "show", runs / "scale" / path])
    for words in (
        "continuous skills of point",
        "3 trained skills (DIAYN-C) as points with 2 dimensions",
        "9 numbers of observation and 2 numbers of skill",
        "moves x, y, lift, turn every 0.05 s",
        "trained for 40 steps, seed 0, network d2rl [8]",
        "commit",
        "told apart in",
    ):
        assert words in text, words
    assert [line.split()[0] for line in text.splitlines()[-SKILLS:]] == ["0", "1", "2"]


def test_show_as_json(runs, capsys):
    found = json.loads(said(capsys, ["skills", "show", runs / "scale", "--json"]))
    skills = ContinuousSkills.load(runs / "scale")
    assert found["kind"] == "continuous_skills"
    assert (found["robot"], found["skills"], found["dimensions"]) == ("point", SKILLS, 2)
    assert found["points"] == skills.points.tolist()
    assert found["accuracy"] == skills.accuracy
    assert found["inputs"] == {"observation": 9, "skill": 2}
    assert found["network"] == "d2rl [8]"
    assert found["steps"] == 40
    assert found["command"]
    assert json.loads(said(capsys, ["skills", "show", "walker", "--json"]))["kind"] == "skills"


@pytest.mark.parametrize("action", ["show", "view"])
def test_runs_without_a_file_say_what_to_do(runs, tmp_path, capsys, monkeypatch, action):
    monkeypatch.chdir(runs)
    text = said(capsys, ["skills", action, "plain"], 1)
    assert "skills of diayn go by number" in text
    assert "`gaitway play plain`" in text
    assert "agent.n_embed=7 callbacks=[diayn_skills]" in text
    lost = shutil.copytree("scale", tmp_path / "lost", symlinks=True)
    shutil.rmtree(lost / "continuous_skills")
    assert f"`gaitway skills write {lost}` writes it" in said(capsys, ["skills", action, lost], 1)


def test_a_lost_scale_is_written_again(runs, tmp_path, capsys):
    lost = shutil.copytree(runs / "scale", tmp_path / "lost", symlinks=True)
    shutil.rmtree(lost / "continuous_skills")
    said(capsys, ["skills", "write", lost])
    kept, found = (ContinuousSkills.load(each) for each in (runs / "scale", lost))
    assert found.sha256 == kept.sha256
    assert (found.accuracy, found.origin) == (kept.accuracy, kept.origin)
    assert "n_embed" in said(capsys, ["skills", "write", runs / "plain"], 1)


def test_view_has_no_goals_of_a_continuous_scale_to_show(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "know no goals; watch them with `gaitway play" in said(capsys, ["skills", "view", runs / "scale"], 1)
    shutil.copytree(runs / "scale" / "continuous_skills", "file")
    assert "which have no goals to show" in said(capsys, ["skills", "view", "file"], 1)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_damaged_file_is_told(runs, tmp_path, capsys):
    bad = shutil.copytree(runs / "scale" / "continuous_skills", tmp_path / "bad")
    data = bytearray((bad / "state.safetensors").read_bytes())
    data[-1] ^= 1
    (bad / "state.safetensors").write_bytes(data)
    assert "is damaged" in said(capsys, ["skills", "show", bad], 1)
