"""Agents of one's own: a sense of speed with a memory, and a policy that reads it.

    python examples/own_agent.py

CartPole without its speeds cannot be balanced by looking at one observation. `Speeds` remembers the positions of the
row before and writes how fast they change; `Policy` reads both. An agent says what it reads and writes and does one
row; its memory is a variable of the workspace, so that nothing is hidden in the agent.
"""

import sys

import torch
from torch import Tensor

from gaitway import Agent, Agents, EnvAgent, TemporalAgent, Workspace, make_env
from gaitway.core.small_agents import EpisodesDone, SeedableAgent
from gaitway.core.wiring import check_wiring
from gaitway.functional.episode_returns import cumulated_reward
from gaitway.functional.reinforce import reinforce_losses
from gaitway.nn.mlp import MLP

OBSERVATION, POSITIONS, SECONDS = "env/obs/policy", [0, 2], 0.02


class Speeds(Agent):
    """Writes `speed` [B, 2]: how fast cart and pole move. `positions/before` is what was seen in the row before."""

    reads = (OBSERVATION,)
    writes = ("speed", "positions/before")

    def step(self, ws: Workspace, t: int) -> None:
        positions = ws.at(OBSERVATION, t)[:, POSITIONS]
        if t == 0:
            ws.put("positions/before", 0, positions)
        ws.put("speed", t, (positions - ws.at("positions/before", t)) / SECONDS)
        ws.put("positions/before", t + 1, positions)

    def reset(self, ws: Workspace, t: int, mask: Tensor) -> None:
        """Before row t, where the episode of row t-1 has ended: an episode begins at rest."""
        positions = ws.at(OBSERVATION, t)[:, POSITIONS]
        ws.put("positions/before", t, torch.where(mask[:, None], positions, ws.at("positions/before", t)))


class Policy(SeedableAgent):
    """Left or right, from positions and `speed`; `stochastic=False` takes the likelier one."""

    reads = (OBSERVATION, "speed")
    writes = ("action", "logprob")

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed=seed, rule="last")  # gives the agent a random stream of its own
        self.network = MLP(4, (64, 64), 2, "tanh", generator=torch.Generator().manual_seed(seed))

    def step(self, ws: Workspace, t: int, *, stochastic: bool = True) -> None:
        seen = torch.cat((ws.at(OBSERVATION, t)[:, POSITIONS], ws.at("speed", t)), -1)
        log_prob = self.network(seen).log_softmax(-1)  # [B, 2]
        drawn = torch.multinomial(log_prob.exp(), 1, generator=self.generator()).squeeze(-1)
        action = drawn if stochastic else log_prob.argmax(-1)
        ws.put("action", t, action)
        ws.put("logprob", t, log_prob.gather(-1, action.unsqueeze(-1)).squeeze(-1))


def main(quick: bool = False) -> None:
    world, policy = EnvAgent(make_env("toy/cartpole", num_envs=16, seed=0), metrics=()), Policy(seed=0)
    loop = TemporalAgent(Agents(world.observe, Speeds(), policy, world.advance, EpisodesDone()))
    print(check_wiring(loop))  # every read has a writer, before anything runs
    optimiser = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for epoch in range(11 if quick else 71):
        ws = Workspace(extra_row=["positions/before"])  # its last row belongs to the step after the last one
        loop(ws, reset=True, stop_variable="episode/done")
        reward, done = ws["env/reward"], ws["env/done"]
        optimiser.zero_grad()
        reinforce_losses(reward=reward, done=done, log_prob=ws["logprob"], gamma=0.99).policy.backward()
        optimiser.step()
        if epoch % 10 == 0:
            print(f"epoch {epoch}: return {cumulated_reward(reward, done):.0f}")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
