"""What a trial asks of a cluster: presets in `conf/cluster/NAME.yaml`, or in a folder of yours, and changes of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gaitway.cli.sweep.plan import SweepConfig
from gaitway.core.config import ConfigError, configuration, from_config, read_config
from gaitway.core.ranges import Count, Positive, WholeNumber

PRESETS = Path(__file__).parents[1] / "conf" / "cluster"


@configuration
class ClusterConfig:
    """What a trial asks of SLURM, or of Ray, which knows cores, GPUs and memory alone."""

    partition: str | None = None
    """Of SLURM; null: its default."""
    cpus_per_task: Count = 1
    """Cores of a trial; `env.num_threads` and `torch_threads`, where they are null, are chosen for so many."""
    gpus_per_task: WholeNumber = 0
    memory_gb: Positive | None = None
    """Null: what the cluster gives."""
    time_limit_min: Count = 60
    """Of one start of a job; a trial that needs longer is requeued and goes on."""
    warning_s: Count = 90
    """Seconds before the limit at which SIGUSR1 tells the trial to save."""
    comment: str | None = None
    array_size: Count = 256
    """Trials of a job array that run at the same time."""
    max_restarts: WholeNumber = 3
    """How often a trial that saved and ended before its plan is requeued."""


def cluster_of(config: SweepConfig) -> ClusterConfig:
    """The settings of a sweep's cluster: those of its preset, with its changes."""
    given = config.cluster
    name = given if isinstance(given, str) else "slurm"
    folders = [Path(config.config_dir).expanduser() / "cluster"] if config.config_dir else []
    found = next((path for path in (folder / f"{name}.yaml" for folder in (*folders, PRESETS)) if path.is_file()), None)
    if found is None:
        known = sorted({path.stem for folder in (*folders, PRESETS) for path in folder.glob("*.yaml")})
        raise ConfigError(f"there is no cluster {name!r}; there are {known}, or write its settings", "cluster")
    changes: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {}
    return from_config(ClusterConfig, read_config(found) | changes, "cluster")
