"""Parts of the reward that are valued apart: each has a critic, a discount and a trace of its own.

    A = A_main + sum over groups of weight_g A_g,      A_g: the advantage of stream g under (gamma_g, lam_g)

The advantages are summed first and standardised once. Each critic learns the return of its own stream. A stream that is
not `episodic` goes on over the ends of episodes (Burda et al. 2018): what was new stays known when another begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gaitway.algorithms.engine import copied_state
from gaitway.core.config import configuration
from gaitway.core.ranges import Number, Share
from gaitway.core.workspace import Workspace
from gaitway.functional.returns import gae
from gaitway.nn.normalise import ReturnScaler, ValueNorm

MAIN = "main"
"""The stream of all sources that no group names."""


@configuration
class RewardGroup:
    """Reward sources with a critic of their own."""

    name: str
    sources: tuple[str, ...]
    """Names of reward sources; those of no group are the main stream, with the algorithm's own numbers."""
    weight: Number = 1.0
    """Of their advantages in the sum; the main stream has 1."""
    gamma: Share = 0.99
    lam: Share = 0.95
    episodic: bool = True
    """Whether returns end with an episode."""

    def __post_init__(self) -> None:
        if self.name in ("", MAIN):
            raise ValueError(f"a reward group is called {self.name!r}; {MAIN!r} are the sources of no group")
        if not self.sources:
            raise ValueError(f"the reward group {self.name!r} has no sources; name at least one of `rewards`")


def check_groups(groups: Sequence[RewardGroup]) -> None:
    """Refuse groups that share a name or a source."""
    names = [group.name for group in groups]
    if len(set(names)) < len(names):
        raise ValueError(f"two reward groups share a name: {names}; give each its own")
    sources = [source for group in groups for source in group.sources]
    twice = [source for source in sources if sources.count(source) > 1]
    if twice:
        raise ValueError(f"the source {twice[0]!r} is in two reward groups; name it in one")


class Estimate(NamedTuple):
    """What one stream makes of a rollout, each [T, B]."""

    advantage: Tensor
    goal: Tensor
    """The learning target of the critic, in its own units."""
    value: Tensor
    target: Tensor
    """What the critic said, and its target, in units of the reward."""


class RewardStream:
    """One stream: its reward, its returns, its units."""

    def __init__(
        self,
        variable: str,
        gamma: float,
        lam: float,
        *,
        name: str = MAIN,
        weight: float = 1.0,
        episodic: bool = True,
        scale: ReturnScaler | None = None,
        norm: ValueNorm | None = None,
    ) -> None:
        self.name, self.variable, self.weight = name, variable, weight
        self.gamma, self.lam, self.episodic = gamma, lam, episodic
        self.scale, self.norm = scale, norm

    def reward(self, ws: Workspace) -> Tensor:
        """Its reward [T, B], scaled if it is."""
        reward = ws[self.variable] if self.variable in ws else ws["env/reward"]
        if self.scale is None:
            return reward
        valid = ws["env/valid"] if "env/valid" in ws else None
        return self.scale.scale(reward, ws["env/done"] if self.episodic else None, valid)

    def estimate(
        self, ws: Workspace, reward: Tensor, value: Tensor, following: Tensor, next_row: Tensor | None = None
    ) -> Estimate:
        """Advantages and targets from what its critic says of every step, of the observation that followed it and, for
        streams that go on from episode to episode, of the next row, each [T, B]."""
        terminated, done = ws["env/terminated"], ws["env/done"]
        if not self.episodic:  # the next episode is what follows
            assert next_row is not None
            following = next_row
            terminated = done = torch.zeros_like(done)
        if self.norm is not None:
            value, following = self.norm.denormalise(value), self.norm.denormalise(following)
        advantage = gae(reward, value, following, terminated, done, self.gamma, self.lam)
        target = advantage + value
        goal = target
        if self.norm is not None:
            self.norm.update(target, ws["env/valid"] if "env/valid" in ws else None)
            goal = self.norm.normalise(target)
        return Estimate(advantage, goal, value, target)

    def state_dict(self) -> dict[str, Any]:
        parts = {"value_norm": self.norm, "reward_scale": self.scale}
        return {name: copied_state(module) for name, module in parts.items() if module is not None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.norm is not None:
            self.norm.load_state_dict(state["value_norm"])
        if self.scale is not None:
            self.scale.load_state_dict(state["reward_scale"])
