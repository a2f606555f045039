"""PPO end to end on HalfCheetah-v5 against stable-baselines3: same networks, epochs and minibatches, in one run.

    gaitway bench ppo_end_to_end --out benchmarks/results/ppo_end_to_end.json

The peer runs in its own virtual environment (benchmarks/peers.txt). Every contestant gets 64-64 tanh networks, 5
epochs, minibatches of 512 and raw observations. stable-baselines3 is entered with one and with two torch threads;
its better median counts.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

ENV = "HalfCheetah-v5"


def ours(num_envs: int, rollout_steps: int, iterations: int) -> None:
    """Worker: one round is `iterations` iterations of the runner."""
    import torch

    from gaitway import PPO, ActorCritic, ActorCriticConfig, OnPolicyRunner, PPOConfig, RunnerConfig, make_env

    torch.set_num_threads(1)
    env = make_env(ENV, num_envs=num_envs, seed=0)
    samples = num_envs * rollout_steps
    config = PPOConfig(rollout_steps=rollout_steps, epochs=5, minibatches=samples // 512, schedule="constant")
    policy = ActorCritic(env.spec, ActorCriticConfig(normalise_observations=False))
    runner = OnPolicyRunner(env, PPO(policy, config, num_envs=num_envs), RunnerConfig(total_steps=10**9))
    for _ in sys.stdin:
        started = time.perf_counter()
        runner.learn(samples * iterations)
        seconds = time.perf_counter() - started
        print(json.dumps({"steps_per_second": samples * iterations / seconds}), flush=True)


def stable_baselines3(num_envs: int, rollout_steps: int, iterations: int, threads: int) -> None:
    """Worker: the same amount of work by the peer."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(threads)
    env = make_vec_env(ENV, num_envs, seed=0)
    model = PPO("MlpPolicy", env, n_steps=rollout_steps, batch_size=512, n_epochs=5, device="cpu", seed=0)
    samples = num_envs * rollout_steps
    model.learn(samples)
    for _ in sys.stdin:
        started = time.perf_counter()
        model.learn(samples * iterations, reset_num_timesteps=False)
        seconds = time.perf_counter() - started
        print(json.dumps({"steps_per_second": samples * iterations / seconds}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--iterations", type=int, default=10, help="iterations per round")
    parser.add_argument("--envs", type=int, nargs="+", default=[64])
    parser.add_argument("--peer-python", default=".venv-peers/bin/python")
    parser.add_argument("--worker", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, envs, steps, threads = options.worker.split(",")
        if name == "ours":
            ours(int(envs), int(steps), options.iterations)
        else:
            stable_baselines3(int(envs), int(steps), options.iterations, int(threads))
        return

    from _rounds import Contestant, compete, machine, median_spread, ratio, write

    results: dict[str, object] = {"benchmark": "ppo_end_to_end", "env": ENV, "machine": machine()}
    for envs in options.envs:
        steps = 2048 // envs
        script = [str(Path(__file__).resolve()), "--iterations", str(options.iterations), "--worker"]
        contestants = [Contestant("gaitway", [sys.executable, *script, f"ours,{envs},{steps},1"], 1)]
        for threads in (1, 2):
            worker = f"sb3,{envs},{steps},{threads}"
            name = f"stable-baselines3, {threads} threads"
            contestants.append(Contestant(name, [options.peer_python, *script, worker], threads))
        rounds = compete(contestants, options.rounds)
        rates = {name: [r["steps_per_second"] for r in rows] for name, rows in rounds.items()}
        peers = {name: rate for name, rate in rates.items() if name != "gaitway"}
        best = max(peers, key=lambda name: median_spread(peers[name])["median"])
        results[f"{envs} environments x {steps} steps"] = {
            "steps_per_second": {name: median_spread(rate) for name, rate in rates.items()},
            "best_peer": best,
            "ratio": ratio(rates["gaitway"], rates[best]),
            "raw": rates,
        }
    write(options.out, results)


if __name__ == "__main__":
    main()
