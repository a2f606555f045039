"""What a pre-training of skills came to: success of every task over time, floors, reachability against rollouts, speed.

    gaitway train experiment=walker_pretrain device=cuda run_dir=runs/walker_pretrain
    gaitway bench skills_pretrain runs/walker_pretrain --early SKILLS --out benchmarks/results/walker_pretrain.json

Two ways to count. *On fixed goals*: what the run logged, so many goals of each task, each to its end. *In play*: 620
robots pursue goals for 300 steps, and those that ended by then count; a goal that is met soon makes room for another,
so that this is more than the first by a tenth or so. It is the way in which what is asked of the Walker (`ASKED`) was
found on a prototype, and is measured here of the run's skill file, of `--early`, its skill file of about 1e7 samples,
and of random play. Exit status 1: something is missed, or `--early` is missing. `--commit` names the code where the run
could not.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from scipy.stats import spearmanr
from torch import Tensor

from gaitway import make_env
from gaitway.envs.tasks.skills.facts import SkillFacts
from gaitway.envs.tasks.skills.goal_spaces import rank
from gaitway.envs.vec_env import Observation
from gaitway.skills.skill_file import Skills

SUCCESS, REACH = "eval/success/", "curriculum/r/"
ROBOTS, STEPS, SEEDS = 620, 300, (7, 8, 9)
"""Of play."""
ASKED = {
    "tasks at 300,000 samples": 31,
    "rank 1 at 1e7": 0.75,
    "rank 2 at 1e7": 0.30,
    "rank 3 at 1e7": 0.05,
    "rank 1": 0.85,
    "rank 2": 0.45,
    "rank 3": 0.12,
    "x alone": 0.7,
    "samples": 25_000_000,
    "orders ranks 2 and 3": 0.7,
}
"""At least; success in play."""
LARGEST_GAP = 0.1
"""At most, between reachability and rollouts, the mean over the tasks."""


def by_rank(success: dict[str, float]) -> dict[str, float]:
    ranks = sorted({rank(task) for task in success})
    return {str(n): round(statistics.mean(p for task, p in success.items() if rank(task) == n), 4) for n in ranks}


def picked(row: dict[str, float], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): round(value, 4) for name, value in row.items() if name.startswith(prefix)}


def reachability(reach: dict[str, float], success: dict[str, float]) -> dict[str, Any]:
    """How far reachability lies from rollouts, over all tasks, and whether it orders those of ranks 2 and 3."""
    middle = [task for task in success if rank(task) in (2, 3)]
    return {
        "by_task": reach,
        "mean_gap": round(statistics.mean(abs(reach[task] - success[task]) for task in success), 4),
        "spearman_ranks_2_and_3": round(
            float(spearmanr([reach[task] for task in middle], [success[task] for task in middle]).statistic), 4
        ),
    }


@torch.inference_mode()
def in_play(act: Callable[[Observation], Tensor], robot: str) -> dict[str, Any]:
    """Success of each task among goals that end within `STEPS` steps of `ROBOTS` robots, `SEEDS` together."""
    met, over = Counter[int](), Counter[int]()
    for seed in SEEDS:
        with make_env(f"{robot}/skills", num_envs=ROBOTS, seed=seed, purpose="evaluation", rank_max=5) as env:
            facts, obs = SkillFacts.of(env.spec), env.reset()
            for _ in range(STEPS):
                step = env.step(act(obs))
                ends = step.metrics["last_step_of_task"] > 0
                keys = step.metrics["task_key"].long()
                over.update(keys[ends].tolist())
                met.update(keys[ends & (step.metrics["reached_goal"] > 0)].tolist())
                obs = step.obs
    names = {facts.tasks.name_of(key): key for key in over}
    success = {
        task: round(met[names[task]] / over[names[task]], 4) for task in sorted(names, key=lambda t: (rank(t), t))
    }
    return {"by_rank": by_rank(success), "success": success, "goals": over.total()}


def play_of(skills: Skills) -> dict[str, Any]:
    """Of the mean actions of skills."""
    found = in_play(lambda obs: skills.act(obs["observation"], obs["desired_goal"], obs["task"]), skills.facts.robot)
    return {"env_steps": skills.origin.get("env_steps"), **found}


def random_play(robot: str) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    with make_env(f"{robot}/skills") as env:
        size = len(env.spec.action.names)
    return in_play(lambda obs: torch.rand(len(obs["task"]), size, generator=generator) * 2.0 - 1.0, robot)


def speed(rows: list[dict[str, float]]) -> dict[str, float]:
    """Samples per second of the whole run, and of its iterations alone (median over pairs of log lines)."""
    timed = [(row["step"], row["time/seconds"]) for row in rows if "time/seconds" in row]
    steps = [(b[0] - a[0]) / (b[1] - a[1]) for a, b in pairwise(timed[1:]) if b[1] > a[1]]
    last = next(row for row in reversed(rows) if "time/seconds" in row)
    return {
        "with_evaluations": round(timed[-1][0] / timed[-1][1]),
        "of_iterations": round(statistics.median(steps)),
        **picked(last, "time/"),
    }


def summary(run: Path, commit: str | None, early: Path | None) -> dict[str, Any]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    skills = Skills.load(run)
    evaluations = [row for row in rows if any(name.startswith(SUCCESS) for name in row)]
    reviews = [row for row in rows if "curriculum/tasks" in row]
    last = picked(evaluations[-1], SUCCESS)
    at = [row for row in reviews if row["step"] <= evaluations[-1]["step"]][-1]
    return {
        "robot": skills.facts.robot,
        "origin": skills.origin | ({} if commit is None else {"commit": commit}),
        "evaluations": [
            {"step": row["step"], "by_rank": by_rank(picked(row, SUCCESS)), "success": picked(row, SUCCESS)}
            for row in evaluations
        ],
        "floors": {kind: {task: round(p, 4) for task, p in found.items()} for kind, found in skills.floors.items()},
        "tasks": [[row["step"], row["curriculum/tasks"]] for row in reviews[:6]],
        "reachability": {"step": at["step"]} | reachability(picked(at, REACH), last),
        "in_play": {
            **({} if early is None else {"early": play_of(Skills.load(early))}),
            "last": play_of(skills),
            "random": random_play(skills.facts.robot),
        },
        "samples_per_second": speed(rows),
    }


def judged(result: dict[str, Any]) -> dict[str, Any]:
    """Every figure that is asked for, beside what was asked."""
    reach, play = result["reachability"], result["in_play"]
    early = play.get("early", {"by_rank": {}})["by_rank"]
    found = {
        "tasks at 300,000 samples": max(tasks for step, tasks in result["tasks"] if step <= 300_000),
        **{f"rank {n} at 1e7": early.get(str(n), math.nan) for n in (1, 2, 3)},
        **{f"rank {n}": play["last"]["by_rank"][str(n)] for n in (1, 2, 3)},
        "x alone": play["last"]["success"]["1"],
        "samples": result["evaluations"][-1]["step"],
        "orders ranks 2 and 3": reach["spearman_ranks_2_and_3"],
    }
    rows = {
        name: {"found": found[name], "asked": asked, "holds": found[name] >= asked} for name, asked in ASKED.items()
    }
    gap = reach["mean_gap"]
    return rows | {"gap of reachability": {"found": gap, "asked": LARGEST_GAP, "holds": gap <= LARGEST_GAP}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--early", type=Path, default=None, help="the run's skill file of about 1e7 samples")
    parser.add_argument("--commit", default=None)
    parser.add_argument("--out", type=Path, default=None)
    found = parser.parse_args()
    result = summary(found.run, found.commit, found.early)
    for each in result["evaluations"]:
        print(f"{each['step']:>12,}  by rank", "  ".join(f"{n}: {p:.3f}" for n, p in each["by_rank"].items()))
    for name, each in result["in_play"].items():
        print(f"{name:>12}  in play", "  ".join(f"{n}: {p:.3f}" for n, p in each["by_rank"].items()))
    last = result["evaluations"][-1]["success"]
    for task, p in last.items():
        floors = "  ".join(f"{kind} {listed.get(task, float('nan')):.2f}" for kind, listed in result["floors"].items())
        print(f"{task:>22}  {p:.2f}  {floors}  reachability {result['reachability']['by_task'][task]:.2f}")
    print({name: value for name, value in result["reachability"].items() if name != "by_task"})
    print(result["samples_per_second"])
    if result["robot"] == "walker":
        result["judged"] = judged(result)
        for name, row in result["judged"].items():
            print(f"{name:>26}  {row['found']:.6g} of {row['asked']:.6g}{'' if row['holds'] else '  MISSED'}")
    if found.out is not None:
        found.out.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if all(row["holds"] for row in result.get("judged", {}).values()) else 1)


if __name__ == "__main__":
    main()
