"""Decisions that hold for several steps: phases, what is remembered, goals that stay where they were set, sizes."""

from __future__ import annotations

import pytest
import torch
from hsd3_cases import HIDDEN, LEARNER, NUM_ENVS, make_policy, make_runner, point_skills
from torch.testing import assert_close

from gaitway import OffPolicyRunner, RunnerConfig, make_env
from gaitway.agents.policy import InferencePolicy
from gaitway.core.config import ConfigError, from_config
from gaitway.rewards.sim_hash import SimHashReward
from gaitway.runners.film import captioned
from gaitway.skills.deciding_policy import DECISION, MEMORY, PHASE
from gaitway.skills.frozen_policy import SkillFileError
from gaitway.skills.hsd3 import HSD3, HSD3Config
from gaitway.skills.hsd3_policy import HSD3Policy, HSD3PolicyConfig, drawn_spaces


@pytest.fixture(scope="module")
def played():
    """A run of random decisions whose episodes are cut after 23 steps, and end earlier by falls."""
    runner = make_runner(learning_starts=10**6, iteration_steps=NUM_ENVS * 60)
    runner.learn(NUM_ENVS * 60)
    return runner


def parts(policy: HSD3Policy, state: torch.Tensor) -> dict[str, torch.Tensor]:
    named = policy.memories[MEMORY].parts
    return dict(zip([name for name, _ in named], state.split([size for _, size in named], -1), strict=True))


def test_decisions_hold_for_the_interval_or_to_the_end_of_the_episode(played):
    ws, policy = played.rollout, played.policy
    phase, decision, done = ws[PHASE], ws[DECISION], ws["env/done"]
    assert policy.interval == 5
    assert bool(done.any())
    expected = torch.zeros(NUM_ENVS, dtype=torch.int64)
    for t in range(ws.T):
        assert torch.equal(phase[t], expected)
        if t:
            kept = phase[t] > 0
            assert torch.equal(decision[t][kept], decision[t - 1][kept])
            assert not (decision[t][~kept] == decision[t - 1][~kept]).all(-1).any()
        expected = torch.where(done[t], 0, (expected + 1) % 5)
    assert set(phase.unique().tolist()) == {0, 1, 2, 3, 4}


def test_the_target_stays_where_it_was_set(played):
    """What is left to go, row by row, from features and decisions alone."""
    ws, policy = played.rollout, played.policy
    memory, features = ws[MEMORY], ws["env/obs/goal_space"]
    space_of, goal_of = policy.split(ws[DECISION].flatten(0, 1))
    space_of, goal_of = space_of.view(ws.T, -1), goal_of.view(ws.T, NUM_ENVS, -1)
    interface, met = policy.interface, 0
    for column in range(NUM_ENVS):
        for t in range(ws.T):
            phase = int(ws[PHASE][t, column])
            first = t - phase
            bits = interface.task_bits[space_of[t, column]]
            start = features[first, column].double()
            wanted = start.clone()  # heading and z are absolute, x and y count from where the decision was made
            for place, feature in enumerate(interface.members.tolist()):
                centre = 0.5 * (interface.space.low[feature] + interface.space.high[feature])
                half = 0.5 * (interface.space.high[feature] - interface.space.low[feature])
                value = centre + half * float(goal_of[t, column, place])
                wanted[feature] = value + (start[feature] if feature in interface.space.delta else 0.0)
            left = (wanted - features[t, column].double())[interface.members]
            turn = interface.members.tolist().index(3)
            left[turn] = torch.remainder(left[turn] + torch.pi, 2 * torch.pi) - torch.pi
            found = parts(policy, memory[t + 1, column][None])["left"][0].double()
            if bool(ws["env/done"][t, column]) and t + 1 < ws.T:
                continue  # forgotten by then
            assert_close(found, left * bits, atol=2e-5, rtol=0)
            met += phase > 0
    assert met > 50


def test_the_action_is_that_of_the_skills(played):
    ws, policy = played.rollout, played.policy
    for t in (0, 7, 30):
        state = ws[MEMORY][t + 1]
        space, _ = policy.split(ws[DECISION][t])
        kept = parts(policy, state)
        alive = ~ws["env/done"][t]
        given = {"desired_goal": kept["left"], "task": policy.interface.task_bits[space]}
        action = policy.low.act({"policy": ws["env/obs/policy"][t]}, given)
        assert torch.equal(action[alive], ws["action"][t][alive])
        assert torch.equal(kept["features"][alive], ws["env/obs/goal_space"][t][alive])


def test_a_function_of_observations_remembers_the_same(played):
    """`InferencePolicy` takes the flat state as it is: it plays what a rollout without noise plays."""
    with make_env("point/duck", num_envs=3, seed=5, max_episode_steps=13) as env:
        act, obs = InferencePolicy(played.policy), env.reset()
        state, actions = None, []
        for _ in range(30):
            action = act(obs)
            again, state = played.policy.act(obs, state, stochastic=False)
            assert torch.equal(action, again)
            actions.append(action.clone())
            step = env.step(action)
            ended = step.terminated | step.truncated
            act.reset(ended)
            state = state * (~ended).unsqueeze(-1)
            obs = {name: value.clone() for name, value in step.obs.items()}
    assert len({tuple(action.flatten().tolist()) for action in actions}) == 30


