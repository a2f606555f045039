"""The on-policy loop: collect a rollout, learn from it, log, evaluate, save. The only place where time passes."""

from __future__ import annotations

import contextlib
import difflib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gaitway.agents.actor_critic import InferencePolicy, learnt_parameters
from gaitway.algorithms.algorithm import Now, RewardSource, value_at
from gaitway.algorithms.ppo import PPO
from gaitway.core.agent import Agents, TemporalAgent
from gaitway.core.seeding import global_state, set_global_state, stream
from gaitway.core.wiring import check_wiring
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.env_agent import EnvAgent, episode_ends
from gaitway.envs.vec_env import VecEnv
from gaitway.runners.checkpoint import Checkpoints, parameters_sha256
from gaitway.runners.episodes import EpisodeStatistics
from gaitway.runners.evaluate import evaluate
from gaitway.runners.finite import NotFiniteError, check_rollout, check_update, write_failure
from gaitway.runners.logger import Logger
from gaitway.runners.progress import Progress
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner_config import RunnerConfig
from gaitway.runners.signals import GracefulStop
from gaitway.runners.video import record_episode
from gaitway.version import __version__

log = logging.getLogger("gaitway")

MEMORIES = ("actor/memory", "critic/memory")
"""Variables that hold the state before each row, and one row more."""


