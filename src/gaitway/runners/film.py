"""Films of a policy: an environment is stepped, drawn and filmed, one instance of it, in real time.

    film = record_episode(env, act, "walk.mp4", length=400, caption=["walker/run"])

Simulation and drawing are done by whoever calls; text and encoding by the thread of a `VideoWriter`. `start_film`
leaves that thread at work and comes back with the last step.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaitway.envs.pictures.overlay import Text
from gaitway.envs.vec_env import Observation, Step, VecEnv
from gaitway.runners.encoders import check_kind, video_problem
from gaitway.runners.video import PATIENCE_S, VideoConfig, VideoWriter

logger = logging.getLogger(__name__)

MAX_FPS = 50.0
"""Faster control loops are shown with every second, third, ... frame: playback stays in real time."""
FPS_WITHOUT_CLOCK = 30.0
SPEED_METRICS = ("speed", "x_velocity")
"""The first of these that the environment reports is written into the picture, in m/s."""
SCORE = "score"
"""A metric that is counted up over the episode and written into the picture."""

Act = Callable[[Observation], Tensor]
"""Observations `[1, ...]` to an action `[1, ...]`; if it has `reset(mask [1])`, that is called at every start."""
Caption = Sequence[Text] | Callable[[], Sequence[Text]]
"""Lines of text, or a function that gives those of the present state."""
Draw = Callable[[int, int], np.ndarray]
"""Width and height to a picture, uint8 `[height, width, 3]`."""


@dataclass(frozen=True)
class Film:
    """A film whose frames are all drawn; its file may still be under way."""

    writer: VideoWriter
    steps: int
    total: float
    """Sum of the rewards."""

    @property
    def is_done(self) -> bool:
        return self.writer.is_done

    def result(self) -> dict[str, Any] | None:
        """Wait for the file: `frames`, `steps`, `return` and `path`, or None where writing it failed."""
        path = self.writer.close()
        if path is None:
            return None
        return {"frames": self.writer.frames, "steps": self.steps, "return": self.total, "path": str(path)}


class Episode:
    """The numbers of the episode under way that are written into its picture."""

    def __init__(self, env: VecEnv) -> None:
        self.env = env
        self.speed = next((name for name in SPEED_METRICS if name in env.spec.metrics), None)
        self.restart()

    def restart(self) -> None:
        self.steps, self.total, self.score = 0, 0.0, 0.0
        self.last: Step | None = None

    def add(self, step: Step) -> None:
        self.steps, self.total, self.last = self.steps + 1, self.total + float(step.reward[0]), step
        if SCORE in step.metrics:
            self.score += float(step.metrics[SCORE][0])

    def lines(self) -> list[str]:
        dt = self.env.spec.control_dt
        lines = [f"time {self.steps * dt:.2f} s" if dt > 0 else f"step {self.steps}", f"return {self.total:.1f}"]
        if self.speed is not None and self.last is not None:
            lines.append(f"speed {float(self.last.metrics[self.speed][0]):.2f} m/s")
        if SCORE in self.env.spec.metrics:
            lines.append(f"score {self.score:g}")
        return lines


def record_episode(env: VecEnv, act: Act, path: str | Path, **options: Any) -> dict[str, Any] | None:
    """Film to a complete file; returns `frames`, `steps`, `return` and `path`, or None with a logged reason.

    Takes the options of `start_film`.
    """
    film = start_film(env, act, path, **options)
    return None if film is None else film.result()


def start_film(
    env: VecEnv,
    act: Act,
    path: str | Path,
    *,
    length: int = VideoConfig.length,
    size: tuple[int, int] = VideoConfig.size,
    annotations: bool = VideoConfig.annotations,
    seed: int | None = None,
    caption: Caption = (),
    through_ends: bool = False,
    draw: Draw | None = None,
    patience_s: float = PATIENCE_S,
) -> Film | None:
    """Film a one-instance environment; None, with a logged reason, where that is impossible.

    The film ends with the episode or after `length` steps; with `through_ends` it goes on into the next episodes and
    has exactly `length` steps. `annotations` writes time, return, speed and score at the left, `caption` is written at
    the right. `draw` replaces the environment's own `render`. For `patience_s` see `VideoWriter`; inf leaves out no
    frame.
    """
    if env.num_envs != 1:
        raise ValueError(f"{env.spec.id} has {env.num_envs} instances; make it with num_envs=1 to film it")
    problem = video_problem() if check_kind(path).suffix.lower() == ".mp4" else None
    if problem:
        logger.warning("no video %s: %s", path, problem)
        return None
    obs = env.reset(seed)
    _restart(act, torch.ones(1, dtype=torch.bool, device=env.device))
    draw = draw or functools.partial(env.render, 0)
    frame = _picture(draw, size, f"no video {path}")
    if frame is None:
        return None
    writer = VideoWriter(path, frame_rate(env.spec.control_dt)[0], size, patience_s=patience_s)
    text = Episode(env) if annotations else None
    try:
        film = _shoot(env, act, obs, frame, writer, text, caption, draw, length, through_ends)
    except BaseException:
        writer.close()
        raise
    writer.end()
    return film


def _shoot(
    env: VecEnv,
    act: Act,
    obs: Observation,
    first: np.ndarray,
    writer: VideoWriter,
    text: Episode | None,
    caption: Caption,
    draw: Draw,
    length: int,
    through_ends: bool,
) -> Film:
    """Step and draw until the film is over. The last frame is the state that was reached, with its reward."""
    stride = frame_rate(env.spec.control_dt)[1]
    total, steps, ended = 0.0, 0, False

    def picture() -> np.ndarray | None:
        return _picture(draw, writer.size, f"{writer.path} ends early")

    def show(frame: np.ndarray | None) -> bool:
        if frame is not None:
            right = caption() if callable(caption) else caption
            writer.add(frame, text.lines() if text else (), tuple(right))
        return frame is not None

    final: list[np.ndarray | None] = []
    env.on_end(lambda: final.append(picture()))
    shown = show(first)
    try:
        while shown and not ended:
            for _ in range(stride):
                with torch.no_grad():
                    step = env.step(act(obs))
                obs = step.obs
                if step.valid is None or bool(step.valid[0]):  # else this row has only reset the instance
                    steps, total = steps + 1, total + float(step.reward[0])
                    if text:
                        text.add(step)
                finished = step.terminated | step.truncated
                if finished[0]:  # the instance itself shows its next episode already
                    show(final.pop() if final else None)
                ended = steps >= length or (bool(finished[0]) and not through_ends)
                if ended:
                    break
                if finished[0]:
                    _restart(act, finished)
                    if text:
                        text.restart()
            if not (ended and finished[0]):
                shown = show(picture())
    finally:
        env.on_end(None)
    return Film(writer, steps, total)


def captioned(act: Act, known: Sequence[Text]) -> Caption:
    """The lines that are `known`, and behind them what a policy tells of the moment (`InferencePolicy.lines`)."""
    told = getattr(act, "lines", None)
    return known if told is None else lambda: (*known, *told())


def _picture(draw: Draw, size: tuple[int, int], consequence: str) -> np.ndarray | None:
    try:
        return draw(*size)
    except Exception as error:  # OpenGL fails in many types, and a film is never worth a run
        logger.warning("%s: %s", consequence, error)
        return None


def _restart(act: Act, mask: Tensor) -> None:
    if hasattr(act, "reset"):
        act.reset(mask)


def frame_rate(control_dt: float) -> tuple[float, int]:
    """Frames per second and steps per frame for real-time playback."""
    if control_dt <= 0:
        return FPS_WITHOUT_CLOCK, 1
    stride = max(1, math.ceil(1.0 / (control_dt * MAX_FPS) - 1e-6))
    return 1.0 / (control_dt * stride), stride
