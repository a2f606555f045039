"""Goals of many robots as array code: who pursues which, how far it is, what a step earns, when the next one comes.

`GoalLogic` knows nothing of a simulator. Its owner (`SkillTask` on MuJoCo, a toy) writes the features of its robots
into `memory["features"]` [B, n], says which robots fell, and does the hard resets. The rules are in the text of
`gaitway.envs.tasks.skills.task`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gaitway.envs.tasks.skills.goal_spaces import GoalSpace, subset_features
from gaitway.envs.tasks.skills.goals import candidate_weights, goal_reward, length, pick, uniforms
from gaitway.envs.tasks.skills.groups import goal_width
from gaitway.envs.tasks.skills.options import SkillConfig, make_tasks

Arrays = dict[str, np.ndarray]
Rows = slice | np.ndarray
"""All instances, `slice(None)`, or the sorted indices of some."""
GoalModel = Callable[[Arrays], np.ndarray]
"""Groups observation [m, .], desired_goal [m, K], task [m, K] (float32) -> score [m] of the policy's mean action: the
probability of reaching the goal for `r` and `r2`, the smaller of two values for `q`."""

METRICS = (
    *("reached_goal", "distance", "potential", "last_step_of_task", "soft_reset", "random_reset"),
    *("fell", "time", "task_key"),
)
NUM_CANDIDATES = 128
GOAL_STREAM, RESET_STREAM = 0, 1
DRAWS_PER_GOAL = 4096
"""Room for one task, 128 candidates of up to 31 features, and the choice among them; wider goal spaces take more."""
CONTROL_SHARE = 0.25
"""Expected square of an action, in the slack of goal sampling `q`."""
MAX_TRIALS = 10_000_000
"""Trials that a plan may hold."""
NOT_BEGUN = -1
NO_PLAN = np.empty(0, dtype=np.int64)


class GoalLogic:
    """The goals of B robots; `tasks` translates between subset strings, keys and bits.

    `memory` is all that is carried from step to step; the owner stores and restores it. `num_actions` is the size of an
    action.
    """

    memory: Arrays
    _seeds: np.ndarray
    _look: Callable[[np.ndarray], np.ndarray]

    def __init__(self, robot: str, config: SkillConfig, space: GoalSpace, num_actions: int) -> None:
        self.config, self.space, self.num_actions = config, space, num_actions
        self.tasks, feature_dist = make_tasks(robot, config, space)
        self._initial_weights = self.tasks.weights(feature_dist)
        self.goal_width = goal_width(config, self.tasks, self._initial_weights)
        self._initial_order = self._keys_in_order(feature_dist)
        self._model: GoalModel | None = None
        self._plan = NO_PLAN

    def attach(self, memory: Arrays, seeds: np.ndarray, look: Callable[[np.ndarray], np.ndarray]) -> None:
        """Put the arrays of as many robots as there are `seeds` [B] into `memory`.

        `seeds` is read whenever a goal is drawn: it holds the seed of each robot's episode. `look(rows)` gives the
        group `observation` of some robots, float32 [n, .].
        """
        instances, size = len(seeds), self.space.size
        memory |= {name: np.zeros((instances, size)) for name in ("features", "goal", "target", "mask")}
        memory |= {name: np.zeros(instances) for name in ("distance", "start_distance")}
        memory |= {name: np.zeros(instances, dtype=np.int64) for name in ("task_key", "time", "goals")}
        memory["task_weights"] = self._initial_weights.copy()
        memory["task_order"] = self._initial_order.copy()  # keys as feature_dist lists them, then zeros
        memory["gamma"] = np.ones(1)
        memory["plan_kinds"] = np.zeros_like(self._initial_order)  # keys of the tasks that are tried, then zeros
        memory["plan_per_kind"] = np.zeros(1, dtype=np.int64)  # 0: there is no plan
        memory["plan_place"] = np.full(instances, NOT_BEGUN)  # goals of the plan that were given out, by instance
        self.memory, self._seeds, self._look = memory, seeds, look

    def set_feature_dist(self, feature_dist: Mapping[str, float]) -> None:
        """Draw tasks by these weights from now on; goals being pursued stay. Subsets may be new, features may not."""
        if not isinstance(feature_dist, Mapping):
            raise ValueError(f"feature_dist is {feature_dist!r}; use a mapping from subsets to weights")
        weights = self.tasks.weights(feature_dist)
        widest = max(len(subset_features(str(subset))) for subset in feature_dist)
        if not self.config.backproject_goal and widest > self.goal_width:
            raise ValueError(
                f"a task of {widest} features does not fit desired_goal, which has {self.goal_width}; make the "
                "environment with the largest task, or with backproject_goal=true"
            )
        self.memory["task_weights"][:] = weights
        self.memory["task_order"][:] = self._keys_in_order(feature_dist)

    def set_model(self, model: GoalModel | None, gamma: float) -> None:
        """The model that weighs candidate goals (None: uniform goals), and the discount of potential2, potential3 and
        goal sampling `q`. The discount is part of the environment's state, the model is not."""
        if not 0 < gamma <= 1:
            raise ValueError(
                f"gamma is {gamma}; use a discount above 0 and up to 1: algorithm.gamma, or with auto_horizon a "
                "max_steps of at least 2"
            )
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
        distance = self._distance(goal, self.space.project(memory["features"][rows]), mask)
        memory["distance"][rows] = memory["start_distance"][rows] = distance
        memory["time"][rows] = 0

    def plan_trials(self, per_kind: int) -> dict[int, str]:
        """From the next reset on, give each task that is drawn now `per_kind` times, in an order that is always the
        same; 0 ends the plan. Returns the tasks, key -> name in group spelling, as feature_dist lists them.

        The plan is cut into B equal slices, m = ceil(length / B) goals each, the last ones shorter or empty. Instance i
        plays slice i goal after goal, whatever happens to the robot, and goes on with drawn tasks. Every reset begins
        the plan anew.
        """
        memory = self.memory
        order = memory["task_order"]
        kinds = order[memory["task_weights"][order] > 0]  # key 0 is no task and weighs 0
        most = MAX_TRIALS // len(kinds)
        if isinstance(per_kind, bool) or not isinstance(per_kind, int) or not 0 <= per_kind <= most:
            raise ValueError(f"per_kind is {per_kind!r}; use an integer from 0 (no plan) to {most}")
        kinds = kinds[: len(kinds) * (per_kind > 0)]
        memory["plan_kinds"][:] = 0
        memory["plan_kinds"][: len(kinds)] = kinds
        memory["plan_per_kind"][:] = per_kind
        memory["plan_place"][:] = NOT_BEGUN
        self.restore()
        return {key: self.tasks.name_of(key) for key in kinds.tolist()}

    def before_reset(self) -> None:
        """All robots are about to be placed anew."""
        if len(self._plan):
            self.memory["plan_place"][:] = 0

    def restore(self) -> None:
        """Make of `memory` what follows from it: the plan."""
        kinds = self.memory["plan_kinds"]
        self._plan = np.repeat(kinds[kinds > 0], int(self.memory["plan_per_kind"][0]))
        np.random.Generator(np.random.Philox(0)).shuffle(self._plan)

    def forget_goals(self, rows: np.ndarray) -> None:
        """The robots `rows` were placed anew: their next goal is the first one of an episode."""
        self.memory["goals"][rows] = 0

    def next_goals(self, rows: np.ndarray) -> None:
        """Draw the next goals of `rows`, and where it is due their tasks, from the present features."""
        memory, size = self.memory, self.space.size
        goals = memory["goals"][rows]
        first, seed = goals * max(DRAWS_PER_GOAL, 2 + NUM_CANDIDATES * size), self._seeds[rows]
        drawn = uniforms(seed, first, 1 + size, GOAL_STREAM)
        keys = np.where(self._new_task(goals), pick(memory["task_weights"], drawn[:, 0]), memory["task_key"][rows])
        if len(self._plan):
            self._follow_plan(rows, keys)
        mask, projected = self.tasks.mask(keys), self.space.project(memory["features"][rows])
        if self.config.is_guided and self._model is not None:
            drawn = uniforms(seed, first, 2 + NUM_CANDIDATES * size, GOAL_STREAM)
            goal = self._guided(rows, drawn[:, 1:], mask, projected)
        else:
            goal = self._goals(drawn[:, 1:], projected)
        memory["goals"][rows] = goals + 1
        self.place_goals(rows, keys, goal)

    def outcome(
        self,
        action: np.ndarray,
        fallen: np.ndarray,
        reward: np.ndarray,
        terminated: np.ndarray,
        metrics: Arrays,
        faulty: np.ndarray | None = None,
    ) -> np.ndarray:
        """Fill `reward`, `terminated` and every metric, [B] each, after a step that made the present features.

        `action` [B, A] is as it was given, `fallen` [B] says which robots lie, `faulty` [B] whose physics failed: that
        is a fall, even where falls are allowed. Goals that are over give way to the next ones. Without implicit soft
        resets they stay, and are returned [B]: their episodes are to be truncated.
        """
        config, memory = self.config, self.memory
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
        fell = np.zeros_like(done) if config.allow_fallover else fallen
        if faulty is not None:
            fell = fell | faulty
        reward[fell] = config.fallover_penalty
        reached &= ~fell
        done |= fell
        np.logical_and(done, self._is_last_goal() | fell, out=terminated)
        soft = done & ~terminated
        metrics["reached_goal"][:] = reached
        metrics["last_step_of_task"][:] = done
        metrics["soft_reset"][:] = soft
        metrics["random_reset"][:] = given_up
        metrics["fell"][:] = fell
        if not config.implicit_soft_resets:
            return soft
        if np.count_nonzero(soft):
            self.next_goals(np.flatnonzero(soft))
        return np.zeros_like(soft)

    def observe(self, rows: Rows, out: Arrays) -> None:
        """Write the groups `desired_goal`, `task` and `gs_observation` of `rows` into `out`."""
        memory = self.memory
        features, mask = memory["features"][rows], memory["mask"][rows]
        if self.config.backproject_goal:
            left = self.space.feature_difference(memory["target"][rows], features) * mask
            out["desired_goal"][:] = left[:, self.tasks.members]
        else:
            out["desired_goal"][:] = self._aligned(memory["goal"][rows], features, mask)
        out["task"][:] = mask[:, self.tasks.members]
        normalized = self.config.normalize_gs_observation
        out["gs_observation"][:] = self.space.project(features) if normalized else features

    def _distance(self, goal: np.ndarray, projected: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Distances [...] to goals [..., n]; features that a task leaves free do not count."""
        return length(self.space.goal_difference(goal, projected) * mask)

    def _given_up(self) -> np.ndarray:
        """Which goals `reset_p` ends in this step [B]; a draw per instance, goal and step."""
        place = self.memory["goals"] * self.config.max_steps + self.memory["time"]
        return uniforms(self._seeds, place, 1, RESET_STREAM)[:, 0] < self.config.reset_p

    def _is_last_goal(self) -> np.ndarray:
        """Whether the robot is placed anew after the present goal [B]."""
        goals, interval = self.memory["goals"], self.config.hard_reset_interval
        return goals % interval == 0 if interval else np.zeros(len(goals), dtype=bool)

    def _new_task(self, goals: np.ndarray) -> np.ndarray:
        """Whether goal number `goals` [n] of an episode, counted from 0, comes with a new task [n]."""
        interval = self.config.task_interval
        return goals % interval == 0 if interval else goals == 0

    def _follow_plan(self, rows: np.ndarray, keys: np.ndarray) -> None:
        """Write the next tasks of the plan into `keys` [n], where the slices of `rows` [n] are not used up."""
        place = self.memory["plan_place"][rows]
        share = -(-len(self._plan) // len(self._seeds))
        index = rows.astype(np.int64) * share + place
        is_planned = (place != NOT_BEGUN) & (place < share) & (index < len(self._plan))
        keys[is_planned] = self._plan[index[is_planned]]
        self.memory["plan_place"][rows] = place + is_planned

    def _keys_in_order(self, feature_dist: Mapping[str, float]) -> np.ndarray:
        """The keys of the subsets, each once, in the order in which they are listed, then zeros, [2^K]."""
        keys = list(dict.fromkeys(self.tasks.key_of(str(subset)) for subset in feature_dist))
        order = np.zeros(self.tasks.num_keys, dtype=np.int64)
        order[: len(keys)] = keys
        return order

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
        seen = {
            "observation": np.repeat(self._look(rows), NUM_CANDIDATES, axis=0),
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
        cost = config.max_steps * config.ctrl_cost * CONTROL_SHARE * self.num_actions
        score = score.reshape(count, NUM_CANDIDATES)
        weights = candidate_weights(config.goal_sampling, score, distance, cost, gamma**config.max_steps)
        return candidates[np.arange(count), pick(weights, uniform[:, -1])]

    def _aligned(self, goal: np.ndarray, features: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """What is left to go in normalised units, the controlled features first and in their order, [n, width]."""
        left = (goal - self.space.project(features)) * mask
        order = np.argsort(mask == 0.0, axis=1, kind="stable")[:, : self.goal_width]
        return np.take_along_axis(left, order, axis=1)
