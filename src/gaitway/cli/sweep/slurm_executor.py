"""Trials as jobs of SLURM, submitted as an array through submitit.

A job that is told to save, by SIGUSR1 before its time limit or by anybody else, and ends with exit code 75 is put into
the queue again, `max_restarts` times at most, and goes on bit for bit. What became of a job stands in a small file of
the sweep's folder; nothing that submitit pickled is read here. A job that left the queue without a word was cancelled
before it began, and counts as stopped, or ended by SLURM, which is asked why. Jobs outlive the driver: the next one
finds them.
"""

from __future__ import annotations

import getpass
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gaitway.cli.sweep.cluster import ClusterConfig
from gaitway.cli.sweep.executors import Job
from gaitway.cli.sweep.folder import TRIAL_MODULE, SweepFolder
from gaitway.cli.sweep.plan import Trial
from gaitway.core.config import ConfigError
from gaitway.core.files import atomic_write_json
from gaitway.core.signals import EXIT_REQUEUE, first_signal

LOOK_S = 2.0
"""Seconds between two looks at SLURM's queue."""
SETTLE_S = 20.0
"""Seconds after which a job that is in no queue and said nothing counts as gone."""
ENDING = ".ending.json"
FOR_GOOD = ("SIGTERM", "SIGINT")
"""Signals after which a trial is not queued again: somebody has cancelled it."""


class SlurmExecutor:
    """A job array of SLURM."""

    def __init__(self, folder: SweepFolder, cluster: ClusterConfig, workers: int | None) -> None:
        if shutil.which("sbatch") is None:
            raise ConfigError(
                "executor: slurm needs SLURM's sbatch, which this machine does not have; run the sweep where jobs are "
                "submitted, or use executor: local",
                "executor",
            )
        os.environ["SUBMITIT_PREEMPT_SIGNAL"] = "USR1"  # what a trial listens to; submitit asks when it is imported
        try:
            import submitit
        except ImportError as error:
            raise ConfigError(
                'executor: slurm needs submitit, which is not installed; `pip install "gaitway[slurm]"`, or use '
                "executor: local",
                "executor",
            ) from error
        self.folder, self.cluster, self._submitit = folder, cluster, submitit
        self.at_once = workers or sys.maxsize
        self.queue = Queue()

    def start(self, trials: Sequence[Trial]) -> list[Job]:
        """Submit the trials that have no job yet, as one array."""
        there = {trial.number: self.folder.job_of(trial.number) for trial in trials}
        queued = self.queue.states()
        new = [trial for trial in trials if there[trial.number] not in queued]
        for trial in new:
            ending(self.folder, trial.number).unlink(missing_ok=True)
        ids = {trial.number: str(there[trial.number]) for trial in trials} | self._submit(new)
        return [SlurmJob(ids[trial.number], ending(self.folder, trial.number), self.queue) for trial in trials]

    def close(self) -> None:
        """Jobs that are left go on."""

    def _submit(self, trials: Sequence[Trial]) -> dict[int, str]:
        if not trials:
            return {}
        place, cluster = self.folder.path.resolve(), self.cluster
        options: dict[str, Any] = {
            "partition": cluster.partition,
            "cpus_per_task": cluster.cpus_per_task,
            "gpus_per_task": cluster.gpus_per_task or None,
            "mem": None if cluster.memory_gb is None else f"{int(cluster.memory_gb * 1024)}M",
            "time": cluster.time_limit_min,
            "signal_delay_s": cluster.warning_s,
            "comment": cluster.comment,
            "array_parallelism": cluster.array_size,
            "job_name": place.name,
            "ntasks_per_node": 1,
            "additional_parameters": {"requeue": True},
        }
        try:
            executor = self._submitit.SlurmExecutor(folder=place / "slurm")
            executor.update_parameters(**{name: value for name, value in options.items() if value is not None})
            with executor.batch():
                jobs = [executor.submit(run_in_job, str(place), one.number, cluster.max_restarts) for one in trials]
            return {trial.number: str(job.job_id) for trial, job in zip(trials, jobs, strict=True)}
        except (subprocess.CalledProcessError, self._submitit.core.utils.FailedJobError) as error:
            said = str(getattr(error, "stderr", None) or error).strip().splitlines()
            raise ConfigError(f"SLURM does not take the jobs: {said[-1] if said else error}", "cluster") from error


