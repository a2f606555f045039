"""Counts of places on `toy/lock`: SAC with the bonus of `sim_hash` opens it, without it never does.

    gaitway bench sim_hash --out benchmarks/results/sim_hash.json

For every seed the preset `sac_lock_sim_hash` is trained on one core, and beside it two that must fail: a bonus of
weight 0, which is SAC alone, and counts of one constant observation, so that all places are one. Shown is the share of
20 episodes in which the final policy opens the lock. Numbers were chosen on seeds of 100 and above.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from _rounds import machine, revision
from torch import Tensor

from gaitway.cli.python_runs import load, train
from gaitway.envs.spec import EnvSpec
from gaitway.rewards.sim_hash import SimHash, SimHashReward

OPENS, FAILS = 0.95, 0.05


class OnePlace(SimHash):
    """Broken: whatever is seen, the same place is counted."""

    def keys(self, x: Tensor) -> Tensor:
        return super().keys(torch.ones_like(x))


class ConstantCounted(SimHashReward):
    def __init__(self, spec: EnvSpec, weight: float = 1.0) -> None:
        super().__init__(spec, weight)
        self.table = OnePlace(len(self.table.projection))


ARMS: dict[str, list[dict[str, Any]]] = {
    "sim_hash": [{"name": "sim_hash", "weight": 0.3}],
    "bonus 0": [{"name": "sim_hash", "weight": 0.0}],
    "constant counted": [{"name": "sim_hash:ConstantCounted", "weight": 0.3}],
}


def opened(seed: int, rewards: list[dict[str, Any]]) -> float:
    """The share of episodes in which the last policy of a run opens the lock."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"torch_threads": 1, "env.num_threads": 1, "evaluation.interval": 0}
        run = train("sac_lock_sim_hash", quiet=True, seed=seed, rewards=rewards, run_dir=f"{folder}/run", **settings)
        return float(load(run.path, "last").evaluate(20)["return"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", default=None)
    parser.add_argument("--commit", default=None, help="what to write down as the commit (default: this checkout's)")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed in options.seeds:
        row: dict[str, Any] = {"seed": seed}
        rows.append(row)
        for arm, rewards in ARMS.items():
            row[arm] = opened(seed, rewards)
            print(f"seed {seed}: {arm} {row[arm]:.2f}", flush=True)
            row["passed"] = all(row.get(name, -1.0) <= FAILS for name in list(ARMS)[1:]) and row["sim_hash"] >= OPENS
            result = {
                "benchmark": "sim_hash", "commit": options.commit or revision(), "machine": machine(),
                "torch_threads": torch.get_num_threads(), "thresholds": {"opens": OPENS, "fails": FAILS},
                "seeds": rows, "holds": len(rows) == len(options.seeds) and all(each["passed"] for each in rows),
            }  # fmt: skip
            if options.out:  # as they come
                Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    holds = all(row["passed"] for row in rows)
    print("holds" if holds else "MISSED")
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
