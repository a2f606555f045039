"""The recorder: the dataset holds the whole episodes of the rollouts, row by row, however often a run is resumed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig
from gaitway.agents.recorder import Recorder
from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.algorithms.reinforce import Reinforce, ReinforceConfig
from gaitway.algorithms.sac import SAC, SACConfig
from gaitway.core.agent import Agent
from gaitway.core.seeding import stream
from gaitway.data.episodes import DatasetError
from gaitway.data.trajectories import Trajectories
from gaitway.envs.registry import make_env
from gaitway.envs.toys.toy_env import ToyEnv
from gaitway.envs.toys.toys import Pendulum
from gaitway.runners.checkpoint import CheckpointConfig
from gaitway.runners.logger import Logger
from gaitway.runners.off_policy import OffPolicyRunner
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner_config import RunnerConfig

BASE = RunnerConfig(total_steps=320, checkpoints=CheckpointConfig(interval=32, keep_all=True))
TINY = ActorCriticConfig(actor_hidden=(8,), critic_hidden=(8,))
SOFT = SoftActorCriticConfig(actor_hidden=(8,), critic_hidden=(8,))


class Falling(Pendulum):
    """A pendulum whose episodes end after 7 steps, or as soon as it turns fast: by both kinds of ends."""

    def __init__(self):
        super().__init__(max_episode_steps=7)

    def advance(self, state, action):
        state, reward, _ = super().advance(state, action)
        return state, reward, np.abs(state[:, 1]) > 2.5


class Push(Agent):
    """Changes what is done: the dataset must hold that."""

    reads, writes = ("action",), ("action", "pushed")

    def step(self, ws, t):
        ws.put("pushed", t, ws.at("action", t).clone())
        ws.put("action", t, ws.at("action", t) + 0.25)


def make_ppo(env, cast, folder=None, config=BASE):
    policy = ActorCritic(env.spec, TINY, stream(0, "parameters"))
    algorithm = PPO(policy, PPOConfig(rollout_steps=8, minibatches=2, epochs=1), num_envs=env.num_envs)
    logger = None if folder is None else Logger(folder.path)
    return OnPolicyRunner(env, algorithm, config, cast=cast, folder=folder, logger=logger)


def make_sac(env, cast, folder=None, config=BASE):
    policy = SoftActorCritic(env.spec, SOFT, stream(0, "parameters"))
    small = SACConfig(batch_size=8, replay_size=200, learning_starts=16, iteration_steps=32, update_ratio=0.25)
    algorithm = SAC(policy, small, num_envs=env.num_envs)
    logger = None if folder is None else Logger(folder.path)
    return OffPolicyRunner(env, algorithm, config, cast=cast, folder=folder, logger=logger)


BOTH = pytest.mark.parametrize("make", [make_ppo, make_sac], ids=["on-policy", "off-policy"])


def falling(make, path, folder=None, start=0, **options):
    env = ToyEnv(Falling(), 4, 0)
    return make(env, [Push(), Recorder(env.spec, str(path), start)], folder, **options)


def played(runner, iterations):
    """All rows of these iterations as lists by instance, one dict per step, in the fields of a dataset."""
    columns = [[] for _ in range(runner.env.num_envs)]
    for _ in range(iterations):
        runner.learn(32)
        ws = runner.rollout
        reached = {name: ws.following(f"env/obs/{name}") for name in ("pos", "vel")}
        for t in range(ws.T):
            for b, column in enumerate(columns):
                step = {f"obs/{name}": ws[f"env/obs/{name}"][t, b] for name in reached}
                step |= {f"next_obs/{name}": value[t, b] for name, value in reached.items()}
                step |= {"action": ws["action"][t, b], "reward": ws["env/reward"][t, b]}
                step |= {name: ws[f"env/{name}"][t, b] for name in ("terminated", "truncated")}
                column.append({name: value.clone() for name, value in step.items()} | {"number": len(column)})
    return columns


def whole_episodes(columns, start=0):
    """The episodes of each instance that ended, and began after `start` environment steps."""
    found = []
    for column in columns:
        episode = []
        for step in column:
            episode.append(step)
            if step["terminated"] or step["truncated"]:
                if episode[0]["number"] * len(columns) >= start:
                    found.append(episode)
                episode = []
    return found


def episodes_of(path):
    """The recorded episodes, each a dict of fields."""
    found = []
    for chunk in Trajectories(path).chunks():
        fields, begin = chunk.transitions(), 0
        for length in chunk.lengths:
            found.append({name: value[begin : begin + length] for name, value in fields.items()})
            begin += length
    return found


def same_episodes(found, expected):
    """All fields of all rows, whatever the order of the episodes."""
    assert len(found) == len(expected)
    by_start = {tuple(np.round(episode["obs/pos"][0].tolist(), 6)): episode for episode in found}
    assert len(by_start) == len(found)
    for steps in expected:
        episode = by_start[tuple(np.round(steps[0]["obs/pos"].tolist(), 6))]
        names = set(steps[0]) - {"number"}
        assert set(episode) == names
        for name in names:
            assert_close(episode[name], torch.stack([step[name] for step in steps]), atol=0, rtol=0)


@BOTH
@pytest.mark.parametrize("start", [0, 40, 64, 1000])
def test_the_dataset_is_what_was_played(make, start, tmp_path):
    runner = falling(make, tmp_path / "data", start=start)
    columns = played(runner, 5)
    runner.state_dict()  # a checkpoint brings all whole episodes to the disk
    expected = whole_episodes(columns, start)
    same_episodes(episodes_of(tmp_path / "data"), expected)
    if start == 1000:
        assert expected == []
        return
    ends = [steps[-1] for steps in expected]
    assert any(step["terminated"] for step in ends)
    assert any(step["truncated"] for step in ends)
    assert len(expected) > 10
    assert len(expected) < len(whole_episodes(columns)) or start == 0
    assert sum(map(len, expected)) < 160  # what is under way is not there


def test_actions_are_those_that_were_done(tmp_path):
    runner = falling(make_ppo, tmp_path / "data")
    runner.learn(32)
    assert_close(runner.rollout["action"], runner.rollout["pushed"] + 0.25)
    assert "action" in runner.cast.others["recorder"].reads
    assert {"env/obs/pos", "env/obs/vel"} <= set(runner.cast.others["recorder"].reads)
    assert not Recorder.plays


def in_order(path):
    return Trajectories(path).transitions()


@BOTH
@pytest.mark.parametrize("start", [0, 200])
def test_a_resumed_run_gives_the_same_dataset(make, start, tmp_path):
    for name in ("whole", "parts"):
        RunFolder.create(tmp_path / name)
    whole = falling(make, tmp_path / "whole data", RunFolder(tmp_path / "whole"), start)
    whole.learn()

    first = falling(make, tmp_path / "parts data", RunFolder(tmp_path / "parts"), start)
    first.learn(160)
    second = falling(make, tmp_path / "parts data", RunFolder(tmp_path / "parts"), start)
    assert second.resume() == 160
    second.learn(64)
    later = len(Trajectories(tmp_path / "parts data"))
    # the second goes on after step 192 and is killed; what it wrote after that checkpoint is taken back
    third = falling(make, tmp_path / "parts data", RunFolder(tmp_path / "parts"), start)
    assert third.resume("192") == 192
    assert len(Trajectories(tmp_path / "parts data")) < later or start == 200
    third.learn()
    expected, found = in_order(tmp_path / "whole data"), in_order(tmp_path / "parts data")
    assert set(found) == set(expected)
    assert len(found["reward"]) > 50
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    parts = Trajectories(tmp_path / "parts data")
    on_disk = {path.name for path in (tmp_path / "parts data").iterdir() if path.name.isdigit()}
    assert on_disk == {chunk.name for chunk in parts.listed}


def test_a_dataset_that_has_gone_is_missed(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    falling(make_ppo, tmp_path / "data", folder).learn(96)
    elsewhere = falling(make_ppo, tmp_path / "elsewhere", RunFolder(tmp_path / "run"))
    with pytest.raises(DatasetError, match=r"holds 0 parts and \d are needed to go on; put the dataset back"):
        elsewhere.resume()


class Unfinished(ToyEnv):
    """Cannot go on from a checkpoint: every instance begins a new episode, as many gymnasium environments do."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.spec = replace(self.spec, exact_state=False)

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self._streams.episode += 1
        return self.reset()


