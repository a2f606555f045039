"""Learners from a replay, of every kind, and made-up steps for them."""

import dataclasses

import torch

from gaitway.agents.deterministic_actor_critic import DeterministicActorCritic, DeterministicActorCriticConfig
from gaitway.agents.value_policy import ValuePolicy, ValuePolicyConfig
from gaitway.algorithms.ddpg import DDPG, DDPGConfig
from gaitway.algorithms.dqn import DQN, DQNConfig
from gaitway.algorithms.td3 import TD3, TD3BC, TD3BCConfig, TD3Config
from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup

LEGS = ActionSpec("continuous", ("hip", "knee"), (-1.0, 0.0), (1.0, 4.0))
CHOICE = ActionSpec("discrete", ("push",), choices=(3,), start=(2,))
SMALL = {"batch_size": 16, "replay_size": 400, "updates_per_program": 4}
KINDS = {
    "dqn": (DQN, DQNConfig(**SMALL, target_interval=3), CHOICE),
    "dqn_plain": (DQN, DQNConfig(**SMALL, target_interval=3, double=False), CHOICE),
    "dqn_prioritised": (DQN, DQNConfig(**SMALL, prioritised=True, n_step=2, target_interval=3), CHOICE),
    "ddpg": (DDPG, DDPGConfig(**SMALL, tau=0.1), LEGS),
    "td3": (TD3, TD3Config(**SMALL, tau=0.1), LEGS),
    "td3_bc": (TD3BC, TD3BCConfig(**SMALL, tau=0.1), LEGS),
}


def spec(action):
    group = ObservationGroup("policy", (Component("x", 3),), (3,))
    return EnvSpec("test", (group,), action, control_dt=0.02, max_episode_steps=10)


def make(kind, seed=0, networks=None, **changes):
    algorithm, config, action = KINDS[kind]
    config = dataclasses.replace(config, **changes)
    if action is CHOICE:
        policy = ValuePolicy(
            spec(action), ValuePolicyConfig(**{"hidden": (12,)} | (networks or {})), stream(seed, "parameters")
        )
    else:
        critics = {"critics": 1 if kind == "ddpg" else 2, "actor_hidden": (12,), "critic_hidden": (12,)}
        shape = DeterministicActorCriticConfig(**critics | (networks or {}))
        policy = DeterministicActorCritic(spec(action), shape, stream(seed, "parameters"))
    return algorithm(policy, config, num_envs=4, seed=seed)


def steps_of(algorithm, steps=30, seed=0):
    """Made-up steps, some of which end an episode, by turns terminated and truncated."""
    generator, envs, action = stream(seed, "steps"), algorithm.num_envs, algorithm.policy.range
    ends = torch.rand(steps, envs, generator=generator) < 0.2
    kind = torch.rand(steps, envs, generator=generator) < 0.5
    drawn = action.uniform(steps * envs, torch.device("cpu"), generator)
    return Workspace.packed(
        {
            "env/obs/policy": torch.randn(steps + 1, envs, 3, generator=generator),
            "env/final_obs/policy": torch.randn(steps, envs, 3, generator=generator),
            "action": drawn.view(steps, envs, *drawn.shape[1:]),
            "env/reward": torch.randn(steps, envs, generator=generator),
            "env/terminated": ends & kind,
            "env/truncated": ends & ~kind,
        }
    )


def filled(algorithm, **options):
    replay = algorithm.make_replay()
    replay.add(steps_of(algorithm, **options))
    return replay


def parameters(algorithm):
    return torch.cat([values.clone() for values in algorithm.flat_parameters()])
