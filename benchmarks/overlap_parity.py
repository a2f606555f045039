"""Runs whose updates overlap the simulation learn as those in which one waits for the other.

    gaitway bench overlap_parity --tasks sac_pendulum --out benchmarks/results/overlap_parity.json
    gaitway bench overlap_parity --tasks sac_halfcheetah --seeds 0 1 2 3 4 --device cuda --jobs 10

With `algorithm.overlap` the policy acts one round of updates behind; everything else, the number of updates above all,
is the same. Returns at the end of a preset with and without it, every seed, compared by a permutation test of the
difference of means. On the CPU, where both are slow alike, for numbers alone; on a GPU seconds are told as well.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from _rounds import machine, revision, write
from precision_parity import final_return, p_value

TASKS = {
    "sac_pendulum": ["env.num_envs=4"],
    "sac_halfcheetah": ["total_steps=100_000"],
}
WAYS = {False: "one waits for the other", True: "overlapped"}


def train(task: str, device: str, folder: Path, seed: int, overlap: bool) -> tuple[float, float]:
    """The return of the last evaluation, and the seconds that the run took."""
    settings = [f"experiment={task}", *TASKS[task], f"seed={seed}", f"device={device}", f"algorithm.overlap={overlap}"]
    settings += ["evaluation.interval=0", "evaluation.stochastic=false", "torch_threads=1", "env.num_threads=1"]
    settings += ["checkpoints.interval=1_000_000", "logging.code=none", "preflight=false"]
    started = time.perf_counter()
    return final_return(folder / f"{task}_{overlap}_{seed}", settings), time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--commit", default=None, help="what to write down (default: the commit of this checkout)")
    options = parser.parse_args()
    result: dict[str, object] = {"benchmark": "overlap_parity", "seeds": options.seeds, "settings": TASKS}
    result |= {"device": options.device, "commit": options.commit or revision()}
    for task in options.tasks:
        pairs = list(itertools.product(options.seeds, WAYS))
        with tempfile.TemporaryDirectory(prefix="gaitway-overlap-") as folder, ThreadPoolExecutor(options.jobs) as pool:
            run = partial(train, task, options.device, Path(folder))
            runs = dict(zip(pairs, pool.map(run, *zip(*pairs, strict=True)), strict=True))
        returns = {way: [runs[seed, way][0] for seed in options.seeds] for way in WAYS}
        result[task] = {
            name: {
                "returns": returns[way],
                "mean": float(np.mean(returns[way])),
                "seconds": [round(runs[seed, way][1], 1) for seed in options.seeds],
            }
            for way, name in WAYS.items()
        } | {"p_value": p_value(returns[True], returns[False])}
        write(options.out, result | {"machine": machine()})


if __name__ == "__main__":
    main()
