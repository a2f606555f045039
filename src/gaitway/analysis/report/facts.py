"""What a page says of one run: where it stands, how far it is, what it was told. Taken once for each state of a run."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gaitway.analysis.metrics_file import METRICS
from gaitway.analysis.report.folders import read_small_json
from gaitway.analysis.runs import Run, shared_config
from gaitway.core.results import costs_of

SILENT_S = 120.0
"""Seconds without a new line after which a run without an end no longer counts as in training."""
DIGITS = 6
LONGEST = 200
"""Characters of a value in a table."""


@dataclass(frozen=True)
class RunFacts:
    """One run of a page."""

    run: Run = field(repr=False)
    id: str
    """Letters and digits that stand for its folder in addresses."""
    name: str
    """Its folder below that of the page."""
    task: str
    config: dict[str, Any] = field(repr=False)
    """Flat, without seed and folder."""
    steps: int | None
    planned: int | None
    seconds: float | None
    rate: float | None
    """Environment steps a second."""
    stopped_by: str | None
    ended: bool
    """Whether its summary tells of its last step."""
    contract: dict[str, Any] = field(repr=False)
    code: dict[str, Any] = field(repr=False)
    baselines: dict[str, float]
    """Returns of policies that have learnt nothing, by their name."""
    warnings: tuple[str, ...]
    """What was suspicious before the run began."""

    def is_cost(self, metric: str) -> bool:
        """Whether less of a logged metric is better: of losses, and of costs that the contract names."""
        kind, _, name = metric.partition("/")
        return "loss" in (kind, name) or name in costs_of(self.contract.get("facts"))

    def best(self, metric: str) -> float | None:
        """The best value of a metric; None if it was never logged."""
        values = self.run.series(metric)
        if values.empty:
            return None
        return number(float(values.min() if self.is_cost(metric) else values.max()))

    def state(self) -> str:
        """In a word: done, training, silent, stopped, pruned or failed."""
        if self.ended:
            if self.stopped_by == "pruned":
                return "pruned"
            return "stopped" if str(self.stopped_by).startswith("SIG") else "done"
        if (self.run.folder / "failures").is_dir():
            return "failed"
        try:
            age = time.time() - os.stat(self.run.folder / METRICS).st_mtime
        except OSError:
            age = math.inf
        return "training" if age < SILENT_S else "silent"


def facts_of(run: Run, root: Path) -> RunFacts:
    """What is known of a run; files that are missing or damaged say nothing."""
    summary = run.summary if isinstance(run.summary, dict) else {}
    env = run.config.get("env")
    steps = int(run.metrics.index[-1]) if len(run.metrics) else None
    told = summary.get("steps")
    ended = isinstance(told, int) and (steps is None or steps <= told)
    stopped_by = summary.get("stopped_by") if ended else None
    warnings = run.preflight.get("warnings")
    return RunFacts(
        run=run,
        id=hashlib.sha256(str(run.folder).encode(errors="surrogateescape")).hexdigest()[:16],
        name=name_in(run.folder, root),
        task=str(env.get("id", "")) if isinstance(env, dict) else "",
        config=shared_config(run),
        steps=steps if steps is not None else told if isinstance(told, int) else None,
        planned=_whole(run.config.get("total_steps")),
        seconds=_last(run, "time/seconds"),
        rate=_last(run, "time/steps_per_second"),
        stopped_by=None if stopped_by is None else str(stopped_by),
        ended=ended,
        contract=read_small_json(run.folder, run.folder / "contract.json"),
        code=read_small_json(run.folder, run.folder / "code.json"),
        baselines={name: mean for name, each in run.baselines().items() if (mean := number(each)) is not None},
        warnings=tuple(one for one in warnings if isinstance(one, str)) if isinstance(warnings, list) else (),
    )


def name_in(folder: Path, root: Path) -> str:
    """The folder as seen from another one."""
    try:
        return text(folder.relative_to(root)) if folder != root else text(folder.name)
    except ValueError:
        return text(folder)


def text(value: Any) -> str:
    """A text that any file can hold: file names may have bytes that are no characters."""
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8")


def shown(value: Any) -> str:
    """A value of a configuration as a short text."""
    said = text(json.dumps(value, default=str) if isinstance(value, list | dict | bool) or value is None else value)
    return said if len(said) <= LONGEST else f"{said[:LONGEST]}..."


def number(value: Any) -> float | None:
    """A number of a few digits for a page; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}")


def numbers(values: Iterable[float]) -> list[float | None]:
    return [number(float(value)) for value in values]


def _last(run: Run, name: str) -> float | None:
    series = run.series(name)
    return number(float(series.iloc[-1])) if len(series) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
