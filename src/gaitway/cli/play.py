"""`gaitway play`: watch a policy, random actions or none in any environment, as a film or in a window."""

from __future__ import annotations

import argparse
import contextlib
import math
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from gaitway.cli.console import console
from gaitway.cli.players import Player, find_player
from gaitway.cli.steering import Steering
from gaitway.core.config import ConfigError
from gaitway.core.files import writing_advice
from gaitway.envs.pictures.scene import Camera, native_task
from gaitway.envs.pictures.viewer import Screen, ScreenError, has_screen, open_screen
from gaitway.envs.vec_env import VecEnv
from gaitway.runners.encoders import check_kind, check_size, video_problem
from gaitway.runners.evaluate import Actor
from gaitway.runners.film import Caption, record_episode

EXIT_TERMINATED = 143
"""Exit code after SIGTERM, as shells use it."""


def play(options: argparse.Namespace) -> int:
    with ending_on_sigterm(), find_player(options) as player:
        steering = Steering.of(player.env, options.told)
        if steering is not None:
            player = replace(player, caption=_with_command(player.caption, steering))
        if options.no_video:
            return _say(player, *watch(player.env, player.act, options.seed, *_duration(player, options)))
        # an environment is shown on the screen if there is one, a run in a film for its folder
        if options.window or (player.folder is None and options.video is None and has_screen()):
            try:
                press = None if steering is None else steering.press
                screen = open_screen(player.env, options.size or (640, 480), options.camera, press)
            except ScreenError as error:
                console.print(f"{error}; a video is written instead", soft_wrap=True)
            else:
                return _on_screen(player, options, screen)
        return _film(player, options)


def watch(
    env: VecEnv, act: Actor, seed: int, steps: float, through_ends: bool, screen: Screen | None = None
) -> tuple[int, float]:
    """Play at most `steps` steps, of one episode unless `through_ends`; returns their number and the sum of rewards.

    With a `screen` every state is shown there, and the play ends when that is closed.
    """
    obs, length, total = env.reset(seed=[seed]), 0, 0.0
    act.reset()
    while length < steps:
        if screen is not None:
            screen.show()
            if not screen.is_open:
                break
        with torch.inference_mode():
            step = env.step(act(obs))
        obs = step.obs
        if step.valid is None or bool(step.valid[0]):
            length, total = length + 1, total + float(step.reward[0])
        finished = step.terminated | step.truncated
        if finished[0]:
            if not through_ends:
                break
            act.reset(finished)
    return length, total


@contextlib.contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Within this context SIGTERM ends the program like an exception does, so that films are completed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `timeout` sends two, and closing must not be disturbed
        raise SystemExit(EXIT_TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _with_command(caption: Caption, steering: Steering) -> Caption:
    """The caption, and what the robot is told at the moment."""
    return lambda: (*(caption() if callable(caption) else caption), *steering.caption())


def _duration(player: Player, options: argparse.Namespace) -> tuple[float, bool]:
    """Steps to play, and whether they go through the ends of episodes."""
    if options.steps is not None:
        return options.steps, True
    if player.show is not None:
        return player.show, True
    return options.length or player.config.evaluation.max_steps, False


def _on_screen(player: Player, options: argparse.Namespace, screen: Screen) -> int:
    steps, through_ends = _duration(player, options)
    if player.folder is None and options.steps is None and options.length is None:
        steps, through_ends = math.inf, True  # until the window is closed
    try:
        return _say(player, *watch(player.env, player.act, options.seed, steps, through_ends, screen))
    finally:
        screen.close()


def _say(player: Player, length: int, total: float) -> int:
    console.print(f"{player.what}, {length} steps, return {total:.4g}", soft_wrap=True)
    return 0


def _film(player: Player, options: argparse.Namespace) -> int:
    path = _target(player, options)
    video = player.config.video
    with Camera(player.env, 0, options.camera, options.quality) as camera:
        size = _size(player, options, path, camera)
        check_drawing(camera, size, "--no-video plays it without pictures")
        check_writable(path)
        if player.folder is None and options.video is None and not has_screen():
            console.print(f"there is no screen here (DISPLAY is not set): filming to {path}", soft_wrap=True)
        shown = record_episode(
            player.env,
            player.act,
            path,
            length=player.show or options.steps or options.length or video.length,
            size=size,
            annotations=video.annotations and not options.plain,
            seed=options.seed,
            caption=() if options.plain else player.caption,
            through_ends=options.steps is not None or player.show is not None,
            draw=camera,
            patience_s=math.inf,
        )
    if shown is None:
        console.print("no video was written; the line above says why")
        return 1
    told = f"{shown['frames']} frames, {shown['steps']} steps, return {shown['return']:.4g}"
    console.print(f"{path}: {player.what}, {told}", soft_wrap=True)
    return 0


def _target(player: Player, options: argparse.Namespace) -> Path:
    """The file of the film, in the run's folder or here unless it is named."""
    if options.video is not None:
        path = check_kind(options.video)
    else:
        kind = ".gif" if video_problem() else ".mp4"
        stem = player.env.spec.id.replace("/", "_").replace(":", "_")
        path = Path(f"{stem}{kind}") if player.folder is None else player.folder.videos / f"play{kind}"
    problem = video_problem() if path.suffix.lower() == ".mp4" else None
    if problem is not None:
        raise ConfigError(f"{problem}, or choose a name that ends in .gif")
    return path


def _size(player: Player, options: argparse.Namespace, path: Path, camera: Camera) -> tuple[int, int]:
    if options.size is not None:
        return check_size(options.size, path.suffix.lower())
    if player.env.spec.id.startswith("gymnasium:") and native_task(player.env) is None:
        with contextlib.suppress(Exception):  # whatever such an environment raises, check_drawing says it
            height, width = player.env.call("render")[0].shape[:2]  # its own size, made even for H.264
            return check_size((width // 2 * 2, height // 2 * 2))
    return player.config.video.size


def check_drawing(camera: Camera, size: tuple[int, int], instead: str) -> None:
    """Refuse to film what cannot be drawn here; `instead` says what can be had without pictures."""
    try:
        camera(*size)
    except Exception as error:  # OpenGL and foreign environments fail in many types
        raise ConfigError(f"{error}; {instead}") from error


def check_writable(path: Path) -> None:
    """Refuse to begin a film whose file cannot be written."""
    try:
        if path.is_dir():
            raise IsADirectoryError(21, "it is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        probe = path.with_name(f".{path.stem}.partial{path.suffix}")
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {writing_advice(error)}") from error
