"""Runs in every mode and precision learn alike: returns of five seeds each on two small tasks.

    gaitway bench precision_parity --device cuda --jobs 5 --out benchmarks/results/precision_parity.json

`sac_pendulum` and `ppo_inverted_pendulum`, shortened. Every mode is compared with eager fp32 by a permutation test of
the difference of means (all seeds are reported; a small p-value would say that a mode learns otherwise).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from _rounds import machine, write
from scipy.stats import permutation_test

TASKS = {
    "sac_pendulum": ["total_steps=6000", "evaluation.interval=0", "algorithm.replay_size=6000", "env.num_envs=4"],
    "ppo_inverted_pendulum": ["total_steps=60000", "evaluation.interval=0"],
}
MODES = {
    "cpu": [("eager", "fp32"), ("compiled", "fp32"), ("eager", "bf16")],
    "cuda": [
        ("eager", "fp32"),
        ("captured", "fp32"),
        ("captured", "tf32"),
        ("compiled_captured", "tf32"),
        ("captured", "bf16"),
    ],
}


def final_return(run: Path, settings: Sequence[str]) -> float:
    """Train with `settings` in a process of its own; the return of the last evaluation of the folder `run`."""
    command = [sys.executable, "-m", "gaitway.cli.main", "train", *settings, f"run_dir={run}", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{run.name}: {done.stderr.strip().splitlines()[-1]}")
    found = json.loads((run / "summary.json").read_text())["last"]["return"]
    print(f"{run.name}: {found:.1f}", file=sys.stderr, flush=True)
    return float(found)


def train(task: str, mode: str, precision: str, seed: int, device: str, folder: Path) -> float:
    settings = [f"experiment={task}", *TASKS[task], f"seed={seed}", f"device={device}", "evaluation.stochastic=false"]
    settings += [f"execution.mode={mode}", f"execution.precision={precision}"]
    return final_return(folder / f"{task}_{mode}_{precision}_{seed}", settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    jobs = [(task, *mode, seed) for task in TASKS for mode in MODES[options.device] for seed in options.seeds]
    with tempfile.TemporaryDirectory(prefix="gaitway-parity-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        returns = list(pool.map(lambda job: train(*job, options.device, Path(folder)), jobs))
    table: dict[str, dict[str, list[float]]] = {task: {} for task in TASKS}
    for (task, mode, precision, _), value in zip(jobs, returns, strict=True):
        table[task].setdefault(f"{mode} {precision}", []).append(value)
    result: dict[str, object] = {
        "benchmark": "precision_parity",
        "device": options.device,
        "seeds": options.seeds,
        "machine": machine(),
    }
    for task, found in table.items():
        reference = found["eager fp32"]
        result[task] = {
            name: {
                "returns": values,
                "mean": float(np.mean(values)),
                "p_value": p_value(values, reference),
            }
            for name, values in found.items()
        }
    write(options.out, result)


def p_value(values: list[float], reference: list[float]) -> float:
    if np.allclose(values, reference):
        return 1.0

    def difference(one: np.ndarray, other: np.ndarray, axis: int = 0) -> np.ndarray:
        return one.mean(axis) - other.mean(axis)

    return float(permutation_test((values, reference), difference, vectorized=True).pvalue)


if __name__ == "__main__":
    main()
