"""The actions of an environment in units of half their range, -1 to 1 whatever the robot; and any action at random."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from gaitway.core.seeding import fill
from gaitway.envs.spec import ActionSpec, EnvSpec


class ActionRange(nn.Module):
    """Between continuous actions within finite limits and units of half the range. Discrete actions only have
    `uniform`."""

    centre: Tensor
    half_range: Tensor

    def __init__(self, action: ActionSpec) -> None:
        super().__init__()
        self.spec = action
        self.is_unit = False
        if action.kind == "continuous":
            low, high = torch.tensor(action.low), torch.tensor(action.high)
            self.register_buffer("centre", (high + low) / 2, persistent=False)
            self.register_buffer("half_range", (high - low) / 2, persistent=False)
            self.is_unit = bool((low == -1).all() and (high == 1).all())

    def unit(self, action: Tensor) -> Tensor:
        """The environment's action [..., A] in units of half the range."""
        return action if self.is_unit else (action - self.centre) / self.half_range

    def action(self, unit: Tensor) -> Tensor:
        """What the environment gets, [..., A]."""
        return unit if self.is_unit else torch.addcmul(self.centre, self.half_range, unit)

    def uniform(self, batch: int, device: torch.device, generator: torch.Generator) -> Tensor:
        """An action per instance, each possible one as likely as any other."""
        action = self.spec
        if action.kind == "discrete":
            start = action.start[0] if action.start else 0
            return fill(
                torch.empty(batch, dtype=torch.int64, device=device),
                generator,
                "random_",
                start,
                start + action.choices[0],
            )
        unit = fill(torch.empty(batch, *action.shape, device=device), generator, "uniform_", -1.0, 1.0)
        return torch.addcmul(self.centre, self.half_range, unit)


def check_finite_limits(spec: EnvSpec, what: str) -> None:
    """Refuse continuous actions without limits, on behalf of `what`."""
    if not all(math.isfinite(limit) for limit in (*spec.action.low, *spec.action.high)):
        raise ValueError(
            f"{spec.id} has actions without limits; {what} needs finite ones. Wrap the environment with limits or use "
            "algorithm=ppo"
        )
