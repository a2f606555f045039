"""The metrics of a run as a table that is read on from where the last look ended.

A run that is resumed cuts its metrics back and writes on; one that ends may pack them. Both are noticed, by the name of
the file and by the bytes before the point where reading goes on, and the file is read anew.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gaitway.analysis.step_columns import StepColumns

METRICS = "metrics.jsonl"
PACKED_METRICS = "metrics.jsonl.gz"
TAIL = 4096
"""Bytes before the point of reading that must be what they were."""
PART = 1 << 23
"""Bytes that are read at a time."""
MOST_UNPACKED = 1 << 29
"""Bytes of a packed file; a small one may claim to hold anything."""
LARGEST_STEP = 2**62
"""What tables can hold; a line with more is none."""

logger = logging.getLogger(__name__)


class MetricsFile:
    """The metrics of one run folder. With `at_once` a look takes in about so many bytes at most and the next one the
    others, so that whoever looks at many runs need not wait for a large one."""

    def __init__(self, folder: Path, at_once: int | None = None) -> None:
        self.plain, self.packed = folder / METRICS, folder / PACKED_METRICS
        self.is_behind = False
        """Whether the last look left something to read."""
        self._at_once = at_once
        self._stamp: Any = None
        self._table: pd.DataFrame | None = None
        self._forget()

    def table(self) -> pd.DataFrame:
        """One row per step that was logged, one float column per metric; the same object while nothing is added."""
        path = self.plain if self.plain.exists() else self.packed
        stamp = (path, stamp_of(path))
        if stamp != self._stamp or self.is_behind:
            if path == self.packed or self._stamp is None or self._stamp[0] != path:
                self._forget()
            self._stamp = stamp
            if stamp[1] is not None and self._read(path):
                self._table = None
        table = self._table
        if table is None:
            table = self._table = self._columns.table()
        return table

    def _forget(self) -> None:
        self._columns = StepColumns()
        self._table = None
        self._offset, self._lines, self._tail = 0, 0, b""

    def _read(self, path: Path) -> bool:
        """Take in what was added to a file; whether there was anything."""
        self.is_behind = False
        if path == self.packed:
            return self._take_part(_unpacked(path), path, is_last=True)
        found = False
        with path.open("rb") as file:
            file.seek(self._offset - len(self._tail))
            if file.read(len(self._tail)) != self._tail:  # not the file that was read
                self._forget()
            begun, is_last = self._offset, False
            while not is_last and not self.is_behind:
                file.seek(self._offset)
                text = file.read(PART)
                is_last = len(text) < PART
                found = self._take_part(text, path, is_last) or found
                self.is_behind = not is_last and self._at_once is not None and self._offset - begun >= self._at_once
        return found

    def _take_part(self, text: bytes, path: Path, is_last: bool) -> bool:
        """Take in the whole lines of a part of the file, and go on behind them; whether there was one."""
        whole, newline, rest = text.rpartition(b"\n")
        if not newline and not is_last:
            whole, rest = rest, b""  # a line that is longer than a part is none
        found = self._take(whole, path)
        taken = len(text) - len(rest)
        if taken:
            self._offset += taken
            self._tail = (self._tail + text[:taken])[-TAIL:]
            self._lines += whole.count(b"\n") + 1
        # the last line may be cut off while a run writes it, or where it was killed: it is read again next time
        return (is_last and self._take(rest, path, is_last=True)) or found

    def _take(self, text: bytes, path: Path, is_last: bool = False) -> bool:
        """Take in lines; whether there was one. What is no line is named, unless it is the last."""
        found = False
        for number, line in enumerate(_lines(text), start=self._lines + 1):
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
            self._columns.add(step, row)
        return found


def _lines(text: bytes) -> Sequence[str | bytes]:
    """Lines, as texts if they are: Python reads JSON in texts faster."""
    try:
        return text.decode().split("\n")
    except UnicodeDecodeError:
        return text.split(b"\n")  # only the line that is no text is none


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """What changes with a file: place on the disk, size, time; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


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
                    text += member.decompress(chunk, MOST_UNPACKED - len(text) or 1)
                except zlib.error as error:
                    logger.warning("%s is damaged (%s); what lies behind that is left out", path, error)
                    return bytes(text)
                if len(text) >= MOST_UNPACKED:
                    logger.warning("%s unpacks to more than %s bytes; the rest is left out", path, f"{MOST_UNPACKED:,}")
                    return bytes(text)
                chunk = member.unused_data
    if not member.eof:
        logger.warning("%s is cut off; its last lines are left out", path)
    return bytes(text)
