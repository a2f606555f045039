"""The quadruped's `pup12/gait_residual` learnt by our PPO and by rsl_rl's, beside each other.

    PYTHONPATH=src .venv-peers/bin/python benchmarks/legged_beside.py --out benchmarks/results/legged_beside.json

Same task, instances, networks without normalisers (better for both on seed 100), passes, minibatches, adaptive rate and
steps, those of the preset; rsl_rl's runner gets the task through `as_rsl_rl_env`. Both have one thread for the networks
and `--threads` for the simulator. The deterministic policies are judged on the same 120 episodes of the grid. Passed:
the mean return of ours is not below theirs, or 0 lies in the 95 % interval (Welch) of the difference. Iterations
without physics are timed by `cpu_ppo`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _provenance import add_commit, provenance
from _rounds import versions
from foreign_simulators import Theirs

import gaitway
from gaitway.analysis.compare import welch_interval
from gaitway.envs.foreign.rsl_rl_env import as_rsl_rl_env
from gaitway.envs.vec_env import Actor, Observation
from gaitway.runners.evaluate import run_episodes

PRESET, TASK, LIMITS = "ppo_pup12_gait_residual", "pup12/gait_residual", {"action_limit": 1.0}
INSTANCES, ROLLOUT, EPISODES = 256, 24, 120


def judged(act: Actor) -> dict[str, float]:
    judge = gaitway.make_env(
        TASK, EPISODES, num_threads=1, purpose="evaluation", commands={"sampler": "grid"}, **LIMITS
    )
    table = run_episodes(judge, act, EPISODES)
    found = {name: round(float(table[name].mean()), 4) for name in ("return", "fell")}
    return found | {"velocity_rmsd": round(judge.spec.pooled["velocity_rmsd"](table), 4)}


class Ours:
    """A run of ours as an environment is played."""

    def __init__(self, run: gaitway.LoadedRun) -> None:
        self.run = run

    def __call__(self, obs: Observation) -> torch.Tensor:
        return self.run.act(obs)

    def reset(self, mask: torch.Tensor | None = None) -> None:
        """Nothing is remembered."""


def ours(seed: int, steps: int, threads: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as place:
        limits = {"torch_threads": 1, "env.num_threads": threads, "evaluation.interval": 0, "preflight": False}
        run = gaitway.train(PRESET, quiet=True, run_dir=f"{place}/run", seed=seed, total_steps=steps, **limits)
        rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
        seconds = max(row["time/seconds"] for row in rows if "time/seconds" in row)
        return judged(Ours(run)) | {"seconds": round(seconds, 1)}


def theirs(seed: int, steps: int, threads: int) -> dict[str, float]:
    from rsl_rl.runners import OnPolicyRunner

    torch.manual_seed(seed)
    network = {"class_name": "MLPModel", "hidden_dims": [128, 128], "activation": "elu", "obs_normalization": False}
    config: dict[str, Any] = {
        "algorithm": {
            **{"class_name": "PPO", "num_learning_epochs": 4, "num_mini_batches": 4, "learning_rate": 1e-3},
            **{"gamma": 0.97, "lam": 0.95, "entropy_coef": 0.0, "schedule": "adaptive", "desired_kl": 0.01},
        },
        "actor": network | {"distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 0.4}},
        "critic": dict(network),
        "obs_groups": {"actor": ["policy"], "critic": ["critic"]},
        "num_steps_per_env": ROLLOUT,
        "save_interval": 10**9,
    }
    env = as_rsl_rl_env(gaitway.make_env(TASK, INSTANCES, seed=seed, num_threads=threads, **LIMITS))
    with contextlib.redirect_stdout(sys.stderr):
        runner = OnPolicyRunner(env, config, None, "cpu")
        began = time.perf_counter()
        runner.learn(steps // (INSTANCES * ROLLOUT), init_at_random_ep_len=True)
    seconds = time.perf_counter() - began
    return judged(Theirs(runner.get_inference_policy("cpu"))) | {"seconds": round(seconds, 1)}


SIDES: dict[str, Callable[[int, int, int], dict[str, float]]] = {"gaitway": ours, "rsl_rl": theirs}


def verdict(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    mine, others = ([row["return"] for row in rows[side].values()] for side in SIDES)
    difference, low, high = welch_interval(others, mine)  # ours above theirs
    return {
        "difference": round(difference, 3),
        "interval": [round(low, 3), round(high, 3)],
        "passed": bool(difference >= 0 or low <= 0 <= high),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, default=1_500_000)
    parser.add_argument("--threads", type=int, default=1, help="of the simulator, on both sides")
    add_commit(parser)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows: dict[str, dict[str, Any]] = {side: {} for side in SIDES}
    found = {"benchmark": "legged_beside", **provenance("legged_beside", given.commit), "steps": given.steps}
    found |= {"threads": given.threads, "versions": versions("mujoco", "torch", "rsl-rl-lib"), "rows": rows}
    for seed in given.seeds:
        for side, learn in SIDES.items():
            rows[side][str(seed)] = learn(seed, given.steps, given.threads)
            print(side, seed, rows[side][str(seed)], flush=True)
        if len(rows["rsl_rl"]) > 1:
            found["verdict"] = verdict(rows)
        if given.out:
            given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(found.get("verdict"))
    return 0 if found.get("verdict", {}).get("passed") else 1


if __name__ == "__main__":
    sys.exit(main())
