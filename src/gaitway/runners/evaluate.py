"""Evaluation: whole episodes of a policy in environments of their own, on fixed seeds.

Episode k always starts from seed k of the evaluation stream, whatever the batch size, so two evaluations of one policy
agree exactly and two policies meet the same starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

import torch
from torch import Tensor

from gaitway.core.config import configuration
from gaitway.core.ranges import Count, WholeNumber
from gaitway.envs.spec import EnvSpec
from gaitway.envs.trials import INSTANCES, Trials, run_trials
from gaitway.envs.vec_env import Actor, VecEnv

MANY = 4096


@configuration
class EvaluationConfig:
    """When and how the policy is measured while it learns."""

    interval: WholeNumber = 100_000
    """Environment steps between evaluations, 0 for only at the end."""
    episodes: Count = 10
    """Episodes per evaluation, on seeds 0 to episodes - 1."""
    trials: Count = 50
    """Trials of each kind, in environments that count trials (goals of a task) instead of episodes."""
    stochastic: bool = True
    """Also measure the policy with its exploration noise."""
    metric: str | None = "return"
    """By what a policy is the `best`: a name as in summary.json. The highest is the best; of costs, such as `fell`, the
    lowest. Null: nothing that is measured says which one is, and there is no `best`."""
    max_steps: Count = 10_000
    """Episodes longer than this are cut, for tasks without a time limit."""
    env: dict[str, Any] = field(default_factory=dict)
    """Keys of `env` that differ in evaluation, e.g. {options: {reset_noise_scale: 0}}."""


def run_episodes(env: VecEnv, act: Actor, episodes: int, max_steps: int = 10_000) -> dict[str, Tensor]:
    """One episode on each seed 0..episodes-1; every result is float64 [episodes]: return, length and the metrics."""
    parts = []
    for first in range(0, episodes, env.num_envs):
        seeds = list(range(first, first + env.num_envs))
        parts.append(play_episodes(env, act, seeds, max_steps))
    return {name: torch.cat([part[name] for part in parts])[:episodes] for name in parts[0]}


def evaluate(
    env: VecEnv, make_policy: Callable[[bool], Actor], config: EvaluationConfig, episodes: int | None = None
) -> dict[str, float]:
    """Means over episodes: return, length, the environment's metrics, and `stochastic_return` if asked for; figures of
    all episodes together take the place of the sums that they are made of. In an environment that counts trials, what
    `run_trials` returns.

    `make_policy(stochastic)` gives a policy with fresh memory and its own random stream.
    """
    if Trials.of(env.spec) is not None:
        return _evaluate_trials(env, make_policy, config)
    episodes = episodes or config.episodes
    table = run_episodes(env, make_policy(False), episodes, config.max_steps)
    hidden = env.spec.ingredients
    result = {name: float(values.nanmean()) for name, values in table.items() if name not in hidden}
    result["return_std"] = float(table["return"].std(correction=0))
    result |= {name: figure(table) for name, figure in env.spec.pooled.items()}
    if config.stochastic:
        noisy = run_episodes(env, make_policy(True), episodes, config.max_steps)
        result["stochastic_return"] = float(noisy["return"].mean())
    return result


def _evaluate_trials(env: VecEnv, make_policy: Callable[[bool], Actor], config: EvaluationConfig) -> dict[str, float]:
    result = run_trials(env, make_policy(False), config.trials, config.max_steps)
    if config.stochastic:
        noisy = run_trials(env, make_policy(True), config.trials, config.max_steps)
        result |= {f"stochastic_{name}": noisy[name] for name in ("return", "success")}
    return result


def evaluation_instances(spec: EnvSpec, episodes: int) -> int:
    """How many instances an evaluation runs at once: all of them where worlds on a device step together."""
    if Trials.of(spec) is not None:
        return INSTANCES
    return min(episodes, MANY if spec.restores_state else INSTANCES)


def result_names(spec: EnvSpec, config: EvaluationConfig) -> list[str]:
    """The names of what an evaluation measures, but for those of single kinds of trials."""
    if Trials.of(spec) is not None:
        found = ["return", "length", "success"]
        return found + (["stochastic_return", "stochastic_success"] if config.stochastic else [])
    metrics = [name for name in spec.metrics if name not in spec.ingredients]
    found = ["return", "length", "return_std", *metrics, *spec.pooled]
    return found + (["stochastic_return"] if config.stochastic else [])


def play_episodes(env: VecEnv, act: Actor, seeds: int | list[int], max_steps: int) -> dict[str, Tensor]:
    """One episode of every instance, which start from `seeds`: return, length and the metrics, float64 [B]."""
    obs = env.reset(seed=seeds)
    act.reset()
    running = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    totals = {name: torch.zeros(env.num_envs, dtype=torch.float64, device=env.device) for name in ("return", "length")}
    unknown = float("nan")  # a total that no end has told
    reductions = {name: env.spec.reduction(name) for name in env.spec.metrics}
    metrics = {
        name: torch.full_like(totals["return"], unknown if reduction == "total" else 0.0)
        for name, reduction in reductions.items()
    }
    for _ in range(max_steps):
        step = env.step(act(obs))
        counted = running if step.valid is None else running & step.valid
        totals["return"] += torch.where(counted, step.reward, 0.0)
        totals["length"] += counted
        ended = step.terminated | step.truncated
        for name, total in metrics.items():
            _add_metric(reductions[name], total, step.metrics[name].double(), counted, counted & ended)
        running = running & ~ended
        if not bool(running.any()):
            break
        act.reset(ended if step.valid is None else ended | ~step.valid)
        obs = step.obs
    env.check_workers()  # a device tells of bad actions when it is asked
    for name, total in metrics.items():
        totals[name] = total / totals["length"].clamp(min=1) if reductions[name] == "mean" else total
    return {name: value.cpu() for name, value in totals.items()}


def _add_metric(reduction: str, total: Tensor, value: Tensor, counted: Tensor, at_end: Tensor) -> None:
    """Take one step's `value` [B] of a metric into its `total` [B]."""
    if reduction == "total":
        total.copy_(torch.where(at_end, value, total))
    elif reduction == "any":
        total.copy_(torch.where(counted, torch.maximum(total, value), total))
    elif reduction == "last":
        total.copy_(torch.where(counted, value, total))
    else:
        total += torch.where(counted, value, 0.0)
