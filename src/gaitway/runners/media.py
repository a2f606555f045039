"""What can be logged besides numbers, brought into the form that listeners take: arrays of bytes, PNG-like or GIF."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = Literal["images", "figure", "text", "html", "video", "film"]
"""`video` is an array of frames, `film` the path of a file."""


def image_array(value: Any) -> np.ndarray:
    """One picture uint8 `[H, W, 3]` or several `[N, H, W, 3]`, as an array with the N."""
    array = _bytes(value)
    if array.ndim not in (3, 4) or array.shape[-1] != 3 or array.dtype != np.uint8:
        raise ValueError(f"images are {_found(array)}; they must be uint8 [H, W, 3] or [N, H, W, 3]")
    return array if array.ndim == 4 else array[None]


def video_array(value: Any) -> np.ndarray:
    """The frames of one film, uint8 `[T, H, W, 3]`."""
    array = _bytes(value)
    if array.ndim != 4 or array.shape[-1] != 3 or array.dtype != np.uint8 or len(array) == 0:
        hint = "; choose one instance, e.g. frames[:, 0]" if array.ndim == 5 else ""
        raise ValueError(f"the video is {_found(array)}; it must be uint8 [T, H, W, 3] with at least one frame{hint}")
    return array


def figure_array(figure: Figure, dpi: float = 100.0) -> np.ndarray:
    """A matplotlib figure as a picture, uint8 `[H, W, 3]`; the figure keeps its canvas."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    before, before_dpi = figure.canvas, figure.dpi
    try:
        figure.dpi = dpi
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()
    finally:
        figure.dpi = before_dpi
        figure.set_canvas(before)


def gif(frames: np.ndarray, fps: float) -> bytes:
    """An animation that needs no video codec; GIF counts hundredths of a second."""
    from PIL import Image

    first, *others = [Image.fromarray(frame) for frame in frames]
    buffer = io.BytesIO()
    duration = max(10, round(1000.0 / fps / 10) * 10)
    first.save(buffer, format="GIF", save_all=True, append_images=others, duration=duration, loop=0)
    return buffer.getvalue()


def film_frames(path: Path, max_height: int = 240, max_fps: float = 15.0) -> tuple[np.ndarray, float]:
    """A film from its file, made small enough for an animation: uint8 `[T, H, W, 3]` and its frames per second."""
    import imageio.v3 as iio

    fps = float(iio.immeta(path, plugin="FFMPEG")["fps"])
    stride = max(1, math.ceil(fps / max_fps - 1e-6))
    frames = []
    for number, frame in enumerate(iio.imiter(path, plugin="FFMPEG")):
        if number % stride == 0:
            step = max(1, math.ceil(frame.shape[0] / max_height))
            frames.append(frame[::step, ::step].copy())
    return np.stack(frames), fps / stride


def _bytes(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)


def _found(array: np.ndarray) -> str:
    return f"{array.dtype} {list(array.shape)}"
