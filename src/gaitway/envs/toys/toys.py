"""Tasks whose answers are known on paper, for tests, lessons and the first minutes with a new idea.

Each is a `Toy`; `TOYS` maps their ids to their classes, whose keyword arguments are the options of `make_env`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gaitway.core.ranges import Count, NotNegative, WholeNumber
from gaitway.envs.spec import ActionSpec, Component
from gaitway.envs.toys.point import PointBot
from gaitway.envs.toys.point_course import COURSES
from gaitway.envs.toys.toy_env import Toy

Array = np.ndarray
Reached = tuple[Array, Array, Array]
ONE, NEVER = np.array(1.0), np.array(False)
"""The reward of every instance, and the end of none."""


class Constant(Toy):
    """Sees 1, earns 1, is cut after 10 steps and never falls: V = 1 / (1 - gamma) if time-outs are handled right."""

    def __init__(self, max_episode_steps: WholeNumber = 10) -> None:
        self.options = _changed(max_episode_steps=(max_episode_steps, 10))
        self.max_episode_steps = _limit(max_episode_steps)
        self.groups = {"policy": (Component("one"),)}
        self.action = _continuous("ignored", 1.0)

    def draw(self, generator: np.random.Generator) -> Sequence[float]:
        return (1.0,)

    def advance(self, state: Array, action: Array) -> Reached:
        return state, state[:, 0], NEVER

    def observe(self, state: Array) -> dict[str, Array]:
        return {"policy": state}


class Cue(Toy):
    """Remember a sign: step 0 shows c = +-1, steps 1..K show t / K, and only the action of step K earns -(a - c)^2.

    State: c, t. Without memory the best return is -1, with memory 0.
    """

    def __init__(self, K: Count = 8) -> None:  # noqa: N803  the symbol of the literature
        if K < 1:
            raise ValueError(f"K is {K}; use at least 1 step between cue and answer")
        self.options = _changed(K=(K, 8))
        self.delay = K
        self.groups = {"policy": (Component("cue"), Component("clock"))}
        self.action = _continuous("answer", 2.0)

    def draw(self, generator: np.random.Generator) -> Sequence[float]:
        return (float(2 * generator.integers(2) - 1), 0.0)

    def advance(self, state: Array, action: Array) -> Reached:
        cue, step = state.T
        answering = step >= self.delay
        reward = np.where(answering, -((action[:, 0] - cue) ** 2), 0.0)
        return _columns(cue, step + 1), reward, answering

    def observe(self, state: Array) -> dict[str, Array]:
        cue, step = state.T
        return {"policy": _columns(np.where(step == 0, cue, 0.0), step / self.delay)}


class Pendulum(Toy):
    """Swing up and hold, as gymnasium Pendulum-v1: thdd = 15 sin th + 3 u. State: angle (0 is up), velocity."""

    def __init__(self, max_episode_steps: WholeNumber = 200) -> None:
        self.options = _changed(max_episode_steps=(max_episode_steps, 200))
        self.max_episode_steps = _limit(max_episode_steps)
        self.control_dt = 0.05
        self.groups = {"pos": (Component("cos"), Component("sin")), "vel": (Component("velocity", 1, "8 rad/s"),)}
        self.action = _continuous("torque", 2.0, "N m")

    def draw(self, generator: np.random.Generator) -> Sequence[float]:
        return (generator.uniform(-math.pi, math.pi), generator.uniform(-1.0, 1.0))

    def advance(self, state: Array, action: Array) -> Reached:
        angle, velocity = state.T
        torque = _clipped(action[:, 0], 2.0)
        upright = (angle + math.pi) % (2 * math.pi) - math.pi
        cost = upright**2 + 0.1 * velocity**2 + 0.001 * torque**2
        velocity = _clipped(velocity + (15.0 * np.sin(angle) + 3.0 * torque) * self.control_dt, 8.0)
        return _columns(angle + velocity * self.control_dt, velocity), -cost, NEVER

    def observe(self, state: Array) -> dict[str, Array]:
        angle, velocity = state.T
        return {"pos": _columns(np.cos(angle), np.sin(angle)), "vel": velocity[:, None] / 8.0}


class Oscillator(Toy):
    """A damped mass with a motor, qdd = 30 a - 2 qd, beside the reference q = 0.5 sin(2 pi t).

    State: q, qd, seconds along the reference. Episodes start on the reference at a random phase. The reward is
    exp(-4 (q - q_ref)^2 - 4 ((qd - qd_ref) / 2 pi)^2). Group `amp` holds the motion features, raw; the clip
    `oscillator` is one period of the reference.
    """

    def __init__(self, max_episode_steps: WholeNumber = 200) -> None:
        self.options = _changed(max_episode_steps=(max_episode_steps, 200))
        self.max_episode_steps = _limit(max_episode_steps)
        self.control_dt = 0.02
        features = (Component("position", 1, "m"), Component("velocity", 1, "m/s"))
        self.groups = {"policy": features, "phase": (Component("sin"), Component("cos")), "amp": features}
        self.action = _continuous("force", 1.0)
        self.facts = {"amp": {"joints": ["position"], "root": "fixed", "bodies": []}}
        self.metrics = ("tracking_error",)

    def draw(self, generator: np.random.Generator) -> Sequence[float]:
        seconds = generator.uniform(0.0, 1.0)
        angle = 2 * math.pi * seconds
        return (0.5 * math.sin(angle), math.pi * math.cos(angle), seconds)

    def advance(self, state: Array, action: Array) -> Reached:
        position, velocity, seconds = state.T
        force = _clipped(action[:, 0], 1.0)
        velocity = velocity + (30.0 * force - 2.0 * velocity) * self.control_dt
        position = position + velocity * self.control_dt
        seconds = seconds + self.control_dt
        reference, reference_velocity = oscillator_reference(seconds)
        error = (position - reference) ** 2 + ((velocity - reference_velocity) / (2 * math.pi)) ** 2
        return _columns(position, velocity, seconds), np.exp(-4.0 * error), NEVER

    def observe(self, state: Array) -> dict[str, Array]:
        angle = 2 * math.pi * state[:, 2]
        features = state[:, :2]
        return {"policy": features, "phase": _columns(np.sin(angle), np.cos(angle)), "amp": features}

    def measure(self, state: Array) -> dict[str, Array]:
        return {"tracking_error": np.abs(state[:, 0] - oscillator_reference(state[:, 2])[0])}


class CartPole(Toy):
    """Balance a pole by pushing the cart left or right; equations of Barto, Sutton and Anderson (1983), as gymnasium
    CartPole-v1. State: x, xd, th, thd, and the sum of |th| over the episode."""

    gravity, cart_mass, pole_mass, half_length, force = 9.8, 1.0, 0.1, 0.5, 10.0

    def __init__(self, max_episode_steps: WholeNumber = 500) -> None:
        self.options = _changed(max_episode_steps=(max_episode_steps, 500))
        self.max_episode_steps = _limit(max_episode_steps)
        self.control_dt = 0.02
        units = {"position": "m", "velocity": "m/s", "angle": "rad", "angular_velocity": "rad/s"}
        self.groups = {"policy": tuple(Component(name, 1, unit) for name, unit in units.items())}
        self.action = ActionSpec("discrete", ("push",), choices=(2,))
        self.metrics = ("angle", "angle_episode")
        mass = self.cart_mass + self.pole_mass
        self._pushes = np.array([-self.force, self.force]) / mass
        # arrays without axes, because NumPy takes longer to look at numbers of Python
        self._gravity, self._inertia = np.array(self.gravity), np.array(self.half_length * 4.0 / 3.0)
        self._moment = np.array(self.pole_mass * self.half_length / mass)
        self._ends = np.array([[2.4], [math.radians(12)]])
        self._clock = np.array([[self.control_dt]] * 4 + [[0.0]])  # how much of its rate each number of the state moves

    def draw(self, generator: np.random.Generator) -> Sequence[float]:
        return [*(generator.random(4) * 0.1 - 0.05).tolist(), 0.0]  # as `uniform` does it, in a quarter of the time

    def advance(self, state: Array, action: Array) -> Reached:
        rows = state.T
        _, x_velocity, angle, angular_velocity, total = rows
        sine, cosine = np.sin(angle), np.cos(angle)
        coupling = self._moment * cosine
        push = self._pushes.take(action) + self._moment * (angular_velocity**2 * sine)
        swing = (self._gravity * sine - cosine * push) / (self._inertia - coupling * cosine)
        thrust = push - coupling * swing
        reached = rows + self._clock * np.array((x_velocity, thrust, angular_velocity, swing, total))
        away = np.abs(reached[:3:2])  # of the cart from the middle, of the pole from upright
        reached[4] += away[1]
        outside = away > self._ends
        return reached.T, ONE, outside[0] | outside[1]

    def observe(self, state: Array) -> dict[str, Array]:
        return {"policy": state[:, :4]}

    def measure(self, state: Array) -> dict[str, Array]:
        return {"angle": np.abs(state[:, 2]), "angle_episode": state[:, 4]}


class Lock(Toy):
    """A combination lock: at each of `length` places one push in three goes on and the others lead back to the start.

    Opening it earns 1, nothing else earns anything: random pushes open it in one of 3^length tries. State: the place,
    seen one-hot. The combination is always the same.
    """

    def __init__(self, length: Count = 16, max_episode_steps: WholeNumber = 100) -> None:
        if length < 1:
            raise ValueError(f"length is {length}; a lock has at least 1 place")
        self.options = _changed(length=(length, 16), max_episode_steps=(max_episode_steps, 100))
        self.max_episode_steps = _limit(max_episode_steps)
        self.combination = np.random.default_rng(0).integers(3, size=length)
        self.groups = {"policy": tuple(Component(f"place_{place}") for place in range(length))}
        self.action = ActionSpec("discrete", ("push",), choices=(3,))
        self.metrics = ("place",)
        self._seen = np.eye(length + 1, length)  # nothing is seen of an open lock

    def draw(self, generator: np.random.Generator) -> Sequence[float]:
        return (0.0,)

    def advance(self, state: Array, action: Array) -> Reached:
        place = state[:, 0]
        reached = np.where(action == self.combination.take(place.astype(np.int64)), place + 1.0, 0.0)
        opened = reached == len(self.combination)
        return reached[:, None], opened.astype(np.float64), opened

    def observe(self, state: Array) -> dict[str, Array]:
        return {"policy": self._seen.take(state[:, 0].astype(np.int64), 0)}

    def measure(self, state: Array) -> dict[str, Array]:
        return {"place": state[:, 0]}


class Light(Toy):
    """Point at a light that wanders over a dark field: a camera sees it, and each step earns -|a - p|^2.

    State: position and velocity, in fields of 2 x 2 around 0; at the borders it turns back. Group `camera` holds 12 x
    12 bytes, `light` the position. Pointing at the middle always costs 1/3 per axis and step on average.
    """

    def __init__(self, max_episode_steps: WholeNumber = 20) -> None:
        self.options = _changed(max_episode_steps=(max_episode_steps, 20))
        self.max_episode_steps = _limit(max_episode_steps)
        self.control_dt = 0.05
        self.groups = {"light": (Component("x"), Component("y"))}
        self.pictures = {"camera": (1, 12, 12)}
        self.action = ActionSpec("continuous", ("x", "y"), (-1.5, -1.5), (1.5, 1.5))
        self._places = np.linspace(-1.0, 1.0, 12)

    def draw(self, generator: np.random.Generator) -> Sequence[float]:
        return generator.uniform(-1.0, 1.0, 4).tolist()

    def advance(self, state: Array, action: Array) -> Reached:
        x, y, x_velocity, y_velocity = state.T
        reward = -((action[:, 0] - x) ** 2) - (action[:, 1] - y) ** 2
        place = np.array((x + x_velocity * self.control_dt, y + y_velocity * self.control_dt))
        outside = np.abs(place) > 1.0
        speed = np.where(outside, -1.0, 1.0) * (x_velocity, y_velocity)
        return _columns(*_clipped(place, 1.0), *speed), reward, NEVER

    def observe(self, state: Array) -> dict[str, Array]:
        across, down = (np.exp(-30.0 * (self._places - state[:, at, None]) ** 2) for at in (0, 1))
        picture = 255.0 * down[:, None, :, None] * across[:, None, None, :]
        return {"light": state[:, :2], "camera": picture.astype(np.uint8)}


class ArmedBandit(Toy):
    """Arms with means 0 to 0.9 and normal noise, a pull per episode. State: the noise of the pull, which no one sees.

    With `swap_after` the best and the worst arm exchange their means from that pull of an instance on.
    """

    def __init__(self, arms: Count = 10, noise: NotNegative = 0.3, swap_after: WholeNumber = 0) -> None:
        if arms < 1:
            raise ValueError(f"arms is {arms}; a bandit has at least 1")
        self.options = _changed(arms=(arms, 10), noise=(noise, 0.3), swap_after=(swap_after, 0))
        self.means, self.noise, self.swap_after = np.linspace(0.0, 0.9, arms), noise, swap_after
        self.swapped_means = self.means.copy()
        self.swapped_means[[0, -1]] = self.means[[-1, 0]]
        self.groups = {"policy": (Component("nothing"),)}
        self.action = ActionSpec("discrete", ("arm",), choices=(arms,))
        self.metrics = ("mean",)
        self.memory = {}

    def attach(self, num_envs: int) -> None:
        self.memory = {"pulls": np.zeros(num_envs)}
        self._mean = np.zeros(num_envs)

    def before_reset(self) -> None:
        self.memory["pulls"][:] = 0.0

    def draw(self, generator: np.random.Generator) -> Sequence[float]:
        return (generator.standard_normal(),)

    def advance(self, state: Array, action: Array) -> Reached:
        pulls = self.memory["pulls"]
        swapped = (pulls >= self.swap_after) & (self.swap_after > 0)
        self._mean = np.where(swapped, self.swapped_means.take(action), self.means.take(action))
        pulls += 1.0
        return state, self._mean + self.noise * state[:, 0], np.ones(len(state), dtype=bool)

    def observe(self, state: Array) -> dict[str, Array]:
        return {"policy": np.zeros((len(state), 1))}

    def measure(self, state: Array) -> dict[str, Array]:
        return {"mean": self._mean}


class Chain(Toy):
    """Two states, cut on arrival: A earns -9 and leads to B, B earns 1 and stays.

    With gamma 0.9 and time-outs bootstrapped from the final observation V(B) = 10 and V(A) = -9 + 0.9 * 10 = 0;
    bootstrapping from the observation before the end gives V(A) = -90. State: 0 in A, 1 in B; starts are even odds.
    """

    def __init__(self, max_episode_steps: WholeNumber = 1) -> None:
        self.options = _changed(max_episode_steps=(max_episode_steps, 1))
        self.max_episode_steps = _limit(max_episode_steps)
        self.groups = {"policy": (Component("in_a"), Component("in_b"))}
        self.action = _continuous("ignored", 1.0)

    def draw(self, generator: np.random.Generator) -> Sequence[float]:
        return (float(generator.integers(2)),)

    def advance(self, state: Array, action: Array) -> Reached:
        return np.ones_like(state), np.where(state[:, 0] == 0, -9.0, 1.0), NEVER

    def observe(self, state: Array) -> dict[str, Array]:
        return {"policy": np.concatenate([1.0 - state, state], -1)}


TOYS: dict[str, Callable[..., Toy]] = {
    "point/skills": PointBot,
    **COURSES,
    "toy/constant": Constant,
    "toy/cue": Cue,
    "toy/pendulum": Pendulum,
    "toy/oscillator": Oscillator,
    "toy/cartpole": CartPole,
    "toy/light": Light,
    "toy/lock": Lock,
    "toy/chain": Chain,
    "toy/bandit": ArmedBandit,
}


def oscillator_reference(seconds: Array) -> tuple[Array, Array]:
    """Position and velocity of the reference motion of `toy/oscillator`, 1 Hz with amplitude 0.5."""
    angle = 2 * math.pi * seconds
    return 0.5 * np.sin(angle), math.pi * np.cos(angle)


def _columns(*columns: Array) -> Array:
    """Arrays `[B]` side by side, `[B, len(columns)]`, each of them contiguous."""
    return np.array(columns).T


def _clipped(values: Array, limit: float) -> Array:
    """In +- `limit`, as float64."""
    return np.minimum(np.maximum(values, -limit, dtype=np.float64), limit)


def _continuous(name: str, limit: float, unit: str = "") -> ActionSpec:
    return ActionSpec("continuous", (name,), (-limit,), (limit,), unit=unit)


def _limit(steps: int) -> int:
    if steps < 0:
        raise ValueError(f"max_episode_steps is {steps}; use a positive number, or 0 for no limit")
    return steps


def _changed(**options: tuple[Any, Any]) -> dict[str, Any]:
    """Options `name=(value, default)` that differ from their default."""
    return {name: value for name, (value, default) in options.items() if value != default}