@pytest.mark.parametrize("uniform", [True, False])
def test_decisions_cover_goal_spaces_and_stay_within_them(uniform):
    with make_env("point/corridor", num_envs=64) as env:
        policy, obs = make_policy(env.spec, subsets="0#1#2#3"), env.reset()
        assert policy.num_spaces == 15
        generator = torch.Generator().manual_seed(0)
        decisions = torch.cat([policy.act(obs, None, True, generator, uniform=uniform)[1][:, 1:6] for _ in range(40)])
    space, goal = policy.split(decisions)
    mask = policy.interface.action_mask[space]
    assert torch.equal(goal * (1 - mask), torch.zeros_like(goal))
    assert bool((goal[mask > 0] != 0).all())
    assert bool((goal.abs() <= 1).all())
    assert set(space.tolist()) == set(range(15))
    if uniform:
        counts = torch.bincount(space, minlength=15).double()
        expected = len(space) / 15
        assert float(((counts - expected) ** 2 / expected).sum()) < 36.1  # chi-square with 14 degrees, p = 0.001
        assert abs(float(goal[mask > 0].mean())) < 0.03
        assert abs(float((goal[mask > 0] ** 2).mean()) - 1 / 3) < 0.02


def test_spaces_are_drawn_by_their_probabilities():
    probability = torch.tensor([[0.5, 0.0, 0.2, 0.3], [0.0, 0.0, 0.0, 1.0]])
    drawn = drawn_spaces(probability.log(), torch.rand(2, 40_000, generator=torch.Generator().manual_seed(0)))
    share = torch.stack([torch.bincount(row, minlength=4) for row in drawn]) / 40_000
    assert_close(share, probability, atol=0.012, rtol=0)
    assert drawn_spaces(torch.tensor([[0.9, 0.1]]).log(), torch.tensor([[1.0 - 2**-24, 0.0]])).tolist() == [[1, 0]]


def test_sizes_on_the_walker():
    """High level 3 + 60 + 1, critics 64 + 31 + 31 * 7, skills 7 + 59 + 7."""
    with make_env("walker/hurdles", num_envs=2, num_threads=1, goal_space=True) as env:
        policy = HSD3Policy(env.spec, HSD3PolicyConfig(skills="walker", **HIDDEN))
        obs = env.reset()
    assert policy.num_spaces == 31
    assert policy.input_size("actor") == 64
    assert policy.critic.critics.network.trunk.input.weight.shape[1] == 312
    assert policy.low.skills.network.trunk.input.weight.shape[0] == 73
    assert policy.memories[MEMORY].size == 1 + 1 + 7 + 7 + 7
    action, state = policy.act(obs, None, stochastic=False)
    assert action.shape == (2, 6)
    assert state[:, 0].tolist() == [1.0, 1.0]


def test_sizes_on_the_humanoid():
    """High level 3 + 151 + 1, critics 155 + 31 + 31 * 10, skills 10 + 149 + 10; goals lie by the task map."""
    options = {"goal_space": True, "heading": "corrected"}
    with make_env("humanoidpc/hurdles", num_envs=2, num_threads=1, **options) as env:
        policy = HSD3Policy(env.spec, HSD3PolicyConfig(skills="humanoidpc", **HIDDEN))
        action, state = policy.act(env.reset(), None, stochastic=True)
    assert policy.num_spaces == 31
    assert policy.input_size("actor") == 155
    assert policy.critic.critics.network.trunk.input.weight.shape[1] == 496
    assert policy.low.skills.network.trunk.input.weight.shape[0] == 169
    assert policy.memories[MEMORY].size == 1 + 1 + 10 + 10 + 12
    assert action.shape == (2, 21)
    assert policy.interface.members.tolist() == [0, 2, 3, 4, 6, 7, 8, 9, 10, 11]
    space, goal = policy.split(state[:, 1:12])
    assert torch.equal(goal != 0, policy.interface.task_bits[space] > 0)


