"""Offline: the world of a cast is a dataset."""

import pytest
import torch

from gaitway import ActorCritic, Agent, OfflineRunner, RunnerConfig, Trajectories, TrajectoryWriter, make_env
from gaitway.algorithms.cloning import BehaviourCloning, CloningConfig
from gaitway.core.seeding import stream
from gaitway.runners.collect import RandomPolicy, collect_steps


class Label(Agent):
    """What a teacher would do: push against the angle."""

    reads, writes = ("env/obs/policy",), ("teacher/action",)

    def step(self, ws, t):
        ws.put("teacher/action", t, (ws.at("env/obs/policy", t)[:, 2] > 0).long())


class Relabel(Label):
    writes = ("action",)
    reads = ("env/obs/policy", "action")

    def step(self, ws, t):
        ws.put("action", t, (ws.at("env/obs/policy", t)[:, 2] > 0).long())


class Reader(BehaviourCloning):
    reads = ("teacher/action",)


@pytest.fixture
def data(tmp_path):
    with make_env("toy/cartpole", num_envs=4, seed=0) as env, TrajectoryWriter(tmp_path / "data", env.spec) as writer:
        collect_steps(env, RandomPolicy(env.spec.action, stream(0, "test")), writer, 400)
    return Trajectories(tmp_path / "data")


def runner(data, algorithm, cast, steps=300):
    env = make_env("toy/cartpole", num_envs=1, seed=0)
    policy = ActorCritic(env.spec, None, stream(0, "parameters"))
    made = algorithm(policy, CloningConfig(batch_size=64, iteration_steps=100), num_envs=1)
    return OfflineRunner(env, made, RunnerConfig(total_steps=steps), data=data, cast=cast)


def test_what_an_agent_writes_of_the_dataset_reaches_the_algorithm(data):
    made = runner(data, Reader, [Label()])
    made.learn(100)
    batch = made.algorithm.transitions(made.replay.slots(0, made.replay.rows_added))
    assert len(batch["teacher/action"]) == 400
    seen = made.replay.gather(made.replay.slots(0, made.replay.rows_added))["obs/policy"]
    assert torch.equal(batch["teacher/action"], (seen[:, 2] > 0).long())


def test_an_agent_may_give_the_dataset_other_actions(data):
    made = runner(data, BehaviourCloning, [Relabel()])
    made.learn()
    drawn = made.replay.gather(made.replay.slots(0, made.replay.rows_added))
    assert torch.equal(drawn["action"], (drawn["obs/policy"][:, 2] > 0).long())
    act = made.policy.act({"policy": drawn["obs/policy"]}, None, False)[0]
    assert (act == drawn["action"]).float().mean() > 0.9
    plain = runner(data, BehaviourCloning, [])
    plain.learn()
    act = plain.policy.act({"policy": drawn["obs/policy"]}, None, False)[0]
    assert (act == drawn["action"]).float().mean() < 0.8


def test_an_agent_that_remembers_is_refused(data):
    class Counter(Label):
        memories = {"count": None}  # noqa: RUF012

    with pytest.raises(ValueError, match=r"counter remembers.*leave it out of the cast"):
        runner(data, BehaviourCloning, [Counter()])


def test_what_nobody_writes_is_refused(data):
    with pytest.raises(ValueError, match="reads 'teacher/action' from the replay"):
        runner(data, Reader, [])
