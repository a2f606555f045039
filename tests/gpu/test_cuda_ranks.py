"""One NCCL rank on a GPU: a recorded update that is cut at the all-reduce learns what the plain one does."""

import socket

import pytest
import torch

from gaitway import PPO, ActorCritic, ActorCriticConfig, OnPolicyRunner, PPOConfig, RunnerConfig, make_env
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.core.ranks import here
from gaitway.core.seeding import stream
from gaitway.runners.distributed import connect, device_of_rank, joined

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

CONFIG = PPOConfig(rollout_steps=16, epochs=2, minibatches=2, schedule="adaptive", normalise_value=True)


def trained(mode, device, iterations):
    env = make_env("walker/run", num_envs=8, seed=0, device=device)
    agent = ActorCriticConfig(actor_hidden=(64, 64), critic_hidden=(64, 64))
    policy = ActorCritic(env.spec, agent, stream(0, "parameters")).to(device)
    execution = Execution(ExecutionConfig(mode, "fp32"), device)
    runner = OnPolicyRunner(env, PPO(policy, CONFIG, num_envs=8, execution=execution), RunnerConfig(total_steps=10**9))
    found = []
    for _ in range(iterations):
        runner.learn(16 * 8)
        found.append(runner.algorithm.engine.parameters.value.detach().clone())
    return runner, found


@pytest.mark.parametrize("mode", ["eager", "captured"])
def test_one_nccl_rank_learns_what_a_plain_process_does(mode, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    _, plain = trained(mode, "cuda", 5)
    for name, value in {
        "RANK": 0,
        "WORLD_SIZE": 1,
        "LOCAL_RANK": 0,
        "LOCAL_WORLD_SIZE": 1,
        "MASTER_PORT": port,
    }.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with joined():
        device = device_of_rank("cuda")
        connect(device)
        assert here().data is not here().control
        runner, together = trained(mode, device, 5)
        recorded = runner.algorithm._pass
        assert recorded.refused is None
        if mode == "captured":  # graph, all-reduce, graph, all-reduce, graph
            assert recorded.is_recorded
            assert len(recorded._parts) == 2 * CONFIG.minibatches + 1
    torch.testing.assert_close(together[0], plain[0], rtol=0.0, atol=1e-6)
    for shared, alone in zip(together, plain, strict=True):  # replays too; the Walker does not touch the ground yet
        torch.testing.assert_close(shared, alone, rtol=0.0, atol=1e-5)
