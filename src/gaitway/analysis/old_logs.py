"""Reads the log files of BBRL (its `TFLogger`) as runs, so that old results can be plotted and compared with new ones.

Such a log is a folder with `db.pickle.bzip2` or `db.pickle`, pickled lists of `(name, iteration, value)` written one
behind the other, and `params.pickle` with the hyper-parameters; `params.json` is no JSON but the text of a Python dict.
A pickle is a program; `core/plain_pickle.py` runs it without importing or calling anything, and anything but plain
containers, numbers and texts in the log is refused by name.
"""

from __future__ import annotations

import ast
import bz2
import io
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from gaitway.analysis.runs import Run
from gaitway.core.plain_pickle import PlainPickleError, load_plain

logger = logging.getLogger(__name__)

PACKED, PLAIN = "db.pickle.bzip2", "db.pickle"
MAX_BYTES = 1 << 30
"""A log that is larger than this when unpacked is refused, because a small file can be made to fill the memory."""
CUT_OFF = "%s is cut off; what was written last is left out"


class OldLogError(ValueError):
    """The folder is not a log, or not one that can be read safely; the message is one sentence that names the fix."""


def read_old_log(folder: str | Path, *, strict: bool = True) -> Run:
    """One log as a run: `metrics` by iteration (the index, called `step`), `config` the hyper-parameters.

    Of several values of one metric at one iteration the first counts, texts are left out, and a record that was cut
    off at the end is left out with a warning. `strict=False` also leaves out the values that are neither numbers nor
    texts (tensors, pictures, films) instead of refusing the log; nothing of them is built.
    """
    folder = Path(folder)
    rows: dict[int, dict[str, float]] = {}
    left_out = 0
    for name, iteration, value in _records(folder, strict):
        if isinstance(value, bool | int | float):
            rows.setdefault(int(iteration), {}).setdefault(name, float(value))
        else:
            left_out += not isinstance(value, str)
    if left_out:
        logger.warning("%s: %d values that are neither numbers nor texts are left out", folder, left_out)
    table = pd.DataFrame.from_dict(rows, orient="index", dtype=float).sort_index()
    table.index.name = "step"
    return Run(folder, _parameters(folder, strict), {}, table)


def read_old_logs(root: str | Path, *, strict: bool = True) -> list[Run]:
    """All logs in `root` and the folders below it, sorted by path."""
    found = find_old_logs(root)
    if not found:
        raise OldLogError(f"no old log in {root}: a log is a folder with {PACKED} or {PLAIN}")
    return [read_old_log(folder, strict=strict) for folder in found]


def find_old_logs(root: str | Path) -> list[Path]:
    """Folders with a log, sorted."""
    return sorted({path.parent for name in (PACKED, PLAIN) for path in Path(root).rglob(name) if path.is_file()})


def _records(folder: Path, strict: bool) -> list[tuple[str, int, Any]]:
    path = next((folder / name for name in (PACKED, PLAIN) if (folder / name).is_file()), None)
    if path is None:
        raise OldLogError(f"{folder} is not an old log: it has neither {PACKED} nor {PLAIN}")
    stream = io.BytesIO(_content(path))
    size = stream.getbuffer().nbytes
    records: list[tuple[str, int, Any]] = []
    while stream.tell() < size:
        part = _load(stream, path, strict)
        if part is None:
            logger.warning(CUT_OFF, path)
            break
        if not isinstance(part, list) or not all(_is_record(record) for record in part):
            raise OldLogError(f"{path} does not hold (name, iteration, value) records; is it BBRL's log?")
        records.extend(part)
    return records


def _is_record(record: Any) -> bool:
    if not (isinstance(record, tuple) and len(record) == 3 and isinstance(record[0], str)):
        return False
    return isinstance(record[1], int | float) and record[1] == record[1] // 1


def _content(path: Path) -> bytes:
    """The bytes of the file, unpacked; of a packed file that is cut off, what can be unpacked."""
    if path.name == PLAIN:
        if path.stat().st_size > MAX_BYTES:
            raise _too_large(path)
        return path.read_bytes()
    content, unpacker = bytearray(), bz2.BZ2Decompressor()
    with path.open("rb") as file:
        while chunk := file.read(65536):
            while chunk:
                if unpacker.eof:  # every time the log was written, a new stream began
                    unpacker = bz2.BZ2Decompressor()
                try:
                    content += unpacker.decompress(chunk, MAX_BYTES + 1 - len(content))
                except OSError as error:
                    raise OldLogError(f"{path} is damaged ({error}); copy it again from where it was made") from error
                if len(content) > MAX_BYTES:
                    raise _too_large(path)
                chunk = unpacker.unused_data
    if not unpacker.eof:
        logger.warning(CUT_OFF, path)
    return bytes(content)


def _too_large(path: Path) -> OldLogError:
    return OldLogError(f"{path} holds more than {MAX_BYTES:,} bytes; raise old_logs.MAX_BYTES if you trust it")


def _parameters(folder: Path, strict: bool) -> dict[str, Any]:
    """The hyper-parameters, nested as they were; empty if there are none."""
    path = folder / "params.pickle"
    problem: OldLogError | None = None
    if path.is_file():
        try:
            found = _load(io.BytesIO(path.read_bytes()), path, strict=True)
            if isinstance(found, Mapping):
                return _plain(found)
        except OldLogError as error:  # often a config object of another library; its text is in the other file
            problem = error
    path = folder / "params.json"
    if path.is_file():
        try:
            found = ast.literal_eval(path.read_text(encoding="utf-8").strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            found = None
        if isinstance(found, Mapping):
            return _plain(found)
    if problem is not None and strict:
        raise problem
    return {}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _load(stream: io.BytesIO, path: Path, strict: bool) -> Any:
    """The next object of the stream, or None if it is cut off."""
    try:
        return load_plain(stream, path, strict=strict)
    except PlainPickleError as error:
        raise OldLogError(str(error)) from error
