"""The Walker learns each group of features alone (T1), beside twins with one mistake that must not.

    gaitway bench skills_rank1 --device cuda --seeds 0 1 2 --twins none bits goal reward \\
        --out benchmarks/results/skills_rank1.json

The preset `walker_pretrain` with the five groups alone, networks of width 256, two million samples and 50 updates per
1,000, about 90 s for a run on a large GPU with 16 cores. Then `TRIALS` goals of each task are played with mean actions
on evaluation streams; success in random play and without torque (the floors) stands beside every figure. Height alone
proves nothing: whoever falls passes most heights.

- `none`: every task of `ACCEPTED` reaches its figure; x, which needs locomotion, is reported.
- `bits`: no task bit is ever set, so that `desired_goal` is 0 as well; `goal`: `desired_goal` stays what it was first
  in the episode; `reward`: its sign is flipped. They hold if they miss what `ACCEPTED` asks of pitch or of a foot.
  Whether each task stays at the floors, within `NOISE` standard errors of the difference and `SLACK`, is written
  beside it and not asked: a learner that is paid for every goal it passes and does not see it learns to sweep its
  features, and passes through more goals than play without skill. `each_goal`, `desired_goal` frozen when each goal
  begins, is not judged: to know which way to go is enough to pass through many goals.

Every run is written to `--out` as soon as it is over, by twin, device and seed, and leaves the others there as they
are. `--import METRICS` takes over the metrics.jsonl of a run that was made by the command line, for one twin and seed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from _rounds import keep, machine, revision

import gaitway

TRIALS = 200
ACCEPTED = {"0": 0.85, "2": 0.75, "3+4": 0.4, "5+6": 0.4}
"""Height, pitch, left foot, right foot."""
JUDGED = ("2", "3+4", "5+6")
"""Tasks that tell a twin apart; height is reached by falling."""
NOISE, SLACK = 3.0, 0.05
RATE = 3e-4
"""Of all networks: quicker than the preset's over so few samples."""
TWINS: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "bits": [{"name": "_skill_twins:WithoutTask"}],
    "goal": [{"name": "_skill_twins:FrozenGoal"}],
    "reward": [{"name": "scale_reward", "scale": -1.0}],
    "each_goal": [{"name": "_skill_twins:FrozenGoal", "each_goal": True}],
}
"""What is put around the environment."""


def settings_of(twin: str, device: str, seed: int, steps: int) -> dict[str, Any]:
    width = [256] * 4
    return {
        "device": device,
        "seed": seed,
        "total_steps": steps,
        "algorithm.actor_learning_rate": RATE,
        "algorithm.critic_learning_rate": RATE,
        "algorithm.temperature_learning_rate": RATE,
        "env.wrappers": TWINS[twin],
        "agent.actor_hidden": width,
        "agent.critic_hidden": width,
        "callbacks": [{"name": "skill_file", "trials": TRIALS}],
        "evaluation.env.options.rank_max": 1,
        "evaluation.interval": steps // 2,
        "evaluation.trials": TRIALS,
        "checkpoints.interval": steps,
    }


def trained(settings: Mapping[str, Any], threads: int | None) -> dict[str, Any]:
    """One run in this process, in a folder that does not stay."""
    limits = {"torch_threads": threads, "env.num_threads": threads} if threads else {}
    with tempfile.TemporaryDirectory() as place:
        run = gaitway.train("walker_pretrain", quiet=True, run_dir=f"{place}/run", **settings, **limits)
        return summary((run.path / "metrics.jsonl").read_text()) | {"floor_trials": TRIALS}


def summary(metrics: str) -> dict[str, Any]:
    """What the lines of a metrics.jsonl say: the last evaluation, all of them, the floors, the time."""
    lines = [json.loads(line) for line in metrics.splitlines()]
    evaluations = {line["step"]: _under(line, "eval/success/") for line in lines if "eval/success" in line}
    floors: dict[str, dict[str, float]] = {}
    for line in lines:
        for kind in ("random", "zero"):
            floors |= {kind: found} if (found := _under(line, f"floor/{kind}/")) else {}
    if not evaluations or len(floors) < 2:
        raise ValueError("these metrics have no evaluation, or no floors; a finished run with skill_file has both")
    timed = [line for line in lines if "time/seconds" in line]
    return {
        "success": evaluations[max(evaluations)],
        "floors": floors,
        "evaluations": {str(step): found for step, found in evaluations.items()},
        "steps": max(evaluations),
        "updates": int(timed[-1]["train/updates"]),
        "seconds": timed[-1]["time/seconds"],
    }


