"""What every runner is: a loop of iterations up to a number of environment steps, with an `Upkeep` in between.

A leaf class says how it begins, what an iteration is and what its state is; the rest stands here.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from gaitway.agents.policy import CastPolicy, InferencePolicy, Policy, learnt_parameters
from gaitway.core.agent import Agent
from gaitway.core.config import to_config
from gaitway.core.ranks import here
from gaitway.core.seeding import stream
from gaitway.envs.vec_env import VecEnv
from gaitway.rewards.source import Rewards, RewardSource
from gaitway.runners.cast import Cast
from gaitway.runners.checkpoint import Attachments, parameters_sha256
from gaitway.runners.description import check_objects, write_files, write_run
from gaitway.runners.finite import ADVICE, all_finite, check_update
from gaitway.runners.judge import MakeEnv, Trial
from gaitway.runners.logger import Logger
from gaitway.runners.progress import Progress
from gaitway.runners.readout import read_at_once, stacked
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner_config import RunnerConfig
from gaitway.runners.stage import Stage
from gaitway.runners.upkeep import Snapshot, Upkeep

log = logging.getLogger("gaitway")

UNREACHED = 2**62
"""Steps at which nothing ends."""


class Learner(Protocol):
    """What every runner asks of its algorithm."""

    policy: Any
    num_envs: int

    def flat_parameters(self) -> list[Tensor]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Runner:
    """Trains an algorithm. Without `folder` nothing is written; without `make_env` there is no evaluation and no video.

    `folder` is the path of a new run, or a `RunFolder`; what a program makes in it is a run that every command takes.
    `progress=True` shows how far training is.

    A leaf class calls `_set_stage`, if it plays, and `_keep_house`, and writes `_begin`, `_iterate`, `state_dict` and
    `load_state_dict`.
    """

    algorithm: Any
    policy: Policy
    upkeep: Upkeep

    def __init__(
        self,
        env: VecEnv,
        algorithm: Learner,
        config: RunnerConfig | None,
        folder: RunFolder | str | Path | None,
        make_env: MakeEnv | None,
        cast: Sequence[Agent] = (),
        rewards: Sequence[RewardSource] = (),
    ) -> None:
        if algorithm.num_envs != env.num_envs:
            raise ValueError(
                f"the algorithm was made for {algorithm.num_envs} instances, the environment has {env.num_envs}"
            )
        self.env, self.algorithm, self.policy = env, algorithm, algorithm.policy
        self.config = config or RunnerConfig()
        self.cast = Cast(self.policy, cast, self.config.seed)
        self.rewards = Rewards(rewards, env.device, getattr(algorithm, "reward_groups", {}))
        self.folder = RunFolder.create(folder) if isinstance(folder, str | Path) else folder
        if env.spec.one_per_process and make_env is not None:
            log.warning(
                "%s runs once per process: there are no evaluations and no films; `gaitway eval` judges the run "
                "afterwards",
                env.spec.id,
            )
            make_env = None
        self.make_env = make_env
        self.iteration = 0
        self.env_steps = 0
        self._begun = False
        self._planned = self.config.total_steps

    def _set_stage(self, rows: int) -> None:
        """What a runner that plays needs: an environment whose rows are written by the cast."""
        self._use_stage(Stage(self.env, self.cast, self.rewards, self.algorithm, rows, self.config.seed))

    def _use_stage(self, stage: Stage) -> None:
        self.stage, self.world, self.rollout, self.wiring = stage, stage.world, stage.rollout, stage.wiring

    def _keep_house(
        self,
        callbacks: Sequence[Any],
        logger: Logger | None,
        progress: Progress | bool | None,
        attachments: Attachments | None = None,
    ) -> None:
        """What every runner needs between iterations."""
        if isinstance(progress, bool):
            progress = Progress(self.config.total_steps, title=self.env.spec.id) if progress else None
        self.upkeep = Upkeep(
            self.config,
            self.env,
            self.cast,
            self._snapshot,
            learnt=self.learnt_facts,
            folder=self.folder,
            make_env=self.make_env,
            callbacks=callbacks,
            logger=logger,
            progress=progress,
            attachments=attachments,
        )
        self.episodes, self.checkpoints = self.upkeep.episodes, self.upkeep.checkpoints

    def _snapshot(self) -> Snapshot:
        return Snapshot(self.state_dict())

    def _begin(self) -> None:
        """What happens once, before the first iteration."""
        raise TypeError(f"{type(self).__name__} does not implement _begin")

    def _iterate(self, target: int) -> None:
        """Collect, learn, count; `target` is where the present call of `learn` ends."""
        raise TypeError(f"{type(self).__name__} does not implement _iterate")

    def state_dict(self) -> dict[str, Any]:
        """Everything a bit-exact resume needs."""
        raise TypeError(f"{type(self).__name__} does not implement state_dict")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on as the runner that made `state`."""
        raise TypeError(f"{type(self).__name__} does not implement load_state_dict")

    def learn(self, steps: int | None = None, trial: Trial | None = None) -> dict[str, Any]:
        """Train for `steps` more environment steps (default: up to the planned total); returns the summary.

        `trial`, an Optuna trial for example, is told the evaluation metric and may end the run (`pruned`).
        """
        if trial is not None and self.config.evaluation.metric is None:
            raise ValueError(
                "a trial is told of evaluation.metric, which is null; name a result of the evaluation, such as return"
            )
        self.upkeep.judge.trial = trial
        target = self.config.total_steps if steps is None else self.env_steps + checked_steps(steps)
        folder = self.folder if here().is_first else None
        with folder.training() if folder is not None else contextlib.nullcontext():
            if folder is not None:
                write_run(self, folder)
                write_files(self, folder)
            return self._train_to(target)

    def _train_to(self, target: int) -> dict[str, Any]:
        """Iterate until `target` steps are behind."""
        if self.upkeep.progress is not None:
            self.upkeep.progress.total_steps = target
        self.upkeep.planned = self._planned = max(self.config.total_steps, target)
        with self.upkeep.training(target):
            is_new, self._begun = not self._begun, True
            if is_new:
                self._begin_alike()
                self._begin()
            self.upkeep.tell("begin", self.env_steps, self.iteration)
            if is_new:
                self.upkeep.save(0)  # a checkpoint of the very start
            while self.env_steps < target and self.stopped_by is None:
                self._iterate(target)
            self.upkeep.tell("end", self.env_steps, self.iteration)
            self.upkeep.save(self.env_steps)
        return self.upkeep.write_summary(self.env_steps)

    def rehearse(self) -> tuple[int, bool]:
        """An iteration for its time alone, of a runner that is thrown away; its steps, and whether it learnt."""
        if not self._begun:
            self._begin()
        self._begun, before = True, self.env_steps
        self.upkeep.judge.make_env = None
        self._iterate(UNREACHED)
        return self.env_steps - before, any(name.startswith("loss/") for name in self.upkeep.numbers)

    def _begin_alike(self) -> None:
        """Let all processes that train together begin with the parameters of the first."""
        modules = [self.policy, *self._further().values()]
        for tensor in [
            *self.algorithm.flat_parameters(),
            *(each for one in modules for each in one.state_dict().values()),
        ]:
            if isinstance(tensor, Tensor):  # an extra state may be anything
                here().broadcast_(tensor)

    def inference_policy(self, stochastic: bool = False) -> InferencePolicy | CastPolicy:
        """What acts as a function of observations, with its normaliser and memory; call `reset` between episodes."""
        generator = stream(self.config.seed, "inference", self.env.device) if stochastic else None
        return self.cast.inference(stochastic, generator)

    @property
    def best(self) -> dict[str, Any]:
        """The best evaluation so far, with its `steps`."""
        return self.upkeep.judge.best

    @property
    def last(self) -> dict[str, Any]:
        """The last evaluation, with its `steps`."""
        return self.upkeep.judge.last

    @property
    def seconds(self) -> float:
        """Time spent on this run, over all its parts."""
        return self.upkeep.seconds

    @property
    def stopped_by(self) -> str | None:
        """What ended training before its plan: `threshold`, `patience`, `pruned` or the name of a signal."""
        return self.upkeep.stopped_by

    @property
    def is_saved(self) -> bool:
        """Whether the present state is in the run folder (True if there is none to be in)."""
        return self.upkeep.is_saved(self.env_steps)

    def missing(self) -> list[str]:
        """What should be in the run folder and could not be written, in words."""
        return self.upkeep.missing(self.env_steps)

    def parameters_sha256(self) -> str:
        return parameters_sha256(learnt_parameters({"policy": self.policy} | self._further()))

    def learnt_facts(self) -> dict[str, Any]:
        """What a checkpoint says about its parameters, so that nobody has to make networks to know it."""
        count = sum(each.numel() for each in self.policy.parameters() if each.requires_grad)
        return {
            "parameters_sha256": self.parameters_sha256(),
            "parameters": count,
            "learning_rates": learning_rates(getattr(self.algorithm, "config", None)),
        }

    def summary(self) -> dict[str, Any]:
        """What summary.json says."""
        return self.upkeep.summary(self.env_steps)

    def resume(self, which: str = "last") -> int:
        """Restore a checkpoint of this run's folder; returns its environment steps."""
        state, steps = self._stored(which)
        self.load_state_dict(state)
        self.upkeep.saved_at = steps
        return steps

    def _stored(self, which: str) -> tuple[dict[str, Any], int]:
        """The state of a checkpoint and its steps, for a runner that has the objects that the run was made with."""
        if self.folder is not None:
            check_objects(self, self.folder)
        return self.upkeep.load(which)

    def _further(self) -> dict[str, Any]:
        """What is learnt besides the policy, by name: reward sources and further agents of the cast."""
        return self.rewards.modules() | self.cast.modules()

    def _read(self, learnt: Mapping[str, Tensor]) -> dict[str, list[float]]:
        """All numbers of an iteration, which the host waits for once: what was `learnt`, episodes and metrics of the
        rollout, and whether everything is finite."""
        with self.upkeep.timed("log"):
            asked = {"learnt": stacked(learnt), **self.episodes.count(self.rollout)}
            asked["means"] = self.episodes.means(self.rollout)
            if self.config.finite_checks:
                asked["finite rollout"] = all_finite(self.rollout[name] for name in self.rollout)
                further = (each.detach() for module in self._further().values() for each in module.parameters())
                asked["finite parameters"] = all_finite((*self.algorithm.flat_parameters(), *further))
        with self.upkeep.timed("learn"):  # until the device has learnt
            return read_at_once(asked)

    def _is_suspicious(self, told: Mapping[str, list[float]], numbers: Mapping[str, float]) -> bool:
        """Whether something of an iteration may not be finite; always False without finite checks."""
        if not self.config.finite_checks:
            return False
        known = (*told["finite rollout"], *told["finite parameters"])
        return not all(known) or not all(math.isfinite(value) for value in numbers.values())

    def _check_learnt(self, numbers: dict[str, float], advice: str = ADVICE) -> None:
        """Refuse parameters and metrics that are not finite."""
        for parameters in self.algorithm.flat_parameters():
            check_update(numbers, parameters, self.iteration, self.env_steps, advice)
        for name, module in self._further().items():
            for parameter in module.parameters():
                check_update({}, parameter.detach(), self.iteration, self.env_steps, f"look at {name}")

    def _doors_state(self) -> dict[str, Any]:
        """The state of reward sources and cast, where there are any."""
        sources = {} if self.rewards.is_plain else self.rewards.state_dict()
        return {"sources": sources} | ({"cast": self.cast.state_dict()} if self.cast.others else {})

    def _load_doors(self, state: dict[str, Any]) -> None:
        self.rewards.load_state_dict(state.get("sources", {}))
        self.cast.load_state_dict(state.get("cast", {}))

    def close(self) -> None:
        """Close the agents, the evaluation environment and the logger; the training environment is the caller's."""
        for agent in self.cast.others.values():
            agent.close()
        self.upkeep.close()


def learning_rates(config: Any) -> dict[str, Any]:
    """The learning rates that the configuration of an algorithm says, by key: what its optimisers began with."""
    plain = to_config(config)
    return (
        {key: value for key, value in plain.items() if key.endswith("learning_rate")} if isinstance(plain, dict) else {}
    )


def checked_steps(steps: Any) -> int:
    """A number of environment steps to train for; 1e6 is one, -1 and "many" are none."""
    is_number = isinstance(steps, int | float | np.integer | np.floating) and not isinstance(steps, bool)
    if not is_number or not 0 <= steps < 2**63 or steps != int(steps):
        raise ValueError(
            f"learn was asked for {steps!r} steps; use a whole number of environment steps, 0 or more, or nothing for "
            "the planned total"
        )
    return int(steps)
