"""Goal spaces of skills: which features can be goals, in which range, and how sets of them are written.

A feature s in its range [lo, hi] is *projected* to u in [-1, 1]: with w = hi - lo + 1e-7

    u = psi s + offset,   psi = 2 / w,   offset = -2 lo / w - 1,      and back   s = u / psi + offset1

A subset of features is written as groups: `0#3+4` are two groups, feature 0 and features 3 and 4 together; combining r
of them gives a goal space of rank r, written `0,3+4`. Ranges and grammar are those of HSD-3 (Gehring et al. 2021, arXiv
2110.10809); features are `bodyfeet` of `gaitway.envs.tasks.bisk.features`, and `body` of the toy robot `point`.
"""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gaitway.core.config import did_you_mean

WIDTH_GUARD = 1e-7
"""Added to the width of a range, so that an empty one does not divide by zero."""
TORSO_PREFIXES = (":", "torso:", "root")


class GoalSpace:
    """Names and ranges of n goal features. Arrays have any leading shape `...`, usually [B].

    `delta` features have goals relative to where the robot was when the goal was drawn; `twist` features are angles
    that wrap. Both need ranges symmetric about 0. `psi` [n, n] (rows: goal dimensions) and `offset` [n] follow from the
    ranges unless given: a learned linear combination of features takes any invertible matrix, in which the rows of
    twist features stay diagonal. `units` are those of the features ("m", "rad"), "" where there is none.
    """

    def __init__(
        self,
        names: Sequence[str],
        low: Sequence[float],
        high: Sequence[float],
        delta: Sequence[int] = (),
        twist: Sequence[int] = (),
        psi: np.ndarray | None = None,
        offset: np.ndarray | None = None,
        units: Sequence[str] = (),
    ) -> None:
        self.names = tuple(names)
        self.units = tuple(units) or ("",) * len(self.names)
        try:
            self.low, self.high = np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"the ranges of {self.names} are {low!r} to {high!r}; use a number per feature") from error
        self.delta, self.twist = list(delta), list(twist)
        self._check_ranges()
        width = self.high - self.low + WIDTH_GUARD
        self.psi = np.diag(2.0 / width) if psi is None else np.array(psi, dtype=np.float64)
        self.offset = -2.0 * self.low / width - 1.0 if offset is None else np.array(offset, dtype=np.float64)
        self._given = {"psi": psi is not None, "offset": offset is not None}
        self._check_projection()
        self._scale = np.diag(self.psi).copy()
        self._is_diagonal = not np.count_nonzero(self.psi - np.diag(self._scale))
        try:
            self._inverse = np.linalg.inv(self.psi)
        except np.linalg.LinAlgError as error:
            raise ValueError(
                "psi cannot be inverted, so no goal says where features are to go; make its rows independent"
            ) from error
        self.offset1 = -self.offset / self._scale if self._is_diagonal else -self._inverse @ self.offset
        """What a projected goal of zeros means in feature units, [n]: the centres of the ranges."""
        self.half_turn = math.pi * np.abs(self._scale[self.twist])
        """Half a turn in projected units, one per twist feature."""

    @property
    def size(self) -> int:
        return len(self.names)

    def _check_ranges(self) -> None:
        if not all(isinstance(name, str) for name in self.names):
            raise ValueError(f"the names of the features are {list(self.names)}; use texts")
        if len(self.units) != self.size:
            raise ValueError(f"{self.size} features need as many units; there are {len(self.units)}: {self.units}")
        if not (np.isfinite(self.low).all() and np.isfinite(self.high).all()):
            raise ValueError(f"the ranges of {self.names} are {self.low} to {self.high}; use finite numbers")
        if not self.low.shape == self.high.shape == (self.size,) or (self.high < self.low).any():
            raise ValueError(f"{self.size} features need as many ranges, low <= high: {self.low}, {self.high}")
        for kind, members in (("delta", self.delta), ("twist", self.twist)):
            for index in members:
                if index not in range(self.size):
                    raise ValueError(f"{kind} feature {index} does not exist; there are {self.size}")
                if self.low[index] != -self.high[index]:
                    raise ValueError(
                        f"the range of {kind} feature {self.names[index]} is [{self.low[index]}, {self.high[index]}]; "
                        "it must be symmetric about 0"
                    )

    def _check_projection(self) -> None:
        if self.psi.shape != (self.size, self.size) or self.offset.shape != (self.size,):
            raise ValueError(
                f"psi is {self.psi.shape} and offset {self.offset.shape}; {self.size} features take "
                f"{(self.size, self.size)} and {(self.size,)}"
            )
        if (np.count_nonzero(self.psi[self.twist], axis=1) > 1).any():
            raise ValueError("psi mixes a twist feature with others; its angle wraps, so keep its row diagonal")

    def to_dict(self) -> dict[str, Any]:
        """Plain data from which `from_dict` makes an equal table; psi and offset only where they were given."""
        given = {name: getattr(self, name).tolist() for name, is_given in self._given.items() if is_given}
        return {
            "names": list(self.names),
            "units": list(self.units),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "delta": list(self.delta),
            "twist": list(self.twist),
            **given,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> GoalSpace:
        known = ("names", "units", "low", "high", "delta", "twist")
        missing = [name for name in known if name not in plain]
        unknown = [name for name in plain if name not in (*known, "psi", "offset")]
        if missing or unknown:
            raise ValueError(f"a goal space has {list(known)}; this one lacks {missing} and has besides {unknown}")
        return cls(**plain)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GoalSpace) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.names, self.low.tobytes(), self.high.tobytes()))

    def project(self, features: np.ndarray, members: Sequence[int] | None = None) -> np.ndarray:
        """[..., n] in feature units -> [..., n], or with `members` those goal dimensions alone, [..., len(members)]."""
        chosen = slice(None) if members is None else list(members)
        if self._is_diagonal:
            return features[..., chosen] * self._scale[chosen] + self.offset[chosen]
        # not a matrix product: its rounding depends on how many rows there are
        return (features[..., None, :] * self.psi[chosen]).sum(axis=-1) + self.offset[chosen]

    def back_project(self, goal: np.ndarray, members: Sequence[int] | None = None) -> np.ndarray:
        """Projected goals [..., n], or [..., len(members)] for some dimensions -> [..., n] in feature units.

        Dimensions that are not among `members` count as 0, the centre of their range.
        """
        if members is not None:
            full = np.zeros((*goal.shape[:-1], self.size))
            full[..., list(members)] = goal
            goal = full
        if self._is_diagonal:
            return goal / self._scale + self.offset1
        return (goal[..., None, :] * self._inverse).sum(axis=-1) + self.offset1

    def absolute(self, goal: np.ndarray, projected: np.ndarray) -> np.ndarray:
        """Drawn goals [..., n] in [-1, 1] -> goals that stay: delta features count from `projected` [..., n]."""
        result = np.array(goal, dtype=np.float64)
        result[..., self.delta] += projected[..., self.delta]
        return result

    def feature_difference(self, target: np.ndarray, features: np.ndarray) -> np.ndarray:
        """What is left to go, [..., n] in feature units: target - features, twists wrapped to [-pi, pi)."""
        difference = target - features
        for index in self.twist:
            difference[..., index] = wrap(difference[..., index], math.pi)
        return difference

    def goal_difference(self, goal: np.ndarray, projected: np.ndarray) -> np.ndarray:
        """The same in projected units, [..., n]: goal - projected, twists wrapped to half a turn."""
        difference = goal - projected
        for index, half_turn in zip(self.twist, self.half_turn, strict=True):
            difference[..., index] = wrap(difference[..., index], half_turn)
        return difference

    def is_controllable(self, index: int) -> bool:
        """Whether a goal can be set for feature `index`: it exists and its range is not a point."""
        if index < 0:
            raise ValueError(f"feature {index} is negative; features are counted from 0 to {self.size - 1}")
        return index < self.size and bool(self.low[index] != self.high[index])


