"""Environments and helpers of the tests of frame streams."""

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from gaitway.core.agent import Agent, Agents, TemporalAgent
from gaitway.core.workspace import Workspace

RESETS = {"framed": AutoresetMode.NEXT_STEP, "compact": AutoresetMode.SAME_STEP}


class Episodes(gymnasium.Env):
    """Observation `episode.step`; rewards 1 and then 5; two steps an episode. Keeps the seeds it was reset with."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)
    render_mode = "rgb_array"

    def __init__(self, lengths=(2,), truncate=False):
        self.lengths, self.truncate, self.episode, self.steps, self.seeds, self.taken = lengths, truncate, -1, 0, [], 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode, self.steps = (0 if seed is not None else self.episode + 1), 0
        return self._obs(), {}

    def step(self, action):
        self.steps += 1
        self.taken += 1
        end = self.steps == self.lengths[self.episode % len(self.lengths)]
        return self._obs(), 5.0 if self.steps == 2 else 1.0, end and not self.truncate, end and self.truncate, {}

    def render(self):
        return np.full((2, 4, 3), 10 * self.episode + self.steps, dtype=np.uint8)

    def _obs(self):
        return np.array([self.episode + self.steps / 10])


class Walk(gymnasium.Env):
    """A random walk that falls at |x| > 1 and is cut after 6 steps: mixed ends, randomness, a time limit."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self):
        self.x, self.steps = 0.0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.steps = self.np_random.uniform(-0.5, 0.5), 0
        return self._obs(), {}

    def step(self, action):
        self.x += float(action[0]) * 0.3 + self.np_random.normal() * 0.4
        self.steps += 1
        return self._obs(), -abs(self.x), abs(self.x) > 1.0, self.steps >= 6, {}

    def _obs(self):
        return np.array([self.x, self.steps], dtype=np.float32)


class Shows(gymnasium.Env):
    """Shows one value of a given space and remembers the action."""

    def __init__(self, space, value, action_space=None):
        self.observation_space, self.value = space, value
        self.action_space = action_space or spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self.value, {}

    def step(self, action):
        self.taken = action
        return self.value, 0.0, False, False, {}


class Plan(Agent):
    """Plays fixed actions `[T, B, ...]`, starting from the first at t=0."""

    writes = ("action",)

    def __init__(self, actions):
        super().__init__()
        self.actions = actions

    def step(self, ws, t):
        ws.put("action", t, self.actions[t])


def collect(world, rows, actions=None, ws=None, t=0):
    ws = Workspace() if ws is None else ws
    if actions is None:
        actions = torch.zeros(t + rows, world.num_envs, dtype=torch.int64)
    TemporalAgent(Agents(world, Plan(actions))).run(ws, t, n_steps=rows)
    return ws


def noise(rows, batch, seed=0):
    return torch.rand(rows, batch, 1, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def assert_same(one, two, names=None):
    assert names is not None or one.keys() == two.keys()
    for name in names or one:
        assert torch.equal(one[name], two[name]), name
        assert one[name].dtype == two[name].dtype, name
