"""What a sweep tried and what became of it, read from its folder as the pages of runs are: plain files, nothing run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gaitway.analysis.report.facts import RunFacts, number, shown, text
from gaitway.analysis.report.folders import is_plain_file, read_small_json

FILE = "sweep.yaml"
OVER = ("done", "pruned", "failed")
LARGEST = 16 << 20


def sweeps_of(runs: Sequence[RunFacts]) -> list[Path]:
    """The folders of sweeps that runs are trials of."""
    parents = dict.fromkeys(facts.run.folder.parent for facts in runs)
    return [folder for folder in parents if (folder / FILE).is_file()]


def sweep_table(folder: Path, runs: Sequence[RunFacts], metric: str) -> dict[str, Any]:
    """`{name, parameters, rows}`, a row per trial with a plan: number, seed, state, steps, best value, parameters, and
    the sentence that a failed one ended with."""
    trials = {facts.run.folder.name: n for n, facts in enumerate(runs) if facts.run.folder.parent == folder}
    outcomes = _outcomes(folder)
    plans = [read_small_json(folder, path) for path in sorted((folder / "plans").glob("[0-9]*.json"))]
    plans = [plan for plan in plans if isinstance(plan.get("number"), int)]
    names = dict.fromkeys(str(key) for plan in plans for key in _parameters(plan))
    rows = []
    for plan in plans:
        run = trials.get(f"{plan['number']:04}")
        outcome = outcomes.get(plan["number"], {})
        state = str(outcome.get("state", ""))
        if state not in OVER:
            state = "waiting" if run is None else runs[run].state()
        value = None if run is None else runs[run].best(metric)
        rows.append(
            {
                "trial": plan["number"],
                "run": run,
                "seed": shown(plan.get("seed")),
                "state": text(state),
                "steps": None if run is None else runs[run].steps,
                "value": number(outcome.get("value")) if value is None else value,
                "parameters": [shown(_parameters(plan).get(name, "")) for name in names],
                "sentence": text(outcome.get("sentence") or ""),
            }
        )
    sign = 1 if any(runs[n].is_cost(metric) for n in trials.values()) else -1
    rows.sort(key=lambda row: sign * row["value"] if row["value"] is not None else float("inf"))
    return {"name": text(folder.name), "parameters": [text(name) for name in names], "rows": rows}


def _parameters(plan: dict[str, Any]) -> dict[str, Any]:
    found = plan.get("parameters")
    return found if isinstance(found, dict) else {}


def _outcomes(folder: Path) -> dict[int, dict[str, Any]]:
    """The last word about each trial."""
    path = folder / "outcomes.jsonl"
    found: dict[int, dict[str, Any]] = {}
    if not is_plain_file(folder, path) or path.stat().st_size > LARGEST:
        return found
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            outcome = json.loads(line)
            found[int(outcome["number"])] = outcome
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue  # a line that is being written
    return found
