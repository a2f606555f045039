"""Does a quadruped learn to steer a trot? `pup12/gait_params` on the evaluation grid, beside the gait alone and twins.

    gaitway bench legged_gaits --out benchmarks/results/legged_gaits.json

The preset `ppo_pup12_gait_params` learns for `--steps` with each of `--seeds`; the deterministic policy plays 120
episodes, 15 commands eight times. Open loop is the action 0. Twins learn with one mistake and must not pass: `rolled`
gives every robot the action of its neighbour, `ignored` gives all of them the action 0. `seconds` is the wall time of
learning, `cpu_seconds` what one core worked for it. Passed: velocity RMSD at most 0.12 m/s, no falls. Exit code 1 if a
seed does not pass or a twin does.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from _rounds import machine, revision, versions
from torch import Tensor

from gaitway import PPO, ActorCritic, OnPolicyRunner, PPOConfig, RunnerConfig, make_env
from gaitway.agents.actor_critic_config import ActorCriticConfig, DistributionConfig
from gaitway.core.seeding import stream
from gaitway.envs.vec_env import Observation, Step
from gaitway.envs.wrappers import Wrapper
from gaitway.runners.evaluate import run_episodes

ID, INSTANCES, EPISODES, LIMIT = "pup12/gait_params", 128, 120, 0.12


class Rolled(Wrapper):
    """Every robot does what its neighbour should."""

    def step(self, action: Tensor) -> Step:
        return self.env.step(action.roll(1, 0))


class Ignored(Wrapper):
    """Every robot does nothing but its gait."""

    def step(self, action: Tensor) -> Step:
        return self.env.step(torch.zeros_like(action))


TWINS = {"rolled": Rolled, "ignored": Ignored}


class Still:
    def __call__(self, obs: Observation) -> Tensor:
        return torch.zeros(len(obs["policy"]), 6)

    def reset(self, mask: Tensor | None = None) -> None:
        """Nothing is remembered."""


def judged(act: Any, twin: str | None = None) -> dict[str, float]:
    env = make_env(ID, EPISODES, num_threads=1, purpose="evaluation", commands={"sampler": "grid"})
    table = run_episodes(TWINS[twin](env) if twin else env, act, EPISODES)
    return {name: round(figure(table), 4) for name, figure in env.spec.pooled.items()} | {
        "fell": float(table["fell"].mean()),
        "return": float(table["return"].mean()),
    }


def learnt(seed: int, steps: int, twin: str | None = None) -> dict[str, float]:
    """The preset's numbers, in Python, because twins wrap the environment."""
    env = make_env(ID, INSTANCES, seed=seed, num_threads=1)
    env = TWINS[twin](env) if twin else env
    config = ActorCriticConfig(distribution=DistributionConfig(init_std=0.3))
    policy = ActorCritic(env.spec, config, generator=stream(seed, "policy"))
    numbers = PPOConfig(rollout_steps=16, epochs=5, minibatches=4, learning_rate=1.5e-3, gamma=0.97)
    runner = OnPolicyRunner(
        env, PPO(policy, numbers, num_envs=INSTANCES, seed=seed), RunnerConfig(total_steps=steps, seed=seed)
    )
    wall, cpu = time.perf_counter(), time.process_time()
    runner.learn(steps)
    spent = {"seconds": round(time.perf_counter() - wall, 1), "cpu_seconds": round(time.process_time() - cpu, 1)}
    return judged(runner.inference_policy(), twin) | spent | {"steps": float(runner.env_steps)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--steps", type=int, default=80_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--twins", nargs="*", default=list(TWINS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[str, dict[str, float]] = {}
    plan = [("open loop", None, None), *((f"seed {seed}", seed, None) for seed in options.seeds)]
    plan += [(f"twin {twin}, seed {options.seeds[0]}", options.seeds[0], twin) for twin in options.twins]
    passed = True
    for name, seed, twin in plan:
        rows[name] = judged(Still()) if seed is None else learnt(seed, options.steps, twin)
        print(name, rows[name], flush=True)
        is_good = rows[name]["velocity_rmsd"] <= LIMIT and rows[name]["fell"] == 0.0
        passed &= is_good == (seed is not None and twin is None)
        if options.out:
            about = {"benchmark": "legged_gaits", "machine": machine(), "versions": versions("mujoco", "torch")}
            result = {**about, "commit": revision(), "limit": LIMIT, "passed": passed, "rows": rows}
            Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
