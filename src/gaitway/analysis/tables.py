"""Many run folders as one table: `Runs` reads, filters and joins them; small functions find extrema of one run.

Iterations are environment steps throughout. Hyper-parameters are the values of config.yaml under the path of their
keys, `algorithm/learning_rate`; one that a run does not have is the text "none".
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gaitway.analysis.aggregate import stack_curves
from gaitway.analysis.runs import PER_RUN_KEYS, Run, load_runs
from gaitway.core.config import flatten

ABSENT = "none"
"""Stands for a hyper-parameter that a run does not have; a null of the config is None."""
RUN_COLUMN = "_run"
"""Column that says which run a row is of; it begins with an underscore so that no metric can have its name."""
HYPER_PREFIX = "_hp/"


class Extremum(NamedTuple):
    """The environment step of the first highest or lowest value of a metric, and the value."""

    step: int
    value: float


def maximum(run: Run, name: str) -> Extremum:
    """The highest value of a metric and the first step that has it."""
    series = _logged(run, name)
    return Extremum(int(series.index[int(np.argmax(series.to_numpy()))]), float(series.max()))


def minimum(run: Run, name: str) -> Extremum:
    """The lowest value of a metric and the first step that has it."""
    series = _logged(run, name)
    return Extremum(int(series.index[int(np.argmin(series.to_numpy()))]), float(series.min()))


def value_at(run: Run, name: str, step: int) -> float | None:
    """The value of a metric that was logged at exactly this step, None if none was."""
    found = run.series(name).get(step)
    return None if found is None else float(found)


def fill_gaps(metrics: pd.DataFrame) -> pd.DataFrame:
    """A copy of a table of metrics in which gaps have the last value before them, or else the first after them."""
    return metrics.ffill().bfill()


def hyper_parameters(run: Run) -> dict[str, Any]:
    """The config of a run as `{"algorithm/learning_rate": 0.0003, ...}`; lists and empty mappings are values."""
    return flatten(run.config, separator="/")


def run_frame(run: Run, *, with_hyper_parameters: bool = True) -> pd.DataFrame:
    """One run as a table, a row per logged step: columns `step`, the metrics and `_hp/<path>`; gaps are NaN."""
    return Runs([run]).frame(with_hyper_parameters=with_hyper_parameters).drop(columns=RUN_COLUMN)


class Runs:
    """A collection of runs, in the order they were added. `filter` makes a smaller one; nothing changes a run."""

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._runs: list[Run] = []
        self._hyper: list[dict[str, Any]] = []
        self.add(runs)

    @classmethod
    def read(cls, *folders: str | Path) -> Runs:
        """The runs in folders; one that is not itself a run stands for all runs below it."""
        return cls(load_runs(folders))

    def add(self, runs: Run | Iterable[Run]) -> Runs:
        """Append a run, or all runs of another collection; returns this collection."""
        for run in [runs] if isinstance(runs, Run) else list(runs):
            self._runs.append(run)
            self._hyper.append(hyper_parameters(run))
        return self

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __getitem__(self, index: int) -> Run:
        return self._runs[index]

    def columns(self) -> list[str]:
        """Every metric that any run logged, sorted."""
        return sorted({str(name) for run in self._runs for name in run.metrics})

    def hyper_parameters(self) -> list[str]:
        """Every hyper-parameter that any run has, in the order of the configs."""
        return list(dict.fromkeys(name for hyper in self._hyper for name in hyper))

    def values(self, name: str) -> list[Any]:
        """The distinct values of a hyper-parameter, in order of appearance."""
        return _distinct(self._values(name))

    def differing(self) -> dict[str, list[Any]]:
        """The hyper-parameters in which these runs differ, with their values; seed, folder, films and logs aside."""
        names = [name for name in self.hyper_parameters() if name.partition(".")[0] not in PER_RUN_KEYS]
        found = {name: self.values(name) for name in names}
        return {name: values for name, values in found.items() if len(values) > 1}

    def filter(self, name: str, wanted: Any) -> Runs:
        """The runs whose hyper-parameter equals `wanted`, or for which the predicate `wanted(value)` is true.

        A run without it has the value "none".
        """
        accept: Callable[[Any], bool] = wanted if callable(wanted) else lambda value: _same(value, wanted)
        values = self._values(name)
        return Runs(run for run, value in zip(self._runs, values, strict=True) if accept(value))

    def best(self, score: Callable[[Run], float]) -> Run:
        """The first run with the highest score, e.g. `runs.best(lambda run: maximum(run, "eval/return").value)`."""
        if not self._runs:
            raise ValueError("there is no run to choose from; add runs first, or relax the filter")
        scores = [float(score(run)) for run in self._runs]
        if np.isnan(scores).all():
            raise ValueError("the score of every run is NaN; use a metric that the runs have logged")
        return self._runs[int(np.nanargmax(scores))]

    def frame(self, *, with_hyper_parameters: bool = True) -> pd.DataFrame:
        """All runs below each other: `_run`, `step`, the metrics of all runs and, if wanted, `_hp/<path>`.

        One row per step that a run logged; what a run did not log is NaN, what its config lacks is "none". Lists and
        mappings of a config appear as JSON text, so that one can group by them.
        """
        names = self.hyper_parameters() if with_hyper_parameters else []
        parts = []
        for label, run, hyper in zip(self._labels(), self._runs, self._hyper, strict=True):
            constants = {HYPER_PREFIX + name: _cell(hyper.get(name, ABSENT)) for name in names}
            index = run.metrics.index
            left = pd.DataFrame({RUN_COLUMN: label, "step": index.to_numpy(dtype=np.int64)}, index=index)
            right = pd.DataFrame({name: [value] * len(index) for name, value in constants.items()}, index=index)
            parts.append(pd.concat([left, run.metrics.reindex(columns=self.columns()), right], axis=1))
        if not parts:
            return pd.DataFrame({RUN_COLUMN: pd.Series(dtype=str), "step": pd.Series(dtype=np.int64)})
        return pd.concat(parts, ignore_index=True)

    def scores(self, name: str, *, task: str = "env/id", last: int = 1) -> tuple[list[Any], np.ndarray]:
        """Tasks, and what the runs of each reached `[runs, tasks]`: the mean of the `last` values of a metric.

        Tasks with fewer runs than others are filled up with NaN, and so is a run that never logged the metric.
        """
        if last < 1:
            raise ValueError(f"last is {last}; it counts logged values and must be 1 or more")
        tasks, of_run = self.values(task), self._values(task)
        columns: list[list[float]] = [[] for _ in tasks]
        for run, value in zip(self._runs, of_run, strict=True):
            series = run.series(name)
            columns[tasks.index(value)].append(float(series.iloc[-last:].mean()) if len(series) else float("nan"))
        return tasks, stack_curves(columns)

    def _values(self, name: str) -> list[Any]:
        """The value of a hyper-parameter for each run."""
        known = self.hyper_parameters()
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3) or known[:10]
            raise KeyError(f"no run has the hyper-parameter {name!r}; there are {', '.join(close)}")
        return [hyper.get(name, ABSENT) for hyper in self._hyper]

    def _labels(self) -> list[str]:
        """Folder names, or whole paths where names are not distinct."""
        names = [run.name for run in self._runs]
        return names if len(set(names)) == len(names) else [str(run.folder) for run in self._runs]


def _logged(run: Run, name: str) -> pd.Series:
    series = run.series(name)
    if series.empty:
        known = [str(column) for column in run.metrics]
        close = difflib.get_close_matches(name, known, n=3) or known[:10]
        raise KeyError(f"{run.folder} has no values of {name!r}; it has {', '.join(close) or 'no metrics at all'}")
    return series


def _same(value: Any, other: Any) -> bool:
    """Equal, where True is not 1."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def _distinct(values: Iterable[Any]) -> list[Any]:
    """Without repetitions; values may be lists, which sets refuse."""
    found: list[Any] = []
    for value in values:
        if not any(_same(value, other) for other in found):
            found.append(value)
    return found


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | Mapping) else value
