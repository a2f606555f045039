"""Agents that explore: they choose or change `action`, each with a random stream and a strength of its own.

    Agents(world.observe, q_network, EpsilonGreedy(action, epsilon=1.0, seed=1), world.advance)
    Agents(world.observe, actor, OrnsteinUhlenbeck(action, sigma=0.2, seed=1), world.advance)

Strengths (`epsilon`, `temperature`, `std`, `sigma`) are attributes that may be set at any time, which is all that a
schedule needs; a worker in another process has those it was started with. `stochastic=False` switches exploration off:
the greedy action, or the action without noise. Continuous actions never leave their limits; in dimensions with both
limits noise is in units of half the range, as in the heads.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gaitway.core.small_agents import SeedableAgent
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import ActionSpec


class ChoiceExplorer(SeedableAgent):
    """Chooses among discrete actions by their values: greedily, or as a subclass explores."""

    def __init__(self, action: ActionSpec, q_values: str, name: str | None, seed: int | None) -> None:
        super().__init__(name, seed, rule="last")
        if action.kind != "discrete":
            raise ValueError(f"{type(self).__name__} chooses among discrete actions; this one is {action.kind}")
        self.start = action.start[0] if action.start else 0
        self.choices = action.choices[0]
        self.reads, self.writes = (q_values,), ("action",)

    def step(self, ws: Workspace, t: int, *, stochastic: bool = True) -> None:
        name = self.reads[0]
        values = ws.at(name, t).detach()
        if values.dim() != 2 or values.shape[-1] != self.choices:
            raise ValueError(f"{name!r} has rows {list(values.shape)}; one value per action is [B, {self.choices}]")
        choice = self.explore(values) if stochastic else values.argmax(-1)
        ws.put(self.out("action"), t, choice + self.start)

    def explore(self, values: Tensor) -> Tensor:
        """`[B, A]` -> choices `[B]`, counted from 0."""
        raise TypeError(f"{type(self).__name__} does not implement explore")


class EpsilonGreedy(ChoiceExplorer):
    """The action with the largest value, or with probability `epsilon` any action: `q_values` `[B, A]` -> `[B]`."""

    def __init__(
        self,
        action: ActionSpec,
        epsilon: float = 0.1,
        q_values: str = "q_values",
        name: str | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(action, q_values, name, seed)
        self.epsilon = epsilon

    @property
    def epsilon(self) -> float:
        """Probability of a random action, 0 to 1."""
        return self._epsilon

    @epsilon.setter
    def epsilon(self, value: float) -> None:
        self._epsilon = _within(value, "epsilon", 0.0, 1.0)

    def explore(self, values: Tensor) -> Tensor:
        size, generator = len(values), self.generator(values.device)
        # both are drawn whatever epsilon is, so that changing it does not shift the stream
        explores = torch.rand(size, generator=generator, device=values.device) < self.epsilon
        other = torch.randint(self.choices, (size,), generator=generator, device=values.device)
        return torch.where(explores, other, values.argmax(-1))


class Softmax(ChoiceExplorer):
    """An action drawn with probabilities `softmax(q_values / temperature)` (Boltzmann): `[B, A]` -> `[B]`."""

    def __init__(
        self,
        action: ActionSpec,
        temperature: float = 1.0,
        q_values: str = "q_values",
        name: str | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(action, q_values, name, seed)
        self.temperature = temperature

    @property
    def temperature(self) -> float:
        """Difference in value that makes an action e times as likely; positive."""
        return self._temperature

    @temperature.setter
    def temperature(self, value: float) -> None:
        self._temperature = _within(value, "temperature", 0.0, math.inf)
        if value == 0:
            raise ValueError("temperature is 0; it must be positive. For the greedy action pass stochastic=False")

    def explore(self, values: Tensor) -> Tensor:
        chances = (values / self.temperature).softmax(-1)
        return torch.multinomial(chances, 1, generator=self.generator(values.device)).squeeze(-1)


class NoiseExplorer(SeedableAgent):
    """Adds noise to continuous actions, in units of `scale`, and keeps them between `low` and `high`, `[A]` each."""

    low: Tensor
    high: Tensor
    scale: Tensor

    def __init__(self, action: ActionSpec, name: str | None, seed: int | None) -> None:
        super().__init__(name, seed, rule="last")
        _keep_limits(self, action)
        self.reads, self.writes = ("action",), ("action",)

    def step(self, ws: Workspace, t: int, *, stochastic: bool = True) -> None:
        action, size = ws.at("action", t), len(self.low)
        if action.dim() != 2 or action.shape[-1] != size:
            raise ValueError(f"'action' has rows {list(action.shape)}; noise is added to [B, {size}]")
        if stochastic:
            action = torch.addcmul(action, self.next_noise(action), self.scale)
        ws.put(self.out("action"), t, action.clamp(self.low, self.high))

    def next_noise(self, action: Tensor) -> Tensor:
        """What is added to `action` `[B, A]`, before scaling."""
        raise TypeError(f"{type(self).__name__} does not implement next_noise")

    def normal(self, like: Tensor) -> Tensor:
        """Standard normal numbers from this agent's own stream, of the shape and dtype of `like`."""
        return torch.empty_like(like, requires_grad=False).normal_(generator=self.generator(like.device))


