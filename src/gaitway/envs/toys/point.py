"""`point/skills`: the goals of `walker/skills` for a robot that is four equations, for tests and first experiments.

The robot hovers over an endless floor between z = 0 and a ceiling at z = 1 m. Four actuators set the speeds that it
tends to, along x, along y, up, and around the vertical axis; with time constants tau

    v' = (limit u - v) / tau                  u: the action, clipped to -1..1

Its body sways on a spring: pushes along x incline it a little, and hitting floor or ceiling kicks it. Above a tilt of
0.8 rad it falls over. A robot that dives for a low goal at full speed reaches it, and falls during the next one: only
who values what comes after the goal learns to brake.

    tilt'' = -w^2 tilt - 2 zeta w tilt' + push u_x,     tilt' += kick |z'| where it hits

The heading is the angle of a hinge without stops: turn after turn it counts on. Episodes begin at rest at any height,
somewhere within `start_range`, and after up to `start_turns` turns: goals that count from the origin of the world, and
headings that do not wrap, are out of reach. Groups, metrics and all other options are those of
`gaitway.envs.tasks.skills.task`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gaitway.envs.spec import ActionSpec, Component
from gaitway.envs.task_options import resolve_options
from gaitway.envs.tasks.skills.facts import skill_facts
from gaitway.envs.tasks.skills.goal_logic import METRICS, GoalLogic, GoalModel
from gaitway.envs.tasks.skills.goal_spaces import goal_space
from gaitway.envs.tasks.skills.goals import SEED_LIMIT
from gaitway.envs.tasks.skills.groups import observation_groups
from gaitway.envs.tasks.skills.options import PointSkillConfig
from gaitway.envs.toys.toy_env import Toy

ALL = slice(None)
Z, HEADING = 2, 3
POSITION, VELOCITY, TILT, TILT_RATE, SEED = slice(0, 4), slice(4, 8), 8, 9, 10
"""Columns of the states: x, y, z, heading; their rates; the tilt and its rate; the seed of the episode's goals."""
DT = 0.05
LIMIT = np.array([[1.0], [1.0], [1.0], [2.0]])
"""Largest speeds, m/s and rad/s."""
RESPONSE = DT / np.array([[0.15], [0.15], [0.3], [0.15]])
"""Share of the way to the set speed that one step makes."""
CEILING = 1.0
SWAY, DAMPING, PUSH, KICK = 4.0, 0.2, 3.2, 12.0
MAX_TILT = 0.8
BODY_UNITS = {
    **{"z": "m", "cos_heading": "", "sin_heading": "", "x_velocity": "m/s", "y_velocity": "m/s"},
    **{"z_velocity": "m/s", "turn_rate": "rad/s", "tilt": "rad", "tilt_rate": "rad/s"},
}
"""What is seen of the body, and in which units."""
ZERO_RATES = (0.0,) * 6
"""Velocities, tilt and its rate of a robot at rest."""


