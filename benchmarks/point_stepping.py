"""How fast the toy robot with skills steps on one core: `env.step` in a loop, precomputed random actions.

OMP_NUM_THREADS=1 python benchmarks/point_stepping.py --out benchmarks/results/point_stepping.json
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from _rounds import Case, race, report, versions

from gaitway.envs.registry import make_env


def rate(num_envs: int, steps: int) -> Callable[[], float]:
    """Instance steps per second of one round."""
    env = make_env("point/skills", num_envs=num_envs, rank_max=4)
    actions = list(2 * torch.rand(64, num_envs, 4, generator=torch.Generator().manual_seed(0)) - 1)

    def measure() -> float:
        started = time.perf_counter()
        for step in range(steps):
            env.step(actions[step % len(actions)])
        return num_envs * steps / (time.perf_counter() - started)

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", default=None, help="JSON file to write")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=300, help="steps per round")
    options = parser.parse_args()
    torch.set_num_threads(1)
    raw = race({f"{size} instances": rate(size, options.steps) for size in (1, 16, 64, 320)}, options.rounds)
    cases = [Case("point/skills, random play, one thread", "steps/s", raw)]
    report(options.out, "point_stepping", cases, versions=versions("torch", "numpy"))


if __name__ == "__main__":
    main()