class GaussianNoise(NoiseExplorer):
    """Adds independent normal noise to `action` `[B, A]`; `clip` bounds the noise itself, as TD3's smoothing does."""

    def __init__(
        self,
        action: ActionSpec,
        std: float = 0.1,
        clip: float | None = None,
        name: str | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(action, name, seed)
        self.clip = None if clip is None else _within(clip, "clip", 0.0, math.inf)
        self.std = std

    @property
    def std(self) -> float:
        """Standard deviation, in units of half the range where there is one."""
        return self._std

    @std.setter
    def std(self, value: float) -> None:
        self._std = _within(value, "std", 0.0, math.inf)

    def next_noise(self, action: Tensor) -> Tensor:
        noise = self.normal(action) * self.std
        return noise if self.clip is None else noise.clamp(-self.clip, self.clip)


class OrnsteinUhlenbeck(NoiseExplorer):
    """Adds noise that wanders: `x <- x - theta x dt + sigma sqrt(dt) N(0, 1)`, from 0 wherever an episode begins.

    Where episodes begin is told by `TemporalAgent` (after an end, and with `reset=True`) and, for environments that
    restart at t = 0 of a frame stream, by `env/timestep` there. In a compact frame stream the row that ends an episode
    shows the next one already, and the noise begins anew one row later. A run that goes on in another workspace goes on
    with its noise.
    """

    def __init__(
        self,
        action: ActionSpec,
        sigma: float = 0.2,
        theta: float = 0.15,
        dt: float = 1.0,
        name: str | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(action, name, seed)
        self.dt = _within(dt, "dt", 0.0, math.inf)
        self.theta = _within(theta, "theta", 0.0, math.inf)
        if self.theta * self.dt >= 2.0:
            raise ValueError(f"theta * dt is {theta * dt}; from 2 on the noise grows without end")
        self.sigma = sigma
        self.noise: Tensor | None = None
        """What was added last, `[B, A]`, before scaling; None before the first row. May be set, to resume."""

    @property
    def sigma(self) -> float:
        """How much a step of dt = 1 adds, in units of half the range where there is one."""
        return self._sigma

    @sigma.setter
    def sigma(self, value: float) -> None:
        self._sigma = _within(value, "sigma", 0.0, math.inf)

    def step(self, ws: Workspace, t: int, *, stochastic: bool = True, reset: bool = False) -> None:
        if reset:
            self.noise = None
        if t == 0 and "env/timestep" in ws:
            self.reset(ws, t, ws.at("env/timestep", t) == 0)
        super().step(ws, t, stochastic=stochastic)

    def next_noise(self, action: Tensor) -> Tensor:
        before = self.noise
        if before is None or before.shape != action.shape or before.device != action.device:
            before = torch.zeros_like(action, requires_grad=False)
        added = self.normal(action) * (self.sigma * math.sqrt(self.dt))
        self.noise = before * (1.0 - self.theta * self.dt) + added
        return self.noise

    def reset(self, ws: Workspace, t: int, mask: Tensor) -> None:
        """Start from 0 where `mask` `[B]` is true."""
        if self.noise is not None and len(mask) == len(self.noise):
            self.noise = self.noise.masked_fill(mask.to(self.noise.device).unsqueeze(-1), 0.0)


class UniformActor(SeedableAgent):
    """Any action, each as likely as any other; one per row of the variable `like`, whatever it holds."""

    low: Tensor
    high: Tensor
    scale: Tensor

    def __init__(
        self,
        action: ActionSpec,
        like: str = "env/obs/policy",
        name: str | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(name, seed, rule="last")
        self.action = action
        self.reads, self.writes = (like,), ("action",)
        if action.kind == "continuous":
            _keep_limits(self, action)
            if not bool(torch.isfinite(self.low).all() and torch.isfinite(self.high).all()):
                raise ValueError(
                    f"the action has limits {action.low} to {action.high}; uniform actions need finite ones in every "
                    "dimension"
                )
        else:
            self.register_buffer("low", torch.tensor(action.start or (0,) * len(action.choices)), persistent=False)
            self.register_buffer("scale", torch.tensor(action.choices), persistent=False)

    def step(self, ws: Workspace, t: int) -> None:
        like = ws.at(self.reads[0], t)
        size = (len(like), len(self.action.names))
        unit = torch.rand(size, generator=self.generator(like.device), device=like.device)
        if self.action.kind == "continuous":
            action = torch.lerp(self.low, self.high, unit)
        else:
            action = self.low + torch.minimum((unit * self.scale).long(), self.scale - 1)
        ws.put(self.out("action"), t, action.squeeze(-1) if self.action.kind == "discrete" else action)


def _keep_limits(agent: SeedableAgent, action: ActionSpec) -> None:
    """Give the agent the buffers `low`, `high` and `scale`, `[A]` each."""
    if action.kind != "continuous":
        raise ValueError(f"{type(agent).__name__} needs a continuous action; this one is {action.kind}")
    low, high = torch.tensor(action.low), torch.tensor(action.high)
    bounded = torch.isfinite(low) & torch.isfinite(high)
    agent.register_buffer("low", low, persistent=False)
    agent.register_buffer("high", high, persistent=False)
    agent.register_buffer("scale", torch.where(bounded, (high - low) / 2, 1.0), persistent=False)


def _within(value: float, name: str, low: float, high: float) -> float:
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; it must lie in {low:g} to {high:g}")
    return float(value)
