"""REINFORCE in forty lines: whole episodes of CartPole, and the gradient of their return.

    python examples/reinforce.py

A cast of agents plays on a workspace until every column has finished an episode; the loss is a function of what then
stands on it. `toy/cartpole` is gymnasium's CartPole-v1 for many instances at once. One learner, one file: Williams 1992
with a learnt baseline.
"""

import sys

import torch

from gaitway import Agents, EnvAgent, TemporalAgent, Workspace, make_env
from gaitway.agents.policy_agents import categorical_actor
from gaitway.agents.value_agents import ValueCritic
from gaitway.core.small_agents import EpisodesDone
from gaitway.functional.episode_returns import cumulated_reward
from gaitway.functional.reinforce import reinforce_losses


def main(quick: bool = False) -> None:
    world = EnvAgent(make_env("toy/cartpole", num_envs=16, seed=0))
    weights = torch.Generator().manual_seed(0)
    actor = categorical_actor(world.env.spec, seed=0, generator=weights)
    critic = ValueCritic(world.env.spec, generator=weights)
    optimiser = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-3)
    loop = TemporalAgent(Agents(world.observe, actor, world.advance, EpisodesDone()))
    for epoch in range(11 if quick else 61):
        ws = Workspace()
        loop(ws, reset=True, stop_variable="episode/done", compute_entropy=True)
        losses = reinforce_losses(
            reward=ws["env/reward"],
            done=ws["env/done"],
            log_prob=ws["logprob"],
            baseline=critic.values(ws)[:-1],  # the last row is the observation after the last step
            entropy=ws["entropy"],
            gamma=0.99,
        )
        optimiser.zero_grad()
        (losses.policy + 0.5 * losses.baseline + 0.01 * losses.entropy).backward()
        optimiser.step()
        if epoch % 10 == 0:
            print(f"epoch {epoch}: return {cumulated_reward(ws['env/reward'], ws['env/done']):.0f}")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
