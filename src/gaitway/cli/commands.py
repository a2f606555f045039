"""The commands that train: `train` and `resume`, up to where `training` takes over; the others are imported here. Each
returns an exit code."""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import yaml

from gaitway.algorithms.replay_algorithm import ReplayAlgorithm
from gaitway.cli.arguments import device_of
from gaitway.cli.build import build_algorithm, build_data, build_env, need_named
from gaitway.cli.checks import anew, check_evaluation, check_memory, check_rates, judge_run
from gaitway.cli.collect import collect, whole_number
from gaitway.cli.compare import compare
from gaitway.cli.compose import DEFAULT, Composed, write_config
from gaitway.cli.compose_run import compose_run
from gaitway.cli.export import check_contract, export
from gaitway.cli.from_run import Base, student_of, successor_of
from gaitway.cli.init_from import init_from, pinned
from gaitway.cli.inspect_run import bench, check, evaluate, warm_up
from gaitway.cli.look import info, list_what, plot
from gaitway.cli.look_ahead import look_ahead
from gaitway.cli.motion.commands import (
    motion_check,
    motion_convert,
    motion_generate,
    motion_info,
    motion_record,
    motion_view,
)
from gaitway.cli.open_run import open_run
from gaitway.cli.play import play
from gaitway.cli.skills import show_skills, view_skills, write_skills
from gaitway.cli.sweep.command import from_trial, short_form
from gaitway.cli.train_config import TrainConfig, default_run_dir, recipe_of
from gaitway.cli.training import Plan, say, train_in
from gaitway.core.config import ConfigError, flatten, to_config
from gaitway.core.files import StateFileError, remove_leftovers
from gaitway.core.ranks import Ranks, being, here
from gaitway.core.user_code import UserCode
from gaitway.data.dataset import Dataset
from gaitway.data.trajectories import Trajectories
from gaitway.runners.checkpoint import Checkpoints
from gaitway.runners.distributed import (
    check_alike,
    check_processes,
    cores_of_rank,
    device_of_rank,
    joined,
)
from gaitway.runners.off_policy import OffPolicyRunner, replay_memory
from gaitway.runners.preflight import Pace
from gaitway.runners.run_folder import RunFolder, RunFolderTakenError

__all__ = [
    "bench",
    "check",
    "check_contract",
    "collect",
    "compare",
    "distill",
    "evaluate",
    "export",
    "finetune",
    "info",
    "list_what",
    "motion_check",
    "motion_convert",
    "motion_generate",
    "motion_info",
    "motion_record",
    "motion_view",
    "play",
    "plot",
    "resume",
    "show_skills",
    "train",
    "view_skills",
    "warm_up",
    "write_skills",
]

NOT_COMPARED = (
    "run_dir", "total_steps", "preflight", "data.path", "data.sha256", "init_from.run", "env.num_threads",
    "torch_threads",
)  # fmt: skip
"""What `--or-resume` does not ask of a run that is there: where it is, how long it shall be, what was chosen or made
whole when it began."""
NAMES = {each.name for each in fields(TrainConfig)}
"""Sections and keys of a configuration."""


