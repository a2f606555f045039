"""Films written beside the training: frames go into a queue, a thread puts text into them and feeds an encoder.

Nothing here can end a run. Where ffmpeg is missing or fails, one logged sentence says why, and there is no film. A file
appears under its name only when it is complete; it is closed whatever ends the program, and can be played then.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from gaitway.core.config import configuration
from gaitway.core.files import writing_advice
from gaitway.core.ranges import Count, Range, WholeNumber
from gaitway.envs.pictures.overlay import LIME, Colour, Text, draw_text
from gaitway.envs.pictures.render import Quality
from gaitway.runners.encoders import FFMPEG_TIMEOUT_S, LARGEST, Encoder, check_kind, check_size, make_encoder

logger = logging.getLogger(__name__)

PATIENCE_S = 5.0
"""What training may wait for the encoder, over a whole film."""
GLANCE_S = 0.2
"""Seconds between two looks at an encoder that is waited for."""


Pixels = Annotated[int, Range(2, LARGEST)]


@configuration
class VideoConfig:
    """When a run films its policy, and how."""

    interval: WholeNumber = 0
    """Environment steps between two videos, 0 for none during training."""
    length: Count = 400
    """Steps after which a video ends, if the episode did not end before."""
    size: tuple[Pixels, Pixels] = (480, 360)
    """Width and height in pixels, both even."""
    annotations: bool = True
    """Write time, return, speed and score into the picture."""
    quality: Quality = "fast"
    """fast, shadows or full; only native environments take the last two, which cost training time."""
    camera: str | None = None
    """A camera of the native environment's model, or follow; null: the task's own."""

    def __post_init__(self) -> None:
        check_size(self.size)


class _Frame(NamedTuple):
    pixels: np.ndarray
    left: tuple[Text, ...]
    right: tuple[Text, ...]
    colour: Colour


class VideoWriter:
    """Writes frames to an mp4 or GIF file from a thread of its own; use it as a context manager or call `close`.

    `add` hands a frame over and returns at once unless `queue_size` frames are waiting. Then it waits, over the whole
    film at most `patience_s` seconds; after that, frames that find no place are left out and counted in `dropped`. An
    error is logged once, ends the film and makes `close` return None.
    """

    def __init__(
        self, path: str | Path, fps: float, size: tuple[int, int], queue_size: int = 64, patience_s: float = PATIENCE_S
    ) -> None:
        self.path = check_kind(path)
        if not fps > 0:
            raise ValueError(f"fps is {fps}; use frames per second, above 0")
        self.fps = fps
        self.size = check_size(size, self.path.suffix.lower())
        self.frames, self.dropped = 0, 0
        self._patience_s = patience_s
        self._partial = self.path.with_name(f".{self.path.stem}.partial{self.path.suffix}")
        self._queue: queue.SimpleQueue[_Frame | None] = queue.SimpleQueue()
        self._places = threading.Semaphore(queue_size)  # bounds the frames in the queue, but not its end mark
        self._encoder: Encoder | None = None
        self._taken_at = math.inf  # when the encoder got the frame it is busy with; never, while it has none
        self._ended = self._failed = False
        self._thread = threading.Thread(target=self._work, name=f"video {self.path.name}", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # a program that ends without close still leaves a file that can be played

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do: the file is complete, or there will be none."""
        return not self._thread.is_alive()

    def add(
        self, frame: np.ndarray, left: Sequence[Text] = (), right: Sequence[Text] = (), colour: Colour = LIME
    ) -> None:
        """Queue a copy of one frame, uint8 `[height, width, 3]`, and the text that is to be put into it."""
        expected = (self.size[1], self.size[0], 3)
        if frame.shape != expected or frame.dtype != np.uint8:
            raise ValueError(f"the frame is {frame.dtype} {frame.shape}; {self.path.name} takes uint8 {expected}")
        if self._ended:
            raise ValueError(f"{self.path.name} is closed; open a new VideoWriter")
        if self._failed or not self._wait_for_place():
            return
        self._queue.put(_Frame(frame.copy(), tuple(left), tuple(right), colour))
        self.frames += 1

    def end(self) -> None:
        """No more frames will come; returns at once. The file is completed meanwhile, and `close` waits for it."""
        if not self._ended:
            self._ended = True
            self._queue.put(None)

    def close(self) -> Path | None:
        """Finish the file and return its path, or None if there is none. Calling it twice is fine."""
        self.end()
        while self._thread.is_alive():
            self._thread.join(GLANCE_S)
            self._stop_if_stuck()
        atexit.unregister(self.close)
        return None if self._failed else self.path

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _wait_for_place(self) -> bool:
        """Whether a place in the queue was found before the patience ended."""
        started = time.monotonic()
        has_place = self._places.acquire(blocking=False)
        while not has_place and not self._failed:
            left_s = self._patience_s - (time.monotonic() - started)
            if left_s <= 0:
                self.dropped += 1
                break
            has_place = self._places.acquire(timeout=min(GLANCE_S, left_s))
            self._stop_if_stuck()
        self._patience_s -= time.monotonic() - started
        return has_place and not self._failed

    def _stop_if_stuck(self) -> None:
        if time.monotonic() - self._taken_at > FFMPEG_TIMEOUT_S and self._encoder is not None:
            self._encoder.kill()

    def _work(self) -> None:
        try:
            self._write_file()
            if self.dropped:
                logger.warning("%s lacks %d frames: the encoder did not keep up", self.path, self.dropped)
        except Exception as error:  # the thread is the last place where it can be caught
            self._failed = True
            reason = writing_advice(error) if isinstance(error, OSError) and error.errno else error
            logger.warning("no video %s: %s", self.path, reason)
        finally:
            self._taken_at = math.inf
            with contextlib.suppress(OSError):
                self._partial.unlink(missing_ok=True)

    def _write_file(self) -> None:
        frame = self._queue.get()
        if frame is None:
            raise ValueError("it got no frame")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._encoder = encoder = make_encoder(self._partial, self.fps, self.size)
        try:
            while frame is not None:
                self._taken_at = time.monotonic()
                draw_text(frame.pixels, frame.left, frame.right, frame.colour)
                encoder.write(frame.pixels)
                self._taken_at = math.inf
                self._places.release()
                frame = self._queue.get()
            encoder.finish()
            self._partial.replace(self.path)
        finally:
            encoder.kill()
