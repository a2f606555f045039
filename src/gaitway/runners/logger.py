"""Metrics and messages of a run.

`metrics.jsonl` is the source of truth: one strict JSON object per line, `step` first, then the metrics by name, then
what depends on the clock under `time/`, so that two equal runs differ there alone. Floats are written with `repr` and
come back exactly; nan and inf are written as null. TensorBoard and Weights & Biases only listen: one that fails is
dropped with a warning. Logging never stops training.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TextIO

import numpy as np
import yaml
from torch import Tensor

from gaitway.core.config import ConfigError, read_config
from gaitway.core.files import atomic_write_text, writing_advice
from gaitway.core.plain import plain
from gaitway.runners.json_lines import JsonLines
from gaitway.runners.media import Kind, image_array, video_array
from gaitway.runners.media_folder import MediaFolder
from gaitway.runners.tensorboard_sink import TensorBoardSink
from gaitway.runners.wandb_sink import WandbSink, check_options

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger("gaitway")

MAX_WAITING = 100_000
"""Lines of metrics that wait in memory for room on the disk."""


class Sink(Protocol):
    """Something else that wants the metrics, and those kinds of pictures and texts that it `takes`."""

    takes: frozenset[Kind]

    def write(self, step: int, metrics: Mapping[str, int | float]) -> None: ...

    def show(self, kind: Kind, name: str, value: Any, step: int, fps: float) -> None: ...

    def close(self, exit_code: int = 0) -> None: ...


class Recorder:
    """What a program may say about itself; `Logger` and what its `prefixed` returns."""

    def log(self, step: int, metrics: Mapping[str, Any], times: Mapping[str, Any] | None = None) -> None:
        """Single numbers at environment step `step`; `times` are those that depend on the clock, without `time/`."""
        raise TypeError(f"{type(self).__name__} does not implement log")

    def show(self, kind: Kind, name: str, value: Any, step: int, fps: float = 0.0) -> None:
        """Hand a picture or a text to the listeners that take its kind; the methods below call this."""
        raise TypeError(f"{type(self).__name__} does not implement show")

    def add_images(self, name: str, images: Tensor | np.ndarray, step: int) -> None:
        """Pictures, uint8 `[H, W, 3]` or `[N, H, W, 3]`."""
        self.show("images", name, image_array(images), step)

    def add_figure(self, name: str, figure: Figure, step: int) -> None:
        """A matplotlib figure; it stays open and unchanged."""
        if not hasattr(figure, "savefig"):
            raise TypeError(f"the figure {name!r} is a {type(figure).__name__}; pass a matplotlib Figure")
        self.show("figure", name, figure, step)

    def add_video(self, name: str, video: Tensor | np.ndarray | str | Path, step: int, fps: float = 30.0) -> None:
        """Frames, uint8 `[T, H, W, 3]`, shown at `fps`, or the path of a file such as `videos/play.mp4`."""
        if fps <= 0:
            raise ValueError(f"fps is {fps}; use frames per second, above 0")
        if not isinstance(video, str | Path):
            self.show("video", name, video_array(video), step, fps)
        elif Path(video).is_file():
            self.show("film", name, Path(video), step, fps)
        else:
            log.warning("%s is not shown: there is no file %s", name, video)

    def add_text(self, name: str, text: str, step: int) -> None:
        self.show("text", name, _text(name, text), step)

    def add_html(self, name: str, page: str, step: int) -> None:
        """A page of HTML: a report, an interactive figure (TensorBoard does not show it)."""
        self.show("html", name, _text(name, page), step)

    def prefixed(self, prefix: str) -> Recorder:
        """The same recorder with `prefix` before every name. It nests, and closing it closes nothing."""
        return _Prefixed(self, prefix)

    def close(self, exit_code: int = 0) -> None:
        """Nothing to close."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(exit_code=0 if kind is None else 1)


