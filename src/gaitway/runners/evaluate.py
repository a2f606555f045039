"""Evaluation: whole episodes of a policy in environments of their own, on fixed seeds.

Episode k always starts from seed k of the evaluation stream, whatever the batch size, so two evaluations of one policy
agree exactly and two policies meet the same starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from gaitway.envs.vec_env import Observation, VecEnv


@dataclass(frozen=True)
class EvaluationConfig:
    """When and how the policy is measured while it learns."""

    interval: int = 100_000
    """Environment steps between evaluations, 0 for only at the end."""
    episodes: int = 10
    """Episodes per evaluation, on seeds 0 to episodes - 1."""
    stochastic: bool = True
    """Also measure the policy with its exploration noise."""
    metric: str = "return"
    """What `best` maximises: a name as in summary.json."""
    max_steps: int = 10_000
    """Episodes longer than this are cut, for tasks without a time limit."""
    env: dict[str, Any] = field(default_factory=dict)
    """Keys of `env` that differ in evaluation, e.g. {options: {reset_noise_scale: 0}}."""

    def __post_init__(self) -> None:
        if self.interval < 0 or self.episodes < 1 or self.max_steps < 1:
            found = f"interval is {self.interval}, episodes {self.episodes}, max_steps {self.max_steps}"
            raise ValueError(f"{found}; use >= 0, >= 1 and >= 1")


class Actor(Protocol):
    """Anything that maps observations to actions and can forget: an `InferencePolicy`, a script."""

    def __call__(self, obs: Observation) -> Tensor: ...

    def reset(self, mask: Tensor | None = None) -> None: ...


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
    """Means over episodes: return, length, the environment's metrics, and `stochastic_return` if asked for.

    `make_policy(stochastic)` gives a policy with fresh memory and its own random stream.
    """
    episodes = episodes or config.episodes
    table = run_episodes(env, make_policy(False), episodes, config.max_steps)
    result = {name: float(values.nanmean()) for name, values in table.items()}
    result["return_std"] = float(table["return"].std(correction=0))
    if config.stochastic:
        noisy = run_episodes(env, make_policy(True), episodes, config.max_steps)
        result["stochastic_return"] = float(noisy["return"].mean())
    return result


def play_episodes(env: VecEnv, act: Actor, seeds: int | list[int], max_steps: int) -> dict[str, Tensor]:
    """One episode of every instance, which start from `seeds`: return, length and the metrics, float64 [B]."""
    obs = env.reset(seed=seeds)
    act.reset()
    running = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    totals = {name: torch.zeros(env.num_envs, dtype=torch.float64, device=env.device) for name in ("return", "length")}
    unknown = float("nan")  # a total that no end has told
    metrics = {
        name: torch.full_like(totals["return"], unknown if name.endswith("_episode") else 0.0)
        for name in env.spec.metrics
    }
    events = env.spec.events
    for _ in range(max_steps):
        step = env.step(act(obs))
        counted = running if step.valid is None else running & step.valid
        totals["return"] += torch.where(counted, step.reward, 0.0)
        totals["length"] += counted
        ended = step.terminated | step.truncated
        for name, total in metrics.items():
            _add_metric(name, name in events, total, step.metrics, counted, counted & ended)
        running = running & ~ended
        if not bool(running.any()):
            break
        act.reset(ended if step.valid is None else ended | ~step.valid)
        obs = step.obs
    for name, total in metrics.items():
        is_mean = name not in events and not name.endswith("_episode")
        totals[name] = total / totals["length"].clamp(min=1) if is_mean else total
    return {name: value.cpu() for name, value in totals.items()}


def _add_metric(
    name: str, is_event: bool, total: Tensor, values: Mapping[str, Tensor], counted: Tensor, at_end: Tensor
) -> None:
    value = values[name].double()
    if name.endswith("_episode"):
        total.copy_(torch.where(at_end, value, total))
    elif is_event:
        total.copy_(torch.where(counted, torch.maximum(total, value), total))
    else:
        total += torch.where(counted, value, 0.0)
