"""Whether it worked, in words: a heading, a sentence per task, and what to know before one believes it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gaitway.analysis.aggregate import iqm
from gaitway.analysis.report.facts import RunFacts
from gaitway.analysis.report.groups import ALPHA, ScoredGroup
from gaitway.analysis.report.pair_tests import TaskTests
from gaitway.analysis.style import style_of

FEW = 5
"""Runs below which intervals of interquartile means are known to be too narrow."""
MOST_WARNINGS = 5
MOST_STYLES = 50
"""Runs whose discriminators are asked for a word."""
NAMED = 3
"""Groups that a sentence names before it counts the rest."""

UNFINISHED = {
    "failed": "failed",
    "stopped": "stopped before the end",
    "silent": "neither ended nor wrote anything lately",
}


@dataclass(frozen=True)
class Verdict:
    heading: str
    sentences: tuple[str, ...]
    notes: tuple[str, ...]


def verdict(
    runs: Sequence[RunFacts], groups: Sequence[ScoredGroup], tests: Sequence[TaskTests], metric: str
) -> Verdict:
    judged = [one for one in tests if one.order]
    if not runs:
        return Verdict("No runs yet", ("Runs appear here when they begin.",), ())
    if not judged:
        sentence = f"{counted(len(runs), 'run')} so far, and none has values of {metric}."
        return Verdict("Nothing to judge yet", (sentence,), tuple(_notes(runs, groups)))
    told = [_task(one, groups, metric) for one in judged]
    heading = told[0][0] if len(told) == 1 else f"{len(told)} tasks, judged one by one"
    sentences = [sentence for _, sentence in told]
    if len(told) > 1:
        sentences = [f"{one.task}: {sentence}" for one, sentence in zip(judged, sentences, strict=True)]
    sentences += _baselines(judged, groups, runs, metric)
    return Verdict(heading, tuple(sentences), tuple(_notes(runs, groups)))


def _task(tests: TaskTests, groups: Sequence[ScoredGroup], metric: str) -> tuple[str, str]:
    """A heading and a sentence about the groups of one task."""
    best = groups[tests.order[0]]
    reached = f"{metric} {_value(best)}{_where(best)}"
    if len(tests.order) == 1:
        who = f"{len(best.scores)} runs reach" if len(best.scores) > 1 else "One run reaches"
        return f"{_of(metric).capitalize()} {_short(best.centre.value)}", f"{who} {reached}.{_gain(best)}"
    beaten = [number for number, p in tests.against_best.items() if p < ALPHA]
    extreme, beyond = ("lowest", "below") if tests.is_cost else ("highest", "above")
    parts = [f"{best.label} is {extreme}: {reached}."]
    if beaten:
        parts.append(f"It is {beyond} {_names(beaten, groups)}{_margin(tests, groups, beaten)}.")
    if tests.equals:
        parts.append(f"It cannot be told from {_names(tests.equals, groups)}, which does not mean that they are equal.")
    if tests.untested:
        parts.append(f"Not tested, for want of a second run: {_names(tests.untested, groups)}.")
    if not tests.against_best:
        heading = f"{best.label} is {extreme}, but nothing is tested"
    elif not tests.equals and not tests.untested:
        heading = f"{best.label} is best"
    elif beaten:
        heading = f"{best.label} leads"
    else:
        heading = "No difference shown"
    return heading, " ".join(parts)


def _margin(tests: TaskTests, groups: Sequence[ScoredGroup], beaten: Sequence[int]) -> str:
    """By how much, where one group is beaten; the largest p-value where several are."""
    pairs = {test.worse: test for test in tests.shown if test.better == tests.order[0]}
    if len(beaten) == 1 and beaten[0] in pairs:
        found = pairs[beaten[0]]
        low, high = _short(found.difference.low), _short(found.difference.high)
        return f" by {_short(found.difference.value)} on average (95 % interval {low} to {high}; {_p(found.adjusted)})"
    largest = max(tests.against_best[number] for number in beaten)
    return f" (corrected {_p(largest)}{' at most' if len(beaten) > 1 else ''})"


def _baselines(
    judged: Sequence[TaskTests], groups: Sequence[ScoredGroup], runs: Sequence[RunFacts], metric: str
) -> list[str]:
    """Whether the best group of a task beats policies that have learnt nothing."""
    found = []
    for one in judged if metric.endswith("/return") else ():
        best = groups[one.order[0]]
        known = baselines_of(best.task, runs)
        if not known:
            continue
        listed = " and ".join(f"{name} actions {_short(value)}" for name, value in known.items())
        low = best.centre.low if math.isfinite(best.centre.low) else best.centre.value
        if low > max(known.values()):
            found.append(f"Without learning: {listed}; {best.label if len(groups) > 1 else 'it'} is above that.")
        else:
            found.append(f"Without learning: {listed}. Nothing here is clearly above that.")
    return found


def baselines_of(task: str, runs: Sequence[RunFacts]) -> dict[str, float]:
    """Returns of policies that have learnt nothing on a task, from the first run that measured them."""
    return next((facts.baselines for facts in runs if facts.task == task and facts.baselines), {})


def _notes(runs: Sequence[RunFacts], groups: Sequence[ScoredGroup]) -> list[str]:
    states = Counter(facts.state() for facts in runs)
    notes = []
    if states["training"]:
        notes.append(f"{counted(states['training'], 'run')} still in training: all of this may change.")
    notes += [f"{counted(states[state], 'run')} {what}." for state, what in UNFINISHED.items() if states[state]]
    left_out = [name for group in groups for name in group.left_out]
    if left_out and any(group.has_scores for group in groups):
        named = ", ".join(left_out[:NAMED]) + (f" and {len(left_out) - NAMED} more" if len(left_out) > NAMED else "")
        notes.append(f"Left out of the comparison, because they have no value there: {named}.")
    if any(1 < len(group.scores) < FEW for group in groups):
        notes.append(f"With fewer than {FEW} runs of a kind the intervals of interquartile means are too narrow.")
    if any(len(group.scores) == 1 for group in groups):
        notes.append("One run of a kind says nothing about the next one; add seeds.")
    notes += list(dict.fromkeys(warning for facts in runs for warning in facts.warnings))[:MOST_WARNINGS]
    notes += list(dict.fromkeys(said for facts in runs[:MOST_STYLES] if (said := _style(facts))))
    return notes


def _style(facts: RunFacts) -> str | None:
    try:
        found = style_of(facts.run)
    except (ValueError, KeyError, IndexError):
        return None  # its numbers are not those of a discriminator
    return None if found is None else f"{found[0].upper()}{found[1:]}."


def _gain(group: ScoredGroup) -> str:
    """Where the runs began."""
    first = [one.values[~np.isnan(one.values)][:1] for one in group.group.series]
    begun = [float(values[0]) for values in first if len(values)]
    if not begun or all(len(one.values) < 2 for one in group.group.series):
        return ""
    return f" They began at {_short(float(iqm(begun)))}." if len(begun) > 1 else f" It began at {_short(begun[0])}."


def _value(group: ScoredGroup) -> str:
    value, low, high = group.centre
    if not math.isfinite(low):
        return _short(value)
    return f"{_short(value)} (95 % interval {_short(low)} to {_short(high)}, {len(group.scores)} runs)"


def _where(group: ScoredGroup) -> str:
    return "" if group.at is None else f" at step {group.at:,.0f}"


def _names(numbers: Sequence[int], groups: Sequence[ScoredGroup]) -> str:
    labels = [groups[number].label for number in numbers]
    if len(labels) > NAMED + 1:
        return f"{', '.join(labels[:NAMED])} and {len(labels) - NAMED} others"
    return f"{', '.join(labels[:-1])} and {labels[-1]}" if len(labels) > 1 else labels[0]


def _of(metric: str) -> str:
    return metric.rpartition("/")[2].replace("_", " ")


def _short(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _p(value: float) -> str:
    return f"p = {value:.2g}" if value >= 1e-4 else "p < 0.0001"


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
