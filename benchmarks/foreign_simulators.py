"""The two doors to foreign libraries, with the libraries themselves: mjlab's simulator here, our task in rsl_rl.

    PYTHONPATH=src .venv-foreign/bin/python benchmarks/foreign_simulators.py --out FILE.json

`benchmarks/foreign.txt` says how that environment is made. Part `rsl_rl`: its `OnPolicyRunner` learns
`pup12/gait_params` through `as_rsl_rl_env`, with the networks and numbers of the preset; its policy is judged as ours
are, on the grid of 120 episodes. Passed: velocity RMSD at most 0.13 m/s. Part `mjlab`: our PPO learns
`Mjlab-Cartpole-Balance` through the adapter, in episodes of 5 s because a pole that fell stays down; a second earns at
most 1. Passed: a mean of at least 0.8 over 20 s of each instance, and at least 0.2 above the untrained policy. Every
seed is reported.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from _rounds import machine, revision, versions

from gaitway import PPO, ActorCritic, OnPolicyRunner, PPOConfig, RunnerConfig, make_env
from gaitway.agents.actor_critic_config import ActorCriticConfig, DistributionConfig
from gaitway.core.seeding import stream
from gaitway.envs.foreign.rsl_rl_env import as_rsl_rl_env
from gaitway.envs.vec_env import Actor, Observation, VecEnv
from gaitway.runners.evaluate import run_episodes

GAIT, INSTANCES, EPISODES, RMSD = "pup12/gait_params", 128, 120, 0.13
STEPS = {"rsl_rl": 102_400, "mjlab": 307_200}
"""Of each run; mjlab's were chosen on seed 100 (0.55 untrained, 1.00 in the end), after 60,000 had not been enough."""
CARTPOLE, POLES, BALANCED, BETTER = "mjlab:Mjlab-Cartpole-Balance", 64, 0.8, 0.2


class Theirs:
    """A policy of rsl_rl as we play one."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def __call__(self, obs: Observation) -> torch.Tensor:
        from tensordict import TensorDict

        with torch.inference_mode():
            return self.policy(TensorDict(dict(obs), batch_size=[len(obs["policy"])]))

    def reset(self, mask: torch.Tensor | None = None) -> None:
        """Nothing is remembered."""


def rsl_rl_on_ours(seed: int, steps: int) -> dict[str, float]:
    from rsl_rl.runners import OnPolicyRunner as TheirRunner

    torch.manual_seed(seed)
    network = {"class_name": "MLPModel", "hidden_dims": [64, 64], "activation": "tanh", "obs_normalization": True}
    config: dict[str, Any] = {
        "algorithm": {
            **{"class_name": "PPO", "num_learning_epochs": 5, "num_mini_batches": 4, "learning_rate": 1.5e-3},
            **{"gamma": 0.97, "lam": 0.95, "entropy_coef": 0.0, "schedule": "fixed"},
        },
        "actor": network | {"distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 0.3}},
        "critic": dict(network),
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "num_steps_per_env": 16,
        "save_interval": 10**9,
    }
    env = as_rsl_rl_env(make_env(GAIT, INSTANCES, seed=seed, num_threads=1))
    with contextlib.redirect_stdout(sys.stderr):
        runner = TheirRunner(env, config, None, "cpu")
        started = time.perf_counter()
        runner.learn(steps // (INSTANCES * 16), init_at_random_ep_len=True)
    seconds = time.perf_counter() - started
    judge = make_env(GAIT, EPISODES, num_threads=1, purpose="evaluation", commands={"sampler": "grid"})
    table = run_episodes(judge, Theirs(runner.get_inference_policy("cpu")), EPISODES)
    rmsd = judge.spec.pooled["velocity_rmsd"](table)
    return {"velocity_rmsd": round(rmsd, 4), "fell": float(table["fell"].mean()), "seconds": round(seconds, 1)}


def mean_reward(env: VecEnv, act: Actor) -> float:
    """Of one episode of every instance, by the second: mjlab's rewards are scaled by the length of a step."""
    table = run_episodes(env, act, env.num_envs)
    return round(float((table["return"] / table["length"]).mean()) / env.spec.control_dt, 4)


def ours_on_mjlab(seed: int, steps: int) -> dict[str, float]:
    env = make_env(CARTPOLE, POLES, seed=seed, episode_seconds=5.0)
    config = ActorCriticConfig(distribution=DistributionConfig(init_std=0.5))
    policy = ActorCritic(env.spec, config, generator=stream(seed, "policy"))
    numbers = PPOConfig(rollout_steps=32, epochs=5, minibatches=4, learning_rate=1e-3, schedule="adaptive")
    algorithm = PPO(policy, numbers, num_envs=POLES, seed=seed)
    runner = OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=steps, seed=seed, stagger_timeouts=True))
    judge = make_env(CARTPOLE, 16, seed=seed, purpose="evaluation", episode_seconds=20.0)
    untrained = mean_reward(judge, runner.inference_policy())
    started = time.perf_counter()
    runner.learn(steps)
    seconds = time.perf_counter() - started
    trained = mean_reward(judge, runner.inference_policy())
    exact = float(env.spec.final_observations == "exact")
    return {"untrained": untrained, "trained": trained, "seconds": round(seconds, 1), "exact_final_obs": exact}


def passed(part: str, row: dict[str, float]) -> bool:
    if part == "rsl_rl":
        return row["velocity_rmsd"] <= RMSD
    return row["trained"] >= BALANCED and row["trained"] >= row["untrained"] + BETTER


PARTS = {"rsl_rl": rsl_rl_on_ours, "mjlab": ours_on_mjlab}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=None, help=f"of each run, {STEPS} by itself")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows: dict[str, Any] = {}
    for part in options.parts:
        for seed in options.seeds:
            steps = options.steps or STEPS[part]
            row = PARTS[part](seed, steps)
            rows[f"{part}, seed {seed}"] = row | {"steps": steps, "passed": passed(part, row)}
            print(part, seed, rows[f"{part}, seed {seed}"], flush=True)
            if options.out:
                about = {"benchmark": "foreign_simulators", "machine": machine(), "commit": revision()}
                about["versions"] = versions("mujoco", "torch", "rsl-rl-lib", "mjlab", "mujoco-warp")
                Path(options.out).write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    return 0 if all(row["passed"] for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
