"""Skill files: the same policy after a round trip, published ones against plain arithmetic, and what is refused how."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gaitway import make_env
from gaitway.agents.policy import InferencePolicy
from gaitway.agents.skill_policy import SkillPolicy, SkillPolicyConfig
from gaitway.cli.init_from import init_from
from gaitway.cli.train_config import parse
from gaitway.core.files import StateFileError, load_state, save_state
from gaitway.envs.tasks.skills.facts import SkillFacts
from gaitway.envs.tasks.skills.goal_spaces import GoalSpace, combinations
from gaitway.skills.frozen_policy import SkillFileError, component_names
from gaitway.skills.multitask_sac import MultitaskSAC
from gaitway.skills.places import SHIPPED, is_shipped
from gaitway.skills.skill_file import KIND, Skills, find_skills

WALKER = {"0": 0, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "6": 6}
HUMANOID = {"0": 0, "2": 1, "3": 2, "4": 3, "6": 4, "7": 5, "8": 6, "9": 7, "10": 8, "11": 9}
GROUPS = {"Walker": ("0", "1", "2", "3+4", "5+6"), "HumanoidPC": ("0+3", "2+3", "3+4", "3+6+7+8", "3+9+10+11")}
SIZES = {"Walker": (73, 59, 6), "HumanoidPC": (169, 149, 21)}


@pytest.fixture(scope="module")
def env():
    with make_env("walker/skills", num_envs=5, rank_max=5, seed=2) as env:
        yield env


@pytest.fixture(scope="module")
def policy(env):
    config = SkillPolicyConfig(actor_hidden=(12, 10, 8), critic_hidden=(8,))
    return SkillPolicy(env.spec, config, torch.Generator().manual_seed(1))


@pytest.fixture
def skills(policy):
    tasks = combinations(policy_groups(policy), 5)
    figures = {
        "success": dict.fromkeys(tasks, 0.25),
        "r": {"0": 0.5},
        "q": {"0": 1.0},
        "running": {"0": float("nan")},
    }
    origin = {"env_steps": 123, "seed": 4, "command": "gaitway train", "commit": "abc", "updates": 6}
    return Skills.of_policy(policy, figures=figures, floors={"random": {"0": 0.7}, "zero": {"0": 0.6}}, origin=origin)


def policy_groups(policy):
    return SkillFacts.of(policy.spec).groups


def seen(env):
    """What robots see that pursue a goal of every one of the 31 tasks, after a few random steps."""
    facts = SkillFacts.of(env.spec)
    generator = torch.Generator().manual_seed(0)
    found = []
    for task in combinations(facts.groups, 5):
        key = np.full(env.num_envs, facts.tasks.key_of(task))
        goal = np.random.default_rng(key[0]).uniform(-1, 1, (env.num_envs, facts.space.size))
        env.call("place_goals", np.arange(env.num_envs), key, goal)
        action = torch.rand(env.num_envs, 6, generator=generator) * 2 - 1
        found.append({name: value.clone() for name, value in env.step(action).obs.items()})
    return {name: torch.cat([each[name] for each in found]) for name in found[0]}


# The same skills


def test_a_file_holds_all_there_is_to_know(skills, tmp_path):
    skills.save(tmp_path / "skills")
    again = Skills.load(tmp_path / "skills")
    assert again.facts == skills.facts
    assert again.space == skills.space
    assert again.architecture == skills.architecture
    assert again.inputs == skills.inputs
    assert list(again.inputs) == ["desired_goal", "observation", "task"]
    assert [len(names) for names in again.inputs.values()] == [7, 59, 7]
    assert (again.actions, again.action_low, again.action_high) == (
        skills.actions,
        skills.action_low,
        skills.action_high,
    )
    assert again.origin == skills.origin
    assert again.floors == skills.floors
    assert again.figures == skills.figures | {"running": {}}  # what was never measured is not written
    assert again.success == skills.success
    assert len(again.subsets) == 31
    assert again.task_map == WALKER
    assert again.space.units == ("m", "m", "rad", "m", "m", "m", "m")
    assert again.space.delta == [1]
    assert again.facts.heading == ""
    for name, value in skills.network.state_dict().items():
        assert torch.equal(again.network.state_dict()[name], value), name


def test_act_is_the_mean_of_the_policy_for_every_task(env, policy, skills, tmp_path):
    obs = seen(env)
    expected = InferencePolicy(policy)(obs)
    skills.save(tmp_path / "skills")
    for each in (skills, Skills.load(tmp_path / "skills")):
        found = each.act(obs["observation"], obs["desired_goal"], obs["task"])
        assert found.shape == (31 * 5, 6)
        assert torch.equal(found, expected)
    assert len({tuple(row) for row in obs["task"].tolist()}) == 31
    assert float((found[:5] - found[-5:]).abs().max()) > 1e-3  # tasks are told apart


def test_actions_are_in_the_robots_own_units(env):
    spec = replace(env.spec, action=replace(env.spec.action, low=(-2.0,) * 6, high=(6.0,) * 6))
    policy = SkillPolicy(spec, SkillPolicyConfig(actor_hidden=(8,), critic_hidden=(8,)))
    with torch.no_grad():
        policy.actor.last.bias[:6] = 20.0
    found = Skills.of_policy(policy).act(torch.zeros(1, 59), torch.zeros(1, 7), torch.zeros(1, 7))
    assert_close(found, torch.full((1, 6), 6.0))


def test_neither_writing_nor_reading_draws_a_random_number(policy, tmp_path):
    before = torch.get_rng_state()
    Skills.of_policy(policy).save(tmp_path / "skills")
    Skills.load(tmp_path / "skills")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_file_is_a_copy(policy):
    skills = Skills.of_policy(policy)
    inputs = torch.ones(1, 59), torch.ones(1, 7), torch.ones(1, 7)
    before = skills.act(*inputs)
    with torch.no_grad():
        policy.actor.last.bias += 1.0
    assert torch.equal(skills.act(*inputs), before)
    with torch.no_grad():
        policy.actor.last.bias -= 1.0


# Where it is


def test_the_walkers_come_with_the_library(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    skills = Skills.load("walker")
    assert skills.facts.robot == "walker"
    assert len(skills.success) == 31
    assert all(len(found) == 31 for found in (*skills.figures.values(), *skills.floors.values()))
    assert sum(path.stat().st_size for path in (SHIPPED / "walker").iterdir()) < 10_000_000
    rank_1 = skills.by_rank()[1]
    assert rank_1 > skills.by_rank(skills.floors["random"])[1] + 0.2
    with make_env("walker/skills", rank_max=5) as env:
        skills.check_env(env.spec)
    (tmp_path / "walker").mkdir()  # a folder that happens to be called so
    assert is_shipped("walker")
    assert find_skills("walker") == SHIPPED / "walker"


def test_what_is_shipped_is_in_the_wheel():
    import tomllib

    root = Path(__file__).resolve().parents[2]
    found = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["gaitway"]
    package = root / "src" / "gaitway"
    packed = {path for pattern in found for path in package.glob(pattern)}
    assert {path for path in SHIPPED.rglob("*") if path.is_file()} <= packed


def test_a_run_folder_and_the_files_themselves_stand_for_the_skills(skills, tmp_path):
    skills.save(tmp_path / "run" / "skills")
    for path in ("run", "run/skills", "run/skills/state.json", "run/skills/state.safetensors"):
        assert find_skills(tmp_path / path) == tmp_path / "run" / "skills"
    skills.save(tmp_path / "walker")  # one of one's own comes before ours
    assert find_skills(tmp_path / "walker") == tmp_path / "walker"


# Published skills


def published(robot: str, width: int = 6, layers: int = 4, prefix: str = "pi.") -> dict[str, torch.Tensor]:
    """Random tensors as they were published: a D2RL trunk whose layers read [hidden, input], two heads."""
    inputs, _, actions = SIZES[robot]
    generator = torch.Generator().manual_seed(7)

    def random(*shape):
        return torch.randn(shape, generator=generator) / shape[-1] ** 0.5

    found = {"q.1.weight": random(3, 3), "reachability.1.weight": random(3, 3)}
    for layer in range(layers):
        found[f"{prefix}1.layers.{layer}.weight"] = random(width, inputs + (width if layer else 0))
        found[f"{prefix}1.layers.{layer}.bias"] = random(width)
    for part in ("mu", "log_std"):
        found[f"{prefix}2.{part}.weight"] = random(actions, width)
        found[f"{prefix}2.{part}.bias"] = random(actions)
    return found


def side_car(robot: str, task_map: dict[str, int], **more) -> dict:
    tasks = combinations(GROUPS[robot], 5)
    return {"task_map": task_map, "goal_dims": dict.fromkeys(tasks, 1.0), "cperf": dict.fromkeys(tasks, 0.5)} | more


def by_hand(tensors: dict[str, torch.Tensor], inputs: np.ndarray, prefix: str = "pi.") -> np.ndarray:
    """tanh of the mean, layer by layer in float64."""
    read = {name: value.double().numpy() for name, value in tensors.items()}
    hidden = np.zeros((len(inputs), 0))
    for layer in range(4):
        both = np.concatenate([hidden, inputs], axis=1)
        weight, bias = read[f"{prefix}1.layers.{layer}.weight"], read[f"{prefix}1.layers.{layer}.bias"]
        hidden = np.maximum(both @ weight.T + bias, 0.0)
    return np.tanh(hidden @ read[f"{prefix}2.mu.weight"].T + read[f"{prefix}2.mu.bias"])


@pytest.mark.parametrize("prefix", ["pi.", ""])
@pytest.mark.parametrize("permuted", [False, True])
@pytest.mark.parametrize("robot", list(GROUPS))
def test_published_skills_act_as_their_tensors_say(robot, permuted, prefix, tmp_path):
    task_map = WALKER if robot == "Walker" else HUMANOID
    if permuted:
        task_map = dict(zip(task_map, reversed(task_map.values()), strict=True))
    tensors = published(robot, prefix=prefix)
    skills = Skills.from_published(tensors, side_car(robot, task_map), robot)
    inputs, seen, _ = SIZES[robot]
    count = len(task_map)
    numbers = np.random.default_rng(3).normal(size=(9, inputs)).astype(np.float32)
    goal, observation, task = np.split(numbers, [count, count + seen], axis=1)  # alphabetical, as they were trained
    skills.save(tmp_path / "skills")
    for each in (skills, Skills.load(tmp_path / "skills")):
        found = each.act(*map(torch.from_numpy, (observation, goal, task)))
        assert_close(found.double().numpy(), by_hand(tensors, numbers.astype(np.float64), prefix), rtol=0, atol=2e-6)
    assert skills.task_map == task_map
    names = [skills.space.names[int(feature)] for feature in sorted(task_map, key=lambda each: task_map[each])]
    assert [name.split("[")[0] for name in skills.inputs["task"]] == names  # by position of the map
    assert skills.facts.heading == ("" if robot == "Walker" else "original")
    assert skills.facts.robot == robot.lower()
    assert len(skills.success) == 31
    assert set(skills.success.values()) == {0.5}


def test_published_figures_are_keyed_by_groups():
    more = {"cperf_eval": {"0,3,4": 0.7, "total": 0.1}, "cperf_r": {"3+4": 0.2}}
    skills = Skills.from_published(published("Walker"), side_car("Walker", WALKER, **more), "Walker")
    assert skills.success == {"0,3+4": 0.7}
    assert skills.figures["r"] == {"3+4": 0.2}
    assert len(skills.subsets) == 31  # practised, whatever was measured of them


def test_published_tasks_are_those_that_were_practised(tmp_path):
    # from a side-car without figures, whose first task is not the first group; it trained three tasks of the 31
    car = side_car("Walker", WALKER, goal_dims={"5+6": 1.0, "0,5+6": 0.5, "0": 1.0}, cperf={})
    skills = Skills.from_published(published("Walker"), car, "Walker")
    skills.save(tmp_path / "skills")
    for each in (skills, Skills.load(tmp_path / "skills")):
        assert each.groups == ("0", "5+6")
        assert each.subsets == ["0", "5+6", "0,5+6"]
        assert each.figures["weight"] == {"0": 1.0, "5+6": 1.0, "0,5+6": 0.5}
        assert each.success == {}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tensors, car: tensors.pop("pi.2.mu.bias"), "lacks 2.mu.bias"),
        (lambda tensors, car: tensors.pop("pi.1.layers.1.weight"), "should have pi.1.layers.0.weight"),
        (lambda tensors, car: tensors.pop("pi.1.layers.3.bias"), "lacks 1.layers.3.bias"),
        (lambda tensors, car: car.pop("task_map"), "lacks task_map"),
        (lambda tensors, car: car["task_map"].pop("6"), "feature 6"),
        (lambda tensors, car: tensors.update({"pi.1.layers.2.weight": torch.zeros(6, 3)}), "does not fit Walker"),
        (lambda tensors, car: tensors["pi.2.mu.weight"].fill_(float("nan")), "not finite"),
        (lambda tensors, car: tensors.update({"pi.2.mu.weight": torch.zeros(6, 5)}), "does not fit Walker: Sizes"),
        (lambda tensors, car: tensors.update({"pi.1.layers.0.weight": torch.zeros(3)}), "reads 3 numbers"),
        (lambda tensors, car: car["goal_dims"].update({"height": 1.0}), "'height' is no subset; write numbers"),
        (lambda tensors, car: car["cperf"].update({"0": None}), "says None of the task '0'; use a number"),
    ],
)
def test_published_skills_that_lack_something(change, said):
    tensors, car = published("Walker"), side_car("Walker", dict(WALKER))
    change(tensors, car)
    with pytest.raises(ValueError, match=said) as caught:
        Skills.from_published(tensors, car, "Walker")
    assert "\n" not in str(caught.value)


def test_published_skills_of_another_robot():
    with pytest.raises(ValueError, match=r"reads 73 numbers.*check robot and side-car"):
        Skills.from_published(published("Walker"), side_car("HumanoidPC", HUMANOID), "HumanoidPC")


# What is refused


def refused(call, *said):
    with pytest.raises((SkillFileError, StateFileError)) as caught:
        call()
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 500
    for words in said:
        assert words in sentence, sentence


def test_skills_of_another_robot_of_other_features_and_of_another_heading(env, skills):
    fits = ("walker", "bodyfeet", "corrected", component_names(env.spec, "observation"), env.spec.action.names)
    skills.check_fits(*fits)
    skills.check_fits("walker", "bodyfeet-relz", *fits[2:])
    refused(lambda: skills.check_fits("humanoid", *fits[1:]), "skills of walker", "humanoid", "use the skills")
    refused(lambda: skills.check_fits("walker", "joints", *fits[2:]), "'bodyfeet'", "'joints'")
    refused(lambda: skills.check_fits(*fits[:3], fits[3][1:], fits[4]), f"read {fits[3][0]!r}", "does not show")
    refused(lambda: skills.check_fits(*fits[:4], fits[4][::-1]), "these skills move right_hip")


def test_published_skills_of_the_walker_fit_as_they_are(env, tmp_path):
    skills = Skills.from_published(published("Walker"), side_car("Walker", WALKER), "Walker")
    skills.check_env(env.spec)  # its feet are turned in one way only
    older = replace(skills, facts=replace(skills.facts, heading="original"))  # as earlier versions wrote it
    older.save(tmp_path / "older")
    Skills.load(tmp_path / "older").check_env(env.spec)
    run = MultitaskSAC(SkillPolicy(env.spec, SkillPolicyConfig(actor_hidden=(6,) * 4, critic_hidden=(6,))), num_envs=5)
    config = parse({"algorithm": {"name": "multitask_sac"}, "init_from": {"run": str(tmp_path / "older")}})
    line = init_from(config, run)
    assert line is not None
    assert "begins with the actor" in line
    assert torch.equal(run.policy.actor.last.weight, older.network.last.weight)


def test_the_humanoids_feet_are_turned_in_two_ways():
    skills = Skills.from_published(published("HumanoidPC"), side_car("HumanoidPC", HUMANOID), "HumanoidPC")
    with make_env("humanoidpc/skills") as env:
        refused(lambda: skills.check_env(env.spec), "original heading", "corrected one", "compat=original")
        fixed = replace(skills, facts=SkillFacts.of(env.spec))
    with make_env("humanoidpc/skills", compat="original") as env:
        skills.check_env(env.spec)
        refused(lambda: fixed.check_env(env.spec), "corrected heading", "original one", "compat=fixed")


def test_a_goal_space_that_lacks_a_feature_or_has_another_range(env, skills):
    plain = env.spec.facts["skills"]

    def changed(**changes):
        return replace(env.spec, facts=env.spec.facts | {"skills": plain | changes})

    space = plain["space"]
    skills.check_env(env.spec)
    names = ["rootz:q", *space["names"][1:]]
    refused(lambda: skills.check_env(changed(space=space | {"names": names})), "'rootz:p'", "did you mean 'rootz:q'")
    high = [*space["high"][:2], 1.0, *space["high"][3:]]
    refused(lambda: skills.check_env(changed(space=space | {"high": high})), "'rooty:p' from -1.3 to 1.3", "to 1 ")
    with make_env("walker/skills", feature_dist="0#1#2") as other:
        refused(
            lambda: skills.check_env(other.spec), "[0, 1, 2, 3, 4, 5, 6]", "gives [0, 1, 2]", "to '0#1#2#3+4#5+6' and"
        )
    with make_env("point/skills") as other:
        refused(lambda: skills.check_env(other.spec), "skills of walker", "point")
    with make_env("walker/skills", rank_max=5, backproject_goal=False) as other:
        refused(lambda: skills.check_env(other.spec), "desired_goal")


@pytest.mark.parametrize(
    ("name", "shape"), [("observation", (2, 60)), ("desired_goal", (2, 6)), ("task", (2, 8)), ("task", (7,))]
)
def test_act_refuses_wrong_widths(skills, name, shape):
    given = {"observation": torch.zeros(2, 59), "desired_goal": torch.zeros(2, 7), "task": torch.zeros(2, 7)}
    width = given[name].shape[1]
    given[name] = torch.zeros(shape)
    refused(lambda: skills.act(**given), f"{name} is {list(shape)}", f"[B, {width}]")


def test_files_that_are_none(skills, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    skills.save("good")
    refused(lambda: Skills.load("wlaker"), "no skills 'wlaker'", "did you mean 'walker'", "walker")
    refused(lambda: Skills.load(tmp_path / "nowhere"), "no skills", "name the folder")
    Path("notes.txt").write_text("no")
    refused(lambda: Skills.load("notes.txt"), "is no skill file", "state.json")
    Path("empty").mkdir()
    refused(lambda: Skills.load("empty"), "empty holds no skills; name the folder")
    save_state("other", {"a": 1}, kind="checkpoint")
    refused(lambda: Skills.load("other"), "'checkpoint' where a 'skills' is needed")
    Path("run").mkdir()
    Path("run/config.yaml").write_text("seed: 0\n")
    refused(lambda: Skills.load("run"), "the run run holds no skills", "skill_file")


def test_damaged_files(skills, tmp_path):
    good = tmp_path / "good"
    skills.save(good)

    def copy():
        shutil.rmtree(tmp_path / "bad", ignore_errors=True)
        return Path(shutil.copytree(good, tmp_path / "bad"))

    for name in ("state.json", "state.safetensors"):
        size = (good / name).stat().st_size
        for place in (0, size // 2, size - 2):
            data = bytearray((good / name).read_bytes())
            data[place] ^= 0xFF
            (copy() / name).write_bytes(data)
            refused(lambda: Skills.load(tmp_path / "bad"), str(tmp_path / "bad"), "copy it again or make it again")
        (copy() / name).write_bytes((good / name).read_bytes()[: size // 2])
        refused(lambda: Skills.load(tmp_path / "bad"), str(tmp_path / "bad"), "copy it again or make it again")
        (copy() / name).unlink()
        refused(lambda: Skills.load(tmp_path / "bad"), "missing")
    (copy() / "extra.pkl").write_bytes(b"x")
    refused(lambda: Skills.load(tmp_path / "bad"), "'extra.pkl'", "remove it")
    document = json.loads((good / "state.json").read_text())
    (copy() / "state.json").write_text(json.dumps(document | {"format_version": 99}))
    refused(lambda: Skills.load(tmp_path / "bad"), "format version 99", "upgrade gaitway")


def drop(name):
    return lambda state, meta: meta.pop(name)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        *((drop(name), name) for name in ("facts", "architecture", "inputs", "actions", "figures", "floors", "origin")),
        (lambda state, meta: meta["facts"].pop("heading"), "heading"),
        (lambda state, meta: meta["facts"].update(groups=["0", "99"]), "99"),
        (lambda state, meta: meta["facts"].update(groups=[]), "0 groups"),
        (lambda state, meta: meta["facts"].update(groups=["0"] * 40), "40 groups"),
        (lambda state, meta: meta["figures"].update(r={"0,9": 0.5}), "feature 9"),
        (lambda state, meta: meta["floors"].update(zero={"all": 0.5}), "all"),
        (lambda state, meta: meta["facts"]["space"].update(low=[0.0]), "range"),
        (lambda state, meta: meta["facts"]["task_map"].update({"6": 9}), "task map"),
        (lambda state, meta: meta["architecture"].update(hidden=[10**9] * 3), "another network"),
        (lambda state, meta: meta["architecture"].update(hidden=[8] * 10**4), "hidden layers"),
        (lambda state, meta: meta["architecture"].update(hidden=[12, 10, -8]), "hidden layers"),
        (lambda state, meta: meta["architecture"].update(hidden=7), "int"),
        (lambda state, meta: meta["architecture"].update(trunk="os"), "no trunk 'os'"),
        (lambda state, meta: meta["architecture"].update(activation="eval"), "eval"),
        (lambda state, meta: meta["inputs"].pop(), "inputs"),
        (lambda state, meta: meta["inputs"][0][1].pop(), "desired_goal"),
        (lambda state, meta: meta["inputs"][1][1].pop(), "another network"),
        (lambda state, meta: meta["actions"]["low"].pop(), "actions"),
        (lambda state, meta: meta["actions"].update(high=["a"] * 6), "str"),
        (lambda state, meta: meta["figures"].update(success={"0": "much"}), "real number"),
        (lambda state, meta: meta["figures"].update(success=5), "int"),
        (lambda state, meta: state["network"].pop("last.bias"), "last.bias"),
        (lambda state, meta: state["network"].update(more=torch.zeros(1)), "more"),
        (lambda state, meta: state["network"]["last.bias"].fill_(float("nan")), "not finite"),
        (lambda state, meta: state.pop("network"), "network"),
    ],
)
def test_files_whose_checksums_are_right_and_whose_content_is_not(skills, tmp_path, change, said):
    skills.save(tmp_path / "good")
    state, meta = load_state(tmp_path / "good", kind=KIND)
    change(state, meta)
    save_state(tmp_path / "bad", state, kind=KIND, meta=meta)
    refused(lambda: Skills.load(tmp_path / "bad"), str(tmp_path / "bad"), said, "export it again")


@pytest.mark.parametrize("change", [{"normalise_observations": True}, {"actor_network": {"name": "mlp"}}])
def test_only_plain_networks_are_exported(policy, change):
    copied = SkillPolicy(policy.spec, policy.config)
    copied.config = replace(policy.config, **change)
    refused(lambda: Skills.of_policy(copied), "plain network", "train without")


def test_a_file_is_written_whole_or_not_at_all(skills, tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(StateFileError, match="taken"):
        skills.save(tmp_path / "taken")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    assert (tmp_path / "taken").read_text() == "mine"


def test_own_goal_spaces_travel_with_the_file(policy, tmp_path):
    space = GoalSpace(("a", "b"), (-1.0, 0.0), (1.0, 2.0), delta=[0], units=("m", "rad"))
    skills = Skills.of_policy(policy)
    own = replace(skills.facts, space=space, groups=("0", "1"), task_map={"0": 1, "1": 0}, robot="mine")
    network = skills.architecture.build(2 + 59 + 2, 6, shrunk(skills.network.state_dict(), 73, 63))
    inputs = {"desired_goal": ("b", "a"), "observation": skills.inputs["observation"], "task": ("b", "a")}
    made = replace(skills, facts=own, network=network, inputs=inputs)
    made.save(tmp_path / "own")
    again = Skills.load(tmp_path / "own")
    assert again.facts == own
    assert again.subsets == ["0", "1", "0,1"]
    assert again.act(torch.zeros(1, 59), torch.zeros(1, 2), torch.zeros(1, 2)).shape == (1, 6)


def shrunk(state, before, after):
    """The weights of a network with fewer inputs."""
    return {name: value[:after] if value.shape[0] == before else value for name, value in state.items()}
