"""Controllers of toys that can be written down: teachers for students that see less, and something to compare with.

Each maps observations `{group: [B, ...]}` to actions `[B, A]`: `teachers: gaitway.envs.toys.controllers:swing_up`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gaitway.envs.vec_env import Observation

HOLD = (10.3, 2.49)
"""Gains of the linear quadratic regulator of the upright pendulum for the cost th^2 + 0.1 thd^2 + 0.05 u^2."""


def swing_up(obs: Observation) -> Tensor:
    """`toy/pendulum`: brings the energy thd^2 / 2 + 15 cos th to that of standing, 15, then holds (Astrom and Furuta
    2000, "Swinging up a pendulum by energy control")."""
    cosine, sine = obs["pos"].unbind(-1)
    velocity = 8.0 * obs["vel"].squeeze(-1)
    missing = 15.0 - (velocity.square() / 2 + 15.0 * cosine)
    swing = missing * velocity / (velocity.abs() + 0.1)
    hold = -(HOLD[0] * torch.atan2(sine, cosine) + HOLD[1] * velocity)
    torque = torch.where((cosine > 0.7) & (hold.abs() < 8.0), hold, swing)
    return torque.clamp(-2.0, 2.0).unsqueeze(-1)


def follow_reference(obs: Observation) -> Tensor:
    """`toy/oscillator`: the force that its reference needs, and springs towards it; linear in what is seen."""
    position, velocity = obs["policy"].unbind(-1)
    sine, cosine = obs["phase"].unbind(-1)
    rate = 2 * math.pi
    wanted = -0.5 * rate**2 * sine + 2.0 * 0.5 * rate * cosine  # qdd + 2 qd of the reference
    correction = 20.0 * (0.5 * sine - position) + 8.0 * (0.5 * rate * cosine - velocity)
    return ((wanted + correction) / 30.0).unsqueeze(-1)
