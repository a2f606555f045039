"""The metrics of a run as a table that is read on from where the last look ended.

A run that is resumed cuts its metrics back and writes on; one that ends may pack them. Both are noticed, by the name of
the file and by the bytes before the point where reading goes on, and the file is read anew.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

METRICS = "metrics.jsonl"
PACKED_METRICS = "metrics.jsonl.gz"
TAIL = 4096
"""Bytes before the point of reading that must be what they were."""
LARGEST_STEP = 2**62
"""What tables can hold; a line with more is none."""

logger = logging.getLogger(__name__)


class MetricsFile:
    """The metrics of one run folder."""

    def __init__(self, folder: Path) -> None:
        self.plain, self.packed = folder / METRICS, folder / PACKED_METRICS
        self._stamp: Any = None
        self._table: pd.DataFrame | None = None
        self._forget()

    def table(self) -> pd.DataFrame:
        """One row per step that was logged, one float column per metric; the same object while nothing is added."""
        path = self.plain if self.plain.exists() else self.packed
        stamp = (path, stamp_of(path))
        if stamp != self._stamp:
            if path == self.packed or self._stamp is None or self._stamp[0] != path:
                self._forget()
            self._stamp = stamp
            if stamp[1] is not None and self._read(path):
                self._table = None
        table = self._table
        if table is None:
            table = self._table = _table(self._rows)
        return table

    def _forget(self) -> None:
        self._rows: dict[int, dict[str, Any]] = {}
        self._table = None
        self._offset, self._lines, self._tail = 0, 0, b""

    def _read(self, path: Path) -> bool:
        """Take in what was added to a file; whether there was anything."""
        if path == self.packed:
            text = _unpacked(path)
        else:
            with path.open("rb") as file:
                text = self._added(file)
        whole, _, rest = text.rpartition(b"\n")
        found = self._take(whole, path)
        if whole or text[:1] == b"\n":
            self._offset += len(text) - len(rest)
            self._tail = (self._tail + text[: len(text) - len(rest)])[-TAIL:]
            self._lines += whole.count(b"\n") + 1
        # the last line may be cut off while a run writes it, or where it was killed: it is read again next time
        return self._take(rest, path, is_last=True) or found

    def _added(self, file: Any) -> bytes:
        """What stands behind the point of reading; everything, where the file is not the one that was read."""
        file.seek(max(self._offset - len(self._tail), 0))
        text: bytes = file.read()
        if text.startswith(self._tail):
            return text[len(self._tail) :]
        self._forget()
        file.seek(0)
        return bytes(file.read())

    def _take(self, text: bytes, path: Path, is_last: bool = False) -> bool:
        """Take in lines; whether there was one. What is no line is named, unless it is the last."""
        found = False
        for number, line in enumerate(text.split(b"\n"), start=self._lines + 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                step = int(row.pop("step"))
                if abs(step) > LARGEST_STEP:
                    raise ValueError("no step")
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
                if not is_last:
                    logger.warning("%s, line %d is not a metrics line and is left out", path, number)
                continue
            found = True
            # Several lines may tell about one step (training, evaluation); of the same metric the first counts, as it
            # does for the logger that writes them.
            known = self._rows.setdefault(step, {})
            for name, value in row.items():
                known.setdefault(name, value)
        return found


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """What changes with a file: place on the disk, size, time; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _table(rows: dict[int, dict[str, Any]]) -> pd.DataFrame:
    steps = sorted(rows)
    columns: dict[str, np.ndarray] = {}
    for number, step in enumerate(steps):
        for name, value in rows[step].items():
            if value is None:
                continue
            if name not in columns:
                columns[name] = np.full(len(steps), np.nan)
            columns[name][number] = _number(value)
    return pd.DataFrame(columns, index=pd.Index(steps, name="step", dtype=np.int64), dtype=float)


def _number(value: Any) -> float:
    """A metric as a number; NaN for what is none."""
    try:
        return float(value)
    except (ValueError, TypeError, OverflowError):
        return float("nan")


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