def in_ranks(command: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """A command that several processes, started by `torchrun`, run together."""

    @functools.wraps(command)
    def run(options: argparse.Namespace) -> int:
        with joined():
            return command(options)

    return run


@in_ranks
def train(options: argparse.Namespace) -> int:
    overrides = list(options.overrides)
    if options.from_trial is not None:
        overrides = from_trial(options.from_trial, overrides)
    if options.seeds is not None or options.multirun:
        if options.show_config or options.or_resume:
            raise ConfigError("--seeds and -m make a sweep; go on with one by `gaitway sweep --resume DIR`")
        if options.dry_run:
            raise ConfigError("--dry-run looks at one run; leave --seeds and -m out")
        if not here().is_alone:
            raise ConfigError("a sweep starts processes of its own; use --seeds and -m without torchrun")
        return short_form(options, overrides)
    return _train(options, overrides)


@in_ranks
def distill(options: argparse.Namespace) -> int:
    return _train(options, options.overrides, student_of)


@in_ranks
def finetune(options: argparse.Namespace) -> int:
    return _train(options, options.overrides, successor_of)


def _train(options: argparse.Namespace, overrides: Sequence[str], base_of: Callable[[str], Base] | None = None) -> int:
    """Begin the run that the arguments describe, or go on with it where that is asked for."""
    with here().refusing_together():
        base = None if base_of is None else base_of(options.run)
        config, composed = compose_run(overrides, options.config_dir, cores_of_rank(), base)
        judge_run(config)
    with here().refusing_together():
        check_alike(to_config(config))
    if options.show_config:
        if config.run_dir is None:
            config = replace(config, run_dir=default_run_dir(config, composed.experiment))
        print(yaml.safe_dump(to_config(config), sort_keys=False), end="")
        return 0
    if getattr(options, "or_resume", False):
        if config.run_dir is None:
            raise ConfigError("--or-resume goes on with the run in run_dir; add run_dir=DIR", "run_dir")
        found = RunFolder(config.run_dir)
        if here().from_first(found.config.is_file() and found.code.is_file()):
            return _go_on(found, config, composed, options.quiet)
    return begin(config, composed, options.quiet, dry=getattr(options, "dry_run", False))[0]


def _go_on(folder: RunFolder, config: TrainConfig, composed: Composed, quiet: bool) -> int:
    """Go on with a run that the same command line began."""
    stored, asked = flatten(folder.read_config()), flatten(to_config(config))
    with here().refusing_together():
        for key, source in composed.sources.items():
            if source != DEFAULT and key not in NOT_COMPARED and key in asked and asked[key] != stored.get(key):
                raise ConfigError(
                    f"{folder.path} was begun with {key}={stored.get(key)}, and this asks for {asked[key]}; go on with "
                    f"it as it is by `gaitway resume {folder.shown}`, or choose another run_dir",
                    key,
                )
    if is_over(folder):
        print(f"nothing to do: {folder.path} has come to its end")
        return 0
    limits = [f"until={config.total_steps}"] if config.total_steps > stored["total_steps"] else []
    arguments: dict[str, Any] = {"limits": limits, "checkpoint": "last", "fresh_replay": False, "quiet": quiet}
    return resume(argparse.Namespace(run=str(folder.path), trial=None, **arguments))


def is_over(folder: RunFolder) -> bool:
    """Whether a run was ended by its own rules before its plan, and not by a signal."""
    try:
        facts = Checkpoints(folder.checkpoints, folder.run_id).facts("last")
    except StateFileError:
        return False
    return facts.get("stopped_by") in ("threshold", "patience", "pruned")


def begin(
    config: TrainConfig, composed: Composed, quiet: bool, plan: Plan | None = None, dry: bool = False
) -> tuple[int, Path]:
    """Train a run from its first step, as it was composed; the exit code, and the folder of the run. With `dry` only
    what is known before is said, and nothing is written."""
    ranks, ahead = here(), None
    with contextlib.ExitStack() as stack:
        # all this before the folder is made, so that a mistake leaves nothing behind
        with ranks.refusing_together():
            need_named(config, "that")
            check_ranks(config)
            asked, config = config.device, replace(config, device=device_of_rank(config.device))
            check_memory(config)
            config = pinned(config)
            started = time.perf_counter()
            env = stack.enter_context(build_env(config))
            algorithm = build_algorithm(config, env)
            making_s = time.perf_counter() - started
            pace = Pace(making_s, *check_evaluation(config, env))
            notes: list[str | None] = [init_from(config, algorithm)]
            if isinstance(algorithm, ReplayAlgorithm) and recipe_of(config.algorithm.name).runs(OffPolicyRunner):
                notes.append(replay_memory(algorithm))
            data = build_data(config, algorithm.policy)
            if data is not None:
                notes.append(str(data))
                config = _with_data(config, data)
        for note in notes if not quiet and ranks.is_first else []:
            if note is not None:
                say(note)
        with ranks.refusing_together():
            if ranks.is_first:
                with being(Ranks()):  # the others do not look, so nothing is said to them
                    ahead = look_ahead(config, env, algorithm, pace, dry)
        del algorithm  # its memory, before the run's own is made
        for line in ahead.lines() if ahead is not None and (dry or not quiet) else []:
            say(line)
        if dry:
            for sentence in ahead.warnings if ahead is not None else []:
                print(f"gaitway: warning: {sentence}", file=sys.stderr)
            return 0, Path()
        with ranks.refusing_together():
            if ranks.is_first:
                config, folder = _begin(stack, config, composed.experiment)
                if config.preflight and ahead is not None:
                    folder.write_preflight(ahead.to_dict())
                write_config(folder.config, to_config(replace(config, device=asked)), composed.sources)
                problem = folder.sign()
                if problem is not None:
                    print(f"gaitway: {folder.path} will not count as your own run: {problem}", file=sys.stderr)
        config = replace(config, run_dir=ranks.from_first(config.run_dir))
        assert config.run_dir is not None
        folder = RunFolder(config.run_dir)
        with UserCode({}):
            plan = replace(plan or Plan(), warnings=() if ahead is None else tuple(ahead.warnings))
            return train_in(config, folder, env, quiet, plan), folder.path


def check_ranks(config: TrainConfig) -> None:
    """Refuse algorithms that several processes cannot run together."""
    make = recipe_of(config.algorithm.name).algorithm
    if not here().is_alone and not getattr(make, "trains_in_ranks", True):
        raise ConfigError(
            f"{config.algorithm.name} is not trained by several processes together; run it without torchrun, several "
            "runs at a time by `gaitway sweep`",
            "algorithm.name",
        )


def _begin(stack: contextlib.ExitStack, config: TrainConfig, experiment: str | None) -> tuple[TrainConfig, RunFolder]:
    """The folder of a new run, held by the stack, and the config that names it."""
    while True:
        named = config
        if config.run_dir is None:
            named = replace(config, run_dir=default_run_dir(config, experiment))
        assert named.run_dir is not None
        try:
            return named, stack.enter_context(RunFolder.beginning(named.run_dir))
        except RunFolderTakenError:
            if config.run_dir is not None:
                raise  # else another run took the name in this moment: there is a next one


def _with_data(config: TrainConfig, data: Dataset | Trajectories) -> TrainConfig:
    """The config with the fingerprint of its dataset, and with its whole path: a run can be resumed from anywhere. A
    dataset that is still being recorded has none."""
    path = Path(str(config.data.path))
    place = str(path.resolve()) if path.exists() else config.data.path
    sha256 = data.sha256 if isinstance(data, Dataset) else None
    return replace(config, data=replace(config.data, path=place, sha256=sha256))


@in_ranks
def resume(options: argparse.Namespace) -> int:
    ranks = here()
    with contextlib.ExitStack() as stack:
        with ranks.refusing_together():
            device, limits = device_of(options.limits)
            threads, limits = _threads_of(limits)
            folder = RunFolder.open(options.run)
            settings = [text for text in limits if text.partition("=")[0].partition(".")[0] in NAMES]
            if settings:
                raise ConfigError(
                    f"{settings[0]!r} is refused: resume goes on with a run as it was begun; begin another one with "
                    f"its weights by {anew(folder, settings[0])}"
                )
            if ranks.is_first:  # first of all: what looks left over may be what another process is writing
                stack.enter_context(folder.writing())
        return _resume(stack, folder, device, threads, limits, options)


def _threads_of(limits: list[str]) -> tuple[int | None, list[str]]:
    """The value of `env.num_threads=N`, on which no number depends, None without one; and the other arguments."""
    found = [text.partition("=")[2] for text in limits if text.startswith("env.num_threads=")]
    if found and not (len(found) == 1 and found[0].isascii() and found[0].isdigit() and int(found[0])):
        raise ConfigError(
            f"{' '.join(limits)} says no one number of threads; write env.num_threads=4", "env.num_threads"
        )
    others = [text for text in limits if not text.startswith("env.num_threads=")]
    return (int(found[0]) if found else None), others


def _resume(
    stack: contextlib.ExitStack,
    folder: RunFolder,
    device: str | None,
    threads: int | None,
    limits: list[str],
    options: argparse.Namespace,
) -> int:
    ranks = here()
    with ranks.refusing_together():
        if ranks.is_first:
            remove_leftovers(folder.checkpoints)
    with ranks.refusing_together():
        folder, config = open_run(str(folder.path), device)
        judge_run(config)
        need_named(config, "the rest of it")
        check_ranks(config)
        config = replace(config, device=device_of_rank(config.device))
        if threads is not None:
            config = replace(config, env=replace(config.env, num_threads=threads))
        checkpoints = Checkpoints(folder.checkpoints, folder.run_id)
        checkpoint = options.checkpoint if checkpoints.steps() or options.checkpoint != "last" else None
        done = 0 if checkpoint is None else checkpoints.steps_of(checkpoint)
        if checkpoint is not None:
            check_processes(checkpoints.facts(checkpoint).get("processes"), folder.shown)
            check_rates(config, checkpoints.facts(checkpoint), folder)
        until = _target(done, limits)
        is_done = checkpoint is not None and done >= (until or config.total_steps)
        if until is not None and until > config.total_steps:
            config = replace(config, total_steps=until)  # schedules stretch over the longer run
        plan = Plan(checkpoint, until, options.fresh_replay, trial=getattr(options, "trial", None))
        if plan.fresh_replay and not recipe_of(config.algorithm.name).runs(OffPolicyRunner):
            raise ConfigError(f"--fresh-replay is for off-policy runs; {folder.path} learns by {config.algorithm.name}")
    if is_done:
        if ranks.is_first:
            more = f"train on with `gaitway resume {folder.shown} more=1e6`"
            print(f"nothing to do: {folder.path} is at step {done}; {more}")
        return 0
    with ranks.refusing_together():
        env = stack.enter_context(build_env(config))
        if checkpoint is None:
            init_from(config, build_algorithm(config, env))  # what is gone is said before a line of the folder changes
        elif not config.origin.is_person:
            build_algorithm(config, env)  # what it must not name is refused before a line of the folder changes
    with UserCode({}):
        return train_in(config, folder, env, options.quiet, plan)


def _target(done: int, limits: list[str]) -> int | None:
    """The step to train to, from `until=N` or `more=N` when `done` steps are behind."""
    if not limits:
        return None
    if len(limits) > 1:
        raise ConfigError(f"resume takes one of until=N or more=N, not {' '.join(limits)}")
    name, _, text = limits[0].partition("=")
    number = whole_number(text)
    if name not in ("until", "more") or number < 1:
        raise ConfigError(
            f"{limits[0]!r} is not understood; use until=2e6 (a total) or more=1e6 (beyond the checkpoint)"
        )
    return number if name == "until" else done + number
