"""A policy that plays on one row at a fixed place writes the rows that it would write in their own places."""

import pytest
import torch

from gaitway import PPO, ActorCritic, ActorCriticConfig, OnPolicyRunner, PPOConfig, RunnerConfig, make_env
from gaitway.agents.branch import MemoryConfig
from gaitway.agents.captured import Captured
from gaitway.core.execution import Execution, Program
from gaitway.core.seeding import stream


def collected(memory, captures):
    env = make_env("toy/pendulum", num_envs=3, seed=0, max_episode_steps=4)
    agent = ActorCriticConfig(actor_hidden=(8,), critic_hidden=(8,), memory=memory)
    policy = ActorCritic(env.spec, agent, stream(0, "parameters"))
    execution = Execution()
    execution.captures = captures
    algorithm = PPO(policy, PPOConfig(rollout_steps=6, minibatches=1), num_envs=3, execution=execution)
    runner = OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**6))
    played = [part for part in runner.stage._over_time.agent if isinstance(part, Captured)]
    assert len(played) == captures
    runner._begin()
    for _ in range(2):
        runner._collect()
        runner.iteration += 1
    return runner.rollout


@pytest.mark.parametrize(
    "memory", [MemoryConfig(), MemoryConfig("gru", 5), MemoryConfig("lstm", 4)], ids=lambda m: m.kind
)
def test_rows_are_those_of_a_policy_that_plays_in_place(memory, monkeypatch):
    plain = collected(memory, False)
    monkeypatch.setattr(Program, "__call__", lambda self: self.function())  # recordings need a GPU
    found = collected(memory, True)
    assert list(found) == list(plain)
    for name in plain:
        assert torch.allclose(found[name].float(), plain[name].float(), atol=1e-6), name
