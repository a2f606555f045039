"""Two stages: labels of a dataset, then the environment. What goes from one to the other, and what does not."""

import logging

import pytest
import torch
from torch.testing import assert_close

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig, MemoryConfig
from gaitway.algorithms.distillation import Distillation, DistillationConfig
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.core.seeding import stream
from gaitway.data.episodes import DatasetError
from gaitway.data.trajectories import Trajectories, TrajectoryWriter
from gaitway.envs.registry import make_env
from gaitway.runners.collect import collect_steps
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.pretraining import PretrainConfig, Pretraining
from gaitway.runners.runner_config import RunnerConfig

ENVS, ROWS = 4, 16


class Damper:
    """A teacher that one can write down: push against the velocity."""

    def __call__(self, obs):
        return (-1.5 * obs["vel"]).clamp(-2, 2)

    def reset(self, mask=None):
        """Nothing is remembered."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    with make_env("toy/pendulum", num_envs=2, seed=5) as env, TrajectoryWriter(folder, env.spec) as writer:
        collect_steps(env, Damper(), writer, 1200)
    return folder


def runner(data, memory="none", algorithm="ppo", total=10**6, **pretrain):
    env = make_env("toy/pendulum", num_envs=ENVS, seed=1)
    config = ActorCriticConfig(actor_hidden=(16,), critic_hidden=(16,), memory=MemoryConfig(memory, 8))
    policy = ActorCritic(env.spec, config, generator=stream(0, "parameters"))
    if algorithm == "ppo":
        made = PPO(policy, PPOConfig(rollout_steps=ROWS, minibatches=2), num_envs=ENVS)
    else:
        made = Distillation(policy, DistillationConfig(rollout_steps=ROWS), num_envs=ENVS)
    options = {"iterations": 3, "learning_rate": 5e-3} | pretrain
    stage = Pretraining(PretrainConfig(**options), Trajectories(data), env, made)
    return OnPolicyRunner(env, made, RunnerConfig(total_steps=total), pretraining=stage)


def run(made, iterations):
    """So many iterations, as `learn` would make them."""
    if not made._begun:
        made._begin()
        made._begun = True
    for _ in range(iterations):
        made._iterate(10**9)
    return made


def test_labels_are_learnt_and_nothing_else(data):
    made = run(runner(data, iterations=20, epochs=4, learning_rate=1e-2), 0)
    critic = {name: value.clone() for name, value in made.policy.critic.named_parameters()}
    seen = Trajectories(data).transitions()
    obs = {"pos": seen["obs/pos"], "vel": seen["obs/vel"]}

    def error():
        with torch.no_grad():
            return float((made.policy.act(obs, None, stochastic=False)[0] - seen["action"]).square().mean())

    before = error()
    run(made, 20)
    assert made.pretraining.is_over
    assert made.env_steps == 20 * ROWS * ENVS  # a step of this stage is a recorded one
    assert error() < 0.2 * before
    for name, value in made.policy.critic.named_parameters():
        assert torch.equal(value, critic[name]), name  # no loss of PPO saw these rows


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_the_environments_stage_begins_with_its_own_observation(data, memory):
    made = run(runner(data, memory), 3)
    world, seen = made.pretraining.stage.rollout, {name: value.clone() for name, value in made.env.reset().items()}
    made.world.restore(seen)  # what the environment shows now, after the dataset's stage
    with torch.no_grad():
        expected, _ = made.policy.act(seen, made.policy.initial_state(ENVS, "cpu"), stochastic=False)
    drawn = stream(0, "policy")
    drawn.set_state(made.stage.stream.get_state())
    run(made, 1)
    for name, value in seen.items():
        assert torch.equal(made.rollout[f"env/obs/{name}"][0], value)
        assert not torch.equal(world[f"env/obs/{name}"][-1], value)  # the twin: the last one of the dataset
    mean = made.rollout["policy/params"][0, :, :1]
    assert_close(mean, expected, rtol=1e-5, atol=1e-6)
    if memory == "gru":
        assert float(made.rollout["actor/memory"][0].abs().max()) == 0
        assert float(world["actor/memory"][-1].abs().max()) > 0


def test_the_parameters_are_handed_over(data):
    """What was learnt from the dataset is what PPO's engine goes on from, in its own memory."""
    made = run(runner(data), 3)
    flat = made.algorithm.engine.parameters
    for view, name in zip(flat.views, flat.names, strict=True):
        assert torch.equal(view, dict(made.policy.named_parameters())[name])
        assert view.untyped_storage().data_ptr() == flat.value.untyped_storage().data_ptr()
        assert view.grad.untyped_storage().data_ptr() == flat.gradient.untyped_storage().data_ptr()
    before = made.policy.actor.network.last.weight.detach().clone()
    run(made, 1)
    assert not torch.equal(before, made.policy.actor.network.last.weight)


@pytest.mark.parametrize(("memory", "stop"), [("none", 1), ("gru", 1), ("gru", 3), ("none", 4)])
def test_resuming_is_exact_in_both_stages(data, memory, stop):
    whole = run(runner(data, memory, epochs=2), 5)
    first = run(runner(data, memory, epochs=2), stop)
    again = runner(data, memory, epochs=2)
    again.load_state_dict(first.state_dict())
    run(again, 5 - stop)
    assert again.parameters_sha256() == whole.parameters_sha256()
    assert again.pretraining.is_over
    assert (again.iteration, again.env_steps) == (whole.iteration, whole.env_steps)


def test_a_dataset_that_was_read_ends_the_stage(data, caplog):
    with caplog.at_level(logging.INFO, logger="gaitway"):
        made = run(runner(data, iterations=-1, loops=1), 0)
        while not made.pretraining.is_over:
            run(made, 1)
    assert made.env_steps == 1200
    assert (
        made.iteration == 25
    )  # 6 episodes of 200 steps for 4 cursors: two episodes behind each other, 16 rows at a time
    assert "the dataset's stage ends after 25 iterations, it was read as often as asked" in caplog.text
    run(made, 1)
    assert made.env_steps == 1200 + ROWS * ENVS


def test_distillation_goes_on_by_itself(data):
    """The run's own algorithm learns in both stages; without end there is no second one."""
    whole = run(runner(data, algorithm="distillation", iterations=-1), 5)
    assert whole.pretraining.algorithm is whole.algorithm
    assert not whole.pretraining.is_over
    first, again = (runner(data, algorithm="distillation", iterations=-1) for _ in range(2))
    again.load_state_dict(run(first, 2).state_dict())
    assert run(again, 3).parameters_sha256() == whole.parameters_sha256()


def test_a_dataset_of_another_robot_is_refused(data):
    with make_env("toy/cartpole", num_envs=ENVS) as env:
        made = PPO(ActorCritic(env.spec), PPOConfig(rollout_steps=ROWS, minibatches=2), num_envs=ENVS)
        with pytest.raises(DatasetError, match=r"recorded in toy/pendulum\) does not fit toy/cartpole"):
            Pretraining(PretrainConfig(iterations=1), Trajectories(data), env, made)
