"""The commands that only read files: `plot`, `info`, `list experiments`. They load no torch, so that they answer soon;
what needs it (`info --verify`, the other lists) imports it when it is asked for."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from gaitway.cli.arguments import device_alone
from gaitway.cli.console import console
from gaitway.cli.doors import DOORS, motions, options_of, parts_of
from gaitway.cli.presets import list_experiments
from gaitway.core.config import ConfigError, did_you_mean
from gaitway.core.files import FORMAT_VERSION, StateFileError
from gaitway.core.results import told
from gaitway.runners.checkpoint import Checkpoints
from gaitway.runners.run_folder import RunFolder, check_links


def plot(options: argparse.Namespace) -> int:
    """Draw each run, and several of them together; with `--metric` only the metrics that are named."""
    from gaitway.analysis.plots import plot_goal_spaces, plot_metrics, plot_run, plot_runs
    from gaitway.analysis.runs import find_runs, load_run

    folders = find_runs(options.runs)
    for folder in folders:  # pictures are written into them
        check_links(folder, RunFolder(folder).origin())
    runs = [load_run(folder) for folder in folders]
    out = Path(options.out or "comparison.png")
    if options.metric:
        known = sorted({str(name) for run in runs for name in run.metrics})
        for name in options.metric:
            if name not in known:
                raise ConfigError(f"no run has the metric {name!r}{did_you_mean(name, known)}; there are {known}")
        written = plot_metrics(runs, options.metric, out if len(runs) > 1 else options.out)
    else:
        written = [path for run in runs for path in plot_run(run)]
        if len(runs) > 1:
            written.append(plot_runs(runs, out))
            written += plot_goal_spaces(runs, out)
    if not written:
        raise ConfigError(f"{folders[0]} has no numbers to draw: metrics.jsonl is empty or damaged; train it first")
    for path in written:
        console.print(str(path))
    return 0


def info(options: argparse.Namespace) -> int:
    """What a run folder holds, by what its last checkpoint says; `--verify` reads the checkpoint whole."""
    device, folder = device_alone(options.settings), RunFolder.open(options.run)
    config = folder.read_config()
    check_links(folder.path, folder.origin(config))
    checkpoints = Checkpoints(folder.checkpoints, folder.run_id)
    facts, steps = checkpoints.facts("last"), checkpoints.steps_of("last")
    if options.verify or not facts:
        facts = _verified(options, facts)
    elif device is not None:
        raise ConfigError(f"nothing is computed on {device} or elsewhere; add --verify or leave device= out", "device")
    found = {
        "algorithm": config.get("algorithm", {}).get("name"),
        "env": config.get("env", {}).get("id"),
        "steps": steps,
        "parameters_sha256": facts["parameters_sha256"],
        "parameters": facts["parameters"],
        "format_version": FORMAT_VERSION,
        "gaitway_version": facts["version"],
        "best": facts["best"],
        "last": facts["last"],
        "seed": config.get("seed"),
        "total_steps": config.get("total_steps"),
        "run_dir": str(folder.path),
        **({"objects": list(config["objects"])} if config.get("objects") else {}),
        **_style(folder, config),
    }
    if options.json:
        print(json.dumps(found))
        return 0
    for name, value in found.items():
        shown = value
        if name in ("best", "last") and value:
            shown = f"step {value['steps']:,}: {told({k: v for k, v in value.items() if k != 'steps'})}"
        console.print(f"{name:18s} {shown}", soft_wrap=True, markup=False)
    return 0


def _style(folder: RunFolder, config: dict[str, Any]) -> dict[str, str]:
    """What the last numbers of a discriminator say, in words, where a run has one."""
    if not config.get("rewards"):
        return {}
    from gaitway.analysis.runs import load_run
    from gaitway.analysis.style import style_of

    found = style_of(load_run(folder.path))
    return {} if found is None else {"style": found}


def _verified(options: argparse.Namespace, said: dict[str, Any]) -> dict[str, Any]:
    """The facts computed anew from the checkpoint; a StateFileError if it says something else."""
    from gaitway.cli.inspect_run import checkpoint_facts

    facts = checkpoint_facts(options.run, options.settings)
    stored, computed = said.get("parameters_sha256"), facts["parameters_sha256"]
    if None not in (stored, computed) and stored != computed:
        raise StateFileError(
            f"the parameters in the last checkpoint of {options.run} have the fingerprint {computed}, but it says "
            f"{stored}; use another checkpoint"
        )
    if computed is None:  # of a program's objects, which cannot be made here
        facts |= {name: said.get(name) for name in ("parameters_sha256", "parameters")}
    return facts


def list_what(options: argparse.Namespace) -> int:
    rows: list[dict[str, str]]
    if options.name is not None and options.what not in DOORS:
        return _tell_robot(options)
    if options.what in DOORS:
        rows = parts_of(options.what) if options.name is None else options_of(options.what, options.name)
        if not rows and not options.json:
            console.print(f"{options.name} has no options")
            return 0
    elif options.what == "motions":
        rows = motions()
    elif options.what == "experiments":
        rows = [{"id": name, "description": text} for name, text in list_experiments(options.config_dir).items()]
    else:
        from gaitway.cli.inspect_run import list_parts

        rows = list_parts(options.what)
    if options.json:
        print(json.dumps(rows))
        return 0
    table = Table(*rows[0], box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(escape, row.values()))
    console.print(table)
    return 0


def _tell_robot(options: argparse.Namespace) -> int:
    """Masses, joints, limits and gains of one robot."""
    if options.what != "robots":
        raise ConfigError(
            f"one robot or one part of a list can be looked at, and {options.what} are listed; leave {options.name} out"
        )
    from gaitway.cli.inspect_run import robot_report

    report = robot_report(options.name)
    print(json.dumps({"id": options.name, "report": report}) if options.json else report)
    return 0
