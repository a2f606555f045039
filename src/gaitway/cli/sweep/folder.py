"""The folder of a sweep: what is tried, a run folder per trial, and what became of each.

sweep.yaml      what was asked for            outcomes.jsonl  a line per trial that is over
plans/NNNN.json a trial's configuration       output/NNNN.txt what its process said
NNNN/           its run folder                optuna.journal  what Optuna knows
slurm/          what submitit keeps of jobs

Plans and the sweep itself are fingerprinted like runs, because going on with them imports what they name. Nothing here
needs torch, so that `gaitway sweep status` answers at once.
"""

from __future__ import annotations

import getpass
import json
import os
import shlex
import subprocess
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gaitway.cli.sweep.plan import SweepConfig, Trial
from gaitway.core.config import ConfigError, from_config, read_config, to_config
from gaitway.core.files import StateFileError, atomic_write_json, atomic_write_text
from gaitway.core.locks import lock_file
from gaitway.core.results import costs_of
from gaitway.core.run_names import nearest_runs
from gaitway.core.signature import KeyFileError, same_signature, signature_of
from gaitway.runners.checkpoint import Checkpoints
from gaitway.runners.json_lines import JsonLines
from gaitway.runners.run_folder import LOCK, RunFolder, RunFolderError

SWEEPS = Path("runs") / "sweeps"
DIGITS = 4
OVER = ("done", "pruned", "failed")
TRIAL_MODULE = "gaitway.cli.sweep.trial"
"""What the process of a trial runs."""


@dataclass(frozen=True)
class Record:
    """A trial and what is known of it."""

    trial: Trial
    state: str
    """waiting, running, stopped, done, pruned or failed."""
    steps: int | None
    value: float | None
    """The best evaluation so far, by the metric of the run."""
    sentence: str = ""
    """Why it failed."""
    is_cost: bool = False
    """Whether less of that metric is better."""

    @property
    def score(self) -> float | None:
        """The value, or its negative of a cost: more is better."""
        return -self.value if self.is_cost and self.value is not None else self.value


