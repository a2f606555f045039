"""Frozen skills below a high level: inputs by name, what does not fit refused, nothing of them learnt or stored."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hsd3_cases import make_policy, point_skills

from gaitway import make_env
from gaitway.envs.spec import EnvSpec
from gaitway.skills.frozen_policy import SkillFileError, component_names, robot_of
from gaitway.skills.goal_space_policy import feature_columns
from gaitway.skills.low_level import LowLevel
from gaitway.skills.skill_file import Skills


@pytest.fixture(scope="module")
def hurdles() -> EnvSpec:
    with make_env("walker/hurdles", goal_space=True) as env:
        return env.spec


def shuffled(spec: EnvSpec, group: str) -> tuple[EnvSpec, list[int]]:
    """The same contract with the components of a group in another order, and where each came from."""
    old = spec.group(group)
    order = torch.randperm(len(old.components), generator=torch.Generator().manual_seed(0)).tolist()
    new = replace(old, components=tuple(old.components[place] for place in order))
    groups = tuple(new if each.name == group else each for each in spec.groups)
    starts = [0]
    for component in old.components:
        starts.append(starts[-1] + component.size)
    columns = [column for place in order for column in range(starts[place], starts[place + 1])]
    return replace(spec, groups=groups), columns


def test_components_are_found_by_name(hurdles):
    skills = Skills.load("walker")
    low = LowLevel(skills, "walker", hurdles)
    names = component_names(hurdles, "policy")
    assert tuple(names[column] for column in low.columns) == skills.inputs["observation"]
    assert len(low.columns) == 59
    assert "rootx:p" not in skills.inputs["observation"]
    other, columns = shuffled(hurdles, "policy")
    obs = torch.randn(5, 63)
    given = {"desired_goal": torch.randn(5, 7), "task": torch.ones(5, 7)}
    expected = low.act({"policy": obs}, given)
    assert torch.equal(LowLevel(skills, "walker", other).act({"policy": obs[:, columns]}, given), expected)
    alone = skills.act(obs[:, low.columns], given["desired_goal"], given["task"])
    assert torch.equal(expected, alone)
    low.columns = (low.columns + 1) % 63  # one off: another action
    assert not torch.allclose(low.act({"policy": obs}, given), expected, atol=1e-2)


def test_goal_features_are_found_by_name(hurdles):
    skills = Skills.load("walker")
    assert feature_columns(skills, hurdles, "goal_space") == list(range(7))
    other, columns = shuffled(hurdles, "goal_space")
    assert [columns[place] for place in feature_columns(skills, other, "goal_space")] == list(range(7))


def test_what_does_not_fit_is_refused(hurdles):
    skills = Skills.load("walker")
    with make_env("walker/hurdles") as env, pytest.raises(SkillFileError, match="goal_space: true"):
        feature_columns(skills, env.spec, "goal_space")
    with make_env("humanoidpc/hurdles", goal_space=True) as env:
        with pytest.raises(SkillFileError, match=r"robot of humanoidpc/hurdles is humanoidpc; use its skills"):
            LowLevel(skills, "walker", env.spec)
        with pytest.raises(SkillFileError, match=r"goals of 'rootz:p'.*use the skills of its robot"):
            feature_columns(skills, env.spec, "goal_space")
        with pytest.raises(SkillFileError, match=r"corrected heading.*env.options.heading=corrected"):
            feature_columns(Skills.load("humanoidpc"), env.spec, "goal_space")
    with (
        make_env("humanoidpc/skills", compat="original") as env,
        pytest.raises(SkillFileError, match=r"corrected heading.*; write env.options.compat=fixed$"),
    ):
        feature_columns(Skills.load("humanoidpc"), env.spec, "gs_observation")
    with make_env("humanoidpc/hurdles", goal_space=True, heading="corrected") as env:
        assert len(feature_columns(Skills.load("humanoidpc"), env.spec, "goal_space")) == 12
    with pytest.raises(SkillFileError, match="no vector group 'polcy'"):
        LowLevel(skills, "walker", hurdles, "polcy")


def test_the_robot_is_known_whatever_the_environment_is_called(hurdles):
    """The two Humanoids show and take numbers of the same names; only their motors differ."""
    assert hurdles.facts["robot"] == "walker"
    options = {"num_envs": 1, "goal_space": True, "heading": "corrected"}
    with make_env("humanoid/hurdles", **options) as env, make_env("humanoidpc/hurdles", **options) as other:
        torque, position = (replace(each.spec, id="own_module:Course") for each in (env, other))
    skills = Skills.load("humanoidpc")
    assert torque.group("policy") == position.group("policy")
    assert torque.action == position.action
    LowLevel(skills, "humanoidpc", position)
    with pytest.raises(SkillFileError, match="robot of own_module:Course is humanoid; use its skills"):
        LowLevel(skills, "humanoidpc", torque)
    LowLevel(skills, "humanoidpc", replace(torque, facts={}))  # nothing is said about it, and all names are there
    with make_env("walker/run", wrappers=[{"name": "features"}]) as env:
        assert robot_of(replace(env.spec, id="own_module:Run")) == "walker"
    with make_env("walker/run") as env, make_env("point/skills") as point, make_env("walker/skills") as goals:
        assert robot_of(env.spec) == "walker"
        assert robot_of(replace(env.spec, id="own_module:Run")) is None
        assert robot_of(point.spec) is None  # its names are its own, and tell enough
        assert robot_of(replace(goals.spec, id="own_module:Goals")) == "walker"


def test_nothing_of_the_skills_is_learnt_or_stored():
    skills = point_skills()
    with make_env("point/corridor") as env:
        policy = make_policy(env.spec, skills)
    weights = {value.data_ptr() for value in skills.network.parameters()}
    assert not weights & {value.data_ptr() for value in policy.parameters()}
    state = policy.state_dict()
    assert state["_extra_state"] == {"skills_sha256": skills.sha256}
    learnt = sum(value.numel() for value in policy.parameters())
    assert sum(value.numel() for value in state.values() if isinstance(value, torch.Tensor)) == learnt
    policy.load_state_dict(state)
    other = make_policy(env.spec, point_skills(8))
    with pytest.raises(SkillFileError, match=r"learnt over skills with the fingerprint .*put that skill file back"):
        other.load_state_dict(state)


def test_the_fingerprint_is_that_of_what_they_do(tmp_path):
    skills = point_skills()
    skills.save(tmp_path / "copy")
    copy = Skills.load(tmp_path / "copy")
    assert copy.sha256 == skills.sha256
    assert replace(copy, facts=replace(copy.facts, heading="original")).sha256 != skills.sha256
    with torch.no_grad():
        next(copy.network.parameters()).view(-1)[0] += 1e-6
    assert copy.sha256 != skills.sha256
