"""Options of the skill environment; names and meaning follow HSD-3 (Gehring et al. 2021, arXiv 2110.10809).

Defaults are those of the published pre-training, which differ between the robots in the groups of features and in the
cost of controls.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import field

from gaitway.core.config import configuration, did_you_mean
from gaitway.core.ranges import Count, NotNegative, Number, Positive, Share, WholeNumber
from gaitway.envs.tasks.skills.goal_spaces import GoalSpace, groups_of, subset_features, subsets_task_map
from gaitway.envs.tasks.skills.goals import GOAL_SAMPLINGS, MAX_GROUPS, REWARDS, TaskSet

COMPATS = ("fixed", "original")
WALKER_GROUPS = "0#1#2#3+4#5+6"
HUMANOID_GROUPS = "0+3#2+3#3+4#3+6+7+8#3+9+10+11"
POINT_GROUPS = "0#1#2#3"
BACKPROP_FALLOVER = (
    "backprop_fallover is not available: the published system names it and never reads it; leave it out, and let "
    "allow_fallover and fallover_penalty of the environment say what a fall does"
)


@configuration(kw_only=True)
class SkillConfig:
    features: str = "bodyfeet"
    """Goal features: bodyfeet or bodyfeet-relz, which are the same on flat ground."""
    feature_dist: str = field(default="all", metadata={"also": (dict, int)})
    """Which tasks are drawn, and how often: a mapping from subsets ("0,3+4") to weights, or groups of features
    ("0#3+4"), of which all combinations of `rank_min` to `rank_max` are drawn equally often. YAML reads a single
    feature as a number."""
    rank_min: Count = 1
    rank_max: Count = 1
    allow_drop: bool = False
    """Groups in which a feature cannot be controlled are left out with a warning; else they are refused."""
    task_map: str = field(default="", metadata={"also": dict})
    """Feature -> position in `task` and `desired_goal`; empty numbers the features of `feature_dist` in their order."""
    precision: Positive = 0.1
    """A goal is reached at a distance below this, in normalised units."""
    idle_steps: WholeNumber = 0
    """Control steps without control after a hard reset; 0 and 1 both mean one."""
    max_steps: Count = 72
    """Steps that a goal may take."""
    backproject_goal: bool = True
    """Whether `desired_goal` is what is left to go in feature units, or else in normalised units, left-aligned."""
    reward: str = "potential"
    """potential d - d', potential2 d - gamma d', potential3 the same + 1 where reached, potential4 (d - d') / d0,
    distance -d', sparse 1 where reached; d and d' are distances before and after the step, d0 at the goal's start."""
    hard_reset_interval: WholeNumber = 100
    """Goals per episode; 0 for no end but falls."""
    reset_p: Share = 0.0
    """Probability per step that a goal not yet reached is given up."""
    resample_features: str = "soft"
    """When a new task is drawn: hard (with a new episode), soft (with every goal), softN (with every Nth goal)."""
    full_episodes: bool = False
    """A goal that is reached stays until its steps are over."""
    allow_fallover: bool = False
    fallover_penalty: Number = -1.0
    """Reward of a step that ends in a fall, in place of every other."""
    implicit_soft_resets: bool = True
    """Goals follow each other within an episode; else every goal is an episode, and its end a truncation."""
    goal_sampling: str = "random"
    """random (or uniform); r, r2, q: 128 candidates weighed by a model, see `SkillTask.set_model`."""
    ctrl_cost: NotNegative = 0.0
    """Cost of the sum of squared actions, as the policy gave them."""
    normalize_gs_observation: bool = False
    """`gs_observation` in normalised units."""
    zero_twist_goals: bool = False
    """Goals for angles that wrap are always 0."""
    relative_frame_of_reference: bool = False
    backprop_fallover: bool = False
    compat: str = "fixed"
    """original turns the Humanoids' feet as the published skills expect it."""

    def __post_init__(self) -> None:
        _choose("reward", self.reward, REWARDS)
        _choose("goal_sampling", self.goal_sampling, GOAL_SAMPLINGS)
        _choose("compat", self.compat, COMPATS)
        if self.relative_frame_of_reference:
            raise ValueError(
                "relative_frame_of_reference is not available: it was never finished in the published system, "
                "and goals for x and y count from where the robot was when they were drawn anyway"
            )
        if self.backprop_fallover:
            raise ValueError(BACKPROP_FALLOVER)
        self.task_interval  # noqa: B018  refuses a wrong resample_features

    @property
    def task_interval(self) -> int:
        """A new task is drawn with every goal whose number in the episode is a multiple of this; 0: the first alone."""
        found = re.fullmatch(r"soft([1-9][0-9]*)?", self.resample_features)
        if found is None and self.resample_features != "hard":
            raise ValueError(f"resample_features is {self.resample_features!r}; use hard, soft, or soft2, soft3 ...")
        return 0 if found is None else int(found.group(1) or 1)

    @property
    def is_guided(self) -> bool:
        return self.goal_sampling in ("r", "r2", "q")


@configuration(kw_only=True)
class WalkerSkillConfig(SkillConfig):
    feature_dist: str = field(default=WALKER_GROUPS, metadata={"also": (dict, int)})
    ctrl_cost: NotNegative = 0.001


@configuration(kw_only=True)
class HumanoidSkillConfig(SkillConfig):
    feature_dist: str = field(default=HUMANOID_GROUPS, metadata={"also": (dict, int)})


@configuration(kw_only=True)
class PointSkillConfig(SkillConfig):
    features: str = "body"
    feature_dist: str = field(default=POINT_GROUPS, metadata={"also": (dict, int)})
    max_steps: int = 40
    start_range: NotNegative = 20.0
    """Episodes begin within so many metres of the origin, along x and along y; 0 for the origin itself."""
    start_turns: NotNegative = 5.0
    """Episodes begin after up to so many turns to either side; 0.5 for any heading within half a turn."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.idle_steps:
            raise ValueError(f"idle_steps is {self.idle_steps}; the point has nothing to settle, so leave it at 0")


def make_tasks(robot: str, config: SkillConfig, space: GoalSpace) -> tuple[TaskSet, dict[str, float]]:
    """The tasks that the options describe, all checked, and how often each subset is to be drawn."""
    if isinstance(config.feature_dist, Mapping):
        feature_dist = _controllable(
            {str(subset): weight for subset, weight in config.feature_dist.items()}, config, space
        )
        members = sorted({feature for subset in feature_dist for feature in subset_features(subset)})
        task_map = {str(member): position for position, member in enumerate(members)}
    else:
        ranks, allow_drop = (config.rank_min, config.rank_max), config.allow_drop
        subsets, task_map = subsets_task_map(config.features, robot, config.feature_dist, *ranks, allow_drop)
        feature_dist = dict.fromkeys(subsets, 1.0)
    given = config.task_map if isinstance(config.task_map, Mapping) else task_map
    groups = groups_of(feature_dist)
    if len(groups) > MAX_GROUPS:
        raise ValueError(
            f"feature_dist names {len(groups)} groups of features, and tasks combine {MAX_GROUPS} at most; join some "
            "by '+', as in '0#1+2', or leave some out"
        )
    tasks = TaskSet(space, given, groups)
    missing = [index for index in space.twist if index not in tasks.members]
    if config.backproject_goal and missing:
        raise ValueError(
            f"the task map {tasks.task_map} lacks {[space.names[index] for index in missing]} ({missing}): an angle "
            "that wraps must be among the features of every environment that has it; add it to a group or to task_map"
        )
    if not config.backproject_goal and len(missing) < len(space.twist):
        raise ValueError(
            "backproject_goal=false does not wrap angles; use backproject_goal=true, or leave "
            f"{[space.names[index] for index in space.twist]} ({space.twist}) out of the tasks"
        )
    return tasks, feature_dist


def _controllable(feature_dist: dict[str, float], config: SkillConfig, space: GoalSpace) -> dict[str, float]:
    """The subsets of controllable features alone, under `allow_drop`; else all, and what is wrong is refused later."""
    if not config.allow_drop:
        return feature_dist
    kept = {
        subset: weight
        for subset, weight in feature_dist.items()
        if all(0 <= feature < space.size and space.is_controllable(feature) for feature in subset_features(subset))
    }
    dropped = [subset for subset in feature_dist if subset not in kept]
    if not kept:
        raise ValueError(f"feature_dist {dropped} names no task of features that can be controlled; name one that does")
    if dropped:
        warnings.warn(
            f"tasks {dropped} hold features that {config.features} does not control; they are left out", stacklevel=2
        )
    return kept


def _choose(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} is {value!r}{did_you_mean(value, known)}; use one of {list(known)}")
