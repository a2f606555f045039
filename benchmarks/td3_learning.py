"""TD3 learns HalfCheetah-v5 beside stable-baselines3: 100 thousand steps, the same recipe, every seed reported.

    gaitway bench td3_learning --seeds 0 1 2 --jobs 2 --out benchmarks/results/td3_learning.json

Both get one environment, 256-256 networks, batches of 256, an update of the critics per step and of the actor at every
second, rates of 1e-3, noise of 0.1 and 10 thousand uniform steps first; the final policy is measured deterministically
on 10 episodes. The interval is that of the difference of the means, by bootstrap over seeds. The peer runs in its own
virtual environment (benchmarks/peers.txt).
"""

from __future__ import annotations

import time

from _beside import Trial, learn_beside

ENV = "HalfCheetah-v5"
STARTS, NOISE, RATE, BATCH = 10_000, 0.1, 1e-3, 256
HIDDEN = (256, 256)


def ours(trial: Trial) -> dict[str, object]:
    import torch

    from gaitway import OffPolicyRunner, RunnerConfig, evaluate, make_env
    from gaitway.agents.deterministic_actor_critic import DeterministicActorCritic, DeterministicActorCriticConfig
    from gaitway.algorithms.td3 import TD3, TD3Config
    from gaitway.core.seeding import stream
    from gaitway.runners.evaluate import EvaluationConfig

    torch.set_num_threads(trial.threads)
    seed, steps, device = trial.seed, trial.steps, trial.device
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


def stable_baselines3(trial: Trial) -> dict[str, object]:
    import numpy as np
    import torch
    from stable_baselines3 import TD3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.noise import NormalActionNoise

    torch.set_num_threads(trial.threads)
    seed, steps, device = trial.seed, trial.steps, trial.device
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


if __name__ == "__main__":
    learn_beside(__file__, __doc__, ENV, ours, stable_baselines3)
