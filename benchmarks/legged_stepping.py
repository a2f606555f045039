"""How fast legged tasks step: the environment against a bare loop over `mujoco.batch` with the same fields.

    OMP_NUM_THREADS=1 gaitway bench legged_stepping --out benchmarks/results/legged_stepping.json

256 instances, precomputed actions, rounds that take turns, medians and ratios within a round. `bare` makes the motion
of the environment again: it writes the same controls and steps the batch from the same states, with the same models,
stage and bound fields, casts the rays of a fifth of the depth images, and resets nothing. `restarts` is what it costs
to begin a tenth of the episodes anew, as a share of a step. With several numbers of `--threads` the first one is
judged, and `by_threads` has all of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from _rounds import machine, revision, versions
from mujoco.batch import Batch

from gaitway.envs.legged.frame import base_pose
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.tasks.legged.ground import TERRAIN_GROUP
from gaitway.envs.tasks.legged.making import make_legged
from gaitway.envs.tasks.legged.task import LeggedTask

INSTANCES, WANTED, WANTED_RESTARTS = 256, 0.8, 0.15
IDS = (
    "pup12/gait_params",
    "pup12/gait_residual",
    "pup12/velocity",
    "pup4/velocity",
    "pup12/velocity_rough",
    "pup12/field_lite",
    "pup12/field",
)


def bare(task: LeggedTask, threads: int, start: np.ndarray) -> Batch:
    """A batch with the same model, in the states `start`; what the environment reads is bound."""
    batch = Batch(task.model, len(start), threads, task.persistent)
    for name in ("qpos", "qvel", *task.fields):
        batch.bind(name)
    batch.state[:] = start
    return batch


@contextmanager
def noted_controls(task: LeggedTask) -> Iterator[list[np.ndarray]]:
    """The controls [B, nu] of every step that is made meanwhile, as physics gets them."""
    controls: list[np.ndarray] = []
    task.before_step = lambda: controls.append(task.ctrl.copy())  # type: ignore[method-assign]
    try:
        yield controls
    finally:
        del task.before_step  # type: ignore[method-assign]


def make_again(
    task: LeggedTask,
    batch: Batch,
    controls: Sequence[np.ndarray],
    rays: tuple[np.ndarray, np.ndarray] | None = None,
) -> None:
    """Have the simulator alone make steps under `controls`, from the present states of `batch`, and cast a fifth of
    `rays` in each."""
    ctrl = batch.bind("ctrl")
    for number, each in enumerate(controls):
        ctrl[:] = each
        batch.step(nstep=task.frame_skip, stage=task.stage)
        if rays is not None:
            due = np.arange(number % 5, batch.nsim, 5, dtype=np.int32)
            batch.ray(*(part[due] for part in rays), geomgroup=TERRAIN_GROUP, ids=due)


def camera_rays(task: LeggedTask) -> tuple[np.ndarray, np.ndarray] | None:
    """Where the rays of all cameras begin and go [B, P, 3]; None for tasks without."""
    around, physics = task._around, task._physics
    if around is None or around.camera is None:
        return None
    position, rotation, _ = base_pose(task._logic.robot, physics.qpos)
    begins, ways = around.rays(torch.arange(INSTANCES), position, rotation)
    return begins.expand_as(ways).numpy().copy(), ways.numpy()


def measured(id: str, threads: int, rounds: int, steps: int, clock: Callable[[], float]) -> dict[str, object]:
    task = make_legged(id, {})
    env = MujocoBatchEnv(task, INSTANCES, num_threads=threads)
    actions = 0.2 * torch.randn(steps, INSTANCES, *env.spec.action.shape, generator=torch.Generator().manual_seed(0))
    for action in actions:
        env.step(action)
    batch = bare(task, threads, task.batch.state)
    rows = np.arange(0, INSTANCES, 10, dtype=np.int32)
    rays = camera_rays(task)
    found: dict[str, list[float]] = {"environment": [], "bare": [], "restart": []}
    for _ in range(rounds):
        for name in task.expanded:
            batch.expand(name)[:] = task.batch.expand(name)
        batch.set_const()
        batch.state[:] = task.batch.state
        with noted_controls(task) as controls:
            started = clock()
            for action in actions:
                env.step(action)
            found["environment"].append((clock() - started) / steps)
        started = clock()
        env._follow_up(rows, dict(env._buffers.obs))
        found["restart"].append(clock() - started)
        started = clock()
        make_again(task, batch, controls, rays)
        found["bare"].append((clock() - started) / steps)
    env.close()
    ratios = [a / b for a, b in zip(found["bare"], found["environment"], strict=True)]
    restarts = [a / b for a, b in zip(found["restart"], found["environment"], strict=True)]
    return {
        "steps_per_second": round(INSTANCES / statistics.median(found["environment"])),
        "bare_steps_per_second": round(INSTANCES / statistics.median(found["bare"])),
        "of_bare": round(statistics.median(ratios), 3),
        "restarts": round(statistics.median(restarts), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="of the simulator")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--ids", nargs="+", default=list(IDS))
    parser.add_argument("--cpu-time", action="store_true", help="count CPU seconds: for machines that others use too")
    parser.add_argument("--commit", default=None, help="what to write down as the commit (default: this checkout's)")
    options = parser.parse_args()
    clock = time.process_time if options.cpu_time else time.perf_counter
    torch.set_num_threads(1)
    by_threads: dict[str, dict[str, dict[str, object]]] = {}
    for threads in options.threads:
        found = by_threads[str(threads)] = {}
        for id in options.ids:
            found[id] = measured(id, threads, options.rounds, options.steps, clock)
            print(id, f"{threads} threads" if len(options.threads) > 1 else "", found[id], flush=True)
    rows = by_threads[str(options.threads[0])]
    about = {"benchmark": "legged_stepping", "machine": machine(), "versions": versions("mujoco", "torch")}
    result = {
        **about,
        "commit": options.commit or revision(),
        "instances": INSTANCES,
        "threads": options.threads[0],
        "cpu_time": options.cpu_time,
        "tasks": rows,
        **({"by_threads": by_threads} if len(by_threads) > 1 else {}),
    }
    if options.out:
        Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    slow = [id for id, row in rows.items() if row["of_bare"] < WANTED or row["restarts"] > WANTED_RESTARTS]  # type: ignore[operator]
    print(f"slower than asked for: {slow}" if slow else f"all at least {WANTED} of the bare loop")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
