"""SAC end to end on HalfCheetah-v5 against stable-baselines3: one gradient step per environment step, in one run.

    gaitway bench sac_end_to_end --out benchmarks/results/sac_end_to_end.json

The peer runs in its own virtual environment (benchmarks/peers.txt). Both train 256-256 networks with batches of 256,
learnt temperature and one gradient step per environment step, with 1 and with 4 instances; rounds are taken after
learning has begun. Both are entered with one and with two torch threads; the better median counts. Ours steps the
simulator with its default threads.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from _rounds import PEER_PYTHON, Case, Contestant, compete, report
from ppo_end_to_end import ENV, serve

LEARNING_STARTS = 1000


def ours(num_envs: int, steps: int, threads: int) -> None:
    import torch

    from gaitway import RunnerConfig, make_env
    from gaitway.agents.soft_actor_critic import SoftActorCritic
    from gaitway.algorithms.sac import SAC, SACConfig
    from gaitway.runners.off_policy import OffPolicyRunner

    torch.set_num_threads(threads)
    env = make_env(ENV, num_envs=num_envs, seed=0)
    config = SACConfig(learning_starts=LEARNING_STARTS, iteration_steps=min(1000, steps), update_ratio=1.0)
    algorithm = SAC(SoftActorCritic(env.spec), config, num_envs=num_envs)
    runner = OffPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**9))
    runner.learn(LEARNING_STARTS + steps)

    def work() -> None:
        steps_before, updates_before = runner.env_steps, runner.updates
        runner.learn(steps)
        if runner.env_steps - steps_before != steps or runner.updates - updates_before != steps:
            raise RuntimeError(
                f"{runner.env_steps - steps_before} steps and {runner.updates - updates_before} gradient steps were "
                f"made instead of {steps}"
            )

    serve(work, steps)


def stable_baselines3(num_envs: int, steps: int, threads: int) -> None:
    import torch
    from stable_baselines3 import SAC
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(threads)
    model = SAC(
        "MlpPolicy",
        make_vec_env(ENV, num_envs, seed=0),
        learning_starts=LEARNING_STARTS,
        train_freq=1,
        gradient_steps=num_envs,
        device="cpu",
        seed=0,
    )
    model.learn(LEARNING_STARTS + steps)

    def work() -> None:
        updates_before = model._n_updates
        model.learn(steps, reset_num_timesteps=False)
        if model._n_updates - updates_before != steps:
            raise RuntimeError(f"{model._n_updates - updates_before} gradient steps were made instead of {steps}")

    serve(work, steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=1000, help="environment steps per round")
    parser.add_argument("--envs", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--peer-python", default=PEER_PYTHON)
    parser.add_argument("--worker", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, envs, threads = options.worker.split(",")
        {"ours": ours, "sb3": stable_baselines3}[name](int(envs), options.steps, int(threads))
        return

    cases, best = [], {}
    script = [str(Path(__file__).resolve()), "--steps", str(options.steps), "--worker"]
    for envs in options.envs:
        contestants = []
        for threads in (1, 2):
            name = f"gaitway, {threads} torch threads"
            contestants.append(Contestant(name, [sys.executable, *script, f"ours,{envs},{threads}"], threads))
            name = f"stable-baselines3, {threads} torch threads"
            contestants.append(Contestant(name, [options.peer_python, *script, f"sb3,{envs},{threads}"], threads))
        rounds = compete(contestants, options.rounds)
        raw = {name: [r["steps_per_second"] for r in rows] for name, rows in rounds.items()}
        title = f"{ENV}, {envs} instances, update ratio 1"
        case = Case(title, "steps/s", raw)
        ours_best, peer_best = (case.best([n for n in raw if n.startswith(who)]) for who in ("gaitway", "stable"))
        best[title] = {"ours": ours_best, "peer": peer_best}
        pairs = [(ours_best, peer_best), (contestants[0].name, peer_best)]
        cases.append(Case(title, "steps/s", raw, list(dict.fromkeys(pairs))))
    report(options.out, "sac_end_to_end", cases, env=ENV, best=best)


if __name__ == "__main__":
    main()
