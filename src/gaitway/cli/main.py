"""`gaitway`: the command line. Parses, calls one function per command, turns errors into one sentence."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import select
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn, TextIO

from gymnasium.error import Error as GymnasiumError

from gaitway.cli.collect import add_parser as add_collect
from gaitway.cli.collect import count
from gaitway.cli.compare import add_parser as add_compare
from gaitway.cli.doors import DOORS
from gaitway.cli.export import add_parser as add_export
from gaitway.cli.motion.arguments import add_parser as add_motion
from gaitway.cli.motion.arguments import velocity
from gaitway.cli.report import add_parsers as add_report
from gaitway.cli.skills import add_parser as add_skills
from gaitway.cli.sweep.parser import add_parser as add_sweep
from gaitway.core.config import ConfigError
from gaitway.core.signals import EXIT_CODES, Interrupted, handling, interrupt, leave, said
from gaitway.core.trust import Origin, check_trusted, speaking
from gaitway.core.user_code import SentenceError, UserCodeError, told
from gaitway.version import __version__

OPENING = ("train", "distill", "finetune", "resume", "eval", "collect", "export", "play", "plot", "info")
"""Commands that make objects of what run folders name, or write into them."""
TRAINING = ("train", "distill", "finetune", "resume", "sweep")
"""Commands that go on until they are told to stop."""
QUICK = {
    "plot": "look",
    "info": "look",
    "list_what": "look",
    "compare": "compare",
    "report": "report",
    "dash": "report",
    "sweep": "sweep.command",
}
"""Commands that load no torch -> their module; all others are found in `commands`, which imports what trains."""
USER_ERRORS = (ValueError, KeyError, TypeError, OSError, MemoryError, ImportError, SentenceError, GymnasiumError)
"""Errors that are answered with their sentence; a traceback goes to run.log."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code: 0 done, 1 failed, 2 wrong use, 75 stopped (resume), 130 interrupted."""
    options = parse(arguments)
    _hold_standard_input()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a folder may have any name
    code = _run(options)
    return _flush(code)


def _hold_standard_input() -> None:
    """Open the null device where a shell has closed standard input (`<&-`). A pipe or the memory of workers would get
    its number instead, and programs that are started would find no input at all: bad file descriptor."""
    try:
        os.fstat(0)
    except OSError:
        if os.open(os.devnull, os.O_RDONLY) == 0:  # the lowest number that is free
            os.set_inheritable(0, True)
            sys.stdin = open(0, closefd=False)  # noqa: SIM115


def _run(options: argparse.Namespace) -> int:
    signals = tuple(EXIT_CODES) if options.command in TRAINING else ("SIGINT",)
    with handling(signals, leave):
        # after the parser, so that --help and usage errors do not wait for torch
        commands = importlib.import_module(f"gaitway.cli.{QUICK.get(options.command, 'commands')}")

    return run_command(options, getattr(commands, options.command), signals)


def run_command(options: argparse.Namespace, command: Callable[..., int], signals: Sequence[str]) -> int:
    """Call a command; its errors become a sentence and an exit code."""
    try:
        origin = Origin(trusted=check_trusted(tuple(getattr(options, "trust", ()))))
        with handling(signals, interrupt), speaking(origin):
            return command(options)
    except KeyboardInterrupt as error:
        name = error.args[0] if isinstance(error, Interrupted) else "SIGINT"
        print(f"gaitway: {said(name)}", file=sys.stderr)
        return EXIT_CODES[name]
    except (Exception, SystemExit) as error:
        if isinstance(error, BrokenPipeError) and _has_no_reader(sys.stdout):
            return 0  # as `| head` does
        if getattr(error, "told_by_first", False) and os.environ.get("RANK", "0") != "0":
            return 1
        sentence = error.args[0] if isinstance(error, KeyError) and error.args else error
        is_program = options.command == "bench"  # a script, which speaks for itself
        if not (isinstance(error, ConfigError | UserCodeError) or is_program):
            sentence = told(error) or sentence
        if sentence is error and not isinstance(error, USER_ERRORS):
            raise
        print(f"gaitway: {sentence}", file=sys.stderr)
        if os.environ.get("GAITWAY_TRACEBACK"):
            traceback.print_exc()
        return 1


