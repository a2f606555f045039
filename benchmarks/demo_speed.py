"""How fast trained Walkers run: distance covered in 10 s from 10 starts, deterministic, falls included.

gaitway bench demo_speed runs/final/ppo_walker_run_* --out benchmarks/results/demo_speed.json
"""

from __future__ import annotations

import argparse

import torch
from _rounds import write

from gaitway.cli.build import build_env, load_policy
from gaitway.cli.open_run import open_run

STARTS, SECONDS = 10, 10.0


def measure(run: str) -> dict[str, object]:
    """A robot that falls keeps the distance it had covered, and its clock goes on."""
    folder, config = open_run(run)
    with build_env(config, "evaluation", STARTS) as env:
        loaded = load_policy(folder, config, env.spec, "best")
        act, obs = loaded.inference(), env.reset(seed=list(range(STARTS)))
        steps = round(SECONDS / env.spec.control_dt)
        up = torch.ones(STARTS, dtype=torch.bool)
        distance, steps_up = torch.zeros(STARTS, dtype=torch.float64), torch.zeros(STARTS, dtype=torch.float64)
        for _ in range(steps):
            step = env.step(act(obs))
            distance += torch.where(up, step.metrics["speed"].double(), 0.0) * env.spec.control_dt
            steps_up += up
            up = up & ~(step.terminated | step.truncated)
            obs = step.obs
    return {
        "seed": config.seed,
        "checkpoint": loaded.which,
        "metres_per_second_over_10_s": round(float(distance.mean()) / SECONDS, 3),
        "metres_per_second_while_up": round(float((distance / (steps_up * SECONDS / steps)).mean()), 3),
        "fell_within_10_s": int((~up).sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--out", default=None)
    options = parser.parse_args()
    write(options.out, {"benchmark": "demo_speed", "rows": [measure(run) for run in options.runs]})


if __name__ == "__main__":
    main()
