"""A population: the cross-entropy method plays every individual in whichever process is free.

    python examples/population.py

`ParamPopulation` runs one cast with many parameter vectors: each vector once, on a workspace of its own, with a seed of
its own; results come in the order of the vectors, whoever computed them. With 0 processes everything happens here, with
the same results. `algorithms/evolution.py` has this method with a runner, logs and checkpoints.
"""

import sys

import torch
from torch import Tensor

from gaitway import Agent, Agents, TemporalAgent, Workspace
from gaitway.agents.policy_agents import categorical_actor
from gaitway.frames.agent import FrameAgent
from gaitway.nn.parameters import parameters_to_vector, vector_to_parameters
from gaitway.processes.population import ParamPopulation

INDIVIDUALS, ELITES = 16, 4


def load(cast: Agent, vector: Tensor) -> None:
    """Called where the individual plays, on a copy of the cast."""
    vector_to_parameters(vector, cast.get_by_name("actor")[0])


def fitness(ws: Workspace) -> float:
    """In a frozen stream the return of every environment stands in the last row."""
    return float(ws["env/cumulated_reward"][-1].mean())


def search(num_processes: int, generations: int) -> list[float]:
    """Mean fitness of each generation."""
    world = FrameAgent("CartPole-v1", num_envs=4, mode="frozen")
    actor = categorical_actor(world.spec, hidden=(), name="actor")  # one linear layer: 10 numbers
    cast = TemporalAgent(Agents(world, actor))
    generator = torch.Generator().manual_seed(0)
    mean = torch.zeros_like(parameters_to_vector(actor))
    std, history = torch.ones_like(mean), []
    with ParamPopulation(cast, num_processes) as population, torch.no_grad():
        for generation in range(generations):
            population.seed = generation * INDIVIDUALS  # new starts for everybody
            vectors = mean + std * torch.randn(INDIVIDUALS, len(mean), generator=generator)
            played = population(vectors, load, stop_variable="env/done", stochastic=False)
            scores = torch.tensor([fitness(ws) for ws in played])
            elites = vectors[scores.topk(ELITES).indices]
            mean, std = elites.mean(0), elites.std(0) + 0.1
            history.append(float(scores.mean()))
    return history


def main(quick: bool = False) -> None:
    history = search(num_processes=2, generations=4 if quick else 12)
    print("mean return of each generation:", *(f"{score:.0f}" for score in history))
    print("the same in this process:", search(num_processes=0, generations=2) == history[:2])


if __name__ == "__main__":  # processes import this file, too
    main(quick="--quick" in sys.argv)
