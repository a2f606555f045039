"""PPO end to end on HalfCheetah-v5 against stable-baselines3: same networks, epochs and minibatches, in one run.

    gaitway bench ppo_end_to_end --out benchmarks/results/ppo_end_to_end.json

The peer runs in its own virtual environment (benchmarks/peers.txt). Every contestant gets 64-64 tanh networks, 5
epochs, minibatches of 512 and raw observations. stable-baselines3 is entered with one and with two torch threads;
its better median counts. The floor is what no implementation can leave out, in plain code: bare simulation (the loop
of env_stepping.py), one forward of the actor per step, forward and backward of both networks per minibatch.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from _rounds import PEER_PYTHON, Case, Contestant, compete, report

ENV, MINIBATCH, EPOCHS = "HalfCheetah-v5", 512, 5


def serve(work: Callable[[], object], steps: int) -> None:
    """Worker: one round for each line of input."""
    for _ in sys.stdin:
        started = time.perf_counter()
        work()
        print(json.dumps({"steps_per_second": steps / (time.perf_counter() - started)}), flush=True)


def ours(num_envs: int, rollout_steps: int, iterations: int) -> None:
    """One round is `iterations` iterations of the runner."""
    import torch

    from gaitway import PPO, ActorCritic, ActorCriticConfig, OnPolicyRunner, PPOConfig, RunnerConfig, make_env

    torch.set_num_threads(1)
    env = make_env(ENV, num_envs=num_envs, seed=0)
    samples = num_envs * rollout_steps
    minibatches = samples // MINIBATCH
    config = PPOConfig(rollout_steps=rollout_steps, epochs=EPOCHS, minibatches=minibatches, schedule="constant")
    policy = ActorCritic(env.spec, ActorCriticConfig(normalise_observations=False))
    runner = OnPolicyRunner(env, PPO(policy, config, num_envs=num_envs), RunnerConfig(total_steps=10**9))
    serve(lambda: runner.learn(samples * iterations), samples * iterations)


def stable_baselines3(num_envs: int, rollout_steps: int, iterations: int, threads: int) -> None:
    """The same amount of work by the peer."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(threads)
    env = make_vec_env(ENV, num_envs, seed=0)
    model = PPO("MlpPolicy", env, n_steps=rollout_steps, batch_size=MINIBATCH, n_epochs=EPOCHS, device="cpu", seed=0)
    samples = num_envs * rollout_steps
    model.learn(samples)
    serve(lambda: model.learn(samples * iterations, reset_num_timesteps=False), samples * iterations)


def floor(num_envs: int, rollout_steps: int, iterations: int) -> None:
    """Simulation and network passes alone: no buffers, no distribution, no losses, no optimiser."""
    import numpy as np
    import torch
    from env_stepping import bare_loop
    from torch import nn

    torch.set_num_threads(1)
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (256, num_envs, 6))
    simulate, _ = bare_loop(num_envs, os.cpu_count() or 1, actions)

    def network(outputs: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(17, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))

    actor, critic = network(6), network(1)
    samples = num_envs * rollout_steps
    seen, batch = torch.randn(num_envs, 17), torch.randn(MINIBATCH, 17)
    parameters = [*actor.parameters(), *critic.parameters()]

    def work() -> None:
        for _ in range(iterations):
            with torch.inference_mode():
                for _ in range(rollout_steps):
                    actor(seen)
                    simulate(1)
            for _ in range(EPOCHS * samples // MINIBATCH):
                torch.autograd.grad(actor(batch).sum() + critic(batch).sum(), parameters)

    serve(work, samples * iterations)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--iterations", type=int, default=10, help="iterations per round")
    parser.add_argument("--envs", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--peer-python", default=PEER_PYTHON)
    parser.add_argument("--worker", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, envs, steps, threads = options.worker.split(",")
        if name == "sb3":
            stable_baselines3(int(envs), int(steps), options.iterations, int(threads))
        else:
            {"ours": ours, "floor": floor}[name](int(envs), int(steps), options.iterations)
        return

    cases, best = [], {}
    for envs in options.envs:
        steps = 2048 // envs
        script = [str(Path(__file__).resolve()), "--iterations", str(options.iterations), "--worker"]
        contestants = [
            Contestant("gaitway", [sys.executable, *script, f"ours,{envs},{steps},1"], 1),
            Contestant("floor", [sys.executable, *script, f"floor,{envs},{steps},1"], 1),
        ]
        for threads in (1, 2):
            command = [options.peer_python, *script, f"sb3,{envs},{steps},{threads}"]
            contestants.append(Contestant(f"stable-baselines3, {threads} torch threads", command, threads))
        rounds = compete(contestants, options.rounds)
        raw = {name: [r["steps_per_second"] for r in rows] for name, rows in rounds.items()}
        peers = [name for name in raw if name.startswith("stable")]
        title = f"{ENV}, {envs} instances x {steps} steps"
        best[title] = Case(title, "steps/s", raw).best(peers)
        cases.append(Case(title, "steps/s", raw, [("gaitway", name) for name in peers], "floor"))
    report(options.out, "ppo_end_to_end", cases, env=ENV, best_peer=best)


if __name__ == "__main__":
    main()
