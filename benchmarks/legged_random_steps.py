"""Random actions on every legged task: nothing escapes, nothing is NaN.

    OMP_NUM_THREADS=1 gaitway bench legged_random_steps --out benchmarks/results/legged_random_steps.json

Actions are uniform over half of their limits. Counted are numbers that are not finite in observations and rewards,
physics faults, and robots below the ground or further than 200 m away; all must be 0 but for faults, which may come
once in 10,000 steps. Every id is written when it is done; with `--go-on` those that the file has with as many steps are
left as they are.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from _rounds import machine, revision, versions

from gaitway.envs.legged.presets import PRESETS
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.tasks.legged.making import make_legged

INSTANCES, FAULTS = 256, 1e-4
LOWEST, FURTHEST = -1.0, 200.0


def played(id: str, steps: int, threads: int) -> dict[str, float]:
    task = make_legged(id, {})
    env = MujocoBatchEnv(task, INSTANCES, num_threads=threads)
    generator = torch.Generator().manual_seed(0)
    found = {"steps": 0, "not_finite": 0, "faults": 0, "escaped": 0, "ends": 0}
    limit = torch.tensor(env.spec.action.high).clamp(max=4.0) / 2
    place = list(task.view.root[1][:1]) if task.view.is_planar else [0, 1]
    started = time.perf_counter()
    while found["steps"] < steps:
        action = limit * (2.0 * torch.rand(INSTANCES, *env.spec.action.shape, generator=generator) - 1.0)
        step = env.step(action)
        values = (*step.obs.values(), *step.final_obs.values(), step.reward)
        found["not_finite"] += sum(int((~torch.isfinite(value.float())).sum()) for value in values)
        found["faults"] += int(step.metrics["physics_error"].sum())
        away = abs(task.qpos[:, place]).max(axis=1) > FURTHEST
        found["escaped"] += int((away | (task.qpos[:, task.view.height] < LOWEST)).sum())
        found["ends"] += int((step.terminated | step.truncated).sum())
        found["steps"] += INSTANCES
    env.close()
    return {**found, "seconds": round(time.perf_counter() - started, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ids", nargs="+", default=[id for id in PRESETS if id != "legged:velocity"])
    parser.add_argument("--go-on", action="store_true", help="keep what --out already holds")
    parser.add_argument("--commit", default=None, help="what to write down as the commit (default: this checkout's)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[str, dict[str, Any]] = {}
    about = {"benchmark": "legged_random_steps", "machine": machine(), "versions": versions("mujoco", "torch")}
    commit = options.commit or revision()
    if options.go_on and options.out and Path(options.out).exists():
        found = json.loads(Path(options.out).read_text())["tasks"]
        rows = {id: row for id, row in found.items() if row["steps"] >= options.steps and "commit" in row}
    for id in (id for id in options.ids if id not in rows):
        rows[id] = {**played(id, options.steps, options.threads), "commit": commit}
        print(id, rows[id], flush=True)
        if options.out:
            Path(options.out).write_text(json.dumps({**about, "tasks": rows}, indent=1) + "\n")
    wrong = [
        id for id, row in rows.items() if row["not_finite"] or row["escaped"] or row["faults"] > FAULTS * row["steps"]
    ]
    print(f"wrong: {wrong}" if wrong else "nothing escaped, everything is finite")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