class OnPolicyRunner:
    """Trains an on-policy algorithm in a vectorised environment.

    Without `folder` nothing is written. `make_env(purpose, num_envs)` makes the environments of evaluation and video;
    without it both are off.
    """

    def __init__(
        self,
        env: VecEnv,
        algorithm: PPO,
        config: RunnerConfig | None = None,
        *,
        folder: RunFolder | None = None,
        make_env: Callable[[str, int], VecEnv] | None = None,
        reward_sources: Sequence[RewardSource] = (),
        logger: Logger | None = None,
        progress: Progress | None = None,
    ) -> None:
        if algorithm.num_envs != env.num_envs:
            raise ValueError(
                f"the algorithm was made for {algorithm.num_envs} instances, the environment has {env.num_envs}"
            )
        self.env, self.algorithm, self.policy = env, algorithm, algorithm.policy
        self.config = config = config or RunnerConfig()
        self.folder, self.make_env = folder, make_env
        self.reward_sources = list(reward_sources)
        self.logger = logger or Logger(None if folder is None else folder.path)
        self.progress = progress
        self.world = EnvAgent(env, self._groups_read(), final_obs=True)
        self.cast = TemporalAgent(Agents(self.world.observe, self.policy, self.world.advance))
        self.rollout = self._allocate()
        self._check_reads()
        self.wiring = check_wiring([self.world.observe, self.policy, self.world.advance], self.rollout)
        self.policy_stream = stream(config.seed, "policy", env.device)
        self.episodes = EpisodeStatistics(env.num_envs)
        self.checkpoints = None
        if folder is not None:
            self.checkpoints = Checkpoints(folder.checkpoints, folder.run_id, config.checkpoints)
        self.iteration = 0
        self.env_steps = 0
        self.seconds = 0.0
        self.best: dict[str, Any] = {}
        self.last: dict[str, Any] = {}
        self.evaluations_since_best = 0
        self.stopped_by: str | None = None
        self._ended: Tensor | None = None
        self._films = True
        self._begun = False
        self._planned = config.total_steps
        self._started = time.perf_counter()
        self._saved_at: int | None = None
        self._evaluation_env: VecEnv | None = None
        self._clock = {"simulate": 0.0, "infer": 0.0, "learn": 0.0, "log": 0.0}

    def learn(self, steps: int | None = None) -> dict[str, Any]:
        """Train for `steps` more environment steps (default: up to the planned total); returns the summary."""
        target = self.config.total_steps if steps is None else self.env_steps + steps
        self.stopped_by = None
        self._planned = max(self.config.total_steps, target)
        self._started = time.perf_counter() - self.seconds
        with contextlib.ExitStack() as stack:
            signals = stack.enter_context(GracefulStop())
            if self.progress is not None:
                stack.enter_context(self.progress)
            if not self._begun:
                self._begin()
            while self.env_steps < target and self.stopped_by is None:
                self._iterate(target)
                if signals.requested is not None:
                    self.stopped_by = signals.requested
            self._save()
        summary = self.summary()
        if self.folder is not None:
            self.folder.write_summary(summary)
        return summary

    def inference_policy(self, stochastic: bool = False) -> InferencePolicy:
        """The policy as a function of observations, with its normaliser and memory; call `reset` between episodes."""
        generator = stream(self.config.seed, "inference", self.env.device) if stochastic else None
        return InferencePolicy(self.policy, stochastic, generator)

    @property
    def is_saved(self) -> bool:
        """Whether the present state is in the run folder (True if there is none to be in)."""
        return self.checkpoints is None or self._saved_at == self.env_steps

    def parameters_sha256(self) -> str:
        return parameters_sha256(learnt_parameters({"policy": self.policy}))

    def summary(self) -> dict[str, Any]:
        """What summary.json says."""
        return {
            "last": self.last,
            "best": self.best,
            "steps": self.env_steps,
            "seconds": round(self.seconds, 3),
            "steps_per_second": round(self.env_steps / self.seconds, 1) if self.seconds else 0.0,
            "stopped_by": self.stopped_by,
        }

    def resume(self, which: str = "last") -> int:
        """Restore a checkpoint of this run's folder; returns its environment steps."""
        if self.checkpoints is None:
            raise ValueError("this runner has no run folder to resume from; pass folder=RunFolder(...)")
        state, steps = self.checkpoints.load(which)
        self.load_state_dict(state)
        self._saved_at = steps
        return steps

    def state_dict(self) -> dict[str, Any]:
        """Everything a bit-exact resume needs."""
        carried = {name: self.rollout.at(name, self.rollout.T).clone() for name in self._carried()}
        return {
            "version": __version__,
            "iteration": self.iteration,
            "env_steps": self.env_steps,
            "seconds": self.seconds,
            "algorithm": self.algorithm.state_dict(),
            "sources": {source.name: source.state_dict() for source in self.reward_sources},
            "env": self.env.state_dict(),
            "carried": carried,
            "ended": self._ended,
            "policy_stream": self.policy_stream.get_state(),
            "global_streams": global_state(),
            "episodes": self.episodes.state_dict(),
            "best": dict(self.best),
            "last": dict(self.last),
            "evaluations_since_best": self.evaluations_since_best,
            "logger": self.logger.position(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._begun = True
        self.iteration, self.env_steps, self.seconds = state["iteration"], state["env_steps"], state["seconds"]
        self.algorithm.load_state_dict(state["algorithm"])
        for source in self.reward_sources:
            source.load_state_dict(state["sources"][source.name])
        device = self.env.device
        self.world.restore(self.env.load_state_dict(state["env"]))
        for name, value in state["carried"].items():
            self.rollout.put(name, self.rollout.T, value.to(device))
        self._ended = None if state["ended"] is None else state["ended"].to(device)
        self.policy_stream.set_state(state["policy_stream"])
        set_global_state(state["global_streams"])
        self.episodes.load_state_dict(state["episodes"])
        self.best, self.last = dict(state["best"]), dict(state["last"])
        self.evaluations_since_best = state["evaluations_since_best"]
        self.logger.truncate(state["logger"])
        if not self.env.spec.exact_state:  # every instance began a new episode: forget the old ones
            self._ended = torch.ones(self.env.num_envs, dtype=torch.bool, device=device)
            self.episodes.forget_running()
            self.algorithm.forget_running()

    def close(self) -> None:
        """Close the evaluation environment and the logger; the training environment belongs to the caller."""
        if self._evaluation_env is not None:
            self._evaluation_env.close()
            self._evaluation_env = None
        self.logger.close()

    def _begin(self) -> None:
        self._begun = True
        self.world.restore(self.env.reset())  # before the first checkpoint, which must hold the very start
        if self.config.stagger_timeouts and self.env.spec.max_episode_steps:
            generator = stream(self.config.seed, "stagger")
            ages = torch.randint(self.env.spec.max_episode_steps, (self.env.num_envs,), generator=generator)
            self.env.set_elapsed(ages)
        self._save()

    def _iterate(self, target: int) -> None:
        first_step = self.env_steps
        now = Now(self.iteration, self.env_steps, min(self.env_steps / self._planned, 1.0))
        try:
            try:
                self._collect()
            except ValueError:  # an action of NaN is refused; say where the NaN came from
                check_rollout(self.rollout, self.env.spec, first_step)
                raise
            started = time.perf_counter()
            metrics = self._annotate(now)
            metrics |= self.algorithm.update(self.rollout, now)
            numbers = to_numbers(metrics)
            self._clock["learn"] += time.perf_counter() - started
            started = time.perf_counter()
            self.iteration += 1
            self.env_steps += self._counted_steps()
            if self.config.finite_checks:
                check_rollout(self.rollout, self.env.spec, first_step)
                check_update(numbers, self.algorithm.engine.parameters.value.data, self.iteration, self.env_steps)
        except NotFiniteError as error:
            if self.folder is not None:
                path = self.folder.failures / str(first_step)
                write_failure(path, error, self.rollout, self.folder.checkpoints / "last")
            raise
        self.episodes.add(self.rollout)
        self.seconds = time.perf_counter() - self._started
        self._log(numbers)
        self._clock["log"] += time.perf_counter() - started
        if crossed(first_step, self.env_steps, self.config.evaluation.interval) or self.env_steps >= target:
            self._evaluate()
        if crossed(first_step, self.env_steps, self.config.checkpoints.interval):
            self._save()
        if crossed(first_step, self.env_steps, self.config.video.interval):
            self._record_video()
        self.seconds = time.perf_counter() - self._started

    @torch.inference_mode()
    def _collect(self) -> None:
        """One rollout; row 0 goes on from the last row of the one before."""
        started, simulated = time.perf_counter(), self.world.simulation_seconds
        ws, rows = self.rollout, self.algorithm.config.rollout_steps
        if self.iteration:
            for name in self._carried():
                ws.put(name, 0, ws.at(name, ws.T))
        self.cast(ws, 0, n_steps=rows, ended=self._ended, stochastic=True, generator=self.policy_stream)
        self._ended = episode_ends(ws)[-1].clone()
        simulated = self.world.simulation_seconds - simulated
        self._clock["simulate"] += simulated
        self._clock["infer"] += time.perf_counter() - started - simulated

    def _annotate(self, now: Now) -> dict[str, Tensor]:
        """Let the reward sources speak, write `reward/total`, let them learn."""
        if not self.reward_sources:
            return {}
        ws = self.rollout
        metrics: dict[str, Tensor] = {}
        total = ws["env/reward"].clone()
        for source in self.reward_sources:
            source.annotate(ws)
            total += value_at(source.weight, now) * ws[f"reward/{source.name}"]
            metrics |= source.update(ws)
        ws["reward/total"] = total
        return metrics

    def _log(self, numbers: dict[str, float]) -> None:
        metrics = {name if "/" in name else f"train/{name}": value for name, value in numbers.items()}
        metrics |= self.episodes.metrics(self.rollout)
        shares, rate = self._shares(), self.env_steps / self.seconds if self.seconds else 0.0
        if self.iteration % self.config.log_interval == 0:
            times = {f"share_{name}": share for name, share in shares.items()}
            self.logger.log(self.env_steps, metrics, {"seconds": self.seconds, "steps_per_second": rate, **times})
        if self.progress is not None:
            self.progress.update(self.env_steps, metrics | {f"best/{k}": v for k, v in self.best.items()}, shares)

    def _evaluate(self) -> None:
        if self.make_env is None:
            return
        config = self.config.evaluation
        if self._evaluation_env is None:
            self._evaluation_env = self.make_env("evaluation", min(config.episodes, 64))
        self.policy.eval()
        result = evaluate(self._evaluation_env, self._evaluation_policy, config)
        self.policy.train()
        if config.metric not in result:
            raise ValueError(f"evaluation.metric is {config.metric!r}; the evaluation has {sorted(result)}")
        self.last = result | {"steps": self.env_steps}
        self.logger.log(self.env_steps, {f"eval/{name}": value for name, value in result.items()}, {})
        if not self.best or not result[config.metric] <= self.best[config.metric]:  # so that NaN never stays the best
            self.best = dict(self.last)
            self.evaluations_since_best = 0
        else:
            self.evaluations_since_best += 1
        if self.config.stop.threshold is not None and result[config.metric] >= self.config.stop.threshold:
            self.stopped_by = "threshold"
        if self.config.stop.patience and self.evaluations_since_best >= self.config.stop.patience:
            self.stopped_by = "patience"
        log.info("step %d: evaluation %s", self.env_steps, " ".join(f"{k} {v:.4g}" for k, v in sorted(result.items())))
        self._save()
        if self.folder is not None:
            self.folder.write_summary(self.summary())

    def _evaluation_policy(self, stochastic: bool) -> InferencePolicy:
        return InferencePolicy(self.policy, stochastic, stream(self.config.seed, "evaluation", self.env.device))

    def _record_video(self) -> None:
        if self.make_env is None or self.folder is None or not self._films:
            return
        with self.make_env("evaluation", 1) as env:
            path = self.folder.videos / f"{self.env_steps}.mp4"
            video = self.config.video
            shown = record_episode(
                env, self._evaluation_policy(False), path, length=video.length, size=video.size,
                annotations=video.annotations, seed=0,
            )  # fmt: skip
        self._films = shown is not None  # what failed once fails again, and a GL library may not survive the second try

    def _save(self) -> None:
        if self.checkpoints is None or self.is_saved:
            return
        if self.checkpoints.save(self.env_steps, self.state_dict(), self.best.get("steps")):
            self._saved_at = self.env_steps

    def _counted_steps(self) -> int:
        return int(self.rollout["env/valid"].sum()) if "env/valid" in self.rollout else self.rollout.T * self.rollout.B

    def _groups_read(self) -> tuple[str, ...]:
        names = [name for source in self.reward_sources for name in source.reads]
        names += list(self.algorithm.reads) + list(self.policy.reads)
        groups = [name.removeprefix("env/obs/") for name in names if name.startswith("env/obs/")]
        return tuple(dict.fromkeys(groups))

    def _check_reads(self) -> None:
        """What terms and reward sources read must be in the rollout, or be written by a reward source."""
        known = [*self.rollout, *(f"reward/{source.name}" for source in self.reward_sources), "reward/total"]
        for name in [*self.algorithm.reads, *(name for source in self.reward_sources for name in source.reads)]:
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                raise ValueError(
                    f"a term or reward source reads {name!r}, which nobody writes; nearest: {close or known}"
                )

    def _allocate(self) -> Workspace:
        rows = self.algorithm.config.rollout_steps
        variables: dict[str, Variable] = self.world.variables(rows) | self.policy.variables(self.env.num_envs, rows)
        return Workspace.dense(variables, self.env.device, extra_row=tuple(map(self.policy.out, MEMORIES)))

    def _carried(self) -> list[str]:
        """Variables whose last row opens the next rollout, apart from observations (the environment repeats those)."""
        return [name for name in map(self.policy.out, MEMORIES) if name in self.rollout]

    def _shares(self) -> dict[str, float]:
        total = sum(self._clock.values()) or 1.0
        return {name: seconds / total for name, seconds in self._clock.items()}


def crossed(before: int, after: int, interval: int) -> bool:
    """Whether a multiple of `interval` lies in (before, after]; never for 0."""
    return interval > 0 and after // interval > before // interval


def to_numbers(metrics: dict[str, Tensor]) -> dict[str, float]:
    """All metrics as Python floats, with one transfer from the device."""
    if not metrics:
        return {}
    device = next(iter(metrics.values())).device
    values = torch.stack([value.detach().to(device, torch.float32).reshape(()) for value in metrics.values()])
    return dict(zip(metrics, values.tolist(), strict=True))
