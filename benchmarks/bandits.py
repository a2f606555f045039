"""Bandits on `toy/bandit`: ten arms with means 0 to 0.9 and noise 0.3, each strategy with seeds of its own.

    gaitway bench bandits --out benchmarks/results/bandits.json

- Regret over 2000 pulls, summed over what the best arm would have brought on average: eps-greedy, UCB (beta 0.5) and
  Thompson stay below half of uniform play, their twins, who credit each reward to the next arm, do not.
- The best and the worst arm are exchanged at pull 1000: the bandits with a window of 200 name the new best arm at pull
  1400 in at least 9 of 10 seeds, plain UCB in at most every second.

Every instance of the environment is a seed; `--seeds` are those of the bandits and of the instances alike. Numbers were
chosen on seeds of 100 and above.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from _rounds import machine, revision
from gymnasium.spaces import Discrete

from gaitway.envs.registry import make_env
from gaitway.skills.bandits import BANDITS

ARMS, PULLS, SWAP, WINDOW = 10, 2000, 1000, 200
LEARNS = {"eps_greedy": {}, "ucb": {"beta": 0.5}, "thompson": {}}
FOLLOWS = {
    "sliding_window_ucb": {"window": WINDOW, "beta": 0.5},
    "agent57": {"window": WINDOW},
}
OTHERS = {"uniform": {}, "discounted_ucb": {"gamma": 0.99, "beta": 0.5}}
FOLLOWING, STAYING = 0.9, 0.5
"""Share of the seeds: at least so many follow the exchange with a window, at most so many without."""


def play(name: str, options: dict[str, Any], seeds: list[int], swap_after: int = 0, shift: int = 0) -> dict[str, Any]:
    """Regret of every seed, and the arm that each names best two windows after the exchange."""
    bandits = [BANDITS[name](Discrete(ARMS), **options, seed=seed) for seed in seeds]
    regret, named = [0.0] * len(seeds), [-1] * len(seeds)
    with make_env("toy/bandit", len(seeds), seed=seeds, arms=ARMS, swap_after=swap_after) as env:
        for pull in range(PULLS):
            arms = [bandit.sample_action() for bandit in bandits]
            step = env.step(torch.tensor(arms))
            for number, bandit in enumerate(bandits):
                regret[number] += 0.9 - float(step.metrics["mean"][number])
                bandit.update((arms[number] + shift) % ARMS, float(step.reward[number]))
            if pull + 1 == swap_after + 2 * WINDOW:
                named = [bandit.best_action() for bandit in bandits]
    return {"regret": regret, "named": named}


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(20)))
    parser.add_argument("--out", default=None)
    parser.add_argument("--commit", default=None, help="what to write down as the commit (default: this checkout's)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    seeds = options.seeds
    rows: dict[str, Any] = {}
    for name, given in (OTHERS | LEARNS | FOLLOWS).items():
        still, moving = play(name, given, seeds), play(name, given, seeds, SWAP)
        follows = mean([float(arm == 0) for arm in moving["named"]])
        rows[name] = {"options": given, "regret": still["regret"], "named": moving["named"], "follows": follows}
        if name in LEARNS:
            rows[name]["twin_regret"] = play(name, given, seeds, shift=1)["regret"]
        twin = f", credited to the next arm {mean(rows[name]['twin_regret']):7.1f}" if name in LEARNS else ""
        print(f"{name:18}  regret {mean(still['regret']):7.1f}{twin}, names the new best arm {follows:.2f}", flush=True)
    half = 0.5 * mean(rows["uniform"]["regret"])
    verdicts = {
        "learners below half of uniform": all(mean(rows[name]["regret"]) < half for name in LEARNS),
        "their twins not": all(mean(rows[name]["twin_regret"]) > half for name in LEARNS),
        "windows follow": all(rows[name]["follows"] >= FOLLOWING for name in FOLLOWS),
        "plain UCB does not": rows["ucb"]["follows"] <= STAYING,
    }
    for verdict, holds in verdicts.items():
        print(f"{verdict}: {'yes' if holds else 'MISSED'}")
    if options.out:
        result = {
            "benchmark": "bandits", "commit": options.commit or revision(), "machine": machine(), "arms": ARMS,
            "pulls": PULLS, "swap": SWAP, "window": WINDOW, "seeds": seeds, "strategies": rows, "verdicts": verdicts,
        }  # fmt: skip
        Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if all(verdicts.values()) else 1)


if __name__ == "__main__":
    main()