@BOTH
@pytest.mark.parametrize("start", [0, 100])
def test_episodes_that_a_resume_breaks_off_are_dropped(make, start, tmp_path):
    def runner():
        env = Unfinished(Falling(), 4, 0)
        return make(env, [Recorder(env.spec, str(tmp_path / "data"), start)], RunFolder(tmp_path / "run"))

    RunFolder.create(tmp_path / "run")
    first = runner()
    before = played(first, 3)
    second = runner()
    assert second.resume() == 96
    after = played(second, 3)
    second.state_dict()
    for column in after:
        for step in column:
            step["number"] += 24
    same_episodes(episodes_of(tmp_path / "data"), whole_episodes(before, start) + whole_episodes(after, start))
    open_ones = [column[-1] for column in before if not (column[-1]["terminated"] or column[-1]["truncated"])]
    assert open_ones  # otherwise there was nothing to drop


def test_gymnasium_environments_that_cannot_be_restored(tmp_path):
    pytest.importorskip("envpool")

    def runner():
        env = make_env("envpool:CartPole-v1", num_envs=4, seed=0, num_threads=1)
        return make_ppo(env, [Recorder(env.spec, str(tmp_path / "data"))], RunFolder(tmp_path / "run"))

    RunFolder.create(tmp_path / "run")
    first = runner()
    first.learn(150)
    second = runner()
    with pytest.warns(UserWarning, match="cannot be restored"):
        second.resume()
    second.learn(150)
    second.state_dict()
    found = episodes_of(tmp_path / "data")
    assert len(found) > 8
    assert second.cast.others["recorder"].steps == second.env_steps  # rows that only reset are no steps
    for episode in found:
        ended = episode["terminated"] | episode["truncated"]
        assert ended.tolist() == [False] * (len(ended) - 1) + [True]
        # one step leads to the next: no episode is made of two halves, and none contains a reset
        assert_close(episode["obs/policy"][1:], episode["next_obs/policy"][:-1])
        assert bool((episode["reward"] == 1.0).all())


