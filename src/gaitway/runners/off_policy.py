"""The off-policy loop: play a little, learn a little, from everything that was seen; log, evaluate, save.

An iteration is about `iteration_steps` environment steps, made in rounds: `steps_per_round` steps of every instance
are added to the replay, then follow as many gradient steps as `update_ratio` has earned. What is not the algorithm's
business happens between iterations, as in the on-policy loop.
"""

from __future__ import annotations

import logging
import time
import typing
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.replay_algorithm import ReplayAlgorithm
from gaitway.core.agent import Agent
from gaitway.core.ranks import here, own_stream
from gaitway.data.dataset import Dataset
from gaitway.data.episodes import EpisodeSource
from gaitway.data.mixing import MixedReplay, dataset_replay, fill_replay
from gaitway.data.prioritised_replay import PrioritisedReplay
from gaitway.data.replay_journal import ReplayFileError, ReplayJournal
from gaitway.data.step_replay import StepReplay
from gaitway.envs.vec_env import VecEnv
from gaitway.rewards.source import RewardSource, merged
from gaitway.runners.capacity import check_replay
from gaitway.runners.finite import check_rollout
from gaitway.runners.logger import Logger
from gaitway.runners.progress import Progress
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner import Runner
from gaitway.runners.runner_config import RunnerConfig
from gaitway.runners.upkeep import Snapshot, counted_steps, first_observation

log = logging.getLogger("gaitway")


