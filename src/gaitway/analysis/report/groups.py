"""Runs in groups of seeds, and one number for each: what a page compares."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from gaitway.analysis.aggregate import Interval
from gaitway.analysis.compare import centre_with_interval
from gaitway.analysis.groups import Group
from gaitway.analysis.report.facts import RunFacts, shown, text
from gaitway.analysis.runs import MAX_LABEL, differing_keys, group_runs
from gaitway.analysis.stats import FloatArray

ALPHA = 0.05
ALGORITHM = "algorithm.name"
BESIDE_LEARNING = ("evaluation.", "checkpoints.", "video.", "logging.", "total_steps", "torch_threads", "log_")
HEADLINES = ("eval/return", "train/return", "env/return", "eval/loss", "loss/total")
"""What runs are judged by if nobody says, in this order."""


@dataclass(frozen=True)
class ScoredGroup:
    """The runs of one setting, and what each of them reached."""

    label: str
    task: str
    members: tuple[int, ...]
    """Numbers of its runs on the page."""
    group: Group = field(repr=False)
    scores: FloatArray = field(repr=False)
    """One number per run that has come to the step of the comparison."""
    left_out: tuple[str, ...]
    centre: Interval
    """Interquartile mean with its bootstrap interval; ends that are NaN where there is one run."""
    at: float | None
    """The step of the comparison, the same for all groups of a task."""
    is_cost: bool
    """Whether lower scores are better."""

    @property
    def has_scores(self) -> bool:
        return len(self.scores) > 0


def headline_of(runs: Sequence[RunFacts], wanted: str | None = None) -> str:
    """What runs are judged by: the metric that is asked for, else the first of the usual ones that most have."""
    counts: Counter[str] = Counter(str(name) for facts in runs for name in facts.run.metrics)
    if wanted is not None:
        choices = [wanted] if "/" in wanted else [f"{kind}/{wanted}" for kind in ("eval", "train", "env")]
        return next((name for name in choices if counts[name]), choices[0])
    own = Counter(f"eval/{_metric(facts)}" for facts in runs)
    usual = [*(name for name, _ in own.most_common(1)), *HEADLINES]
    known = [name for name in usual if counts[name]]
    return max(known, key=lambda name: counts[name], default=usual[0] if usual else HEADLINES[0])


def score_groups(runs: Sequence[RunFacts], metric: str) -> list[ScoredGroup]:
    """Groups in the order of their first run. Those of one task are compared at one step."""
    numbers = {id(facts.run): number for number, facts in enumerate(runs)}
    made: list[tuple[str, str, list[int], Group]] = []
    taken: set[str] = set()
    for task in dict.fromkeys(facts.task for facts in runs):  # labels say in what the groups of one task differ
        grouped = list(group_runs(facts.run for facts in runs if facts.task == task).values())
        listed = [[numbers[id(run)] for run in members] for members in grouped]
        labels = _labels([[runs[number] for number in members] for members in listed], taken)
        for label, members, places in zip(labels, grouped, listed, strict=True):
            made.append((label, task, places, Group.from_runs(label, members, metric)))
    of_task: dict[str, list[Group]] = {}
    for _, task, _, group in made:
        of_task.setdefault(task, []).append(group)
    steps = {task: comparison_step(of_one) for task, of_one in of_task.items()}
    found = []
    for label, task, members_of, group in made:
        scores, left_out = group.scores(steps[task])
        scores = scores[np.isfinite(scores)]
        centre = _centre(tuple(scores.tolist()))
        is_cost = runs[members_of[0]].is_cost(metric)
        found.append(
            ScoredGroup(label, task, tuple(members_of), group, scores, tuple(left_out), centre, steps[task], is_cost)
        )
    return found


def comparison_step(groups: Sequence[Group]) -> float | None:
    """The last step that every run reached; runs that are not even half as far as the furthest do not hold up the
    others, and are left out there."""
    ends = [one.last_step for group in groups for one in group.series]
    known = [end for end in ends if end is not None]
    half = max(known, default=0.0) / 2
    return min((end for end in known if end >= half), default=None)


def ranked(groups: Sequence[ScoredGroup]) -> list[int]:
    """The numbers of the groups with scores, best first."""
    return sorted(
        (number for number, group in enumerate(groups) if group.has_scores),
        key=lambda number: float(groups[number].centre.value) * (1 if groups[number].is_cost else -1),
    )


@lru_cache(maxsize=4096)
def _centre(scores: tuple[float, ...]) -> Interval:
    if not scores:
        return Interval(np.nan, np.nan, np.nan)
    return centre_with_interval(np.array(scores), ALPHA)


def _labels(groups: Sequence[Sequence[RunFacts]], taken: set[str]) -> list[str]:
    """What the groups of a task are called: by the fewest settings that tell them apart, where these are short, else by
    the folder that their runs share. `taken` are names of groups of other tasks; it gets those that are made."""
    configs = [members[0].config for members in groups]
    keys = _telling_keys(configs)
    ends = Counter(key.rpartition(".")[2] for key in keys)
    names = {key: end if ends[end := key.rpartition(".")[2]] == 1 else key for key in keys}
    found = []
    for members, config in zip(groups, configs, strict=True):
        told = {key: shown(config.get(key)) for key in keys}
        by_settings = ", ".join(value if key == ALGORITHM else f"{names[key]}={value}" for key, value in told.items())
        shared = posixpath.commonpath([facts.name for facts in members])
        short = by_settings if 0 < len(by_settings) <= MAX_LABEL else shared
        choices = (short, f"{short} ({members[0].task})", members[0].name, str(members[0].run.folder))
        label = next(text(choice) for choice in choices if choice and text(choice) not in taken)
        taken.add(label)
        found.append(label)
    return found


def _telling_keys(configs: Sequence[dict[str, Any]]) -> list[str]:
    """A few keys whose values together are different for each of the configs: the algorithm first, whose settings
    differ with it, then those with the most values, and what changes no learning last. The algorithm leads the list,
    the others follow in the order of the config."""
    differing = differing_keys(configs)
    values = {key: [shown(config.get(key)) for config in configs] for key in differing}
    order = sorted(
        differing, key=lambda key: (key != ALGORITHM, key.startswith(BESIDE_LEARNING), -len(set(values[key])))
    )
    chosen: list[str] = []
    told = 1
    for key in order:
        count = len(set(zip(*(values[one] for one in (*chosen, key)), strict=True)))
        if count > told:
            chosen.append(key)
            told = count
        if told == len(configs):
            break
    return sorted(chosen, key=lambda key: (key != ALGORITHM, differing.index(key)))


def _metric(facts: RunFacts) -> str:
    evaluation = facts.run.config.get("evaluation")
    found = evaluation.get("metric") if isinstance(evaluation, dict) else None
    return found if isinstance(found, str) else "return"
