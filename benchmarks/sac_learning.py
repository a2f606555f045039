"""SAC learns HalfCheetah-v5 beside stable-baselines3: 100 thousand steps, the same recipe, every seed reported.

    gaitway bench sac_learning --seeds 0 1 2 --jobs 6 --out benchmarks/results/sac_learning.json

Both get one environment, 256-256 networks, batches of 256, an update per step, rates of 3e-4 and 10 thousand uniform
steps first; the final policy is measured deterministically on 10 episodes. The interval is that of the difference of
the means, by bootstrap over seeds. The peer runs in its own virtual environment (benchmarks/peers.txt).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ENV = "HalfCheetah-v5"
STARTS = 10_000


def ours(seed: int, steps: int, device: str) -> dict[str, object]:
    import torch

    from gaitway import (
        SAC,
        OffPolicyRunner,
        RunnerConfig,
        SACConfig,
        SoftActorCritic,
        SoftActorCriticConfig,
        evaluate,
        make_env,
    )
    from gaitway.core.seeding import stream
    from gaitway.runners.evaluate import EvaluationConfig

    torch.set_num_threads(1)
    env = make_env(ENV, num_envs=1, seed=seed, num_threads=1, device=device)
    policy = SoftActorCritic(env.spec, SoftActorCriticConfig(), stream(seed, "parameters")).to(device)
    algorithm = SAC(policy, SACConfig(learning_starts=STARTS, replay_size=steps), num_envs=1, seed=seed)
    runner = OffPolicyRunner(env, algorithm, RunnerConfig(total_steps=steps, seed=seed))
    started = time.perf_counter()
    runner.learn()
    seconds = time.perf_counter() - started
    judge = make_env(ENV, num_envs=10, seed=seed, num_threads=1, device=device, purpose="evaluation")
    found = evaluate(judge, runner.inference_policy, EvaluationConfig(stochastic=False), 10)
    return {"return": found["return"], "seconds": round(seconds, 1)}


def stable_baselines3(seed: int, steps: int, device: str) -> dict[str, object]:
    import torch
    from stable_baselines3 import SAC
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    torch.set_num_threads(1)
    env = make_vec_env(ENV, 1, seed=seed)
    model = SAC("MlpPolicy", env, seed=seed, device=device, learning_starts=STARTS, buffer_size=steps)
    started = time.perf_counter()
    model.learn(steps)
    seconds = time.perf_counter() - started
    mean, _ = evaluate_policy(model, make_vec_env(ENV, 1, seed=1000), 10, deterministic=True)
    return {"return": float(mean), "seconds": round(seconds, 1)}


def run(name: str, python: str, seed: int, options: argparse.Namespace) -> dict[str, object]:
    worker = f"{name},{seed},{options.steps}"
    command = [python, str(Path(__file__).resolve()), "--worker", worker, "--device", options.device]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name}, seed {seed}: {done.stderr.strip().splitlines()[-1]}")
    found = json.loads(done.stdout.strip().splitlines()[-1]) | {"seed": seed}
    print(f"{name} {found}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--peer-python", default=".venv-peers/bin/python")
    parser.add_argument("--commit", default=None, help="what to write down (default: the commit of this checkout)")
    parser.add_argument("--worker", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, seed, steps = options.worker.split(",")
        play = ours if name == "gaitway" else stable_baselines3
        print(json.dumps(play(int(seed), int(steps), options.device)))
        return

    import numpy as np
    from _rounds import machine, write

    jobs = [
        (n, p, s)
        for s in options.seeds
        for n, p in (("stable-baselines3", options.peer_python), ("gaitway", sys.executable))
    ]
    with ThreadPoolExecutor(options.jobs) as pool:
        found = list(pool.map(lambda job: run(*job, options), jobs))
    rows = {
        name: [f for f, job in zip(found, jobs, strict=True) if job[0] == name]
        for name in ("gaitway", "stable-baselines3")
    }
    returns = {name: np.array([row["return"] for row in of], dtype=float) for name, of in rows.items()}
    draw = np.random.default_rng(0)
    means = {name: draw.choice(values, (5000, len(values))).mean(1) for name, values in returns.items()}
    low, high = np.quantile(means["gaitway"] - means["stable-baselines3"], [0.025, 0.975])
    revision = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    result = {
        "benchmark": "sac_learning",
        "env": ENV,
        "steps": options.steps,
        "commit": options.commit or revision,
        "machine": machine(),
        "mean": {name: float(values.mean()) for name, values in returns.items()},
        "difference": {
            "mean": float(returns["gaitway"].mean() - returns["stable-baselines3"].mean()),
            "low": low,
            "high": high,
        },
        "seeds": rows,
    }
    write(options.out, result)


if __name__ == "__main__":
    main()
