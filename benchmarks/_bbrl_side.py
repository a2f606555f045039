"""bbrl's half of blackboard.py: the same policy, collection, transitions and replay in its own words."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import gymnasium
import numpy as np
import torch
from _blackboard_side import HIDDEN, Rule, Task
from _replay_contestants import Chunk, Contestant, Transitions
from bbrl.agents import Agent, Agents, TemporalAgent
from bbrl.agents.gymnasium import ParallelGymAgent
from bbrl.utils.replay_buffer import ReplayBuffer
from bbrl.workspace import Workspace
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

OBSERVATION = "env/env_obs"
NEEDED = (OBSERVATION, "action", "env/reward", "env/terminated", "env/truncated", "env/done")
"""What a transition needs."""
MORE = ("env/done", "env/cumulated_reward", "env/timestep")
"""What its environments write besides what a replay needs."""


class Policy(Agent):
    """Hidden layers of tanh, and one sample of a distribution."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        sizes = (task.observations, *HIDDEN, task.outputs)
        layers = [layer for pair in itertools.pairwise(sizes) for layer in (nn.Linear(*pair), nn.Tanh())]
        self.network, self.std = nn.Sequential(*layers[:-1]), task.std

    def copy_from(self, layers: Sequence[nn.Linear]) -> None:
        """The weights of our policy, whose mean is in units of half the range of the action."""
        mine = [layer for layer in self.network if isinstance(layer, nn.Linear)]
        with torch.no_grad():
            for target, source in zip(mine, layers, strict=True):
                target.load_state_dict(source.state_dict())
            if self.std:
                for parameter in mine[-1].parameters():
                    parameter *= self.std

    def distribution(self, obs: Tensor) -> Categorical | Normal:
        output = self.network(obs)
        return Normal(output, self.std) if self.std else Categorical(logits=output)

    def forward(self, t: int, **kwargs: object) -> None:
        found = self.distribution(self.get((OBSERVATION, t)))
        self.set(("action", t), found.sample())
        self.set(("policy/params", t), found.loc if isinstance(found, Normal) else found.logits)


class Ruled(Agent):
    """Does what a rule says, for comparisons number by number."""

    def __init__(self, rule: Rule) -> None:
        super().__init__()
        self.rule = rule

    def forward(self, t: int, **kwargs: object) -> None:
        self.set(("action", t), self.rule(self.get((OBSERVATION, t))))


class Collector:
    """Environments and an agent over `rows` steps. The workspace is kept, which is quicker than a new one."""

    def __init__(self, make: Callable[[], gymnasium.Env], envs: int, agent: Agent, rows: int) -> None:
        world = ParallelGymAgent(make, envs)
        world.seed(0)
        self.workspace, self.rows = Workspace(), rows
        self.loop = TemporalAgent(Agents(world, agent))

    @torch.inference_mode()
    def __call__(self) -> Workspace:
        self.loop(self.workspace, t=0, n_steps=self.rows)
        return self.workspace


def needed(ws: Workspace) -> Workspace:
    """Only what a transition needs, as whole tensors: the quickest form for `get_transitions`."""
    kept = Workspace()
    for name in NEEDED:
        kept.set_full(name, ws.get_full(name).clone())
    return kept


def by_instance(ws: Workspace) -> list[dict[str, np.ndarray]]:
    """The transitions of `get_transitions` in our words, one dictionary per environment."""
    pairs, done = ws.get_transitions(), ws["env/done"][:-1]
    instance = torch.arange(done.shape[1]).expand_as(done)[~done]
    fields = {
        "obs": pairs[OBSERVATION][0],
        "next_obs": pairs[OBSERVATION][1],
        "action": pairs["action"][0],
        "reward": pairs["env/reward"][1],
        "terminated": pairs["env/terminated"][1],
        "truncated": pairs["env/truncated"][1],
    }
    return [{name: v[instance == i].numpy() for name, v in fields.items()} for i in range(done.shape[1])]


class Bbrl(Contestant):
    """Its replay buffer, filled with transitions as `get_transitions` gives them: both rows of every variable.

    `more` are the variables that its environments write besides those that are needed.
    """

    def __init__(self, capacity: int, more: tuple[str, ...] = ()) -> None:
        self.buffer, self.more = ReplayBuffer(capacity), more

    def fill(self, start: int, chunk: Chunk) -> None:
        rows = {name: torch.from_numpy(value).flatten(0, 1) for name, value in chunk.items() if name != "obs"}
        obs = torch.from_numpy(chunk["obs"][:-1]).flatten(0, 1)
        ws = Workspace()
        ws.set_full(OBSERVATION, torch.stack((obs, rows.pop("next_obs"))))
        for name, value in rows.items():
            ws.set_full(name if name == "action" else f"env/{name}", torch.stack((value, value)))
        for name in self.more:
            ws.set_full(name, torch.zeros_like(ws["env/reward"]))
        self.buffer.put(ws)

    def sample(self, n: int) -> Workspace:
        return self.buffer.get_shuffled(n)

    def read(self, sample: Workspace) -> Transitions:
        return {
            "obs": sample[OBSERVATION][0],
            "next_obs": sample[OBSERVATION][1],
            "action": sample["action"][0],
            "reward": sample["env/reward"][1],
            "terminated": sample["env/terminated"][1],
        }
