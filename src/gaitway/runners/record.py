"""One episode of a policy as a film, of any environment that can be drawn.

    returned, length = record_video(gymnasium.make("CartPole-v1", render_mode="rgb_array"), policy, "cartpole.mp4")

The policy is an agent of a frame cast: it reads `env/obs/<group>` of a row and writes `action`, as in training, so that
every kind of observation and action works. `runners.film.record_episode` is the one that training itself uses.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from gaitway.core.agent import Agent, Agents, TemporalAgent
from gaitway.core.workspace import Workspace
from gaitway.envs.vec_env import VecEnv
from gaitway.frames.agent import FrameAgent
from gaitway.frames.gymnasium_sources import SingleEnvs
from gaitway.runners.encoders import check_kind, video_problem
from gaitway.runners.film import FPS_WITHOUT_CLOCK
from gaitway.runners.video import VideoConfig, VideoWriter


def record_video(
    env: gymnasium.Env | VecEnv | FrameAgent,
    policy: Agent,
    path: str | Path,
    max_steps: int | None = None,
    *,
    seed: int = 0,
    size: tuple[int, int] | None = None,
    fps: float | None = None,
    **options: Any,
) -> tuple[float, int]:
    """Film one episode to exactly `path` (mp4 or gif) and return its undiscounted return and its length.

    `env` stays open and stands where the episode left it. `options` go to the policy, e.g. `stochastic=False`. The
    episode ends by itself or after `max_steps`. `size` (width, height) and `fps` are those of the environment if left
    out. The film ends with the final state, except of vector environments of others that reset within the step.
    """
    path = check_kind(path)
    if max_steps is not None and max_steps < 0:
        raise ValueError(f"max_steps is {max_steps}; use 0 or more steps, or None for a whole episode")
    world = env if isinstance(env, FrameAgent) else FrameAgent(env, mode="frozen", seed=seed)
    if world.num_envs != 1 or world.mode != "frozen":
        raise ValueError(
            f"a film shows one environment until its episode ends; found {world.num_envs} in mode {world.mode!r}; make "
            "it with num_envs=1 and, as a FrameAgent, mode='frozen'"
        )
    problem = video_problem() if path.suffix.lower() == ".mp4" else None
    if problem is not None:
        raise RuntimeError(f"{problem}, or choose a name that ends in .gif")
    film = _Film(world, path, size, fps or _natural_fps(world))
    ws, rows = Workspace(), None if max_steps is None else max_steps + 1
    cast = TemporalAgent(Agents(world, film, policy))
    try:
        with torch.no_grad():
            cast.run(ws, n_steps=rows, stop_variable=world.out("env/done"), reset=True, **options)
    except BaseException:
        film.stop()
        raise
    film.finish()
    returned, length = (ws[world.out(f"env/{name}")] for name in ("cumulated_reward", "timestep"))
    return float(returned[-1, 0]), int(length[-1, 0])


class _Film(Agent):
    """Draws every row into the file; writes no variable."""

    def __init__(self, world: FrameAgent, path: Path, size: tuple[int, int] | None, fps: float) -> None:
        super().__init__()
        self._world, self._path, self._size, self._fps = [world], path, size, fps
        self._writer: VideoWriter | None = None
        self._final: np.ndarray | None = None
        if world.source.resets_at_once:
            world.source.on_end(self._keep_final)

    def step(self, ws: Workspace, t: int) -> None:
        world = self._world[0]
        frame: np.ndarray | None
        if world.source.resets_at_once and bool(ws.at(world.out("env/done"), t)):
            frame, self._final = self._final, None  # the environment itself shows its next episode already
        else:
            frame = self._picture()
        if frame is not None:
            self._writer = self._writer or VideoWriter(self._path, self._fps, self._measured(), patience_s=math.inf)
            self._writer.add(frame)

    def _keep_final(self) -> None:
        self._final = self._picture()

    def _picture(self) -> np.ndarray:
        return self._world[0].render(0, *self._measured())

    def _measured(self) -> tuple[int, int]:
        if self._size is None:
            self._size = _natural_size(self._world[0])
        return self._size

    def finish(self) -> None:
        """Leave the complete file under its name."""
        self._world[0].source.on_end(None)
        if self._writer is not None and self._writer.close() is None:
            raise RuntimeError(f"no film {self._path} was written; the log says why")

    def stop(self) -> None:
        """End the encoder, whatever has come so far."""
        self._world[0].source.on_end(None)
        if self._writer is not None:
            self._writer.close()


def _natural_size(world: FrameAgent) -> tuple[int, int]:
    """That of the environment's own pictures, made even, because H.264 takes nothing else."""
    if not isinstance(world.source, SingleEnvs):
        return VideoConfig.size
    height, width = world.source.picture(0).shape[:2]
    return max(2, width // 2 * 2), max(2, height // 2 * 2)


def _natural_fps(world: FrameAgent) -> float:
    source = world.source
    if isinstance(source, SingleEnvs):
        return float(source.envs[0].metadata.get("render_fps") or FPS_WITHOUT_CLOCK)
    control_dt = 0.0 if source.spec is None else source.spec.control_dt
    return 1.0 / control_dt if control_dt > 0 else FPS_WITHOUT_CLOCK
