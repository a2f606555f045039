"""The command line of `gaitway motion`."""

from __future__ import annotations

import argparse
import math
from typing import Any

FILE = (
    "the folder of a clip, one that comes with the library (pup12_trot), or a motion file: AMP JSON or TXT, DeepMimic "
    "JSON, NPZ of mjlab, holosoma or Isaac Lab"
)
ROBOT = "a robot (`gaitway list robots`), its MJCF or YAML file; default: the one that the clip was recorded of"
SIZE = (480, 360)


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
