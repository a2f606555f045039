"""Learning from a dataset: a teacher is recorded, and a network learns to do the same from these steps alone.

    python examples/dataset_training.py

`ShuffledDatasetAgent` stands where an environment would: each call writes a batch of recorded steps, and the actor
scores what was done in them. A second clone gets the same observations with the actions of other steps; if that one
balanced the pole too, the first would have shown nothing. `OfflineRunner` does the same with logs and checkpoints.
"""

import sys
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from gaitway import Agent, Agents, EnvAgent, EnvSpec, TemporalAgent, Trajectories, TrajectoryWriter, Workspace, make_env
from gaitway.agents.policy_agents import DistributionActor, categorical_actor
from gaitway.core.small_agents import EpisodesDone
from gaitway.data.dataset_agents import ShuffledDatasetAgent
from gaitway.functional.episode_returns import cumulated_reward

OBSERVATION, ROWS, BATCH = "env/obs/policy", 500, 256


class Teacher(Agent):
    """A controller by hand: push the cart to the side to which the pole falls."""

    reads, writes = (OBSERVATION,), ("action",)

    def step(self, ws: Workspace, t: int) -> None:
        position, speed, angle, turn = ws.at(OBSERVATION, t).unbind(-1)
        ws.put("action", t, (3 * angle + turn + 0.1 * position + 0.2 * speed > 0).long())


def record(folder: str, teacher: Agent, windows: int) -> Trajectories:
    world = EnvAgent(make_env("toy/cartpole", num_envs=8, seed=0))
    loop = TemporalAgent(Agents(world.observe, teacher, world.advance))
    with TrajectoryWriter(folder, world.env.spec, description="a controller by hand") as writer:
        for _ in range(windows):
            ws = Workspace()
            loop(ws, n_steps=ROWS)
            writer.add(ws)  # episodes go on from window to window
    return Trajectories(folder)


def clone(spec: EnvSpec, obs: Tensor, action: Tensor, updates: int) -> DistributionActor:
    """A policy to which the actions [N] that were taken at the observations [N, D] are likely."""
    batches = ShuffledDatasetAgent(TensorDataset(obs, action), BATCH, (OBSERVATION, "action"), seed=0)
    actor = categorical_actor(spec, generator=torch.Generator().manual_seed(0))
    optimiser = torch.optim.Adam(actor.parameters(), lr=1e-3)
    cast, ws = Agents(batches, actor), Workspace()
    for _ in range(updates):
        cast(ws, predict_proba=True)  # writes `logprob_predict` and leaves `action` alone
        optimiser.zero_grad()
        (-ws.at("logprob_predict", 0).mean()).backward()
        optimiser.step()
    return actor


def main(quick: bool = False) -> None:
    windows, updates = (1, 500) if quick else (5, 3_000)
    with TemporaryDirectory() as folder:
        data = record(folder, Teacher(), windows)
        print(f"recorded: {data.num_steps} steps in {data.num_episodes} episodes of {data.spec.id}")
        steps, spec = data.transitions(), data.spec
    obs, action = steps["obs/policy"], steps["action"]
    others = action[torch.randperm(len(action), generator=torch.Generator().manual_seed(0))]
    print(f"teacher: return {evaluate(Teacher()):.0f}")
    print(f"clone: return {evaluate(clone(spec, obs, action, updates), stochastic=False):.0f}")
    print(f"clone of shuffled actions: return {evaluate(clone(spec, obs, others, updates), stochastic=False):.0f}")


@torch.no_grad()
def evaluate(agent: Agent, **options: Any) -> float:
    """Mean return of an episode from each of ten starts that no recording has."""
    ws, world = Workspace(), EnvAgent(make_env("toy/cartpole", num_envs=10, purpose="evaluation"))
    cast = Agents(world.observe, agent, world.advance, EpisodesDone())
    TemporalAgent(cast).run(ws, stop_variable="episode/done", **options)
    return cumulated_reward(ws["env/reward"], ws["env/done"])


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
