"""Episodes of exported environments: the same transitions one by one and in a batch, in every auto-reset mode."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from export_cases import (
    ID,
    MODES,
    NATIVE,
    NUM_ENVS,
    Row,
    are_equal,
    make_vec,
    native_transitions,
    row_of,
    table,
    transitions,
)
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode

from gaitway.envs.gym.env import GymnasiumEnv
from gaitway.envs.gym.export import BiskEnv, BiskVectorEnv
from gaitway.envs.gym.held_batch import HeldBatch

pytestmark = pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")


@pytest.fixture(scope="module")
def reference() -> list[list[Row]]:
    """With a limit so short that some walkers are still on their feet."""
    rows = native_transitions(NUM_ENVS, table(), max_episode_steps=20)
    ends = [row[3:5] for own in rows for row in own]
    assert ends.count((True, False)) > 10
    assert ends.count((False, True)) > 3
    return rows


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_gives_the_transitions_of_the_native_environment(mode, reference):
    assert are_equal(transitions(make_vec(mode, max_episode_steps=20), mode, table()), reference)


def test_one_by_one_gives_the_same_transitions(reference):
    for index in range(NUM_ENVS):
        env = gymnasium.make(ID, max_episode_steps=20)
        seen, _ = env.reset(seed=7 + index)
        rows = []
        for action in table()[:, index]:
            obs, reward, terminated, truncated, _ = env.step(action)
            assert type(reward) is float
            assert (type(terminated), type(truncated)) == (bool, bool)
            # gymnasium's TimeLimit says truncated of an episode that terminates in its last step
            rows.append((seen, action, reward, terminated, truncated and not terminated, obs))
            seen = env.reset()[0] if terminated or truncated else obs
        assert are_equal([rows], [reference[index]])
        env.close()


class ShowsTheNextStart(BiskVectorEnv):
    """Gives the first observation of the new episode as the last one of the old."""

    def step(self, actions):
        obs, *rest, info = super().step(actions)
        for index in np.flatnonzero(info.get("_final_obs", [])):
            info["final_obs"][index] = row_of(obs, index)
        return obs, *rest, info


def test_the_comparison_finds_a_wrong_final_observation(reference):
    env = ShowsTheNextStart(NUM_ENVS, NATIVE, max_episode_steps=20, num_threads=1)
    assert not are_equal(transitions(env, AutoresetMode.SAME_STEP, table()), reference)


@pytest.mark.parametrize("mode", MODES)
def test_the_comparison_finds_episodes_left_out(mode, reference, monkeypatch):
    def counts_twice(self, rows, obs):
        self._streams.episode[rows] += 1

    monkeypatch.setattr(HeldBatch, "_follow_up", counts_twice)
    assert not are_equal(transitions(make_vec(mode, max_episode_steps=20), mode, table()), reference)


@pytest.mark.parametrize(("num_envs", "num_threads"), [(1, 1), (3, 2), (7, 2)])
def test_numbers_depend_neither_on_instances_nor_on_threads(num_envs, num_threads):
    actions = table(steps=40, num_envs=7)
    full = native_transitions(7, actions)
    env = gymnasium.make_vec(ID, num_envs, num_threads=num_threads)
    assert are_equal(transitions(env, AutoresetMode.SAME_STEP, actions[:, :num_envs]), full[:num_envs])


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_it_answers_like_gymnasiums_loop_over_single_environments(mode):
    """Arrays, infos and masks are those of a SyncVectorEnv; where that one is silent about a step, we speak."""
    ours = make_vec(mode, max_episode_steps=20)
    sync = gymnasium.make_vec(
        ID, NUM_ENVS, "sync", vector_kwargs={"autoreset_mode": mode}, max_episode_steps=20, disable_env_checker=True
    )
    assert type(sync) is gymnasium.vector.SyncVectorEnv
    assert ours.metadata["autoreset_mode"] is sync.metadata["autoreset_mode"] is mode
    assert ours.observation_space == sync.observation_space
    assert list(ours.observation_space) == list(sync.observation_space) == ["next_hurdle", "observation"]
    assert ours.action_space == sync.action_space
    assert data_equivalence(ours.reset(seed=3), sync.reset(seed=3), exact=True)
    num_ends = 0
    for action in table(seed=1):
        *mine, info = ours.step(action)
        *theirs, expected = sync.step(action)
        theirs[3] = theirs[3] & ~theirs[2]
        assert data_equivalence(mine, theirs, exact=True)
        ended = mine[2] | mine[3]
        num_ends += ended.sum()
        for name in ("score", "fell_over", "physics_error", "shaped_reward"):
            told = expected.get(f"_{name}", np.zeros(NUM_ENVS, dtype=bool))
            assert not (told & ~info[f"_{name}"]).any()
            assert told.any()
            assert np.array_equal(info[name][told], expected[name][told])
            assert info[name].dtype == expected[name].dtype
        if mode is AutoresetMode.SAME_STEP and ended.any():
            for name in ("final_obs", "_final_obs", "final_info", "_final_info"):
                assert data_equivalence(info[name], expected[name], exact=True)
        else:
            assert "final_obs" not in info
    assert num_ends > 10


@pytest.mark.parametrize("mode", MODES)
def test_sums_of_episodes(mode):
    env = make_vec(mode, max_episode_steps=20)
    env.reset(seed=0)
    returns, lengths, waiting = np.zeros(NUM_ENVS), np.zeros(NUM_ENVS, dtype=int), np.zeros(NUM_ENVS, dtype=bool)
    seen = 0
    for action in table(seed=2):
        _, reward, terminated, truncated, info = env.step(action)
        returns, lengths = returns + reward, lengths + ~waiting
        ended = terminated | truncated
        assert ("episode_return" in info) == ended.any()
        if ended.any():
            assert np.array_equal(info["_episode_return"], ended)
            assert np.array_equal(info["episode_return"], np.where(ended, returns, 0.0))
            assert np.array_equal(info["episode_length"], np.where(ended, lengths, 0))
            assert np.array_equal(info["episode_score"], np.zeros(NUM_ENVS))
            assert np.array_equal(info["fell_over"][ended], terminated[ended])
            seen += int(ended.sum())
        returns[ended], lengths[ended] = 0.0, 0
        waiting = ended if mode is AutoresetMode.NEXT_STEP else waiting
        if mode is AutoresetMode.DISABLED and ended.any():
            env.reset(options={"reset_mask": ended})
    assert seen > 10


def test_masks_reset_some_and_leave_the_others_alone():
    env, twin = make_vec(AutoresetMode.DISABLED), make_vec(AutoresetMode.DISABLED)
    for each in (env, twin):
        each.reset(seed=0)
        each.step(table()[0])
    before, *_ = env.step(table()[1])
    twin.step(table()[1])
    mask = np.array([True, False, True, False])
    after, info = env.reset(seed=40, options={"reset_mask": mask})
    assert info == {}
    for index in range(NUM_ENVS):
        expected = gymnasium.make(ID).reset(seed=40 + index)[0] if mask[index] else row_of(before, index)
        assert data_equivalence(row_of(after, index), expected, exact=True)
    moved, unmoved = env.step(table()[2])[0], twin.step(table()[2])[0]
    for index in np.flatnonzero(~mask):
        assert data_equivalence(row_of(moved, index), row_of(unmoved, index), exact=True)
    nobody, _ = env.reset(options={"reset_mask": np.zeros(NUM_ENVS, dtype=bool)})
    assert data_equivalence(nobody, moved, exact=True)
    for wrong in (np.zeros(3, dtype=bool), np.zeros(NUM_ENVS, dtype=int)):
        with pytest.raises(ValueError, match=r"reset_mask is .*; pass 4 booleans"):
            env.reset(options={"reset_mask": wrong})
    with pytest.raises(ValueError, match=r"no option 'mask'; it takes \['reset_mask'\]"):
        env.reset(options={"mask": mask})


def test_who_has_ended_must_be_reset_first():
    env = make_vec(AutoresetMode.DISABLED, max_episode_steps=2)
    with pytest.raises(gymnasium.error.ResetNeeded, match="was never reset"):
        env.step(table()[0])
    env.reset(seed=0)
    env.step(table()[0])
    env.step(table()[1])
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"instances \[0, 1, 2, 3\] have ended"):
        env.step(table()[2])
    single = BiskEnv(NATIVE, max_episode_steps=1)
    with pytest.raises(gymnasium.error.ResetNeeded, match="was never reset"):
        single.step(np.zeros(6))
    single.reset(seed=0)
    single.step(np.zeros(6))
    with pytest.raises(gymnasium.error.ResetNeeded, match="the episode has ended"):
        single.step(np.zeros(6))


@pytest.mark.parametrize("mode", MODES)
def test_a_fault_ends_that_instance_alone(mode, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings to a file here
    env, twin = make_vec(mode), make_vec(mode)
    for each in (env, twin):
        each.reset(seed=0)
    env._native.env.task.qvel[2, 0] = float("nan")
    (obs, reward, terminated, truncated, info), expected = env.step(table()[0]), twin.step(table()[0])
    assert terminated.tolist() == info["physics_error"].tolist() == [False, False, True, False]
    assert not truncated.any()
    assert reward[2] == info["episode_return"][2] == -1.0
    assert np.array_equal(reward[[0, 1, 3]], expected[1][[0, 1, 3]])
    if mode is AutoresetMode.DISABLED:
        obs, _ = env.reset(options={"reset_mask": terminated})
    elif mode is AutoresetMode.NEXT_STEP:
        obs, *_, info = env.step(table()[1])
        assert not info["physics_error"].any()
    single = gymnasium.make(ID)
    single.reset(seed=2)
    assert data_equivalence(row_of(obs, 2), single.reset()[0], exact=True)


@pytest.mark.parametrize("mode", MODES)
def test_our_own_adapter_takes_them_back(mode):
    env = GymnasiumEnv(make_vec(mode, max_episode_steps=20), seed=0, metrics=("score", "fell_over"))
    assert [(group.name, group.shape) for group in env.spec.groups] == [("next_hurdle", (3,)), ("observation", (60,))]
    ends = 0
    for action in table():
        step = env.step(torch.from_numpy(action))
        assert torch.equal(step.metrics["fell_over"] != 0, step.terminated)
        ends += int((step.terminated | step.truncated).sum())
    assert ends > 10
