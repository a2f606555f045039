"""Kicks and pushes of robots as they go: when the next one is due, which force acts now, what is seen of them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gaitway.envs.episode_numbers import Index
from gaitway.envs.legged import randomise
from gaitway.envs.legged.frame import RobotTensors
from gaitway.envs.legged.metrics import GRAVITY
from gaitway.envs.legged.randomise import PUSH_DRAWS, PushConfig
from gaitway.envs.legged.rows import put

SHAPES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("kick_left", "push_left", "push_gone", "push_lasts"), ()),
    **{"kick": (3,), "push_impulse": (2,)},
}
"""What an episode carries of them, per instance."""
EPISODE_DRAWS = 2 * PUSH_DRAWS
"""Numbers with which an episode begins."""


class Pushes:
    """Of one task; `memory` holds tensors [B, ...] of `SHAPES`."""

    def __init__(self, config: PushConfig, robot: RobotTensors, dt: float) -> None:
        self.config, self.robot, self.dt = config, robot, dt
        self.has_kicks, self.has_pushes = config.kick_seconds is not None, config.push_seconds is not None
        self.kick_draws, self.push_draws = PUSH_DRAWS * self.has_kicks, PUSH_DRAWS * self.has_pushes
        """Numbers of a step."""
        planar = robot.is_planar
        self._moves = robot.pose.new_tensor((1.0, 0.0, 1.0, 0.0, 0.0, 0.0) if planar else (1.0,) * 6)
        """Ways in which a base can be kicked [6], 0 or 1: planar ones have no y, and are never turned."""

    def attach(self, memory: Mapping[str, Tensor]) -> None:
        self._memory = memory

    def first(self, uniform: Tensor) -> dict[str, Tensor]:
        """What an episode begins with, by name [n]; `uniform` [n, EPISODE_DRAWS]."""
        found: dict[str, Tensor] = {}
        if self.has_kicks:
            _, found["kick_left"] = randomise.draw_kick(self.config, uniform)
        if self.has_pushes:
            _, _, wait = randomise.draw_push(self.config, uniform[:, PUSH_DRAWS:], self.robot.mass)
            found |= {"push_left": wait, "push_lasts": torch.ones_like(wait)}
        return found

    def force(self) -> Tensor:
        """On the bases during the next step, in the world [B, 2]."""
        memory = self._memory
        return randomise.push_force(memory["push_impulse"], memory["push_lasts"], memory["push_gone"], self.dt)

    def fade(self) -> None:
        """A step is over."""
        if self.has_pushes:
            self._memory["push_gone"].add_(self.dt)
        self._memory["kick"].mul_(randomise.FADE)

    def begin_due(self, goes_on: Tensor, uniform: Tensor) -> None:
        """Begin the pushes that are due, of episodes that go on [B]; `uniform` [B, push_draws]."""
        memory = self._memory
        memory["push_left"].sub_(self.dt)
        due = goes_on & (memory["push_left"] <= 0.0)
        impulse, lasts, wait = randomise.draw_push(self.config, uniform, self.robot.mass)
        impulse = impulse * self._moves[:2]
        for name, value in (("push_impulse", impulse), ("push_lasts", lasts), ("push_left", wait + lasts)):
            put(memory[name], due, value)
        put(memory["push_gone"], due, torch.zeros_like(lasts))

    def kicks(self, goes_on: Tensor, uniform: Tensor) -> Tensor:
        """Changes of the bases' velocities [B, 6] where a kick is due; `uniform` [B, kick_draws]."""
        memory = self._memory
        memory["kick_left"].sub_(self.dt)
        due = goes_on & (memory["kick_left"] <= 0.0)
        change, wait = randomise.draw_kick(self.config, uniform)
        change = change * self._moves
        put(memory["kick_left"], due, wait)
        put(memory["kick"], due, change[:, :3])
        return change * due[:, None]

    def seen(self, rows: Index) -> Tensor:
        """The last kick, fading [n, 3], and the running force over the robot's weight [n, 3]."""
        kick = self._memory["kick"][rows]
        force = self.force()[rows] / (GRAVITY * self.robot.mass) if self.has_pushes else torch.zeros_like(kick[:, :2])
        return torch.cat((kick, force, torch.zeros_like(force[:, :1])), 1)
