"""How fast environments step: the native batch against its own ceiling, EnvPool and gymnasium.

    OMP_NUM_THREADS=1 python benchmarks/env_stepping.py --out benchmarks/results/env_stepping.json

Same work for all: 64 HalfCheetah-v5 on two threads, precomputed random actions, observations and rewards produced.
`bare` is the ceiling: a loop over `mujoco.batch` with the same model and substeps that copies positions and velocities
out and does nothing else. Every round times all contestants, in rotated order; figures are medians over rounds, ratios
are formed within a round. A gate compares the states of the native environment and the bare loop before any timing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import torch
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


def measure(contestants: dict[str, tuple[Contestant, int]], rounds: int, num_envs: int) -> dict[str, list[float]]:
    """Instance steps per second of every contestant in every round; the order rotates by one from round to round."""
    names = list(contestants)
    rates: dict[str, list[float]] = {name: [] for name in names}
    for run, steps in contestants.values():
        run(max(1, steps // 4))
    for index in range(rounds):
        shift = index % len(names)
        for name in names[shift:] + names[:shift]:
            run, steps = contestants[name]
            begin = time.perf_counter()
            run(steps)
            rates[name].append(num_envs * steps / (time.perf_counter() - begin))
    return rates


def ratio(rates: dict[str, list[float]], top: str, bottom: str) -> dict[str, float]:
    """Median of the ratios within rounds and a 95 % bootstrap interval of it."""
    pairs = np.array(rates[top]) / np.array(rates[bottom])
    draws = np.random.default_rng(0).choice(pairs, (2000, len(pairs)))
    low, high = np.quantile(np.median(draws, axis=1), (0.025, 0.975))
    return {"median": float(np.median(pairs)), "low": float(low), "high": float(high)}


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=200, help="steps per round; gymnasium makes a tenth of them")
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--num-threads", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.rounds < 9:
        parser.error("use at least 9 rounds, or the medians mean little")
    warnings.filterwarnings("ignore", message=".*settotalmass.*")
    torch.set_num_threads(1)

    num_envs, num_threads, steps = arguments.num_envs, arguments.num_threads, arguments.steps
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (256, num_envs, 6)).astype(np.float32).astype(np.float64)
    env = MujocoBatchEnv(NATIVE_TASKS[TASK](), num_envs, num_threads=num_threads)
    run_bare, batch = bare_loop(num_envs, num_threads, actions)
    run_native = native(env, actions)
    check_equal(env, batch, run_bare, run_native, 20)
    contestants: dict[str, tuple[Contestant, int]] = {"bare": (run_bare, steps), "native": (run_native, steps)}
    if installed("envpool") != "absent":
        contestants["envpool"] = (envpool_environment(num_envs, num_threads, actions), steps)
    contestants["gymnasium"] = (gymnasium_environment(num_envs, actions), max(1, steps // 10))

    rates = measure(contestants, arguments.rounds, num_envs)
    print(f"{TASK}, {num_envs} instances, {num_threads} threads, {arguments.rounds} rounds of {steps} steps")
    for name, values in rates.items():
        print(f"{name:>10}: {statistics.median(values):10.0f} steps/s  (from {min(values):.0f} to {max(values):.0f})")
    ratios = {f"native/{name}": ratio(rates, "native", name) for name in rates if name != "native"}
    for name, value in ratios.items():
        print(f"{name:>17}: {value['median']:6.3f}  (95 % interval {value['low']:.3f} to {value['high']:.3f})")
    if arguments.out:
        result = {
            "task": TASK,
            "num_envs": num_envs,
            "num_threads": num_threads,
            "rounds": arguments.rounds,
            "steps": steps,
            "steps_per_second": rates,
            "ratios": ratios,
            "machine": {"processor": platform.machine(), "cpus": len(os.sched_getaffinity(0))},
            "versions": {name: installed(name) for name in ("mujoco", "gymnasium", "envpool", "torch", "numpy")},
        }
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