class Logger(Recorder):
    """Writes the metrics of a run into `folder`; without one, nowhere.

    Pictures and texts go to `media/`, unless `media` is False. `wandb` are the options of `WandbSink`; by default it
    works offline and asks for no login. `compress` packs the metrics when they are closed. Of several values of one
    metric at one step the first is kept, in whatever order the steps come, and so do those who read the file.
    """

    def __init__(
        self,
        folder: str | Path | None,
        *,
        media: bool = True,
        tensorboard: bool = False,
        wandb: Mapping[str, Any] | None = None,
        compress: bool = False,
    ) -> None:
        self.folder = None if folder is None else Path(folder)
        self.lost = 0
        """Lines that were given up because the disk did not take them."""
        self.repeated: Counter[str] = Counter()
        """By metric: values left out because that step had one already."""
        self._file = None if self.folder is None else JsonLines(self.folder / "metrics.jsonl", compress)
        self._media = None if self.folder is None or not media else MediaFolder(self.folder / "media")
        self._waiting: deque[Mapping[str, Any]] = deque()
        """Lines that the disk did not take yet."""
        self._is_stuck = self._told = False
        self._torn: set[str] = set()
        self._wanted: dict[str, Mapping[str, Any]] = {}
        if self.folder is not None and tensorboard:
            self._wanted["tensorboard"] = {}
        if self.folder is not None and wandb is not None:
            _require("wandb", "logging.wandb", 'pip install "gaitway[wandb]"')
            self._wanted["wandb"] = check_options(wandb)
        self._sinks: dict[str, Sink] | None = None
        self._last_step: dict[str, int] | None = None
        """By metric: the greatest step that has a value; None until the file was looked at."""
        self._names_at: dict[int, set[str]] | None = None
        """By step: the metrics that have a value; None while steps only grow, because then nobody asks."""
        self._unheard: set[Kind] = set()

    def log(self, step: int, metrics: Mapping[str, Any], times: Mapping[str, Any] | None = None) -> None:
        """One line at environment step `step`; `times` are the values that depend on the clock, without `time/`."""
        step = int(step)
        record: dict[str, int | float] = {}
        for name in sorted(metrics):
            if name == "step" or name.startswith("time/"):
                raise ValueError(f"a metric cannot be called {name!r}; pass what depends on the clock in `times`")
            record[name] = number(name, metrics[name])
        for name in sorted(times or {}):
            record[f"time/{name}"] = number(name, (times or {})[name])
        record = self._first_values(step, record)
        if not record and (metrics or times):
            return
        if self._file is not None:
            self._write({"step": step, **record})
        for name, sink in list(self._listeners(step).items()):
            self._guard(name, lambda sink=sink: sink.write(step, record))

    def show(self, kind: Kind, name: str, value: Any, step: int, fps: float = 0.0) -> None:
        """Keep a picture or a text in media/ and hand it to the listeners that take its kind; if nobody does, that is
        said once."""
        step = int(step)
        is_kept = self._media is not None and kind in self._media.takes
        if is_kept and self._media is not None:
            self._media.show(kind, name, value, step, fps)
        takers = {key: sink for key, sink in self._listeners(step).items() if kind in sink.takes}
        if not takers and not is_kept and self.folder is not None and kind not in self._unheard:
            self._unheard.add(kind)
            which = "logging.tensorboard or logging.wandb"
            if kind == "film":
                log.info("films are kept in %s alone; set %s to see them there as well", Path(value).parent, which)
            else:
                log.warning("%s goes nowhere: nobody takes a %s; set logging.media=true", name, kind)
        for key, sink in takers.items():
            self._guard(key, lambda sink=sink: sink.show(kind, name, value, step, fps))

    def position(self) -> int:
        """Bytes of metrics.jsonl so far, forced to disk: a checkpoint never knows of lines that a power cut takes."""
        if self._waiting:
            self._write_waiting()
        return 0 if self._file is None else self._file.sync()

    def truncate(self, position: int) -> None:
        """Forget what was written after `position`, and a torn line before it; for going on from a checkpoint."""
        self._last_step = self._names_at = None
        self._waiting.clear()
        if self._file is not None:
            self._file.truncate(position)

    def missing(self) -> list[str]:
        """What was said and is in no file, in words; complete once the logger is closed."""
        count = self.lost + len(self._waiting)
        return ([f"{count} lines of metrics.jsonl"] if count else []) + sorted(self._torn)

    def close(self, exit_code: int = 0) -> None:
        """Finish all files; calling it again does nothing, and a later `log` opens them again.

        Listeners that show how a program ended are told `exit_code`: 0 is well, anything else a failure.
        """
        for name, sink in (self._sinks or {}).items():
            try:
                sink.close(exit_code)
            except Exception as error:  # whatever a foreign library raises, the run is over and must end well
                log.warning("%s did not close: %s", name, error)
            if isinstance(sink, TensorBoardSink) and not sink.is_whole():
                self._torn.add("a part of tensorboard/")
        self._sinks = None
        if self._file is not None:
            self._write_waiting()
            self.lost += len(self._waiting)
            self._waiting.clear()
            self._file.close()
            if self.lost and not self._told:
                log.warning("%d lines of metrics are missing from %s", self.lost, self._file.path)
                self._told = True

    def save_config(self, values: Mapping[str, Any]) -> None:
        """Keep the hyper-parameters of a program of one's own in config.yaml, where `analysis.tables.Runs` finds them.

        Numbers, texts, lists and mappings of them; `Runs.filter("network/width", 64)` asks for what was saved as
        `{"network": {"width": 64}}`. A folder keeps the configuration it has: another one is refused.
        """
        if not isinstance(values, Mapping):
            raise TypeError(f"the configuration is a {type(values).__name__}; pass a mapping of names to values")
        content = plain(values)
        if self.folder is None:
            return
        path = self.folder / "config.yaml"
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        if path.exists():
            if yaml.safe_dump(read_config(path), sort_keys=False, allow_unicode=True) == text:
                return
            raise ConfigError(f"{path} is there and says something else; log every run into a folder of its own")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic_write_text(path, text)
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {writing_advice(error)}") from error

    def _first_values(self, step: int, record: dict[str, int | float]) -> dict[str, int | float]:
        """Without what was said about this step before."""
        last = self._last_steps()
        again = [name for name in record if self._has_value(name, step)]
        for name in again:
            if name not in self.repeated:
                log.warning(
                    "%s was logged twice at step %d; the first value is kept, later ones are counted", name, step
                )
            self.repeated[name] += 1
        if again:
            record = {name: value for name, value in record.items() if name not in again}
        for name in record:
            last[name] = max(step, last.get(name, step))
        if self._names_at is not None:
            self._names_at.setdefault(step, set()).update(record)
        return record

    def _has_value(self, name: str, step: int) -> bool:
        last = self._last_steps().get(name)
        if last is None or step > last:
            return False
        if step < last and self._names_at is None:  # the first step that lies behind another
            self._names_at = {}
            for known, names in self._records():
                self._names_at.setdefault(known, set()).update(names)
        return step == last or name in (self._names_at or {}).get(step, ())

    def _last_steps(self) -> dict[str, int]:
        if self._last_step is None:
            self._last_step = {}
            for step, names in self._records():
                self._last_step.update({name: max(step, self._last_step.get(name, step)) for name in names})
        return self._last_step

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Steps and names of the lines that are in the file; a file that cannot be read counts as empty."""
        if self._file is None or not self._file.exists():
            return
        with contextlib.suppress(OSError):
            for record in self._file.records():
                step = record.pop("step", None)
                if isinstance(step, int):
                    yield step, list(record)

    def _write(self, record: Mapping[str, Any]) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self.lost += 1
        else:
            self._waiting.append(record)
        self._write_waiting()

    def _write_waiting(self) -> None:
        """Write the lines that are not in the file yet: the newest, and those that a full disk did not take."""
        assert self._file is not None
        try:
            while self._waiting:
                self._file.append(self._waiting[0])
                self._waiting.popleft()
            self._is_stuck = False
        except OSError as error:
            if not self._is_stuck:
                log.warning(
                    "metrics wait in memory, training goes on: cannot write %s: %s",
                    self._file.path,
                    writing_advice(error),
                )
            self._is_stuck = True

    def _listeners(self, step: int) -> dict[str, Sink]:
        """TensorBoard and W&B, opened when there is something to say for the first time."""
        if self._sinks is None:
            self._sinks = {}
            for name, options in list(self._wanted.items()):
                self._guard(name, lambda name=name, options=options: self._open_sink(name, options, step))
        return self._sinks

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


class _Prefixed(Recorder):
    """A recorder that puts `prefix` before every name."""

    def __init__(self, inner: Recorder, prefix: str) -> None:
        self.inner, self.prefix = inner, prefix

    def log(self, step: int, metrics: Mapping[str, Any], times: Mapping[str, Any] | None = None) -> None:
        self.inner.log(step, self._named(metrics), self._named(times or {}))

    def show(self, kind: Kind, name: str, value: Any, step: int, fps: float = 0.0) -> None:
        self.inner.show(kind, self.prefix + name, value, step, fps)

    def _named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {self.prefix + name: value for name, value in values.items()}


def number(name: str, value: Any) -> int | float:
    """A Python number from a Python, NumPy or torch one; anything else is a mistake of the caller."""
    if isinstance(value, Tensor | np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value)
    raise TypeError(f"the metric {name!r} is {value!r}; metrics are single numbers")


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name!r} is a {type(value).__name__}; pass a text")
    return value


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
            handlers.append(_FileHandler(path, encoding="utf-8", errors="backslashreplace"))
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
