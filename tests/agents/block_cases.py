"""Policies with blocks over made-up observations, for the tests of blocks, encoders and estimators."""

import numpy as np
import torch

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.actor_critic_config import ActorCriticConfig
from gaitway.agents.blocks import Block
from gaitway.agents.observations import Observations
from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup

LEGS = ActionSpec("continuous", ("hip", "knee"), (-1.0, -1.0), (1.0, 1.0))
CHOICE = ActionSpec("discrete", ("push",), choices=(3,))
KINDS = {
    "mlp": {"hidden": (7,)},
    "history": {"length": 4, "hidden": (7,)},
    "recurrent": {"kind": "gru"},
    "recurrent lstm": {"kind": "lstm", "layers": 2},
}


def spec(action=LEGS, **groups):
    made = tuple(
        ObservationGroup(name, (Component("x", size),), (size,))
        if isinstance(size, int)
        else ObservationGroup(name, (Component("pixels", int(np.prod(size))),), size, "uint8")
        for name, size in (groups or {"policy": 3}).items()
    )
    return EnvSpec("test", made, action, control_dt=0.02, max_episode_steps=10)


def entry(kind, writes="latent", reads=("policy",), **options):
    return {"name": kind.split()[0], "reads": list(reads), "writes": writes, "size": 5} | KINDS.get(kind, {}) | options


def make(*blocks, actor=("policy", "latent"), critic=(), made=None, **options):
    """An actor-critic whose every output differs from observation to observation."""
    config = ActorCriticConfig(
        actor_hidden=(8,),
        critic_hidden=(8,),
        init="default",
        blocks=tuple(block for block in blocks if not isinstance(block, Block)),
        observations=Observations(actor, critic),
        **{"normalise_observations": False} | options,
    )
    own = [block for block in blocks if isinstance(block, Block)]
    return ActorCritic(made or spec(), config, stream(0, "parameters"), own)


def played(policy, steps=9, envs=4, seed=0, **options):
    """Made-up observations, a third of which end an episode, terminated or truncated, that the policy acted on."""
    generator = stream(seed, "steps")
    ws = Workspace(extra_row=tuple(map(policy.out, policy.memories)))
    for group in policy.spec.groups:
        for source, rows in (("obs", steps + 1), ("final_obs", steps)):
            drawn = torch.randn(rows, envs, *group.shape, generator=generator)
            ws[f"env/{source}/{group.name}"] = drawn if group.is_vector else (100 * drawn.abs()).clamp(max=255).byte()
    ws["env/reward"] = torch.randn(steps, envs, generator=generator)
    ends = torch.rand(steps, envs, generator=generator) < 0.3
    kind = torch.rand(steps, envs, generator=generator) < 0.5
    ws["env/terminated"], ws["env/truncated"] = ends & kind, ends & ~kind
    with torch.no_grad():
        for t in range(steps):
            if t:
                policy.reset(ws, t, ends[t - 1])
            policy.step(ws, t, **{"generator": generator} | options)
    return ws


def ends_of(ws):
    return ws["env/terminated"] | ws["env/truncated"]


def learn_once(policy, ws, steps=9, envs=4):
    """One update of PPO with the gradient of a single step."""
    ppo = PPO(policy, PPOConfig(rollout_steps=steps, epochs=1, minibatches=1), num_envs=envs)
    ppo.update(ws, Now())
    return ppo
