"""How good the policy is: evaluations in environments of their own, the best and the last of them, when to stop."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from gaitway.agents.policy import CastPolicy, InferencePolicy
from gaitway.core.results import told
from gaitway.core.seeding import stream
from gaitway.envs.vec_env import VecEnv
from gaitway.runners.cast import Cast
from gaitway.runners.evaluate import evaluate, evaluation_instances
from gaitway.runners.film import Caption, Film, captioned, start_film
from gaitway.runners.runner_config import RunnerConfig

log = logging.getLogger("gaitway")

MakeEnv = Callable[[str, int], VecEnv]
"""(purpose, number of instances) -> an environment like the one trained in."""


class Trial(Protocol):
    """Who is told of evaluations and may end a run for them: an Optuna trial, or anything like it."""

    def report(self, value: float, step: int) -> None:
        """The evaluation metric as it is; a study of costs is one that minimises."""

    def should_prune(self) -> bool: ...


class Judge:
    """Measures and films a policy. Without `make_env` it has nowhere to do so and stays silent."""

    def __init__(self, config: RunnerConfig, cast: Cast, env: VecEnv, make_env: MakeEnv | None) -> None:
        """`env` is the one trained in."""
        self.config, self.cast, self.device, self.make_env = config, cast, env.device, make_env
        self._instances = evaluation_instances(env.spec, config.evaluation.episodes)
        self.lower_is_better = config.evaluation.metric in env.spec.costs
        """Whether the evaluation metric is a cost."""
        self.best: dict[str, Any] = {}
        self.last: dict[str, Any] = {}
        self.evaluations_since_best = 0
        self.env: VecEnv | None = None
        """Where evaluations are made, once there was one."""
        self.trial: Trial | None = None
        self._can_film = True
        self._films: list[tuple[int, Film]] = []

    def open(self) -> VecEnv | None:
        """The environment of evaluations, made when it is first asked for; None without `make_env`."""
        if self.env is None and self.make_env is not None:
            self.env = self.make_env("evaluation", self._instances)
        return self.env

    def measure(self, steps: int) -> dict[str, float] | None:
        """Evaluate the policy as it is after `steps`; `last`, and perhaps `best`, become the result."""
        config, env = self.config.evaluation, self.open()
        if env is None:
            return None
        with self.cast.resting():
            result = evaluate(env, self._actor, config)
        if config.metric is not None and config.metric not in result:
            raise ValueError(f"evaluation.metric is {config.metric!r}; the evaluation has {sorted(result)}")
        self.last = result | {"steps": steps}
        log.info("step %d: evaluation %s", steps, told({k: v for k, v in result.items() if "/" not in k}))
        if config.metric is not None:
            self._compare(config.metric)
            if self.trial is not None:
                self.trial.report(float(result[config.metric]), steps)
        return result

    def verdict(self, is_early: bool = True) -> str | None:
        """The rule by which training should stop after the last evaluation, if any; at its end a run is not pruned."""
        stop, metric = self.config.stop, self.config.evaluation.metric
        if stop.patience and self.evaluations_since_best >= stop.patience:
            return "patience"
        if stop.threshold is not None and metric in self.last:
            value = self.last[metric]
            if value <= stop.threshold if self.lower_is_better else value >= stop.threshold:
                return "threshold"
        if self.trial is not None and is_early and self.trial.should_prune():
            return "pruned"
        return None

    def film(self, path: Path, steps: int | None = None) -> None:
        """Film one episode of the deterministic policy as it is after `steps`.

        Returns when it has been played and drawn; the file follows, see `finished_films`.
        """
        if self.make_env is None or not self._can_film:
            return
        from gaitway.envs.pictures.scene import Camera, CameraError, send_off  # knows MuJoCo, which not every run needs

        video = self.config.video
        try:
            with (
                self.cast.resting(),
                self.make_env("evaluation", 1) as env,
                Camera(env, 0, video.camera, video.quality) as draw,
            ):
                act, command = self._actor(False), send_off(env)
                film = start_film(
                    env,
                    act,
                    path,
                    length=video.length,
                    size=video.size,
                    annotations=video.annotations,
                    seed=0,
                    caption=_caption(env, act, steps, command) if video.annotations else (),
                    draw=draw,
                )
        except CameraError as error:
            log.warning("no video %s: %s", path, error)
            film = None
        if film is None:
            self._can_film = False  # what failed once fails again, and a GL library may not survive the second try
        else:
            self._films.append((steps or 0, film))

    def finished_films(self, wait: bool = False) -> list[tuple[int, Path]]:
        """Steps and files of the films that were completed since the last call; with `wait`, of all that were begun."""
        done = [(steps, film) for steps, film in self._films if wait or film.is_done]
        self._films = [pair for pair in self._films if pair not in done]
        results = [(steps, film.result()) for steps, film in done]
        self._can_film = self._can_film and all(result is not None for _, result in results)
        return [(steps, Path(result["path"])) for steps, result in results if result is not None]

    def state_dict(self) -> dict[str, Any]:
        return {
            "best": dict(self.best),
            "last": dict(self.last),
            "evaluations_since_best": self.evaluations_since_best,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.best, self.last = dict(state["best"]), dict(state["last"])
        self.evaluations_since_best = state["evaluations_since_best"]

    def close(self) -> None:
        """Complete the films and close the environment."""
        self.finished_films(wait=True)
        if self.env is not None:
            self.env.close()
            self.env = None

    def _compare(self, metric: str) -> None:
        """Let `last` be the best if it is."""
        if not self.best or self._is_better(self.last[metric], self.best[metric]):
            self.best = dict(self.last)
            self.evaluations_since_best = 0
        else:
            self.evaluations_since_best += 1

    def _is_better(self, value: float, best: float) -> bool:
        """NaN never is, and any number is better than it."""
        if math.isnan(best):
            return not math.isnan(value)
        return value < best if self.lower_is_better else value > best

    def _actor(self, stochastic: bool) -> InferencePolicy | CastPolicy:
        return self.cast.inference(stochastic, stream(self.config.seed, "evaluation", self.device))


def _caption(
    env: VecEnv, act: InferencePolicy | CastPolicy, steps: int | None, command: Sequence[float] | None
) -> Caption:
    """Environment, steps and the command of a legged robot, and what the policy is about at the moment, where it can
    tell."""
    known = [env.spec.id] + ([] if steps is None else [f"{steps:,} steps"])
    known += [] if command is None else [f"command {', '.join(f'{each:g}' for each in command)}"]
    return captioned(act, known)
