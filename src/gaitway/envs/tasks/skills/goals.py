"""Tasks and goals of the skill environment as array code: which features are controlled, drawn how, rewarded how.

A *task* is a set of features, written as a subset string (`"0,3+4"`) or packed into an integer key: bit b is set where
the feature at position b of the task map is controlled. The key of a task is the same in every process and run, and
two strings that name the same features have the same one.

Goals are drawn in the middle of episodes, so their random numbers are a pure function of (seed of the episode, number
of the goal, number of the draw): SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
generators") read at any place. Nothing has to be stored to go on exactly, and no instance's goals depend on others.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from gaitway.envs.tasks.skills.goal_spaces import GoalSpace, subset_features

REWARDS = ("potential", "potential2", "potential3", "potential4", "distance", "sparse")
GOAL_SAMPLINGS = ("random", "uniform", "r", "r2", "q")
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SEED_LIMIT = 2**53
"""Seeds of episodes lie below this, so that float64 holds them exactly."""
MAX_FEATURES = 24
"""Features that tasks may control: keys below 2^24 are exact in float32 metrics, and tables of all keys fit memory."""
MAX_GROUPS = 16
"""Groups of features that tasks may combine: 65,535 tasks, each of which has a name."""


class TaskSet:
    """The tasks that can be made of a task map: K features at positions 0..K-1, 2^K keys.

    `members` [K] are the feature numbers by position. `groups` ("0", "3+4", ...) are what tasks are combined of and
    named by; without any, every feature is one. Every check that a goal space and a distribution over subsets need
    happens here, so that a mistake is found when the environment is made.
    """

    def __init__(self, space: GoalSpace, task_map: Mapping[str, int], groups: Sequence[str] = ()) -> None:
        self.space = space
        try:
            self.task_map = {str(feature): int(position) for feature, position in task_map.items()}
            features = [int(feature) for feature in self.task_map]
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"the task map is {dict(task_map)}; write numbers of features with their positions: {{'0': 0, '3': 1}}"
            ) from error
        if not features:
            raise ValueError("no feature is to be a goal; name at least one in feature_dist and in the task map")
        if sorted(self.task_map.values()) != list(range(len(features))):
            raise ValueError(
                f"the task map {self.task_map} must number its features 0 to {len(features) - 1}, each once"
            )
        if len(self.task_map) > MAX_FEATURES:
            raise ValueError(
                f"the task map numbers {len(self.task_map)} features, and tasks may control {MAX_FEATURES}; choose "
                "those that are to be goals by feature_dist and task_map"
            )
        self.members = np.array(sorted(features, key=lambda feature: self.task_map[str(feature)]))
        wrong = [feature for feature in self.members.tolist() if not space.is_controllable(feature)]
        if wrong:
            raise ValueError(
                f"features {wrong} of the task map cannot be controlled; goals exist for features with a range: "
                f"{[f for f in range(space.size) if space.is_controllable(f)]} of {dict(enumerate(space.names))}"
            )
        self.groups = tuple(groups) or tuple(map(str, sorted(self.members.tolist())))
        self._group_keys = {group: self.key_of(group) for group in self.groups}

    @property
    def num_keys(self) -> int:
        return 1 << len(self.members)

    def key_of(self, subset: str) -> int:
        """The key of a subset string; a feature outside the task map is a ValueError."""
        key = 0
        for feature in subset_features(subset):
            if not self.space.is_controllable(feature):
                raise ValueError(f"feature {feature} of subset {subset!r} cannot be controlled; see {self.space.names}")
            if str(feature) not in self.task_map:
                raise ValueError(
                    f"feature {feature} of subset {subset!r} is not in the task map {self.task_map}; give it the "
                    f"position {len(self.task_map)} there, or leave it out"
                )
            key |= 1 << self.task_map[str(feature)]
        return key

    def features_of(self, key: int) -> str:
        """The features of a key in ascending order, e.g. "0,3,4", for look-ups; `name_of` keeps groups together."""
        if not 0 < key < self.num_keys:
            raise ValueError(f"task key {key} does not exist; keys are 1 to {self.num_keys - 1}")
        return ",".join(str(f) for f in sorted(self.members.tolist()) if key >> self.task_map[str(f)] & 1)

    def name_of(self, key: int) -> str:
        """The key in group spelling, e.g. "0,3+4": the first combination of groups, by rank and then in their order,
        that controls these features. A task that no combination makes is spelt feature by feature.
        """
        flat = self.features_of(key)
        parts = {group: bits for group, bits in self._group_keys.items() if not bits & ~key}
        if _union(parts.values()) != key:
            return flat
        # groups that alone hold some feature are in every combination, which leaves little to search
        needed = [g for g in parts if _union(bits for other, bits in parts.items() if other != g) != key]
        left = [group for group in parts if group not in needed]
        for rank in range(len(left) + 1):
            for more in itertools.combinations(left, rank):
                if _union(parts[group] for group in (*needed, *more)) == key:
                    return ",".join(group for group in parts if group in needed or group in more)
        return flat

    def weights(self, feature_dist: Mapping[str, float]) -> np.ndarray:
        """Subset strings with weights that need not add up to 1 -> probability of every key [2^K]."""
        weights = np.zeros(self.num_keys)
        for subset, weight in feature_dist.items():
            if not (isinstance(weight, int | float) and math.isfinite(weight) and weight >= 0):
                raise ValueError(f"the weight of subset {subset!r} is {weight!r}; use a finite number of at least 0")
            weights[self.key_of(str(subset))] += weight
        if not weights.sum() > 0:
            raise ValueError(f"feature_dist {dict(feature_dist)} has no subset with a positive weight")
        return weights / weights.sum()

    def bits(self, keys: np.ndarray) -> np.ndarray:
        """Keys [n] -> 0 or 1 for every position of the task map, float64 [n, K]."""
        return ((keys[:, None] >> np.arange(len(self.members))) & 1).astype(np.float64)

    def mask(self, keys: np.ndarray) -> np.ndarray:
        """Keys [n] -> 0 or 1 for every feature of the goal space, float64 [n, size]."""
        mask = np.zeros((len(keys), self.space.size))
        mask[:, self.members] = self.bits(keys)
        return mask


def uniforms(seed: np.ndarray, first: np.ndarray, count: int, stream: int = 0) -> np.ndarray:
    """Numbers `first`..`first + count - 1` of the streams that `seed` [n] begins, float64 in [0, 1), [n, count].

    `seed` and `first` are non-negative integers [n]; `stream` tells apart what one seed is used for.
    """
    key = _mixed(seed.astype(np.uint64) + np.uint64(int(GOLDEN) * (stream + 1) % 2**64))
    place = first.astype(np.uint64)[:, None] + np.arange(1, count + 1, dtype=np.uint64)
    return (_mixed(key[:, None] + GOLDEN * place) >> np.uint64(11)) * 2.0**-53


def pick(weights: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """One index of the last axis per row: weights [m] or [n, m] (not all zero), uniform [n] in [0, 1) -> int64 [n]."""
    total = np.cumsum(weights, axis=-1)
    threshold = np.minimum(uniform * total[..., -1], np.nextafter(total[..., -1], 0.0))  # the product may round up
    if weights.ndim == 1:
        return np.searchsorted(total, threshold, side="right").astype(np.int64)
    return np.count_nonzero(total <= threshold[:, None], axis=-1)


def goal_reward(
    kind: str, before: np.ndarray, after: np.ndarray, start: np.ndarray, reached: np.ndarray, gamma: float
) -> np.ndarray:
    """Rewards [B] of one step from the distances to the goal before and after it and at the goal's start, all [B]."""
    if kind == "potential":
        return before - after
    if kind == "potential2":
        return before - gamma * after
    if kind == "potential3":
        return before - gamma * after + reached
    if kind == "potential4":
        return (before - after) / np.where(start > 0, start, 1.0)  # drawn exactly where the robot is: nothing to divide
    if kind == "distance":
        return -after
    return reached.astype(np.float64)