class Queue:
    """What SLURM's queue says, looked up now and then."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._looked = -LOOK_S

    def states(self) -> dict[str, str]:
        """Jobs of this user that are not over, by id."""
        if time.monotonic() - self._looked >= LOOK_S:
            command = ["squeue", "--noheader", "--array", "--user", getpass.getuser(), "--format", "%i %T"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:  # else SLURM does not answer just now: what was so stays so
                self._states = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if line.strip())
            self._looked = time.monotonic()
        return self._states


def state_of(job: str) -> str:
    """What SLURM says of a job that is over, such as CANCELLED, as long as it remembers it; empty if it does not."""
    try:
        done = subprocess.run(["scontrol", "show", "job", job], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    found = re.search(r"\bJobState=(\w+)", done.stdout)
    return found[1] if found else ""


class SlurmJob:
    """A job of SLURM, which lives on without the driver."""

    def __init__(self, job: str, ending: Path, queue: Queue) -> None:
        self.job, self.ending, self.queue = job, ending, queue
        self.facts: Mapping[str, Any] = {"job": job}
        self._seen = time.monotonic()
        self._gone: int | None = None
        self._has_begun = False
        self._said_before = self._said()

    def code(self) -> int | None:
        try:
            return int(json.loads(self.ending.read_text())["code"])
        except (OSError, ValueError, KeyError):  # not yet
            pass
        state = self.queue.states().get(self.job)
        if state is not None:
            self._seen = time.monotonic()
            self._has_begun |= state != "PENDING"
        if self._gone is None and time.monotonic() - self._seen >= SETTLE_S:
            self._gone = self._ended_without_a_word()
        return self._gone

    def _ended_without_a_word(self) -> int:
        state, has_begun = state_of(self.job), self._has_begun or self._said() != self._said_before
        if state == "CANCELLED" or not (state or has_begun):  # SLURM forgets a part of an array that never began
            return EXIT_REQUEUE
        if not state:
            return -signal.SIGKILL
        with open(output_beside(self.ending), "a") as output:
            output.write(f"gaitway: SLURM ended the job and calls it {state}; see what it was given in cluster\n")
        return 1

    def _said(self) -> int:
        """Bytes that trials have said under this number."""
        output = output_beside(self.ending)
        return output.stat().st_size if output.exists() else 0

    def stop(self) -> None:
        subprocess.run(["scancel", "--signal=TERM", self.job], check=False)

    def kill(self) -> None:
        if self.code() is None:
            subprocess.run(["scancel", self.job], check=False)


def ending(folder: SweepFolder, number: int) -> Path:
    """The file in which a job says how its trial ended."""
    return folder.output_of(number).with_suffix(ENDING)


def output_beside(ending: Path) -> Path:
    """The file that holds what a trial said."""
    return ending.with_name(ending.name.replace(ENDING, ".txt"))


def run_in_job(path: str, number: int, max_restarts: int) -> int:
    """What a job does: run the trial, then queue itself again where that is due. Called by submitit."""
    folder = SweepFolder(path)
    with open(folder.output_of(number), "ab") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    code = importlib.import_module(TRIAL_MODULE).run(path, number)  # which imports all commands, this one's too
    restarts = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
    cancelled = first_signal() in FOR_GOOD
    if code == EXIT_REQUEUE and not cancelled and restarts < max_restarts:
        print(f"saved; queued again, restart {restarts + 1} of {max_restarts}", file=sys.stderr, flush=True)
        done = subprocess.run(["scontrol", "requeue", own_id()], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return code  # SLURM ends this job and starts it again later, with nothing said of an end
        print(f"gaitway: SLURM does not queue it again: {done.stderr.strip()}", file=sys.stderr, flush=True)
    atomic_write_json(ending(folder, number), {"code": code, "restarts": restarts, "job": own_id()})
    return code


def own_id() -> str:
    """The id of the job that this process is."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ["SLURM_JOB_ID"]
