"""Our half of blackboard.py: the tasks, collection by a cast on a dense workspace, and the loops that bound it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import gymnasium
import numpy as np
import torch
from _replay_contestants import Chunk, Contestant, Transitions
from gymnasium.vector import SyncVectorEnv
from torch import Tensor, nn

from gaitway import (
    ActorCritic,
    ActorCriticConfig,
    Agent,
    Agents,
    EnvAgent,
    EnvSpec,
    Replay,
    TemporalAgent,
    VecEnv,
    Workspace,
)
from gaitway.envs.toys.toys import TOYS

HIDDEN = (64, 64)
Rule = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Task:
    """A task that gymnasium and the toys both have."""

    id: str
    toy: str
    observations: int
    outputs: int
    std: float
    """Standard deviation of the Gaussian policy, half the range of the action; 0 for a choice."""
    rule: Rule
    """A simple policy of gymnasium's observation, the same number for the same number."""


TASKS = {
    "CartPole": Task("CartPole-v1", "toy/cartpole", 4, 2, 0.0, lambda obs: (obs[:, 2] > 0).long()),
    "Pendulum": Task("Pendulum-v1", "toy/pendulum", 3, 1, 2.0, lambda obs: obs[:, 1:2] - 0.25 * obs[:, 2:3]),
}


def make_policy(spec: EnvSpec) -> ActorCritic:
    config = ActorCriticConfig(actor_hidden=HIDDEN, normalise_observations=False)
    return ActorCritic(spec, config, torch.Generator().manual_seed(0))


def linear_layers(network: nn.Module) -> list[nn.Linear]:
    return [layer for layer in network.modules() if isinstance(layer, nn.Linear)]


class Ruled(Agent):
    """Does what a rule says, for comparisons number by number."""

    reads, writes = ("env/obs/policy",), ("action",)

    def __init__(self, rule: Rule) -> None:
        super().__init__()
        self.rule = rule

    def step(self, ws: Workspace, t: int) -> None:
        ws.put("action", t, self.rule(ws.at("env/obs/policy", t)))


class Collector:
    """An environment and an agent over `rows` steps. The toys' own metrics are left out: gymnasium has none.

    The policy collects into a dense workspace that is made once; anybody else into one that grows.
    """

    def __init__(self, env: VecEnv, agent: Agent, rows: int) -> None:
        world = EnvAgent(env, metrics=())
        self.loop, self.rows = TemporalAgent(Agents(world.observe, agent, world.advance)), rows
        self.workspace = Workspace()
        if isinstance(agent, ActorCritic):
            self.workspace = Workspace.dense(world.variables(rows) | agent.variables(env.num_envs, rows))

    @torch.inference_mode()
    def __call__(self) -> Workspace:
        self.loop.run(self.workspace, n_steps=self.rows, reset=True)
        return self.workspace


class Ring(Contestant):
    """`Replay` of whole transitions, both observations of each."""

    def __init__(self, capacity: int) -> None:
        self.replay = Replay(capacity, seed=0)

    def fill(self, start: int, chunk: Chunk) -> None:
        rows = {**chunk, "obs": chunk["obs"][:-1]}
        self.replay.add_transitions({name: torch.from_numpy(value).flatten(0, 1) for name, value in rows.items()})

    def sample(self, n: int) -> dict[str, Tensor]:
        return self.replay.sample_transitions(n)

    def read(self, sample: dict[str, Tensor]) -> Transitions:
        return {name: value for name, value in sample.items() if name != "truncated"}


def by_instance(ws: Workspace) -> list[dict[str, np.ndarray]]:
    """The fields of `transitions()`, one dictionary per environment."""
    fields, envs = ws.transitions(), ws.B
    names = {"obs": "obs/policy", "next_obs": "next_obs/policy"}
    names |= {name: name for name in ("action", "reward", "terminated", "truncated")}
    return [{short: fields[name][i::envs].numpy() for short, name in names.items()} for i in range(envs)]


def like_gymnasium(task: Task, obs: dict[str, Tensor]) -> Tensor:
    """The observation of a toy as gymnasium shows it, `[B, D]`."""
    return torch.cat((obs["pos"], 8.0 * obs["vel"]), -1) if "vel" in obs else obs["policy"]


def sync_loop(task: Task, envs: int, rows: int) -> Callable[[], object]:
    """gymnasium's vector of environments and actions drawn beforehand: no policy, nothing is kept."""
    vector = SyncVectorEnv([lambda: gymnasium.make(task.id)] * envs)
    vector.action_space.seed(0)
    actions = [vector.action_space.sample() for _ in range(rows)]

    def run() -> None:
        vector.reset(seed=0)
        for action in actions:
            vector.step(action)

    return run


def batched_loop(task: Task, envs: int, rows: int) -> Callable[[], object]:
    """The policy in plain PyTorch and the equations of the toy: no ends, no first states, nothing is kept."""
    toy, generator = TOYS[task.toy](), np.random.default_rng(0)
    first = np.array([toy.draw(generator) for _ in range(envs)], order="F")
    sizes = (task.observations, *HIDDEN, task.outputs)
    layers = [layer for pair in itertools.pairwise(sizes) for layer in (nn.Linear(*pair), nn.Tanh())]
    network = nn.Sequential(*layers[:-1])

    @torch.inference_mode()
    def run() -> None:
        state = first
        for _ in range(rows):
            seen = np.concatenate(list(toy.observe(state).values()), -1, dtype=np.float32)
            output = network(torch.from_numpy(seen))
            if task.std:
                action = torch.randn_like(output).mul_(task.std).add_(output)
            else:
                action = torch.multinomial(output.softmax(-1), 1)[:, 0]
            state, _, _ = toy.advance(state, action.numpy())

    return run