def length(difference: np.ndarray) -> np.ndarray:
    """Euclidean norm over the last axis, [..., n] -> [...]; the order of the sum does not depend on the rows."""
    squares = np.square(difference)
    total = squares[..., 0].copy()
    for column in range(1, difference.shape[-1]):
        total += squares[..., column]
    return np.sqrt(total)


def candidate_weights(
    kind: str, score: np.ndarray, distance: np.ndarray, slack_cost: float, decay: float
) -> np.ndarray:
    """How often each of m candidate goals is to be drawn, [n, m], from the model's score of each [n, m].

    `r` prefers goals that are seldom reached, `r2` those reached half of the time; both take the probability of
    reaching a goal. `q` takes the value of a goal and prefers little slack over `(distance - slack_cost) * decay`, with
    the distances [n, m] to the candidates, what the controls cost on the way and the discount at the horizon.
    """
    if kind == "r":
        return 1.0 / (np.clip(score, 0.0, 1.0) + 0.1)
    if kind == "r2":
        return np.tanh(2.0 * (1.0 - np.abs(2.0 * np.clip(score, 0.0, 1.0) - 1.0) + 0.1))
    slack = score - (distance - slack_cost) * decay
    return 1.0 / (slack - slack.min(axis=-1, keepdims=True) + 1.0)


def _union(keys: Iterable[int]) -> int:
    """All bits that any of the keys has."""
    return functools.reduce(operator.or_, keys, 0)


def _mixed(state: np.ndarray) -> np.ndarray:
    """The output function of SplitMix64 on uint64 arrays; products wrap around, as they must."""
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))
