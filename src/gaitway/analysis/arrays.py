"""Numbers from text, CSV, NPY and NPZ files, whoever wrote them. Nothing in a file is ever executed."""

from __future__ import annotations

import csv
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from gaitway.analysis.stats import FloatArray

STEP_NAMES = ("step", "steps", "iteration")
"""Under these names a column of a CSV or an array of an NPZ holds the steps of the rows."""


def read_array(path: str | Path, name: str | None = None) -> tuple[FloatArray, FloatArray | None]:
    """Values `[steps, runs]`, or `[runs]`, and the steps `[steps]` of the rows if the file has them.

    `name` chooses among the arrays of an NPZ. A file of text with a single line or a single column is `[runs]`; it may
    have a header, and empty cells are missing values.
    """
    path = Path(path)
    try:
        if path.suffix.lower() in (".npy", ".npz"):
            loaded = np.load(path, allow_pickle=False)
            values, steps = (loaded, None) if isinstance(loaded, np.ndarray) else _from_archive(loaded, name)
        else:
            values, steps = _from_text(path)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    for array in (values, steps):
        if array is not None and array.dtype.kind not in "fiub":
            raise ValueError(f"{path} holds values of type {array.dtype}; it must hold real numbers")
    if values.ndim not in (1, 2) or values.size == 0:
        raise ValueError(f"{path} has shape {list(values.shape)}; it must be [steps, runs] or [runs]")
    return values.astype(np.float64), None if steps is None else steps.astype(np.float64)


def _from_archive(archive: Any, name: str | None) -> tuple[np.ndarray, np.ndarray | None]:
    with archive:
        names = list(archive.files)
        steps = next((archive[known] for known in STEP_NAMES if known in names), None)
        others = [known for known in names if known not in STEP_NAMES]
        wanted = name if name in names else others[0] if len(others) == 1 else None
        if wanted is None:
            raise ValueError(f"it holds the arrays {', '.join(names)}; name one of them (--metric NAME)")
        return archive[wanted], steps


def _from_text(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    lines = [line.strip(" ") for line in path.read_text("utf-8-sig").splitlines()]
    lines = [line for line in lines if line.strip() and not line.startswith("#")]
    rows = list(csv.reader(lines)) if path.suffix.lower() == ".csv" else [line.split() for line in lines]
    rows = [[cell.strip() for cell in row] for row in rows]
    header = rows.pop(0) if rows and _is_header(rows[0]) else []
    if not rows:
        raise ValueError("it holds no numbers")
    table = np.full((len(rows), max(len(row) for row in [header, *rows])), np.nan)
    for number, row in enumerate(rows):
        for column, cell in enumerate(row):
            if not _is_number(cell):
                raise ValueError(f"{cell!r} in row {number + 1} is not a number")
            table[number, column] = float(cell or "nan")
    for column, title in enumerate(header):
        if title.lower() in STEP_NAMES or (column == 0 and not title):
            return np.delete(table, column, axis=1), table[:, column]
    return (table.reshape(-1) if 1 in table.shape else table), None


def _is_header(row: list[str]) -> bool:
    """Whether a first row holds names; pandas may write none for the first column and 0, 1, 2, ... for the others."""
    numbered = [str(number) for number in range(len(row) - 1)]
    return not all(_is_number(cell) for cell in row) or (len(row) > 1 and row == ["", *numbered])


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True
