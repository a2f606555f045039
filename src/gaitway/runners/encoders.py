"""From frames to a file: H.264 by ffmpeg, in a process of its own, or an animated GIF by Pillow.

An encoder writes one file. `VideoWriter` feeds it from a thread, beside the program that draws.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Protocol

import numpy as np

KINDS = (".mp4", ".gif")
"""Endings of films that can be written."""
FFMPEG_TIMEOUT_S = 60.0
"""An ffmpeg that has taken nothing, or has not finished, for so long is killed."""
GIF_TICK = 100
"""A GIF counts hundredths of a second, and viewers slow down what is shorter than two of them."""
LARGEST = 8192
"""Pixels per side that H.264 decoders take."""


class Encoder(Protocol):
    """Takes frames, uint8 `[H, W, 3]`, of one size."""

    def write(self, frame: np.ndarray) -> None: ...

    def finish(self) -> None:
        """Complete the file."""

    def kill(self) -> None:
        """Give up at once and leave no process; safe from another thread and after `finish`."""


class Mp4Encoder:
    """H.264 through a pipe to ffmpeg, which ends when the pipe does; a Ctrl-C at the terminal does not reach it."""

    def __init__(self, path: Path, fps: float, size: tuple[int, int]) -> None:
        from imageio_ffmpeg import get_ffmpeg_exe

        source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{size[0]}x{size[1]}", "-framerate", f"{fps:.8f}"]
        # One encoding thread and a quick preset: the cores belong to the training.
        target = ["-an", "-c:v", "libx264", "-preset", "veryfast", "-crf", "23", "-pix_fmt", "yuv420p", "-threads", "1"]
        # a path may look like an option or a protocol
        place = ["-movflags", "+faststart", f"file:{path}"]
        command = [get_ffmpeg_exe(), "-y", "-v", "error", *source, "-i", "-", *target, *place]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._said, start_new_session=True
        )
        assert self.process.stdin is not None
        self._pipe = self.process.stdin

    def write(self, frame: np.ndarray) -> None:
        try:
            self._pipe.write(np.ascontiguousarray(frame).data)
        except OSError as error:
            raise OSError(self._complaint()) from error

    def finish(self) -> None:
        try:
            self._pipe.close()
        except OSError as error:
            raise OSError(self._complaint()) from error
        try:
            code = self.process.wait(FFMPEG_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise OSError(f"ffmpeg did not finish within {FFMPEG_TIMEOUT_S:.0f} s") from error
        if code:
            raise OSError(self._complaint())

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _complaint(self) -> str:
        """What ffmpeg said last."""
        try:
            code: int | None = self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            code = None
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return f"ffmpeg ended with code {code}: {lines[-1] if lines else 'it said nothing'}"


class GifEncoder:
    """An animation that needs no video codec. Frames wait in memory with one byte per pixel until `finish`."""

    def __init__(self, path: Path, fps: float, size: tuple[int, int]) -> None:
        from PIL import Image

        self._library, self._path, self._fps = Image, path, fps
        self._images: list[Image.Image] = []
        self._starts: list[int] = []
        """When frames begin, in hundredths of a second; the sum is right at any frame rate."""
        self._count = 0
        self._killed = False

    def write(self, frame: np.ndarray) -> None:
        start = round(self._count * GIF_TICK / self._fps)
        self._count += 1
        if self._starts and start - self._starts[-1] < 2:
            return
        self._starts.append(start)
        self._images.append(self._library.fromarray(frame).quantize())

    def finish(self) -> None:
        if self._killed:
            raise OSError("it was stopped")
        end = max(self._starts[-1] + 2, round(self._count * GIF_TICK / self._fps))
        durations = np.diff([*self._starts, end]) * (1000 // GIF_TICK)
        first, *others = self._images
        options = {"append_images": others, "duration": durations.tolist() if others else int(durations[0])}
        first.save(self._path, format="GIF", save_all=True, loop=0, **options)

    def kill(self) -> None:
        self._killed = True


def make_encoder(path: Path, fps: float, size: tuple[int, int]) -> Encoder:
    """The encoder that the ending of `path` asks for."""
    return (GifEncoder if path.suffix.lower() == ".gif" else Mp4Encoder)(path, fps, size)


def check_kind(path: str | Path) -> Path:
    """`path`, or a ValueError if films do not end like that."""
    path = Path(path)
    if path.suffix.lower() not in KINDS:
        raise ValueError(f"the film is called {path.name!r}; let its name end in {' or '.join(KINDS)}")
    return path


def check_size(size: tuple[int, int], kind: str = ".mp4") -> tuple[int, int]:
    """Width and height in pixels, or a ValueError if a film cannot be that large or small, or odd."""
    width, height = size
    if not (2 <= width <= LARGEST and 2 <= height <= LARGEST):
        raise ValueError(f"the video size is {width} x {height}; use 2 to {LARGEST} pixels each way, e.g. 480 x 360")
    if kind != ".gif" and (width % 2 or height % 2):
        near = f"{width // 2 * 2} x {height // 2 * 2}"
        raise ValueError(f"the video size is {width} x {height}; H.264 takes even numbers of pixels, e.g. {near}")
    return int(width), int(height)


def video_problem() -> str | None:
    """None if mp4 files can be written here, else one sentence with the reason and the command that mends it."""
    try:
        from imageio_ffmpeg import get_ffmpeg_exe

        get_ffmpeg_exe()
    except (ImportError, RuntimeError) as error:
        return f"videos cannot be written here ({error}); run `pip install 'imageio[ffmpeg]'`"
    return None
