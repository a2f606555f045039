"""TD3 learns HalfCheetah-v5 beside stable-baselines3: 100 thousand steps, the same recipe, every seed reported.

    gaitway bench td3_learning --seeds 0 1 2 --jobs 2 --out benchmarks/results/td3_learning.json

Both get one environment, 256-256 networks, batches of 256, an update of the critics per step and of the actor at every
second, rates of 1e-3, noise of 0.1 and 10 thousand uniform steps first; the final policy is measured deterministically
on 10 episodes. The interval is that of the difference of the means, by bootstrap over seeds. The peer runs in its own
virtual environment (benchmarks/peers.txt).
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
STARTS, NOISE, RATE, BATCH = 10_000, 0.1, 1e-3, 256
HIDDEN = (256, 256)


def ours(seed: int, steps: int, device: str) -> dict[str, object]:
    import torch

    from gaitway import OffPolicyRunner, RunnerConfig, evaluate, make_env
    from gaitway.agents.deterministic_actor_critic import DeterministicActorCritic, DeterministicActorCriticConfig
    from gaitway.algorithms.td3 import TD3, TD3Config
    from gaitway.core.seeding import stream
    from gaitway.runners.evaluate import EvaluationConfig

    torch.set_num_threads(1)
    env = make_env(ENV, num_envs=1, seed=seed, num_threads=1, device=device)
    networks = DeterministicActorCriticConfig(actor_hidden=HIDDEN, critic_hidden=HIDDEN, noise_std=NOISE)
    policy = DeterministicActorCritic(env.spec, networks, stream(seed, "parameters")).to(device)
    recipe = TD3Config(
        learning_starts=STARTS,
        replay_size=steps,
        batch_size=BATCH,
        actor_learning_rate=RATE,
        critic_learning_rate=RATE,
        tau=0.005,
        gamma=0.99,
        policy_delay=2,
        target_noise=0.2,
        target_noise_limit=0.5,
    )
    algorithm = TD3(policy, recipe, num_envs=1, seed=seed)
    runner = OffPolicyRunner(env, algorithm, RunnerConfig(total_steps=steps, seed=seed))
    started = time.perf_counter()
    runner.learn()
    seconds = time.perf_counter() - started
    judge = make_env(ENV, num_envs=10, seed=seed, num_threads=1, device=device, purpose="evaluation")
    found = evaluate(judge, runner.inference_policy, EvaluationConfig(stochastic=False), 10)
    return {"return": found["return"], "seconds": round(seconds, 1), "updates": runner.updates}


def stable_baselines3(seed: int, steps: int, device: str) -> dict[str, object]:
    import numpy as np
    import torch
    from stable_baselines3 import TD3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.noise import NormalActionNoise

    torch.set_num_threads(1)
    env = make_vec_env(ENV, 1, seed=seed)
    actions = env.action_space.shape[0]
    model = TD3(
        "MlpPolicy",
        env,
        seed=seed,
        device=device,
        learning_starts=STARTS,
        buffer_size=steps,
        batch_size=BATCH,
        learning_rate=RATE,
        tau=0.005,
        gamma=0.99,
        train_freq=1,
        gradient_steps=1,
        policy_delay=2,
        target_policy_noise=0.2,
        target_noise_clip=0.5,
        action_noise=NormalActionNoise(np.zeros(actions), np.full(actions, NOISE)),
        policy_kwargs={"net_arch": list(HIDDEN)},
    )
    started = time.perf_counter()
    model.learn(steps)
    seconds = time.perf_counter() - started
    mean, _ = evaluate_policy(model, make_vec_env(ENV, 1, seed=1000), 10, deterministic=True)
    return {"return": float(mean), "seconds": round(seconds, 1), "updates": model._n_updates}


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
    from learning import revision

    peers = {"stable-baselines3": options.peer_python, "gaitway": sys.executable}
    jobs = [(name, python, seed) for seed in options.seeds for name, python in peers.items()]
    with ThreadPoolExecutor(options.jobs) as pool:
        found = list(pool.map(lambda job: run(*job, options), jobs))
    rows = {name: [row for row, job in zip(found, jobs, strict=True) if job[0] == name] for name in peers}
    returns = {name: np.array([row["return"] for row in of], dtype=float) for name, of in rows.items()}
    draw = np.random.default_rng(0)
    means = {name: draw.choice(values, (5000, len(values))).mean(1) for name, values in returns.items()}
    low, high = np.quantile(means["gaitway"] - means["stable-baselines3"], [0.025, 0.975])
    result = {
        "benchmark": "td3_learning",
        "env": ENV,
        "steps": options.steps,
        "commit": options.commit or revision(),
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
