"""How much joints are shaken by exploration: the standard deviation of actions in degrees, where actions are angles."""

from __future__ import annotations

import math

from torch import Tensor

from gaitway.envs.spec import ActionSpec


def noise_in_degrees(action: ActionSpec, std: Tensor) -> dict[str, Tensor]:
    """`std` [..., A] in units of the action -> `noise_degrees/<joint>`, means over the rows; nothing where an action is
    no angle."""
    if action.unit != "rad" or not action.scale:
        return {}
    means = std.reshape(-1, len(action.names)).mean(0).unbind()
    factors = [each * 180.0 / math.pi for each in action.scale]  # numbers: a tensor of them would wait for the GPU
    named = zip(action.names, means, factors, strict=True)
    return {f"noise_degrees/{name}": mean * factor for name, mean, factor in named}