def wrap(angle: np.ndarray, half_turn: float) -> np.ndarray:
    """Angles in any unit -> [-half_turn, half_turn)."""
    return np.mod(angle + half_turn, 2.0 * half_turn) - half_turn


WALKER_BODYFEET = GoalSpace(
    names=(
        *("rootz:p", "rootx:p", "rooty:p"),
        *("left_foot:px", "left_foot:pz", "right_foot:px", "right_foot:pz"),
    ),
    low=(0.95, -3.0, -1.3, -0.72, -1.3, -0.72, -1.3),
    high=(1.5, 3.0, 1.3, 0.99, 0.0, 0.99, 0.0),
    delta=(1,),
    units=("m", "m", "rad", "m", "m", "m", "m"),
)
HUMANOID_BODYFEET = GoalSpace(
    names=(
        *("root:px", "root:py", "root:pz", "root:tz", "root:sy", "root:sx"),
        *("left_foot:px", "left_foot:py", "left_foot:pz", "right_foot:px", "right_foot:py", "right_foot:pz"),
    ),
    low=(-3.0, -3.0, 0.95, -1.57, -1.57, -0.5, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0),
    high=(3.0, 3.0, 1.5, 1.57, 1.57, 0.5, 1.0, 1.0, 0.2, 1.0, 1.0, 0.2),
    delta=(0, 1),
    twist=(3,),
    units=("m",) * 3 + ("rad",) * 3 + ("m",) * 6,
)
POINT_BODY = GoalSpace(
    names=("x", "y", "z", "heading"),
    low=(-1.0, -1.0, 0.0, -math.pi),
    high=(1.0, 1.0, 1.0, math.pi),
    delta=(0, 1),
    twist=(3,),
    units=("m", "m", "m", "rad"),
)

