"""The goal-reaching skill environment: one robot on a flat floor is given one goal after the other.

A goal is a point in the space of some of the robot's features (the *task*): "torso at 1.1 m", or "left foot 20 cm ahead
of the torso and 10 cm up". It is drawn from where the robot is, lasts until it is reached or `max_steps` are over, and
is followed by the next one *without touching the robot*: a soft reset. Only a fall or the end of the goal number
`hard_reset_interval` is followed by a hard reset, which places the robot anew. Skills learnt this way can be chained.
Definitions follow HSD-3 (Gehring et al. 2021, arXiv 2110.10809).

| group | size | content |
|---|---|---|
| `observation` | Walker 59, Humanoids 149 | `joints` features without those that tell where in the world the robot is |
| `desired_goal` | K | what is left to go, in feature units; angles wrapped; 0 for features that the task leaves free |
| `task` | K | 1 for features that the task controls |
| `gs_observation` | Walker 7, Humanoids 12 | the features themselves; for diagnosis, not for networks |

Distances are Euclidean in normalised units, in which the range of each feature is [-1, 1]; the goal is reached below
`precision`.

**What a stream of steps shows.** A soft reset is part of the dynamics: neither `terminated` nor `truncated`, the
episode goes on, and both `obs` and `final_obs` carry the next goal, so that a critic bootstraps through the change of
goals, as the published learner does. Reward and metrics belong to the goal that was pursued in the step. Where an
episode ends (a fall, the last goal: both `terminated`), `final_obs` carries the old goal and `obs` the first one of the
new episode. With `implicit_soft_resets=False` every goal is an episode of its own: its end is `truncated`, `final_obs`
carries the old goal, and `obs` the next one in the same physical state.

Metrics, all of the step's own goal: `reached_goal`, `distance` (after the step), `potential` (distance before - after),
`last_step_of_task`, `soft_reset`, `random_reset` (given up by `reset_p`), `fell`, `time` (0 in the first step of a
goal), `task_key` (the task as an integer, see `TaskSet.name_of`). A fault of the physics ends the goal as a fall does,
unreached; `fell` is 0, and `physics_error` 1.

For evaluations `plan_trials` lets the next goals follow a plan, so many of each task; `EnvSpec.facts["trials"]` names
the metrics that tell where a trial ends, which task it was and how it went.

An episode's random numbers: state noise and one seed come from the stream of its instance; tasks, goals and `reset_p`
follow from that seed, the number of the goal and the step. The seed is part of the scenario.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import Batch

from gaitway.envs.batch_task import STAGE_POSITION, Arrays, Rows, SettledTask
from gaitway.envs.episode_numbers import ALL
from gaitway.envs.robots import world
from gaitway.envs.robots.registry import get_robot
from gaitway.envs.robots.robot import RobotView
from gaitway.envs.spec import Component
from gaitway.envs.task_options import resolve_options
from gaitway.envs.tasks.bisk.features import FEET, Features, make_features
from gaitway.envs.tasks.skills.facts import skill_facts
from gaitway.envs.tasks.skills.goal_logic import METRICS, GoalLogic, GoalModel
from gaitway.envs.tasks.skills.goal_spaces import goal_space
from gaitway.envs.tasks.skills.goals import SEED_LIMIT
from gaitway.envs.tasks.skills.groups import observation_groups
from gaitway.envs.tasks.skills.marks import add_goal_marks, put_goal_marks
from gaitway.envs.tasks.skills.options import HumanoidSkillConfig, SkillConfig, WalkerSkillConfig


class SkillTask(SettledTask):
    """Goals for one robot; see the module's text. `logic` gives and judges them."""

    metrics = METRICS
    fault_metrics = ("task_key", "time", "last_step_of_task")
    senses_last = True
    stage = STAGE_POSITION  # features read positions of bodies, which lag one substep behind otherwise
    max_episode_steps = 0
    layout_shapes: Mapping[str, tuple[int, ...]] = {"settle": (), "goal_seed": ()}

    def __init__(self, robot: str, config: SkillConfig, options: Mapping[str, Any]) -> None:
        self.id = f"{robot}/skills"
        self.config = config
        self.options = options
        self.robot = get_robot(robot)
        self.fault_reward = config.fallover_penalty
        self.space = goal_space(config.features, robot)
        self.logic = GoalLogic(robot, config, self.space, self.robot.nu)
        self.tasks = self.logic.tasks
        self.view = RobotView(self.robot, self.model)
        self.joints = make_features("joints", self.view)
        heading = "original" if config.compat == "original" else "corrected"
        self.features = make_features(config.features, self.view, heading)
        self.fields = tuple(dict.fromkeys(self.joints.fields + self.features.fields))
        # columns of the joint features that are shown, as slices between the hidden ones
        edges = [-1, *self.robot.horizontal_indices, self.joints.size]
        self._shown = [slice(low + 1, high) for low, high in itertools.pairwise(edges) if high > low + 1]
        shown = _shown_components(self.joints)
        parts, width = self.features.components, self.logic.goal_width
        self.groups = observation_groups(config, self.tasks, shown, parts, width, self.features.heading)
        self.facts = skill_facts(self.logic, robot, self.features.heading, self.control_dt)

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        self.logic.attach(self.memory, self.layout["goal_seed"], self._look)
        self._joints = np.zeros((batch.nsim, self.joints.size))
        self._cut = np.zeros(batch.nsim, dtype=bool)
        self._kept_state = np.zeros_like(batch.state)

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

    def add_surroundings(self, spec: mujoco.MjSpec) -> None:
        super().add_surroundings(spec)
        world.add_accelerometer(spec, self.robot.torso)

    def build(self, decorated: bool = False) -> mujoco.MjModel:
        if not decorated:
            return super().build()
        spec = self.robot.spec()
        self.add_surroundings(spec)
        world.decorate(spec, self.robot.torso)
        add_goal_marks(spec)
        return world.compile_model(spec)

    def dress(self, index: int, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        mujoco.mj_kinematics(model, data)
        memory = self.memory
        features, mask = memory["features"][index], memory["mask"][index] > 0
        left = self.space.feature_difference(memory["target"][index], features)
        origin = FEET.get(self.robot.name, (self.robot.torso,))[0]
        now = dict(zip(self.space.names, features, strict=True))
        asked = {name: way for name, way, bit in zip(self.space.names, left, mask, strict=True) if bit}
        put_goal_marks(model, data, self.robot.torso, origin, self.features.heading, now, asked)

    def draw_many(self, generators: Iterable[np.random.Generator], rows: np.ndarray) -> Arrays:
        count = len(rows)
        uniform, normal = np.empty((count, self.robot.nq)), np.empty((count, self.robot.nv))
        seeds = np.empty(count)
        for row, generator in enumerate(generators):
            generator.random(out=uniform[row])
            generator.standard_normal(out=normal[row])
            seeds[row] = generator.integers(SEED_LIMIT)
        qpos, qvel = self.robot.first_states(uniform, normal)
        return {"qpos": qpos, "qvel": qvel, "settle": np.ones(count), "goal_seed": seeds}

    def check_scenario(self, given: Mapping[str, np.ndarray]) -> None:
        super().check_scenario(given)
        seed = given.get("goal_seed")
        if seed is not None and not ((seed >= 0) & (seed < SEED_LIMIT) & (seed == np.floor(seed))).all():
            raise ValueError(f"scenario field 'goal_seed' of {self.id} takes integers from 0 to {SEED_LIMIT - 1}")

    def before_reset(self) -> None:
        self.logic.before_reset()

    def restore(self) -> None:
        self.logic.restore()

    def start(self, rows: Rows) -> None:
        numbers = np.arange(self.batch.nsim, dtype=np.int32)[rows]
        kept, placed = numbers[self._cut[numbers]], numbers[~self._cut[numbers]]
        self._cut[kept] = False
        if len(kept):  # the next goal of robots that stay as they are
            self.batch.state[kept] = self._kept_state[kept]
            self.layout["settle"][kept] = 0.0
        self.note_start(numbers)
        if len(placed):
            self.settle_new(placed)
            self.logic.forget_goals(placed)
        self._measure(numbers)
        self.logic.next_goals(numbers)

    def outcome(self, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, metrics: Arrays) -> None:
        self._measure(ALL)
        fallen = self.view.fallen(self.qpos)
        self._cut[:] = self.logic.outcome(action, fallen, reward, terminated, metrics, self.faulty)

    def truncate(self, terminated: np.ndarray, truncated: np.ndarray) -> None:
        """Without implicit soft resets a goal's end ends the episode; the physical state is kept for the next one."""
        self._cut &= ~terminated
        if np.count_nonzero(self._cut):
            truncated |= self._cut
            self._kept_state[self._cut] = self.batch.state[self._cut]

    def observe(self, rows: Rows, out: Arrays) -> None:
        self._write_joints(rows, out["observation"])
        self.logic.observe(rows, out)

    def settle(self, numbers: np.ndarray) -> None:
        """One control step, or `idle_steps`, as the benchmark does."""
        self.move(numbers, max(1, self.config.idle_steps) * self.frame_skip)

    def _measure(self, rows: Rows) -> None:
        """Refresh the features of `rows`."""
        heights = self.qpos[rows][:, self.view.height] if self.features.relative_height else None
        if isinstance(rows, slice):
            self.features.write(self, rows, self.memory["features"], heights)
        else:
            self.memory["features"][rows] = self.features.write(
                self, rows, np.empty((len(rows), self.space.size)), heights
            )

    def _write_joints(self, rows: Rows, out: np.ndarray) -> None:
        """The joint features without the hidden ones into `out` [n, 59 or 149]."""
        joints = self.joints.write(self, rows, self._joints[: len(out)])
        start = 0
        for columns in self._shown:
            stop = start + columns.stop - columns.start
            out[:, start:stop] = joints[:, columns]
            start = stop

    def _look(self, rows: np.ndarray) -> np.ndarray:
        """What is seen of the joints of `rows`, float32 [n, 59 or 149]."""
        seen = np.empty((len(rows), *self.groups[0].shape), dtype=np.float32)
        self._write_joints(rows, seen)
        return seen


def _shown_components(joints: Features) -> tuple[Component, ...]:
    """The components of the joint features that do not tell where in the world the robot is."""
    shown, start = [], 0
    for component in joints.components:
        if start not in joints.view.robot.horizontal_indices:  # such components have size 1
            shown.append(component)
        start += component.size
    return tuple(shown)


def _make(robot: str, config: type[SkillConfig], options: Mapping[str, Any]) -> SkillTask:
    plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in options.items()}
    return SkillTask(robot, *resolve_options(config, f"{robot}/skills", plain))


def walker_skills(options: Mapping[str, Any]) -> SkillTask:
    return _make("walker", WalkerSkillConfig, options)


def humanoid_skills(options: Mapping[str, Any]) -> SkillTask:
    return _make("humanoid", HumanoidSkillConfig, options)


def humanoidpc_skills(options: Mapping[str, Any]) -> SkillTask:
    return _make("humanoidpc", HumanoidSkillConfig, options)
