"""Which tasks are practised, and how often: a curriculum that combines what can be done already.

A *task* is a set of groups of features, written `0,3+4` (group 0 and group 3+4), and its rank is the number of its
groups. Training begins with tasks of low rank. After every evaluation a review takes the success p of each task and

    1. notes learning progress, lp = p - p of the last review (p itself where there is none);
    2. calls tasks with p >= 1 - ctrl_eps controllable;
    3. adds the combinations whose subsets of one group less are all tasks and controllable, best first by the product
       of the subsets' p;
    4. weighs the tasks anew.

Definitions follow HSD-3 (Gehring et al. 2021, arXiv 2110.10809), there `update_fdist`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from gaitway.core.config import configuration, did_you_mean
from gaitway.core.ranges import Count, NotNegative, Share, WholeNumber
from gaitway.envs.tasks.skills.goal_spaces import combinations, rank
from gaitway.envs.tasks.skills.options import BACKPROP_FALLOVER

EVAL_MODES = ("rollouts", "running_avg", "q_value", "reachability")
KEPT, ADDED = 0.9, 0.1
"""Shares of the progress so far and of the latest change under `lp_smooth`."""


@configuration
class CurriculumConfig:
    ctrl_eps: Share = 1.0
    """Tasks with a success of at least 1 - ctrl_eps are combined: 1 combines all at once, less waits for skill."""
    feature_rank: Count | Literal["max"] = 1
    """Groups in each of the first tasks; max: one task with all groups."""
    feature_rank_max: Count = 99
    """Groups that a combined task may have."""
    max_new_tasks: WholeNumber = 1000
    """Tasks that one review may add; 0 adds none."""
    combine_after_steps: WholeNumber = 0
    """Environment steps before which nothing is combined."""
    weighting: str = "uniform"
    """uniform; lp, lp_smooth (learning progress, as it is or smoothed over reviews); downrank_new (new tasks seldom),
    downrank_combined (what new tasks are made of seldom); tderr (the critic's moving TD error)."""
    downrank: Share = 0.1
    """Weight of a seldom task beside 1 for the others."""
    lp_new_task: NotNegative = 0.1
    """Learning progress that a new task is credited with."""
    lp_eps: Share = 0.1
    """Share of lp weights that is spread evenly; raise it if tasks without progress are forgotten."""
    eval_mode: str = "reachability"
    """Where success comes from: rollouts, running_avg (success in training), q_value, reachability."""
    backprop_fallover: bool = False
    """An option of the published system that does nothing there, and is refused here."""

    def __post_init__(self) -> None:
        _choose("weighting", self.weighting, WEIGHTINGS)
        _choose("eval_mode", self.eval_mode, EVAL_MODES)
        if self.backprop_fallover:
            raise ValueError(BACKPROP_FALLOVER)


class Curriculum:
    """The tasks that can be made of `groups` (`("0", "1", "3+4")`), and the weight of each one practised.

    Tasks are written in group spelling everywhere, groups in the order given; `weights` lists them by rank, then in the
    order of combinations. Nothing here knows environments or networks: success comes in, weights go out.

    Groups may overlap so that several combinations control the same features ("0+3" does what "0,3" does). `name_of`
    then says under which of its names such a task is practised; the others are left out.
    """

    def __init__(self, groups: Sequence[str], config: CurriculumConfig, name_of: Callable[[str], str] = str) -> None:
        self.groups = _checked_groups(groups)
        self.config, self.name_of = config, name_of
        self._place = {group: place for place, group in enumerate(self.groups)}
        first = len(self.groups) if config.feature_rank == "max" else config.feature_rank
        if first > len(self.groups):
            raise ValueError(
                f"feature_rank is {first}, but there are {len(self.groups)} groups, {list(self.groups)}; "
                f"use 1 to {len(self.groups)}, or 'max'"
            )
        tasks = list(dict.fromkeys(map(name_of, combinations(self.groups, first, first))))
        weight = 1.0 / len(tasks) if config.weighting.startswith("lp") else 1.0
        self.weights: dict[str, float] = dict.fromkeys(tasks, weight)
        """Task -> how often it is to be drawn; after a review they add up to 1."""
        self.performance: dict[str, float] = {}
        """Success of each task at the last review; new tasks have none yet."""
        self.progress: dict[str, float] = {}
        """Learning progress of each task, under `lp_smooth` smoothed."""
        self.new: tuple[str, ...] = ()
        """What the last review added, best first."""

    def review(
        self, success: Mapping[str, float], env_steps: int, td_errors: Mapping[str, float] | None = None
    ) -> dict[str, float]:
        """Take the success of the tasks, 0 to 1, after `env_steps` steps; returns the new weights.

        Groups of a key may come in any order. A task without an entry counts as 0: nobody saw it succeed; combinations
        that are no tasks yet are not read. `td_errors` matter to the weighting `tderr` alone.
        """
        if not _number(env_steps) >= 0:
            raise ValueError(f"env_steps is {env_steps!r}; use the number of environment steps so far")
        measured = self._by_task("success", success, 1.0)
        performance = {task: measured.get(task, 0.0) for task in self.weights}
        errors = self._by_task("td_errors", td_errors or {}, math.inf) if self.config.weighting == "tderr" else {}

        progress = {task: self._progress(task, performance[task]) for task in self.weights}
        new = self._combinations(performance, env_steps)
        progress |= dict.fromkeys(new, self.config.lp_new_task)
        tasks = sorted([*self.weights, *new], key=self._order)
        weights = WEIGHTINGS[self.config.weighting](Review(tasks, new, progress, errors, self.config))

        self.performance, self.new, self.weights = performance, new, weights
        self.progress = {task: progress[task] for task in tasks}
        return dict(weights)

    def canonical(self, task: str) -> str:
        """A task as it is written here: groups in the order of `groups`, each once."""
        chosen = [_group(part) for part in str(task).split(",")]
        if not set(chosen) <= set(self.groups) or len(set(chosen)) < len(chosen):
            raise ValueError(
                f"{task!r} is not a task; a task combines some of the groups {list(self.groups)}, each once, as in "
                f"{','.join(self.groups[:2])!r}"
            )
        return ",".join(sorted(chosen, key=self._place.__getitem__))

    def state_dict(self) -> dict[str, Any]:
        return {
            "groups": list(self.groups),
            "weights": dict(self.weights),
            "performance": dict(self.performance),
            "progress": dict(self.progress),
            "new": list(self.new),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if list(state["groups"]) != list(self.groups):
            raise ValueError(
                f"the state is that of a curriculum over the groups {list(state['groups'])}, but this one has "
                f"{list(self.groups)}; make it with the same groups"
            )
        weights, performance, progress = (self._ordered(state[name]) for name in ("weights", "performance", "progress"))
        new = tuple(self.canonical(task) for task in state["new"])
        self.weights, self.performance, self.progress, self.new = weights, performance, progress, new

    def _progress(self, task: str, success: float) -> float:
        change = success - self.performance.get(task, 0.0)
        if self.config.weighting == "lp_smooth" and task in self.progress:
            return KEPT * self.progress[task] + ADDED * change
        return change

    def _combinations(self, performance: Mapping[str, float], env_steps: int) -> tuple[str, ...]:
        """The tasks to add, best first, and equally good ones in the order of combinations.

        The union of two tasks has all its subsets of one group less among the controllable tasks only if it is one of
        them and a later group, so each candidate is met once and pairs need not be tried.
        """
        config = self.config
        if env_steps < config.combine_after_steps:
            return ()
        controllable = {task for task, success in performance.items() if success >= 1.0 - config.ctrl_eps}
        optimistic: dict[str, float] = {}
        for task in performance:
            if task not in controllable or rank(task) >= config.feature_rank_max:
                continue
            chosen = task.split(",")
            for group in self.groups[self._place[chosen[-1]] + 1 :]:
                candidate = ",".join([*chosen, group])
                parents = subsets_below(candidate)
                is_new = candidate not in performance and controllable.issuperset(parents)
                if is_new and self.name_of(candidate) == candidate:
                    # sorted: equally good ones are equal to the last bit, whatever parent comes first
                    optimistic[candidate] = math.prod(sorted(performance[parent] for parent in parents))
        ranked = sorted(optimistic, key=lambda task: (-optimistic[task], *self._order(task)))
        return tuple(ranked[: config.max_new_tasks])

    def _order(self, task: str) -> tuple[int, tuple[int, ...]]:
        """By rank, then as `itertools.combinations` lists them."""
        places = tuple(self._place[group] for group in task.split(","))
        return len(places), places

    def _ordered(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Files may bring the tasks in another order."""
        found = {self.canonical(task): float(number) for task, number in numbers.items()}
        return {task: found[task] for task in sorted(found, key=self._order)}

    def _by_task(self, what: str, numbers: Mapping[str, float], high: float) -> dict[str, float]:
        """`numbers` by canonical task; ValueError for what is no task or no number from 0 to `high`."""
        result: dict[str, float] = {}
        for key, number in numbers.items():
            try:
                task = self.canonical(key)
            except ValueError as error:
                raise ValueError(f"{what}: {error}") from None
            value = _number(number)
            if not (0.0 <= value <= high and value < math.inf):
                wanted = "a number from 0 to 1" if high == 1.0 else "a finite number of at least 0"
                raise ValueError(f"{what} of task {key!r} is {number!r}; use {wanted}")
            if task in result:
                raise ValueError(f"{what} names the task {task!r} twice, once as {key!r}; give each task one entry")
            result[task] = value
        return result


def subsets_below(task: str) -> list[str]:
    """The tasks with one group less, e.g. "0,1,3+4" -> ["1,3+4", "0,3+4", "0,1"]; none for a single group."""
    groups = task.split(",")
    return [",".join(groups[:place] + groups[place + 1 :]) for place in range(len(groups))] if len(groups) > 1 else []


class Review(NamedTuple):
    """What a weighting may look at."""

    tasks: list[str]
    new: tuple[str, ...]
    progress: Mapping[str, float]
    td_errors: Mapping[str, float]
    config: CurriculumConfig


def _uniform(review: Review) -> dict[str, float]:
    return dict.fromkeys(review.tasks, 1.0 / len(review.tasks))


def _learning_progress(review: Review) -> dict[str, float]:
    """`eps / N + (1 - eps) |lp| / sum |lp|`; forgetting counts as much as learning."""
    share = _normalised({task: abs(review.progress[task]) for task in review.tasks})
    eps = review.config.lp_eps
    return {task: eps / len(share) + (1.0 - eps) * share[task] for task in review.tasks}


def _downrank_new(review: Review) -> dict[str, float]:
    return _seldom(review, review.new)


def _downrank_combined(review: Review) -> dict[str, float]:
    return _seldom(review, {parent for task in review.new for parent in subsets_below(task)})


def _seldom(review: Review, those: Container[str]) -> dict[str, float]:
    return _normalised({task: review.config.downrank if task in those else 1.0 for task in review.tasks})


def _td_error(review: Review) -> dict[str, float]:
    """Proportional to the moving TD error; tasks that were never learnt from get the largest one."""
    seen = {task: review.td_errors[task] for task in review.tasks if task in review.td_errors}
    largest = max(seen.values(), default=1.0)
    return _normalised({task: seen.get(task, largest) for task in review.tasks})


WEIGHTINGS: dict[str, Callable[[Review], dict[str, float]]] = {
    "uniform": _uniform,
    "lp": _learning_progress,
    "lp_smooth": _learning_progress,
    "downrank_new": _downrank_new,
    "downrank_combined": _downrank_combined,
    "tderr": _td_error,
}


def _normalised(weights: dict[str, float]) -> dict[str, float]:
    """Weights that add up to 1; equal ones where all are 0."""
    total = math.fsum(weights.values())
    return {task: weight / total if total > 0 else 1.0 / len(weights) for task, weight in weights.items()}


def _checked_groups(groups: Sequence[str]) -> tuple[str, ...]:
    if isinstance(groups, str):
        raise ValueError(f"groups is the text {groups!r}; use a list, one entry per group: {groups.split('#')}")
    found = tuple(_group(group) for group in groups)
    wrong = [given for given, group in zip(groups, found, strict=True) if not group]
    if wrong or not found:
        raise ValueError(
            f"groups is {list(groups)!r}; each group is feature numbers joined by '+', such as '0' or '3+4'"
        )
    twice = sorted({group for group in found if found.count(group) > 1})
    if twice:
        raise ValueError(f"groups names {twice} more than once; name each group once")
    return found


def _group(text: Any) -> str:
    """Feature numbers in ascending order, joined by "+"; empty if it is not a group."""
    if not re.fullmatch(r"[0-9]+(\+[0-9]+)*", str(text).strip()):
        return ""
    return "+".join(str(member) for member in sorted(int(part) for part in str(text).split("+")))


def _number(value: Any) -> float:
    """A number as float; NaN for what is none."""
    try:
        return math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        return math.nan


def _choose(name: str, value: Any, known: Mapping[str, Any] | Sequence[str]) -> None:
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} is {value!r}{did_you_mean(str(value), known)}; use one of {list(known)}")
