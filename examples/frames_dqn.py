"""Double DQN on a frame stream: pairs of rows go into a replay, and come back as named fields.

    python examples/frames_dqn.py

The environment is one agent that opens every row, so a transition is a pair of rows: `n_step_pairs` makes pairs that
are up to three steps apart, none of them across the end of an episode. `pair_fields` names what is in them, so that
nobody has to know which of the two rows holds the reward. `algorithms/dqn.py` is the same on step rows, with more
options.
"""

import sys

import torch

from gaitway import Agents, Replay, TemporalAgent, Workspace
from gaitway.agents.explorers import EpsilonGreedy
from gaitway.agents.value_agents import DiscreteQCritic
from gaitway.core.epochs import frame_windows
from gaitway.frames.agent import FrameAgent
from gaitway.frames.pairs import n_step_pairs, pair_fields
from gaitway.functional.temporal_differences import double_q_value, td_target
from gaitway.nn.parameters import copy_parameters


def main(quick: bool = False) -> None:
    total_steps = 6_000 if quick else 50_000
    world = FrameAgent("CartPole-v1", num_envs=8, mode="framed", seed=0)
    network = DiscreteQCritic(world.spec, hidden=(128, 128), generator=torch.Generator().manual_seed(0))
    target = network.clone()
    explorer = EpsilonGreedy(world.spec.action, seed=0)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    replay = Replay(50_000, seed=0)
    print(f"before: return {evaluate(network, explorer):.0f}")
    for epoch in frame_windows(Agents(world, network, explorer), n_steps=8, total_steps=total_steps):
        passed = min(epoch.total_env_steps / total_steps, 1.0)
        explorer.epsilon = max(0.05, 1.0 - 5.0 * passed)
        optimiser.param_groups[0]["lr"] = 1e-3 * (1.0 - passed)
        pairs = n_step_pairs(epoch.workspace, n=3, gamma=0.99, partial=True)
        replay.add_transitions(pair_fields(pairs))
        if len(replay) < 1_000:
            continue
        for _ in range(epoch.steps // 2):
            learn(network, target, optimiser, replay.sample_transitions(128))
        if epoch.number % 6 == 0:
            copy_parameters(target, network)
        if epoch.number % 100 == 99:
            print(f"{epoch.total_env_steps} steps: return {evaluate(network, explorer):.0f}")
    print(f"after: return {evaluate(network, explorer):.0f}")


def learn(
    network: DiscreteQCritic, target: DiscreteQCritic, optimiser: torch.optim.Adam, batch: dict[str, torch.Tensor]
) -> None:
    discount = batch["n_step/discount"] * ~batch["terminated"]  # a time limit is no end of the future
    with torch.no_grad():  # the network chooses the next action, its target says what that is worth
        next_obs = batch["next_obs/policy"]
        next_value = double_q_value(network.q_values(next_obs), target.q_values(next_obs))
    wanted = td_target(batch["n_step/return"], discount, next_value)
    value = network.of_action(network.q_values(batch["obs/policy"]), batch["action"])
    optimiser.zero_grad()
    torch.nn.functional.huber_loss(value, wanted).backward()
    optimiser.step()


@torch.no_grad()
def evaluate(network: DiscreteQCritic, explorer: EpsilonGreedy) -> float:
    """Mean return of ten greedy episodes; a frozen stream keeps the return of those that have ended."""
    ws, world = Workspace(), FrameAgent("CartPole-v1", num_envs=10, mode="frozen", seed=1)
    TemporalAgent(Agents(world, network, explorer)).run(ws, stop_variable="env/done", stochastic=False)
    return float(ws["env/cumulated_reward"][-1].mean())


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
