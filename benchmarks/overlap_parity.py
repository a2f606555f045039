"""Runs whose updates overlap the simulation learn as those in which one waits for the other.

    gaitway bench overlap_parity --tasks sac_pendulum --out benchmarks/results/overlap_parity.json
    gaitway bench overlap_parity --tasks sac_halfcheetah --seeds 0 1 2 3 4 --device cuda --jobs 10

With `algorithm.overlap` the policy acts one round of updates behind; everything else, the number of updates above all,
is the same. Returns at the end of a preset with and without it, every seed, compared by a permutation test of the
difference of means. On the CPU, where both are slow alike, for numbers alone; on a GPU seconds are told as well.

Every finished run is written at once, and a call with the same commit and device does not repeat those that `--out`
holds. With `--work` runs that were stopped go on from their checkpoints; without it they begin anew.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from _provenance import let_children_import
from _rounds import kept, machine, revision, write
from precision_parity import p_value

from gaitway.core.signals import EXIT_REQUEUE

TASKS = {
    "sac_pendulum": ["env.num_envs=4"],
    "sac_halfcheetah": ["total_steps=100_000"],
}
WAYS = {False: "one waits for the other", True: "overlapped"}


Runs = dict[str, dict[str, float]]
"""By name, as `name_of` gives it: `return` of the last evaluation and `seconds`."""


def name_of(seed: int, overlap: bool) -> str:
    return f"{WAYS[overlap]}, seed {seed}"


def train(task: str, device: str, folder: Path, seed: int, overlap: bool) -> dict[str, float]:
    """A run in a process of its own, in its own folder."""
    run = folder / f"{task}_{overlap}_{seed}"
    settings = [f"experiment={task}", *TASKS[task], f"seed={seed}", f"device={device}", f"algorithm.overlap={overlap}"]
    settings += ["evaluation.interval=0", "evaluation.stochastic=false", "torch_threads=1", "env.num_threads=1"]
    settings += ["checkpoints.interval=1_000_000", "logging.code=none", "preflight=false", f"run_dir={run}"]
    command = [sys.executable, "-m", "gaitway.cli.main", "train", *settings, "--or-resume", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{run.name}: {(done.stderr.strip() or f'exit code {done.returncode}').splitlines()[-1]}")
    summary = json.loads((run / "summary.json").read_text())
    return {"return": float(summary["last"]["return"]), "seconds": round(summary["seconds"], 1)}


def table(runs: Runs, seeds: list[int]) -> dict[str, Any]:
    """Both ways, once all runs of a task are there."""
    found = {way: [runs[name_of(seed, way)] for seed in seeds] for way in WAYS}
    returns = {way: [each["return"] for each in rows] for way, rows in found.items()}
    return {
        WAYS[way]: {
            "returns": returns[way],
            "mean": float(np.mean(returns[way])),
            "seconds": [each["seconds"] for each in rows],
        }
        for way, rows in found.items()
    } | {"p_value": p_value(returns[True], returns[False])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--work", type=Path, default=None, help="folder of the runs, which are gone on with")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--commit", default=None, help="what to write down (default: the commit of this checkout)")
    options = parser.parse_args()
    about = {"benchmark": "overlap_parity", "settings": TASKS, "device": options.device}
    about["commit"] = options.commit or revision()
    result = kept(options.out, about) | about | {"seeds": options.seeds}
    runs: dict[str, Runs] = result.setdefault("runs", {})
    let_children_import()
    with ExitStack() as stack:
        folder = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gaitway-overlap-")))
        pool = stack.enter_context(ThreadPoolExecutor(options.jobs))
        stopping = stop_kindly(pool)
        for task in options.tasks:
            known = runs.setdefault(task, {})
            left = [pair for pair in itertools.product(options.seeds, WAYS) if name_of(*pair) not in known]
            under_way = {pool.submit(train, task, options.device, folder, *pair): pair for pair in left}
            for future in as_completed(under_way):
                if future.cancelled() or (stopping and future.exception()):
                    continue
                known[name_of(*under_way[future])] = future.result()
                write(options.out, result | {"machine": machine()})
            if stopping:
                sys.exit(EXIT_REQUEUE)
            result[task] = table(known, options.seeds)
            write(options.out, result | {"machine": machine()})


def stop_kindly(pool: ThreadPoolExecutor) -> list[int]:
    """After SIGTERM, which a plan sends to all of its processes, runs under way write a checkpoint and end, and no more
    begin: the signals that came."""
    came: list[int] = []

    def handler(number: int, frame: object) -> None:
        came.append(number)
        pool.shutdown(wait=False, cancel_futures=True)

    signal.signal(signal.SIGTERM, handler)
    return came


if __name__ == "__main__":
    main()
