"""`gaitway collect RUN --steps N --out DIR`: record a dataset with a trained policy, or with random actions.

What computes is imported only when the command runs, so that the parser stays quick.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaitway.envs.vec_env import VecEnv
    from gaitway.runners.episodes import EpisodeStatistics
    from gaitway.runners.evaluate import Actor
    from gaitway.runners.progress import Progress


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
    parser.add_argument("--steps", type=count, required=True, help="environment steps to record")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the dataset")
    parser.add_argument(
        "--policy",
        default=None,
        metavar="WHICH",
        help="best (default for a run), last, a number of steps, or random (default for an environment)",
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
    parser.add_argument("--quiet", action="store_true", help="no progress display")
    parser.set_defaults(command="collect")


def collect(options: argparse.Namespace) -> int:
    """Record, show how far it is, and say what came out."""
    from gaitway.cli.inspect_run import console
    from gaitway.core.config import ConfigError
    from gaitway.data.dataset import Dataset
    from gaitway.data.trajectories import Trajectories, TrajectoryWriter
    from gaitway.runners.collect import collect_steps
    from gaitway.runners.progress import Progress

    out = Path(options.out)
    if not options.append and out.exists() and (out.is_file() or any(out.iterdir())):
        raise ConfigError(f"{out} exists already; choose another folder, or add to a dataset there with --append")
    env, act, description = _player(options)
    progress = Progress(options.steps, title=env.spec.id, quiet=options.quiet)
    with env, TrajectoryWriter(out, env.spec, description=description) as writer, progress:
        episodes = collect_steps(env, act, writer, options.steps, partial(_show, progress))
    found = Dataset(Trajectories(out), str(out))
    console.print(f"{description}: {episodes.finished} whole episodes", soft_wrap=True)
    console.print(str(found), soft_wrap=True)
    return 0


def _show(progress: Progress, made: int, episodes: EpisodeStatistics) -> None:
    progress.update(made, {"train/return": episodes.returns[-1]} if episodes.returns else {}, {})


def _player(options: argparse.Namespace) -> tuple[VecEnv, Actor, str]:
    """The environment, what plays in it, and both in words."""
    from dataclasses import replace

    from gaitway.cli.build import build_env, load_policy
    from gaitway.cli.inspect_run import device_alone
    from gaitway.cli.open_run import open_run
    from gaitway.cli.train_config import EnvConfig, TrainConfig
    from gaitway.core.config import ConfigError
    from gaitway.core.seeding import check_seed, stream
    from gaitway.runners.collect import RandomPolicy

    check_seed(options.seed)
    folder, device = None, device_alone(options.settings)
    if (Path(options.source) / "config.yaml").is_file():
        folder, config = open_run(options.source, device)
    else:
        config = TrainConfig(env=EnvConfig(options.source), device=device or TrainConfig.device)
    which = options.policy or ("random" if folder is None else "best")
    env = build_env(replace(config, seed=options.seed), num_envs=options.num_envs)
    generator = stream(options.seed, "collect", env.device)
    if which == "random":
        return env, RandomPolicy(env.spec.action, generator), f"random actions in {config.env.id}, seed {options.seed}"
    if folder is None:
        raise ConfigError(f"{options.source} is no run folder and has no policy {which!r}; use --policy random")
    loaded = load_policy(folder, config, env.spec, which)
    act: Actor = loaded.inference(options.stochastic, generator)
    described = f"{config.algorithm.name}, {loaded.which} of {folder.path.name} (step {loaded.steps:,})"
    described += ", stochastic" if options.stochastic else ""
    if options.random_share:
        act = RandomPolicy(env.spec.action, generator, act, options.random_share)
        described += f", {options.random_share:.0%} random"
    return env, act, f"{described}, seed {options.seed}"


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
