"""The on-policy loop: collect a rollout, learn from it, log, evaluate, save. The only place where time passes."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gaitway.agents.captured import rollout_agent
from gaitway.algorithms.algorithm import Algorithm, Now, RewardSource, value_at
from gaitway.core.agent import Agents, TemporalAgent
from gaitway.core.seeding import stream
from gaitway.core.wiring import check_wiring
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.env_agent import EnvAgent, episode_ends
from gaitway.envs.vec_env import VecEnv
from gaitway.runners.finite import check_rollout, check_update
from gaitway.runners.logger import Logger
from gaitway.runners.progress import Progress
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner import Runner
from gaitway.runners.runner_config import RunnerConfig
from gaitway.runners.upkeep import Snapshot, Upkeep, counted_steps, first_observation, to_numbers

MEMORIES = ("actor/memory", "critic/memory")
"""Variables that hold the state before each row, and one row more."""


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
        folder: RunFolder | None = None,
        make_env: Callable[[str, int], VecEnv] | None = None,
        reward_sources: Sequence[RewardSource] = (),
        logger: Logger | None = None,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(env, algorithm, config, folder, make_env)
        config = self.config
        self.reward_sources = list(reward_sources)
        self.world = EnvAgent(env, self._groups_read(), final_obs=True)
        actor = rollout_agent(self.policy, algorithm.execution)
        self.cast = TemporalAgent(Agents(self.world.observe, actor, self.world.advance))
        self.rollout = self._allocate()
        self._check_reads()
        self.wiring = check_wiring([self.world.observe, self.policy, self.world.advance], self.rollout)
        self.policy_stream = stream(config.seed, "policy", env.device)
        self.upkeep = Upkeep(
            config,
            env,
            self.policy,
            lambda: Snapshot(self.state_dict()),
            folder=folder,
            make_env=make_env,
            logger=logger,
            progress=progress,
        )
        self.episodes, self.checkpoints = self.upkeep.episodes, self.upkeep.checkpoints
        self._ended: Tensor | None = None

    def state_dict(self) -> dict[str, Any]:
        """Everything a bit-exact resume needs."""
        carried = {name: self.rollout.at(name, self.rollout.T).clone() for name in self._carried()}
        return {
            "iteration": self.iteration,
            "env_steps": self.env_steps,
            "algorithm": self.algorithm.state_dict(),
            "sources": {source.name: source.state_dict() for source in self.reward_sources},
            "env": self.env.state_dict(),
            "carried": carried,
            "ended": self._ended,
            "policy_stream": self.policy_stream.get_state(),
            **self.upkeep.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._begun = True
        self.iteration, self.env_steps = state["iteration"], state["env_steps"]
        self.algorithm.load_state_dict(state["algorithm"])
        for source in self.reward_sources:
            source.load_state_dict(state["sources"][source.name])
        device = self.env.device
        self.world.restore(self.env.load_state_dict(state["env"]))
        for name, value in state["carried"].items():
            self.rollout.put(name, self.rollout.T, value.to(device))
        self._ended = None if state["ended"] is None else state["ended"].to(device)
        self.policy_stream.set_state(state["policy_stream"])
        self.upkeep.load_state_dict(state)
        if not self.env.spec.exact_state:  # every instance began a new episode: forget the old ones
            self._ended = torch.ones(self.env.num_envs, dtype=torch.bool, device=device)
            self.episodes.reset_running_returns()
            self.algorithm.reset_running_returns()

    def _begin(self) -> None:
        self.world.restore(first_observation(self.env, self.config))

    def _iterate(self, target: int) -> None:
        first_step = self.env_steps
        now = Now(self.iteration, self.env_steps, min(self.env_steps / self._planned, 1.0))
        with self.upkeep.keeping_failures(self.rollout, first_step):
            try:
                self._collect()
            except ValueError:  # an action of NaN is refused; say where the NaN came from
                check_rollout(self.rollout, self.env.spec, first_step)
                raise
            with self.upkeep.timed("learn"):
                numbers = to_numbers(self._annotate(now) | self.algorithm.update(self.rollout, now))
            self.iteration += 1
            self.env_steps += counted_steps(self.rollout)
            if self.config.finite_checks:
                with self.upkeep.timed("log"):
                    check_rollout(self.rollout, self.env.spec, first_step)
                    for parameters in self.algorithm.flat_parameters():
                        check_update(numbers, parameters, self.iteration, self.env_steps)
        with self.upkeep.timed("log"):
            self.episodes.add(self.rollout)
            self._log(numbers)
        self.upkeep.between_iterations(first_step, self.env_steps, is_last=self.env_steps >= target)

    @torch.inference_mode()
    def _collect(self) -> None:
        """One rollout; row 0 goes on from the last row of the one before, unless episodes must be whole."""
        started, simulated = time.perf_counter(), self.world.simulation_seconds
        ws, rows = self.rollout, self.algorithm.config.rollout_steps
        if self.algorithm.needs_whole_episodes and self.iteration:
            self.world.restore(self.env.reset())
            self.episodes.reset_running_returns()
            self._ended = torch.ones(self.env.num_envs, dtype=torch.bool, device=self.env.device)
        if self.iteration:
            for name in self._carried():
                ws.put(name, 0, ws.at(name, ws.T))
        self.cast(ws, 0, n_steps=rows, ended=self._ended, stochastic=True, generator=self.policy_stream)
        self._ended = episode_ends(ws)[-1].clone()
        simulated = self.world.simulation_seconds - simulated
        self.upkeep.clock["simulate"] += simulated
        self.upkeep.clock["infer"] += time.perf_counter() - started - simulated

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
        self.upkeep.log(self.env_steps, self.iteration, numbers, self.rollout)

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
