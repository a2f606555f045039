"""The losses PPO is made of. A variant of PPO is another list of these, not a subclass.

Fields a term may read from a minibatch: `log_prob`, `params`, `raw`, `advantage`, `return`, `value` (as they were in
the rollout), `weight` (only where some rows do not count), any workspace variable it declares in `reads`, and what
the policy says now: `new/log_prob`, `new/params`, `new/entropy`, `new/mean`, `new/value`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gaitway.algorithms.algorithm import Batch, Coefficient, DeviceNow
from gaitway.envs.vec_env import ActionSpec
from gaitway.functional.policy_losses import clipped_surrogate, value_error, weighted_mean


class Surrogate:
    """PPO's clipped policy loss."""

    name = "surrogate"
    reads: tuple[str, ...] = ()

    def __init__(self, clip: float = 0.2, coef: Coefficient = 1.0) -> None:
        self.clip, self.coef = clip, coef

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        weight = batch.get("weight")
        loss, ratio = clipped_surrogate(batch["new/log_prob"], batch["log_prob"], batch["advantage"], self.clip)
        clipped = ((ratio.detach() - 1.0).abs() > self.clip).float()
        return weighted_mean(loss, weight), {"clip_fraction": weighted_mean(clipped, weight)}


class ValueLoss:
    """Squared error of the critic in its own units; `clip` limits how far one update moves it (None: no limit)."""

    name = "value"
    reads: tuple[str, ...] = ()

    def __init__(self, clip: float | None = None, coef: Coefficient = 1.0) -> None:
        self.clip, self.coef = clip, coef

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        error = value_error(batch["new/value"], batch["value"], batch["return"], self.clip)
        return weighted_mean(error, batch.get("weight")), {}


class Entropy:
    """Minus the policy's entropy: a positive coefficient keeps it exploring."""

    name = "entropy"
    reads: tuple[str, ...] = ()

    def __init__(self, coef: Coefficient = 0.0) -> None:
        self.coef = coef

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        return -weighted_mean(batch["new/entropy"], batch.get("weight")), {}


class ActionBound:
    """Squared distance of the mean action beyond `margin` times the limits, in units of half the action range.

    Limits clip inside the simulator, so beyond them the task's reward has no slope; this term brings the mean back.
    """

    name = "action_bound"
    reads: tuple[str, ...] = ()

    def __init__(self, action: ActionSpec, coef: Coefficient = 0.0, margin: float = 1.1) -> None:
        low, high = torch.tensor(action.low), torch.tensor(action.high)
        if action.kind != "continuous" or not bool(torch.isfinite(low).all() and torch.isfinite(high).all()):
            raise ValueError("the action_bound term needs a continuous action with finite limits; leave it out")
        self.coef, self.margin = coef, margin
        self.centre, self.half_range = (low + high) / 2, (high - low) / 2

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        mean = batch["new/mean"]
        if self.centre.device != mean.device:
            self.centre, self.half_range = self.centre.to(mean.device), self.half_range.to(mean.device)
        excess = (((mean - self.centre) / self.half_range).abs() - self.margin).clamp(min=0.0)
        return weighted_mean(excess.square().sum(-1), batch.get("weight")), {}
