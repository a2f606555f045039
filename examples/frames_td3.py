"""TD3 on a frame stream: two critics with names of their own, smoothed target actions, an actor that learns later.

    python examples/frames_td3.py

Prefixes keep two copies of an agent apart: the critics write `1/q_value` and `2/q_value`, their targets
`target/1/q_value` and `target/2/q_value`, all into the same two-row workspace that the replay gives back. Smoothing is
an agent too: the noise that explores, clipped. `algorithms/td3.py` is the same on step rows.
"""

import sys

import torch

from gaitway import Agents, Replay, TemporalAgent, Workspace
from gaitway.agents.explorers import GaussianNoise
from gaitway.agents.policy_agents import DeterministicActor
from gaitway.agents.value_agents import ContinuousQCritic
from gaitway.core.agent import Agent
from gaitway.core.epochs import frame_windows
from gaitway.frames.agent import FrameAgent
from gaitway.frames.pairs import pair_fields
from gaitway.functional.temporal_differences import td
from gaitway.nn.parameters import soft_update


def main(quick: bool = False) -> None:
    world = FrameAgent("Pendulum-v1", num_envs=4, mode="framed", seed=0)
    spec, weights = world.spec, torch.Generator().manual_seed(0)
    actor = DeterministicActor(spec, generator=weights)
    critics = Agents(*(ContinuousQCritic(spec, generator=weights).with_prefix(prefix) for prefix in ("1/", "2/")))
    target_critics = Agents(*(critic.clone().with_prefix(f"target/{critic.prefix}") for critic in critics))
    target_actor = Agents(actor.clone(), GaussianNoise(spec.action, std=0.2, clip=0.5, seed=0))
    explorer = GaussianNoise(spec.action, std=0.1, seed=0, name="explorer")
    actor_step = torch.optim.Adam(actor.parameters(), lr=1e-3)
    critic_step = torch.optim.Adam(critics.parameters(), lr=1e-3)
    replay = Replay(50_000, seed=0)
    print(f"before: return {evaluate(actor):.0f}")
    for epoch in frame_windows(Agents(world, actor, explorer), n_steps=4, total_steps=3_000 if quick else 12_000):
        replay.add(epoch.workspace.transitions(pairs=True))
        for update in range(epoch.steps if len(replay) >= 500 else 0):
            batch = replay.sample(128)  # [2, 128, ...]
            fields = pair_fields(batch)
            critics(batch, 0)
            with torch.no_grad():
                target_actor(batch, 1)  # writes over the action that was taken there
                target_critics(batch, 1)
            next_value = torch.minimum(batch.at("target/1/q_value", 1), batch.at("target/2/q_value", 1))
            values = (batch.at("1/q_value", 0), batch.at("2/q_value", 0))
            errors = [td(fields["reward"], value, next_value, fields["terminated"], 0.99) for value in values]
            take_step(critic_step, torch.stack(errors).square().mean(1).sum())
            if update % 2 == 1:
                actor(batch, 0)  # the action it would take now, with its gradient
                critics(batch, 0)
                take_step(actor_step, -batch.at("1/q_value", 0).mean())
                soft_update(target_actor[0], actor, 0.01)
                soft_update(target_critics, critics, 0.01)
        if epoch.number % 125 == 124:
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
