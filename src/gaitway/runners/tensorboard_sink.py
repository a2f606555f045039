"""Metrics and pictures for `tensorboard --logdir`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gaitway.runners.media import Kind, figure_array, gif


class TensorBoardSink:
    """TensorBoard's files in the folder `tensorboard`.

    Of an earlier part of the run, what lies behind `first_step` is hidden. TensorBoard shows no HTML and no files.
    """

    takes: frozenset[Kind] = frozenset({"images", "figure", "text", "video"})

    def __init__(self, folder: Path, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=first_step)

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
        else:
            self._add_animation(name, value, step, fps)

    def close(self, exit_code: int = 0) -> None:
        self.writer.close()

    def _add_animation(self, name: str, frames: Any, step: int, fps: float) -> None:
        # torch's own add_video writes nothing unless moviepy is installed; the format is a GIF in an image's place
        from tensorboard.compat.proto.summary_pb2 import Summary

        _, height, width, _ = frames.shape
        encoded = gif(frames, fps)
        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=encoded)
        summary = Summary(value=[Summary.Value(tag=name, image=image)])
        self.writer._get_file_writer().add_summary(summary, step)