class SweepFolder:
    """The paths of a sweep and its small files."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(os.path.expanduser(path))
        self.file = self.path / "sweep.yaml"
        self.fingerprint = self.path / "fingerprint.json"
        self.plans = self.path / "plans"
        self.output = self.path / "output"
        self.journal = self.path / "optuna.journal"
        self.outcomes = JsonLines(self.path / "outcomes.jsonl")

    @classmethod
    def create(cls, path: str | Path, config: SweepConfig) -> SweepFolder:
        """A new sweep; its folder may exist if it is empty."""
        folder = cls(path)
        if folder.file.is_file():
            raise RunFolderError(
                f"{folder.path} holds a sweep already; go on with it by `gaitway sweep --resume {folder.shown}`, or "
                "give the new one another name"
            )
        if folder.path.exists() and (not folder.path.is_dir() or any(folder.path.iterdir())):
            raise RunFolderError(f"{folder.path} is not empty and not a sweep; give the sweep another name")
        folder.plans.mkdir(parents=True)
        folder.output.mkdir()
        content = to_config(config)
        atomic_write_text(folder.file, yaml.safe_dump(content, sort_keys=False))
        with suppress(KeyFileError):  # then it cannot be gone on with, which is said when somebody tries
            atomic_write_json(folder.fingerprint, {"fingerprint": signature_of(content, create=True)})
        return folder

    @classmethod
    def open(cls, path: str | Path) -> SweepFolder:
        """An existing sweep."""
        folder = cls(path)
        if not folder.file.is_file():
            what = "is the folder of a run" if RunFolder(folder.path).config.is_file() else "holds no sweep.yaml"
            what = what if folder.path.exists() else f"is not there{nearest_runs(folder.path, mark='sweep.yaml')}"
            raise RunFolderError(f"{path} {what}; give the folder of a sweep, such as {SWEEPS}/NAME")
        return folder

    def config(self) -> SweepConfig:
        """What was asked for, if nobody has changed it since."""
        content = read_config(self.file)
        try:
            stored = json.loads(self.fingerprint.read_text()).get("fingerprint")
            fits = same_signature(signature_of(content), stored)
        except (OSError, ValueError, AttributeError):
            fits = False
        if not fits:
            raise ConfigError(
                f"{self.path} was not made here, or its sweep.yaml was changed, and going on might import what a "
                f"stranger wrote; look at it and begin anew by `gaitway sweep {shlex.quote(str(self.file))} --out DIR`"
            )
        return from_config(SweepConfig, content)

    @property
    def shown(self) -> str:
        """The path as a shell takes it."""
        return shlex.quote(str(self.path))

    def run(self, number: int) -> RunFolder:
        return RunFolder(self.path / f"{number:0{DIGITS}}")

    def output_of(self, number: int) -> Path:
        return self.output / f"{number:0{DIGITS}}.txt"

    def write_plan(self, trial: Trial, content: Mapping[str, Any]) -> None:
        """Keep how a trial is to be run."""
        plan = {"number": trial.number, "parameters": trial.parameters, "seed": trial.seed, **content}
        with suppress(KeyFileError):
            plan["fingerprint"] = signature_of(plan, create=True)
        atomic_write_text(self.plans / f"{trial.number:0{DIGITS}}.json", json.dumps(plan, indent=1) + "\n")

    def read_plan(self, number: int) -> dict[str, Any]:
        """How a trial is to be run, if nobody has changed it since."""
        path = self.plans / f"{number:0{DIGITS}}.json"
        try:
            plan = json.loads(path.read_text(encoding="utf-8"))
            stored = plan.pop("fingerprint", None)
            fits = same_signature(signature_of(plan), stored)
        except (OSError, ValueError, AttributeError) as error:
            raise StateFileError(f"{path} cannot be read ({error}); begin the sweep anew") from error
        if not fits:
            raise ConfigError(f"{path} was not made here, or was changed; begin the sweep anew")
        return plan

    def trials(self) -> list[Trial]:
        """The trials that have a plan, by number."""
        found = []
        for path in sorted(self.plans.glob("[0-9]*.json")):
            plan = json.loads(path.read_text(encoding="utf-8"))
            found.append(Trial(plan["number"], plan["parameters"], plan["seed"]))
        return found

    def note(self, number: int, state: str, **more: Any) -> None:
        """Keep what became of a trial: `value`, `sentence`, or who runs it (`pid`, `driver` or `job`)."""
        self.outcomes.append({"number": number, "state": state, **more})
        self.outcomes.sync()

    def job_of(self, number: int) -> str | None:
        """The job of SLURM that was last given a trial."""
        job = self._outcomes().get(number, {}).get("job")
        return job if isinstance(job, str) else None

    def records(self) -> list[Record]:
        """All trials and where they stand."""
        outcomes = self._outcomes()
        queued = _queued() if any("job" in outcome for outcome in outcomes.values()) else frozenset()
        return [self._record(trial, outcomes.get(trial.number, {}), queued) for trial in self.trials()]

    def _outcomes(self) -> dict[int, dict[str, Any]]:
        """What was last noted of each trial."""
        outcomes: dict[int, dict[str, Any]] = {}
        if self.outcomes.exists():
            for line in self.outcomes.path.read_text(encoding="utf-8").splitlines():
                with suppress(ValueError, KeyError, TypeError):
                    outcome = json.loads(line)
                    outcomes[int(outcome["number"])] = outcome
        return outcomes

    def _record(self, trial: Trial, outcome: Mapping[str, Any], queued: Container[str]) -> Record:
        run = self.run(trial.number)
        facts, steps = facts_of(run)
        state = str(outcome.get("state", ""))
        if state not in OVER:
            begun = "stopped" if run.path.is_dir() else "waiting"
            alive = _is_alive(outcome.get("pid"), TRIAL_MODULE) or _is_alive(outcome.get("driver"), "gaitway")
            state = "running" if state == "running" and (alive or outcome.get("job") in queued) else begun
        value, sentence = value_of(run, facts), str(outcome.get("sentence") or "")
        return Record(trial, state, steps, value, sentence, is_cost=value is not None and is_cost(run))

    @contextmanager
    def driving(self) -> Iterator[None]:
        """Hold the sweep, so that a second driver cannot start its trials at the same time."""
        try:
            lock = lock_file(self.path / LOCK)
        except BlockingIOError as error:
            raise RunFolderError(
                f"{self.path} is being driven by another process; wait for it or stop it, `gaitway sweep status "
                f"{self.shown}` shows how far it is"
            ) from error
        with lock:
            yield


def facts_of(run: RunFolder) -> tuple[dict[str, Any], int | None]:
    """What the last checkpoint of a run says, and its steps; nothing where there is none."""
    with suppress(StateFileError, ValueError, OSError):
        checkpoints = Checkpoints(run.checkpoints, run.run_id)
        return checkpoints.facts("last"), checkpoints.steps_of("last")
    return {}, None


def value_of(run: RunFolder, facts: Mapping[str, Any]) -> float | None:
    """The best evaluation of a run, by its own metric."""
    best = facts.get("best") or {}
    with suppress(ConfigError, AttributeError):
        found = best.get(_metric_of(run))
        return float(found) if isinstance(found, int | float) else None
    return None


def is_cost(run: RunFolder) -> bool:
    """Whether less of a run's own metric is better, as its contract says."""
    with suppress(ConfigError, AttributeError, OSError, ValueError):
        contract = json.loads(run.contract.read_text(encoding="utf-8"))
        return _metric_of(run) in costs_of(contract.get("facts"))
    return False


def _metric_of(run: RunFolder) -> Any:
    return run.read_config().get("evaluation", {}).get("metric", "return")


def _queued() -> frozenset[str]:
    """Jobs of this user that SLURM has not ended; none where there is no SLURM."""
    command = ["squeue", "--noheader", "--array", "--user", getpass.getuser(), "--format", "%i"]
    with suppress(OSError, subprocess.SubprocessError):
        return frozenset(subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.split())
    return frozenset()


def _is_alive(pid: Any, what: str) -> bool:
    """Whether there is a process with this number that runs `what`, and no remains of one; locks are not tried, because
    that would take them for a moment."""
    try:
        if os.path.exists("/proc/self/cmdline"):
            return what.encode() in Path(f"/proc/{int(pid)}/cmdline").read_bytes()
        os.kill(int(pid), 0)
    except PermissionError:
        return True
    except (OSError, TypeError, ValueError):
        return False
    return True
