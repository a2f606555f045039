"""Tasks whose answers are known on paper, for tests, lessons and the first minutes with a new idea.

Each is a `Toy`; `TOYS` maps their ids to their classes, whose keyword arguments are the options of `make_env`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaitway.envs.toy_env import Toy
from gaitway.envs.vec_env import ActionSpec, Component, Observation


class Constant(Toy):
    """Sees 1, earns 1, is cut after 10 steps and never falls: V = 1 / (1 - gamma) if time-outs are handled right."""

    def __init__(self, max_episode_steps: int = 10) -> None:
        self.options = _changed(max_episode_steps=(max_episode_steps, 10))
        self.max_episode_steps = _limit(max_episode_steps)
        self.groups = {"policy": (Component("one"),)}
        self.action = _continuous("ignored", 1.0)

    def draw(self, generator: np.random.Generator) -> Sequence[float]:
        return (1.0,)

    def advance(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return state, state[:, 0], torch.zeros_like(state[:, 0], dtype=torch.bool)

    def observe(self, state: Tensor) -> Observation:
        return {"policy": state}


class Cue(Toy):
    """Remember a sign: step 0 shows c = +-1, steps 1..K show t / K, and only the action of step K earns -(a - c)^2.

    State: c, t. Without memory the best return is -1, with memory 0.
    """

    def __init__(self, K: int = 8) -> None:  # noqa: N803  the symbol of the literature
        if K < 1:
            raise ValueError(f"K is {K}; use at least 1 step between cue and answer")
        self.options = _changed(K=(K, 8))
        self.delay = K
        self.groups = {"policy": (Component("cue"), Component("clock"))}
        self.action = _continuous("answer", 2.0)

    def draw(self, generator: np.random.Generator) -> Sequence[float]:
        return (float(2 * generator.integers(2) - 1), 0.0)

    def advance(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        cue, step = state.unbind(-1)
        answering = step >= self.delay
        reward = torch.where(answering, -((action[:, 0].double() - cue) ** 2), 0.0)
        return torch.stack([cue, step + 1], -1), reward, answering

    def observe(self, state: Tensor) -> Observation:
        cue, step = state.unbind(-1)
        return {"policy": torch.stack([torch.where(step == 0, cue, 0.0), step / self.delay], -1)}


class Pendulum(Toy):
    """Swing up and hold, as gymnasium Pendulum-v1: thdd = 15 sin th + 3 u. State: angle (0 is up), velocity."""

    def __init__(self, max_episode_steps: int = 200) -> None:
        self.options = _changed(max_episode_steps=(max_episode_steps, 200))
        self.max_episode_steps = _limit(max_episode_steps)
        self.control_dt = 0.05
        self.groups = {"pos": (Component("cos"), Component("sin")), "vel": (Component("velocity", 1, "8 rad/s"),)}
        self.action = _continuous("torque", 2.0, "N m")

    def draw(self, generator: np.random.Generator) -> Sequence[float]:
        return (generator.uniform(-math.pi, math.pi), generator.uniform(-1.0, 1.0))

    def advance(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        angle, velocity = state.unbind(-1)
        torque = action[:, 0].double().clamp(-2.0, 2.0)
        upright = torch.remainder(angle + math.pi, 2 * math.pi) - math.pi
        cost = upright**2 + 0.1 * velocity**2 + 0.001 * torque**2
        velocity = (velocity + (15.0 * torch.sin(angle) + 3.0 * torque) * self.control_dt).clamp(-8.0, 8.0)
        reached = torch.stack([angle + velocity * self.control_dt, velocity], -1)
        return reached, -cost, torch.zeros_like(cost, dtype=torch.bool)

    def observe(self, state: Tensor) -> Observation:
        angle, velocity = state.unbind(-1)
        return {"pos": torch.stack([torch.cos(angle), torch.sin(angle)], -1), "vel": velocity[:, None] / 8.0}


class Oscillator(Toy):
    """A damped mass with a motor, qdd = 30 a - 2 qd, beside the reference q = 0.5 sin(2 pi t).

    State: q, qd, seconds along the reference. Episodes start on the reference at a random phase. The reward is
    exp(-4 (q - q_ref)^2 - 4 ((qd - qd_ref) / 2 pi)^2). Group `amp` holds the style features, raw.
    """

    def __init__(self, max_episode_steps: int = 200) -> None:
        self.options = _changed(max_episode_steps=(max_episode_steps, 200))
        self.max_episode_steps = _limit(max_episode_steps)
        self.control_dt = 0.02
        features = (Component("position", 1, "m"), Component("velocity", 1, "m/s"))
        self.groups = {"policy": features, "phase": (Component("sin"), Component("cos")), "amp": features}
        self.action = _continuous("force", 1.0)
        self.metrics = ("tracking_error",)

    def draw(self, generator: np.random.Generator) -> Sequence[float]:
        seconds = generator.uniform(0.0, 1.0)
        angle = 2 * math.pi * seconds
        return (0.5 * math.sin(angle), math.pi * math.cos(angle), seconds)

    def advance(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        position, velocity, seconds = state.unbind(-1)
        force = action[:, 0].double().clamp(-1.0, 1.0)
        velocity = velocity + (30.0 * force - 2.0 * velocity) * self.control_dt
        position = position + velocity * self.control_dt
        seconds = seconds + self.control_dt
        reference, reference_velocity = oscillator_reference(seconds)
        error = (position - reference) ** 2 + ((velocity - reference_velocity) / (2 * math.pi)) ** 2
        reached = torch.stack([position, velocity, seconds], -1)
        return reached, torch.exp(-4.0 * error), torch.zeros_like(error, dtype=torch.bool)

    def observe(self, state: Tensor) -> Observation:
        angle = 2 * math.pi * state[:, 2]
        features = state[:, :2]
        return {"policy": features, "phase": torch.stack([angle.sin(), angle.cos()], -1), "amp": features.clone()}

    def measure(self, state: Tensor) -> dict[str, Tensor]:
        return {"tracking_error": (state[:, 0] - oscillator_reference(state[:, 2])[0]).abs()}


class CartPole(Toy):
    """Balance a pole by pushing the cart left or right; equations of Barto, Sutton and Anderson (1983), as gymnasium
    CartPole-v1. State: x, xd, th, thd, and the sum of |th| over the episode."""

    gravity, cart_mass, pole_mass, half_length, force = 9.8, 1.0, 0.1, 0.5, 10.0

    def __init__(self, max_episode_steps: int = 500) -> None:
        self.options = _changed(max_episode_steps=(max_episode_steps, 500))
        self.max_episode_steps = _limit(max_episode_steps)
        self.control_dt = 0.02
        units = {"position": "m", "velocity": "m/s", "angle": "rad", "angular_velocity": "rad/s"}
        self.groups = {"policy": tuple(Component(name, 1, unit) for name, unit in units.items())}
        self.action = ActionSpec("discrete", ("push",), choices=(2,))
        self.metrics = ("angle", "angle_episode")

    def draw(self, generator: np.random.Generator) -> Sequence[float]:
        return (*generator.uniform(-0.05, 0.05, 4), 0.0)

    def advance(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, x_velocity, angle, angular_velocity, total = state.unbind(-1)
        force = torch.where(action == 1, self.force, -self.force).double()
        mass, moment = self.cart_mass + self.pole_mass, self.pole_mass * self.half_length
        sine, cosine = torch.sin(angle), torch.cos(angle)
        push = (force + moment * angular_velocity**2 * sine) / mass
        swing = self.gravity * sine - cosine * push
        swing = swing / (self.half_length * (4.0 / 3.0 - self.pole_mass * cosine**2 / mass))
        thrust = push - moment * swing * cosine / mass
        x, x_velocity = x + self.control_dt * x_velocity, x_velocity + self.control_dt * thrust
        angle = angle + self.control_dt * angular_velocity
        angular_velocity = angular_velocity + self.control_dt * swing
        fallen = (x.abs() > 2.4) | (angle.abs() > math.radians(12))
        reached = torch.stack([x, x_velocity, angle, angular_velocity, total + angle.abs()], -1)
        return reached, torch.ones_like(x), fallen

    def observe(self, state: Tensor) -> Observation:
        return {"policy": state[:, :4]}

    def measure(self, state: Tensor) -> dict[str, Tensor]:
        return {"angle": state[:, 2].abs(), "angle_episode": state[:, 4]}


class Chain(Toy):
    """Two states, cut on arrival: A earns -9 and leads to B, B earns 1 and stays.

    With gamma 0.9 and time-outs bootstrapped from the final observation V(B) = 10 and V(A) = -9 + 0.9 * 10 = 0;
    bootstrapping from the observation before the end gives V(A) = -90. State: 0 in A, 1 in B; starts are even odds.
    """

    def __init__(self, max_episode_steps: int = 1) -> None:
        self.options = _changed(max_episode_steps=(max_episode_steps, 1))
        self.max_episode_steps = _limit(max_episode_steps)
        self.groups = {"policy": (Component("in_a"), Component("in_b"))}
        self.action = _continuous("ignored", 1.0)

    def draw(self, generator: np.random.Generator) -> Sequence[float]:
        return (float(generator.integers(2)),)

    def advance(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        reward = torch.where(state[:, 0] == 0, -9.0, 1.0).double()
        return torch.ones_like(state), reward, torch.zeros_like(reward, dtype=torch.bool)

    def observe(self, state: Tensor) -> Observation:
        return {"policy": torch.cat([1.0 - state, state], -1)}


TOYS: dict[str, Callable[..., Toy]] = {
    "toy/constant": Constant,
    "toy/cue": Cue,
    "toy/pendulum": Pendulum,
    "toy/oscillator": Oscillator,
    "toy/cartpole": CartPole,
    "toy/chain": Chain,
}


def oscillator_reference(seconds: Tensor) -> tuple[Tensor, Tensor]:
    """Position and velocity of the reference motion of `toy/oscillator`, 1 Hz with amplitude 0.5."""
    angle = 2 * math.pi * seconds
    return 0.5 * torch.sin(angle), math.pi * torch.cos(angle)


def _continuous(name: str, limit: float, unit: str = "") -> ActionSpec:
    return ActionSpec("continuous", (name,), (-limit,), (limit,), unit=unit)


def _limit(steps: int) -> int:
    if steps < 0:
        raise ValueError(f"max_episode_steps is {steps}; use a positive number, or 0 for no limit")
    return steps


def _changed(**options: tuple[Any, Any]) -> dict[str, Any]:
    """Options `name=(value, default)` that differ from their default."""
    return {name: value for name, (value, default) in options.items() if value != default}
