"""How good the policy is: evaluations in environments of their own, the best and the last of them, when to stop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from gaitway.agents.actor_critic import InferencePolicy
from gaitway.core.seeding import stream
from gaitway.envs.vec_env import VecEnv
from gaitway.runners.evaluate import evaluate
from gaitway.runners.runner_config import RunnerConfig
from gaitway.runners.video import record_episode

log = logging.getLogger("gaitway")

MakeEnv = Callable[[str, int], VecEnv]
"""(purpose, number of instances) -> an environment like the one trained in."""


class Judge:
    """Measures and films a policy. Without `make_env` it has nowhere to do so and stays silent."""

    def __init__(self, config: RunnerConfig, policy: Any, device: torch.device, make_env: MakeEnv | None) -> None:
        self.config, self.policy, self.device, self.make_env = config, policy, device, make_env
        self.best: dict[str, Any] = {}
        self.last: dict[str, Any] = {}
        self.evaluations_since_best = 0
        self._env: VecEnv | None = None
        self._films = True

    def measure(self, steps: int) -> dict[str, float] | None:
        """Evaluate the policy as it is after `steps`; `last`, and perhaps `best`, become the result."""
        if self.make_env is None:
            return None
        config = self.config.evaluation
        if self._env is None:
            self._env = self.make_env("evaluation", min(config.episodes, 64))
        self.policy.eval()
        result = evaluate(self._env, self._actor, config)
        self.policy.train()
        if config.metric not in result:
            raise ValueError(f"evaluation.metric is {config.metric!r}; the evaluation has {sorted(result)}")
        self.last = result | {"steps": steps}
        if not self.best or not result[config.metric] <= self.best[config.metric]:  # so that NaN never stays the best
            self.best = dict(self.last)
            self.evaluations_since_best = 0
        else:
            self.evaluations_since_best += 1
        log.info("step %d: evaluation %s", steps, " ".join(f"{k} {v:.4g}" for k, v in sorted(result.items())))
        return result

    def verdict(self) -> str | None:
        """The rule by which training should stop after the last evaluation, if any."""
        stop, metric = self.config.stop, self.config.evaluation.metric
        if stop.patience and self.evaluations_since_best >= stop.patience:
            return "patience"
        if stop.threshold is not None and metric in self.last and self.last[metric] >= stop.threshold:
            return "threshold"
        return None

    def film(self, path: Path) -> None:
        """One episode of the deterministic policy as a video."""
        if self.make_env is None or not self._films:
            return
        video = self.config.video
        with self.make_env("evaluation", 1) as env:
            shown = record_episode(
                env,
                self._actor(False),
                path,
                length=video.length,
                size=video.size,
                annotations=video.annotations,
                seed=0,
            )
        self._films = shown is not None  # what failed once fails again, and a GL library may not survive the second try

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
        if self._env is not None:
            self._env.close()
            self._env = None

    def _actor(self, stochastic: bool) -> InferencePolicy:
        return InferencePolicy(self.policy, stochastic, stream(self.config.seed, "evaluation", self.device))
