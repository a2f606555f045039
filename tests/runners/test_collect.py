"""Recording: every step as the environment gave it, memories forgotten at ends, random actions that are."""

import dataclasses

import numpy as np
import pytest
import torch

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig, MemoryConfig
from gaitway.agents.policy import InferencePolicy
from gaitway.core.seeding import stream
from gaitway.data.episodes import DatasetError, Episodes
from gaitway.data.trajectories import Trajectories, TrajectoryWriter
from gaitway.envs.registry import make_env
from gaitway.envs.spec import ActionSpec
from gaitway.runners import collect
from gaitway.runners.collect import Least, RandomPolicy, Taught, collect_steps, success_metric, successful

LEGS = ActionSpec("continuous", ("hip", "knee"), (-1.0, 0.0), (1.0, 4.0))
CHOICE = ActionSpec("discrete", ("push",), choices=(3,), start=(2,))
SWITCHES = ActionSpec("multi_discrete", ("left", "right"), choices=(2, 3), start=(0, 5))


@pytest.mark.parametrize(
    ("action", "low", "high", "mean"),
    [(LEGS, [-1, 0], [1, 4], [0, 2]), (CHOICE, 2, 4, 3), (SWITCHES, [0, 5], [1, 7], [0.5, 6])],
)
def test_random_actions_cover_what_there_is_evenly(action, low, high, mean):
    drawn = RandomPolicy(action, stream(0, "test"))({"policy": torch.zeros(4000, 1)})
    assert drawn.shape == (4000, *action.shape)
    assert drawn.dtype == action.dtype
    found = drawn.double()
    if action.kind == "continuous":
        assert np.allclose(found.amin(0), low, atol=0.01)
        assert np.allclose(found.amax(0), high, atol=0.01)
    else:
        assert found.amin(0).tolist() == low
        assert found.amax(0).tolist() == high
    spread = np.maximum(np.subtract(high, low), 1)
    assert np.allclose(found.mean(0), mean, atol=0.04 * float(np.max(spread)))


def test_a_share_of_random_actions():
    class Still:
        resets = 0

        def __call__(self, obs):
            return torch.zeros(len(obs["policy"]), 2)

        def reset(self, mask=None):
            Still.resets += 1

    def moving(share):
        act = RandomPolicy(LEGS, stream(0, "test"), Still(), share)
        act.reset()
        return float((act({"policy": torch.zeros(2000, 1)})[:, 1] > 0).float().mean())

    assert moving(0.0) == 0.0
    assert abs(moving(0.3) - 0.3) < 0.05
    assert moving(1.0) == 1.0
    assert Still.resets == 3
    with pytest.raises(ValueError, match="share of random actions is 2"):
        RandomPolicy(LEGS, stream(0, "test"), share=2)
    with pytest.raises(ValueError, match="no limits to draw between; record a policy instead"):
        RandomPolicy(ActionSpec("continuous", ("push",), (-np.inf,), (np.inf,)), stream(0, "test"))