class OffPolicyRunner(Runner):
    """Trains an off-policy algorithm in a vectorised environment.

    Without `folder` nothing is written. `make_env(purpose, num_envs)` makes the environments of evaluation and video;
    without it both are off. The first `learning_starts` steps are made with uniform actions and only fill the replay.
    `data` are recorded episodes to learn from too: with `prefill` they are in the replay before the first step, and
    `share` of every batch is drawn from them all along.
    """

    algorithm: ReplayAlgorithm

    def __init__(
        self,
        env: VecEnv,
        algorithm: ReplayAlgorithm,
        config: RunnerConfig | None = None,
        *,
        folder: RunFolder | str | Path | None = None,
        make_env: Callable[[str, int], VecEnv] | None = None,
        cast: Sequence[Agent] = (),
        rewards: Sequence[RewardSource] = (),
        callbacks: Sequence[Any] = (),
        logger: Logger | None = None,
        progress: Progress | bool | None = None,
        data: EpisodeSource | None = None,
        prefill: bool = False,
        share: float = 0.0,
    ) -> None:
        super().__init__(env, algorithm, config, folder, make_env, cast, rewards)
        rounds = max(1, algorithm.config.iteration_steps // (env.num_envs * algorithm.config.steps_per_round))
        self._set_stage(rounds * algorithm.config.steps_per_round)
        algorithm.keep(self.stage.variables, self.world.groups, self.rewards)
        log.info("%s", replay_memory(algorithm))
        self.data = None if data is None else Dataset.of(data)
        self.prefill, self.share = prefill, share
        self.replay = self._make_replay()
        self.journal = None if self.folder is None else ReplayJournal(self.folder.replay)
        self._keep_house((*algorithm.callbacks(), *callbacks), logger, progress, self.journal)
        self.updates = 0
        """Gradient steps so far."""
        self._ratio = Fraction(repr(algorithm.config.update_ratio))
        self._learning_from = algorithm.config.learning_starts
        self._credit = Fraction(0)
        """Gradient steps that were earned and not made yet; a fraction, because sums of floats drift."""
        self._pending = 0
        """Gradient steps that wait for the next simulation, where `overlap` is on; none between iterations."""
        self._now = Now()
        self._steps_left = 1
        """Steps of the present round that are still to be simulated."""
        self._overlaps = overlaps(algorithm, env)
        if self._overlaps:
            self.world.meanwhile = self._learn_meanwhile

    def resume(self, which: str = "last", *, fresh_replay: bool = False) -> int:
        """Restore a checkpoint of this run's folder; returns its environment steps.

        `fresh_replay` goes on without what the replay held: the policy plays `learning_starts` steps into an empty one
        before gradient steps begin again. Such a run is not the one that it would have been.
        """
        state, steps = self._stored(which)
        if fresh_replay:
            del state["replay"]
        try:
            self.load_state_dict(state)
        except ReplayFileError as error:
            folder = self.folder.shown if self.folder is not None else "DIR"
            raise ReplayFileError(
                f"{error}, or go on with an empty replay by `gaitway resume {folder} --fresh-replay`"
            ) from error
        self.upkeep.saved_at = None if fresh_replay else steps
        return steps

    def state_dict(self) -> dict[str, Any]:
        """Everything a bit-exact resume needs, with the whole replay."""
        return self._state(self.replay.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on as the runner that made `state`; without its `replay`, with an empty one."""
        if self.data is not None:
            self.data.check_unchanged(state.get("dataset"))
        self._load_replay(state)  # first, because it may be refused, and then nothing has changed
        self._begun = True
        self.iteration, self.env_steps, self.updates = state["iteration"], state["env_steps"], state["updates"]
        self._learning_from, self._credit = state["learning_from"], Fraction(*state["credit"])
        self.algorithm.load_state_dict(state["algorithm"])
        self.stage.load_state_dict(state)
        self._load_doors(state)
        self.upkeep.load_state_dict(state)
        if "replay" not in state:
            self._learning_from = self.env_steps + self.algorithm.config.learning_starts
            self._credit = Fraction(0)
        if not self.env.spec.keeps_episodes:  # every instance began a new episode: forget the old ones
            self.replay.cut()
            self.stage.new_episodes()
            self.episodes.reset_running_returns()
            self.algorithm.reset_running_returns()

    def _make_replay(self) -> StepReplay:
        """An empty replay, with the dataset beside it if that is mixed in."""
        replay, data = self.algorithm.make_replay(), self.data
        if data is None:
            if self.prefill or self.share:
                raise ValueError("prefill and share say what is done with a dataset; pass data=Trajectories(...) too")
            return replay
        data.check_fits(self.env.spec, self.policy.all_groups)
        data.check_without_memory(self.policy.memories)
        if self.prefill and data.num_steps > replay.capacity:
            raise ValueError(
                f"{data.name} has {data.num_steps} steps and the replay holds {replay.capacity}; use "
                f"algorithm.replay_size={data.num_steps} or more, or data.share instead of data.prefill"
            )
        log.info("%s", data)
        if not self.share:
            return replay
        if not self.rewards.is_plain:
            raise ValueError("reward sources and data.share do not go together; use data.prefill, or leave one out")
        if isinstance(replay, PrioritisedReplay):
            raise ValueError("priorities and data.share do not go together; use prioritised=false or data.prefill")
        part = dataset_replay(data, like=replay, generator=own_stream(self.config.seed, "dataset", replay.device))
        return typing.cast(StepReplay, MixedReplay(replay, part, self.share))  # it has the interface of one

    def _fill_replay(self) -> None:
        """What an empty replay begins with."""
        if self.data is not None and self.prefill:
            fill_replay(self.replay, self.data)

    def _begin(self) -> None:
        self._fill_replay()
        self.world.restore(first_observation(self.env, self.config))

    def _iterate(self, target: int) -> None:
        first_step, first_update = self.env_steps, self.updates
        with self.upkeep.keeping_failures(self.rollout, first_step):
            try:
                self._play_and_learn()
            except ValueError:  # an action of NaN is refused; say where the NaN came from
                self._check({}, first_step)
                raise
            with self.upkeep.timed("learn"):
                found = self.algorithm.metrics() if self.updates > first_update else {}
                if not self.rewards.is_plain:
                    self.rewards.annotate(self.rollout, ("drawn",))  # so that the log shows all of them
                    found = merged(found, self.rewards.update(self.rollout, self._now))
            told = self._read(found)
            numbers = dict(zip(found, told["learnt"], strict=True)) | self.cast.metrics()
            with self.upkeep.timed("learn"):
                self.policy.update_normalisers(self.rollout)
            self.iteration += 1
            if self._is_suspicious(told, numbers):
                self._check(numbers, first_step)
        with self.upkeep.timed("log"):
            self.episodes.take(self.rollout, told)
            self._log(numbers, self.episodes.metrics(self.rollout, told))
        self.upkeep.between_iterations(first_step, self.env_steps, is_last=self.env_steps >= target)

    def _play_and_learn(self) -> None:
        """Fill the rows of the workspace, round by round, with gradient steps in between."""
        ws, clock, config = self.rollout, self.upkeep.clock, self.algorithm.config
        self._now = Now(self.iteration, self.env_steps, min(self.env_steps / self._planned, 1.0))
        self.rewards.begin(self._now)
        self.cast.begin(self._now)
        for start in range(0, self.stage.rows, config.steps_per_round):
            stop = start + config.steps_per_round
            started, simulated, learnt = time.perf_counter(), self.world.simulation_seconds, clock["learn"]
            self._steps_left = config.steps_per_round
            self.stage.play(start, stop, uniform=self.env_steps < config.learning_starts)
            played = time.perf_counter()
            simulated = self.world.simulation_seconds - simulated
            clock["simulate"] += simulated
            clock["infer"] += played - started - simulated - (clock["learn"] - learnt)
            self._annotate(start, stop)
            self.replay.add(ws, start, stop, self.world.truncated(start, stop))
            self.cast.collected(ws, start, stop)
            clock["learn"] += time.perf_counter() - played
            self._pending += self._updates_due(counted_steps(ws, start, stop))
            if not self._overlaps or stop == ws.T:
                self._learn()

    def _annotate(self, start: int, stop: int) -> None:
        """Let the reward sources speak that annotate rows once."""
        stored = self.rewards.stored()
        if stored:
            rows = self.rollout.slice(start, stop)
            self.rewards.annotate(rows, ("collected",))
            for name in stored:
                self.rollout[name][start:stop] = rows[name]

    def _learn_meanwhile(self) -> None:
        """Make this step's share of the gradient steps that are due: the round's steps get equally many."""
        self._learn(-(-self._pending // self._steps_left))
        self._steps_left -= 1

    def _learn(self, updates: int | None = None) -> None:
        """Make `updates` of the gradient steps that are due (None: all)."""
        updates = self._pending if updates is None else updates
        if updates:
            started = time.perf_counter()
            with torch.inference_mode(False), torch.enable_grad():
                self.algorithm.update(self.replay, updates, self._now)
            self._pending -= updates
            self.upkeep.clock["learn"] += time.perf_counter() - started

    def _updates_due(self, steps: int) -> int:
        """Count `steps` that were made; returns the gradient steps they and what was left over have earned."""
        earning = self.env_steps + steps - max(self.env_steps, self._learning_from)
        self.env_steps += steps
        if earning > 0:
            self._credit += self._ratio * earning
        if self._credit < 1 or self.replay.size == 0:
            return 0
        due = int(self._credit)
        self._credit -= due
        self.updates += due
        return due

    def _check(self, numbers: dict[str, float], first_step: int) -> None:
        """What the environment said, then what was learnt from it, then what the policy made of that."""
        check_rollout(self.rollout, self.env.spec, first_step, prefix="env/")
        self._check_learnt(numbers, "lower the learning rates of algorithm")
        check_rollout(self.rollout, self.env.spec, first_step)

    def _log(self, numbers: dict[str, float], figures: dict[str, float]) -> None:
        counts = {"updates": float(self.updates), "replay_size": float(self.replay.size * here().size)}
        self.upkeep.log(self.env_steps, self.iteration, numbers | counts, figures)

    def _snapshot(self) -> Snapshot:
        assert self.journal is not None
        manifest = self.journal.write(self.replay)
        return Snapshot(self._state(manifest), tuple(manifest["chunks"]))

    def _state(self, replay: dict[str, Any]) -> dict[str, Any]:
        return {
            "iteration": self.iteration,
            "env_steps": self.env_steps,
            "updates": self.updates,
            "learning_from": self._learning_from,
            "credit": [self._credit.numerator, self._credit.denominator],
            "algorithm": self.algorithm.state_dict(),
            "replay": replay,
            **self.stage.state_dict(),
            **self._doors_state(),
            **({} if self.data is None else {"dataset": self.data.sha256}),
            **self.upkeep.state_dict(),
        }

    def _load_replay(self, state: dict[str, Any]) -> None:
        if "replay" not in state:
            if self.replay.rows_added:
                raise ValueError("this runner has played already; make a new one to go on with an empty replay")
            self._fill_replay()
        elif "chunks" not in state["replay"]:
            self.replay.load_state_dict(state["replay"])
        elif self.journal is None:
            raise ValueError("the replay of this state lies in a run folder; pass folder=RunFolder.open(...)")
        else:
            self.journal.read(self.replay, state["replay"])


def overlaps(algorithm: ReplayAlgorithm, env: VecEnv) -> bool:
    """Whether updates are made while the next step is simulated."""
    asked = algorithm.config.overlap
    return algorithm.device.type == "cuda" and not env.is_on_device if asked == "auto" else asked


def replay_memory(algorithm: ReplayAlgorithm) -> str:
    """One line that says what the replay of an algorithm takes; a ValueError, with a size that fits, if it is not
    there."""
    config = algorithm.config
    if config.replay_size < algorithm.num_envs:
        raise ValueError(
            f"algorithm.replay_size is {config.replay_size}; it must hold a step of each of the {algorithm.num_envs} "
            f"instances, use algorithm.replay_size={algorithm.num_envs} or more"
        )

    return check_replay(algorithm.replay_bytes, config.replay_size, algorithm.device)
