"""Two processes: one plays, the other learns from what was played before, and both use the same weights.

    python examples/two_processes.py

An `AsynchronousAgent` runs a cast in a process of its own, on a workspace of its own, while the caller goes on. The
agent here stays the original: a window begins with the weights that the actor has at that moment and keeps them,
however they change meanwhile. What is learnt from is therefore one window old, for which the ratio of PPO makes up.
Passes per window are fixed, so the numbers do not depend on which process is faster.
"""

import os
import sys

import torch

from gaitway import Agents, AsynchronousAgent, EnvAgent, TemporalAgent, Workspace, make_env
from gaitway.agents.policy_agents import DistributionActor, categorical_actor
from gaitway.agents.value_agents import ValueCritic
from gaitway.core.small_agents import EpisodesDone
from gaitway.functional.episode_returns import cumulated_reward
from gaitway.functional.policy_losses import clipped_surrogate
from gaitway.functional.returns import gae

ROWS, PASSES = 64, 8


def main(quick: bool = False) -> None:
    world, test = (EnvAgent(make_env("toy/cartpole", num_envs=16, seed=seed)) for seed in (0, 1))
    spec, weights = world.env.spec, torch.Generator().manual_seed(0)
    actor = categorical_actor(spec, seed=0, generator=weights)
    critic = ValueCritic(spec, generator=weights)
    optimiser = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-3)
    there = TemporalAgent(Agents(world.observe, actor, world.advance))
    here = TemporalAgent(Agents(test.observe, actor, test.advance, EpisodesDone()))
    print(f"before: return {evaluate(here):.0f}")
    with AsynchronousAgent(there) as player:
        player(n_steps=ROWS)  # returns at once
        for window in range(1, 21 if quick else 101):
            ws = player.wait()
            player(n_steps=ROWS)  # the next window, with the weights of now; episodes go on
            learn(ws, actor, critic, optimiser)  # while the other process plays
            if window % 10 == 0:
                print(f"{window * ws.T * ws.B} steps: return {evaluate(here):.0f}")
        print(f"process {player.worker.pid} played, process {os.getpid()} learnt")


def learn(ws: Workspace, actor: DistributionActor, critic: ValueCritic, optimiser: torch.optim.Optimizer) -> None:
    with torch.no_grad():
        value = critic.values(ws)[:-1]  # the last row is the observation after the last step
        next_value = critic.value(ws.following("env/obs/policy"))
        flags = {"terminated": ws["env/terminated"], "done": ws["env/done"]}
        advantage = gae(ws["env/reward"], value, next_value, **flags, gamma=0.99, lam=0.95)
        wanted = value + advantage
        advantage = (advantage - advantage.mean()) / advantage.std()
    for _ in range(PASSES):
        policy = actor.distribution(ws)  # all steps at once
        surrogate, _ = clipped_surrogate(policy.log_prob(ws["action"]), ws["logprob"], advantage, clip=0.2)
        error = critic.values(ws)[:-1] - wanted
        loss = surrogate.mean() + 0.5 * error.square().mean() - 0.01 * policy.entropy().mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], 0.5)
        optimiser.step()


@torch.no_grad()
def evaluate(cast: TemporalAgent) -> float:
    """Mean return of one episode in each environment of a cast of this process, with the likeliest actions."""
    ws = Workspace()
    cast(ws, reset=True, stop_variable="episode/done", stochastic=False)
    return cumulated_reward(ws["env/reward"], ws["env/done"])


if __name__ == "__main__":  # the other process imports this file, too
    main(quick="--quick" in sys.argv)
