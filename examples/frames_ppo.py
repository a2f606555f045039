"""PPO on a frame stream: several passes over disjoint minibatches of pairs, with the advantage attached to each.

    python examples/frames_ppo.py

Advantages are computed on rows, where neighbours are in time; learning happens on pairs, where order does not matter.
`advantage[valid]` has the order of `transitions(pairs=True)`. The actor scores the actions that were taken with
`predict_proba=True`, which writes `logprob_predict` and leaves `action` alone. `algorithms/ppo.py` is the same on step
rows.
"""

import sys

import torch

from gaitway import Agents, TemporalAgent, Workspace
from gaitway.agents.policy_agents import DistributionActor, categorical_actor
from gaitway.agents.value_agents import ValueCritic
from gaitway.core.epochs import frame_windows
from gaitway.frames.agent import FrameAgent
from gaitway.functional.frame_returns import frame_gae
from gaitway.functional.policy_losses import clipped_surrogate

EPOCHS, MINIBATCH = 4, 128


def main(quick: bool = False) -> None:
    world = FrameAgent("CartPole-v1", num_envs=8, mode="framed", seed=0)
    weights, order = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)
    actor = categorical_actor(world.spec, seed=0, generator=weights)
    critic = ValueCritic(world.spec, generator=weights)
    optimiser = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-3)
    print(f"before: return {evaluate(actor):.0f}")
    for epoch in frame_windows(Agents(world, actor), n_steps=64, total_steps=10_000 if quick else 80_000):
        pairs = with_advantages(epoch.workspace, critic)
        for _ in range(EPOCHS):
            for batch in pairs.minibatches(MINIBATCH, order):  # every pair exactly once
                actor(batch, 0, predict_proba=True, compute_entropy=True)
                critic(batch, 0)
                new, old, advantage = (batch.at(name, 0) for name in ("logprob_predict", "logprob", "advantage"))
                surrogate, _ = clipped_surrogate(new, old, advantage, clip=0.2)
                error = batch.at("value", 0) - batch.at("return", 0)
                loss = surrogate.mean() + 0.5 * error.square().mean() - 0.01 * batch.at("entropy", 0).mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        if epoch.number % 20 == 19:
            print(f"{epoch.total_env_steps} steps: return {evaluate(actor):.0f}")
    print(f"after: return {evaluate(actor):.0f}")


@torch.no_grad()
def with_advantages(ws: Workspace, critic: ValueCritic) -> Workspace:
    """The pairs of a window, with `advantage` and `return` of their first row; fixed before the passes begin."""
    flags = {"terminated": ws["env/terminated"], "done": ws["env/done"]}
    value = critic.values(ws)
    advantage, valid = frame_gae(value=value, reward=ws["env/reward"], **flags, gamma=0.99, lam=0.95)
    pairs = ws.detach_().transitions(pairs=True)
    kept = advantage[valid]
    pairs["return"] = (kept + value[:-1][valid]).expand(2, -1)  # a pair has two rows; the second one is never read
    pairs["advantage"] = ((kept - kept.mean()) / kept.std()).expand(2, -1)
    return pairs


@torch.no_grad()
def evaluate(actor: DistributionActor) -> float:
    """Mean return of ten episodes of the likeliest actions; a frozen stream keeps the return of those that ended."""
    ws, world = Workspace(), FrameAgent("CartPole-v1", num_envs=10, mode="frozen", seed=1)
    TemporalAgent(Agents(world, actor)).run(ws, stop_variable="env/done", stochastic=False)
    return float(ws["env/cumulated_reward"][-1].mean())


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
