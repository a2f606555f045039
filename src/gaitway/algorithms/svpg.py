"""Stein variational policy gradient: n actor-critics that share what they learn and keep apart from each other.

Liu et al. 2017, "Stein variational policy gradient" (arXiv 1704.02399), on top of advantage actor-critic. Particle i
plays columns of its own; its gradient is that of `algorithms.a2c` on those columns, cut to `max_grad_norm`. Then the
parameters theta_i of its *policy* follow the Stein direction of `functional.stein`

    phi_i = 1/n sum_j [ k(theta_j, theta_i) g_j / temperature + grad_{theta_j} k(theta_j, theta_i) ]

with g_j the uphill gradient, while its critic follows its own gradient: a value belongs to one policy. One step of Adam
per rollout moves all. `coupled=false` leaves the kernel out: n independent learners, the control of the comparison.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.particles import Particles
from gaitway.algorithms.algorithm import Batch, LossTerm, Now, PositiveCoefficient, value_at
from gaitway.algorithms.engine import ALIGNMENT
from gaitway.algorithms.policy_gradient import (
    BaselineLoss,
    PolicyGradient,
    PolicyGradientConfig,
    PolicyLoss,
)
from gaitway.algorithms.terms import Entropy, policy_weight, row_weights
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.ranges import Count, Positive, Share
from gaitway.core.transitions import final_observations
from gaitway.core.workspace import Workspace
from gaitway.functional.policy_losses import standardise
from gaitway.functional.returns import gae
from gaitway.functional.stein import median_of_pairs, squared_distances, stein_terms

WINDOW = 20
"""Finished episodes of a particle that say how good it is now."""


@configuration
class SVPGConfig(PolicyGradientConfig):
    """Stein variational policy gradient: on-policy, several policies at once."""

    name: Literal["svpg"] = "svpg"
    rollout_steps: Count = 16
    """Steps per environment and iteration (T)."""
    coupled: bool = True
    """Whether the particles share gradients and repel; false: independent learners."""
    temperature: PositiveCoefficient = 1e-3
    """How much the particles spread: gradients, which are means over steps, count 1 / temperature beside the repulsion.
    May be a schedule."""
    lam: Share = 1.0
    """Trace decay of the advantage estimate; 1: n-step returns, 0: one step."""
    normalise_advantage: bool = True
    """Bring the advantages of each particle to mean 0 and deviation 1: then a temperature means the same everywhere."""
    max_grad_norm: Positive | None = None
    """Limit of the norm of each particle's gradient, critic included; it changes what a temperature means."""


