"""`gaitway motion info|check|convert|view|record|generate`: motion clips, looked at, made and shown."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaitway.cli.players import Player
    from gaitway.envs.motions.check import Finding
    from gaitway.envs.motions.clip import Clip
    from gaitway.envs.robots.robot import Robot

FILE = "the folder of a clip, or a motion file: AMP JSON or TXT, DeepMimic JSON, NPZ of mjlab, holosoma or Isaac Lab"
ROBOT = "a robot (`gaitway list robots`), its MJCF or YAML file; default: the one that the clip was recorded of"
SIZE = (480, 360)
MAX_FPS = 50.0
EPISODES = 20
"""Episodes that are tried before a recording is given up."""


def add_parser(commands: Any, count: Any, size: Any) -> None:
    """Add `motion` to the subparsers of the command line; `count` and `size` turn text into numbers."""
    parser = commands.add_parser(
        "motion",
        help="motion clips: look at them, check, convert, film and record them",
        description="Motion clips: gaitway motion convert dog_trot.txt clips/trot --dt 0.02",
        epilog="docs/motions.md explains clips, starts and features.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    info = actions.add_parser("info", help="what clips hold, as a table")
    info.add_argument("files", nargs="+", metavar="FILE", help=FILE)
    info.add_argument("--json", action="store_true")
    info.set_defaults(command="motion_info")

    check = actions.add_parser(
        "check", help="jumps, quaternions, velocities, and with a robot joint limits and the floor"
    )
    check.add_argument("file", metavar="FILE", help=FILE)
    check.add_argument("--json", action="store_true")
    check.set_defaults(command="motion_check")

    convert = actions.add_parser("convert", help="any motion file to a clip of ours, also at another rate or mirrored")
    convert.add_argument("file", metavar="FILE", help=FILE)
    convert.add_argument("out", metavar="OUT", help="folder of the clip; FILE.txt: an AMP file, as of AMP-for-hardware")
    convert.add_argument("--dt", type=_number, default=None, metavar="S", help="resample to a frame every S seconds")
    convert.add_argument("--mirror", action="store_true", help="swap left and right; signs are those of the robot")
    convert.add_argument(
        "--differentiate", action="store_true", help="replace stored velocities by differences of positions"
    )
    convert.add_argument("--weight", type=_number, default=None, metavar="W", help="how often it is drawn")
    convert.add_argument("--name", default=None)
    convert.add_argument("--overwrite", action="store_true", help="replace a clip that is there")
    convert.set_defaults(command="motion_convert")

    view = actions.add_parser("view", help="a film of the robot posed by the clip, in real time")
    view.add_argument("file", metavar="FILE", help=FILE)
    view.add_argument("--out", metavar="FILM", default=None, help="mp4 or gif; default: CLIP.mp4 here")
    view.add_argument("--size", type=size, default=SIZE, metavar="WxH", help="pixels (default: 480x360)")
    view.add_argument("--periods", type=count, default=1, metavar="N", help="how often a loop is shown (default: 1)")
    view.set_defaults(command="motion_view")

    for each in (check, convert, view):
        each.add_argument("--robot", default=None, metavar="NAME", help=ROBOT)
    for each in (info, check, convert, view):
        _add_reading(each)

    record = actions.add_parser("record", help="a clip of a trained policy, or of random actions, in a native task")
    record.add_argument("run", metavar="RUN_OR_ENV", help="a run folder, or an environment")
    record.add_argument("out", metavar="OUT", help="folder of the clip")
    record.add_argument("--seconds", type=_number, default=4.0, help="how long it lasts (default: 4)")
    record.add_argument("--warmup", type=_number, default=1.0, help="seconds before it begins (default: 1)")
    record.add_argument(
        "--policy", metavar="WHO", default=None, help="random (default for an environment), zero or a run"
    )
    record.add_argument("--checkpoint", default="best", help="best (default), last or a number of steps")
    record.add_argument("--seed", type=int, default=0, help="of starts")
    record.add_argument("--skill", type=int, default=None, metavar="N", help="of a diayn run: only this skill")
    record.add_argument(
        "--command",
        action="append",
        type=velocity,
        default=None,
        dest="told",
        metavar="X,Y,TURN",
        help="of a legged robot: go there; given several times, OUT is a folder of clips, one for each",
    )
    record.add_argument("--overwrite", action="store_true", help="replace a clip that is there")
    record.add_argument("settings", nargs="*", default=[], metavar="device=NAME", help="where to compute")
    record.add_argument(
        "--trust", action="append", default=[], metavar="MODULE", help="let runs from elsewhere import it"
    )
    record.set_defaults(command="motion_record", steps=None, length=None)

    generate = actions.add_parser(
        "generate",
        help="clips of a gait that is written down: a legged robot driven open loop, or its kinematics alone",
        epilog="Without --command: a folder of clips, one for each command that the gait is for, four to seven.",
    )
    generate.add_argument("gait", metavar="GAIT", help="trot, trot_slow, pace, bound or walk")
    generate.add_argument("out", metavar="OUT", help="folder of the clip, or of the clips")
    generate.add_argument(
        "--command", type=velocity, default=None, dest="told", metavar="X,Y,TURN", help="m/s and rad/s, such as 0.5,0,0"
    )
    generate.add_argument(
        "--kind", choices=["replayed", "kinematic"], default="replayed", help="simulated (default), or not"
    )
    generate.add_argument("--seconds", type=_number, default=4.0, help="of a replayed clip (default: 4)")
    generate.add_argument("--robot", default="pup12", metavar="NAME", help="a legged robot, or its YAML file")
    generate.add_argument("--overwrite", action="store_true", help="replace a clip that is there")
    generate.set_defaults(command="motion_generate")


def _add_reading(parser: Any) -> None:
    known = parser.add_argument_group("what the file does not say")
    known.add_argument("--format", default=None, help="amp, deepmimic, isaaclab or mjlab; default: as it looks")
    known.add_argument("--joints", type=_names, default=None, metavar="A,B,...", help="names, in the file's order")
    known.add_argument("--bodies", type=_names, default=None, metavar="A,B,...", help="names, in the file's order")
    known.add_argument("--root", default=None, metavar="BODY", help="which body is the root; default: the first")
    known.add_argument("--quaternion", default=None, metavar="ORDER", help="wxyz or xyzw; default: the format's")
    known.add_argument("--fps", type=_number, default=None, help="frames per second")
    known.add_argument("--loop", action=argparse.BooleanOptionalAction, default=None, help="whether it repeats")


def motion_info(options: argparse.Namespace) -> int:
    import json

    from gaitway.core.files import finite

    clips = [(path, _read(options, path)) for path in options.files]
    found = [described(clip, path) for path, clip in clips]
    if options.json:
        print(json.dumps(finite(found)))
        return 0
    _print_table(found)
    return 0


def motion_check(options: argparse.Namespace) -> int:
    import json

    from gaitway.cli.console import console
    from gaitway.envs.motions.check import check_clip
    from gaitway.envs.motions.skeleton import Skeleton

    clip = _read(options, options.file)
    robot = _robot(options, clip, needed=False)
    found = check_clip(clip, None if robot is None else Skeleton.of_robot(robot))
    if options.json:
        print(json.dumps([dataclasses.asdict(each) for each in found]))
    else:
        _print_findings(found)
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
    clip = _read(options, options.file)
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
        console.print(f"{_line(clip, options.out)}, an AMP file of {numbers} numbers a frame", soft_wrap=True)
        return 0
    clip.save(options.out)
    console.print(_line(clip, options.out), soft_wrap=True)
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

    clip = _read(options, options.file)
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
    console.print(f"{_line(clip, str(folder))}{moves}", soft_wrap=True)


def described(clip: Clip, path: str) -> dict[str, Any]:
    """Everything that `info` tells, plain."""
    import numpy as np

    distance = float(np.linalg.norm(clip.displacement[:2]))
    return {
        "file": str(path),
        "name": clip.name,
        "frames": len(clip),
        "fps": clip.fps,
        "dt": clip.dt,
        "seconds": clip.duration,
        "loop": clip.loop,
        "weight": clip.weight,
        "speed": distance / clip.duration,
        "joints": list(clip.joints),
        "bodies": list(clip.bodies),
        "balls": list(clip.balls),
        "source": clip.source,
        "meta": dict(clip.meta),
        "sha256": clip.fingerprint,
    }


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


def _line(clip: Clip, out: str) -> str:
    kind = "a loop" if clip.loop else "open"
    length = f"{len(clip)} frames at {clip.fps:g} per second ({clip.duration:.3g} s, {kind})"
    return f"{out}: {length}, {len(clip.joints)} joints"


def _print_table(found: list[dict[str, Any]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from gaitway.cli.console import console

    table = Table(
        "clip", "frames", "fps", "s", "loop", "weight", "m/s", "joints", "bodies", "source", box=None, pad_edge=False
    )
    for each in found:
        joints = f"{len(each['joints'])}" + (f" + {len(each['balls'])} balls" if each["balls"] else "")
        length = (str(each["frames"]), f"{each['fps']:g}", f"{each['seconds']:.3g}", "yes" if each["loop"] else "no")
        numbers = (f"{each['weight']:g}", f"{each['speed']:.2f}", joints, str(len(each["bodies"])))
        table.add_row(*map(escape, (each["name"], *length, *numbers, each["source"])))
    console.print(table)
    if len(found) == 1:
        for key in ("joints", "balls", "bodies"):
            if found[0][key]:
                console.print(escape(f"{key}: {', '.join(found[0][key])}"), soft_wrap=True)
        for key, value in found[0]["meta"].items():
            console.print(escape(f"{key}: {value}"), soft_wrap=True)


def _print_findings(found: list[Finding]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from gaitway.cli.console import console

    table = Table("", "", "", box=None, pad_edge=False, show_header=False)
    for each in found:
        table.add_row(*map(escape, (each.question, each.verdict, each.answer)))
    console.print(table)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} has an empty name; write A,B,C")
    return names


def velocity(text: str) -> tuple[float, float, float]:
    """`0.5,0,0.2` as x (m/s), y (m/s) and turn (rad/s)."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 3 or not all(map(math.isfinite, numbers)):
        raise argparse.ArgumentTypeError(f"{text!r} is no command; write X,Y,TURN in m/s and rad/s, such as 0.5,0,0.2")
    return numbers[0], numbers[1], numbers[2]


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0, such as 0.02")
    return number
