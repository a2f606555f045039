"""Style on a GPU: recorded steps of the discriminator give the eager numbers and never wait."""

import pytest
import torch

from gaitway import ActorCritic, ActorCriticConfig, OnPolicyRunner, RunnerConfig, make_env
from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.core.seeding import stream
from gaitway.rewards.style import StyleReward

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def make_runner(mode, form="least_squares"):
    env = make_env("toy/oscillator", num_envs=8, seed=0, device="cuda", max_episode_steps=10)
    policy = ActorCritic(env.spec, ActorCriticConfig(), stream(0, "parameters")).to("cuda")
    execution = Execution(ExecutionConfig(mode, "fp32"), "cuda")
    learner = PPO(policy, PPOConfig(rollout_steps=16, minibatches=2), num_envs=8, execution=execution)
    options = {"hidden": (32, 32), "batch_size": 64, "updates": 4, "replay": 500, "expert_pairs": 512}
    style = StyleReward(env.spec, "oscillator", form=form, **options, device="cuda", execution=execution)
    return OnPolicyRunner(env, learner, RunnerConfig(total_steps=10**9), rewards=[style]), style


@pytest.mark.parametrize("form", ["least_squares", "hinge", "wasserstein"])
def test_recorded_steps_of_the_discriminator_equal_eager_ones(form):
    (runner, eager), (_, recorded) = (make_runner(mode, form) for mode in ("eager", "captured"))
    runner.learn(128)
    recorded.load_state_dict(eager.state_dict())
    for iteration in range(5):
        for style in (recorded, eager):
            style.annotate(runner.rollout)
            style.update(runner.rollout, Now(iteration))
        apart = (recorded.engine.parameters.value - eager.engine.parameters.value).norm()
        assert apart / eager.engine.parameters.value.norm() < 1e-5
    assert recorded._learn.is_recorded


def test_style_beside_ppo_never_waits_for_the_host():
    runner, _ = make_runner("captured")
    runner.learn(4 * 128)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        now = Now(4, 512, 0.4)
        runner._annotate(now)
        runner.algorithm.update(runner.rollout, now)
    finally:
        torch.cuda.set_sync_debug_mode("default")
