"""SAC on a frame stream: one actor run four ways on the same two rows.

    python examples/frames_sac.py

The squashed actor writes `action` and `logprob`: while it plays, on row 1 for the value of the next state, and on row 0
with `reparametrise=True`, so that the critics' gradient flows through its sample. `algorithms/sac.py` is the same on
step rows.
"""

import sys

import torch

from gaitway import Agents, Replay, TemporalAgent, Workspace
from gaitway.agents.policy_agents import squashed_actor
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
    actor = squashed_actor(spec, activation="relu", seed=0, generator=weights)
    critics = Agents(*(ContinuousQCritic(spec, generator=weights).with_prefix(prefix) for prefix in ("1/", "2/")))
    targets = Agents(*(critic.clone().with_prefix(f"target/{critic.prefix}") for critic in critics))
    log_alpha = torch.zeros((), requires_grad=True)  # the temperature: what a nat of entropy is worth
    actor_step = torch.optim.Adam(actor.parameters(), lr=1e-3)
    critic_step = torch.optim.Adam(critics.parameters(), lr=1e-3)
    alpha_step = torch.optim.Adam([log_alpha], lr=1e-3)
    replay = Replay(50_000, seed=0)
    print(f"before: return {evaluate(actor):.0f}")
    for epoch in frame_windows(Agents(world, actor), n_steps=4, total_steps=2_500 if quick else 10_000):
        replay.add(epoch.workspace.transitions(pairs=True))
        for _ in range(epoch.steps if len(replay) >= 500 else 0):
            batch, alpha = replay.sample(128), log_alpha.exp().detach()  # [2, 128, ...]
            fields = pair_fields(batch)
            critics(batch, 0)
            values = (batch.at("1/q_value", 0), batch.at("2/q_value", 0))
            with torch.no_grad():
                actor(batch, 1)  # writes over the action that was taken there
                targets(batch, 1)
                next_q = torch.minimum(batch.at("target/1/q_value", 1), batch.at("target/2/q_value", 1))
                next_value = next_q - alpha * batch.at("logprob", 1)
            errors = [td(fields["reward"], value, next_value, fields["terminated"], 0.99) for value in values]
            take_step(critic_step, torch.stack(errors).square().mean(1).sum())
            actor(batch, 0, reparametrise=True)
            critics(batch, 0)
            q, log_prob = torch.minimum(batch.at("1/q_value", 0), batch.at("2/q_value", 0)), batch.at("logprob", 0)
            take_step(actor_step, (alpha * log_prob - q).mean())
            take_step(alpha_step, -log_alpha * (log_prob.detach() - len(spec.action.names)).mean())
            soft_update(targets, critics, 0.01)
        if epoch.number % 125 == 124:
            print(f"{epoch.total_env_steps} steps: return {evaluate(actor):.0f}, alpha {log_alpha.exp().item():.2f}")
    print(f"after: return {evaluate(actor):.0f}")


def take_step(optimiser: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


@torch.no_grad()
def evaluate(actor: Agent) -> float:
    """Mean return of ten episodes; a frozen stream keeps the return of those that have ended."""
    ws, world = Workspace(), FrameAgent("Pendulum-v1", num_envs=10, mode="frozen", seed=1)
    TemporalAgent(Agents(world, actor)).run(ws, stop_variable="env/done", stochastic=False)
    return float(ws["env/cumulated_reward"][-1].mean())


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
