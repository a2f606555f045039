"""Videos of a policy: episodes drawn frame by frame, encoded as H.264 by a thread beside the training.

Nothing here can end a run. Where pictures cannot be drawn or ffmpeg is missing, one logged sentence says why and what
to install, and there is no video. A file appears under its name only when it is complete.
"""

from __future__ import annotations

import atexit
import logging
import math
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaitway.envs.render import annotate
from gaitway.envs.vec_env import Observation, Step, VecEnv

logger = logging.getLogger(__name__)

MAX_FPS = 50.0
"""Faster control loops are shown with every second, third, ... frame: playback stays in real time."""
FPS_WITHOUT_CLOCK = 30.0
FFMPEG_TIMEOUT_S = 60.0
"""An ffmpeg that has not finished by then is killed."""
SPEED_METRICS = ("speed", "x_velocity")
"""The first of these that the environment reports is written into the picture, in m/s."""


@dataclass(frozen=True)
class VideoConfig:
    """When a run films its policy, and how."""

    interval: int = 0
    """Environment steps between two videos, 0 for none during training."""
    length: int = 400
    """Steps after which a video ends, if the episode did not end before."""
    size: tuple[int, int] = (480, 360)
    """Width and height in pixels, both even."""
    annotations: bool = True
    """Write time, return and speed into the picture."""

    def __post_init__(self) -> None:
        if self.interval < 0 or self.length < 1:
            raise ValueError(f"interval is {self.interval}, length {self.length}; use interval >= 0 and length >= 1")
        _check_size(self.size)


