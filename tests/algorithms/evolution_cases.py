"""Runners of evolution on small tasks, and environments that cause trouble: module-level, so that other processes can
import them. As a script it trains until a signal ends it."""

import functools
import multiprocessing
import os
import sys
from dataclasses import replace

import worker_cast  # noqa: F401  it says, too, what the server of processes imports; the last one counts

from gaitway.agents.actor_critic import ActorCritic
from gaitway.algorithms.evolution import CEM, ES, CEMConfig, ESConfig, EvolvedActorConfig
from gaitway.core.seeding import stream
from gaitway.envs.registry import make_env
from gaitway.envs.wrappers import Wrapper
from gaitway.processes.workers import WorkerConfig
from gaitway.runners.checkpoint import CheckpointConfig
from gaitway.runners.evaluate import EvaluationConfig
from gaitway.runners.evolution import EvolutionRunner
from gaitway.runners.logger import Logger
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner_config import RunnerConfig

multiprocessing.set_forkserver_preload(
    ["gaitway.processes.remote", "gaitway.envs.toys.toy_env", "gaitway.runners.evolution"]
)
FAST = WorkerConfig(start_method="forkserver")
"""Workers forked from a server that has imported PyTorch already."""

KINDS = {
    "cem": (CEM, CEMConfig(population=6, episodes=2, max_episode_steps=60)),
    "es": (ES, ESConfig(population=6, episodes=2, max_episode_steps=60)),
}
NETWORKS = EvolvedActorConfig(actor_hidden=(4,), critic_hidden=(4,))
BASE = RunnerConfig(
    total_steps=1000,
    evaluation=EvaluationConfig(interval=500, episodes=2, max_steps=60),
    checkpoints=CheckpointConfig(interval=1000),
)


class Raising(Wrapper):
    """Breaks at the third step of training."""

    def __init__(self, **settings):
        self._breaks = settings.get("purpose", "train") == "train"
        super().__init__(make_env("toy/cartpole", **settings))
        self._steps = 0

    def step(self, action):
        self._steps += 1
        if self._breaks and self._steps == 3:
            raise ValueError("the pole broke\n(second line)")
        return super().step(action)


class Unpaid(Wrapper):
    """Rewards that are not numbers."""

    def step(self, action):
        step = super().step(action)
        return replace(step, reward=step.reward * float("nan"))


class Telling(Wrapper):
    """Tells through a FIFO, once, in which process it runs; with `gate` it then waits there for ever."""

    def __init__(self, env, fifo, gate=None):
        super().__init__(env)
        self.fifo, self.gate = fifo, gate

    def step(self, action):
        if self.fifo is not None:
            with open(self.fifo, "w") as fifo:
                fifo.write(f"{os.getpid()}\n")
            self.fifo = None
            if self.gate is not None:
                open(self.gate).close()  # nobody will ever open the other end
        return super().step(action)


def toy(purpose, num_envs, seed=0):
    return make_env("toy/cartpole", num_envs=num_envs, seed=seed, purpose=purpose)


def raising(purpose, num_envs):
    return Raising(num_envs=num_envs, purpose=purpose)


def unpaid(purpose, num_envs):
    return Unpaid(toy(purpose, num_envs))


def telling(fifo, gate, purpose, num_envs):
    env = toy(purpose, num_envs)
    return Telling(env, fifo, gate) if purpose == "train" else env


def make_runner(kind="cem", processes=0, config=BASE, make=None, folder=None, **changes):
    env = toy("train", 1, config.seed)
    policy = ActorCritic(env.spec, NETWORKS, stream(config.seed, "parameters"))
    algorithm, settings = KINDS[kind]
    settings = replace(settings, processes=processes, **changes)
    runner = EvolutionRunner(
        env,
        algorithm(policy, settings, num_envs=1, seed=config.seed),
        config,
        make_env=make or functools.partial(toy, seed=config.seed),
        folder=folder,
        logger=None if folder is None else Logger(folder.path),
    )
    runner.population.config = FAST
    return runner


def main(path, fifo, gate=None):
    config = replace(BASE, total_steps=10**9, evaluation=EvaluationConfig(interval=0, episodes=1, max_steps=10))
    folder = RunFolder.create(path)
    make = functools.partial(telling, fifo, gate)
    runner = make_runner(processes=2, config=config, make=make, folder=folder, population=64)
    runner.population.config = WorkerConfig(start_method="fork")  # no further process that serves
    try:
        runner.learn()
    finally:
        runner.close()
        print(f"stopped by {runner.stopped_by}, {len(multiprocessing.active_children())} children")


if __name__ == "__main__":
    main(*sys.argv[1:])
