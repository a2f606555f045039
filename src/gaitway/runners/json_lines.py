"""A file of JSON objects, one per line, that only grows: every line in it is whole, and it can be cut back exactly.

With `compress` the file is packed by gzip when it is closed (`metrics.jsonl.gz`) and unpacked when it is opened again,
so that positions are those of the plain text whatever lies on the disk. A run that is killed leaves the plain file.
Where both exist, a writer was stopped between two of its steps: they say the same, and the plain one counts.
"""

from __future__ import annotations

import errno
import gzip
import json
import logging
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from gaitway.core.files import finite, writing_advice

log = logging.getLogger("gaitway")


class JsonLines:
    """Appends objects to `path`. Each line is written at once; `sync` forces all of them to disk."""

    def __init__(self, path: Path, compress: bool = False) -> None:
        self.path = path
        self.packed = path.with_name(path.name + ".gz")
        self.compress = compress
        self._descriptor: int | None = None
        self._end = 0

    def exists(self) -> bool:
        """Whether there is a file to go on from; devices are none."""
        return self.path.is_file() or self.packed.is_file()

    def append(self, record: Mapping[str, Any]) -> None:
        line = (json.dumps(finite(record), allow_nan=False) + "\n").encode()
        descriptor = self._open()
        try:
            written = os.write(descriptor, line)
            if written != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(descriptor, self._end)  # the next line must not stand behind half of this one
            raise
        self._end += written

    def records(self) -> Iterator[dict[str, Any]]:
        """The objects that the file holds, in their order; what is no object is left out."""
        self._open()
        with open(self.path, "rb") as file:
            for line in file:
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                if isinstance(record, dict):
                    yield record

    def sync(self) -> int:
        """Bytes of text so far, forced to disk."""
        try:
            os.fsync(self._open())
        except OSError as error:
            log.warning("cannot sync %s: %s", self.path, error.strerror)
        return self._end

    def truncate(self, position: int) -> None:
        """Forget what was written after `position`, and a torn line before it."""
        try:
            descriptor = self._open()
            if position > self._end:
                log.warning("%s is shorter than the checkpoint says; some of its lines are lost", self.path)
            elif position < self._end:
                os.ftruncate(descriptor, position)
                self._end = _whole_lines(descriptor)
        except OSError as error:
            log.warning("cannot shorten %s: %s", self.path, writing_advice(error))

    def close(self) -> None:
        """Close the file, and pack it if it is to be compressed; what cannot be packed stays as it is."""
        if self._descriptor is None:
            return
        os.close(self._descriptor)
        self._descriptor = None
        if self.compress:
            try:
                self._pack()
            except OSError as error:
                log.warning("%s stays uncompressed: %s", self.path, writing_advice(error))

    def _open(self) -> int:
        if self._descriptor is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.packed.exists():
                self._unpack()
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._end = _whole_lines(descriptor)
            self._descriptor = descriptor
        return self._descriptor

    def _pack(self) -> None:
        with (
            open(self.path, "rb") as plain,
            _replacing(self.packed) as file,
            # without a name and a date inside, equal lines give equal bytes
            gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        ):
            shutil.copyfileobj(plain, packed)
        self.path.unlink()

    def _unpack(self) -> None:
        if self.path.exists():
            self.packed.unlink()
            return
        try:
            with _replacing(self.path) as file, gzip.open(self.packed, "rb") as packed:
                shutil.copyfileobj(packed, file)
            self.packed.unlink()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            damaged = self.packed.with_name(self.packed.name + ".damaged")
            os.replace(self.packed, damaged)
            log.warning("%s cannot be unpacked (%s) and is kept as %s", self.packed, error, damaged.name)


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` once it is on disk, and is removed if that fails."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with open(partial, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _whole_lines(descriptor: int) -> int:
    """Cut a torn last line off; returns the size of what is left."""
    end = size = os.fstat(descriptor).st_size
    while end > 0:
        start = max(end - 65536, 0)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end != size:
        os.ftruncate(descriptor, end)
    return end