class PointBot(Toy):
    """A point with a heading hovers over a floor and reaches one goal after the other: `walker/skills` as a toy."""

    metrics = METRICS
    control_dt = DT
    memory: dict[str, np.ndarray]
    action = ActionSpec("continuous", ("x", "y", "lift", "turn"), (-1.0,) * 4, (1.0,) * 4)

    def __init__(self, **options: Any) -> None:
        plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in options.items()}
        self.config, self.options = resolve_options(PointSkillConfig, "point/skills", plain)
        self.space = goal_space(self.config.features, "point")
        self.logic = GoalLogic("point", self.config, self.space, len(self.action.names))
        self.tasks = self.logic.tasks
        seen = tuple(Component(name, 1, unit) for name, unit in BODY_UNITS.items())
        named = tuple(Component(*each) for each in zip(self.space.names, (1,) * 4, self.space.units, strict=True))
        groups = observation_groups(self.config, self.tasks, seen, named, self.logic.goal_width)
        self.groups = {group.name: group.components for group in groups}
        self.facts = skill_facts(self.logic, "point", "", DT)
        self.memory = {}

    def attach(self, num_envs: int) -> None:
        if self.memory:
            raise ValueError("this point/skills toy already belongs to an environment; make a new one for each")
        self._seeds = np.zeros(num_envs)
        self._metrics = {name: np.zeros(num_envs) for name in METRICS}
        self._out = {name: np.zeros((num_envs, len(components))) for name, components in self.groups.items()}
        self._cut = np.zeros(num_envs, dtype=bool)
        self._state = np.zeros((num_envs, SEED + 1), order="F")
        self.logic.attach(self.memory, self._seeds, self._look)

    def set_feature_dist(self, feature_dist: Mapping[str, float]) -> None:
        """Draw tasks by these weights from now on; see `GoalLogic.set_feature_dist`."""
        self.logic.set_feature_dist(feature_dist)

    def set_model(self, model: GoalModel | None, gamma: float) -> None:
        """The model that weighs candidate goals, and the discount; see `GoalLogic.set_model`."""
        self.logic.set_model(model, gamma)

    def place_goals(self, rows: np.ndarray, keys: np.ndarray, goal: np.ndarray) -> None:
        """Give instances other tasks and goals; see `GoalLogic.place_goals`."""
        self.logic.place_goals(rows, keys, goal)

    def plan_trials(self, per_kind: int) -> dict[int, str]:
        """From the next reset on, play every task so many times; see `GoalLogic.plan_trials`."""
        return self.logic.plan_trials(per_kind)

    def draw(self, generator: np.random.Generator) -> Sequence[float]:
        metres, turns = self.config.start_range, self.config.start_turns
        x, y, heading, z = generator.random(4).tolist()
        place = (metres * (2 * x - 1), metres * (2 * y - 1), CEILING * z, 2 * math.pi * turns * (2 * heading - 1))
        return (*place, *ZERO_RATES, float(generator.integers(SEED_LIMIT)))

    def before_reset(self) -> None:
        self.logic.before_reset()

    def start(self, state: np.ndarray, rows: np.ndarray) -> None:
        kept, placed = rows[self._cut[rows]], rows[~self._cut[rows]]
        state[kept, :SEED] = self._state[kept, :SEED]  # the next goal of robots that stay as they are
        self._cut[kept] = False
        self.logic.forget_goals(placed)
        self._seeds[rows] = state[rows, SEED]
        self._measure(state)
        self.logic.next_goals(rows)

    def restore(self, state: np.ndarray) -> None:
        self._seeds[:] = state[:, SEED]
        self._cut[:] = False
        self._measure(state)
        self.logic.restore()

    def advance(self, state: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        reached = moved(state, action)
        reward, terminated = np.empty(len(state)), np.empty(len(state), dtype=bool)
        self._measure(reached)
        fallen = np.abs(reached[:, TILT]) > MAX_TILT
        self._cut[:] = self.logic.outcome(action, fallen, reward, terminated, self._metrics)
        return reached, reward, terminated

    def truncate(self, terminated: np.ndarray, truncated: np.ndarray) -> None:
        truncated |= self._cut

    def observe(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return self._seen(ALL)

    def observe_rows(self, state: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
        return self._seen(rows)

    def measure(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return self._metrics

    def _measure(self, state: np.ndarray) -> None:
        """The robots are where `state` says."""
        self._state = state
        self.memory["features"][:] = state[:, POSITION]

    def _seen(self, rows: slice | np.ndarray) -> dict[str, np.ndarray]:
        count = len(self._state) if isinstance(rows, slice) else len(rows)
        out = {name: array[:count] for name, array in self._out.items()}
        self._write_body(rows, out["observation"])
        self.logic.observe(rows, out)
        return out

    def _look(self, rows: np.ndarray) -> np.ndarray:
        seen = np.empty((len(rows), self._out["observation"].shape[1]), dtype=np.float32)
        self._write_body(rows, seen)
        return seen

    def _write_body(self, rows: slice | np.ndarray, out: np.ndarray) -> None:
        write_body(self._state[rows], out)


def write_body(state: np.ndarray, out: np.ndarray) -> None:
    """What is seen of the body of states [B, 11], [B, 9]: everything but where the robot is on the floor."""
    out[:, 0] = state[:, Z]
    np.cos(state[:, HEADING], out=out[:, 1], casting="same_kind")
    np.sin(state[:, HEADING], out=out[:, 2], casting="same_kind")
    out[:, 3:] = state[:, VELOCITY.start : SEED]


def moved(state: np.ndarray, action: np.ndarray) -> np.ndarray:
    """States [B, 11] one step later; `action` [B, 4] is clipped here. Columns of the result are contiguous."""
    rows = state.T
    control = np.minimum(np.maximum(action.T, -1.0, dtype=np.float64), 1.0)
    reached = np.empty_like(rows, order="C")
    velocity, position = reached[VELOCITY], reached[POSITION]
    velocity[:] = rows[VELOCITY] + RESPONSE * (LIMIT * control - rows[VELOCITY])
    position[:] = rows[POSITION] + DT * velocity
    height = np.minimum(np.maximum(position[Z], 0.0), CEILING)
    hits = height != position[Z]
    impact = np.abs(velocity[Z]) * hits
    velocity[Z] *= ~hits
    position[Z] = height
    tilt, rate = rows[TILT], rows[TILT_RATE]
    pull = PUSH * control[0] - SWAY**2 * tilt - 2 * DAMPING * SWAY * rate
    reached[TILT_RATE] = rate + DT * pull + KICK * impact
    reached[TILT] = tilt + DT * reached[TILT_RATE]
    reached[SEED] = rows[SEED]
    return reached.T