class VideoWriter:
    """Writes frames to an mp4 file from a thread of its own; use it as a context manager or call `close`.

    `add` hands a frame over and returns at once unless `queue_size` frames are waiting; then it waits up to
    `patience_s` seconds and drops the frame. An encoding error is logged, ends the film and makes `close` return None.
    """

    def __init__(
        self, path: str | Path, fps: float, size: tuple[int, int], queue_size: int = 64, patience_s: float = 5.0
    ) -> None:
        self.path = Path(path)
        self.fps = fps
        self.size = _check_size(size)
        self.frames = 0
        self._patience_s = patience_s
        self._partial = self.path.with_name(f".{self.path.stem}.partial{self.path.suffix}")
        self._queue: queue.Queue[np.ndarray | None] = queue.Queue(queue_size)
        self._failed = False
        self._thread: threading.Thread | None = threading.Thread(target=self._encode, name="video", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # a program that ends without close still leaves a readable file

    def add(self, frame: np.ndarray) -> None:
        """Queue one frame, uint8 `[height, width, 3]`."""
        expected = (self.size[1], self.size[0], 3)
        if frame.shape != expected or frame.dtype != np.uint8:
            raise ValueError(f"the frame is {frame.dtype} {frame.shape}; {self.path.name} takes uint8 {expected}")
        if self._thread is None:
            raise ValueError(f"{self.path.name} is closed; open a new VideoWriter")
        if self._failed:
            return
        try:
            self._queue.put(frame.copy(), timeout=self._patience_s)
        except queue.Full:
            logger.warning("%s: the encoder is %d frames behind; a frame is dropped", self.path, self._queue.qsize())
        else:
            self.frames += 1

    def close(self) -> Path | None:
        """Finish the file and return its path, or None if there is none. Calling it twice is fine."""
        if self._thread is not None:
            thread, self._thread = self._thread, None
            while thread.is_alive():  # a failed encoder reads no more: waiting for a place in its queue needs an end
                try:
                    self._queue.put(None, timeout=0.1)
                    break
                except queue.Full:
                    continue
            thread.join(FFMPEG_TIMEOUT_S)
            atexit.unregister(self.close)
        return None if self._failed else self.path

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _encode(self) -> None:
        try:
            self._write_file()
        except Exception as error:  # the thread is the last place where it can be caught
            self._failed = True
            logger.warning("no video %s: %s", self.path, error)
            while not self._queue.empty():  # `add` may be waiting for a place
                self._queue.get()
        finally:
            self._partial.unlink(missing_ok=True)

    def _write_file(self) -> None:
        frame = self._queue.get()
        if frame is None:
            raise ValueError("it got no frame")
        from imageio_ffmpeg import write_frames

        self.path.parent.mkdir(parents=True, exist_ok=True)
        # One encoding thread and a quick preset: the cores belong to the training.
        options = ["-preset", "veryfast", "-threads", "1", "-movflags", "+faststart"]
        sink = write_frames(
            str(self._partial),
            self.size,
            fps=self.fps,
            codec="libx264",
            macro_block_size=2,
            ffmpeg_log_level="error",
            ffmpeg_timeout=FFMPEG_TIMEOUT_S,
            output_params=options,
        )
        try:
            sink.send(None)
            while frame is not None:
                sink.send(frame)
                frame = self._queue.get()
        finally:
            sink.close()
        if not self._partial.exists() or self._partial.stat().st_size == 0:
            raise OSError("ffmpeg wrote nothing")
        self._partial.replace(self.path)


def video_problem() -> str | None:
    """None if mp4 files can be written here, else one sentence with the reason and the command that mends it."""
    try:
        from imageio_ffmpeg import get_ffmpeg_exe

        get_ffmpeg_exe()
    except (ImportError, RuntimeError) as error:
        return f"videos cannot be written here ({error}); run `pip install 'imageio[ffmpeg]'`"
    return None


def record_episode(
    env: VecEnv,
    act: Callable[[Observation], Tensor],
    path: str | Path,
    *,
    length: int = VideoConfig.length,
    size: tuple[int, int] = VideoConfig.size,
    annotations: bool = VideoConfig.annotations,
    seed: int | None = None,
) -> dict[str, Any] | None:
    """Film one episode of a one-instance environment; None, with a logged reason, where that is impossible.

    `act` maps observations `[1, ...]` to an action `[1, ...]`; if it has `reset(mask [1])`, that is called first. The
    episode ends by itself or after `length` steps. Returns `frames`, `steps`, `return` and `path`.
    """
    if env.num_envs != 1:
        raise ValueError(f"{env.spec.id} has {env.num_envs} instances; make it with num_envs=1 to film it")
    problem = video_problem()
    if problem:
        logger.warning("no video %s: %s", path, problem)
        return None
    obs = env.reset(seed)
    if hasattr(act, "reset"):
        act.reset(torch.ones(1, dtype=torch.bool, device=env.device))
    frame = _draw(env, size, path)
    if frame is None:
        return None
    fps, stride = _frame_rate(env.spec.control_dt)
    total, steps, step, ended = 0.0, 0, None, False
    with VideoWriter(path, fps, size) as writer:
        while frame is not None:
            text = _overlay(env, steps, total, step) if annotations else []
            writer.add(annotate(frame, text) if text else frame)
            for _ in range(stride):
                with torch.no_grad():
                    step = env.step(act(obs))
                obs, steps, total = step.obs, steps + 1, total + float(step.reward[0])
                ended = bool(step.terminated[0] | step.truncated[0]) or steps >= length
                if ended:
                    break
            # An instance that has ended shows its next episode already: the film stops with the frame before.
            frame = None if ended else _draw(env, size, path)
    written = writer.close()
    return None if written is None else {"frames": writer.frames, "steps": steps, "return": total, "path": str(written)}


def _draw(env: VecEnv, size: tuple[int, int], path: str | Path) -> np.ndarray | None:
    try:
        return env.render(0, *size)
    except Exception as error:  # OpenGL fails in many types, and a film is never worth a run
        logger.warning("no video %s: %s", path, error)
        return None


def _overlay(env: VecEnv, steps: int, total: float, step: Step | None) -> list[str]:
    control_dt = env.spec.control_dt
    lines = [f"time {steps * control_dt:.2f} s" if control_dt > 0 else f"step {steps}", f"return {total:.1f}"]
    speed = next((name for name in SPEED_METRICS if name in env.spec.metrics), None)
    if speed is not None and step is not None:
        lines.append(f"speed {float(step.metrics[speed][0]):.2f} m/s")
    return lines


def _frame_rate(control_dt: float) -> tuple[float, int]:
    """Frames per second and steps per frame for real-time playback."""
    if control_dt <= 0:
        return FPS_WITHOUT_CLOCK, 1
    stride = max(1, math.ceil(1.0 / (control_dt * MAX_FPS) - 1e-6))
    return 1.0 / (control_dt * stride), stride


def _check_size(size: tuple[int, int]) -> tuple[int, int]:
    width, height = size
    if width < 2 or height < 2 or width % 2 or height % 2:
        raise ValueError(f"the video size is {width} x {height}; H.264 takes even numbers of pixels, e.g. 480 x 360")
    return int(width), int(height)