GOAL_SPACES: dict[tuple[str, str], GoalSpace] = {
    ("bodyfeet", "walker"): WALKER_BODYFEET,
    ("bodyfeet", "humanoid"): HUMANOID_BODYFEET,
    ("bodyfeet", "humanoidpc"): HUMANOID_BODYFEET,
    ("body", "point"): POINT_BODY,
}
"""(features, robot) -> table; `-relz` features have the same one."""


def goal_space(features: str, robot: str) -> GoalSpace:
    """The table of a robot's goal features, e.g. `goal_space("bodyfeet", "walker")`."""
    key = (features.removesuffix("-relz"), robot)
    if key not in GOAL_SPACES:
        known = [" of ".join(pair) for pair in GOAL_SPACES]
        raise ValueError(
            f"no goal space {features} of {robot}{did_you_mean(' of '.join(key), known)}; there are {known}"
        )
    return GOAL_SPACES[key]


def register_goal_space(features: str, robot: str, space: GoalSpace, uncontrollable: Sequence[int] = ()) -> None:
    """Make a table of one's own known as `goal_space(features, robot)`, for as long as this process lives.

    `uncontrollable` are features that are recorded and have no goals: their range may be a point. That of every other
    feature must not, because a goal there would be no goal.
    """
    title = f"the goal space {features} of {robot}"
    if not isinstance(space, GoalSpace):
        raise TypeError(f"{title} is a {type(space).__name__}; pass a GoalSpace(names, low, high, delta, twist)")
    if not (features and robot) or features.endswith("-relz"):
        raise ValueError(f"{title} needs two names, the first without the ending -relz, which `goal_space` cuts off")
    if (features, robot) in GOAL_SPACES:
        raise ValueError(f"{title} is there already; choose another name for the features")
    repeated = sorted({name for name in space.names if space.names.count(name) > 1})
    if repeated:
        raise ValueError(f"{title} has several features called {repeated}; give each a name of its own")
    wide = [space.names[index] for index in space.twist if space.high[index] > math.pi]
    if wide:
        raise ValueError(f"{title} has goals for {wide} beyond half a turn, where angles wrap; use at most +-pi")
    missing = [index for index in uncontrollable if index not in range(space.size)]
    if missing:
        raise ValueError(f"{title} has no features {missing}, said to be uncontrollable; there are {space.size}")
    points = [index for index in range(space.size) if not space.is_controllable(index)]
    empty = [space.names[index] for index in points if index not in uncontrollable]
    if empty:
        raise ValueError(f"{title} has an empty range for {empty}; use low < high, or name them in `uncontrollable`")
    if len(points) == space.size:
        raise ValueError(f"{title} has no feature with a range; there must be one to set goals for")
    GOAL_SPACES[features, robot] = space


