"""The first of two stages: the policy learns from recorded episodes before it plays.

The world of the cast is a dataset: the policy runs over recorded observations in the order of their recording, with its
memory, and learns the labels by distillation (`algorithms/distillation.py`). No reward is looked at, and no loss of PPO
sees these rows. Then the environment takes the place of the dataset: memories begin empty, and the first action is one
for an observation of the environment.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Annotated, Any

from torch import Tensor

from gaitway.agents.recorded_labels import RecordedLabels
from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.distillation import Distillation, DistillationConfig
from gaitway.algorithms.imitation import Form
from gaitway.core.config import configuration
from gaitway.core.ranges import INCREASING, Count, Positive, Range, WholeNumber
from gaitway.data.cursors import Cursors
from gaitway.data.dataset import check_fits
from gaitway.data.episodes import EpisodeSource
from gaitway.data.recorded_env import RecordedEnv
from gaitway.envs.vec_env import VecEnv
from gaitway.rewards.source import Rewards
from gaitway.runners.cast import Cast
from gaitway.runners.stage import Stage
from gaitway.runners.upkeep import counted_steps

log = logging.getLogger("gaitway")


@configuration
class PretrainConfig:
    """Learning from a dataset before the environment."""

    iterations: Annotated[int, Range(-1)] = 0
    """Iterations on the dataset `data.path` before the environment, 0 for none; -1: as long as there are episodes."""
    loops: Count | None = None
    """Passes over the dataset; null for no end. After the last one the environment's stage begins."""
    shuffle: bool = True
    """Draw the order of episodes anew for every pass."""
    start_frames: Annotated[tuple[WholeNumber, WholeNumber], INCREASING] = (0, 1)
    """Episodes begin at a frame drawn from low <= frame < high."""
    keep_latest: Count | None = None
    """Read this many of the newest episodes alone; null for all."""
    follow: bool = False
    """The dataset is being recorded: look for new episodes before every pass, and wait for the first."""
    epochs: Count = 1
    """Passes over each rollout, unless `algorithm` is distillation and says so itself; so are the next three."""
    gradient_length: Count = 15
    """Rows of one gradient step."""
    learning_rate: Positive = 1e-3
    form: Form | None = None
    """What is learnt of labels, see docs/teachers.md."""


class Pretraining:
    """The stage of a run that plays recorded episodes, for a runner with `env` and `algorithm`."""

    def __init__(
        self, config: PretrainConfig, source: EpisodeSource, env: VecEnv, algorithm: Any, seed: int = 0
    ) -> None:
        self.config, self.main = config, algorithm
        policy = algorithm.policy
        check_fits(getattr(source, "spec", None), _name(source), env.spec, policy.all_groups)
        cursors = Cursors(
            source,
            env.num_envs,
            loops=config.loops,
            shuffle=config.shuffle,
            start_frames=config.start_frames,
            keep_latest=config.keep_latest,
            follow=config.follow,
            groups=policy.all_groups,
            device=env.device,
            seed=seed,
        )
        self.world = RecordedEnv(cursors, env.spec)
        self.algorithm = algorithm if isinstance(algorithm, Distillation) else self._distillation(seed)
        cast = Cast(policy, [RecordedLabels(self.world)], seed)
        rows = algorithm.config.rollout_steps
        self.stage = Stage(self.world, cast, Rewards(()), self.algorithm, rows, seed)
        self.stage.world.restore(cursors.observation())
        self.is_over = config.iterations == 0
        self.iterations = 0
        """Iterations of this stage so far."""

    def _distillation(self, seed: int) -> Distillation:
        """What learns the labels where the run's algorithm does not; both move the same parameters, one after the
        other."""
        main, config = self.main, self.config
        if not hasattr(main, "engine"):
            raise ValueError(
                f"{type(main).__name__} cannot go on from a dataset; use ppo, a2c, reinforce or distillation"
            )
        own = DistillationConfig(
            rollout_steps=main.config.rollout_steps,
            epochs=config.epochs,
            gradient_length=config.gradient_length,
            learning_rate=config.learning_rate,
            form=config.form,
        )
        return Distillation(main.policy, own, num_envs=main.num_envs, seed=seed, execution=main.execution)

    @property
    def is_whole_run(self) -> bool:
        """Whether the environment's stage never comes."""
        return self.config.iterations < 0 and self.config.loops is None

    def iterate(self, now: Now) -> tuple[dict[str, Tensor], int]:
        """Run over one rollout of recorded rows and learn from it; metrics, and how many steps it held."""
        self.stage.play(0, self.stage.rows)
        metrics = self.algorithm.update(self.stage.rollout, now)
        self.iterations += 1
        return metrics, counted_steps(self.stage.rollout)

    def figures(self) -> dict[str, float]:
        cursors = self.world.cursors
        return {"data/passes": float(cursors.passes), "data/episodes": float(cursors.num_episodes)}

    def look(self) -> None:
        """After an iteration: end the stage if it was the last, or if there is nothing left to read."""
        if self.is_over or not (self.world.exhausted or 0 <= self.config.iterations <= self.iterations):
            return
        why = "it was read as often as asked" if self.world.exhausted else "as planned"
        log.info("the dataset's stage ends after %d iterations, %s; the environment's begins", self.iterations, why)
        self.finish()

    def finish(self) -> None:
        """Hand the parameters over to the run's own algorithm."""
        self.is_over = True
        self.algorithm.rolling.clear()
        if self.algorithm is not self.main:
            self.main.engine.parameters.take_over()

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"is_over": self.is_over, "iterations": self.iterations}
        if not self.is_over:
            state["stage"] = None if self.is_whole_run else self.stage.state_dict()  # else it is the runner's
            state["algorithm"] = None if self.algorithm is self.main else self.algorithm.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """After the run's algorithm has loaded its own."""
        self.iterations = state["iterations"]
        if state["is_over"]:
            self.finish()
            return
        if state["algorithm"] is not None:
            self.algorithm.engine.parameters.take_over()
            self.algorithm.load_state_dict(state["algorithm"])
        if state["stage"] is not None:
            self.stage.load_state_dict(state["stage"])


def _name(source: Any) -> str:
    return getattr(source, "name", None) or f"the dataset {getattr(source, 'folder', '')}".strip()
