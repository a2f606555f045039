"""Metrics and messages of a run.

`metrics.jsonl` is the source of truth: one strict JSON object per line, `step` first, then the metrics by name, then
what depends on the clock under `time/`, so that two equal runs differ there alone. Floats are written with `repr` and
come back exactly; nan and inf are written as null. TensorBoard and Weights & Biases only listen: one that fails is
dropped with a warning. Logging never stops training.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO

import numpy as np
from torch import Tensor

from gaitway.core.config import ConfigError, read_config
from gaitway.core.files import finite, writing_advice

log = logging.getLogger("gaitway")


class Sink(Protocol):
    """Something else that wants the metrics."""

    def write(self, step: int, metrics: Mapping[str, int | float]) -> None: ...

    def close(self) -> None: ...


class Logger:
    """Writes the metrics of a run into `folder`; without one, nowhere.

    `wandb` are keyword arguments of `wandb.init`; by default it works offline and asks for no login.
    """

    def __init__(
        self, folder: str | Path | None, *, tensorboard: bool = False, wandb: Mapping[str, Any] | None = None
    ) -> None:
        self.folder = None if folder is None else Path(folder)
        self.lost = 0
        """Lines that could not be written since the files were opened."""
        self._file = None if self.folder is None else JsonLines(self.folder / "metrics.jsonl")
        self._wanted: dict[str, Mapping[str, Any]] = {}
        if self.folder is not None and tensorboard:
            self._wanted["tensorboard"] = {}
        if self.folder is not None and wandb is not None:
            _require("wandb", "logging.wandb", 'pip install "gaitway[wandb]"')
            self._wanted["wandb"] = wandb
        self._sinks: dict[str, Sink] | None = None

    def log(self, step: int, metrics: Mapping[str, Any], times: Mapping[str, Any] | None = None) -> None:
        """One line at environment step `step`; `times` are the values that depend on the clock, without `time/`."""
        record: dict[str, int | float] = {}
        for name in sorted(metrics):
            if name == "step" or name.startswith("time/"):
                raise ValueError(f"a metric cannot be called {name!r}; pass what depends on the clock in `times`")
            record[name] = number(name, metrics[name])
        for name in sorted(times or {}):
            record[f"time/{name}"] = number(name, (times or {})[name])
        if self._file is not None:
            self._write({"step": int(step), **record})
        self._tell(int(step), record)

    def position(self) -> int:
        """Bytes of metrics.jsonl so far, forced to disk: a checkpoint never knows of lines that a power cut takes."""
        return 0 if self._file is None else self._file.sync()

    def truncate(self, position: int) -> None:
        """Forget what was written after `position`, and a torn line before it; for going on from a checkpoint."""
        if self._file is not None:
            self._file.truncate(position)

    def close(self) -> None:
        """Finish all files; calling it again does nothing, and a later `log` opens them again."""
        for name, sink in (self._sinks or {}).items():
            try:
                sink.close()
            except Exception as error:  # whatever a foreign library raises, the run is over and must end well
                log.warning("%s did not close: %s", name, error)
        self._sinks = None
        if self._file is not None:
            self._file.close()
            if self.lost:
                log.warning("%d lines of metrics are missing from %s", self.lost, self._file.path)
                self.lost = 0

    def __enter__(self) -> Logger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, record: Mapping[str, Any]) -> None:
        assert self._file is not None
        try:
            self._file.append(record)
        except OSError as error:
            if self.lost == 0:
                log.warning(
                    "metrics are lost, training goes on: cannot write %s: %s", self._file.path, writing_advice(error)
                )
            self.lost += 1

    def _tell(self, step: int, record: Mapping[str, int | float]) -> None:
        if self._sinks is None:
            self._sinks = {}
            for name, options in list(self._wanted.items()):
                self._guard(name, lambda name=name, options=options: self._open_sink(name, options, step))
        for name, sink in list(self._sinks.items()):
            self._guard(name, lambda sink=sink: sink.write(step, record))

    def _open_sink(self, name: str, options: Mapping[str, Any], step: int) -> None:
        assert self.folder is not None
        assert self._sinks is not None
        self._sinks[name] = (
            TensorBoardSink(self.folder, step) if name == "tensorboard" else WandbSink(self.folder, options)
        )

    def _guard(self, name: str, action: Any) -> None:
        try:
            action()
        except Exception as error:  # foreign libraries raise anything; metrics.jsonl still has all of it
            log.warning("%s is switched off, it failed: %s", name, error)
            self._wanted.pop(name, None)
            if self._sinks is not None:
                self._sinks.pop(name, None)


class JsonLines:
    """An append-only file of JSON objects in which every line is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._end = 0

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

    def sync(self) -> int:
        try:
            os.fsync(self._open())
        except OSError as error:
            log.warning("cannot sync %s: %s", self.path, error.strerror)
        return self._end

    def truncate(self, position: int) -> None:
        try:
            descriptor = self._open()
            if position > self._end:
                log.warning("%s is shorter than the checkpoint says; some of its lines are lost", self.path)
            elif position < self._end:
                os.ftruncate(descriptor, position)
                self._end = self._whole_lines(descriptor)
        except OSError as error:
            log.warning("cannot shorten %s: %s", self.path, writing_advice(error))

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        if self._descriptor is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._end = self._whole_lines(descriptor)
            self._descriptor = descriptor
        return self._descriptor

    @staticmethod
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


