"""How many goals of each task of the Walker there is a posture for at all: a ceiling for the success of skills.

    gaitway bench skills_bound --out benchmarks/results/skills_bound.json

Goals are drawn uniformly over the ranges of the features, and the ranges of the feet reach beyond the legs. Postures
are drawn uniformly within the limits of the joints; a foot's goal is in reach if some posture brings that foot as near
to it as `precision` asks. Feet are seen from the torso, so that each depends on its own leg alone, and height, x and
pitch are taken to be free: neither floor nor dynamics count, and the ceiling is an optimistic one. Where a task has
both feet, the squares of their distances add up. `--beside FILE` divides the success of a pre-training by it.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import numpy as np
from _rounds import revision
from scipy.spatial import cKDTree

from gaitway.envs.registry import make_env
from gaitway.envs.tasks.skills.goal_spaces import combinations, rank

GROUPS = ("0", "1", "2", "3+4", "5+6")
FEET = {"3+4": [3, 4], "5+6": [5, 6]}
INSTANCES = 4096


def postures(batches: int, seed: int) -> np.ndarray:
    """Features of random postures in units of their ranges, [batches * INSTANCES, 7]."""
    env = make_env("walker/skills", num_envs=INSTANCES, seed=seed, num_threads=1)
    env.reset()
    task, generator = env.task, np.random.default_rng(seed)
    model, legs = task.model, range(3, task.model.njnt)
    found = []
    for _ in range(batches):
        for joint in legs:
            task.qpos[:, model.jnt_qposadr[joint]] = generator.uniform(*model.jnt_range[joint], INSTANCES)
        task.qpos[:, 2] = generator.uniform(task.space.low[2], task.space.high[2], INSTANCES)
        task.batch.forward(stage=task.stage)
        features = np.zeros((INSTANCES, task.space.size))
        found.append(task.space.project(task.features.write(task, slice(None), features)))
    env.close()
    return np.concatenate(found)


def ceilings(features: np.ndarray, goals: int, precision: float, seed: int) -> dict[str, float]:
    """Share of goals with a posture near enough, for each of the 31 tasks."""
    wanted = np.random.default_rng([seed, 1]).uniform(-1.0, 1.0, (goals, features.shape[1]))
    missed = {}
    for group, columns in FEET.items():
        distance, _ = cKDTree(features[:, columns]).query(wanted[:, columns])
        missed[group] = distance**2
    tasks = combinations(GROUPS, len(GROUPS))
    nothing = np.zeros(goals)
    return {
        task: float(np.mean(sum((missed[g] for g in task.split(",") if g in FEET), nothing) <= precision**2))
        for task in tasks
    }


def by_rank(shares: dict[str, float]) -> dict[str, float]:
    return {str(n): statistics.mean(p for t, p in shares.items() if rank(t) == n) for n in range(1, len(GROUPS) + 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=100, help=f"of {INSTANCES} postures")
    parser.add_argument("--goals", type=int, default=20_000)
    parser.add_argument("--precision", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside", type=Path, nargs="*", default=[], help="results of skills_pretrain")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    found = ceilings(postures(options.batches, options.seed), options.goals, options.precision, options.seed)
    for task, share in found.items():
        print(f"{task:15s} {share:.3f}")
    print("by rank", {n: round(share, 3) for n, share in by_rank(found).items()})
    for path in options.beside:
        last = json.loads(path.read_text())["evaluations"][-1]
        shares = {n: round(success / by_rank(found)[n], 2) for n, success in last["by_rank"].items()}
        print(f"{path.name} at {last['step']:,}: {shares} of it")
    if options.out:
        result = {
            "benchmark": "skills_bound", "robot": "walker", "commit": revision(), "precision": options.precision,
            "postures": options.batches * INSTANCES, "goals": options.goals,
            "by_task": {task: round(share, 4) for task, share in found.items()},
            "by_rank": {n: round(share, 4) for n, share in by_rank(found).items()},
        }  # fmt: skip
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
