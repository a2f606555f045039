"""A task, made-up rollouts and runners that the tests of REINFORCE and A2C share."""

import numpy as np
import torch

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig
from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup
from gaitway.envs.toys.toy_env import Toy, ToyEnv
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.runner_config import RunnerConfig

SMALL = ActorCriticConfig(actor_hidden=(12,), critic_hidden=(12,), init="default", normalise_observations=False)
CHOICE = ActionSpec("discrete", ("push",), choices=(3,))
FORCES = ActionSpec("continuous", ("left", "right"), (-1.0, -2.0), (1.0, 2.0))


class Patience(Toy):
    """Leave at once and earn 1, or stay four steps, earn `each` at every one and `last` on top at the fourth.

    Only the first step asks; what is seen is which step it is. State: the step.
    """

    action = ActionSpec("discrete", ("stay",), choices=(2,))
    max_episode_steps = 4

    def __init__(self, each, last):
        self.each, self.last, self.options = each, last, {}
        self.groups = {"policy": (Component("step", 4),)}

    def draw(self, generator):
        return (0.0,)

    def advance(self, state, action):
        step = state[:, 0]
        leaves = (step == 0) & (action == 0)
        at_end = step == 3
        reward = np.where(leaves, 1.0, self.each + self.last * at_end)
        return state + 1, reward, leaves | at_end

    def observe(self, state):
        return {"policy": np.eye(4)[np.minimum(state[:, 0].astype(int), 3)]}


def patience(each=0.0, last=0.0, num_envs=16, seed=0):
    return ToyEnv(Patience(each, last), num_envs, seed)


def stays(runner):
    """How likely the policy is to stay, when it is asked."""
    asked = {"policy": torch.eye(4)[:1]}
    with torch.no_grad():
        output, _ = runner.policy.actor(runner.policy.network_input(asked, "actor"), None)
    return runner.policy.head(output)[0, 1].exp().item()


def make_runner(env, make, config, agent=SMALL, seed=0, total_steps=10**9):
    policy = ActorCritic(env.spec, agent, stream(seed, "parameters"))
    algorithm = make(policy, config, num_envs=env.num_envs, seed=seed)
    return OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=total_steps, seed=seed))


def make_policy(action=CHOICE, agent=SMALL, seed=0):
    group = ObservationGroup("policy", (Component("x", 3),), (3,))
    spec = EnvSpec("test", (group,), action, control_dt=0.02, max_episode_steps=6)
    return ActorCritic(spec, agent, stream(seed, "parameters"))


def rollout_of(policy, steps=12, num_envs=5, seed=0, valid=False):
    """Made-up steps, a fifth of which end an episode, by turns terminated and truncated; the actions are drawn."""
    generator = stream(seed, "steps")
    ws = Workspace(extra_row=("actor/memory", "critic/memory"))
    ws["env/obs/policy"] = torch.randn(steps + 1, num_envs, 3, generator=generator)
    ws["env/final_obs/policy"] = torch.randn(steps, num_envs, 3, generator=generator)
    ws["env/reward"] = torch.randn(steps, num_envs, generator=generator)
    ends = torch.rand(steps, num_envs, generator=generator) < 0.2
    kind = torch.rand(steps, num_envs, generator=generator) < 0.5
    ws["env/terminated"], ws["env/truncated"] = ends & kind, ends & ~kind
    if valid:  # a reset row stands behind an end
        ws["env/valid"] = torch.cat([torch.ones(1, num_envs, dtype=torch.bool), ~ends[:-1]])
    ended = None
    with torch.no_grad():
        for t in range(steps):
            if ended is not None:
                policy.reset(ws, t, ended)
            policy.step(ws, t, stochastic=True, generator=generator)
            ended = ends[t] if not valid else ends[t] | ~ws["env/valid"][t]
    return ws


def gradients_of(algorithm):
    return {name: p.grad.clone() for name, p in algorithm.policy.named_parameters()}
