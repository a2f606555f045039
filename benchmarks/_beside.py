"""Learning beside a peer: the same recipe, the same seeds, each run in a process of its own, every seed reported.

A benchmark gives two functions of a `Trial`, one per side; the peer's runs in the peers' virtual environment. The
interval is that of the difference of the means, by bootstrap over seeds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

OURS, PEER = "gaitway", "stable-baselines3"


@dataclass(frozen=True)
class Trial:
    """One run of one side."""

    seed: int
    steps: int
    device: str
    threads: int


Side = Callable[[Trial], dict[str, object]]


def learn_beside(script: str, about: str, env: str, ours: Side, peer: Side) -> None:
    """The command line of `script`: all seeds of both sides, then one table in JSON."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="torch threads of each run")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--peer-python", default=".venv-peers/bin/python")
    parser.add_argument("--commit", default=None, help="what to write down (default: the commit of this checkout)")
    parser.add_argument("--worker", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, seed = options.worker.split(",")
        trial = Trial(int(seed), options.steps, options.device, options.threads)
        print(json.dumps((ours if name == OURS else peer)(trial)))
        return

    from _rounds import machine, revision, write

    pythons = {PEER: options.peer_python, OURS: sys.executable}
    jobs = [(name, python, seed) for seed in options.seeds for name, python in pythons.items()]
    with ThreadPoolExecutor(options.jobs) as pool:
        found = list(pool.map(lambda job: _run(script, *job, options), jobs))
    rows = {name: [row for row, job in zip(found, jobs, strict=True) if job[0] == name] for name in (OURS, PEER)}
    result = {
        "benchmark": Path(script).stem,
        "env": env,
        "steps": options.steps,
        "commit": options.commit or revision(),
        "machine": machine(),
        **difference(*([float(str(row["return"])) for row in rows[name]] for name in (OURS, PEER))),
        "seeds": rows,
    }
    write(options.out, result)


def difference(ours: list[float], peer: list[float]) -> dict[str, object]:
    """Means of both sides, and their difference with its interval of 95 %."""
    import numpy as np

    draw = np.random.default_rng(0)
    sides = [np.array(values, dtype=float) for values in (ours, peer)]
    means = [draw.choice(values, (5000, len(values))).mean(1) for values in sides]
    low, high = np.quantile(means[0] - means[1], [0.025, 0.975])
    return {
        "mean": {OURS: float(sides[0].mean()), PEER: float(sides[1].mean())},
        "difference": {"mean": float(sides[0].mean() - sides[1].mean()), "low": float(low), "high": float(high)},
    }


def _run(script: str, name: str, python: str, seed: int, options: argparse.Namespace) -> dict[str, object]:
    command = [python, str(Path(script).resolve()), "--worker", f"{name},{seed}", "--steps", str(options.steps)]
    command += ["--device", options.device, "--threads", str(options.threads)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name}, seed {seed}: {done.stderr.strip().splitlines()[-1]}")
    found = json.loads(done.stdout.strip().splitlines()[-1]) | {"seed": seed}
    print(f"{name} {found}", file=sys.stderr, flush=True)
    return found
