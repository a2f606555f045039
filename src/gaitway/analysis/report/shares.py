"""Where the reward and the time of each group come from: parts of a sum, as bars and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gaitway.analysis.report.facts import RunFacts, number
from gaitway.analysis.report.groups import ScoredGroup, ranked

LAST = 0.25
"""The share of a run, from its end, over which parts are averaged."""
TIME = "time/share_"
REWARD, OF_TASK = "reward/", "env/reward_"
MOST_GROUPS = 12
"""Groups whose parts are shown, the best ones."""
NOT_PARTS = ("reward/total",)


def time_shares(runs: Sequence[RunFacts], groups: Sequence[ScoredGroup]) -> list[dict[str, Any]]:
    """`{group, parts: {name: share}}`: what the time of a step goes to."""
    return _parts(runs, groups, lambda facts: {str(n): str(n)[len(TIME) :] for n in facts.run.metrics if _is_time(n)})


def reward_parts(runs: Sequence[RunFacts], groups: Sequence[ScoredGroup]) -> list[dict[str, Any]]:
    """`{group, parts: {name: mean}}`: reward sources per step, and what the terms of a task add to an episode."""
    return _parts(runs, groups, reward_metrics)


def reward_metrics(facts: RunFacts) -> dict[str, str]:
    """Metrics that are parts of a reward -> their short names: reward sources, or else parts of the task's own."""
    logged = [str(name) for name in facts.run.metrics]
    sources = [name for name in logged if name.startswith(REWARD) and not name.startswith(NOT_PARTS)]
    if sources:
        return {name: name.removeprefix(REWARD) for name in sources}
    said = facts.contract.get("facts")
    legged = said.get("legged") if isinstance(said, dict) else None
    terms = legged.get("rewards") if isinstance(legged, dict) else None
    found = {f"env/{term}_episode": str(term) for term in (terms if isinstance(terms, list) else ())}
    found |= {name: name.removeprefix(OF_TASK) for name in logged if name.startswith(OF_TASK)}
    return {name: short for name, short in found.items() if name in logged}


def _is_time(name: object) -> bool:
    return str(name).startswith(TIME)


def _parts(runs: Sequence[RunFacts], groups: Sequence[ScoredGroup], metrics_of: Any) -> list[dict[str, Any]]:
    found = []
    for group_number in ranked(groups)[:MOST_GROUPS]:
        group = groups[group_number]
        sums: dict[str, list[float]] = {}
        for member in group.members:
            facts = runs[member]
            for metric, short in metrics_of(facts).items():
                values = facts.run.series(metric).to_numpy()
                values = values[np.isfinite(values)]
                if len(values):
                    sums.setdefault(short, []).append(float(values[-max(1, int(len(values) * LAST)) :].mean()))
        parts = {short: number(float(np.mean(values))) for short, values in sums.items()}
        if parts:
            found.append(
                {"group": group_number, "parts": dict(sorted(parts.items(), key=lambda item: -abs(item[1] or 0.0)))}
            )
    return found
