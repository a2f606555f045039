"""Trials as tasks of a Ray cluster: the one that `ray.init` finds, or one that is started here.

A task starts the process of a trial and waits for it. The sweep's folder must be reachable by all machines.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from gaitway.cli.sweep.cluster import ClusterConfig
from gaitway.cli.sweep.executors import Job, LocalJob
from gaitway.cli.sweep.folder import SweepFolder
from gaitway.cli.sweep.plan import Trial
from gaitway.core.config import ConfigError
from gaitway.core.signals import EXIT_REQUEUE

POLL_S = 0.1
PATIENCE_S = 50.0
"""Seconds that a trial has to save when its task is cancelled."""


class RayExecutor:
    """Tasks of a Ray cluster, which decides by their resources when each begins."""

    def __init__(self, folder: SweepFolder, cluster: ClusterConfig, workers: int | None) -> None:
        try:
            from gaitway.processes.ray_workers import ensure_cluster
        except ImportError as error:
            raise ConfigError(
                'executor: ray needs Ray, which is not installed; `pip install "gaitway[ray]"`, or use executor: local',
                "executor",
            ) from error
        ensure_cluster()
        import ray

        self.folder, self.at_once = folder, workers or cluster.array_size
        options: dict[str, Any] = {"num_cpus": cluster.cpus_per_task, "max_retries": 0}
        options |= {"num_gpus": cluster.gpus_per_task} if cluster.gpus_per_task else {}
        options |= {"memory": int(cluster.memory_gb * 2**30)} if cluster.memory_gb else {}
        remote: Any = ray.remote  # whose type knows only some of its options
        self._run = remote(**options)(run_in_task)

    def start(self, trials: Sequence[Trial]) -> list[Job]:
        place = str(self.folder.path.resolve())
        return [RayJob(self._run.remote(place, trial.number)) for trial in trials]

    def close(self) -> None:
        import ray

        ray.shutdown()


class RayJob:
    """A task, which ends with the driver."""

    def __init__(self, task: Any) -> None:
        self.task = task
        self.facts: Mapping[str, Any] = {"driver": os.getpid()}

    def code(self) -> int | None:
        import ray
        from ray.exceptions import RayError, TaskCancelledError

        if not ray.wait([self.task], timeout=0)[0]:
            return None
        try:
            return int(ray.get(self.task))
        except TaskCancelledError:
            return EXIT_REQUEUE
        except RayError:
            return -9  # its worker or its machine is gone

    def stop(self) -> None:
        import ray

        ray.cancel(self.task)

    def kill(self) -> None:
        import ray

        ray.cancel(self.task, force=True)


def run_in_task(path: str, number: int) -> int:
    """Start the process of a trial and wait for it; its exit code. A task that is cancelled lets it save."""
    job = LocalJob(SweepFolder(path), Trial(number, {}, None))
    try:
        while (code := job.code()) is None:
            time.sleep(POLL_S)
    except BaseException:
        job.stop()
        deadline = time.monotonic() + PATIENCE_S
        while job.code() is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
        job.kill()
        raise
    return code
