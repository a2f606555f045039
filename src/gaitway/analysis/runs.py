"""Run folders as tables: `load_run` reads one, `load_runs` many, `group_runs` puts seeds of one experiment together.

Only files are read and nothing that trains is imported, so that runs of other versions and machines load too. Metrics
may be packed (`metrics.jsonl.gz`); where the plain file is there as well, it counts. Whoever looks again and
again keeps a `RunReader`, which reads only what has been added (`analysis/metrics_file.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from gaitway.analysis.metrics_file import METRICS, PACKED_METRICS, MetricsFile, stamp_of
from gaitway.core.config import flatten, read_config
from gaitway.core.run_names import nearest_runs

PER_RUN_KEYS = ("seed", "run_dir", "preflight", "video", "logging")
"""Top-level config keys in which runs of one group may differ: they change no number of a run."""
MAX_LABEL = 60
"""Characters; groups that differ in more than fits are called by the folder of their first run."""


@dataclass(frozen=True)
class Run:
    """What a run folder says about one run."""

    folder: Path
    config: dict[str, Any] = field(repr=False)
    """The effective config."""
    summary: dict[str, Any] = field(repr=False)
    """summary.json, empty if the run did not get that far."""
    metrics: pd.DataFrame = field(repr=False)
    """One row per environment step count that was logged (the index), one float column per metric, NaN where absent."""
    preflight: dict[str, Any] = field(default_factory=dict, repr=False)
    """preflight.json, what was known before the first step; empty if nobody looked."""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def seed(self) -> int | None:
        return self.config.get("seed")

    def baselines(self) -> dict[str, float]:
        """The mean returns of `zero` and `random` actions on the evaluation seeds, as far as they were measured."""
        found = self.preflight.get("returns")
        scores = found if isinstance(found, dict) else {}
        means = {str(name): score.get("mean") if isinstance(score, dict) else score for name, score in scores.items()}
        return {n: float(m) for n, m in means.items() if isinstance(m, int | float) and not isinstance(m, bool)}

    def series(self, name: str) -> pd.Series:
        """The logged values of one metric, without gaps; empty if it was never logged."""
        if name not in self.metrics:
            return pd.Series(dtype=float, name=name)
        return self.metrics[name].dropna()


class RunReader:
    """Reads run folders, again and again: what has not changed is not read twice, and of metrics only lines that were
    added. Runs that it returns share their tables with later ones; copy what you change. `at_once` is the limit of a
    `MetricsFile`."""

    def __init__(self, at_once: int | None = None) -> None:
        self._known: dict[Path, _Known] = {}
        self._at_once = at_once

    def read(self, folder: str | Path) -> Run:
        """The run as it is now, finished or not."""
        folder = Path(folder)
        known = self._known.get(folder)
        if known is None:
            if not is_run_folder(folder):
                raise ValueError(f"{folder} is not a run folder: it has neither config.yaml nor metrics.jsonl")
            known = self._known[folder] = _Known(folder, self._at_once)
        return known.read()

    def is_behind(self, folder: Path) -> bool:
        """Whether there is more in the metrics of a run than was read."""
        return folder in self._known and self._known[folder].metrics.is_behind

    def read_all(self, folders: Iterable[str | Path]) -> list[Run]:
        """The runs that `find_runs` finds."""
        return [self.read(folder) for folder in find_runs(folders)]


class _Known:
    """What has been read of one run folder."""

    def __init__(self, folder: Path, at_once: int | None) -> None:
        self.folder, self.metrics = folder, MetricsFile(folder, at_once)
        self.files: dict[str, tuple[Any, Any]] = {}
        self.run: Run | None = None

    def read(self) -> Run:
        config = self._file("config.yaml", read_config)
        summary, preflight = (self._file(name, _read_json) for name in ("summary.json", "preflight.json"))
        known = (config, summary, self.metrics.table(), preflight)
        run = self.run
        if run is None or any(
            new is not old
            for new, old in zip(known, (run.config, run.summary, run.metrics, run.preflight), strict=True)
        ):
            self.run = run = Run(self.folder, *known)
        return run

    def _file(self, name: str, load: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
        """What a small file says; it is read when it is another one than last time."""
        path = self.folder / name
        stamp, known = stamp_of(path), self.files.get(name)
        if known is None or known[0] != stamp:
            known = self.files[name] = (stamp, {} if stamp is None else load(path))
        return known[1]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_bytes()))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is damaged (not a JSON object); remove it, metrics.jsonl says the same") from error


def load_run(folder: str | Path) -> Run:
    """Read config.yaml, summary.json and metrics.jsonl of a run folder, finished or not."""
    return RunReader().read(folder)


def load_runs(folders: Iterable[str | Path]) -> list[Run]:
    """The runs that `find_runs` finds."""
    return RunReader().read_all(folders)


def find_runs(folders: Iterable[str | Path]) -> list[Path]:
    """Run folders, each once; a folder that is not a run stands for all runs below it, sorted by name."""
    found: dict[Path, Path] = {}
    for folder in map(Path, folders):
        below = _runs_below(folder)
        if not below:
            near = "" if folder.exists() else nearest_runs(folder)
            raise ValueError(f"no run folder in {folder}{near}: a run folder has config.yaml or metrics.jsonl")
        for path in below:
            found.setdefault(path.resolve(), path)
    return list(found.values())


def is_run_folder(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (METRICS, PACKED_METRICS, "config.yaml"))


def group_runs(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs whose configs differ in nothing but the seed, under a label that says in what the groups differ."""
    groups: dict[Any, tuple[dict[str, Any], list[Run]]] = {}
    for run in runs:
        config = shared_config(run)
        groups.setdefault(_hashable(config), (config, []))[1].append(run)
    differing = differing_keys([config for config, _ in groups.values()])
    labels: dict[str, list[Run]] = {}
    for config, members in groups.values():
        label = ", ".join(f"{key}={config[key]}" for key in differing if key in config)
        if not 0 < len(label) <= MAX_LABEL or label in labels:
            label = str(members[0].folder)
        labels[label] = members
    return labels


def shared_config(run: Run) -> dict[str, Any]:
    """The config as `{"algorithm.gamma": 0.99, ...}`, without what runs of one group may differ in."""
    return flatten({key: value for key, value in run.config.items() if key not in PER_RUN_KEYS})


def differing_keys(configs: Sequence[dict[str, Any]]) -> list[str]:
    """The keys in which flat configs differ; one that lacks a key has None there."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if any(config.get(key) != configs[0].get(key) for config in configs)]


def _hashable(value: Any) -> Any:
    """What is equal exactly where the values are: tuples for lists, sets of items for mappings."""
    if isinstance(value, dict):
        return frozenset((key, _hashable(item)) for key, item in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _runs_below(folder: Path) -> list[Path]:
    if is_run_folder(folder):
        return [folder]
    if not folder.is_dir():
        return []
    children = sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    return [path for child in children for path in _runs_below(child)]
