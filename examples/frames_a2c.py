"""A2C on a frame stream: windows without a seam, and advantages that respect where episodes end.

    python examples/frames_a2c.py

`frame_windows` carries the last row of a window into the next one, so that no pair of rows is lost. `frame_gae` gives
an advantage to every row but the last and says which of them are valid: nothing is done on the last row of an episode.
`algorithms/a2c.py` is the same on step rows.
"""

import sys

import torch

from gaitway import Agents, TemporalAgent, Workspace
from gaitway.agents.policy_agents import DistributionActor, categorical_actor
from gaitway.agents.value_agents import ValueCritic
from gaitway.core.epochs import frame_windows
from gaitway.frames.agent import FrameAgent
from gaitway.functional.frame_returns import frame_gae


def main(quick: bool = False) -> None:
    total_steps = 25_000 if quick else 150_000
    world = FrameAgent("CartPole-v1", num_envs=16, mode="framed", seed=0)
    weights = torch.Generator().manual_seed(0)
    actor = categorical_actor(world.spec, seed=0, generator=weights)
    critic = ValueCritic(world.spec, generator=weights)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=2e-3)
    print(f"before: return {evaluate(actor):.0f}")
    for epoch in frame_windows(Agents(world, actor), n_steps=16, total_steps=total_steps):
        ws = epoch.workspace  # 17 rows
        advantage, valid = frame_gae(
            value=critic.values(ws),  # its gradient reaches the value of the row itself, not that of the next one
            reward=ws["env/reward"],
            terminated=ws["env/terminated"],
            done=ws["env/done"],
            gamma=0.99,
            lam=0.95,
        )
        policy = actor.distribution(ws)  # all rows at once; row 0 was played by the policy before the last update
        log_prob, entropy = policy.log_prob(ws["action"])[:-1], policy.entropy()[:-1]
        policy_loss = -(log_prob * advantage.detach())[valid].mean()
        loss = policy_loss + 0.5 * advantage[valid].square().mean() - 0.01 * entropy[valid].mean()
        optimiser.param_groups[0]["lr"] = 2e-3 * max(0.0, 1.0 - epoch.total_env_steps / total_steps)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 0.5)
        optimiser.step()
        if epoch.number % 100 == 99:
            print(f"{epoch.total_env_steps} steps: return {evaluate(actor):.0f}")
    print(f"after: return {evaluate(actor):.0f}")


@torch.no_grad()
def evaluate(actor: DistributionActor) -> float:
    """Mean return of ten episodes of the likeliest actions; a frozen stream keeps the return of those that ended."""
    ws, world = Workspace(), FrameAgent("CartPole-v1", num_envs=10, mode="frozen", seed=1)
    TemporalAgent(Agents(world, actor)).run(ws, stop_variable="env/done", stochastic=False)
    return float(ws["env/cumulated_reward"][-1].mean())


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
