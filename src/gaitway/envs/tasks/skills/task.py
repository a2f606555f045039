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
goal), `task_key` (the task as an integer, see `TaskSet.features_of`).

An episode's random numbers: state noise and one seed come from the stream of its instance; tasks, goals and `reset_p`
follow from that seed, the number of the goal and the step. The seed is part of the scenario.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import Batch

from gaitway.envs.batch_task import STAGE_POSITION, Arrays, Rows, SettledTask, resolve_options
from gaitway.envs.robots import world
from gaitway.envs.robots.registry import get_robot
from gaitway.envs.robots.robot import RobotView
from gaitway.envs.tasks.bisk.features import make_features
from gaitway.envs.tasks.skills.goal_spaces import goal_space, subset_features
from gaitway.envs.tasks.skills.goals import (
    SEED_LIMIT,
    candidate_weights,
    goal_reward,
    length,
    pick,
    uniforms,
)
from gaitway.envs.tasks.skills.groups import goal_width, observation_groups
from gaitway.envs.tasks.skills.options import HumanoidSkillConfig, SkillConfig, WalkerSkillConfig, make_tasks

GoalModel = Callable[[Arrays], np.ndarray]
"""Groups observation [m, .], desired_goal [m, K], task [m, K] (float32) -> score [m] of the policy's mean action: the
probability of reaching the goal for `r` and `r2`, the smaller of two values for `q`."""

ALL = slice(None)
NUM_CANDIDATES = 128
GOAL_STREAM, RESET_STREAM = 0, 1
DRAWS_PER_GOAL = 4096
"""Room for one task, 128 candidates of up to 31 features, and the choice among them."""
CONTROL_SHARE = 0.25
"""Expected square of an action, in the slack of goal sampling `q`."""