def _has_no_reader(stream: TextIO) -> bool:
    """Whether the stream is a pipe whose other end is closed; other pipes break too, those of a worker that died."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    except (OSError, ValueError, AttributeError):  # not a file, or no poll on this system
        return False


def _flush(code: int) -> int:
    """Write what is still to be written; where that is impossible, say so and let Python not try again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError) as error:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if not isinstance(error, BrokenPipeError):
                with contextlib.suppress(OSError, ValueError):
                    print(f"gaitway: the output is not complete: {error}", file=sys.stderr)
                code = code or 1
    return code


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse, with `key=value` allowed on either side of `--options` (argparse alone stops at the first gap)."""
    top = parser()
    options, rest = top.parse_known_args(_joined(sys.argv[1:] if arguments is None else arguments))
    field = {"resume": "limits", "check": "options", "warm_up": "options"}.get(options.command)
    field = "overrides" if hasattr(options, "overrides") else field
    field = "settings" if hasattr(options, "settings") else field
    if rest and (field is None or any("=" not in text or text.startswith("-") for text in rest)):
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest and field is not None:
        getattr(options, field).extend(rest)
    return options


def _joined(arguments: Sequence[str]) -> list[str]:
    """`--command -0.4,0,0` as `--command=-0.4,0,0`: argparse takes only plain numbers for values that begin with -."""
    found: list[str] = []
    for text in arguments:
        is_value = bool(found) and found[-1] == "--command" and text[:1] == "-" and text[1:2] in set("0123456789.")
        if is_value:
            found[-1] += f"={text}"
        else:
            found.append(text)
    return found


class Parser(argparse.ArgumentParser):
    """A mistake gets its sentence and the way to all options, not a page of them."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; `{self.prog} --help` tells more\n")


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="gaitway",
        description="Teach robots to move.",
        epilog="Every command but train needs only run folders. Set GAITWAY_TRACEBACK=1 to see where an error arose.",
    )
    top.add_argument("--version", action="version", version=f"gaitway {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    train = commands.add_parser(
        "train",
        help="train a policy",
        description="Train a policy: gaitway train experiment=ppo_walker_run seed=1 run_dir=runs/first",
        epilog="`gaitway list experiments` names the presets; docs/configuration.md explains every key.",
    )
    train.add_argument(
        "overrides", nargs="*", default=[], metavar="key=value", help="experiment=NAME, config=FILE, and any key"
    )
    train.add_argument("--show-config", action="store_true", help="print the effective configuration and stop")
    train.add_argument("--quiet", action="store_true", help="no progress display")
    train.add_argument(
        "--or-resume",
        action="store_true",
        help="go on if there is a run in run_dir, so that one line survives restarts",
    )
    train.add_argument("--dry-run", action="store_true", help="say what is known before the run and stop there")
    train.add_argument("--seeds", default=None, metavar="0..9", help="a run per seed: a sweep")
    train.add_argument("-m", "--multirun", action="store_true", help="key=a,b: a run per combination: a sweep")
    train.add_argument("--workers", type=count, default=1, help="of a sweep: runs at the same time")
    train.add_argument(
        "--from-trial", default=None, metavar="DIR[:best|:N]", help="begin with the configuration of a trial of a sweep"
    )

    distill = commands.add_parser(
        "distill",
        help="teach a new policy what a run can do",
        description="Distil a run into a student: gaitway distill runs/expert agent.memory.kind=gru "
        "agent.observations.actor=[camera]",
        epilog="The run gives the environment, the arguments the student. docs/distillation.md explains it.",
    )
    finetune = commands.add_parser(
        "finetune",
        help="go on with the reward from what a run can do",
        description="Fine-tune a policy by PPO: gaitway finetune runs/student total_steps=1e6",
        epilog="The run gives environment, networks and weights; at first the critic learns alone, for "
        "algorithm.critic_warmup iterations (10).",
    )
    for each in (distill, finetune):
        each.add_argument("run", metavar="DIR")
        each.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="any key of `gaitway train`")
        each.add_argument("--show-config", action="store_true", help="print the effective configuration and stop")
        each.add_argument("--quiet", action="store_true", help="no progress display")
        each.set_defaults(config_dir=None)

    resume = commands.add_parser("resume", help="go on with a run, bit for bit")
    resume.add_argument("run", metavar="DIR")
    resume.add_argument(
        "limits",
        nargs="*",
        default=[],
        metavar="until=N|more=N|device=NAME|env.num_threads=N",
        help="train to N steps, or N steps more; on another device, with another number of simulator threads",
    )
    resume.add_argument("--checkpoint", default="last", help="last (default), best or a number of steps")
    resume.add_argument(
        "--fresh-replay",
        action="store_true",
        help="go on with an empty replay, where its files are lost: the policy plays algorithm.learning_starts steps "
        "into it before it learns again (off-policy runs; the result is no longer that of an uninterrupted run)",
    )
    resume.add_argument("--quiet", action="store_true", help="no progress display")

    evaluate = commands.add_parser("eval", help="measure a trained policy")
    evaluate.add_argument("run", metavar="DIR", help="a run folder; with --policy an environment, or that of a run")
    evaluate.add_argument("--policy", metavar="WHO", default=None, help="a run folder or a mutex file to play there")
    evaluate.add_argument("--episodes", type=count, default=None, help="default: evaluation.episodes of the run")
    evaluate.add_argument("--checkpoint", default="best", help="best (default), last or a number of steps")
    evaluate.add_argument(
        "--hide",
        metavar="NAME",
        nargs="+",
        default=[],
        help="groups, or group.component, that are NaN while it is measured: who reads them cannot act",
    )
    evaluate.add_argument(
        "--without-estimates",
        action="store_true",
        help="the actor reads the environment's own values in the places of its estimators' (what estimates cost)",
    )
    evaluate.add_argument("--json", action="store_true")
    evaluate.set_defaults(command="evaluate")

    add_sweep(commands, count)

    add_collect(commands)

    add_export(commands)

    play = commands.add_parser(
        "play",
        help="watch a policy or an environment: in a window, or as a video",
        description="Watch a trained policy: gaitway play runs/first. Watch an environment: gaitway play walker/run",
        epilog="An environment opens a window if there is a screen, and goes to a file otherwise; its options are "
        "env.options.NAME=VALUE. A run is filmed into its folder unless --window is given. docs/seeing.md shows it "
        "all.",
    )
    play.add_argument(
        "run", metavar="RUN_OR_ENV", help="a run folder, or a folder of runs, of which the best is shown; or ENV_ID"
    )
    play.add_argument(
        "--policy",
        metavar="WHO",
        default=None,
        help="random (default for an environment), zero, a run folder or a mutex file",
    )
    play.add_argument(
        "--video", metavar="FILE", default=None, help="mp4 or gif; default: RUN/videos/play.mp4, or ENV_ID.mp4 here"
    )
    play.add_argument("--window", action="store_true", help="show it in a window; without a screen, in a video")
    play.add_argument("--no-video", action="store_true", help="only play an episode and say its return")
    play.add_argument("--checkpoint", default="best", help="best (default), last or a number of steps")
    duration = play.add_mutually_exclusive_group()
    duration.add_argument("--steps", type=count, default=None, help="so many steps, through the ends of episodes")
    duration.add_argument(
        "--length", type=count, default=None, help="at most so many steps of one episode (default: video.length)"
    )
    play.add_argument(
        "--skill", type=int, default=None, metavar="N", help="of a diayn run: only this skill (default: all, in turn)"
    )
    play.add_argument(
        "--command",
        type=velocity,
        default=None,
        dest="told",
        metavar="X,Y,TURN",
        help="of a legged robot: go there (m/s, rad/s); in a window arrow keys change it, the space bar stops",
    )
    play.add_argument("--seed", type=int, default=0, help="which start to show")
    play.add_argument("--size", type=_size, default=None, metavar="WxH", help="pixels (default: video.size, 480x360)")
    play.add_argument("--camera", default=None, metavar="NAME", help="a camera of a native environment, or follow")
    play.add_argument(
        "--quality", choices=["fast", "shadows", "full"], default="fast", help="of films of native environments"
    )
    play.add_argument("--plain", action="store_true", help="no text in the picture")

    plot = commands.add_parser("plot", help="draw learning curves")
    plot.add_argument("runs", nargs="+", metavar="DIR", help="run folders, or folders of run folders")
    plot.add_argument(
        "--metric", nargs="+", default=None, metavar="NAME", help="draw these metrics, by their full names"
    )
    plot.add_argument("--out", default=None, help="file for the comparison of several runs, or for --metric")

    add_compare(commands)

    add_report(commands)

    add_skills(commands, count, _size)

    add_motion(commands, count, _size)

    info = commands.add_parser("info", help="what a run folder holds")
    info.add_argument("run", metavar="DIR")
    info.add_argument("--json", action="store_true")
    info.add_argument(
        "--verify", action="store_true", help="read the checkpoint and compute its fingerprint anew, which takes longer"
    )

    listing = commands.add_parser("list", help="what there is")
    listing.add_argument(
        "what",
        choices=["envs", "robots", "algorithms", "experiments", "motions", *DOORS],
        metavar="WHAT",
        help="envs, robots, algorithms, experiments, motions (clips that come with the library), or what a list of the "
        f"configuration may name: {', '.join(DOORS)}",
    )
    listing.add_argument(
        "name",
        nargs="?",
        default=None,
        metavar="NAME",
        help="of robots: a legged one, or its YAML file, in detail; of a list: the options of one part",
    )
    listing.add_argument("--json", action="store_true")
    listing.set_defaults(command="list_what")

    check = commands.add_parser("check", help="prove that an environment honours the contract")
    check.add_argument("env", metavar="ENV_ID")
    check.add_argument("options", nargs="*", default=[], metavar="option=value", help="options of the environment")

    warm = commands.add_parser("warm-up", help="compile what env.simulator=warp needs for an environment, and keep it")
    warm.add_argument("env", metavar="ENV_ID")
    warm.add_argument("options", nargs="*", default=[], metavar="option=value", help="options of the environment")
    warm.set_defaults(command="warm_up")

    bench = commands.add_parser("bench", help="run a benchmark of this checkout")
    bench.add_argument("name", nargs="?", default=None)
    bench.add_argument("arguments", nargs=argparse.REMAINDER, help="handed on to the benchmark")
    for name in ("eval", "collect", "export", "play", "info"):
        commands.choices[name].add_argument(
            "settings",
            nargs="*",
            default=[],
            type=_setting,
            metavar="device=NAME",
            help="where to compute, if not where the run did",
        )
    for name in ("train", "list"):
        commands.choices[name].add_argument(
            "--config-dir", default=None, metavar="DIR", help="presets of yours: DIR/experiment/NAME.yaml"
        )
    for name in OPENING:
        commands.choices[name].add_argument(
            "--trust",
            action="append",
            default=[],
            metavar="MODULE",
            help="let runs from elsewhere import this module, or use this file or folder; may be repeated",
        )
    return top


def _setting(text: str) -> str:
    if "=" not in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not understood; write device=NAME")
    return text


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.lower().partition("x")
    if not (width.isdecimal() and height.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write width x height in pixels, e.g. 640x480")
    return int(width), int(height)


if __name__ == "__main__":
    sys.exit(main())
