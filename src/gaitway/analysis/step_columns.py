"""Lines of metrics as columns that grow: eight bytes a number, and a table whenever one is asked for."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

NAN = float("nan")


class StepColumns:
    """A row per environment step, a column per metric, NaN where nothing was logged.

    Several lines may tell about one step (training, evaluation); of the same metric the first counts, as it does for
    the logger that writes them.
    """

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._columns: dict[str, array[float]] = {}
        self._told: set[tuple[int, str]] = set()
        """Rows and metrics that a line said to have no number."""

    def add(self, step: int, values: Mapping[str, Any]) -> None:
        """Take in what a line says about a step."""
        row = self._rows.setdefault(step, len(self._rows))
        columns = self._columns
        for name, value in values.items():
            column = columns.get(name)
            if column is not None and len(column) == row and type(value) is float:
                column.append(value)  # nearly always
                if value != value:
                    self._told.add((row, name))
            else:
                self._add_one(row, name, value)

    def _add_one(self, row: int, name: str, value: Any) -> None:
        column = self._columns.get(name)
        if column is None:
            if value is None:  # a metric that never has a number is no column
                self._told.add((row, name))
                return
            column = self._columns[name] = array("d")
        if len(column) <= row:
            column.extend([NAN] * (row + 1 - len(column)))
        if column[row] == column[row] or (row, name) in self._told:
            return
        column[row] = _number(value)
        if column[row] != column[row]:
            self._told.add((row, name))

    def table(self) -> pd.DataFrame:
        """All of it, sorted by step."""
        steps = np.fromiter(self._rows, dtype=np.int64, count=len(self._rows))
        values = np.full((len(steps), len(self._columns)), np.nan)
        for place, column in enumerate(self._columns.values()):
            values[: len(column), place] = column
        if np.any(steps[1:] < steps[:-1]):
            order = np.argsort(steps, kind="stable")
            steps, values = steps[order], values[order]
        return pd.DataFrame(values, index=pd.Index(steps, name="step"), columns=list(self._columns), copy=False)


def _number(value: Any) -> float:
    """A metric as a number; NaN for what is none."""
    try:
        return float(value)
    except (ValueError, TypeError, OverflowError):
        return NAN
