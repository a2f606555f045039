"""The offline loop: learn from a dataset alone; log, evaluate, save.

No environment step is made, so a step of such a run is an update: `total_steps`, the intervals of evaluation and
checkpoints, `iteration_steps` and everything that is logged by step count updates.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.replay_algorithm import ReplayAlgorithm
from gaitway.core.agent import Agent
from gaitway.core.ranks import own_stream
from gaitway.core.seeding import restore_stream
from gaitway.core.workspace import Workspace
from gaitway.data.dataset import Dataset
from gaitway.data.episodes import EpisodeSource
from gaitway.data.mixing import dataset_replay
from gaitway.envs.vec_env import VecEnv
from gaitway.runners.cast import CastEpisodes
from gaitway.runners.finite import NotFiniteError
from gaitway.runners.judge import MakeEnv
from gaitway.runners.logger import Logger
from gaitway.runners.progress import Progress
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner import Runner
from gaitway.runners.runner_config import RunnerConfig
from gaitway.runners.upkeep import to_numbers

log = logging.getLogger("gaitway")

ADVICE = "lower the learning rates of algorithm"


class OfflineRunner(Runner):
    """Trains an off-policy algorithm, or behaviour cloning, on a dataset.

    `env` only says what the task is. Agents of the `cast` besides the policy see every step of the dataset once and
    write what they have to say of it, for the algorithm to read. Observation normalisers take the statistics of the
    dataset, once, before the first update. Checkpoints do not hold the dataset: they hold its fingerprint, and where
    the draws stand.
    """

    algorithm: ReplayAlgorithm

    def __init__(
        self,
        env: VecEnv,
        algorithm: ReplayAlgorithm,
        config: RunnerConfig | None = None,
        *,
        data: EpisodeSource,
        folder: RunFolder | str | Path | None = None,
        make_env: MakeEnv | None = None,
        cast: Sequence[Agent] = (),
        callbacks: Sequence[Any] = (),
        logger: Logger | None = None,
        progress: Progress | bool | None = None,
    ) -> None:
        super().__init__(env, algorithm, config, folder, make_env, cast)
        self.data = Dataset.of(data)
        self.data.check_fits(env.spec, self.policy.all_groups)
        self.data.check_without_memory(self.policy.memories)
        log.info("%s; a step of this run is an update", self.data)
        source = CastEpisodes(self.data, self.cast) if self.cast.others else self.data
        algorithm.keep(source.variables() if isinstance(source, CastEpisodes) else {}, (), self.rewards)
        arguments = algorithm.replay_arguments()
        self.replay = dataset_replay(
            source,
            **{name: arguments[name] for name in ("groups", "action", "n_step", "extras")},
            gamma=algorithm.config.gamma,
            device=algorithm.device,
            generator=own_stream(algorithm.seed, "replay", algorithm.device),
        )
        self.iteration_updates = algorithm.config.iteration_steps
        """Updates between log lines."""
        self._keep_house(callbacks, logger, progress)

    @property
    def updates(self) -> int:
        """Gradient steps so far: what `env_steps` counts here."""
        return self.env_steps

    def state_dict(self) -> dict[str, Any]:
        """Everything a bit-exact resume needs, but for the dataset."""
        return {
            "iteration": self.iteration,
            "env_steps": self.env_steps,
            "algorithm": self.algorithm.state_dict(),
            "dataset": self.data.sha256,
            "draws": self.replay.generator.get_state(),
            **self._doors_state(),
            **self.upkeep.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.data.check_unchanged(state["dataset"])
        self._begun = True
        self.iteration, self.env_steps = state["iteration"], state["env_steps"]
        self.algorithm.load_state_dict(state["algorithm"])
        restore_stream(self.replay.generator, state["draws"])
        self._load_doors(state)
        self.upkeep.load_state_dict(state)

    def _begin(self) -> None:
        """Normalisers see every observation that was acted on, once, and rest from then on."""
        for chunk in self.data.chunks():
            fields = chunk.transitions()
            seen = {f"env/obs/{name}": fields[f"obs/{name}"].unsqueeze(1) for name in self.policy.all_groups}
            self.policy.update_normalisers(Workspace.packed(seen).to(self.algorithm.device))

    def _iterate(self, target: int) -> None:
        before = self.env_steps
        # iterations end at multiples of their length, wherever a run was interrupted
        updates = min(self.iteration_updates - before % self.iteration_updates, target - before)
        now = Now(self.iteration, before, min(before / self._planned, 1.0))
        with self.upkeep.timed("learn"):
            self.algorithm.update(self.replay, updates, now)
            numbers = to_numbers(self.algorithm.metrics())
        self.iteration += 1
        self.env_steps += updates
        if self.config.finite_checks:
            self._check(numbers)
        with self.upkeep.timed("log"):
            passes = self.env_steps * self.algorithm.config.batch_size / self.replay.size
            counts = {"updates": float(self.env_steps), "dataset_passes": passes}
            self.upkeep.log(self.env_steps, self.iteration, numbers | counts)
        self.upkeep.between_iterations(before, self.env_steps, is_last=self.env_steps >= target)

    def _check(self, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            if not math.isfinite(value):
                raise NotFiniteError(
                    f"{name} became {value} up to update {self.env_steps}; {ADVICE}, the last checkpoint is good",
                    {"term": name, "iteration": self.iteration, "env_steps": self.env_steps},
                )
        self._check_learnt({}, ADVICE)
