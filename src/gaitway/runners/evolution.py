"""The evolutionary loop: ask for individuals, let each play whole episodes, tell their fitness; log, evaluate, save."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.policy import InferencePolicy
from gaitway.algorithms.evolution import Evolution, evolved
from gaitway.core.agent import Agent
from gaitway.core.seeding import check_seed, named_sequence
from gaitway.core.workspace import Workspace
from gaitway.envs.vec_env import VecEnv
from gaitway.nn.parameters import vector_to_parameters
from gaitway.processes.population import ParamPopulation
from gaitway.runners.evaluate import play_episodes
from gaitway.runners.finite import NotFiniteError
from gaitway.runners.judge import MakeEnv
from gaitway.runners.logger import Logger
from gaitway.runners.progress import Progress
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner import Runner
from gaitway.runners.runner_config import RunnerConfig
from gaitway.runners.upkeep import to_numbers

SEEDS_PER_GENERATION = 2**20
"""Individual i of generation g plays on seed `first + g * SEEDS_PER_GENERATION + i`; `first` is the run's own."""


class EvolutionRunner(Runner):
    """Trains by evolution. `make_env(purpose, num_envs)` must be picklable where processes play: they call it too.

    An iteration is a generation. `env` only says what the task is; individuals play in environments of their own.
    """

    algorithm: Evolution

    def __init__(
        self,
        env: VecEnv,
        algorithm: Evolution,
        config: RunnerConfig | None = None,
        *,
        make_env: MakeEnv,
        folder: RunFolder | str | Path | None = None,
        callbacks: Sequence[Any] = (),
        logger: Logger | None = None,
        progress: Progress | bool | None = None,
    ) -> None:
        super().__init__(env, algorithm, config, folder, make_env)
        settings = algorithm.config
        self._own_env = OwnEnv(functools.partial(make_env, "train", settings.episodes))
        # a copy that stays as it is, so that workers get it once; individuals bring their parameters along
        player = EpisodePlayer(algorithm.policy.clone(), self._own_env, settings.max_episode_steps)
        self.population = ParamPopulation(player, settings.processes, workers=settings.workers)
        self._first_seed = int(named_sequence(self.config.seed, "evolution").generate_state(1, np.uint32)[0])
        self._keep_house(callbacks, logger, progress)

    def state_dict(self) -> dict[str, Any]:
        return {
            "iteration": self.iteration,
            "env_steps": self.env_steps,
            "algorithm": self.algorithm.state_dict(),
            **self.upkeep.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._begun = True
        self.iteration, self.env_steps = state["iteration"], state["env_steps"]
        self.algorithm.load_state_dict(state["algorithm"])
        self.upkeep.load_state_dict(state)

    def close(self) -> None:
        """End the processes, close all environments but the one that was given, and the logger."""
        self.population.close()
        self._own_env.close()
        super().close()

    def _begin(self) -> None:
        """The first generation starts from the networks as they were made."""

    def _iterate(self, target: int) -> None:
        before, settings = self.env_steps, self.algorithm.config
        with self.upkeep.timed("simulate"):
            individuals = self.algorithm.ask()
            self.population.seed = self._first_seed + self.iteration * SEEDS_PER_GENERATION
            played = self.population(individuals, load_individual)
            returns, lengths = (
                torch.stack([ws.at(name, 0) for ws in played if ws is not None]) for name in EpisodePlayer.writes
            )
        fitness, steps = returns.mean(1), int(lengths.sum())
        self._check_fitness(fitness)
        with self.upkeep.timed("learn"):
            numbers = to_numbers(self.algorithm.tell(fitness))
        self.iteration += 1
        self.env_steps += steps
        if self.config.finite_checks:
            self._check_learnt(numbers)
        numbers |= {"return": float(fitness.mean()), "best_return": float(fitness.max())}
        episodes = settings.population * settings.episodes
        numbers |= {"length": steps / episodes, "episodes": float(self.iteration * episodes)}
        with self.upkeep.timed("log"):
            self.upkeep.log(self.env_steps, self.iteration, numbers)
        self.upkeep.between_iterations(before, self.env_steps, is_last=self.env_steps >= target)

    def _check_fitness(self, fitness: Tensor) -> None:
        bad = (~torch.isfinite(fitness)).nonzero().flatten().tolist()
        if bad:
            raise NotFiniteError(
                f"the return of individual {bad[0]} is {float(fitness[bad[0]])} in generation {self.iteration + 1} "
                f"(environment step {self.env_steps}); look at the rewards of {self.env.spec.id}, the last checkpoint "
                "is good",
                {"term": "return", "individual": bad[0], "iteration": self.iteration, "env_steps": self.env_steps},
            )


class EpisodePlayer(Agent):
    """Plays one whole episode in each instance of an environment; writes `return` and `length`, float64 [B]."""

    writes = ("return", "length")

    def __init__(self, policy: ActorCritic, env: Callable[[], VecEnv], max_steps: int = 10_000) -> None:
        super().__init__()
        self.policy, self.env, self.max_steps = policy, env, max_steps
        self.first_seed = 0

    def seed(self, seed: int) -> Self:
        """Episode k starts from a state that depends on this seed and k alone."""
        self.first_seed = check_seed(seed)
        self.policy.seed(seed)
        return self

    def step(self, ws: Workspace, t: int, *, stochastic: bool = False) -> None:
        found = play_episodes(self.env(), InferencePolicy(self.policy, stochastic), self.first_seed, self.max_steps)
        for name in self.writes:
            ws.put(name, t, found[name])


def load_individual(agent: Agent, vector: Tensor) -> None:
    """Give a player the parameters of an individual."""
    assert isinstance(agent, EpisodePlayer)
    vector_to_parameters(vector, evolved(agent.policy))


class OwnEnv:
    """An environment that is made when it is first asked for, once in each process: copies of this share it there."""

    def __init__(self, make: Callable[[], VecEnv], name: str | None = None) -> None:
        self.make = make
        self.name = name or f"{os.getpid()}-{next(_numbers)}"
        self._env: VecEnv | None = None

    def __call__(self) -> VecEnv:
        if self._env is None:
            self._env = self.make()
        return self._env

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None

    def __deepcopy__(self, memo: dict[int, Any]) -> OwnEnv:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _own_env_here, (self.make, self.name)


_numbers = itertools.count()
_own_envs: dict[str, OwnEnv] = {}
"""Those that came to this process from another one."""


def _own_env_here(make: Callable[[], VecEnv], name: str) -> OwnEnv:
    if name not in _own_envs:
        for former in _own_envs.values():
            former.close()
        _own_envs.clear()
        _own_envs[name] = OwnEnv(make, name)
    return _own_envs[name]