class TensorBoardSink:
    """Scalars for `tensorboard --logdir`; of an earlier part of the run, what lies behind `first_step` is hidden."""

    def __init__(self, folder: Path, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=first_step)

    def write(self, step: int, metrics: Mapping[str, int | float]) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        self.writer.close()


class WandbSink:
    """Weights & Biases, one commit per line of metrics, the environment step as its step."""

    def __init__(self, folder: Path, options: Mapping[str, Any]) -> None:
        import wandb

        config = read_config(folder / "config.yaml") if (folder / "config.yaml").is_file() else {}
        settings = {"mode": "offline", "project": "gaitway", "name": folder.name, "dir": str(folder), "config": config}
        self.run = wandb.init(**{**settings, **options})

    def write(self, step: int, metrics: Mapping[str, int | float]) -> None:
        self.run.log(dict(metrics), step=step)

    def close(self) -> None:
        self.run.finish()


def number(name: str, value: Any) -> int | float:
    """A Python number from a Python, NumPy or torch one; anything else is a mistake of the caller."""
    if isinstance(value, Tensor | np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value)
    raise TypeError(f"the metric {name!r} is {value!r}; metrics are single numbers")


def setup_log(path: str | Path | None, level: str = "info") -> logging.Logger:
    """Send the library's messages to the file `path` (all of them) and to stderr (from `level` on), as dated lines.

    A terminal, where the progress display is, gets warnings and errors alone. Calling it again replaces the setting.
    """
    for handler in [handler for handler in log.handlers if getattr(handler, "is_gaitway", False)]:
        log.removeHandler(handler)
        handler.close()
    threshold = logging.getLevelNamesMapping()[level.upper()]
    handlers: list[logging.Handler] = [_StderrHandler()]
    handlers[0].setLevel(max(threshold, logging.WARNING) if sys.stderr.isatty() else threshold)
    if path is not None:
        try:
            handlers.append(_FileHandler(path, encoding="utf-8"))
        except OSError as error:
            print(f"gaitway: no log file {path}: {writing_advice(error)}", file=sys.stderr)
    for handler in handlers:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%d %H:%M:%S"))
        handler.is_gaitway = True  # type: ignore[attr-defined]
        log.addHandler(handler)
    log.setLevel(logging.DEBUG)  # the file also gets tracebacks, which are debug messages
    return log


class _StderrHandler(logging.StreamHandler):
    """Writes to what sys.stderr is at that moment, because a progress display replaces it for a while."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr


class _FileHandler(logging.FileHandler):
    """A log file that says once that it cannot be written, and then is silent."""

    failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        if not self.failed:
            self.failed = True
            print(f"gaitway: cannot write {self.baseFilename}, messages are lost", file=sys.stderr)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what is still in the buffer of a full disk
            super().close()


def _require(module: str, key: str, command: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ConfigError(f"{key} is set but the package {module} is not installed; install it by `{command}`", key)