def propose_ranges(
    features: np.ndarray, low: float = 0.05, high: float = 0.95, symmetric: Sequence[int] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Recorded features [N, n] -> (low [n], high [n]) for a `GoalSpace`: quantiles of what the robot does.

    `symmetric` features, those that are to be delta or twist, get the smallest range about 0 that holds both quantiles.
    What counts for a delta feature is how far the robot gets within a goal's time: record displacements for it.
    """
    recorded = np.asarray(features, dtype=np.float64)
    if recorded.ndim != 2 or recorded.size == 0:
        raise ValueError(f"the recorded features have shape {list(recorded.shape)}; use rows of features, [N, n]")
    if not np.isfinite(recorded).all():
        row, column = np.argwhere(~np.isfinite(recorded))[0].tolist()
        raise ValueError(f"recorded feature {column} of row {row} is {recorded[row, column]}; use finite numbers")
    if not 0 <= low < high <= 1:
        raise ValueError(f"the quantiles are {low} and {high}; use 0 <= low < high <= 1")
    missing = [index for index in symmetric if index not in range(recorded.shape[1])]
    if missing:
        raise ValueError(f"there are no features {missing} to be symmetric; there are {recorded.shape[1]}")
    least, most = np.quantile(recorded, (low, high), axis=0)
    chosen = list(symmetric)
    most[chosen] = np.maximum(np.abs(least[chosen]), np.abs(most[chosen]))
    least[chosen] = -most[chosen]
    return least, most


def subsets_task_map(
    features: str, robot: str, spec: str | int, rank_min: int = 0, rank_max: int = 0, allow_drop: bool = True
) -> tuple[list[str], dict[str, int]]:
    """Goal spaces that `spec` describes -> (subsets, task map).

    `spec` is "all" or "torso" (one group per feature), groups as in `0#1#3+4` ("+" and "-" both join), or a regular
    expression that feature names must match from their start, one group per hit. With both ranks positive the subsets
    are all combinations of rank_min..rank_max groups, `,` between groups; otherwise the groups themselves. The task map
    numbers the features that occur, in ascending order, from 0.

    Groups with a feature that cannot be controlled are dropped with a warning, or without `allow_drop` an error.
    """
    space = goal_space(features, robot)
    groups = parse_groups(spec, space.names)
    kept = [group for group in groups if all(space.is_controllable(member) for member in group)]
    dropped = ["+".join(map(str, group)) for group in groups if group not in kept]
    if dropped:
        message = f"groups {dropped} of {spec!r} hold features that {features} of {robot} does not control"
        if not allow_drop:
            raise ValueError(
                f"{message}; features 0 to {space.size - 1} with a range can be goals: name those alone, or leave such "
                "groups out by allow_drop=true"
            )
        warnings.warn(f"{message}; they are left out", stacklevel=2)
    if rank_min < 0 or rank_max < 0 or (rank_min > 0 and 0 < rank_max < rank_min):
        raise ValueError(f"ranks are {rank_min} to {rank_max}; use 1 <= rank_min <= rank_max, or 0 to combine nothing")
    needed = max(rank_min, 1)
    if len(kept) < needed:
        raise ValueError(
            f"{spec!r} gives {len(kept)} groups for {features} of {robot}, fewer than the {needed} asked for; "
            f"its features are {dict(enumerate(space.names))}"
        )
    members = sorted({member for group in kept for member in group})
    task_map = {str(member): position for position, member in enumerate(members)}
    names = ["+".join(map(str, group)) for group in kept]
    if rank_min > 0 and rank_max > 0:
        names = combinations(names, min(rank_max, len(names)), rank_min)
    return names, task_map


def combinations(groups: Sequence[str], rank_max: int, rank_min: int = 1) -> list[str]:
    """Subsets of `rank_min` to `rank_max` groups in group spelling, lower ranks first, groups in their order."""
    if not 1 <= rank_min <= rank_max <= len(groups):
        raise ValueError(f"ranks {rank_min} to {rank_max} do not exist: there are {len(groups)} groups, {list(groups)}")
    ranks = range(rank_min, rank_max + 1)
    return [",".join(chosen) for rank in ranks for chosen in itertools.combinations(groups, rank)]


def groups_of(subsets: Iterable[str]) -> tuple[str, ...]:
    """The distinct groups of subsets, in the order in which they come: "0,3+4", "0,4" -> "0", "3+4", "4"."""
    groups = (group for subset in subsets for group in subset.split(","))
    return tuple(dict.fromkeys("+".join(map(str, sorted(map(int, group.split("+"))))) for group in groups))


def parse_groups(spec: str | int, names: Sequence[str]) -> list[tuple[int, ...]]:
    """Groups of feature indices, each sorted (repeated members stay), as `subsets_task_map` describes."""
    text = str(spec)
    if text == "all":
        return [(index,) for index in range(len(names))]
    if text == "torso":
        return [(index,) for index, name in enumerate(names) if name.startswith(TORSO_PREFIXES)]
    pieces = [re.split(r"[+-]", piece) for piece in text.split("#")]
    if all(re.fullmatch(r"[0-9]+", member) for piece in pieces for member in piece):
        return [tuple(sorted(int(member) for member in piece)) for piece in pieces]
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise ValueError(
            f"{text!r} is neither groups of features such as '0#3+4' nor a regular expression: {error}"
        ) from error
    return [(index,) for index, name in enumerate(names) if pattern.match(name)]


def flatten_subset(subset: str) -> str:
    """The features of a subset, each once, in the order they come: "0+3,2+3" -> "0,3,2"."""
    return ",".join(dict.fromkeys(re.split(r"[,+]", subset)))


def subset_features(subset: str) -> tuple[int, ...]:
    """The same as numbers; a string that is no subset is a ValueError."""
    if not re.fullmatch(r"[0-9]+([,+][0-9]+)*", subset):
        raise ValueError(
            f"{subset!r} is no subset; write numbers of features, '+' within a group and ',' between groups: '0,3+4'"
        )
    return tuple(int(member) for member in flatten_subset(subset).split(","))


def rank(subset: str) -> int:
    """How many groups a subset combines (not how many features)."""
    return subset.count(",") + 1


def task_bits(subset: str, task_map: dict[str, int]) -> np.ndarray:
    """Which features of the task map a subset controls, as 0 and 1, [K]."""
    bits = np.zeros(len(task_map))
    for member in flatten_subset(subset).split(","):
        if member not in task_map:
            raise ValueError(f"feature {member} of subset {subset!r} is not in the task map {task_map}")
        bits[task_map[member]] = 1.0
    return bits
