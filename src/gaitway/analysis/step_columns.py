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
        for name, value in values.items():
            column = self._columns.get(name)
            length = 0 if column is None else len(column)
            if length > row and column is not None and column[row] == column[row]:
                continue  # not NaN: there is one already
            found = _number(value)
            if found != found or (self._told and (row, name) in self._told):
                self._told.add((row, name))
                found = NAN
            if column is None:
                if value is None:
                    continue  # a metric that never has a number is no column
                column = self._columns[name] = array("d")
            if length > row:
                column[row] = found
            else:
                column.extend([NAN] * (row - length) + [found])

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
    if type(value) is float:
        return value
    try:
        return float(value)
    except (ValueError, TypeError, OverflowError):
        return NAN
