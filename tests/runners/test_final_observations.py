"""Final observations are stored for the groups that somebody reads there, and for no other."""

import pytest
import torch

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.actor_critic_config import ActorCriticConfig
from gaitway.agents.observations import Observations
from gaitway.agents.recorder import Recorder
from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from gaitway.algorithms.a2c import A2C, A2CConfig
from gaitway.algorithms.distillation import Distillation
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.algorithms.reinforce import Reinforce
from gaitway.algorithms.sac import SAC, SACConfig
from gaitway.core.agent import Agent
from gaitway.core.workspace import Variable
from gaitway.envs.registry import make_env
from gaitway.rewards.novelty import RandomNetworkDistillation
from gaitway.rewards.source import Rewards
from gaitway.runners.cast import Cast
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.runner_config import RunnerConfig
from gaitway.runners.stage import Stage

APART = Observations(actor=("pos",), critic=("vel",))
CAMERA = {"name": "conv2d", "reads": ["depth"], "writes": "seen", "channels": [4], "size": 8, "hidden": [8]}
SEEN = {"policy": ["field_teacher"], "student": ["field_student"], "depth": ["forward_depth"]}


def finals(stage):
    prefix = "env/final_obs/"
    return {name.removeprefix(prefix) for name in stage.variables if name.startswith(prefix)}


def staged(env, algorithm, cast=(), rewards=(), rows=8):
    return Stage(env, Cast(algorithm.policy, cast), Rewards(rewards), algorithm, rows, 0)


def tiny(env, observations=APART, **options):
    return ActorCritic(
        env.spec, ActorCriticConfig(actor_hidden=(8,), critic_hidden=(8,), observations=observations, **options)
    )


class Label(Agent):
    writes = ("teacher/action",)

    def step(self, ws, t):
        ws.put("teacher/action", t, torch.zeros_like(ws.at("env/obs/pos", t)[:, :1]))

    def variables(self, num_envs, rows):
        return {"teacher/action": Variable(rows, num_envs, (1,), torch.float32)}


def test_a_critic_has_its_own_groups_stored_and_not_those_of_the_actor():
    env = make_env("toy/pendulum", num_envs=4, seed=0)
    for make in (lambda p: PPO(p, num_envs=4), lambda p: A2C(p, A2CConfig(), num_envs=4)):
        assert finals(staged(env, make(tiny(env)))) == {"vel"}


def test_who_judges_no_next_step_stores_nothing():
    env = make_env("toy/pendulum", num_envs=4, seed=0)
    assert finals(staged(env, Reinforce(tiny(env), num_envs=4))) == set()
    assert finals(staged(env, Distillation(tiny(env), num_envs=4), [Label()])) == set()


def test_reward_sources_replays_and_recorders_have_theirs(tmp_path):
    env = make_env("toy/pendulum", num_envs=4, seed=0)
    novelty = RandomNetworkDistillation(env.spec, groups=("pos",))
    assert finals(staged(env, PPO(tiny(env), num_envs=4), rewards=[novelty])) == {"pos", "vel"}
    recorder = Recorder(env.spec, tmp_path / "data")
    assert finals(staged(env, PPO(tiny(env), num_envs=4), [recorder])) == {"pos", "vel"}
    policy = SoftActorCritic(env.spec, SoftActorCriticConfig(observations=APART))  # next actions are the actor's
    assert finals(staged(env, SAC(policy, SACConfig(), num_envs=4))) == {"pos", "vel"}


def test_a_depth_image_that_the_actor_alone_reads_is_stored_once():
    env = make_env("pup12/field", num_envs=2, seed=0, num_threads=1, observations=SEEN)
    observations = Observations(actor=("student", "seen"), critic=("policy",))
    stage = staged(env, PPO(tiny(env, observations, blocks=(CAMERA,)), PPOConfig(minibatches=1), num_envs=2))
    held = {name: stage.rollout[name].nbytes for name in stage.rollout if name.endswith("/depth")}
    # 8 steps and the observation after them, 2 instances, 24 x 32 pixels of 4 bytes; a final copy would be 49,152 more
    assert held == {"env/obs/depth": 9 * 2 * 24 * 32 * 4}
    assert finals(stage) == {"policy"}
    # twin: a critic that reads what the same block writes
    both = Observations(actor=("student", "seen"), critic=("policy", "seen"))
    stage = staged(env, PPO(tiny(env, both, blocks=(CAMERA,)), PPOConfig(minibatches=1), num_envs=2))
    assert finals(stage) == {"policy", "depth"}
    assert stage.rollout["env/final_obs/depth"].nbytes == 8 * 2 * 24 * 32 * 4


def test_a_critic_behind_an_estimate_needs_what_the_estimate_is_made_of():
    """The critic reads `code`, made of `pos` in which an estimate from `vel` took the place of the sine."""
    env = make_env("toy/pendulum", num_envs=4, seed=0)
    first = env.spec.group("pos").components[0].name
    guess = {
        "name": "estimator",
        "reads": ["vel"],
        "writes": "guess",
        "target": [f"pos.{first}"],
        "hidden": [4],
        "replace": 1.0,
    }
    code = {"name": "mlp", "reads": ["pos"], "writes": "code", "hidden": [4], "size": 2}
    policy = tiny(env, Observations(actor=("pos",), critic=("code",)), blocks=(guess, code))
    assert set(policy.critic_groups) == {"pos", "vel"}
    alone = tiny(env, Observations(actor=("pos",), critic=("pos",)), blocks=(guess,))
    assert alone.critic_groups == ("pos",)  # it reads groups as they were observed


def run(env, algorithm):
    OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=64, seed=0), progress=False).learn()


def test_leaving_out_the_group_of_the_critic_is_told_by_name():
    env = make_env("toy/pendulum", num_envs=4, seed=0, max_episode_steps=5)
    config = PPOConfig(rollout_steps=8, minibatches=1, epochs=1)
    run(env, PPO(tiny(env), config, num_envs=4))
    twin = PPO(tiny(env), config, num_envs=4)
    twin.reads = ()
    with pytest.raises(ValueError, match="final observation 'env/final_obs/vel' is not stored; name it"):
        run(env, twin)


def test_leaving_out_the_group_of_a_reward_is_told_by_name():
    env = make_env("toy/pendulum", num_envs=4, seed=0, max_episode_steps=5)
    twin = RandomNetworkDistillation(env.spec, groups=("pos",))
    twin.reads = ("env/obs/pos",)
    algorithm = PPO(tiny(env), PPOConfig(rollout_steps=8, minibatches=1, epochs=1), num_envs=4)
    runner = OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=64), rewards=[twin], progress=False)
    with pytest.raises(ValueError, match="name 'env/final_obs/pos' in the reads of whoever needs it"):
        runner.learn()
