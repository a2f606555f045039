"""Runs whose updates overlap the simulation learn as those in which one waits for the other.

    gaitway bench overlap_parity --out benchmarks/results/overlap_parity.json

With `algorithm.overlap` the policy acts one round of updates behind; everything else, the number of updates above all,
is the same. Returns of all seeds of a shortened preset with and without it, compared by a permutation test of the
difference of means. On the CPU, where both are slow alike, because numbers alone are asked for.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from _rounds import machine, revision, write
from precision_parity import final_return, p_value

TASKS = {"sac_pendulum": ["total_steps=8000", "env.num_envs=4"]}


def train(task: str, overlap: bool, seed: int, folder: Path) -> float:
    settings = [f"experiment={task}", *TASKS[task], f"seed={seed}", f"algorithm.overlap={overlap}", "logging.code=none"]
    settings += ["evaluation.interval=0", "evaluation.stochastic=false", "torch_threads=1", "env.num_threads=1"]
    return final_return(folder / f"{task}_{overlap}_{seed}", settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--commit", default=None, help="what to write down (default: the commit of this checkout)")
    options = parser.parse_args()
    result: dict[str, object] = {"benchmark": "overlap_parity", "seeds": options.seeds, "settings": TASKS}
    result |= {"commit": options.commit or revision(), "machine": machine()}
    with tempfile.TemporaryDirectory(prefix="gaitway-overlap-") as folder:
        for task in options.tasks:
            # in pairs, so that a run that is cut short has both sides of a seed
            pairs = [[train(task, each, seed, Path(folder)) for each in (False, True)] for seed in options.seeds]
            waiting, overlapped = (list(values) for values in zip(*pairs, strict=True))
            result[task] = {
                "one waits for the other": {"returns": waiting, "mean": float(np.mean(waiting))},
                "overlapped": {
                    "returns": overlapped,
                    "mean": float(np.mean(overlapped)),
                    "p_value": p_value(overlapped, waiting),
                },
            }
            write(options.out, result)


if __name__ == "__main__":
    main()
