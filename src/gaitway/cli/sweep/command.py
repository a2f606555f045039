"""`gaitway sweep`, and the short forms of it that `train` has: many runs of one command, on so many processes.

What trains is imported when a sweep begins, so that `gaitway sweep status` answers at once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from gaitway.cli.console import console
from gaitway.cli.sweep.cluster import cluster_of
from gaitway.cli.sweep.driver import Driver, described
from gaitway.cli.sweep.executors import Executor, LocalExecutor, cores_of_trial
from gaitway.cli.sweep.folder import OVER, SWEEPS, Record, SweepFolder
from gaitway.cli.sweep.plan import SweepConfig, Trial, planned_trials, read_sweep, seeds_of
from gaitway.cli.sweep.search import Search
from gaitway.core.config import ConfigError, from_config
from gaitway.core.trust import run_folder_around


def sweep(options: argparse.Namespace) -> int:
    what = list(options.what)
    if what[:1] == ["status"] and len(what) == 2:
        return status(what[1], options.json)
    if options.resume is not None:
        if what:
            raise ConfigError(f"--resume goes on with {options.resume}, as it was begun; leave {what[0]} out")
        return go_on(options.resume, options.workers, options.retry_failed)
    if len(what) != 1:
        raise ConfigError("name one sweep file, or a sweep to go on with by --resume DIR, or `status DIR`")
    if options.retry_failed:
        raise ConfigError("--retry-failed is for a sweep that was begun; add --resume DIR")
    around = run_folder_around(os.path.dirname(os.path.realpath(what[0])))
    if around is not None:
        raise ConfigError(f"{what[0]} lies in the run folder {around}; copy it out, if you trust what it names")
    config = read_sweep(what[0])
    return begin(config, options.out or SWEEPS / (config.name or Path(what[0]).stem), options.workers)


def short_form(options: argparse.Namespace, overrides: Sequence[str]) -> int:
    """`train --seeds` and `train -m`: a sweep over seeds and over keys with several values."""
    base, grid = split(overrides) if options.multirun else (list(overrides), {})
    places = [text.partition("=")[2] for text in base if text.startswith("run_dir=")]
    base = [text for text in base if not text.startswith("run_dir=")]
    content = {"base": base, "grid": grid, "seeds": options.seeds, "config_dir": options.config_dir}
    config = from_config(SweepConfig, content)
    if not grid and config.seeds is None:
        raise ConfigError("-m tries several values of a key; write one as key=a,b, or leave -m out")
    return begin(config, places[0] if places else None, options.workers)


def split(overrides: Sequence[str]) -> tuple[list[str], dict[str, list[Any]]]:
    """Arguments with one value, and those with several: `key=a,b`, `key=choice(a,b)`, `key=range(1,5)`."""
    from gaitway.cli.compose import several_values

    base, grid = [], {}
    for text in overrides:
        key, values = several_values(text)
        if values is None:
            base.append(text)
        else:
            grid[key] = values
    return base, grid


def begin(config: SweepConfig, place: str | Path | None, workers: int | None) -> int:
    """Plan all trials, then run them; a mistake in any of them is refused before the first one begins."""
    workers = workers or config.workers
    search = Search(config.optuna, Path()) if config.optuna is not None else None  # refuses before a folder is made
    trials = planned_trials(config)
    plans = {trial.number: plan_of(config, trial, workers) for trial in trials or [_probe(config)]}
    first = next(iter(plans.values()))
    is_cost = check_metric(first, is_searched=search is not None)
    place = place or _free_name(first)
    executor = make_executor(config, SweepFolder(place), workers)
    folder = SweepFolder.create(place, config)
    with folder.driving():
        for trial in trials:
            folder.write_plan(trial, plans[trial.number])
        return _drive(folder, config, trials, workers, search, executor, is_cost)


def go_on(path: str, workers: int | None, retry_failed: bool) -> int:
    """Run what is left of a sweep."""
    folder = SweepFolder.open(path)
    with folder.driving():
        config = folder.config()
        over = OVER if not retry_failed else tuple(state for state in OVER if state != "failed")
        records = folder.records()
        missing = [trial for trial in planned_trials(config) if trial.number >= len(records)]
        for trial in missing:  # the driver was killed while it planned
            folder.write_plan(trial, plan_of(config, trial, workers or config.workers))
        left = [record.trial for record in records if record.state not in over] + missing
        search = Search(config.optuna, folder.journal) if config.optuna is not None else None
        is_cost = search is not None and check_metric(plan_of(config, _probe(config), workers or config.workers), True)
        executor = make_executor(config, folder, workers or config.workers)
        return _drive(folder, config, left, workers or config.workers, search, executor, is_cost)


def _drive(
    folder: SweepFolder,
    config: SweepConfig,
    trials: list[Trial],
    workers: int,
    search: Search | None,
    executor: Executor,
    is_cost: bool,
) -> int:
    source = None
    if search is not None:
        search.journal = folder.journal
        search.open(is_cost)
        source = Searched(folder, config, search, workers)
        for record in folder.records():  # what a driver that was killed did not tell
            if record.state in OVER:
                source.tell(record.trial.number, record.state, record.value)
    total = len(trials) if config.optuna is None else config.optuna.trials
    where = f"{workers} at a time" if config.executor == "local" else f"by {config.executor}"
    say(f"{folder.path}: {total} trials, {where}")
    code = Driver(folder, trials, executor, say, source).run()
    say(_summary(folder))
    return code


def make_executor(config: SweepConfig, folder: SweepFolder, workers: int) -> Executor:
    """The executor of a sweep; a sentence where this machine lacks it."""
    searched = workers if config.optuna is not None else None  # a search learns from trials that are over
    if config.executor == "ray":
        from gaitway.cli.sweep.ray_executor import RayExecutor

        return RayExecutor(folder, cluster_of(config), searched)
    if config.executor == "slurm":
        from gaitway.cli.sweep.slurm_executor import SlurmExecutor

        return SlurmExecutor(folder, cluster_of(config), searched)
    return LocalExecutor(folder, workers)


class Searched:
    """Trials that a search asks for."""

    def __init__(self, folder: SweepFolder, config: SweepConfig, search: Search, workers: int) -> None:
        self.folder, self.config, self.search, self.workers = folder, config, search, workers
        self.made = len(folder.trials())

    def next(self) -> Trial | None:
        assert self.config.optuna is not None
        if self.made >= self.config.optuna.trials:
            return None
        trial = self.search.ask(_seed(self.config))
        self.folder.write_plan(trial, plan_of(self.config, trial, self.workers))
        self.made += 1
        return trial

    def tell(self, number: int, state: str, value: float | None) -> None:
        self.search.tell(number, state, value)


def plan_of(config: SweepConfig, trial: Trial, workers: int) -> dict[str, Any]:
    """How a trial is run: its effective configuration, resolved, for its share of the cores."""
    from gaitway.cli.checks import judge_run
    from gaitway.cli.compose_run import compose_run
    from gaitway.core.config import to_config

    metric = config.optuna.metric if config.optuna is not None else None
    arguments = [*config.settings, *([f"evaluation.metric={metric}"] if metric else []), *trial.arguments]
    made, composed = compose_run(arguments, config.config_dir, cores_of_trial(config, workers))
    judge_run(made)
    return {
        "arguments": arguments,
        "config": to_config(made),
        "sources": composed.sources,
        "experiment": composed.experiment,
    }


def check_metric(plan: Mapping[str, Any], is_searched: bool) -> bool:
    """Refuse a metric that the evaluation will not have, or none where trials are searched by it; whether it is a
    cost."""
    from gaitway.cli.build import build_env
    from gaitway.cli.train_config import parse
    from gaitway.runners.evaluate import result_names

    config = parse(plan["config"])
    metric = config.evaluation.metric
    if metric is None:
        if is_searched:
            raise ConfigError(
                "a search needs a metric, and evaluation.metric is null; name one as optuna.metric, such as return",
                "optuna.metric",
            )
        return False
    with build_env(config, "evaluation", 1) as env:
        known, costs = result_names(env.spec, config.evaluation), env.spec.costs
    if metric not in known:
        raise ConfigError(f"the metric is {metric!r}; the evaluation will have {known}")
    return metric in costs


def status(path: str, as_json: bool) -> int:
    """A table of the trials and where they stand."""
    folder = SweepFolder.open(path)
    records = folder.records()
    if as_json:
        rows = [{"number": one.trial.number, "parameters": one.trial.parameters, "seed": one.trial.seed,
                 "state": one.state, "steps": one.steps, "value": one.value, "sentence": one.sentence,
                 "run": str(folder.run(one.trial.number).path)} for one in records]  # fmt: skip
        print(json.dumps(rows))
        return 0
    table = Table("trial", "what", "state", "steps", "best", "", box=None, pad_edge=False)
    for one in records:
        steps, value = (
            f"{one.steps:,}" if one.steps is not None else "",
            "" if one.value is None else f"{one.value:.4g}",
        )
        table.add_row(str(one.trial.number), described(one.trial), one.state, steps, value, one.sentence)
    console.print(table)
    console.print(_summary(folder, records), soft_wrap=True, markup=False)
    return 0


def best_of(records: Sequence[Record]) -> Record:
    """The first trial with the parameters whose runs are best on average over their seeds."""
    done = [record for record in records if record.state == "done"]
    groups: dict[str, list[Record]] = {}
    for record in done:
        if record.value is not None:
            groups.setdefault(json.dumps(record.trial.parameters, sort_keys=True), []).append(record)
    if done and not groups:
        raise ConfigError("no trial of this sweep has a value by evaluation.metric; name one by its number, DIR:3")
    if not groups:
        raise ConfigError("no trial of this sweep is done yet; name one by its number, DIR:3, or wait")
    most = max(len(members) for members in groups.values())  # parameters of which a seed failed do not compete
    complete = [members for members in groups.values() if len(members) == most]
    return max(complete, key=lambda members: statistics.fmean(one.score or 0.0 for one in members))[0]


def from_trial(text: str, overrides: Sequence[str]) -> list[str]:
    """The arguments of `train` for the configuration of a trial, `DIR`, `DIR:best` or `DIR:N`, with changes."""
    place, _, which = text.rpartition(":")
    if not place or not (which == "best" or which.isdecimal()):
        place, which = text, "best"
    folder = SweepFolder.open(place)
    records = {record.trial.number: record for record in folder.records()}
    if which != "best" and int(which) not in records:
        raise ConfigError(f"{place} has no trial {which}; it has 0 to {max(records, default=0)}")
    chosen = best_of(list(records.values())) if which == "best" else records[int(which)]
    run = folder.run(chosen.trial.number)
    if not run.config.is_file():
        raise ConfigError(f"trial {chosen.trial.number} of {place} has not begun; choose another one")
    if any(override.startswith(("config=", "experiment=")) for override in overrides):
        raise ConfigError("--from-trial says where the configuration comes from; leave config= and experiment= out")
    place_given = any(override.startswith("run_dir=") for override in overrides)
    return [f"config={run.config}", *([] if place_given else ["run_dir=null"]), *overrides]


def say(text: str) -> None:
    console.print(text, soft_wrap=True, markup=False)
    console.file.flush()


def _probe(config: SweepConfig) -> Trial:
    """A trial to check the configuration with, where the first one is not known yet."""
    import numpy as np

    from gaitway.cli.sweep.plan import Span

    generator = np.random.default_rng(0)
    drawn = {key: Span.of(key, spec).draw(generator) for key, spec in config.searched.items()}
    return Trial(0, drawn, _seed(config))


def _seed(config: SweepConfig) -> int | None:
    """The one seed of a search."""
    seeds = seeds_of(config.seeds)
    return None if seeds is None else seeds[0]


def _free_name(plan: Mapping[str, Any]) -> Path:
    """A folder for a sweep without a name: after its preset or environment, with a number if that is taken."""
    stem = plan["experiment"] or str(plan["config"]["env"]["id"]).replace("/", "_").replace(":", "_")
    candidate, number = SWEEPS / stem, 1
    while candidate.exists():
        number += 1
        candidate = SWEEPS / f"{stem}_{number}"
    return candidate


def _summary(folder: SweepFolder, records: Sequence[Record] | None = None) -> str:
    records = folder.records() if records is None else records
    counts: dict[str, int] = {}
    for record in records:
        counts[record.state] = counts.get(record.state, 0) + 1
    lines = [", ".join(f"{number} {state}" for state, number in counts.items())]
    if any(record.state == "done" and record.value is not None for record in records):
        best = best_of(records)
        lines.append(
            f"best: trial {best.trial.number} ({described(best.trial)}), {folder.run(best.trial.number).shown}"
        )
    if counts.get("failed"):
        lines.append(f"`gaitway sweep --resume {folder.shown} --retry-failed` tries failed ones again")
    return "\n".join(lines)
