"""How fast environments step: the native batch against its own ceiling, EnvPool and gymnasium.

    OMP_NUM_THREADS=1 python benchmarks/env_stepping.py --out benchmarks/results/env_stepping.json

Same work for all: 64 HalfCheetah-v5 on two threads, precomputed random actions, observations and rewards produced.
`bare` is the ceiling: a loop over `mujoco.batch` with the same model and substeps that copies positions and velocities
out and does nothing else. A gate compares the states of the native environment and the bare loop before any timing.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from _rounds import Case, race, report, versions
from mujoco.batch import Batch

from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.tasks import NATIVE_TASKS

TASK = "HalfCheetah-v5"
Contestant = Callable[[int], None]
"""Takes a number of steps and makes them."""


def bare_loop(num_envs: int, num_threads: int, actions: np.ndarray) -> tuple[Contestant, Batch]:
    """Nothing but physics and a copy of its state; `actions` [N, B, A]."""
    task = NATIVE_TASKS[TASK]()
    batch = Batch(task.model, num_envs, num_threads)
    qpos, qvel, ctrl = batch.bind("qpos"), batch.bind("qvel"), batch.bind("ctrl")
    out_qpos, out_qvel = np.zeros(qpos.shape), np.zeros(qvel.shape)

    def run(steps: int) -> None:
        for step in range(steps):
            ctrl[:] = actions[step % len(actions)]
            batch.step(nstep=task.frame_skip)
            np.copyto(out_qpos, qpos)
            np.copyto(out_qvel, qvel)

    return run, batch


def native(env: MujocoBatchEnv, actions: np.ndarray) -> Contestant:
    tensors = list(torch.from_numpy(actions.astype(np.float32)))  # a policy's tensor would be there already

    def run(steps: int) -> None:
        for step in range(steps):
            env.step(tensors[step % len(tensors)])

    return run


def envpool_environment(num_envs: int, num_threads: int, actions: np.ndarray) -> Contestant:
    import envpool

    env = envpool.make_gymnasium(TASK, num_envs=num_envs, num_threads=num_threads)
    env.reset()

    def run(steps: int) -> None:
        for step in range(steps):
            env.step(actions[step % len(actions)])

    return run


def gymnasium_environment(num_envs: int, actions: np.ndarray) -> Contestant:
    import gymnasium

    env = gymnasium.make_vec(TASK, num_envs=num_envs, vectorization_mode="sync")
    env.reset(seed=0)
    actions = actions.astype(np.float32)

    def run(steps: int) -> None:
        for step in range(steps):
            env.step(actions[step % len(actions)])

    return run


def check_equal(env: MujocoBatchEnv, batch: Batch, run_bare: Contestant, run_native: Contestant, steps: int) -> None:
    """Both must reach the same states from the same start, or the comparison means nothing."""
    start = env.scenario()
    batch.bind("qpos")[:], batch.bind("qvel")[:] = start["qpos"].numpy(), start["qvel"].numpy()
    run_bare(steps)
    run_native(steps)
    if not np.array_equal(batch.bind("qpos"), env.scenario()["qpos"].numpy()):
        raise RuntimeError(f"the native environment and the bare loop disagree after {steps} steps")


def rate(run: Contestant, steps: int, num_envs: int) -> Callable[[], float]:
    """Instance steps per second of one round."""

    def measure() -> float:
        started = time.perf_counter()
        run(steps)
        return num_envs * steps / (time.perf_counter() - started)

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", default=None, help="JSON file to write")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=200, help="steps per round; gymnasium makes a tenth of them")
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--num-threads", type=int, default=2)
    options = parser.parse_args()
    if options.rounds < 9:
        parser.error("use at least 9 rounds, or the medians mean little")
    warnings.filterwarnings("ignore", message=".*settotalmass.*")
    torch.set_num_threads(1)

    num_envs, num_threads, steps = options.num_envs, options.num_threads, options.steps
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (256, num_envs, 6)).astype(np.float32).astype(np.float64)
    env = MujocoBatchEnv(NATIVE_TASKS[TASK](), num_envs, num_threads=num_threads)
    run_bare, batch = bare_loop(num_envs, num_threads, actions)
    run_native = native(env, actions)
    check_equal(env, batch, run_bare, run_native, 20)
    contestants = {"native": rate(run_native, steps, num_envs), "bare": rate(run_bare, steps, num_envs)}
    installed = versions("mujoco", "gymnasium", "envpool", "torch", "numpy")
    if installed["envpool"] != "absent":
        contestants["envpool"] = rate(envpool_environment(num_envs, num_threads, actions), steps, num_envs)
    few = max(1, steps // 10)
    contestants["gymnasium"] = rate(gymnasium_environment(num_envs, actions), few, num_envs)
    raw = race(contestants, options.rounds)
    pairs = [("native", name) for name in raw if name not in ("native", "bare")]
    name = f"{TASK}, {num_envs} instances, {num_threads} threads"
    report(options.out, "env_stepping", [Case(name, "steps/s", raw, pairs, "bare")], versions=installed)


if __name__ == "__main__":
    main()