def verdict(twin: str, row: Mapping[str, Any]) -> bool | None:
    """Whether the run did as it should; None where nothing is asked."""
    if twin == "each_goal":
        return None
    if twin == "none":
        return all(row["success"][task] >= least for task, least in ACCEPTED.items())
    return any(row["success"][task] < ACCEPTED[task] for task in JUDGED)


def is_at_floor(row: Mapping[str, Any], task: str) -> bool:
    """Whether a task succeeds no more often than play without skill, the better of the two kinds."""
    success, floor = row["success"][task], max(row["floors"][kind][task] for kind in ("random", "zero"))
    counts = 1 / TRIALS + 1 / row["floor_trials"]
    return success <= floor + NOISE * math.sqrt(floor * (1 - floor) * counts) + SLACK


def shown(twin: str, device: str, seed: int, row: Mapping[str, Any]) -> str:
    tasks = [f"{task} {p:.3f} ({_floors(row, task)})" for task, p in row["success"].items()]
    note = "" if row["holds"] is not False else "  MISSED"
    return f"{twin:9s} {device:5s} seed {seed}: {'  '.join(tasks)}  {row['seconds']:.0f} s{note}"


def add_run(path: Path, twin: str, device: str, seed: int, row: dict[str, Any]) -> None:
    """Write a run into the file of results."""
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    runs = result.get("runs", {})
    runs.setdefault(twin, {}).setdefault(device, {})[str(seed)] = row
    result = {
        "benchmark": "skills_rank1", "experiment": "walker_pretrain", "trials": TRIALS, "accepted": ACCEPTED,
        "at_the_floors": {"tasks": JUDGED, "standard_errors": NOISE, "slack": SLACK}, "runs": runs,
    }  # fmt: skip
    keep(path, result)


def _floors(row: Mapping[str, Any], task: str) -> str:
    return f"random {row['floors']['random'][task]:.2f}, zero {row['floors']['zero'][task]:.2f}"


def _under(line: Mapping[str, Any], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in line.items() if name.startswith(prefix)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--twins", nargs="+", choices=TWINS, default=["none"], metavar="TWIN", help=" ".join(TWINS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=2_000_000)
    parser.add_argument("--threads", type=int, default=None, help="of torch and the simulator (default: the library's)")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--commit", default=None, help="what to write down as the commit (default: this checkout's)")
    parser.add_argument("--import", dest="metrics", type=Path, default=None, help="metrics.jsonl of a finished run")
    parser.add_argument("--command", default=None, help="of the run that is imported")
    parser.add_argument("--gpu", default=None, help="of the run that is imported")
    parser.add_argument("--floor-trials", type=int, default=50, help="of the run that is imported: skill_file's trials")
    options = parser.parse_args()
    wanted = [(twin, seed) for seed in options.seeds for twin in options.twins]
    if options.metrics and (len(wanted) > 1 or not (options.command and options.commit)):
        parser.error("--import takes one seed, one twin, and the --command and --commit that the run was made with")
    missed = False
    for twin, seed in wanted:
        if options.metrics:
            row = summary(options.metrics.read_text()) | {"floor_trials": options.floor_trials}
            row |= {"command": options.command, "commit": options.commit, "machine": {"gpu": options.gpu}}
        else:
            settings = settings_of(twin, options.device, seed, options.steps)
            row = trained(settings, options.threads)
            row |= {"command": " ".join(["gaitway bench skills_rank1", *sys.argv[1:]]), "settings": settings}
            row |= {"commit": options.commit or revision(), "machine": machine()}
        row["at_floors"] = {task: is_at_floor(row, task) for task in JUDGED}
        row["holds"] = verdict(twin, row)
        missed |= row["holds"] is False
        print(shown(twin, options.device, seed, row), flush=True)
        if options.out:
            add_run(options.out, twin, options.device, seed, row)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
