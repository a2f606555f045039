"""What every runner does around its iterations: clock, log, evaluation, checkpoints, videos, signals, summary.

A runner owns time: it collects, learns and counts. Between two iterations it hands its numbers to an `Upkeep`, which
does with them what does not depend on the algorithm. What the two share of the state lies here too, so that a
checkpoint is the runner's part and this one, side by side.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from gaitway.algorithms.algorithm import Now
from gaitway.core.files import StateFileError
from gaitway.core.ranks import here, shared_stream
from gaitway.core.seeding import fill, global_state, set_global_state
from gaitway.core.signals import GracefulStop
from gaitway.core.workspace import Workspace
from gaitway.envs.trials import Trials
from gaitway.envs.vec_env import Observation, VecEnv
from gaitway.runners.callbacks import Callbacks, Moment
from gaitway.runners.cast import Cast
from gaitway.runners.checkpoint import Attachments, Checkpoints
from gaitway.runners.distributed import check_together, state_of_all, state_of_rank
from gaitway.runners.episodes import EPISODES, EpisodeStatistics
from gaitway.runners.finite import NotFiniteError, write_failure
from gaitway.runners.forecast import Forecast
from gaitway.runners.judge import Judge, MakeEnv
from gaitway.runners.logger import Logger
from gaitway.runners.progress import Progress
from gaitway.runners.readout import stacked
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner_config import RunnerConfig
from gaitway.runners.suspicions import faulty, unbeaten
from gaitway.version import __version__

log = logging.getLogger("gaitway")


@dataclass(frozen=True)
class Snapshot:
    """A state to go on from, and the names of what it needs beside itself (see `Attachments`)."""

    state: dict[str, Any]
    attached: tuple[str, ...] = ()


class Upkeep:
    """The housekeeping of one run. When a checkpoint is due, `snapshot` is asked for the runner's state and `learnt`
    for what the checkpoint says about its parameters."""

    def __init__(
        self,
        config: RunnerConfig,
        env: VecEnv,
        cast: Cast,
        snapshot: Callable[[], Snapshot],
        *,
        learnt: Callable[[], Mapping[str, Any]] = dict,
        folder: RunFolder | None = None,
        make_env: MakeEnv | None = None,
        callbacks: Sequence[Any] = (),
        logger: Logger | None = None,
        progress: Progress | None = None,
        attachments: Attachments | None = None,
    ) -> None:
        self.config, self.progress, self.snapshot = config, progress, snapshot
        self.learnt, self.ranks = learnt, here()
        self.folder = folder if self.ranks.is_first else None
        """Where things are written, by the first of several processes."""
        self.logger = logger or Logger(None if self.folder is None else self.folder.path)
        self.env, self.callbacks = env, Callbacks(callbacks)
        self.device = next(cast.policy.parameters()).device
        self.target = self.planned = config.total_steps
        """Environment steps that schedules stretch over."""
        self.judge = Judge(config, cast, env, make_env if self.ranks.is_first else None)
        self._evaluates = make_env is not None
        self.episodes = EpisodeStatistics(env.num_envs, events=env.spec.events, trials=Trials.of(env.spec))
        self.checkpoints: Checkpoints | None = None
        if folder is not None:
            self.checkpoints = Checkpoints(folder.checkpoints, folder.run_id, config.checkpoints, attachments)
        self.seconds = 0.0
        self.stopped_by: str | None = None
        self.saved_at: int | None = None
        """Environment steps of the newest checkpoint of this state, None if there is none."""
        self.clock = dict.fromkeys(("simulate", "infer", "learn", "log", "evaluate", "film"), 0.0)
        """Seconds spent on each part of a run, for the shares that are shown."""
        self._started = time.perf_counter()
        self._signals = GracefulStop()
        self._forecast: Forecast | None = None
        self._summarised = True
        """Whether summary.json says what was last to be written there."""
        self._told_of_faults = False
        self._iteration = 0
        self.numbers: Mapping[str, float] = {}
        """What the last iteration said."""

    @contextlib.contextmanager
    def training(self, target: int) -> Iterator[None]:
        """Around the iterations of one call of `learn`, which ends at `target` steps: signals, the progress display,
        the clock."""
        self.stopped_by, self.target = None, target
        self._forecast = Forecast(target, self.device)
        self._started = time.perf_counter() - self.seconds
        self._signals = GracefulStop()
        with self._signals, self.progress or contextlib.nullcontext():
            yield

    @contextlib.contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Count the time inside as spent on `part` of the clock."""
        started = time.perf_counter()
        yield
        self.clock[part] += time.perf_counter() - started

    @contextlib.contextmanager
    def keeping_failures(self, rollout: Workspace, first_step: int) -> Iterator[None]:
        """Keep what is needed to see a number that is not finite again."""
        try:
            yield
        except NotFiniteError as error:
            if self.folder is not None:
                path = self.folder.failures / str(first_step)
                write_failure(path, error, rollout, self.folder.checkpoints / "last")
            raise

    def log(
        self, steps: int, iteration: int, numbers: Mapping[str, float], figures: Mapping[str, float] | None = None
    ) -> None:
        """One line of metrics: what the algorithm said, then `figures` of finished episodes and the environment."""
        self.seconds = time.perf_counter() - self._started
        metrics = {name if "/" in name else f"train/{name}": value for name, value in numbers.items()}
        if figures is not None:
            metrics |= figures
            self._warn_of_faults()
        is_written = iteration % self.config.log_interval == 0
        counts = self.env.counted() if is_written else {}  # since the line before this one
        if not self.ranks.is_alone:
            told = self.ranks.exchange([metrics, counts])
            metrics = means_over_ranks([each for each, _ in told])
            counts = {name: sum(each[name] for _, each in told) for name in counts}
        metrics |= counts
        self._iteration, self.numbers = iteration, metrics
        total = sum(self.clock.values()) or 1.0
        shares = {name: seconds / total for name, seconds in self.clock.items()}
        if is_written:
            times = {"seconds": self.seconds, "steps_per_second": steps / self.seconds if self.seconds else 0.0}
            self.logger.log(steps, metrics, times | {f"share_{name}": share for name, share in shares.items()})
        if self.progress is not None:
            self.progress.update(steps, metrics | {f"best/{k}": v for k, v in self.judge.best.items()}, shares)

    def tell(self, event: str, steps: int, iteration: int, numbers: Mapping[str, float] = MappingProxyType({})) -> None:
        """Call the callbacks."""
        if len(self.callbacks):
            now = Now(iteration, steps, min(steps / self.planned, 1.0))
            place = None if self.folder is None else self.folder.path
            moment = Moment(
                now, self.env, numbers, lambda found: self.logger.log(steps, found, {}), self.judge.env, place
            )
            self.callbacks.call(event, moment)

    def between_iterations(self, before: int, steps: int, is_last: bool) -> None:
        """What is due after an iteration that led from step `before` to `steps`."""
        for env in (self.env, self.judge.env):
            if env is not None:
                env.check_workers()  # those of the evaluation are idle for long
        line = None if self._forecast is None else self._forecast.line(steps, self.numbers)
        if line is not None:
            log.info("%s", line)
        is_due = crossed(before, steps, self.config.evaluation.interval) or is_last
        if is_due and len(self.callbacks):
            self.judge.open()  # callbacks may set up what is evaluated next
        self.tell("after_iteration", steps, self._iteration, self.numbers)
        if is_due and self._evaluates:
            self.evaluate(steps)
        if crossed(before, steps, self.config.checkpoints.interval):
            self.save(steps)
        if crossed(before, steps, self.config.video.interval) and self.folder is not None:
            with self.timed("film"):
                self.judge.film(self.folder.videos / f"{steps}.mp4", steps)
        self.seconds = time.perf_counter() - self._started
        if self._signals.requested is not None:
            self.stopped_by = self._signals.requested
        if not self.ranks.is_alone:  # a signal to one of them stops them all
            self.stopped_by = next((said for said in self.ranks.exchange(self.stopped_by) if said is not None), None)
        for _, path in self.judge.finished_films(wait=is_last or self.stopped_by is not None):
            # said at this step, not at the film's own: listeners take no step that lies behind
            self.logger.add_video("video/policy", path, steps)

    def evaluate(self, steps: int) -> None:
        best, before = self.judge.best, self.judge.last.get("steps", 0)
        with self.timed("evaluate"):
            result = self.judge.measure(steps)
        if not self.ranks.is_alone:
            result, judged = self.ranks.from_first([result, self.judge.state_dict()])
            self.judge.load_state_dict(judged)
        if result is None:
            return
        self.logger.log(steps, {f"eval/{name}": value for name, value in result.items()}, {})
        self.tell("after_evaluation", steps, self._iteration, result)
        self.stopped_by = self.judge.verdict(steps < self.target) or self.stopped_by
        self.save(steps)
        if self.judge.best.get("steps") == steps and not self.is_saved(steps):
            log.warning("step %d was the best so far and is not saved; the best that is saved stays the best", steps)
            self.judge.best = best
        if 3 * before < self.planned <= 3 * steps and self.folder is not None:
            self._warn_if_unbeaten(steps)
        self.write_summary(steps)

    def _warn_of_faults(self) -> None:
        sentence = None if self._told_of_faults else faulty(self.episodes.faults, self.episodes.steps, self.env.spec.id)
        if sentence is not None:
            log.warning("%s", sentence)
            self._told_of_faults = True

    def _warn_if_unbeaten(self, steps: int) -> None:
        assert self.folder is not None
        try:
            sentence = unbeaten(self.folder.read_preflight(), self.judge.best, steps, self.judge.lower_is_better)
        except (ValueError, TypeError, KeyError) as error:  # a damaged file ends no run
            log.debug("nothing to compare with: %s", error)
            return
        if sentence is not None:
            log.warning("%s", sentence)

    def save(self, steps: int) -> None:
        """Write a checkpoint unless this state has one. What cannot be written is logged; training goes on."""
        if self.checkpoints is None or self.saved_at == steps:
            return
        snapshot, problem = Snapshot({}), None
        try:
            snapshot = self.snapshot()
        except (OSError, StateFileError) as error:  # what lies beside the checkpoint could not be written
            problem = str(error)
        told = self.ranks.exchange([problem, list(snapshot.attached)])
        problems = [said for said, _ in told if said is not None]
        if problems:
            log.error("no checkpoint at step %d, the older ones are kept: %s", steps, problems[0])
            if self.ranks.is_first:
                self.checkpoints.tidy_attachments()  # the part of it that was
            return
        best, learnt = self.judge.best, self.learnt()
        if not self.ranks.is_alone:
            check_together(learnt["parameters_sha256"])
        facts = {"version": __version__, "stopped_by": self.stopped_by, **learnt}
        facts |= {"best": dict(best), "last": dict(self.judge.last)}
        facts |= {} if self.ranks.is_alone else {"processes": self.ranks.size}
        state, attached = state_of_all(snapshot.state), [name for _, names in told for name in names]
        if self.ranks.from_first(
            self.ranks.is_first and self.checkpoints.save(steps, state, best.get("steps"), attached, facts)
        ):
            self.saved_at = steps
            self.tell("after_checkpoint", steps, self._iteration)

    def is_saved(self, steps: int) -> bool:
        """Whether the state after `steps` is in the run folder (True if there is none to be in)."""
        return self.checkpoints is None or self.saved_at == steps

    def load(self, which: str) -> tuple[dict[str, Any], int]:
        """The state of a checkpoint of this run's folder, and its environment steps."""
        if self.checkpoints is None:
            raise ValueError("this runner has no run folder to resume from; pass folder=RunFolder(...)")
        state, steps = self.checkpoints.load(which)
        return state_of_rank(state, str(self.checkpoints.folder.parent)), steps

    def summary(self, steps: int) -> dict[str, Any]:
        """What summary.json says."""
        return {
            "last": self.judge.last,
            "best": self.judge.best,
            "steps": steps,
            "seconds": round(self.seconds, 3),
            "steps_per_second": round(steps / self.seconds, 1) if self.seconds else 0.0,
            "stopped_by": self.stopped_by,
        }

    def write_summary(self, steps: int) -> dict[str, Any]:
        """Write summary.json. Where that is impossible, it is logged and training goes on."""
        summary = self.summary(steps)
        if self.folder is not None:
            try:
                self.folder.write_summary(summary)
                self._summarised = True
            except (OSError, StateFileError) as error:
                log.error("no summary at step %d: %s", steps, error)
                self._summarised = False
        return summary

    def missing(self, steps: int) -> list[str]:
        """What should be in the run folder after `steps` and could not be written."""
        found = [] if self.is_saved(steps) else [f"the checkpoint of step {steps}"]
        found += [] if self._summarised else ["summary.json"]
        return found + self.logger.missing()

    def state_dict(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "global_streams": global_state(),
            "seconds": self.seconds,
            "episodes": self.episodes.state_dict(),
            "logger": self.logger.position(),
            **({"callbacks": self.callbacks.state_dict()} if len(self.callbacks) else {}),
            **self.judge.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.seconds = state["seconds"]
        set_global_state(state["global_streams"])
        self.episodes.load_state_dict(state["episodes"])
        self.judge.load_state_dict(state)
        self.callbacks.load_state_dict(state.get("callbacks", {}))
        self.logger.truncate(state["logger"])

    def close(self) -> None:
        """Close the evaluation environment and the logger."""
        self.judge.close()
        self.logger.close()


def first_observation(env: VecEnv, config: RunnerConfig) -> Observation:
    """Begin the first episodes, of different ages if the config asks for that."""
    observation = env.reset()
    if config.stagger_timeouts and env.spec.max_episode_steps:
        ages = torch.empty(env.num_envs, dtype=torch.int64)
        env.set_elapsed(fill(ages, shared_stream(config.seed, "stagger"), "random_", 0, env.spec.max_episode_steps))
    return observation


def counted_steps(ws: Workspace, start: int = 0, stop: int | None = None) -> int:
    """Environment steps in the rows `start` to `stop` of a rollout, of all processes together; rows that only reset are
    none."""
    stop = ws.T if stop is None else stop
    if "env/valid" in ws:
        return here().total(int(ws["env/valid"][start:stop].sum()))
    return (stop - start) * ws.B * here().size


def means_over_ranks(told: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Metrics of a run from those of its processes: means over the ones that have them, and how many episodes ended."""
    names = dict.fromkeys(name for each in told for name in each)
    found = {name: [each[name] for each in told if name in each] for name in names}
    return {name: sum(each) / (1 if name == EPISODES else len(each)) for name, each in found.items()}


def crossed(before: int, after: int, interval: int) -> bool:
    """Whether a multiple of `interval` lies in (before, after]; never for 0."""
    return interval > 0 and after // interval > before // interval


def to_numbers(metrics: Mapping[str, Tensor]) -> dict[str, float]:
    """All metrics as Python floats, with one transfer from the device."""
    return dict(zip(metrics, stacked(metrics).tolist(), strict=True))