def test_stairs_have_relative_height_and_poles_are_decided_on_at_every_step():
    with make_env("walker/stairs", num_envs=2, num_threads=1, goal_space=True) as env:
        policy = HSD3Policy(env.spec, HSD3PolicyConfig(skills="walker", **HIDDEN))
        height = env.reset()["goal_space"][:, policy.columns[0]]
        assert bool((height < 1.6).all())
        assert policy.interval == 5
    with make_env("walker/polebalance", num_envs=2, num_threads=1, goal_space=True) as env:
        policy = HSD3Policy(env.spec, HSD3PolicyConfig(skills="walker", **HIDDEN))
        assert policy.interval == 1
        obs, state = env.reset(), None
        for _ in range(3):
            _, state = policy.act(obs, state, stochastic=True)
            assert state[:, 0].tolist() == [0.0, 0.0]
        asked = HSD3PolicyConfig(skills="walker", interval=3, **HIDDEN)
        assert HSD3Policy(env.spec, asked).interval == 3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subsets": "0#1", "rank_min": 2, "rank_max": 2, "mask_feats": (0, 1)}, "mask_features"),
        ({"subsets": "9"}, r"never learnt the subset '9'"),
        ({"subsets": "from_lo", "rank_min": 5}, r"no subset of ranks 5 to 99"),
        ({"subsets": "from_lo", "rank_min": 3, "rank_max": 2}, r"rank_min <= rank_max"),
        ({"features": "goalspace"}, r"shows no goal features 'goalspace' \(did you mean 'goal_space'\?\)"),
        ({"blocks": ({"name": "mlp", "reads": ["policy"], "writes": "x"},)}, r"leave agent.blocks"),
    ],
)
def test_bad_goal_spaces(options, sentence):
    with make_env("point/corridor") as env, pytest.raises(ValueError, match=sentence):
        make_policy(env.spec, **options)


def test_critics_may_start_as_the_published_ones_do():
    with make_env("point/corridor") as env:
        usual, named, scaled = (
            make_policy(env.spec, **options) for options in ({}, {"published_scale": False}, {"published_scale": True})
        )
        with pytest.raises(ValueError, match="published_scale is for uniform starts"):
            make_policy(env.spec, published_scale=True, init="orthogonal")
    before, found = usual.state_dict(), scaled.state_dict()
    assert all(torch.equal(value, named.state_dict()[name]) for name, value in usual.named_parameters())
    width = HIDDEN["critic_hidden"][0]
    for name, _ in usual.named_parameters():
        expected = before[name]
        if name.endswith(("trunk.input.weight", "trunk.bias")) and name.startswith(("critic.", "target.")):
            expected = torch.cat((expected[..., :width], expected[..., width:] * 0.5**0.5), -1)
        elif name.startswith(("critic.", "target.")):
            expected = expected * 0.5**0.5
        assert_close(found[name], expected)


def test_one_feature_may_be_written_as_a_number():
    """As `agent.subsets=2` is read from a command line."""
    config = from_config(HSD3PolicyConfig, {"subsets": 2, "actor_hidden": [8], "critic_hidden": [8]})
    with make_env("point/corridor") as env:
        assert HSD3Policy(env.spec, config, skills=point_skills()).interface.subsets == ("2",)


def test_without_a_skill_file():
    with make_env("point/corridor") as env:
        with pytest.raises(SkillFileError, match=r"agent\.skills names no skill file"):
            HSD3Policy(env.spec, HSD3PolicyConfig())
        with pytest.raises(SkillFileError, match=r"there are no skills 'walkr'"):
            HSD3Policy(env.spec, HSD3PolicyConfig(skills="walkr"))


def test_an_interval_of_nothing():
    with pytest.raises((ValueError, ConfigError), match="interval"):
        HSD3PolicyConfig(interval=0)


def test_goals_of_delta_actions_count_from_the_robot():
    with make_env("point/corridor", num_envs=8) as env:
        policy, obs = make_policy(env.spec, point_skills(), delta_actions=True, subsets="2"), env.reset()
        _, state = policy.act(obs, None, stochastic=True)
    kept = parts(policy, state)
    place = policy.interface.members.tolist().index(2)
    assert_close(kept["left"][:, place], 0.5 * kept["subgoal"][:, place], atol=1e-6, rtol=0)


def test_a_film_is_told_the_goal_space_the_goal_and_what_is_left(played):
    policy, env = played.policy, make_env("point/duck", num_envs=1, max_episode_steps=23)
    act = InferencePolicy(policy)
    assert captioned(act, ("point/duck",))() == ("point/duck",)  # before the first step there is nothing to tell
    act(env.reset(seed=[0]))
    told = captioned(act, ("point/duck",))()
    kept = parts(policy, act._state)
    subset = policy.interface.subsets[int(kept["goal_space"])]
    features = [int(each) for each in subset.split(",")]
    assert told[:2] == ("point/duck", f"goal space {subset}")
    for line, feature in zip(told[2:], features, strict=True):
        place = policy.interface.members.tolist().index(feature)
        goal, left = float(kept["subgoal"][0, place]), float(kept["left"][0, place])
        assert line == f"{policy.interface.space.names[feature]} goal {goal:+.2f} left {left:+.2f}"
    env.close()


def test_the_replay_keeps_what_decisions_depend_on_and_what_rewards_read(played):
    """Features tell the skills what is left to go; they are kept where a reward source reads them."""
    assert "goal_space" in played.world.groups
    assert played.algorithm.groups == ("policy",)
    env = make_env("point/duck", num_envs=NUM_ENVS, seed=0)
    learner = HSD3(make_policy(env.spec), HSD3Config(**LEARNER), num_envs=NUM_ENVS)
    counted = SimHashReward(env.spec, groups=("goal_space",))
    runner = OffPolicyRunner(env, learner, RunnerConfig(total_steps=10**9), rewards=[counted])
    assert runner.algorithm.groups == ("policy", "goal_space")
