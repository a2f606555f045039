"""Facts of skill environments in the contract: plain, complete, and the same after a round trip."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from skill_cases import make_skills

from gaitway.envs.spec import EnvSpec
from gaitway.envs.tasks.skills.facts import SkillFacts
from gaitway.envs.tasks.skills.goal_spaces import (
    HUMANOID_BODYFEET,
    WALKER_BODYFEET,
    GoalSpace,
    combinations,
    groups_of,
    rank,
)


@pytest.mark.parametrize("robot", ["walker", "humanoidpc"])
def test_the_contract_holds_the_facts(robot):
    env = make_skills(robot, 1, max_steps=30, precision=0.2)
    spec = EnvSpec.from_dict(json.loads(json.dumps(env.spec.to_dict())))
    facts = SkillFacts.from_dict(spec.facts["skills"])
    assert facts.to_dict() == env.spec.facts["skills"]
    assert (facts.robot, facts.features) == (robot, "bodyfeet")
    assert facts.heading == ("" if robot == "walker" else "corrected")  # its feet have no choice
    assert (facts.horizon, facts.precision, facts.reward, facts.control_dt) == (30, 0.2, "potential", 0.025)
    assert facts.space == env.task.space
    assert facts.task_map == env.task.tasks.task_map
    assert facts.space.units == tuple(part.unit for part in env.task.features.components)
    if robot == "walker":
        assert facts.groups == ("0", "1", "2", "3+4", "5+6")
        assert facts.ctrl_cost == 0.001
    else:
        assert facts.groups == ("0+3", "2+3", "3+4", "3+6+7+8", "3+9+10+11")


def test_the_heading_that_features_were_learnt_with():
    assert make_skills("humanoidpc", 1, compat="original").spec.facts["skills"]["heading"] == "original"


def test_groups_of_a_mapping_come_in_order():
    env = make_skills(num_envs=1, feature_dist={"5+6,0": 1.0, "4+3": 2.0, "0,3+4": 1.0})
    assert env.spec.facts["skills"]["groups"] == ["5+6", "0", "3+4"]
    assert groups_of(["0,3+4", "0,4"]) == ("0", "3+4", "4")


def test_groups_do_not_depend_on_the_ranks_that_are_drawn():
    for ranks in ((1, 1), (1, 5), (3, 3), (5, 5)):
        env = make_skills(num_envs=1, rank_min=ranks[0], rank_max=ranks[1])
        assert env.spec.facts["skills"]["groups"] == ["0", "1", "2", "3+4", "5+6"]


def test_combinations_of_groups():
    groups = ("0", "1", "3+4")
    assert combinations(groups, 1) == ["0", "1", "3+4"]
    assert combinations(groups, 3) == ["0", "1", "3+4", "0,1", "0,3+4", "1,3+4", "0,1,3+4"]
    assert combinations(groups, 2, 2) == ["0,1", "0,3+4", "1,3+4"]
    assert [rank(subset) for subset in combinations(groups, 3)] == [1, 1, 1, 2, 2, 2, 3]
    for wrong in (0, 4, -1):
        with pytest.raises(ValueError, match="there are 3 groups"):
            combinations(groups, wrong)


def test_facts_that_are_not_whole_are_refused():
    plain = make_skills(num_envs=1).spec.facts["skills"]
    with pytest.raises(ValueError, match=r"these lack \['horizon'\]"):
        SkillFacts.from_dict({name: value for name, value in plain.items() if name != "horizon"})
    with pytest.raises(ValueError, match=r"have besides \['colour'\]"):
        SkillFacts.from_dict({**plain, "colour": "red"})
    for name, value in {"horizon": "72", "precision": None, "groups": "0#1", "space": [], "robot": 3}.items():
        with pytest.raises(ValueError, match=f"the fact '{name}' of skills"):
            SkillFacts.from_dict({**plain, name: value})
    space = plain["space"]
    with pytest.raises(ValueError, match=r"lacks \['units'\]"):
        SkillFacts.from_dict({**plain, "space": {name: space[name] for name in space if name != "units"}})
    with pytest.raises(ValueError, match="symmetric about 0"):
        SkillFacts.from_dict({**plain, "space": {**space, "delta": [0]}})
    with pytest.raises(ValueError, match="use a number per feature"):
        SkillFacts.from_dict({**plain, "space": {**space, "low": ["a"] * 7}})


def test_facts_are_compared_by_value():
    facts = SkillFacts.from_dict(make_skills(num_envs=1).spec.facts["skills"])
    assert facts == SkillFacts.from_dict(json.loads(json.dumps(facts.to_dict())))
    assert facts != dataclasses.replace(facts, space=HUMANOID_BODYFEET)
    assert hash(facts.space) == hash(WALKER_BODYFEET)


def test_tables_survive_plain_data_exactly():
    generator = np.random.default_rng(0)
    low, high = -generator.random(3), generator.random(3)
    mixed = GoalSpace("abc", low, high, psi=generator.standard_normal((3, 3)), offset=generator.standard_normal(3))
    twisted = GoalSpace("ab", [-0.3, -3.1], [0.3, 3.1], delta=[0], twist=[1], units=("m", "rad"))
    for space in (WALKER_BODYFEET, HUMANOID_BODYFEET, mixed, twisted):
        again = GoalSpace.from_dict(json.loads(json.dumps(space.to_dict())))
        assert again == space
        features = generator.standard_normal((4, space.size))
        assert np.array_equal(again.project(features), space.project(features))
        assert (again.delta, again.twist, again.units) == (space.delta, space.twist, space.units)
    assert mixed != GoalSpace("abc", low, high)
    assert "psi" not in twisted.to_dict()
    with pytest.raises(ValueError, match="2 features need as many units"):
        GoalSpace("ab", [0, 0], [1, 1], units=("m",))