def test_episodes_that_an_algorithm_breaks_off_are_dropped(tmp_path):
    """REINFORCE begins every rollout with new episodes."""
    env = ToyEnv(Falling(), 4, 0)
    policy = ActorCritic(env.spec, TINY, stream(0, "parameters"))
    algorithm = Reinforce(policy, ReinforceConfig(rollout_steps=8), num_envs=4)
    runner = OnPolicyRunner(env, algorithm, BASE, cast=[Recorder(env.spec, str(tmp_path / "data"))])
    expected = []
    for _ in range(4):
        expected += whole_episodes(played(runner, 1))
    runner.state_dict()
    same_episodes(episodes_of(tmp_path / "data"), expected)
    assert sum(map(len, expected)) < 4 * 32


def test_what_cannot_work_is_refused(tmp_path):
    env = make_env("toy/pendulum")
    with pytest.raises(ValueError, match="start is -1; use a number of environment steps, 0 for the first"):
        Recorder(env.spec, str(tmp_path / "data"), start=-1)
    assert not (tmp_path / "data").exists()
    Recorder(env.spec, str(tmp_path / "data"), description="swings")
    assert Trajectories(tmp_path / "data").description == "swings"
    with pytest.raises(DatasetError, match="was recorded with other groups"):
        Recorder(make_env("toy/cartpole").spec, str(tmp_path / "data"))


def test_a_dataset_that_is_there_is_not_added_to_unless_asked(tmp_path):
    def run(**options):
        env = make_env("toy/cartpole", num_envs=4, seed=0)
        recorder = Recorder(env.spec, str(tmp_path / "data"), **options)
        policy = ActorCritic(env.spec, None, stream(0, "parameters"))
        algorithm = PPO(policy, PPOConfig(rollout_steps=32, minibatches=1), num_envs=4)
        runner = OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**6), cast=[recorder])
        runner.learn(256)
        runner.close()
        return Trajectories(tmp_path / "data").num_episodes

    first = run()
    assert first > 0
    with pytest.raises(ValueError, match="holds a dataset already; name another path, or set append: true"):
        run()
    assert run(append=True) == 2 * first
