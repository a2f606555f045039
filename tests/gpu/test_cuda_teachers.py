"""Teachers and distillation on a GPU: recorded rollouts and updates give the eager numbers and never wait."""

import pytest
import torch

from gaitway import ActorCritic, ActorCriticConfig, OnPolicyRunner, RunnerConfig, make_env
from gaitway.agents.actor_critic import MemoryConfig
from gaitway.agents.policy import FunctionPolicy
from gaitway.agents.teacher import Teacher
from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.distillation import Distillation, DistillationConfig
from gaitway.algorithms.imitation import Imitation
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.core.seeding import stream
from gaitway.envs.toys.controllers import swing_up

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

MEMORIES = {"mlp": MemoryConfig(), "gru": MemoryConfig("gru", 32), "lstm": MemoryConfig("lstm", 32, 2)}


def make_runner(mode, memory="mlp", algorithm="distillation", of="function"):
    env = make_env("toy/pendulum", num_envs=8, seed=0, device="cuda", max_episode_steps=10)
    agent = ActorCriticConfig(actor_hidden=(32,), critic_hidden=(32,), memory=MEMORIES[memory])
    policy = ActorCritic(env.spec, agent, stream(0, "parameters")).to("cuda")
    execution = Execution(ExecutionConfig(mode, "fp32"), "cuda")
    if algorithm == "distillation":
        config = DistillationConfig(rollout_steps=16, epochs=2, gradient_length=6)
        learner = Distillation(policy, config, num_envs=8, execution=execution)
    else:
        config = PPOConfig(rollout_steps=16, minibatches=2, critic_warmup=2)
        learner = PPO(policy, config, num_envs=8, terms=[Imitation(policy)], execution=execution)
    one = FunctionPolicy(swing_up, env.spec)
    if of == "memory":
        one = ActorCritic(env.spec, ActorCriticConfig(memory=MEMORIES["gru"]), stream(1, "parameters"))
    teacher = Teacher(env.spec, policy, 8, (one,), 0.5)
    return OnPolicyRunner(env, learner, RunnerConfig(total_steps=10**9), cast=[teacher])


@pytest.mark.parametrize("algorithm", ["distillation", "ppo"])
@pytest.mark.parametrize("memory", MEMORIES)
def test_recorded_updates_equal_eager_ones(memory, algorithm):
    eager, recorded = (make_runner(mode, memory, algorithm) for mode in ("eager", "captured"))
    eager.learn(128)
    for iteration in range(5):
        one, other = eager.algorithm, recorded.algorithm
        other.load_state_dict(one.state_dict())
        for learner in (other, one):
            learner.update(eager.rollout, Now(iteration))
        apart = (other.engine.parameters.value - one.engine.parameters.value).norm()
        assert apart / one.engine.parameters.value.norm() < 1e-5
    assert recorded.algorithm._pass.is_recorded


@pytest.mark.parametrize("of", ["function", "memory"])
def test_recorded_teachers_label_and_drive_as_eager_ones(of):
    eager, recorded = (make_runner(mode, of=of) for mode in ("eager", "captured"))
    for runner in (eager, recorded):
        runner._begin()
        for iteration in range(4):
            runner.cast.begin(Now(iteration))
            runner._collect()
    for name in ("teacher/action", "weight/policy", "action", "env/reward"):
        assert torch.allclose(eager.rollout[name], recorded.rollout[name], atol=1e-4), name
    assert 0.0 < float(eager.rollout["weight/policy"].mean()) < 1.0


@pytest.mark.parametrize("memory", ["mlp", "gru"])
def test_a_recorded_distillation_never_waits_for_the_host(memory):
    runner = make_runner("captured", memory)
    runner.learn(4 * 128)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        runner.algorithm.update(runner.rollout, Now(4, 512, 0.4))
    finally:
        torch.cuda.set_sync_debug_mode("default")