@pytest.mark.parametrize("num_envs", [1, 3])
def test_what_is_recorded_is_what_happened(num_envs, tmp_path, monkeypatch):
    """Against a loop of its own: rewards, observations and ends, over several blocks of rows."""
    monkeypatch.setattr(collect, "ROWS", 16)

    def world():
        return make_env("toy/cartpole", num_envs=num_envs, seed=3, max_episode_steps=30)

    env = world()
    reports = []
    with TrajectoryWriter(tmp_path, env.spec) as writer:
        act = RandomPolicy(env.spec.action, stream(0, "test"))
        found = collect_steps(env, act, writer, 100, lambda made, episodes: reports.append((made, episodes.finished)))
    rows = -(-100 // num_envs)
    assert reports[-1] == (rows * num_envs, found.finished)
    assert len(reports) == -(-rows // 16)

    env, act = world(), RandomPolicy(env.spec.action, stream(0, "test"))
    obs = env.reset()
    running = [[] for _ in range(num_envs)]
    ended = []
    for _ in range(rows):
        action = act(obs)
        seen = {name: value.clone() for name, value in obs.items()}
        step = env.step(action)
        for index, episode in enumerate(running):
            episode.append(
                (
                    seen["policy"][index].tolist(),
                    int(action[index]),
                    bool(step.terminated[index]),
                    step.final_obs["policy"][index].tolist(),
                )
            )
            if step.terminated[index] or step.truncated[index]:
                ended.append(episode)
                running[index] = []
        obs = step.obs
    expected = ended + [episode for episode in running if episode]
    assert found.finished == len(ended)
    assert sorted(found.lengths) == sorted(map(len, ended))

    data = Trajectories(tmp_path)
    assert data.num_episodes == len(expected)
    fields = data.transitions()
    rows = zip(
        fields["obs/policy"].tolist(), fields["action"].tolist(), fields["terminated"].tolist(),
        fields["next_obs/policy"].tolist(), strict=True,
    )  # fmt: skip
    assert sorted(rows) == sorted(step for episode in expected for step in episode)
    assert int((fields["terminated"] | fields["truncated"]).sum()) == len(expected)


def test_a_memory_forgets_between_episodes_and_is_kept_between_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(collect, "ROWS", 4)
    env = make_env("toy/cue", num_envs=2, seed=0)
    policy = ActorCritic(env.spec, ActorCriticConfig(memory=MemoryConfig("gru", 8)), stream(0, "parameters"))
    with TrajectoryWriter(tmp_path, env.spec) as writer:
        collect_steps(env, InferencePolicy(policy), writer, 60)
    data = Trajectories(tmp_path)
    assert max(length for chunk in data.chunks() for length in chunk.lengths) > 4
    for chunk in data.chunks():  # every episode again, from an empty memory
        for number in range(len(chunk)):
            fields = chunk.select([number]).transitions()
            act = InferencePolicy(policy)
            again = [act({"policy": row.unsqueeze(0)}) for row in fields["obs/policy"]]
            torch.testing.assert_close(torch.cat(again), fields["action"], rtol=1e-4, atol=1e-7)


def test_rows_that_only_reset_are_not_recorded(tmp_path):
    pytest.importorskip("envpool")
    env = make_env("envpool:CartPole-v1", num_envs=2, seed=0, num_threads=1)
    with TrajectoryWriter(tmp_path, env.spec) as writer:
        found = collect_steps(env, RandomPolicy(env.spec.action, stream(0, "test")), writer, 120)
    data = Trajectories(tmp_path)
    fields = data.transitions()
    assert found.finished > 2
    assert 120 <= data.num_steps < 130
    lengths = data.episodes()["env/valid"].sum(0).tolist()
    assert len(lengths) - found.finished <= 2  # those that were under way at the end
    for length in found.lengths:
        lengths.remove(length)
    assert sum(lengths) + sum(found.lengths) == data.num_steps
    # a step of CartPole moves by 0.02 s times its speed, within an episode and never across a reset
    moved = fields["next_obs/policy"][:, 0] - fields["obs/policy"][:, 0]
    torch.testing.assert_close(moved, 0.02 * fields["obs/policy"][:, 1], rtol=1e-3, atol=1e-5)


def played(lengths, truncated, success=None):
    steps, ends = sum(lengths), np.cumsum(lengths) - 1
    flags = torch.zeros(2, steps, dtype=torch.bool)
    for end, cut in zip(ends, truncated, strict=True):
        flags[int(cut), int(end)] = True
    variables = {"action": torch.zeros(steps, 1), "env/reward": torch.zeros(steps), "env/obs/policy": torch.zeros(
        steps + len(lengths), 1), "env/terminated": flags[0], "env/truncated": flags[1]}  # fmt: skip
    if success is not None:
        variables["env/metric/success"] = torch.tensor(success)
    return Episodes(variables, tuple(lengths))


def test_what_success_is():
    # without a metric: the first episode fell at its end, the second lasted
    assert successful(None)(played((2, 3), (False, True))) == [False, True]
    # with one: at any step, whatever ended the episode
    assert successful("success")(played((2, 3), (False, True), [0.0, 1.0, 0.0, 0.0, 0.0])) == [True, False]
    with make_env("toy/pendulum", num_envs=1) as env:
        assert success_metric(env.spec) is None
        assert success_metric(dataclasses.replace(env.spec, metrics=("speed", "success"))) == "success"


class Constant:
    """Says one number, and counts how often it forgets."""

    def __init__(self, number):
        self.number, self.forgotten = number, 0

    def __call__(self, obs):
        return torch.full((len(obs["policy"]), 1), self.number)

    def reset(self, mask=None):
        self.forgotten += 1


def test_who_drives_is_drawn_for_each_episode():
    taught = Taught(Constant(7.0), stream(0, "test"), Constant(1.0), share=0.25)
    obs = {"policy": torch.zeros(4000, 1)}
    taught.reset()
    first = taught(obs)
    assert set(first.flatten().tolist()) == {1.0, 7.0}
    assert abs(float((first == 7).float().mean()) - 0.25) < 4 * (0.25 * 0.75 / 4000) ** 0.5
    assert torch.equal(taught(obs), first)
    assert taught.label.unique().tolist() == [7.0]  # labels are the teacher's, whoever drives
    mask = torch.arange(4000) < 2000
    taught.reset(mask)
    later = taught(obs)
    assert torch.equal(later[2000:], first[2000:])
    assert not torch.equal(later[:2000], first[:2000])
    taught.share = 0.0
    taught.reset(torch.ones(4000, dtype=torch.bool))
    assert taught(obs).unique().tolist() == [1.0]
    assert (taught.teacher.forgotten, taught.student.forgotten) == (3, 3)
    taught.student = None
    assert taught(obs).unique().tolist() == [7.0]


def test_a_minute_without_a_row_that_is_kept(tmp_path):
    with make_env("toy/cartpole", num_envs=4) as env:
        writer = TrajectoryWriter(tmp_path, env.spec, choose=lambda episodes: [False] * len(episodes))
        act = RandomPolicy(env.spec.action, stream(0, "policy"))
        with pytest.raises(DatasetError, match=r"no episode that is kept in 0 seconds \(\d+ ended, 0 were kept\)"):
            collect_steps(env, act, writer, Least(episodes=1), patience_s=0.0)


def test_a_recording_may_be_ended_from_outside(tmp_path):
    with make_env("toy/pendulum", num_envs=2) as env, TrajectoryWriter(tmp_path, env.spec) as writer:
        calls = iter((False, True))
        act = RandomPolicy(env.spec.action, stream(0, "policy"))
        collect_steps(env, act, writer, Least(10**9), refresh=lambda: next(calls))
    assert Trajectories(tmp_path).num_steps == 2 * collect.ROWS
