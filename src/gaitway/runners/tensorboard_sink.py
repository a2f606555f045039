"""Metrics and pictures for `tensorboard --logdir`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gaitway.runners.media import Kind, figure_array, film_frames, gif

log = logging.getLogger("gaitway")


class TensorBoardSink:
    """TensorBoard's files in the folder `tensorboard`.

    Of an earlier part of the run, what lies behind `first_step` is hidden. TensorBoard shows no HTML, and films as
    small animations, which a thread makes beside the training.
    """

    takes: frozenset[Kind] = frozenset({"images", "figure", "text", "video", "film"})

    def __init__(self, folder: Path, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=first_step)
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
