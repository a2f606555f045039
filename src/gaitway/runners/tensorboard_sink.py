"""Metrics and pictures for `tensorboard --logdir`."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gaitway.core.files import writing_advice
from gaitway.runners.media import Kind, figure_array, film_frames, gif

log = logging.getLogger("gaitway")

MAX_WAITING_BYTES = 2**26
"""What waits in memory for room on the disk; more is given up."""


class TensorBoardSink:
    """TensorBoard's files in the folder `tensorboard`.

    Of an earlier part of the run, what lies behind `first_step` is hidden. TensorBoard shows no HTML, and films as
    small animations, which a thread makes beside the training.
    """

    takes: frozenset[Kind] = frozenset({"images", "figure", "text", "video", "film"})

    def __init__(self, folder: Path, first_step: int) -> None:
        self._file: PatientFile | None = None
        self.writer = self._open(folder / "tensorboard", first_step)
        self._films: list[threading.Thread] = []

    def write(self, step: int, metrics: Mapping[str, int | float]) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)

    def show(self, kind: Kind, name: str, value: Any, step: int, fps: float) -> None:
        if kind == "images":
            self.writer.add_images(name, value, step, dataformats="NHWC")
        elif kind == "figure":
            self.writer.add_image(name, figure_array(value), step, dataformats="HWC")
        elif kind == "text":
            self.writer.add_text(name, value, step)
        elif kind == "film":
            self._films = [thread for thread in self._films if thread.is_alive()]
            thread = threading.Thread(target=self._add_film, args=(name, value, step), name="film", daemon=True)
            self._films.append(thread)
            thread.start()
        else:
            self._add_animation(name, value, step, fps)

    def close(self, exit_code: int = 0) -> None:
        for thread in self._films:
            thread.join()
        self.writer.close()

    def is_whole(self) -> bool:
        """Whether all that was said is in the file."""
        return self._file is None or self._file.is_whole

    def _open(self, folder: Path, first_step: int) -> Any:
        """A SummaryWriter of torch that writes into a `PatientFile`.

        TensorBoard's own thread dies of a full disk, with a traceback, and takes nothing more.
        """
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.event_file_writer import EventFileWriter, _AsyncWriter
        from tensorboard.summary.writer.record_writer import RecordWriter
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.writer import FileWriter

        # TensorBoard reads the parts of a run in the order of their names
        name = f"events.out.tfevents.{int(time.time()):010d}.gaitway.{time.time_ns()}"
        self._file = file = PatientFile(folder / name)

        class Events(EventFileWriter):
            def __init__(self) -> None:
                self._logdir, self._file_name = str(folder), str(file.path)
                self._async_writer = _AsyncWriter(RecordWriter(file))

        class Files(FileWriter):
            def __init__(self) -> None:
                self.event_writer = Events()

        class Writer(SummaryWriter):
            file_writer: Any
            all_writers: Any

            def _get_file_writer(self) -> Any:
                if self.file_writer is None:
                    self.file_writer = Files()
                    self.all_writers = {str(folder): self.file_writer}
                    self.file_writer.add_event(Event(file_version="brain.Event:2"))
                    start = SessionLog(status=SessionLog.START)
                    self.file_writer.add_event(Event(step=first_step, session_log=start))
                return self.file_writer

        return Writer(str(folder))

    def _add_film(self, name: str, path: Path, step: int) -> None:
        try:
            frames, fps = film_frames(path)
            self._add_animation(name, frames, step, fps)
        except Exception as error:  # the thread is the last place where it can be caught; the file is there
            log.warning("tensorboard does not show %s: %s", path, error)

    def _add_animation(self, name: str, frames: Any, step: int, fps: float) -> None:
        # torch's own add_video writes nothing unless moviepy is installed; the format is a GIF in an image's place
        from tensorboard.compat.proto.summary_pb2 import Summary

        _, height, width, _ = frames.shape
        encoded = gif(frames, fps)
        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=encoded)
        summary = Summary(value=[Summary.Value(tag=name, image=image)])
        self.writer._get_file_writer().add_summary(summary, step)


class PatientFile:
    """A file that only grows; what the disk does not take waits in memory and is tried again with the next write."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._descriptor: int | None = None
        self._waiting = bytearray()
        self._warned = False
        self.is_whole = True
        """False once something was given up; then nothing more is taken, because a gap ends what can be read."""

    @property
    def closed(self) -> bool:
        return self._descriptor is None

    def write(self, data: bytes) -> None:
        if len(self._waiting) + len(data) > MAX_WAITING_BYTES:
            self.is_whole = False
        if self.is_whole:
            self._waiting += data
            self.flush()

    def flush(self) -> None:
        try:
            if self._descriptor is None and self._waiting:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._descriptor = os.open(self.path, flags, 0o666)
            while self._waiting and self._descriptor is not None:
                del self._waiting[: os.write(self._descriptor, self._waiting)]
        except OSError as error:
            if not self._warned:
                log.warning("%s waits in memory: %s", self.path, writing_advice(error))
            self._warned = True
        else:
            self._warned = False

    def close(self) -> None:
        self.flush()
        self.is_whole = self.is_whole and not self._waiting
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
