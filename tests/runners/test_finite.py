"""The first number that is not finite stops training with one sentence, and nothing good is lost."""

import dataclasses
import json

import pytest
import torch

from gaitway.agents.actor_critic import ActorCritic
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.core.files import load_state
from gaitway.envs.registry import make_env
from gaitway.envs.wrappers import Wrapper
from gaitway.runners.checkpoint import CheckpointConfig
from gaitway.runners.finite import NotFiniteError, check_update
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner_config import RunnerConfig


class Poisoned(Wrapper):
    """Instance 2 goes wrong at the 20th step."""

    field = "obs"
    count = 0

    def step(self, action):
        step = super().step(action)
        self.count += 1
        if self.count != 20:
            return step
        if self.field == "reward":
            reward = step.reward.clone()
            reward[2] = float("inf")
            return dataclasses.replace(step, reward=reward)
        obs = {name: value.clone() for name, value in step.obs.items()}
        obs["vel"][2, 0] = float("nan")
        return dataclasses.replace(step, obs=obs)


def run(env, tmp_path, **ppo):
    folder = RunFolder.create(tmp_path / "run")
    algorithm = PPO(ActorCritic(env.spec), PPOConfig(rollout_steps=8, minibatches=2, **ppo), num_envs=env.num_envs)
    config = RunnerConfig(total_steps=400, checkpoints=CheckpointConfig(interval=32))
    return OnPolicyRunner(env, algorithm, config, folder=folder), folder


@pytest.mark.parametrize(("field", "name"), [("obs", r"env/obs/vel \(.+\)"), ("reward", "env/reward")])
def test_the_sentence_names_variable_instance_and_step(field, name, tmp_path):
    env = Poisoned(make_env("toy/pendulum", num_envs=4, seed=0))
    env.field = field
    runner, folder = run(env, tmp_path)
    with pytest.raises(NotFiniteError, match=rf"{name} of environment 2 is (nan|inf) at step [34] of the rollout"):
        runner.learn()
    assert runner.checkpoints.load("last")[1] == 64  # the last good one: two rollouts of 32 steps
    bundle = folder.failures / "64"
    assert json.loads((bundle / "failure.json").read_text())["instance"] == 2
    rollout, _ = load_state(bundle / "rollout", kind="rollout")
    assert not torch.isfinite(rollout["env/obs/vel" if field == "obs" else "env/reward"]).all()
    assert load_state(bundle / "checkpoint", kind="checkpoint")[1]["steps"] == 64


def test_a_loss_that_explodes_is_named(tmp_path):
    env = make_env("toy/pendulum", num_envs=4, seed=0)
    runner, _ = run(env, tmp_path)
    with torch.no_grad():
        next(runner.policy.critic.parameters()).fill_(float("inf"))
    with pytest.raises(NotFiniteError, match=r"loss/|gradient_norm|train"):
        runner.learn()


def test_parameters_are_checked():
    with pytest.raises(NotFiniteError, match="a parameter is not finite after iteration 3"):
        check_update({"loss/value": 1.0}, torch.tensor([1.0, float("nan")]), 3, 100)
    check_update({"loss/value": 1.0}, torch.ones(2), 3, 100)
