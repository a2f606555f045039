"""The on-policy loop: collect a rollout, learn from it, log, evaluate, save. The only place where time passes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from gaitway.algorithms.algorithm import Algorithm, Now
from gaitway.core.agent import Agent
from gaitway.core.ranks import here
from gaitway.envs.vec_env import VecEnv
from gaitway.rewards.source import RewardSource, merged
from gaitway.runners.finite import check_rollout
from gaitway.runners.logger import Logger
from gaitway.runners.pretraining import Pretraining
from gaitway.runners.progress import Progress
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner import Runner
from gaitway.runners.runner_config import RunnerConfig
from gaitway.runners.upkeep import counted_steps, first_observation, to_numbers

log = logging.getLogger("gaitway")


class OnPolicyRunner(Runner):
    """Trains an on-policy algorithm in a vectorised environment.

    Without `folder` nothing is written. `make_env(purpose, num_envs)` makes the environments of evaluation and video;
    without it both are off.
    """

    algorithm: Algorithm

    def __init__(
        self,
        env: VecEnv,
        algorithm: Algorithm,
        config: RunnerConfig | None = None,
        *,
        folder: RunFolder | str | Path | None = None,
        make_env: Callable[[str, int], VecEnv] | None = None,
        cast: Sequence[Agent] = (),
        rewards: Sequence[RewardSource] = (),
        callbacks: Sequence[Any] = (),
        pretraining: Pretraining | None = None,
        logger: Logger | None = None,
        progress: Progress | bool | None = None,
    ) -> None:
        super().__init__(env, algorithm, config, folder, make_env, cast, rewards)
        self.pretraining = pretraining
        if pretraining is not None and pretraining.is_whole_run:  # the environment only says what the task is
            self._use_stage(pretraining.stage)
        else:
            self._set_stage(algorithm.config.rollout_steps)
        self._keep_house(callbacks, logger, progress)

    def state_dict(self) -> dict[str, Any]:
        """Everything a bit-exact resume needs."""
        return {
            "iteration": self.iteration,
            "env_steps": self.env_steps,
            "algorithm": self.algorithm.state_dict(),
            **self.stage.state_dict(),
            **self._doors_state(),
            **self.upkeep.state_dict(),
            **({} if self.pretraining is None else {"pretraining": self.pretraining.state_dict()}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._begun = True
        self.iteration, self.env_steps = state["iteration"], state["env_steps"]
        self.algorithm.load_state_dict(state["algorithm"])
        if self.pretraining is not None and "pretraining" in state:
            self.pretraining.load_state_dict(state["pretraining"])
        self._load_doors(state)
        self.stage.load_state_dict(state)
        self.upkeep.load_state_dict(state)
        if not self.stage.env.spec.keeps_episodes:  # every instance began a new episode: forget the old ones
            self.stage.new_episodes()
            self.episodes.reset_running_returns()
            self.algorithm.reset_running_returns()

    def _begin(self) -> None:
        if self.stage.env is self.env:
            self.world.restore(first_observation(self.env, self.config))

    def _iterate(self, target: int) -> None:
        first_step = self.env_steps
        fraction = min(self.env_steps / self._planned, 1.0)
        if self.pretraining is not None and not self.pretraining.is_over:
            self._pretrain(self.pretraining, Now(self.iteration, self.env_steps, fraction), target)
            return
        # schedules of what plays begin when it plays
        before = 0 if self.pretraining is None else self.pretraining.iterations
        now = Now(self.iteration - before, self.env_steps, fraction)
        self.cast.begin(now)
        with self.upkeep.keeping_failures(self.rollout, first_step):
            try:
                self._collect()
            except ValueError:  # an action of NaN is refused; say where the NaN came from
                check_rollout(self.rollout, self.env.spec, first_step)
                raise
            with self.upkeep.timed("learn"):
                more = self._annotate(now)
                learnt = merged(self.algorithm.update(self.rollout, now), more)
            self.cast.collected(self.rollout, 0, self.rollout.T)
            told = self._read(learnt)
            numbers = dict(zip(learnt, told["learnt"], strict=True)) | self.cast.metrics()
            self.iteration += 1
            self.env_steps += counted_steps(self.rollout)
            if self._is_suspicious(told, numbers):
                check_rollout(self.rollout, self.env.spec, first_step)
                self._check_learnt(numbers)
        with self.upkeep.timed("log"):
            self.episodes.take(self.rollout, told)
            self.upkeep.log(self.env_steps, self.iteration, numbers, self.episodes.metrics(self.rollout, told))
        self.upkeep.between_iterations(first_step, self.env_steps, is_last=self.env_steps >= target)

    def _pretrain(self, pretraining: Pretraining, now: Now, target: int) -> None:
        """An iteration of the dataset's stage, in which a step is a recorded one."""
        first_step = self.env_steps
        with self.upkeep.timed("learn"):
            metrics, steps = pretraining.iterate(now)
            numbers = to_numbers(metrics) | pretraining.figures()
        self.iteration += 1
        self.env_steps += here().total(steps)
        pretraining.look()
        if self.config.finite_checks:
            self._check_learnt(numbers)
        with self.upkeep.timed("log"):
            self.upkeep.log(self.env_steps, self.iteration, numbers)
        self.upkeep.between_iterations(first_step, self.env_steps, is_last=self.env_steps >= target)

    def _collect(self) -> None:
        """One rollout; row 0 goes on from the last row of the one before, unless episodes must be whole."""
        started, simulated = time.perf_counter(), self.world.simulation_seconds
        if self.algorithm.needs_whole_episodes and self.iteration:
            self.world.restore(self.env.reset())
            self.episodes.reset_running_returns()
            self.stage.new_episodes()
        self.stage.play(0, self.stage.rows)
        simulated = self.world.simulation_seconds - simulated
        self.upkeep.clock["simulate"] += simulated
        self.upkeep.clock["infer"] += time.perf_counter() - started - simulated

    def _annotate(self, now: Now) -> dict[str, Tensor]:
        """Let the reward sources speak, write `reward/total`, let them learn."""
        if self.rewards.is_plain:
            return {}
        self.rewards.begin(now)
        self.rewards.annotate(self.rollout)
        return self.rewards.update(self.rollout, now)