class SkillTask(SettledTask):
    """Goals for one robot; see the module's text. `tasks` translates between subset strings, keys and bits."""

    metrics = (
        *("reached_goal", "distance", "potential", "last_step_of_task", "soft_reset", "random_reset"),
        *("fell", "time", "task_key"),
    )
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
        self.tasks, self._initial_weights = make_tasks(robot, config, self.space)
        self.view = RobotView(self.robot, self.model)
        self.joints = make_features("joints", self.view)
        heading = "original" if config.compat == "original" else "corrected"
        self.features = make_features(config.features, self.view, heading)
        self.fields = tuple(dict.fromkeys(self.joints.fields + self.features.fields))
        # columns of the joint features that are shown, as slices between the hidden ones
        edges = [-1, *self.robot.horizontal_indices, self.joints.size]
        self._shown = [slice(low + 1, high) for low, high in itertools.pairwise(edges) if high > low + 1]
        self._goal_width = goal_width(config, self.tasks, self._initial_weights)
        self.groups = observation_groups(config, self.tasks, self.joints, self.features, self._goal_width)
        self._model: GoalModel | None = None

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        instances, size = batch.nsim, self.space.size
        self.memory |= {name: np.zeros((instances, size)) for name in ("features", "goal", "target", "mask")}
        self.memory |= {name: np.zeros(instances) for name in ("distance", "start_distance")}
        self.memory |= {name: np.zeros(instances, dtype=np.int64) for name in ("task_key", "time", "goals")}
        self.memory["task_weights"] = self._initial_weights.copy()
        self.memory["gamma"] = np.ones(1)
        self._joints = np.zeros((instances, self.joints.size))
        self._cut = np.zeros(instances, dtype=bool)
        self._kept_state = np.zeros_like(batch.state)

    def set_feature_dist(self, feature_dist: Mapping[str, float]) -> None:
        """Draw tasks by these weights from now on; goals being pursued stay. Subsets may be new, features may not."""
        weights = self.tasks.weights(feature_dist)
        widest = max(len(subset_features(subset)) for subset in feature_dist)
        if not self.config.backproject_goal and widest > self._goal_width:
            raise ValueError(
                f"a task of {widest} features does not fit desired_goal, which has {self._goal_width}; make the "
                "environment with the largest task, or with backproject_goal=true"
            )
        self.memory["task_weights"][:] = weights

    def set_model(self, model: GoalModel | None, gamma: float) -> None:
        """The model that weighs candidate goals (None: uniform goals), and the discount of potential2, potential3 and
        goal sampling `q`. The discount is part of the environment's state, the model is not."""
        if not 0 < gamma <= 1:
            raise ValueError(f"gamma is {gamma}; use a discount above 0 and up to 1")
        self._model = model
        self.memory["gamma"][:] = gamma

    def place_goals(self, rows: np.ndarray, keys: np.ndarray, goal: np.ndarray) -> None:
        """Let instances `rows` [n] pursue other tasks, `keys` [n], and goals [n, size] from now on.

        Goals are points in normalised units (delta features too: they count from nowhere) and are seen from the next
        step on.
        """
        memory, mask = self.memory, self.tasks.mask(keys)
        memory["task_key"][rows] = keys
        memory["mask"][rows] = mask
        memory["goal"][rows] = goal * mask
        memory["target"][rows] = self.space.back_project(goal * mask)
        distance = self._distance(goal, self.space.project(self.memory["features"][rows]), mask)
        memory["distance"][rows] = memory["start_distance"][rows] = distance
        memory["time"][rows] = 0

    def add_surroundings(self, spec: mujoco.MjSpec) -> None:
        super().add_surroundings(spec)
        world.add_accelerometer(spec, self.robot.torso)

    def draw_many(self, generators: Iterable[np.random.Generator], count: int) -> Arrays:
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
            self.memory["goals"][placed] = 0
        self._measure(numbers)
        self._next_goal(numbers)

    def outcome(self, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, metrics: Arrays) -> None:
        config, memory = self.config, self.memory
        self._measure(ALL)
        before, time = memory["distance"], memory["time"]
        after = self._distance(memory["goal"], self.space.project(memory["features"]), memory["mask"])
        reached = after < config.precision
        gamma = float(memory["gamma"][0])
        reward[:] = goal_reward(config.reward, before, after, memory["start_distance"], reached, gamma)
        if config.ctrl_cost:
            reward -= config.ctrl_cost * np.square(action).sum(axis=1)
        metrics["distance"][:] = after
        np.subtract(before, after, out=metrics["potential"])
        metrics["time"][:] = time
        metrics["task_key"][:] = memory["task_key"]
        before[:] = after

        done = time + 1 >= config.max_steps
        given_up = self._given_up() & ~reached & ~done if config.reset_p else np.zeros_like(done)
        done |= given_up
        if not config.full_episodes:
            done |= reached
        time += 1
        if config.allow_fallover:
            fell = np.zeros_like(done)
        else:
            fell = self.view.fallen(self.qpos)
            reward[fell] = config.fallover_penalty
            reached &= ~fell
            done |= fell
        ends = self._is_last_goal() | fell
        np.logical_and(done, ends, out=terminated)
        soft = done & ~terminated
        metrics["reached_goal"][:] = reached
        metrics["last_step_of_task"][:] = done
        metrics["soft_reset"][:] = soft
        metrics["random_reset"][:] = given_up
        metrics["fell"][:] = fell
        if not config.implicit_soft_resets:
            self._cut[:] = soft
        elif np.count_nonzero(soft):
            self._next_goal(np.flatnonzero(soft))

    def truncate(self, terminated: np.ndarray, truncated: np.ndarray) -> None:
        """Without implicit soft resets a goal's end ends the episode; the physical state is kept for the next one."""
        self._cut &= ~terminated
        if np.count_nonzero(self._cut):
            truncated |= self._cut
            self._kept_state[self._cut] = self.batch.state[self._cut]

    def observe(self, rows: Rows, out: Arrays) -> None:
        memory = self.memory
        features = memory["features"][rows]
        self._write_joints(rows, out["observation"])
        if self.config.backproject_goal:
            left = self.space.feature_difference(memory["target"][rows], features) * memory["mask"][rows]
            out["desired_goal"][:] = left[:, self.tasks.members]
        else:
            out["desired_goal"][:] = self._aligned(memory["goal"][rows], features, memory["mask"][rows])
        out["task"][:] = memory["mask"][rows][:, self.tasks.members]
        normalized = self.config.normalize_gs_observation
        out["gs_observation"][:] = self.space.project(features) if normalized else features

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

    def _distance(self, goal: np.ndarray, projected: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Distances [...] to goals [..., n]; features that a task leaves free do not count."""
        return length(self.space.goal_difference(goal, projected) * mask)

    def _given_up(self) -> np.ndarray:
        """Which goals `reset_p` ends in this step [B]; a draw per instance, goal and step."""
        place = self.memory["goals"] * self.config.max_steps + self.memory["time"]
        return uniforms(self.layout["goal_seed"], place, 1, RESET_STREAM)[:, 0] < self.config.reset_p

    def _is_last_goal(self) -> np.ndarray:
        """Whether the robot is placed anew after the present goal [B]."""
        interval = self.config.hard_reset_interval
        if interval == 0:
            return np.zeros(self.batch.nsim, dtype=bool)
        return self.memory["goals"] % interval == 0

    def _new_task(self, goals: np.ndarray) -> np.ndarray:
        """Whether goal number `goals` [n] of an episode, counted from 0, comes with a new task [n]."""
        interval = self.config.task_interval
        return goals % interval == 0 if interval else goals == 0

    def _next_goal(self, rows: np.ndarray) -> None:
        """Draw the next goals of `rows`, and where it is due their tasks, from the present features."""
        memory, size = self.memory, self.space.size
        goals = memory["goals"][rows]
        first, seed = goals * DRAWS_PER_GOAL, self.layout["goal_seed"][rows]
        drawn = uniforms(seed, first, 1 + size, GOAL_STREAM)
        keys = np.where(self._new_task(goals), pick(memory["task_weights"], drawn[:, 0]), memory["task_key"][rows])
        mask, projected = self.tasks.mask(keys), self.space.project(self.memory["features"][rows])
        if self.config.is_guided and self._model is not None:
            drawn = uniforms(seed, first, 2 + NUM_CANDIDATES * size, GOAL_STREAM)
            goal = self._guided(rows, drawn[:, 1:], mask, projected)
        else:
            goal = self._goals(drawn[:, 1:], projected)
        memory["goals"][rows] = goals + 1
        self.place_goals(rows, keys, goal)

    def _goals(self, uniform: np.ndarray, projected: np.ndarray) -> np.ndarray:
        """Draws in [0, 1) and projected features, both [..., n] -> goals over the whole range, from there if delta."""
        drawn = 2.0 * uniform - 1.0
        if self.config.zero_twist_goals:
            drawn[..., self.space.twist] = 0.0
        return self.space.absolute(drawn, projected)

    def _guided(self, rows: np.ndarray, uniform: np.ndarray, mask: np.ndarray, projected: np.ndarray) -> np.ndarray:
        """Goals [n, size] chosen among candidates by the model; `uniform` [n, 128 * size + 1]."""
        if self._model is None:
            raise RuntimeError("goals are guided by a model, and there is none; call set_model first")
        count, size = len(rows), self.space.size
        shape = (count, NUM_CANDIDATES, size)
        candidates = self._goals(uniform[:, :-1].reshape(shape), projected[:, None]) * mask[:, None]
        features = np.broadcast_to(self.memory["features"][rows][:, None], shape)
        masks = np.broadcast_to(mask[:, None], shape)
        if self.config.backproject_goal:
            left = self.space.feature_difference(self.space.back_project(candidates), features) * masks
            left = left[..., self.tasks.members]
        else:
            left = self._aligned(*(array.reshape(-1, size) for array in (candidates, features, masks)))
        joints = np.empty((count, self.groups[0].shape[0]), dtype=np.float32)
        self._write_joints(rows, joints)
        seen = {
            "observation": np.repeat(joints, NUM_CANDIDATES, axis=0),
            "desired_goal": left.reshape(count * NUM_CANDIDATES, -1).astype(np.float32),
            "task": np.repeat(mask[:, self.tasks.members], NUM_CANDIDATES, axis=0).astype(np.float32),
        }
        score = np.asarray(self._model(seen), dtype=np.float64)
        if score.shape != (count * NUM_CANDIDATES,) or not np.isfinite(score).all():
            raise ValueError(
                f"the model's scores have shape {score.shape} and must be {count * NUM_CANDIDATES} finite numbers"
            )
        config, gamma = self.config, float(self.memory["gamma"][0])
        distance = self._distance(candidates, projected[:, None], masks)
        cost = config.max_steps * config.ctrl_cost * CONTROL_SHARE * self.robot.nu
        score = score.reshape(count, NUM_CANDIDATES)
        weights = candidate_weights(config.goal_sampling, score, distance, cost, gamma**config.max_steps)
        return candidates[np.arange(count), pick(weights, uniform[:, -1])]

    def _aligned(self, goal: np.ndarray, features: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """What is left to go in normalised units, the controlled features first and in their order, [n, width]."""
        left = (goal - self.space.project(features)) * mask
        order = np.argsort(mask == 0.0, axis=1, kind="stable")[:, : self._goal_width]
        return np.take_along_axis(left, order, axis=1)

    def _write_joints(self, rows: Rows, out: np.ndarray) -> None:
        """The joint features without the hidden ones into `out` [n, 59 or 149]."""
        joints = self.joints.write(self, rows, self._joints[: len(out)])
        start = 0
        for columns in self._shown:
            stop = start + columns.stop - columns.start
            out[:, start:stop] = joints[:, columns]
            start = stop


def _make(robot: str, config: type[SkillConfig], options: Mapping[str, Any]) -> SkillTask:
    plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in options.items()}
    return SkillTask(robot, *resolve_options(config, f"{robot}/skills", plain))


def walker_skills(options: Mapping[str, Any]) -> SkillTask:
    return _make("walker", WalkerSkillConfig, options)


def humanoid_skills(options: Mapping[str, Any]) -> SkillTask:
    return _make("humanoid", HumanoidSkillConfig, options)


def humanoidpc_skills(options: Mapping[str, Any]) -> SkillTask:
    return _make("humanoidpc", HumanoidSkillConfig, options)
