"""What a task pays for doing nothing and for doing anything: the bar that a policy has to clear.

Episodes of zero and of random actions are played side by side on the evaluation seeds. What they show besides the
return, parts of the reward and components of the observation that never move, is kept for `preflight`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gaitway.core.seeding import stream
from gaitway.envs.spec import ActionSpec, EnvSpec
from gaitway.envs.vec_env import Observation, VecEnv
from gaitway.runners.collect import RandomPolicy
from gaitway.runners.evaluate import play_episodes


class OutOfTimeError(Exception):
    """There was no time to play the episodes to their ends."""


class ZeroPolicy:
    """The same action always: 0, or what is nearest to it within the limits; of choices, the first."""

    def __init__(self, action: ActionSpec) -> None:
        self._action = action.idle()

    def __call__(self, obs: Observation) -> Tensor:
        """Actions [B, ...] for observations `{group: [B, ...]}`."""
        first = next(iter(obs.values()))
        return self._action.to(first.device).expand(len(first), *self._action.shape)

    def reset(self, mask: Tensor | None = None) -> None:
        """Nothing is remembered."""


@dataclass(frozen=True)
class Score:
    """A mean over episodes and how sure it is."""

    mean: float
    std: float
    """Over the episodes."""
    episodes: int

    @property
    def noise(self) -> float:
        """Two standard errors of the mean."""
        return 2.0 * self.std / math.sqrt(self.episodes)

    def to_dict(self) -> dict[str, float | int]:
        return {"mean": self.mean, "std": self.std, "noise": self.noise, "episodes": self.episodes}

    @classmethod
    def of(cls, values: Tensor) -> Score:
        return cls(float(values.mean()), float(values.std(correction=0)), len(values))


class Baselines:
    """Results of zero and random actions; `table` has a tensor [zero episodes, then random ones] per metric."""

    def __init__(self, spec: EnvSpec, table: Mapping[str, Tensor], episodes: int, unmoved: list[str]) -> None:
        self.spec, self.table, self.episodes, self.unmoved = spec, table, episodes, unmoved

    def scores(self, metric: str | None = "return") -> dict[str, Score]:
        """`zero` and, where actions have limits to draw between, `random`; empty for none, or one that is not known."""
        values = torch.empty(0) if metric is None else self.table.get(metric, torch.empty(0))
        parts = dict(zip(("zero", "random"), values.split(self.episodes), strict=False))
        return {name: Score.of(values) for name, values in parts.items() if len(values) and values.isfinite().all()}

    def reward_parts(self) -> dict[str, Tensor]:
        """The sum over each episode of every metric that is a part of the reward."""
        parts = {name: self.table[name] for name in self.spec.reward_parts if name in self.table}
        is_mean = {name: self.spec.reduction(name) == "mean" for name in parts}
        return {name: values * self.table["length"] if is_mean[name] else values for name, values in parts.items()}


class _SideBySide:
    """Acts with zeros in the first `episodes` instances and at random in the others; watches what they see."""

    def __init__(self, spec: EnvSpec, episodes: int, device: torch.device, deadline: float) -> None:
        self.zero = ZeroPolicy(spec.action)
        self.random = RandomPolicy(spec.action, stream(0, "preflight", device)) if has_limits(spec.action) else None
        self.episodes, self.deadline = episodes, deadline
        self.low: dict[str, Tensor] = {}
        self.high: dict[str, Tensor] = {}
        self.groups = [group for group in spec.groups if group.is_vector]

    def __call__(self, obs: Observation) -> Tensor:
        if time.perf_counter() > self.deadline:
            raise OutOfTimeError
        for group in self.groups:
            least, most = torch.aminmax(obs[group.name], dim=0)
            known = group.name in self.low
            self.low[group.name] = torch.minimum(self.low[group.name], least) if known else least.clone()
            self.high[group.name] = torch.maximum(self.high[group.name], most) if known else most.clone()
        action = self.zero(obs)
        if self.random is None:
            return action
        return torch.cat([action[: self.episodes], self.random(obs)[self.episodes :]])

    def reset(self, mask: Tensor | None = None) -> None:
        """Nothing is remembered."""

    def unmoved(self) -> list[str]:
        """Components of which no number ever changed, `group.component`."""
        found = []
        for group in self.groups:
            still, first = (self.low[group.name] == self.high[group.name]).tolist(), 0
            for component in group.components:
                if component.size and all(still[first : first + component.size]):
                    found.append(f"{group.name}.{component.name}")
                first += component.size
        return found


def has_limits(action: ActionSpec) -> bool:
    """Whether actions can be drawn evenly."""
    return action.kind != "continuous" or all(map(math.isfinite, (*action.low, *action.high)))


def baseline_instances(spec: EnvSpec, episodes: int) -> int:
    """Instances that play zero and random actions side by side."""
    return episodes * (2 if has_limits(spec.action) else 1)


def play_baselines(env: VecEnv, episodes: int, max_steps: int, deadline: float) -> Baselines:
    """An episode of zero and one of random actions on each of the seeds 0..episodes-1, in an environment of
    `baseline_instances`; an OutOfTimeError if `deadline`, a reading of `time.perf_counter`, comes first."""
    act = _SideBySide(env.spec, episodes, torch.device(env.device), deadline)
    seeds = [*range(episodes)] * (env.num_envs // episodes)
    table = play_episodes(env, act, seeds, max_steps)
    return Baselines(env.spec, table, episodes, act.unmoved())
