"""Everything a page shows, as plain data: `Board` reads run folders, again and again, and says what they come to."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gaitway.analysis.aggregate import Interval, performance_profile
from gaitway.analysis.report import provenance
from gaitway.analysis.report.curves import POINTS, curves_of
from gaitway.analysis.report.facts import RunFacts, facts_of, name_in, number, numbers, shown, text
from gaitway.analysis.report.folders import check_inside
from gaitway.analysis.report.groups import ALPHA, ScoredGroup, headline_of, ranked, score_groups
from gaitway.analysis.report.media import Medium, media_of
from gaitway.analysis.report.pair_tests import TaskTests, compare_all
from gaitway.analysis.report.shares import reward_parts, time_shares
from gaitway.analysis.report.sweep_table import sweep_table, sweeps_of
from gaitway.analysis.report.verdict import baselines_of, verdict
from gaitway.analysis.runs import Run, RunReader

PROFILE_POINTS = 60
MOST_METRICS = 500
PROFILED = 8
"""Groups of a task that have a performance profile."""

log = logging.getLogger(__name__)


class Board:
    """Runs and what they come to. `look` reads them, `state` and `curves` say it."""

    def __init__(self, title: str, root: Path, metric: str | None = None, at_once: int | None = None) -> None:
        self.title, self.root, self.wanted = title, root, metric
        self.runs: list[RunFacts] = []
        self.groups: list[ScoredGroup] = []
        self.media: list[Medium] = []
        self.problems: dict[Path, str] = {}
        self.metric = headline_of((), metric)
        self.to_read = 0
        """Runs that were found and not read yet, or not to their end."""
        self._reader = RunReader(at_once)
        self._known: dict[Path, RunFacts] = {}

    def look(self, folders: Sequence[Path], *, inside: bool, budget_s: float = float("inf")) -> bool:
        """Read runs, for so many seconds; whether anything is new. `inside`: nothing outside the root is read, else
        nothing outside each run folder."""
        before, begun = self.runs, time.perf_counter()
        known, problems = {}, {}
        late = 0
        for folder in folders:
            if folder not in self._known and folder not in self.problems and time.perf_counter() - begun > budget_s:
                late += 1
                continue
            try:
                check_inside(self.root if inside else folder, folder)
                known[folder] = self._facts(self._reader.read(folder))
                late += self._reader.is_behind(folder)
            except Exception as error:  # whatever is wrong with one run, the others are shown
                problems[folder] = text(" ".join(str(error).split()) or type(error).__name__)
        runs = list(known.values())
        same = len(runs) == len(before) and all(one is other for one, other in zip(runs, before, strict=True))
        media = [one for number, facts in enumerate(runs) for one in media_of(number, facts)]
        changed = not same or media != self.media or problems != self.problems or late != self.to_read
        self.runs, self.media, self.problems, self._known, self.to_read = runs, media, problems, known, late
        if not same or not self.groups:
            self.metric = headline_of(runs, self.wanted)
            self.groups = score_groups(runs, self.metric)
        return changed

    def state(self) -> dict[str, Any]:
        """All but the curves and the bytes of media."""
        runs, groups = self.runs, self.groups
        tests = compare_all(groups)
        said = verdict(runs, groups, tests, self.metric)
        sweeps = sweeps_of(runs)
        return {
            "title": self.title,
            "metric": self.metric,
            "metrics": sorted({text(name) for facts in runs for name in facts.run.metrics})[:MOST_METRICS],
            "verdict": {"heading": said.heading, "sentences": said.sentences, "notes": said.notes},
            "runs": [_run(facts, self.metric) for facts in runs],
            "groups": [_group(group) for group in groups],
            "order": ranked(groups),
            "tests": [_tests(one) for one in tests if one.shown],
            "profiles": [_profile(one, groups) for one in tests if one.order],
            "baselines": {task: baselines_of(task, runs) for task in dict.fromkeys(group.task for group in groups)},
            "rewards": reward_parts(runs, groups),
            "times": time_shares(runs, groups),
            "settings": provenance.settings(runs, groups),
            "sweeps": [sweep_table(folder, runs, self.metric) for folder in sweeps],
            "contracts": provenance.contracts(runs, groups),
            "wirings": provenance.wirings(runs, groups),
            "code": provenance.code(runs),
            "commands": provenance.commands(runs, groups, sweeps),
            "media": [one.to_dict() for one in self.media],
            "problems": [{"folder": name_in(path, self.root), "sentence": s} for path, s in self.problems.items()],
            "reading": self.to_read,
        }

    def curves(self, metric: str, points: int = POINTS) -> dict[str, Any]:
        """One metric of all runs."""
        return curves_of(self.runs, self.groups, metric, points)

    def _facts(self, run: Run) -> RunFacts:
        known = self._known.get(run.folder)
        return known if known is not None and known.run is run else facts_of(run, self.root)


def _run(facts: RunFacts, metric: str) -> dict[str, Any]:
    values = facts.run.series(metric)
    return {
        "id": facts.id,
        "name": facts.name,
        "task": text(facts.task),
        "seed": None if facts.run.seed is None else shown(facts.run.seed),
        "state": facts.state(),
        "stopped_by": None if facts.stopped_by is None else text(facts.stopped_by),
        "steps": facts.steps,
        "planned": facts.planned,
        "seconds": facts.seconds,
        "rate": facts.rate,
        "last": number(float(values.iloc[-1])) if len(values) else None,
        "best": facts.best(metric),
    }


def _group(group: ScoredGroup) -> dict[str, Any]:
    return {
        "label": text(group.label),
        "task": text(group.task),
        "runs": group.members,
        "at": number(group.at),
        "scores": numbers(group.scores),
        "mean": number(float(group.scores.mean())) if group.has_scores else None,
        **_ends("centre", group.centre),
    }


def _tests(tests: TaskTests) -> dict[str, Any]:
    rows = [
        {
            "better": one.better,
            "worse": one.worse,
            **_ends("difference", one.difference),
            **_ends("improvement", one.improvement, prefix="improvement_"),
            "p": number(one.p_value),
            "adjusted": number(one.adjusted),
            "significant": one.significant,
        }
        for one in tests.shown
    ]
    return {
        "task": text(tests.task),
        "pairs": tests.pairs,
        "correction": tests.correction,
        "is_cost": tests.is_cost,
        "rows": rows,
    }


def _profile(tests: TaskTests, groups: Sequence[ScoredGroup]) -> dict[str, Any]:
    """The share of runs above each level, of the best groups of a task."""
    shown = [n for n in tests.order if len(groups[n].scores) > 1][:PROFILED]
    scores = np.concatenate([groups[n].scores for n in shown]) if shown else np.zeros(0)
    if not len(scores) or scores.min() == scores.max():
        return {"task": text(tests.task), "x": [], "groups": {}}
    edge = 0.04 * (scores.max() - scores.min())
    levels = np.linspace(scores.min() - edge, scores.max() + edge, PROFILE_POINTS)
    found = {n: _profile_of(tuple(groups[n].scores.tolist()), tuple(levels.tolist())) for n in shown}
    lines = {
        n: {"value": numbers(one.value), "low": numbers(one.low), "high": numbers(one.high)} for n, one in found.items()
    }
    return {"task": text(tests.task), "x": numbers(levels), "groups": lines}


@lru_cache(maxsize=256)
def _profile_of(scores: tuple[float, ...], levels: tuple[float, ...]) -> Interval:
    return performance_profile(np.array(scores), np.array(levels), confidence=1 - ALPHA)


def _ends(name: str, interval: Interval, prefix: str = "") -> dict[str, float | None]:
    value, low, high = (number(float(one)) for one in interval)
    return {name: value, f"{prefix}low": low, f"{prefix}high": high}
