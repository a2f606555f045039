"""`gaitway motion info|check|convert|view|record|generate`: motion clips, looked at, made and shown."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaitway.cli.motion.tables import described, line_of, print_findings, print_table

if TYPE_CHECKING:
    from gaitway.cli.players import Player
    from gaitway.envs.motions.clip import Clip
    from gaitway.envs.robots.robot import Robot

MAX_FPS = 50.0
EPISODES = 20
"""Episodes that are tried before a recording is given up."""


def motion_info(options: argparse.Namespace) -> int:
    import json

    from gaitway.core.files import finite

    paths = [path for named in options.files for path in _paths(named)]
    found = [described(_read(options, path), path) for path in paths]
    if options.json:
        print(json.dumps(finite(found)))
        return 0
    print_table(found)
    return 0


def motion_check(options: argparse.Namespace) -> int:
    import json

    from gaitway.cli.console import console
    from gaitway.envs.motions.check import check_clip
    from gaitway.envs.motions.skeleton import Skeleton

    clip = _read_one(options)
    robot = _robot(options, clip, needed=False)
    found = check_clip(clip, None if robot is None else Skeleton.of_robot(robot))
    if options.json:
        print(json.dumps([dataclasses.asdict(each) for each in found]))
    else:
        print_findings(found)
        if robot is None:
            console.print("joint limits and the floor were not looked at; name a --robot")
    return int(any(each.verdict == "wrong" for each in found))


def motion_convert(options: argparse.Namespace) -> int:
    from gaitway.cli.console import console
    from gaitway.core.config import ConfigError
    from gaitway.envs.motions.amp_files import SUFFIXES, write_amp
    from gaitway.envs.motions.check import VELOCITY_ERROR, velocity_errors
    from gaitway.envs.motions.skeleton import Skeleton

    _check_out(options)
    clip = _read_one(options)
    robot = _robot(options, clip, needed=False)
    if options.differentiate:
        clip = clip.differentiated()
    else:
        for name, error in velocity_errors(clip).items():
            if error > VELOCITY_ERROR:
                console.print(
                    f"{name} differ from differences of positions by {error:.0%}; --differentiate replaces them",
                    soft_wrap=True,
                )
    if robot is not None:
        Skeleton.of_robot(robot).fit(clip.joints, clip.bodies, clip.balls, clip.name)
        clip = dataclasses.replace(clip, meta={**clip.meta, "robot": robot.name})
    if options.mirror:
        if robot is None:
            raise ConfigError(
                f"which way the joints of {clip.name} turn in a mirror is known of robots; name a --robot"
            )
        clip = clip.mirrored(Skeleton.of_robot(robot).mirror())
    if options.dt is not None:
        clip = clip.resampled(options.dt)
        if "time_stretch" in clip.meta:
            console.print(f"the loop lasts {clip.meta['time_stretch']:.4f} times as long, to close on a frame")
    changes = {"weight": options.weight, "name": options.name}
    clip = dataclasses.replace(clip, **{name: value for name, value in changes.items() if value is not None})
    if Path(options.out).suffix in SUFFIXES:
        numbers = write_amp(clip, options.out)
        console.print(f"{line_of(clip, options.out)}, an AMP file of {numbers} numbers a frame", soft_wrap=True)
        return 0
    clip.save(options.out)
    console.print(line_of(clip, options.out), soft_wrap=True)
    return 0


def motion_view(options: argparse.Namespace) -> int:
    import mujoco
    import numpy as np

    from gaitway.cli.console import console
    from gaitway.cli.play import check_writable, ending_on_sigterm
    from gaitway.core.config import ConfigError
    from gaitway.envs.motions.skeleton import Skeleton
    from gaitway.envs.pictures.render import FOLLOW, MujocoPainter
    from gaitway.envs.robots import world
    from gaitway.runners.encoders import check_kind, check_size, video_problem
    from gaitway.runners.video import VideoWriter

    clip = _read_one(options)
    robot = _robot(options, clip)
    assert robot is not None
    problem = video_problem()
    path = check_kind(options.out or f"{clip.name}{'.gif' if problem else '.mp4'}")
    if problem is not None and path.suffix.lower() == ".mp4":
        raise ConfigError(f"{problem}, or choose a name that ends in .gif")
    size = check_size(options.size, path.suffix.lower())
    spec = robot.spec()
    world.add_ground(spec)
    world.decorate(spec, robot.torso)
    model = world.compile_model(spec)
    skeleton = Skeleton(model, robot.name, robot.joints, robot.torso)
    fps = min(clip.fps, MAX_FPS)
    length = clip.duration * (options.periods if clip.loop else 1)
    times = np.arange(math.floor(length * fps + 1e-6) + 1) / fps
    qpos, _ = skeleton.fit(clip.joints, clip.bodies, clip.balls, clip.name).states(clip.at(times))
    painter, data = MujocoPainter(model), mujoco.MjData(model)
    try:
        _draw(painter, model, data, qpos[0], size)
    except Exception as error:  # OpenGL fails in many types
        raise ConfigError(f"the clip cannot be drawn here: {error}") from error
    check_writable(path)
    with ending_on_sigterm(), VideoWriter(path, fps, size, patience_s=math.inf) as writer:
        for time, row in zip(times, qpos, strict=True):
            data.qpos[:] = row
            mujoco.mj_forward(model, data)
            writer.add(painter.draw(data, *size, FOLLOW), (f"time {time:.2f} s",), (clip.name, robot.name))
        written = writer.close()
    painter.close()
    if written is None:
        console.print("no film was written; the line above says why")
        return 1
    console.print(f"{path}: {robot.name} in {clip.name}, {len(times)} frames at {fps:g} per second", soft_wrap=True)
    return 0


def motion_record(options: argparse.Namespace) -> int:
    from gaitway.cli.players import find_player

    _check_out(options)
    commands, out = options.told or [None], Path(options.out)
    with find_player(options) as player:
        clips = [_recorded(player, options, commands, number) for number in range(len(commands))]
    for clip in clips:
        _save(clip, out / clip.name if len(clips) > 1 else out)
    return 0


def _recorded(player: Player, options: argparse.Namespace, commands: Sequence[Any], number: int) -> Clip:
    """The clip of one of several commands. Those of the same command begin differently, and share its weight."""
    from gaitway.cli.steering import Steering
    from gaitway.envs.motions.frames import MotionError
    from gaitway.envs.motions.generate import motion_facts
    from gaitway.envs.motions.recording import record

    command, name = commands[number], Path(options.out).name
    before = commands[:number].count(command)
    steering = Steering.of(player.env, command)
    try:
        clip = record(player.env, player.act, options.seconds, options.warmup, options.seed + before, EPISODES)
    except MotionError as error:
        raise MotionError(f"{player.what}: {error}") from error
    if len(commands) > 1:
        name += f"_{'_'.join(f'{each:g}' for each in command)}" + (f"_{before + 1}" if before else "")
    facts = {} if steering is None else motion_facts(clip, steering.command)
    return dataclasses.replace(
        clip,
        name=name,
        source=player.what,
        weight=1.0 / commands.count(command),
        meta={**clip.meta, "kind": "recorded", **facts},
    )


def motion_generate(options: argparse.Namespace) -> int:
    from gaitway.envs.motions.generate import commands_of, kinematic, replayed

    _check_out(options)
    commands, out = commands_of(options.gait) if options.told is None else (options.told,), Path(options.out)
    if options.kind == "kinematic":
        clips = [kinematic(options.gait, command, options.robot) for command in commands]
    else:
        clips = [replayed(options.gait, command, options.robot, options.seconds) for command in commands]
    for clip in clips:  # all of them or none
        _save(clip, out / clip.name if options.told is None else out)
    return 0


def _save(clip: Clip, folder: Path) -> None:
    from gaitway.cli.console import console

    clip.save(folder)
    told = clip.meta.get("velocity")
    moves = "" if told is None else f", moves at {', '.join(f'{each:.2f}' for each in told)}"
    console.print(f"{line_of(clip, str(folder))}{moves}", soft_wrap=True)


def _paths(named: str) -> list[str]:
    """A file, or the folders of the clips that a folder, or a name of those that come with the library, stands for."""
    from gaitway.envs.motions.library import clip_folders

    return [named] if Path(named).is_file() else [str(folder) for folder in clip_folders(named)]


def _read_one(options: argparse.Namespace) -> Clip:
    from gaitway.core.config import ConfigError

    first, *others = _paths(options.file)
    if others:
        raise ConfigError(
            f"{options.file} holds {1 + len(others)} clips; name one of them, such as "
            f"{Path(options.file) / Path(first).name} (`gaitway motion info {options.file}` lists them)"
        )
    return _read(options, first)


def _read(options: argparse.Namespace, path: str) -> Clip:
    from gaitway.envs.motions.importers.read import read_motion
    from gaitway.envs.motions.importers.reading import Reading

    reading = Reading(
        options.format, options.joints, options.bodies, options.root, options.quaternion, options.fps, options.loop
    )
    named = getattr(options, "robot", None)
    if reading.joints is None and named is not None and Path(path).suffix == ".npz":
        # files without names have the joints of their robot in its order
        from gaitway.envs.motions.frames import MotionError
        from gaitway.envs.motions.skeleton import Skeleton

        try:
            return read_motion(path, reading)
        except MotionError as error:
            if "names no joints" not in str(error):
                raise
        reading = dataclasses.replace(reading, joints=Skeleton.of_robot(_find_robot(named)).joints)
    return read_motion(path, reading)


def _robot(options: argparse.Namespace, clip: Clip, needed: bool = True) -> Robot | None:
    from gaitway.core.config import ConfigError
    from gaitway.envs.robots.registry import LEGGED_ROBOTS, ROBOTS

    known = {**ROBOTS, **LEGGED_ROBOTS}
    name = options.robot or clip.meta.get("robot")
    if isinstance(name, str) and (options.robot or name in known):
        return _find_robot(name)
    if needed:
        raise ConfigError(f"{clip.name} does not say which robot it moves; name one with --robot ({', '.join(known)})")
    return None


def _find_robot(name: str) -> Robot:
    from gaitway.envs.robots.registry import LEGGED_ROBOTS, ROBOTS, get_legged_robot, get_robot
    from gaitway.envs.robots.robot import Robot

    if name.endswith(".xml"):
        return Robot(Path(name).stem, Path(name).resolve())
    if name not in ROBOTS and (name in LEGGED_ROBOTS or name.endswith((".yaml", ".yml"))):
        return get_legged_robot(name).robot
    return get_robot(name)


def _check_out(options: argparse.Namespace) -> None:
    from gaitway.core.config import ConfigError

    out = Path(options.out)
    if out.is_file() or (out.is_dir() and any(out.iterdir()) and not options.overwrite):
        raise ConfigError(f"{out} exists already; choose another folder, or replace a clip there with --overwrite")


def _draw(painter: Any, model: Any, data: Any, qpos: Any, size: tuple[int, int]) -> None:
    import mujoco

    data.qpos[:] = qpos
    mujoco.mj_forward(model, data)
    painter.draw(data, *size)
