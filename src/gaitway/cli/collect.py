"""`gaitway collect RUN --steps N --out DIR`: record a dataset with a trained policy, or with random actions.

With `--label` a teacher says what it would do in every step; with `--follow` the policy that plays is the newest
checkpoint of a run that is being trained, on this very dataset perhaps (DAgger beside training).

What computes is imported only when the command runs, so that the parser stays quick.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaitway.envs.vec_env import VecEnv
    from gaitway.runners.episodes import EpisodeStatistics
    from gaitway.runners.evaluate import Actor
    from gaitway.runners.progress import Progress

CHUNK, FOLLOWED_CHUNK = 50_000, 2_000


def add_parser(commands: Any) -> None:
    """Add `collect` to the subparsers of the command line."""
    parser = commands.add_parser(
        "collect",
        help="record a dataset",
        description="Record steps of a policy: gaitway collect runs/first --steps 1e5 --out data/walker",
        epilog="Episodes under way at the end are cut off, as if by a time limit. docs/offline.md explains what to do "
        "with a dataset.",
    )
    parser.add_argument("source", metavar="RUN_OR_ENV", help="a run folder, or an environment for random actions")
    parser.add_argument("--steps", type=count, default=None, help="environment steps to record, at least")
    parser.add_argument("--episodes", type=count, default=None, metavar="N", help="complete episodes, at least")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the dataset")
    parser.add_argument(
        "--policy",
        default=None,
        metavar="WHICH",
        help="best (default for a run), last, a number of steps, random (default for an environment), or a mutex file",
    )
    parser.add_argument("--stochastic", action="store_true", help="with the policy's exploration noise")
    parser.add_argument(
        "--random-share", type=float, default=0.0, metavar="P", help="share of actions that are random, 0 to 1"
    )
    parser.add_argument("--seed", type=int, default=0, help="of starts and noise")
    parser.add_argument(
        "--num-envs", type=count, default=1, metavar="B", help="default 1, which cuts off the last episode alone"
    )
    parser.add_argument("--append", action="store_true", help="add to a dataset of the same environment")
    parser.add_argument(
        "--success-only",
        action="store_true",
        help="keep episodes in which the metric `success` was 1; without such a metric, those that lasted to the end",
    )
    parser.add_argument("--label", metavar="TEACHER", help="also record what this run or function would do")
    parser.add_argument(
        "--follow",
        metavar="RUN",
        help="let the newest checkpoint of a run that is being trained play; RUN_OR_ENV is the teacher that labels",
    )
    parser.add_argument(
        "--teacher-share",
        type=_coefficient,
        default=0.0,
        metavar="P",
        help="share of episodes that the teacher drives, 0 to 1, or a schedule over the iterations of RUN: "
        "'{start: 1, end: 0, over: 100}'",
    )
    parser.add_argument("--keep-latest", type=count, metavar="N", help="drop the oldest episodes beyond these")
    parser.add_argument(
        "--codec",
        action="append",
        default=[],
        metavar="GROUP=CODEC",
        help="store a group in fewer bytes: u8_unit, f16 or u16_range:LOW:HIGH",
    )
    parser.add_argument(
        "--chunk-steps", type=count, metavar="N", help="steps per file: 50000, or 2000 where a run is followed"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress display")
    parser.set_defaults(command="collect")


def collect(options: argparse.Namespace) -> int:
    """Record, show how far it is, and say what came out."""
    from gaitway.cli.inspect_run import console
    from gaitway.core.config import ConfigError
    from gaitway.data.dataset import Dataset
    from gaitway.data.trajectories import Trajectories, TrajectoryWriter
    from gaitway.runners.collect import Least, collect_steps, success_metric, successful
    from gaitway.runners.progress import Progress

    out = Path(options.out)
    if options.steps is None and options.episodes is None and options.follow is None:
        raise ConfigError("nothing says how much to record; write --steps N, --episodes N or both")
    if not options.out:
        raise ConfigError("--out is empty; name the folder of the dataset")
    if not options.append and out.exists() and (out.is_file() or any(out.iterdir())):
        raise ConfigError(f"{out} exists already; choose another folder, or add to a dataset there with --append")
    env, act, description, refresh = _player(options)
    extras: dict[str, Any] = {}
    choose = None
    if options.success_only:
        metric = success_metric(env.spec)
        choose, description = successful(metric), f"{description}, {metric or 'whole episodes'} alone"
        extras |= {} if metric is None else {f"env/metric/{metric}": ((), "float32")}
    if options.label or options.follow:
        extras["teacher/action"] = (env.spec.action.shape, str(env.spec.action.dtype).removeprefix("torch."))
    least = Least(options.steps or 0, options.episodes or 0)
    if options.follow:  # with a number of steps or episodes it goes on when the run is over
        least, look = (least, lambda: bool(refresh()) and False) if least != Least() else (Least(2**62), refresh)
    else:
        look = refresh
    progress = Progress(min(least.steps, 10**12) or 1, title=env.spec.id, quiet=options.quiet or least.steps > 10**12)
    writer = TrajectoryWriter(
        out,
        env.spec,
        extras=_with_types(extras),
        codecs=_codecs(options.codec),
        description=description,
        chunk_steps=options.chunk_steps or (FOLLOWED_CHUNK if options.follow else CHUNK),
        keep_latest=options.keep_latest,
        choose=choose,
    )
    with env, writer, progress:
        episodes = collect_steps(env, act, writer, least, partial(_show, progress), refresh=look)
    found = Dataset(Trajectories(out), str(out))
    console.print(f"{description}: {episodes.finished} whole episodes", soft_wrap=True)
    console.print(str(found), soft_wrap=True)
    return 0


def _with_types(extras: dict[str, Any]) -> dict[str, Any]:
    import torch

    return {name: (shape, getattr(torch, dtype)) for name, (shape, dtype) in extras.items()}


def _codecs(entries: list[str]) -> dict[str, Any]:
    """`GROUP=CODEC` and `GROUP=u16_range:LOW:HIGH` as the writer takes them."""
    found: dict[str, Any] = {}
    for entry in entries:
        group, equals, codec = entry.partition("=")
        name, *limits = codec.split(":")
        try:
            numbers = [float(limit) for limit in limits]
        except ValueError:
            numbers = []
        if not equals or len(numbers) != len(limits) or len(limits) not in (0, 2):
            from gaitway.core.config import ConfigError

            raise ConfigError(f"--codec is {entry!r}; write GROUP=u8_unit, GROUP=f16 or GROUP=u16_range:LOW:HIGH")
        found[group] = {"name": name, **dict(zip(("low", "high"), numbers, strict=False))}
    return found


def _show(progress: Progress, made: int, episodes: EpisodeStatistics) -> None:
    progress.update(made, {"train/return": episodes.returns[-1]} if episodes.returns else {}, {})


def _player(options: argparse.Namespace) -> tuple[VecEnv, Actor, str, Callable[[], bool]]:
    """The environment, what plays in it, both in words, and what is called now and then."""
    from dataclasses import replace

    from gaitway.cli.arguments import device_alone, device_of
    from gaitway.cli.build import build_env, is_mutex_file, load_frozen, load_mutex, load_policy
    from gaitway.cli.open_run import in_environment, open_run
    from gaitway.cli.train_config import TrainConfig
    from gaitway.core.config import ConfigError
    from gaitway.core.seeding import check_seed, stream
    from gaitway.runners.collect import RandomPolicy, Taught

    check_seed(options.seed)
    folder, (device, others) = None, device_of(options.settings)
    if (Path(options.source) / "config.yaml").is_file():
        folder, config = open_run(options.source, device_alone(options.settings))
    elif Path(options.source).is_dir():
        raise ConfigError(
            f"{options.source} is a folder, but not of a run: it lacks config.yaml; give the run_dir of one"
        )
    else:
        config = in_environment(TrainConfig(device=device or TrainConfig.device), options.source, others)
    if options.follow and options.label:
        raise ConfigError("with --follow it is RUN_OR_ENV that labels; leave --label out")
    which = options.policy or ("random" if folder is None else "best")
    seed = options.seed + _written(options) if options.follow else options.seed
    env = build_env(replace(config, seed=seed), num_envs=options.num_envs)
    generator = stream(seed, "collect", env.device)
    act: Actor
    if which == "random":
        if options.follow:
            raise ConfigError(f"{options.source} is to label, and random actions teach nothing; name a run")
        act, described = RandomPolicy(env.spec.action, generator), f"random actions in {config.env.id}"
    else:
        if is_mutex_file(which):
            loaded = load_mutex(which, env.spec, config.device)
            described = f"the mutex {which} in {config.env.id}"
        elif folder is None:
            raise ConfigError(
                f"{options.source} is no run folder and has no policy {which!r}; use --policy random, or a mutex file"
            )
        else:
            loaded = load_policy(folder, config, env.spec, which)
            described = f"{config.algorithm.name}, {loaded.which} of {folder.path.name} (step {loaded.steps:,})"
        act = loaded.inference(options.stochastic and not options.follow, generator)
        described += ", stochastic" if options.stochastic else ""
        if options.random_share:
            act = RandomPolicy(env.spec.action, generator, act, options.random_share)
            described += f", {options.random_share:.0%} random"
    if options.follow:
        from gaitway.cli.followed_run import FollowedRun

        taught = Taught(act, generator)
        followed = FollowedRun(options.follow, taught, env.spec, options.stochastic, options.teacher_share)
        return env, taught, f"{described}, labels for {Path(options.follow).name}, seed {options.seed}", followed
    if options.label:
        from gaitway.agents.policy import InferencePolicy

        teacher = InferencePolicy(load_frozen(options.label, "--label", env.spec, config.device))
        misfit = _misfit(teacher.policy, env.spec)
        if misfit is not None:
            raise ConfigError(f"--label: {options.label} does not fit {env.spec.id}: {misfit}")
        share = options.teacher_share
        if not isinstance(share, float):
            raise ConfigError("a schedule of --teacher-share goes with --follow; write a number")
        act, described = Taught(teacher, generator, act, share), f"{described}, labels by {Path(options.label).name}"
    return env, act, f"{described}, seed {options.seed}", lambda: False


def _misfit(policy: Any, spec: Any) -> str | None:
    from gaitway.envs.misfit import misfit_of

    return misfit_of(policy.spec, spec, tuple(f"env/obs/{name}" for name in policy.actor_groups))


def _written(options: argparse.Namespace) -> int:
    """Chunks that the dataset has seen: a recorder that goes on plays other episodes than before."""
    from gaitway.data.trajectories import Trajectories

    return Trajectories(options.out).written if (Path(options.out) / "index").exists() else 0


def _coefficient(text: str) -> Any:
    """A number from 0 to 1, or a schedule as YAML."""
    import yaml

    from gaitway.core.config import ConfigError, from_config
    from gaitway.core.schedules import Schedule

    try:
        value = yaml.safe_load(text)
        found = from_config(Schedule, value, "teacher-share") if isinstance(value, dict) else float(value)
    except (yaml.YAMLError, TypeError, ValueError, ConfigError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor a schedule ({error})") from error
    if not all(0.0 <= each <= 1.0 for each in (found.extremes if isinstance(found, Schedule) else (found,))):
        raise argparse.ArgumentTypeError(f"{text!r} leaves 0 to 1")
    return found


def count(text: str) -> int:
    number = whole_number(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1, such as 1000 or 1e6")
    return number


def whole_number(text: str) -> int:
    """The integer that `text` says, also as `1e6`; 0 where it says none, or one that 64 bits do not hold."""
    try:
        number = float(text)
    except ValueError:
        return 0
    if not number.is_integer() or abs(number) >= 2**63:  # NaN and infinities are no integers
        return 0
    return int(text) if text.strip().isdecimal() else int(number)
