"""Run folders as tables: `load_run` reads one, `load_runs` many, `group_runs` puts seeds of one experiment together.

Only files are read and nothing that trains is imported, so that runs of other versions and machines load too. Metrics
may be packed (`metrics.jsonl.gz`); where the plain file is there as well, it counts.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from gaitway.core.config import flatten, read_config

logger = logging.getLogger(__name__)

PER_RUN_KEYS = ("seed", "run_dir")
"""Top-level config keys in which runs of one group may differ."""
METRICS = "metrics.jsonl"
PACKED_METRICS = "metrics.jsonl.gz"
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

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def seed(self) -> int | None:
        return self.config.get("seed")

    def series(self, name: str) -> pd.Series:
        """The logged values of one metric, without gaps; empty if it was never logged."""
        if name not in self.metrics:
            return pd.Series(dtype=float, name=name)
        return self.metrics[name].dropna()


def load_run(folder: str | Path) -> Run:
    """Read config.yaml, summary.json and metrics.jsonl of a run folder, finished or not."""
    folder = Path(folder)
    if not is_run_folder(folder):
        raise ValueError(f"{folder} is not a run folder: it has neither config.yaml nor metrics.jsonl")
    config_file, summary_file = folder / "config.yaml", folder / "summary.json"
    config = read_config(config_file) if config_file.exists() else {}
    summary = json.loads(summary_file.read_text()) if summary_file.exists() else {}
    return Run(folder, config, summary, _read_metrics(folder))


def load_runs(folders: Iterable[str | Path]) -> list[Run]:
    """The runs that `find_runs` finds."""
    return [load_run(folder) for folder in find_runs(folders)]


def find_runs(folders: Iterable[str | Path]) -> list[Path]:
    """Run folders, each once; a folder that is not a run stands for all runs below it, sorted by name."""
    found: dict[Path, Path] = {}
    for folder in map(Path, folders):
        below = _runs_below(folder)
        if not below:
            raise ValueError(f"no run folder in {folder}: a run folder has config.yaml or metrics.jsonl")
        for path in below:
            found.setdefault(path.resolve(), path)
    return list(found.values())


def is_run_folder(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (METRICS, PACKED_METRICS, "config.yaml"))


def group_runs(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs whose configs differ in nothing but the seed, under a label that says in what the groups differ."""
    groups: list[tuple[dict[str, Any], list[Run]]] = []
    for run in runs:
        shared = flatten({key: value for key, value in run.config.items() if key not in PER_RUN_KEYS})
        for config, members in groups:
            if config == shared:
                members.append(run)
                break
        else:
            groups.append((shared, [run]))
    keys = dict.fromkeys(key for config, _ in groups for key in config)
    differing = [key for key in keys if any(config.get(key) != groups[0][0].get(key) for config, _ in groups)]
    labels: dict[str, list[Run]] = {}
    for config, members in groups:
        label = ", ".join(f"{key}={config[key]}" for key in differing if key in config)
        if not 0 < len(label) <= MAX_LABEL or label in labels:
            label = str(members[0].folder)
        labels[label] = members
    return labels


def _read_metrics(folder: Path) -> pd.DataFrame:
    rows: dict[int, dict[str, Any]] = {}
    path = folder / METRICS
    if path.exists():
        lines = path.read_bytes().splitlines()
    else:
        path = folder / PACKED_METRICS
        lines = _unpacked(path).splitlines() if path.exists() else []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            step = int(row.pop("step"))
        except (ValueError, KeyError, TypeError, AttributeError):
            if number < len(lines):  # the last line may be cut off while a run writes it, or where it was killed
                logger.warning("%s, line %d is not a metrics line and is left out", path, number)
            continue
        # Several lines may tell about one step (training, evaluation); of the same metric the first counts, as it does
        # for the logger that writes them.
        known = rows.setdefault(step, {})
        for name, value in row.items():
            known.setdefault(name, value)
    numbers = {step: {name: value for name, value in row.items() if value is not None} for step, row in rows.items()}
    table = pd.DataFrame.from_dict(numbers, orient="index").sort_index()
    table.index.name = "step"
    return table.apply(pd.to_numeric, errors="coerce").astype(float)


def _unpacked(path: Path) -> bytes:
    """The text of a gzip file of one or several members; of a file that is cut or damaged, what comes before that."""
    text = bytearray()
    member = zlib.decompressobj(wbits=31)  # 31: gzip
    with path.open("rb") as file:
        while chunk := file.read(65536):
            while chunk:
                if member.eof:
                    member = zlib.decompressobj(wbits=31)
                try:
                    text += member.decompress(chunk)
                except zlib.error as error:
                    logger.warning("%s is damaged (%s); what lies behind that is left out", path, error)
                    return bytes(text)
                chunk = member.unused_data
    if not member.eof:
        logger.warning("%s is cut off; its last lines are left out", path)
    return bytes(text)


def _runs_below(folder: Path) -> list[Path]:
    if is_run_folder(folder):
        return [folder]
    if not folder.is_dir():
        return []
    children = sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    return [path for child in children for path in _runs_below(child)]
