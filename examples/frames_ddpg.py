"""DDPG on a frame stream: the agents that played run again on the pairs that a replay gives back.

    python examples/frames_ddpg.py

A sample of the replay is a workspace of two rows, t and t+1. Actor and critic are the agents of the cast: run on row 1
they say what the next state is worth, run on row 0 with the actor's own action they give its gradient.
`algorithms/ddpg.py` is the same on step rows.
"""

import sys

import torch

from gaitway import Agents, Replay, TemporalAgent, Workspace
from gaitway.agents.explorers import OrnsteinUhlenbeck
from gaitway.agents.policy_agents import DeterministicActor
from gaitway.agents.value_agents import ContinuousQCritic
from gaitway.core.agent import Agent
from gaitway.core.epochs import frame_windows
from gaitway.frames.agent import FrameAgent
from gaitway.frames.pairs import pair_fields
from gaitway.functional.temporal_differences import td
from gaitway.nn.parameters import soft_update

GAMMA, BATCH, WARM_UP = 0.99, 128, 500


def main(quick: bool = False) -> None:
    world = FrameAgent("Pendulum-v1", num_envs=4, mode="framed", seed=0)
    weights = torch.Generator().manual_seed(0)
    actor = DeterministicActor(world.spec, generator=weights)
    critic = ContinuousQCritic(world.spec, generator=weights)
    target_actor, target_critic = actor.clone(), critic.clone().with_prefix("target/")
    actor_step = torch.optim.Adam(actor.parameters(), lr=1e-3)
    critic_step = torch.optim.Adam(critic.parameters(), lr=1e-3)
    noise = OrnsteinUhlenbeck(world.spec.action, sigma=0.2, seed=0)
    replay = Replay(50_000, seed=0)
    print(f"before: return {evaluate(actor):.0f}")
    for epoch in frame_windows(Agents(world, actor, noise), n_steps=4, total_steps=3_500 if quick else 12_000):
        replay.add(epoch.workspace.transitions(pairs=True))
        if epoch.total_env_steps < WARM_UP:
            continue
        for _ in range(epoch.steps):
            batch = replay.sample(BATCH)  # [2, 128, ...]
            fields = pair_fields(batch)
            critic(batch, 0)
            with torch.no_grad():
                target_actor(batch, 1)  # writes over the action that was taken there
                target_critic(batch, 1)
            next_value = batch.at("target/q_value", 1)
            error = td(fields["reward"], batch.at("q_value", 0), next_value, fields["terminated"], GAMMA)
            take_step(critic_step, error.square().mean())
            actor(batch, 0)  # the action it would take now, with its gradient
            critic(batch, 0)
            take_step(actor_step, -batch.at("q_value", 0).mean())
            soft_update(target_actor, actor, 0.005)
            soft_update(target_critic, critic, 0.005)
        if epoch.number % 125 == 0:
            print(f"{epoch.total_env_steps} steps: return {evaluate(actor):.0f}")
    print(f"after: return {evaluate(actor):.0f}")


def take_step(optimiser: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


@torch.no_grad()
def evaluate(actor: Agent) -> float:
    """Mean return of ten episodes; a frozen stream keeps the return of those that have ended."""
    ws, world = Workspace(), FrameAgent("Pendulum-v1", num_envs=10, mode="frozen", seed=1)
    TemporalAgent(Agents(world, actor)).run(ws, stop_variable="env/done")
    return float(ws["env/cumulated_reward"][-1].mean())


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
