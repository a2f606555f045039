"""Where the trials of a sweep run: processes here, tasks of a Ray cluster, jobs of SLURM.

A trial is always the same command on the same plan (`trial.py`), so that its numbers do not depend on who runs it.
Trials here and on Ray end with the driver. Jobs of SLURM outlive it: a driver that goes on with the sweep finds them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gaitway.cli.sweep.cluster import cluster_of
from gaitway.cli.sweep.folder import TRIAL_MODULE, SweepFolder
from gaitway.cli.sweep.plan import SweepConfig, Trial
from gaitway.core.cpus import usable_cpus


class Job(Protocol):
    """A trial that was started."""

    facts: Mapping[str, Any]
    """What tells later whether it is still there."""

    def code(self) -> int | None:
        """Its exit code, None as long as it goes on; negative if a signal ended it."""
        ...

    def stop(self) -> None:
        """Let it save and end."""
        ...

    def kill(self) -> None: ...


class Executor(Protocol):
    """Starts trials."""

    at_once: int
    """Planned trials that it takes at the same time."""

    def start(self, trials: Sequence[Trial]) -> list[Job]: ...

    def close(self) -> None: ...


def cores_of_trial(config: SweepConfig, workers: int) -> int:
    """The cores that a trial may use."""
    if config.executor != "local":
        return cluster_of(config).cpus_per_task
    return max(1, usable_cpus() // workers)


class LocalExecutor:
    """Processes on this machine, as many as there are workers."""

    def __init__(self, folder: SweepFolder, workers: int) -> None:
        self.folder, self.at_once = folder, workers

    def start(self, trials: Sequence[Trial]) -> list[Job]:
        return [LocalJob(self.folder, trial, alone=self.at_once == 1) for trial in trials]

    def close(self) -> None:
        """Nothing is left."""


class LocalJob:
    """A process on this machine, which ends with its parent."""

    def __init__(self, folder: SweepFolder, trial: Trial, alone: bool = False) -> None:
        command = [sys.executable, "-m", TRIAL_MODULE, str(folder.path), str(trial.number)]
        with open(folder.output_of(trial.number), "ab") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # closes with this process, which is how the trial knows
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C comes to the driver alone, which then stops the trials
                env=None if alone else os.environ | {"OMP_NUM_THREADS": "1"},
            )
        self.facts: Mapping[str, Any] = {"pid": self.process.pid}

    def code(self) -> int | None:
        return self.process.poll()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.process.kill()
