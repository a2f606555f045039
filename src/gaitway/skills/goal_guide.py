"""The learner's part in drawing goals: its discount, and what its networks think of candidates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from gaitway.skills.multitask_sac import MultitaskSAC

GUIDED = ("r", "r2", "q")


class GoalGuide:
    """Tells the environment, when a run begins or goes on, the discount of the learner (rewards `potential2` and
    `potential3`), and lets it ask the networks about candidate goals where its `goal_sampling` is `r`, `r2` or `q`.

    Evaluations draw their goals uniformly. `MultitaskSAC` brings this callback along.
    """

    name = "goal_guide"

    def __init__(self, algorithm: MultitaskSAC) -> None:
        self.algorithm = algorithm
        self.sampling = "random"

    def begin(self, moment: Any) -> None:
        self.sampling = moment.env.spec.options.get("goal_sampling", "random")
        moment.env.call("set_model", self.scores if self.sampling in GUIDED else None, self.discount)

    def after_iteration(self, moment: Any) -> None:
        if moment.evaluation_env is not None:
            moment.evaluation_env.call("set_model", None, self.discount)

    @property
    def discount(self) -> float:
        return float(self.algorithm.config.gamma)

    @torch.no_grad()
    def scores(self, seen: Mapping[str, np.ndarray]) -> np.ndarray:
        """What the networks say of the policy's mean action, [m]: for `q` the smaller of two values, else the
        probability of reaching the goal. `seen` are the groups of observations that the policy would see."""
        policy = self.algorithm.policy
        obs = {
            name: torch.from_numpy(np.ascontiguousarray(array)).to(self.algorithm.device)
            for name, array in seen.items()
        }
        action = policy.mean_action(policy.network_input(obs, "actor"))
        values = policy.values(policy.critic, policy.network_input(obs, "critic"), action)
        return (values[:-1].amin(0) if self.sampling == "q" else values[-1]).double().cpu().numpy()
