"""The process of one trial: begins its run or goes on with it, and ends when the driver does.

    python -m gaitway.cli.sweep.trial SWEEP NUMBER

Standard input is a pipe that the driver holds open; when it closes, the driver is gone, however that happened.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import threading
from typing import Any

from gaitway.cli.sweep.folder import SweepFolder

GRACE_S = 8.0
"""Seconds to finish an iteration and save, once the driver is gone."""


def main(path: str, number: int) -> int:
    threading.Thread(target=_end_with_driver, daemon=True).start()
    return run(path, number)


def run(path: str, number: int) -> int:
    """Run a trial to its end, whoever asks for it; the exit code."""
    from gaitway.cli.main import run_command

    options = argparse.Namespace(command="run_trial", sweep=path, number=number, trust=[])
    return run_command(options, run_trial, ("SIGTERM", "SIGUSR1", "SIGHUP", "SIGINT"))


def run_trial(options: argparse.Namespace) -> int:
    """Train the run of a trial to its end; the exit code is that of `gaitway train`."""
    from gaitway.cli.commands import begin, is_over, resume
    from gaitway.cli.compose import Composed
    from gaitway.cli.train_config import parse
    from gaitway.cli.training import Plan

    folder = SweepFolder.open(options.sweep)
    plan = folder.read_plan(options.number)
    run, trial = folder.run(options.number), _trial(folder, options.number)
    if run.path.is_dir() and not run.has_trained:
        shutil.rmtree(run.path)  # nothing is lost: it was killed before its first checkpoint
    if not run.path.is_dir():
        settings = plan["config"] | {"run_dir": str(run.path)}
        composed = Composed(settings, plan["sources"], plan["experiment"])
        return begin(parse(settings), composed, quiet=True, plan=Plan(trial=trial))[0]
    if is_over(run):
        return 0
    arguments: dict[str, Any] = {"limits": [], "checkpoint": "last", "fresh_replay": False, "quiet": True}
    return resume(argparse.Namespace(run=str(run.path), trial=trial, **arguments))


def _trial(folder: SweepFolder, number: int) -> Any:
    """What evaluations are reported to, if anything."""
    config = folder.config().optuna
    if config is None:
        return None
    from gaitway.cli.sweep.search import TrialOfSearch

    return TrialOfSearch(config, folder.journal, number)


def _end_with_driver() -> None:
    while os.read(0, 1):
        pass
    signal.setitimer(signal.ITIMER_REAL, GRACE_S)  # the system ends it then, even while Python is already leaving
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
