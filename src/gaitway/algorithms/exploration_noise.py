"""How much joints are shaken by exploration: the standard deviation of actions in degrees, where actions are angles."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gaitway.envs.vec_env import ActionSpec


def noise_in_degrees(action: ActionSpec, std: Tensor) -> dict[str, Tensor]:
    """`std` [..., A] in units of the action -> `noise_degrees/<joint>`, means over the rows; nothing where an action is
    no angle."""
    if action.unit != "rad" or not action.scale:
        return {}
    scale = torch.tensor(action.scale, dtype=std.dtype, device=std.device)
    degrees = (std * scale).reshape(-1, len(action.names)).mean(0) * (180.0 / math.pi)
    return {f"noise_degrees/{name}": value for name, value in zip(action.names, degrees.unbind(), strict=True)}
