"""Bad input to skills: one sentence each that names the culprit and the remedy, and nothing on disk.

Other places look at the same more closely: files in test_skill_file.py and test_diayn.py, `init_from` in
behaviour/test_init_from.py, options in envs/tasks/skills/test_options.py, tables in test_goal_spaces.py and
test_registration.py there, the curriculum in test_curriculum.py.
"""

from __future__ import annotations

import json
import time

import pytest
import torch
import yaml

from gaitway import make_env
from gaitway.agents.skill_policy import SkillPolicy, SkillPolicyConfig
from gaitway.cli.main import main
from gaitway.core.config import ConfigError, from_config
from gaitway.core.files import StateFileError, load_state, save_state
from gaitway.envs.tasks.skills import goal_spaces
from gaitway.envs.tasks.skills.goal_spaces import GoalSpace, register_goal_space, subsets_task_map
from gaitway.skills.curriculum import Curriculum, CurriculumConfig
from gaitway.skills.frozen_policy import SkillFileError
from gaitway.skills.skill_file import KIND, Skills

OPTIONS = {"feature_dist": "0#2#3", "max_steps": 8}
TRAIN = [
    "train", "algorithm=multitask_sac", "env.id=point/skills", "env.num_envs=2",
    "env.options={feature_dist: '0#2#3', max_steps: 8}", "agent.actor_hidden=[8, 8]", "agent.critic_hidden=[8]",
    "total_steps=40", "run_dir=run", "--quiet",
]  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A skill file that fits the run of `TRAIN`."""
    place = tmp_path_factory.mktemp("skills") / "good"
    with make_env("point/skills", **OPTIONS) as env:
        config = SkillPolicyConfig(actor_hidden=(8, 8), critic_hidden=(8,))
        Skills.of_policy(SkillPolicy(env.spec, config, torch.Generator().manual_seed(0))).save(place)
    return place


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys, arguments, *said, folder):
    """The command ends with one sentence in good time, and the folder is as it was."""
    before = sorted(path.relative_to(folder) for path in folder.rglob("*"))
    begun = time.perf_counter()
    assert main([str(each) for each in arguments]) == 1
    assert time.perf_counter() - begun < 10
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    assert captured.out == ""
    sentence = captured.err.splitlines()[-1]
    assert sentence.startswith("gaitway: ")
    assert len(sentence) < 600
    for words in said:
        assert words in sentence, sentence
    assert sorted(path.relative_to(folder) for path in folder.rglob("*")) == before


def raises(call, *said, kind=ValueError):
    with pytest.raises(kind) as caught:
        call()
    sentence = str(caught.value)
    assert "\n" not in sentence
    for words in said:
        assert words in sentence, sentence


def changed(good, here, change):
    """A copy of the file with another content and right checksums."""
    state, meta = load_state(good, kind=KIND)
    change(state, meta)
    save_state(here / "file", state, kind=KIND, meta=meta)
    return here / "file"


def test_the_file_fits_as_it_is(good, here):
    with make_env("point/skills", **OPTIONS) as env:
        Skills.load(good).check_env(env.spec)


# a skill file that does not fit


def other_robot(state, meta):
    meta["facts"]["robot"] = "walker"


def other_features(state, meta):
    meta["facts"]["features"] = "joints"


def missing_feature(state, meta):
    meta["facts"]["space"]["names"][0] = "altitude"


def other_range(state, meta):
    meta["facts"]["space"]["high"][2] = 2.0


def missing_input(state, meta):
    names = dict(meta["inputs"])["observation"]
    names[names.index("tilt")] = "tilts"


def other_actions(state, meta):
    meta["actions"]["names"][0] = "forward"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (other_robot, ("skills of walker", "the robot is point", "use the skills of that robot")),
        (other_features, ("'joints'", "'body'", "use goal features 'joints'")),
        (missing_feature, ("'altitude'", "not among the features", "use the goal space")),
        (other_range, ("'z' from 0 to 2", "from 0 to 1", "use the goal space")),
        (missing_input, ("read 'tilts'", "did you mean 'tilt'", "does not show")),
        (other_actions, ("move forward", "takes x", "same actions")),
    ],
)
def test_a_file_that_does_not_fit_the_environment(good, here, capsys, change, said):
    file = changed(good, here, change)
    with make_env("point/skills", **OPTIONS) as env:
        raises(lambda: Skills.load(file).check_env(env.spec), *said, kind=SkillFileError)
    refused(capsys, [*TRAIN, f"init_from.run={file}"], "init_from.run", *said, folder=here)


def drop_input(state, meta):
    meta["inputs"] = [each for each in meta["inputs"] if each[0] != "task"]


def drop_component(state, meta):
    dict(meta["inputs"])["observation"].pop()


def drop_features(state, meta):
    meta["facts"]["groups"] = ["0", "9"]


def asymmetric_delta(state, meta):
    meta["facts"]["space"]["high"][0] = 3.0


def asymmetric_twist(state, meta):
    meta["facts"]["space"]["low"][3] = 0.0


def numbered_feature(state, meta):
    meta["facts"]["space"]["names"][0] = 3


def numbered_action(state, meta):
    meta["actions"]["names"][0] = 3


def unnamed_component(state, meta):
    dict(meta["inputs"])["observation"][0] = None


def not_finite(state, meta):
    next(iter(state["network"].values())).fill_(float("nan"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (drop_input, "its inputs are ['desired_goal', 'observation'] instead of"),
        (drop_component, "another network"),
        (drop_features, "feature 9"),
        (asymmetric_delta, "delta feature x"),
        (asymmetric_twist, "twist feature heading"),
        (numbered_feature, "the names of the features are [3,"),
        (numbered_action, "names a component 3 where"),
        (unnamed_component, "names a component None where"),
        (not_finite, "not finite"),
        (lambda state, meta: meta["facts"].pop("space"), "lack ['space']"),
    ],
)
def test_a_file_whose_content_is_wrong(good, here, capsys, change, said):
    file = changed(good, here, change)
    refused(capsys, ["skills", "show", file], str(file), said, "export it again", folder=here)
    refused(capsys, [*TRAIN, f"init_from.run={file}"], "init_from.run", said, "export it again", folder=here)


def test_a_corrupted_file(good, here, capsys):
    for name in ("state.json", "state.safetensors"):
        file = changed(good, here, lambda state, meta: None)
        data = bytearray((file / name).read_bytes())
        data[len(data) // 2] ^= 0x01
        (file / name).write_bytes(data)
        raises(lambda: Skills.load(here / "file"), str(here / "file"), kind=StateFileError)
        for arguments in (["skills", "show", file], ["skills", "view", file], [*TRAIN, f"init_from.run={file}"]):
            refused(capsys, arguments, str(file), "damaged", folder=here)
    (here / "file" / "state.safetensors").unlink()
    refused(capsys, ["skills", "show", here / "file"], "incomplete", folder=here)


@pytest.mark.parametrize(("version", "said"), [(99, "format version 99"), (0, "no format version"), ("1", "no format")])
def test_another_format_version(good, here, capsys, version, said):
    file = changed(good, here, lambda state, meta: None)
    document = json.loads((file / "state.json").read_text())
    (file / "state.json").write_text(json.dumps(document | {"format_version": version}))
    refused(capsys, ["skills", "show", file], str(file), said, folder=here)
    refused(capsys, [*TRAIN, f"init_from.run={file}"], said, folder=here)


def test_inputs_of_another_width(good):
    skills = Skills.load(good)
    given = {"observation": torch.zeros(2, 9), "desired_goal": torch.zeros(2, 3), "task": torch.zeros(2, 3)}
    assert skills.act(**given).shape == (2, 4)
    raises(lambda: skills.act(**given | {"observation": torch.zeros(2, 8)}), "observation is [2, 8]", "[B, 9]")
    raises(lambda: skills.act(**given | {"task": torch.zeros(5, 3)}), "2 rows and task 5", "give every row a task")


def test_init_from_of_other_sizes(good, here, capsys):
    sizes = ("the actor of", "other sizes", "there and", "set agent and algorithm as they are there")
    for hidden in ("[16, 8]", "[8]", "[8, 8, 8]"):
        arguments = [*TRAIN, f"agent.actor_hidden={hidden}", f"init_from.run={good}"]
        refused(capsys, arguments, *(sizes if hidden == "[16, 8]" else sizes[:2]), folder=here)


# the curriculum


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"weighting": "unifrom"}, ("weighting is 'unifrom'", "did you mean 'uniform'", "lp_smooth", "tderr")),
        ({"weighting": "none"}, ("weighting is 'none'", "use one of")),
        ({"eval_mode": "reachabilty"}, ("eval_mode is 'reachabilty'", "did you mean 'reachability'", "running_avg")),
        ({"eval_mode": "rollout"}, ("eval_mode is 'rollout'", "did you mean 'rollouts'")),
        ({"backprop_fallover": True}, ("backprop_fallover", "never reads it", "leave it out")),
        ({"task_weighting": "lp"}, ("task_weighting", "did you mean", "weighting")),
        ({"feature_rank": 0}, ("feature_rank is 0", ">= 1")),
        ({"feature_rank": "most"}, ("feature_rank", "'most'", "max")),
        ({"ctrl_eps": 1.5}, ("ctrl_eps is 1.5", "0 to 1")),
    ],
)
def test_options_of_the_curriculum(here, capsys, options, said):
    raises(lambda: from_config(CurriculumConfig, options), *said, kind=ConfigError)
    written = ", ".join(f"{name}: {json.dumps(value)}" for name, value in options.items())
    refused(capsys, [*TRAIN, f"callbacks=[{{name: curriculum, {written}}}]"], *said, folder=here)


def test_options_of_the_curriculum_in_python():
    raises(lambda: CurriculumConfig(weighting="fair"), "weighting is 'fair'", "uniform")
    raises(lambda: CurriculumConfig(eval_mode="luck"), "eval_mode is 'luck'", "rollouts")
    raises(lambda: CurriculumConfig(backprop_fallover=True), "never reads it")
    assert CurriculumConfig(backprop_fallover=False) == CurriculumConfig()


@pytest.mark.parametrize("rank", [4, 99])
def test_a_rank_above_the_groups(here, capsys, rank):
    said = (f"feature_rank is {rank}", "there are 3 groups", "use 1 to 3, or 'max'")
    raises(lambda: Curriculum(["0", "2", "3"], CurriculumConfig(feature_rank=rank)), *said)
    refused(capsys, [*TRAIN, f"callbacks=[{{name: curriculum, feature_rank: {rank}}}]"], *said, folder=here)


# the environment


@pytest.mark.parametrize(
    ("env", "options", "said"),
    [
        ("walker/skills", {"backprop_fallover": True}, ("backprop_fallover", "never reads it", "fallover_penalty")),
        ("humanoid/skills", {"backprop_fallover": True}, ("backprop_fallover", "never reads it", "leave it out")),
        ("point/skills", {"backprop_fallover": True}, ("backprop_fallover", "never reads it", "leave it out")),
        ("walker/skills", {"feature_dist": "0#9"}, ("['9']", "does not control", "features 0 to 6", "allow_drop=true")),
        ("walker/skills", {"feature_dist": "0#3+12"}, ("['3+12']", "does not control")),
        (
            "walker/skills",
            {"feature_dist": {"0": 1.0, "9": 1.0}},
            ("features [9]", "cannot be controlled", "5: 'right_foot:px'"),
        ),
        (
            "point/skills",
            {"feature_dist": {"3": 1.0, "3,7": 1.0}},
            ("features [7]", "cannot be controlled", "3: 'heading'"),
        ),
    ],
)
def test_options_of_the_environment(here, capsys, env, options, said):
    raises(lambda: make_env(env, **options), *said)
    (here / "own.yaml").write_text(yaml.safe_dump({"env": {"id": env, "options": options}}))
    rest = [each for each in TRAIN if not each.startswith("env.")]
    refused(capsys, [*rest, "config=own.yaml"], *said, folder=here)


@pytest.mark.parametrize("spec", ["0#1", "all"])
def test_a_feature_that_cannot_be_controlled(spec, monkeypatch):
    """It is left out where that was allowed, and with a warning."""
    monkeypatch.setattr(goal_spaces, "GOAL_SPACES", dict(goal_spaces.GOAL_SPACES))
    register_goal_space("reach", "arm", GoalSpace(("x", "lamp"), (-1, 3), (1, 3)), uncontrollable=(1,))
    said = ("['1']", "reach of arm does not control", "with a range can be goals")
    raises(lambda: subsets_task_map("reach", "arm", spec, 1, 1, allow_drop=False), *said)
    with pytest.warns(UserWarning, match="left out"):
        assert subsets_task_map("reach", "arm", spec, 1, 1, allow_drop=True) == (["0"], {"0": 0})


def test_an_environment_leaves_such_groups_out_where_that_is_allowed():
    with pytest.warns(UserWarning, match=r"groups \['9', '3\+12'\] .* left out"):
        env = make_env("walker/skills", feature_dist="0#9#3+4#3+12", rank_max=4, allow_drop=True)
    with env:
        assert list(env.call("plan_trials", 1).values()) == ["0", "3+4", "0,3+4"]
        assert env.spec.options["allow_drop"] is True


def test_so_it_does_with_tasks_by_name():
    weights = {"0": 1.0, "9": 2.0, "0,3+4": 3.0, "3+12": 1.0}
    with pytest.warns(UserWarning, match=r"tasks \['9', '3\+12'\] .* left out"):
        env = make_env("walker/skills", feature_dist=weights, allow_drop=True)
    with env:
        assert list(env.call("plan_trials", 1).values()) == ["0", "0,3+4"]
    raises(lambda: make_env("walker/skills", feature_dist={"9": 1.0}, allow_drop=True), "['9']", "name one that does")


def test_skills_without_goals_and_goals_without_time(here, capsys):
    plain = [each for each in TRAIN if not each.startswith("env.options")]
    refused(capsys, [*plain, "env.id=walker/run"], "'desired_goal'", "use walker/skills", folder=here)
    refused(capsys, [*TRAIN, "env.options.max_steps=1"], "gamma is 0.0", "max_steps of at least 2", folder=here)


@pytest.mark.parametrize(("kind", "place"), [("delta", 0), ("twist", 1)])
@pytest.mark.parametrize("high", [0.5, 1.0000001])
def test_a_delta_or_twist_range_that_is_not_symmetric(kind, place, high):
    ranges = {"low": [-1.0, -1.0], "high": [1.0, 1.0], kind: (place,)}
    GoalSpace(("x", "turn"), **ranges)
    ranges["high"][place] = high
    name = ("x", "turn")[place]
    raises(lambda: GoalSpace(("x", "turn"), **ranges), f"{kind} feature {name} is [-1.0, {high}]", "symmetric about 0")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["agent.normalise_observations=true"], "train without blocks, actor_network and normalise_observations"),
        (["agent.observations.actor=[observation, task]"], "set agent.observations.actor to all three"),
    ],
)
def test_what_no_skill_file_can_hold_is_refused_before_training(here, capsys, change, said):
    refused(capsys, [*TRAIN, "callbacks=[skill_file]", *change], "callbacks[0]: ", said, folder=here)


def test_a_misspelt_option_of_the_curriculum_is_told_the_nearest_one(here, capsys):
    # those of the callback itself beside those of CurriculumConfig
    for wrong, right in [
        ("intervall", "interval"),
        ("estimate_joint_space", "estimate_joint_spaces"),
        ("lp_ep", "lp_eps"),
    ]:
        arguments = [*TRAIN, f"callbacks=[{{name: curriculum, {wrong}: 5}}]"]
        refused(capsys, arguments, f"did you mean 'callbacks.curriculum.{right}'?", folder=here)
