"""Evaluation by trials, for tasks in which goals, throws or serves follow each other within an episode.

A task says in its contract (`EnvSpec.facts["trials"]`) which metric marks the last step of a trial (`ends`), which says
of what kind it was (`kind`), which one is its outcome, and what the kinds are called. An evaluation plays equally many
trials of each kind: how many an instance plays is settled before the first one begins, because whoever counted what
ends within a given time would count short trials, the successful ones, too often.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gaitway.core.workspace import Workspace
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Actor, VecEnv

FOLLOW = 0.1
"""How far the running mean of a kind moves with each of its trials."""
INSTANCES = 64
"""Instances that an evaluation by trials runs at once."""


@dataclass(frozen=True)
class Trials:
    """What an environment says of its trials."""

    ends: str
    kind: str
    outcome: str
    kinds: Mapping[int, str]
    """Name of every kind there can be."""

    @classmethod
    def of(cls, spec: EnvSpec) -> Trials | None:
        """What the contract states; None for environments without trials."""
        plain = spec.facts.get("trials")
        if plain is None:
            return None
        return cls(
            plain["ends"], plain["kind"], plain["outcome"], {int(key): name for key, name in plain["kinds"].items()}
        )


def run_trials(env: VecEnv, act: Actor, per_kind: int, max_steps: int) -> dict[str, float]:
    """`per_kind` trials of each kind that the task has at present: `success`, the mean over kinds, `success/<kind>`,
    and per trial `return` and `length`. A kind of which no trial ended within `max_steps` is NaN."""
    trials = Trials.of(env.spec)
    if trials is None:
        raise ValueError(f"{env.spec.id} states no trials in its contract; evaluate it by episodes")
    names: Mapping[int, str] = env.call("plan_trials", per_kind)
    share = math.ceil(len(names) * per_kind / env.num_envs)
    planned = torch.arange(env.num_envs) * share
    planned = (len(names) * per_kind - planned).clamp(0, share)
    left = planned.clone()
    size = max(names) + 1
    tried, got = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
    total_return = total_length = 0.0
    obs = env.reset(seed=list(range(env.num_envs)))
    act.reset()
    for _ in range(max_steps):
        step = env.step(act(obs))
        values = torch.stack([step.metrics[name].double() for name in (trials.ends, trials.kind, trials.outcome)])
        ended, kind, outcome = torch.cat((values, step.reward.double()[None])).cpu()[:3]
        counted = left > 0
        total_return += float(step.reward.cpu()[counted].sum())
        total_length += float(counted.sum())
        over = counted & ((ended > 0) | step.terminated.cpu())  # a fault of the physics ends a trial too
        key = kind[over].long()
        tried.index_add_(0, key, torch.ones(len(key), dtype=torch.float64))
        got.index_add_(0, key, outcome[over])
        left -= over.long()
        if not bool((left > 0).any()):
            break
        done = step.terminated | step.truncated
        act.reset(done if step.valid is None else done | ~step.valid)
        obs = step.obs
    env.call("plan_trials", 0)
    rate = (got / tried).tolist()  # NaN where nothing was tried
    made = max(float(tried.sum()), 1.0)
    listed = {f"success/{name}": rate[key] for key, name in names.items()}
    success = float(np.mean(list(listed.values()))) if listed else math.nan
    return {"return": total_return / made, "length": total_length / made, "success": success} | listed


class TrialStatistics:
    """Running success of every kind while training: each trial moves that of its kind by a tenth of the way."""

    def __init__(self, trials: Trials) -> None:
        self.trials = trials
        self.success: dict[int, float] = {}

    def add(self, ws: Workspace) -> None:
        """Count the trials that ended in a rollout, row after row."""
        ends, kinds, outcomes = (
            ws[f"env/metric/{name}"].cpu().numpy() for name in (self.trials.ends, self.trials.kind, self.trials.outcome)
        )
        over = ends > 0
        key, outcome = kinds[over].astype(np.int64), outcomes[over].astype(np.float64)
        for kind in np.unique(key).tolist():
            of_kind = outcome[key == kind]
            weights = FOLLOW * (1.0 - FOLLOW) ** np.arange(len(of_kind) - 1, -1, -1)
            before = self.success.get(kind, float(of_kind[0]))
            mean = before * (1.0 - FOLLOW) ** len(of_kind) + weights @ of_kind
            met = (before, *of_kind)  # the weights add up to 1 but for rounding: a mean of ones may be above 1
            self.success[kind] = float(np.clip(mean, min(met), max(met)))

    def metrics(self) -> dict[str, float]:
        return {f"env/success/{self.trials.kinds[kind]}": value for kind, value in sorted(self.success.items())}

    def state_dict(self) -> dict[str, Any]:
        return {str(kind): value for kind, value in self.success.items()}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        self.success = {int(kind): value for kind, value in state.items()}
