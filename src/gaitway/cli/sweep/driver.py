"""Drives the trials of a sweep: hands them to an executor, so many at a time, and keeps what became of each.

What became of a trial stands in its own last checkpoint and in `outcomes.jsonl`; a driver that was killed is replaced
by another one, which goes on with every trial that is not over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from gaitway.cli.sweep.executors import Executor, Job
from gaitway.cli.sweep.folder import OVER, SweepFolder, facts_of, value_of
from gaitway.cli.sweep.plan import Trial
from gaitway.core.signals import EXIT_CODES, EXIT_INTERRUPT, EXIT_REQUEUE, Interrupted
from gaitway.processes.lifeline import how_it_ended

POLL_S = 0.1
PATIENCE_S = 60.0
"""Seconds that trials have to save when the driver is told to stop."""


class Source(Protocol):
    """Where trials come from that are not planned beforehand."""

    def next(self) -> Trial | None: ...
    def tell(self, number: int, state: str, value: float | None) -> None: ...


class Driver:
    """Drives the trials of `waiting`, then those of `source`; `say` gets a line when something happens."""

    def __init__(
        self,
        folder: SweepFolder,
        waiting: list[Trial],
        executor: Executor,
        say: Callable[[str], None],
        source: Source | None,
    ) -> None:
        self.folder, self.waiting, self.executor, self.say, self.source = folder, waiting, executor, say, source
        self.running: dict[int, tuple[Trial, Job]] = {}
        self.states: dict[int, str] = {}

    def run(self) -> int:
        """Run them all; the exit code: 0 all are over, 1 some failed, 75 or 130 stopped by a signal."""
        try:
            while self._fill() or self.running:
                self._collect()
                time.sleep(POLL_S)
        except KeyboardInterrupt as error:
            name = error.args[0] if isinstance(error, Interrupted) else "SIGINT"
            self._stop()
            self.say(f"stopped by {name}; `gaitway sweep --resume {self.folder.shown}` goes on")
            return EXIT_CODES.get(name, EXIT_INTERRUPT)
        finally:
            for _, job in self.running.values():
                job.kill()
            self.executor.close()
        if "stopped" in self.states.values():
            return EXIT_REQUEUE
        return 1 if "failed" in self.states.values() else 0

    def _fill(self) -> bool:
        """Start trials while there is room; whether there are more."""
        room = self.executor.at_once - len(self.running)
        found: list[Trial] = []
        while len(found) < room:
            trial = self.waiting.pop(0) if self.waiting else self.source.next() if self.source else None
            if trial is None:
                break
            found.append(trial)
        for trial, job in zip(found, self.executor.start(found) if found else (), strict=True):
            self.running[trial.number] = (trial, job)
            self.folder.note(trial.number, "running", **job.facts)
        return len(found) == room

    def _collect(self) -> None:
        """Take in the trials that have ended."""
        for number, (trial, job) in list(self.running.items()):
            code = job.code()
            if code is not None:
                del self.running[number]
                self._over(trial, code)

    def _over(self, trial: Trial, code: int) -> None:
        run = self.folder.run(trial.number)
        facts, steps = facts_of(run)
        value, sentence = value_of(run, facts), ""
        state = "pruned" if facts.get("stopped_by") == "pruned" else "done"
        if code in (EXIT_REQUEUE, EXIT_INTERRUPT):
            state = "stopped"
        elif code != 0:
            state, sentence = "failed", sentence_of(self.folder.output_of(trial.number), code)
        self.states[trial.number] = state
        self.folder.note(trial.number, state, value=value, sentence=sentence)
        if self.source is not None and state in OVER:
            self.source.tell(trial.number, state, value)
        said = sentence or ("" if value is None else f"{value:.4g} at best, ") + f"{steps or 0:,} steps"
        self.say(f"trial {trial.number} ({described(trial)}) {state}: {said}")

    def _stop(self) -> None:
        """Let all trials save and end; those that do not are killed."""
        for _, job in self.running.values():
            job.stop()
        deadline = time.monotonic() + PATIENCE_S
        while self.running and time.monotonic() < deadline:
            self._collect()
            time.sleep(POLL_S)


def described(trial: Trial) -> str:
    """What a trial tries, in a few words."""
    parts = [f"{key.rpartition('.')[2]}={_short(value)}" for key, value in trial.parameters.items()]
    parts += [] if trial.seed is None else [f"seed={trial.seed}"]
    return ", ".join(parts) or "as the base"


def sentence_of(output: Path, code: int) -> str:
    """Why a trial failed: what it said last."""
    if code < 0:
        return f"it {how_it_ended(code)}"
    lines = [line.strip() for line in output.read_text(errors="replace").splitlines() if line.strip()]
    said = [line.removeprefix("gaitway: ") for line in lines if line.startswith("gaitway: ")]
    return (said or lines or [f"it ended with exit code {code}"])[-1]


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
