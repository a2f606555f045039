"""A million random actions in every task of the bipedal-skills benchmark: nothing may break.

    gaitway bench bipedal_soak --threads 2 --out benchmarks/results/bipedal_soak.json

Every task is played with the robots of `--robots`; the others get a tenth of the steps, and so do those of `--robots`
when their falls do not end an episode and they lie about among the obstacles for a thousand steps. Counted are
episodes, falls and physics errors, which end the episode of their own instance. What may not happen at all: an
observation, a reward or a metric that is not finite, an instance that goes on beyond its time limit, an error that
reaches the caller. The exit code is 1 if any of it did. Results are written after every robot; those of other tasks in
the file stay.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path

import torch
from _rounds import machine, revision, versions

from gaitway import make_env
from gaitway.envs.robots.registry import ROBOTS
from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.tasks.bisk import BENCHMARK_TASKS

INSTANCES = 256


def soak(id: str, steps: int, threads: int, **task: bool) -> dict[str, float]:
    """`steps` random actions in all instances together."""
    env = make_env(id, num_envs=INSTANCES, seed=0, num_threads=threads, **task)
    generator = torch.Generator().manual_seed(0)
    action = torch.empty(INSTANCES, *env.spec.action.shape)
    found = dict.fromkeys(("steps", "episodes", "falls", "physics_errors", "score", "not_finite", "too_old"), 0.0)
    started = time.perf_counter()
    for _ in range(-(-steps // INSTANCES)):
        step = env.step(action.uniform_(-1.0, 1.0, generator=generator))
        told = [*step.obs.values(), *step.final_obs.values(), step.reward, *step.metrics.values()]
        found["not_finite"] += sum(int((~torch.isfinite(value)).sum()) for value in told)
        found["too_old"] += int((env.elapsed > env.spec.max_episode_steps).sum())
        found["steps"] += INSTANCES
        found["episodes"] += int((step.terminated | step.truncated).sum())
        found["falls"] += float(step.metrics["fell"].sum())
        found["physics_errors"] += float(step.metrics["physics_error"].sum())
        found["score"] += float(step.metrics["score"].sum())
    found["seconds"] = round(time.perf_counter() - started, 1)
    env.close()
    return found


def _say(name: str, row: dict[str, float]) -> None:
    print(f"{name:42}", "  ".join(f"{key} {value:,.0f}" for key, value in row.items()), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--steps", type=int, default=1_000_000, help="of every task with each of the --robots")
    parser.add_argument("--robots", nargs="+", default=["walker", "humanoid"], choices=list(ROBOTS))
    parser.add_argument("--tasks", nargs="+", default=list(BENCHMARK_TASKS), choices=list(BENCHMARK_TASKS))
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    about = {"benchmark": "bipedal_soak", "machine": machine(), "versions": versions("mujoco"), "instances": INSTANCES}
    kept = json.loads(Path(options.out).read_text()) if options.out and Path(options.out).exists() else {}
    rows = dict(kept.get("tasks", {}))
    for task, robot in itertools.product(options.tasks, ROBOTS):
        id = f"{robot}/{task}"
        if id not in NATIVE_TASKS:
            continue
        is_full = robot in options.robots or f"{options.robots[0]}/{task}" not in NATIVE_TASKS
        rows[id] = soak(id, options.steps if is_full else options.steps // 10, options.threads)
        _say(id, rows[id])
        if is_full:
            name = f"{id}, falls allowed"
            rows[name] = soak(id, options.steps // 10, options.threads, allow_falls=True)
            _say(name, rows[name])
        broken = [name for name, row in rows.items() if row["not_finite"] or row["too_old"]]
        if options.out:
            result = {**about, "commit": revision(), "broken": broken, "tasks": rows}
            Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
