"""SAC learns HalfCheetah-v5 beside stable-baselines3: 100 thousand steps, the same recipe, every seed reported.

    gaitway bench sac_learning --seeds 0 1 2 --jobs 6 --out benchmarks/results/sac_learning.json

Both get one environment, 256-256 networks, batches of 256, an update per step, rates of 3e-4 and 10 thousand uniform
steps first; the final policy is measured deterministically on 10 episodes. The interval is that of the difference of
the means, by bootstrap over seeds. The peer runs in its own virtual environment (benchmarks/peers.txt).
"""

from __future__ import annotations

import time

from _beside import Trial, learn_beside

ENV = "HalfCheetah-v5"
STARTS = 10_000


def ours(trial: Trial) -> dict[str, object]:
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

    torch.set_num_threads(trial.threads)
    seed, steps, device = trial.seed, trial.steps, trial.device
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


def stable_baselines3(trial: Trial) -> dict[str, object]:
    import torch
    from stable_baselines3 import SAC
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    torch.set_num_threads(trial.threads)
    seed, steps, device = trial.seed, trial.steps, trial.device
    env = make_vec_env(ENV, 1, seed=seed)
    model = SAC("MlpPolicy", env, seed=seed, device=device, learning_starts=STARTS, buffer_size=steps)
    started = time.perf_counter()
    model.learn(steps)
    seconds = time.perf_counter() - started
    mean, _ = evaluate_policy(model, make_vec_env(ENV, 1, seed=1000), 10, deterministic=True)
    return {"return": float(mean), "seconds": round(seconds, 1)}


if __name__ == "__main__":
    learn_beside(__file__, __doc__, ENV, ours, stable_baselines3)
