"""Runs in groups of seeds, and one number for each: what a page compares."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from gaitway.analysis.aggregate import Interval
from gaitway.analysis.compare import centre_with_interval
from gaitway.analysis.groups import Group
from gaitway.analysis.report.facts import RunFacts, text
from gaitway.analysis.runs import differing_keys, group_runs
from gaitway.analysis.stats import FloatArray

ALPHA = 0.05
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
        grouped = group_runs(facts.run for facts in runs if facts.task == task)
        keys = differing_keys([runs[numbers[id(members[0])]].config for members in grouped.values()])
        for label, members in grouped.items():
            listed = [numbers[id(run)] for run in members]
            label = _label(_without_paths(label, keys), [runs[number] for number in listed], taken)
            taken.add(label)
            made.append((label, task, listed, Group.from_runs(label, members, metric)))
    of_task: dict[str, list[Group]] = {}
    for _, task, _, group in made:
        of_task.setdefault(task, []).append(group)
    steps = {task: comparison_step(of_one) for task, of_one in of_task.items()}
    found = []
    for label, task, members_of, group in made:
        scores, left_out = group.scores(steps[task])
        scores = scores[np.isfinite(scores)]
        centre = _centre(tuple(scores.tolist()))
        found.append(ScoredGroup(label, task, tuple(members_of), group, scores, tuple(left_out), centre, steps[task]))
    return found


def comparison_step(groups: Sequence[Group]) -> float | None:
    """The last step that every run reached; runs that are not even half as far as the furthest do not hold up the
    others, and are left out there."""
    ends = [one.last_step for group in groups for one in group.series]
    known = [end for end in ends if end is not None]
    half = max(known, default=0.0) / 2
    return min((end for end in known if end >= half), default=None)


def ranked(groups: Sequence[ScoredGroup]) -> list[int]:
    """The numbers of the groups with scores, highest first."""
    return sorted(
        (number for number, group in enumerate(groups) if group.has_scores),
        key=lambda number: -float(groups[number].centre.value),
    )


@lru_cache(maxsize=4096)
def _centre(scores: tuple[float, ...]) -> Interval:
    if not scores:
        return Interval(np.nan, np.nan, np.nan)
    return centre_with_interval(np.array(scores), ALPHA)


def _without_paths(label: str, keys: Sequence[str]) -> str:
    """`learning_rate=0.01` for `algorithm.learning_rate=0.01`, where no other key ends like it."""
    ends = Counter(key.rpartition(".")[2] for key in keys)
    for key in keys:
        end = key.rpartition(".")[2]
        if ends[end] == 1 and (label.startswith(f"{key}=") or f", {key}=" in label):
            label = label.replace(f"{key}=", f"{end}=", 1)
    return label


def _label(label: str, members: Sequence[RunFacts], taken: set[str]) -> str:
    """What a group is called: by its settings, else by the folder that its runs share, else by its first run."""
    first = members[0]
    shared = posixpath.commonpath([facts.name for facts in members])
    by_settings = text(label) if label != str(first.run.folder) else shared
    choices = (by_settings, f"{by_settings} ({first.task})", first.name, str(first.run.folder))
    return next(text(choice) for choice in choices if choice and text(choice) not in taken)


def _metric(facts: RunFacts) -> str:
    evaluation = facts.run.config.get("evaluation")
    found = evaluation.get("metric") if isinstance(evaluation, dict) else None
    return found if isinstance(found, str) else "return"
