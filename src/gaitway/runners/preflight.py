"""What is known of a run before it begins: room, duration, and the returns of doing nothing and of doing anything.

All of it is measured on environments and learners that are thrown away, so that the run has the same numbers without
it. It takes at most `LIMIT_S` seconds, and at most `SHARE` of the run: how long the run will take is estimated from
below, better and better, and what would take more than its share of that is left out and named.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from gaitway.core.seeding import global_state, set_global_state
from gaitway.envs.spec import EnvSpec
from gaitway.envs.trials import INSTANCES, Trials
from gaitway.envs.vec_env import VecEnv
from gaitway.runners.baselines import OutOfTimeError, Score, baseline_instances, play_baselines
from gaitway.runners.capacity import in_words
from gaitway.runners.forecast import duration_in_words
from gaitway.runners.judge import MakeEnv
from gaitway.runners.runner import Runner
from gaitway.runners.runner_config import RunnerConfig
from gaitway.runners.suspicions import warnings_of

log = logging.getLogger("gaitway")

LIMIT_S = 10.0
SHARE = 0.02
BATCH_STEP_S = 1e-4
"""Seconds that acting and bookkeeping take at least, for a step of all instances."""
SAFETY = 0.7
"""How much of a duration counts that was extrapolated to more instances."""
PROBED_STEPS = 4
RETURNS = "the returns of zero and random actions"
DURATION = "the duration, which is said once training has begun"
REHEARSED_S = 0.5
"""Seconds of learning that a duration stands on."""


@dataclass(frozen=True)
class Pace:
    """What was measured on the way, while the parts of a run were made."""

    making_s: float
    """Seconds to make environment and learner."""
    twin_s: float
    """Seconds to make an environment of one instance."""
    step_s: float
    """Seconds of a step of one instance."""
    learning_s: float = 0.0
    """Seconds that all updates of the run take at least."""


@dataclass
class Report:
    """What `preflight.json` says."""

    metric: str | None
    returns: dict[str, Score] = field(default_factory=dict)
    """Of `zero` and `random` actions."""
    scores: dict[str, Score] = field(default_factory=dict)
    """The same by `metric`, the metric of evaluations."""
    memory: dict[str, Any] = field(default_factory=dict)
    disk: dict[str, Any] = field(default_factory=dict)
    duration: dict[str, float | None] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """What all this took."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "returns": {name: score.to_dict() for name, score in self.returns.items()},
            "scores": {name: score.to_dict() for name, score in self.scores.items()},
            "memory": self.memory,
            "disk": self.disk,
            "duration": self.duration,
            "warnings": self.warnings,
            "skipped": self.skipped,
            "seconds": self.seconds,
        }

    def lines(self) -> list[str]:
        """What is said before the run, but for the warnings."""
        rooms = [
            f"{name} {in_words(room['needed'])}" + (f" of {in_words(room['free'])} free" if room["free"] else "")
            for name, room in (("memory", self.memory), ("disk", self.disk))
            if room
        ]
        if seconds := self.duration.get("seconds"):
            rate = self.duration["steps_per_second"] or 0.0
            rooms.append(f"about {duration_in_words(seconds)} at {rate:,.0f} steps a second")
        played = [f"{name} actions return {score.mean:.4g} ± {score.noise:.2g}" for name, score in self.returns.items()]
        return [", ".join(part) for part in (rooms, played) if part] + [
            f"not measured: {each}" for each in self.skipped
        ]


