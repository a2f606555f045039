"""REINFORCE on a frozen stream: a finished environment rests until the last one has finished too.

    python examples/frames_reinforce.py

`frame_episodes` plays one whole episode in every column; `frame_reinforce_losses` counts the rows before the first that
is done and nothing behind it. In a frozen stream the return of every column stands in the last row. `reinforce.py` is
the same on step rows.
"""

import sys

import torch

from gaitway import Agents
from gaitway.agents.policy_agents import categorical_actor
from gaitway.agents.value_agents import ValueCritic
from gaitway.core.epochs import frame_episodes
from gaitway.frames.agent import FrameAgent
from gaitway.functional.reinforce import frame_reinforce_losses


def main(quick: bool = False) -> None:
    world = FrameAgent("CartPole-v1", num_envs=16, mode="frozen", seed=0)
    weights = torch.Generator().manual_seed(0)
    actor = categorical_actor(world.spec, seed=0, generator=weights)
    critic = ValueCritic(world.spec, generator=weights)
    optimiser = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-3)
    for epoch in frame_episodes(Agents(world, actor), epochs=11 if quick else 61, compute_entropy=True):
        ws = epoch.workspace
        losses = frame_reinforce_losses(
            reward=ws["env/reward"],
            done=ws["env/done"],
            log_prob=ws["logprob"],
            baseline=critic.values(ws),
            entropy=ws["entropy"],
            gamma=0.99,
        )
        optimiser.zero_grad()
        (losses.policy + 0.5 * losses.baseline + 0.01 * losses.entropy).backward()
        optimiser.step()
        if epoch.number % 10 == 0:
            returns = ws["env/cumulated_reward"][-1]
            print(f"epoch {epoch.number}, {epoch.total_env_steps} steps: return {float(returns.mean()):.0f}")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