class SVPG(PolicyGradient):
    """Learns from all steps of a rollout; instance b belongs to particle `b // (B / n)`.

    The particle with the best recent training returns is made `policy.best`: it acts in evaluations.
    """

    config: SVPGConfig
    trains_in_ranks = False

    def __init__(
        self,
        policy: Particles,
        config: SVPGConfig | None = None,
        *,
        num_envs: int,
        terms: Sequence[LossTerm] = (),
        seed: int = 0,
        execution: Execution | None = None,
    ) -> None:
        policy.share(num_envs)
        # particles offer all that the base class asks of an actor-critic
        alike = cast("ActorCritic", policy)
        config = config or SVPGConfig()
        self.particles, self.count = policy, len(policy.members)
        # means over the particles of what A2C would have each minimise
        standard: list[LossTerm] = [
            PolicyLoss(self._mean),
            BaselineLoss(config.value_coef, self._mean),
            Entropy(config.entropy_coef, self._mean),
        ]
        super().__init__(alike, config, standard, num_envs=num_envs, terms=terms, execution=execution)
        self.reads = (*self.reads, *final_observations(policy.critic_groups))
        self.engine.direct = self._direction
        self.engine.max_grad_norm = None  # gradients are cut before they are coupled, each particle's by itself
        self.temperature = torch.ones((), device=self.device)
        self.returns = ParticleReturns(self.count, num_envs)
        self._policy_size = self._find_policy_size()

    # Called by the runner

    def update(self, data: Workspace, now: Now) -> dict[str, Tensor]:
        """One step of every particle; beside losses and statistics the recent returns of the particles."""
        self.temperature.fill_(value_at(self.config.temperature, now))
        metrics = super().update(data, now)
        self.returns.add(data)
        self.particles.best.fill_(self.returns.best())
        return metrics | {"temperature": self.temperature.clone()} | self.returns.metrics()

    def reset_running_returns(self) -> None:
        self.returns.running[:] = 0.0

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"returns": self.returns.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.returns.load_state_dict(state["returns"])

    # Equations

    def prepare(self, ws: Workspace) -> Batch:
        value, next_value = self.particles.values(ws)
        advantage = gae(
            reward=self.reward(ws),
            value=value,
            next_value=next_value,
            terminated=ws["env/terminated"],
            done=ws["env/done"],
            gamma=self.config.gamma,
            lam=self.config.lam,
        )
        batch = {"advantage": advantage, "return": advantage + value, "value": value}
        if self.config.normalise_advantage:
            batch["advantage"] = self._standardised(advantage, policy_weight(row_weights(ws)))
        return batch

    def _direction(self, batch: Batch) -> dict[str, Tensor]:
        """Overwrite the gradient, one row per particle, by what the optimiser is to descend."""
        total, statistics = self.engine.loss(batch)
        parameters = self.engine.parameters
        parameters.differentiate(total)
        with torch.no_grad(), torch.autocast(self.device.type, enabled=False):
            gradient = parameters.gradient.view(self.count, -1)
            gradient.mul_(self.count)  # the total is a mean over particles
            norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
            if self.config.max_grad_norm is not None:
                gradient.mul_((self.config.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
            statistics["particles/gradient_norm"] = norm.mean()
            theta = parameters.value.detach().view(self.count, -1)[:, : self._policy_size]
            statistics["particles/distance"] = median_of_pairs(squared_distances(theta)).sqrt()
            if self.config.coupled:
                downhill = gradient[:, : self._policy_size]
                driving, repelling = stein_terms(theta, -downhill, self.temperature)
                downhill.copy_(-(driving + repelling))
                lengths = torch.stack([torch.linalg.vector_norm(part, dim=1).mean() for part in (driving, repelling)])
                statistics["particles/repulsion"] = lengths[1] / lengths.sum().clamp(min=1e-12)
        return statistics

    # Private

    def _mean(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """Mean over particles of the means over their columns of [T, B]."""
        if weight is None:
            return x.mean()  # they have equally many
        shape = (self.count, -1)
        total = (x * weight).unflatten(1, shape).sum((0, 2))
        return (total / weight.unflatten(1, shape).sum((0, 2)).clamp(min=1.0)).mean()

    def _standardised(self, advantage: Tensor, weight: Tensor | None) -> Tensor:
        parts = advantage.chunk(self.count, 1)
        weights = [None] * self.count if weight is None else weight.chunk(self.count, 1)
        return torch.cat([standardise(part, own) for part, own in zip(parts, weights, strict=True)], 1)

    def _find_policy_size(self) -> int:
        """How many numbers of a particle's row are its policy: those before the critic, gaps between them included."""
        names, shapes = self.engine.parameters.names, self.engine.parameters.shapes
        own = [(name, shape) for name, shape in zip(names, shapes, strict=True) if name.startswith("members.0.")]
        is_critic = [name.startswith("members.0.critic.") for name, _ in own]
        assert is_critic == sorted(is_critic)
        sizes = [int(np.prod(shape)) for (_, shape), critic in zip(own, is_critic, strict=True) if not critic]
        return sum(size + -size % ALIGNMENT for size in sizes)


class ParticleReturns:
    """Follows every instance through rollouts: the returns of the last finished episodes of every particle."""

    def __init__(self, count: int, num_envs: int) -> None:
        self.share = num_envs // count
        self.running = np.zeros(num_envs)
        self.recent: list[deque[float]] = [deque(maxlen=WINDOW) for _ in range(count)]

    def add(self, ws: Workspace) -> None:
        """Count a rollout's raw rewards; Python work only for episodes that ended."""
        reward = ws["env/reward"].cpu().numpy().astype(np.float64)
        if "env/valid" in ws:
            reward = reward * ws["env/valid"].cpu().numpy()
        total = self.running + np.cumsum(reward, axis=0)
        counted = np.zeros_like(self.running)
        for row, column in np.argwhere(ws["env/done"].cpu().numpy()).tolist():
            self.recent[column // self.share].append(float(total[row, column] - counted[column]))
            counted[column] = total[row, column]
        self.running = total[-1] - counted

    def means(self) -> list[float]:
        """Mean recent return of every particle, NaN for one that has finished no episode."""
        return [float(np.mean(returns)) if returns else float("nan") for returns in self.recent]

    def best(self) -> int:
        """The particle with the highest mean; the first while no episode has ended."""
        return int(np.argmax([-np.inf if np.isnan(mean) else mean for mean in self.means()]))

    def metrics(self) -> dict[str, Tensor]:
        """The means of the particles that have one, and the best and the worst of them."""
        known = {number: mean for number, mean in enumerate(self.means()) if not np.isnan(mean)}
        if not known:
            return {}
        found = {f"particles/return_{number}": mean for number, mean in known.items()}
        found |= {"particles/return_best": max(known.values()), "particles/return_worst": min(known.values())}
        return {name: torch.tensor(value) for name, value in found.items()}

    def state_dict(self) -> dict[str, Any]:
        return {"running": torch.from_numpy(self.running.copy()), "recent": [list(returns) for returns in self.recent]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.running = state["running"].numpy().copy()
        self.recent = [deque(returns, maxlen=WINDOW) for returns in state["recent"]]