class Preflight:
    """Measures what a run has before it. `dry` is for a run that does not follow: then only the limit holds."""

    def __init__(self, config: RunnerConfig, spec: EnvSpec, num_envs: int, pace: Pace, dry: bool = False) -> None:
        self.config, self.spec, self.num_envs, self.pace, self.dry = config, spec, num_envs, pace, dry
        self.report = Report(config.evaluation.metric)
        self._started = time.perf_counter()
        self._batch_s = pace.step_s
        """Seconds of a step of all instances, from below."""
        self._steps_per_second: float | None = None
        self._evaluation_s = 0.0

    def measure(self, make_env: MakeEnv, make_runner: Callable[[], AbstractContextManager[Runner]] | None) -> Report:
        """Returns and duration. `make_runner` makes a runner that may be thrown away; None: there is none."""
        with _leaving_no_trace():
            try:
                if self.spec.one_per_process:
                    self.report.skipped.append(f"{RETURNS}, and {DURATION}: the simulator runs once per process")
                elif Trials.of(self.spec) is None:
                    self._play(make_env, make_runner)
                else:
                    self.report.skipped.append(f"{RETURNS}, because the task counts trials")
                    self._rehearse(make_runner)
            except Exception as error:  # of an own task, or of a part that cannot be made twice: the run may still go
                self.report.skipped.append(f"the rest: {error}")
        self._tell_duration()
        self.report.seconds = round(time.perf_counter() - self._started, 3)
        return self.report

    @property
    def left(self) -> float:
        """Seconds that are left to look ahead."""
        planned = self.config.total_steps
        rate = self._steps_per_second
        playing = planned / self.num_envs * (self._batch_s + BATCH_STEP_S)
        expected = planned / rate if rate else playing + self.pace.learning_s
        limit = LIMIT_S if self.dry else min(LIMIT_S, SHARE * expected)
        return limit - (time.perf_counter() - self._started)

    def _play(self, make_env: MakeEnv, make_runner: Callable[[], AbstractContextManager[Runner]] | None) -> None:
        """Zero and random actions on the evaluation seeds, in an environment that first tells how fast steps are."""
        config = self.config.evaluation
        episodes = min(config.episodes, INSTANCES)
        count = baseline_instances(self.spec, episodes)
        if 2 * self.pace.twin_s > self.left:
            self._skip(RETURNS)
            self._rehearse(make_runner)
            return
        try:
            with make_env("evaluation", count) as env:
                step_s = self._probe(env)
                self._rehearse(make_runner)
                found = play_baselines(env, episodes, config.max_steps, time.perf_counter() + self.left)
        except OutOfTimeError:
            self._skip(RETURNS)
            return
        longest = self.spec.max_episode_steps or config.max_steps
        rounds = (1 + config.stochastic) * -(-config.episodes // INSTANCES)
        self._evaluation_s = step_s * min(longest, config.max_steps) * rounds
        self.report.returns, self.report.scores = found.scores(), found.scores(config.metric)
        self.report.warnings += warnings_of(found, self.config)

    def _probe(self, env: VecEnv) -> float:
        """Seconds of a step of `env`, from which those of all instances follow."""
        action = env.spec.action.idle().to(env.device).expand(env.num_envs, *env.spec.action.shape)
        env.reset(seed=0)
        taken = timed_step(env, action)
        each = max(taken - self.pace.step_s, 0.0) / max(env.num_envs - 1, 1)
        extrapolated = SAFETY * (taken + each * (self.num_envs - env.num_envs))
        strict = taken * min(self.num_envs / env.num_envs, 1.0)  # more instances never take less
        self._batch_s = max(self._batch_s, strict, extrapolated if self.num_envs > env.num_envs else 0.0)
        return taken

    def _rehearse(self, make_runner: Callable[[], AbstractContextManager[Runner]] | None) -> None:
        """Play and learn a little, to know how long it takes."""
        if make_runner is None or self.pace.making_s > self.left:
            self._skip(DURATION)
            return
        with make_runner() as runner:
            deadline = time.perf_counter() + 0.6 * self.left
            rows = getattr(getattr(runner, "stage", None), "rows", 1)
            if 3 * rows * self._batch_s > 0.6 * self.left:
                self._skip(DURATION)
                return
            self._steps_per_second = _rate(runner, deadline)
        if self._steps_per_second is None:
            self._skip(DURATION)

    def _skip(self, what: str) -> None:
        limit = "10 s" if self.dry else "2 % of the run"
        self.report.skipped.append(f"{what}: it takes more than {limit}")

    def _tell_duration(self) -> None:
        planned, rate = self.config.total_steps, self._steps_per_second
        interval = self.config.evaluation.interval
        evaluations = (planned // interval if interval else 0) + 1
        self.report.duration = {
            "seconds": None if rate is None else planned / rate + evaluations * self._evaluation_s,
            "steps_per_second": rate,
            "at_least_s": planned / self.num_envs * self._batch_s + self.pace.learning_s,
        }


def _rate(runner: Runner, deadline: float) -> float | None:
    """Environment steps a second, with learning; None if there was no time to learn."""
    rate, steps, seconds = None, 0, 0.0
    has_learnt = False
    while time.perf_counter() < deadline and seconds < REHEARSED_S:
        started = time.perf_counter()
        made, learns = runner.rehearse()
        taken = time.perf_counter() - started
        if learns and not has_learnt:  # the first time takes longer: memory is made, programs are recorded
            has_learnt, rate = True, made / taken
        elif learns:
            steps, seconds = steps + made, seconds + taken
            rate = steps / seconds
    return rate


def timed_step(env: VecEnv, action: Any) -> float:
    """Seconds of a step; the least of a few, because anything may come between."""
    taken = []
    for _ in range(PROBED_STEPS):
        started = time.perf_counter()
        env.step(action)
        taken.append(time.perf_counter() - started)
    return min(taken)


@contextmanager
def _leaving_no_trace() -> Iterator[None]:
    """The process-wide generators and the log are afterwards as if nothing had happened."""
    before, was_disabled = global_state(), log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = was_disabled
        set_global_state(before)
